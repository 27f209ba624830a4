"""Removal of whole fragments, and of what they remember, by their times.

The order keeps readers right wherever it stops: `.ign` where a `.con` names what goes, then the commits, then the
folders. What a consolidation replaced goes before the fragment that stands for it, so that it never shows again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from terrazzo.engine.clock import new_name
from terrazzo.engine.consolidate import finish_merge
from terrazzo.engine.ledger import Ledger, read_ledger
from terrazzo.engine.listing import list_array
from terrazzo.engine.select import stored_size
from terrazzo.engine.view import View
from terrazzo.errors import InvalidRequestError
from terrazzo.format import keys
from terrazzo.format.commits import Commit
from terrazzo.format.keys import CommitKind, TimestampedName, commit_key, fragment_key
from terrazzo.format.ledgers import pack_ign
from terrazzo.format.versions import WRITTEN
from terrazzo.storage.base import Store


@dataclass(frozen=True, slots=True)
class RemovalReport:
    """The names of the fragments that were removed, or would be."""

    fragments: tuple[str, ...]
    superseded: tuple[str, ...] = field(default=())  # that these had replaced
    n_cells: int = 0
    stored_bytes: int = 0
    dry_run: bool = False

    def __iter__(self) -> Iterator[str]:
        return iter(self.fragments)

    def __len__(self) -> int:
        return len(self.fragments)

    def __str__(self) -> str:
        verb = "would remove" if self.dry_run else "removed"
        if not self.fragments:
            return f"{verb} nothing: no fragment lies fully between these instants"
        lines = [
            f"{verb} {len(self.fragments)} fragments, {self.n_cells:,} cells, {self.stored_bytes:,} bytes stored"
        ]
        if self.superseded:
            lines.append(f"and {len(self.superseded)} that consolidation had replaced by them")
        return "\n".join([*lines, *(f"  {name}" for name in self.fragments)])


def delete_fragments(view: View, since_ms: int, until_ms: int, *, dry_run: bool) -> RemovalReport:
    """`view` must see everything, whatever its time."""
    if since_ms > until_ms:
        raise InvalidRequestError(f"since={since_ms} is later than until={until_ms}")
    store, snapshot = view.store, view.snapshot
    snapshot.require_sound()
    chosen = [f for f in snapshot.fragments if since_ms <= f.name.start_ms and f.name.end_ms <= until_ms]
    ledger = read_ledger(store, list_array(store))
    if not dry_run and ledger.merges and chosen:
        ledger = _without_merges(store, ledger)
    gone, vacs = _replaced_by(ledger, {fragment.key for fragment in chosen})
    report = RemovalReport(
        tuple(str(fragment.name) for fragment in chosen),
        tuple(key.rpartition("/")[2] for key in gone),
        sum(fragment.footer.n_cells(snapshot.schema_of(fragment)) for fragment in chosen),
        sum(map(stored_size, chosen)),
        dry_run,
    )
    if chosen and not dry_run:
        _remove(store, ledger, [*gone, *(fragment.key for fragment in chosen)], vacs)
    return report


def _without_merges(store: Store, ledger: Ledger) -> Ledger:
    """What a consolidation left unfinished would show again what it replaced."""
    for key, merge in ledger.merges:
        name = TimestampedName.parse(key.rpartition("/")[2].removesuffix(f".{keys.MERGE_SUFFIX}"))
        if name is not None and all(created in ledger.writes for created in merge.created):
            finish_merge(store, name, merge)
    return read_ledger(store, list_array(store))


def _replaced_by(ledger: Ledger, chosen: set[str]) -> tuple[list[str], list[str]]:
    """Fragments that the chosen ones stand for, oldest first, and the `.vac` files that say so."""
    gone: dict[str, None] = {}
    vacs: list[str] = []
    reached = set(chosen)
    waiting = list(ledger.superseded)
    while told := [(name, lines) for name, lines in waiting if fragment_key(name) in reached]:
        for name, lines in told:
            vacs.append(commit_key(name, CommitKind.VACUUM))
            gone.update(dict.fromkeys(line for line in lines if line in ledger.writes))
            reached.update(lines)
        waiting = [item for item in waiting if item not in told]
    return [key for key in reversed(gone) if key not in chosen], vacs[::-1]


def _remove(store: Store, ledger: Ledger, gone: list[str], vacs: list[str]) -> None:
    commits = [Commit(ledger.writes[key], CommitKind.WRITE) for key in gone]
    ignored = [commit for commit in commits if commit.key in ledger.in_con]
    if ignored:
        name = new_name(min(c.name.start_ms for c in ignored), max(c.name.end_ms for c in ignored), WRITTEN)
        store.put(commit_key(name, CommitKind.IGNORE), pack_ign(ignored))
    store.delete([commit.key for commit in commits])
    for key in gone:
        store.delete_folder(key)
    store.delete(vacs)
