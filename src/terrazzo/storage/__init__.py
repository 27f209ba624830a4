"""Bytes by key; has never heard of arrays."""

from terrazzo.storage.base import Bytes, Entry, Listing, Store, Writer
from terrazzo.storage.objects import open_store

__all__ = ["Bytes", "Entry", "Listing", "Store", "Writer", "open_store"]
