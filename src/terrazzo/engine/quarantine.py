"""Quarantine: what a repair takes out of an array, copied to the same key below `<uri>.quarantine`."""

from collections.abc import Iterable

from terrazzo.errors import ConflictError
from terrazzo.storage.base import Store

QUARANTINE = ".quarantine"


def copy_aside(store: Store, key: str) -> None:
    """Copy an object to the same key beside the array; what is there already is kept."""
    beside, stored = store.beside(QUARANTINE), store.get(key)
    for number in range(1000):
        place = key if not number else f"{key}.{number}"
        try:
            beside.put(place, stored, if_absent=True)
        except ConflictError:
            if beside.get(place) != stored:
                continue
        return
    raise ConflictError(f"{beside.uri}/{key} has been set aside too often; move the quarantine away")


def quarantine(store: Store, files: Iterable[str]) -> None:
    """Move objects aside: all are copied before the first goes, the first named first."""
    todo = list(files)
    for key in todo:
        copy_aside(store, key)
    store.delete(todo)
