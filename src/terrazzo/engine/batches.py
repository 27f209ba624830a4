"""Batches of streaming queries, each committed once however often it is tried.

Two traces tell that a batch is in the array:

    its token    twelve digits in the names of its fragments: they appear in the same instant as its cells
    `.stream`    one small file per query in `__commits`, put behind each commit, with the number of the last batch

The first cannot be missing, but goes when its fragments are consolidated and vacuumed; nothing removes the second.
Only the last batch of a query is ever tried again.
"""

import hashlib
import json

from terrazzo.engine.ledger import read_ledger
from terrazzo.engine.listing import list_array
from terrazzo.errors import CorruptionError, MissingObjectError
from terrazzo.format.keys import TimestampedName, stream_key
from terrazzo.format.versions import WRITTEN
from terrazzo.storage.base import Store


def batch_token(query: str, batch: int) -> str:
    return hashlib.sha256(f"{query}/{batch}".encode()).hexdigest()[:12]


def is_committed(store: Store, query: str, batch: int) -> bool:
    if batch <= last_batch(store, query):
        return True
    token = batch_token(query, batch)
    names = (key.rpartition("/")[2] for key in read_ledger(store, list_array(store)).known)
    return any(
        (name := TimestampedName.parse(text)) is not None and name.uuid[8:20] == token for text in names
    )


def last_batch(store: Store, query: str) -> int:
    """The last batch that is noted, -1 before the first."""
    key = _key(query)
    try:
        return int(json.loads(store.get(key))["batch"])
    except MissingObjectError:
        return -1
    except (ValueError, KeyError, TypeError):
        raise CorruptionError(
            f"does not tell which batch of the query {query} was the last; restore it, or remove it if that batch was "
            f"not committed",
            key=f"{store.uri}/{key}",
        ) from None


def note_batch(store: Store, query: str, batch: int) -> None:
    store.put(_key(query), json.dumps({"query": query, "batch": batch}).encode())


def _key(query: str) -> str:
    return stream_key(hashlib.sha256(query.encode()).hexdigest()[:32], WRITTEN)
