"""A change that was computed from what could be seen: whether that still stands when it is committed.

Cells that are read, changed and written again carry a time after everything that was seen. What others commit
meanwhile with a later time comes on top of them, as if it had happened afterwards. Not so

    what others commit with an earlier time     it was not seen, and the cells written again would hide it
    cells that others wrote again likewise      they were computed without this change, and would undo it

Then nothing is committed, and the change has to be computed anew.
"""

import secrets
from dataclasses import dataclass

from terrazzo.engine.bulk import FRAGMENT_SIZE, BulkWrite
from terrazzo.engine.ledger import Ledger, read_ledger
from terrazzo.engine.listing import list_array
from terrazzo.engine.session import next_time, reaching
from terrazzo.engine.view import View
from terrazzo.errors import ConflictError
from terrazzo.format.keys import TimestampedName, fragment_key
from terrazzo.storage.base import Store

_MARK = "5e1fed"
"""Begins the token in the names of fragments that hold cells written again."""


def committed(store: Store) -> Ledger:
    """All commits of now. To be taken before the snapshot, so that nothing falls between them."""
    return read_ledger(store, list_array(store))


@dataclass(frozen=True)
class Basis:
    """What a change is computed from, and the instant that it takes."""

    view: View  # as of `time_ms`
    ledger: Ledger
    time_ms: int

    @classmethod
    def of(cls, view: View, ledger: Ledger, at: object = None) -> "Basis":
        time_ms = next_time(view.snapshot, at)
        return cls(view if at is None else reaching(view, time_ms), ledger, time_ms)

    def bulk(self, *, later: int = 0) -> BulkWrite:
        """A write of cells that were changed, `later` milliseconds behind the removal of others."""
        snapshot = self.view.snapshot
        return BulkWrite(
            self.view.store, snapshot.schema, snapshot.schema_name, self.time_ms + later, self.view.cipher,
            FRAGMENT_SIZE, creates=False, replaces=False, token=_MARK + secrets.token_hex(3),
        )  # fmt: skip

    def check(self) -> None:
        """Right before the commit: that nothing happened which the change should have seen."""
        now = committed(self.view.store)
        if found := self._unseen(now):
            raise ConflictError(
                f"{found} by another process while the change was computed; nothing was changed, so try again"
            )

    def _unseen(self, now: Ledger) -> str | None:
        before = self.ledger
        sources = {fragment_key(name): lines for name, lines in now.superseded}
        sources |= {key: merge.replaced for _, merge in now.merges for key in merge.created}
        for key, name in now.writes.items():
            merged = key in sources and before.known.issuperset(sources[key])  # the same cells elsewhere
            if (
                key not in before.writes
                and not merged
                and (name.start_ms <= self.time_ms + 1 or _marked(name))
            ):
                return f"{name} was written"
        held = {commit.key for commit in before.conditions}
        for commit in now.conditions:
            if commit.key not in held and commit.name.start_ms <= self.time_ms + 1:
                return f"{commit.key} was committed"
        hidden = {key for _, lines in before.superseded for key in lines}
        for key in before.writes:
            if key not in now.known and key not in hidden:
                return f"{key} was removed"
        return None


def _marked(name: TimestampedName) -> bool:
    return name.uuid[8 : 8 + len(_MARK)] == _MARK
