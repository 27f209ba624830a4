"""Bytes by key; has never heard of arrays."""
