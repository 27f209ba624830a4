"""Repair: sets aside what is torn and finishes what was interrupted, so that the array opens and reads.

    plan     a survey, turned into actions that can be read before they are run
    run      one after the other; each is harmless to run twice, and a repair that was stopped is simply run again

Nothing is thrown away: what leaves the array is copied first, to the same key below `<uri>.quarantine`. A committed
fragment is never touched unless that is asked for.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from terrazzo.engine.check import breaks_open, fast_findings
from terrazzo.engine.clock import FOREVER, new_name, now_ms
from terrazzo.engine.compact import consolidate_fragment_metadata
from terrazzo.engine.consolidate import finish_merge
from terrazzo.engine.findings import Finding, Severity, in_order
from terrazzo.engine.quarantine import copy_aside, quarantine
from terrazzo.engine.schemas import current_schema
from terrazzo.engine.snapshot import take_snapshot
from terrazzo.engine.survey import Con, Survey, survey, told_ignored, told_lines, told_merge
from terrazzo.engine.view import View
from terrazzo.engine.window import Window
from terrazzo.errors import InvalidRequestError, TerrazzoError, UnsupportedFeatureError
from terrazzo.format import keys
from terrazzo.format.commits import Commit
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.keys import CommitKind, TimestampedName, commit_key, fragment_key
from terrazzo.format.ledgers import Merge, Record, WriteRecord, pack_con, pack_ign, pack_vac, unpack_vac
from terrazzo.format.versions import WRITTEN
from terrazzo.storage.base import Store

_METADATA = keys.FRAGMENT_METADATA_FILE
_TELLING = re.compile(r"__\d+_\d+_[0-9a-f]{16}")

PATIENCE_MS = 3_600_000
"""How old an uncommitted consolidation must be to count as interrupted."""


@dataclass(frozen=True, slots=True)
class Action:
    """One step: what it does, for people; and the doing."""

    text: str
    run: Callable[[], None] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class RepairReport:
    uri: str
    actions: tuple[str, ...]
    left: tuple[Finding, ...]  # errors that a repair cannot mend
    dry_run: bool

    @property
    def ok(self) -> bool:
        """Whether no error is left once the actions are done."""
        return not self.left

    def __str__(self) -> str:
        if not self.actions and not self.left:
            return f"{self.uri}: nothing to repair"
        lines = [f"{self.uri}: {'would do' if self.dry_run else 'did'} {len(self.actions)} things"]
        lines += [f"  {text}" for text in self.actions]
        lines += [f"cannot be repaired: {finding}" for finding in self.left]
        return "\n".join(lines)


def repair_array(
    store: Store, cipher: Aes256Gcm | None, *, dry_run: bool = True, damaged_fragments: bool = False,
    patience_ms: int = PATIENCE_MS,
) -> RepairReport:  # fmt: skip
    """Plan, and unless it is a dry run, mend. `damaged_fragments` sets aside fragments that cannot be read."""
    done: list[str] = []
    # What was hidden behind one problem shows once that is gone: a second look finds it.
    for _ in range(1 if dry_run else 3):
        found = survey(store, cipher)
        if not found.schemas:
            raise InvalidRequestError(
                f"no schema of {store.uri} can be read, so nothing is known of its files; restore one, or give "
                "the right key"
            )
        actions = list(_Planner(store, cipher, found, patience_ms, damaged_fragments).actions())
        done += [action.text for action in actions]
        if not actions:
            break
        if not dry_run:
            for action in actions:
                action.run()
    found = survey(store, cipher)
    errors = [f for f in fast_findings(store, cipher, found) if f.severity is Severity.ERROR]
    if dry_run:
        mended = _Planner(store, cipher, found, patience_ms, damaged_fragments)
        mended.touch()
        errors = [f for f in errors if not mended.mends(f.key)]
    return RepairReport(store.uri, tuple(dict.fromkeys(done)), in_order(errors), dry_run)


@dataclass
class _Planner:
    store: Store
    cipher: Aes256Gcm | None
    found: Survey
    patience_ms: int
    damaged_fragments: bool
    touched: set[str] = field(default_factory=set)

    def touch(self) -> None:
        for _ in self.actions():
            pass

    def mends(self, key: str) -> bool:
        return key in self.touched or any(key.startswith(f"{folder}/") for folder in self.touched)

    def actions(self) -> Iterator[Action]:
        yield from self._strangers()
        yield from self._schemas()
        yield from self._ignores()
        yield from self._cons()
        yield from self._conditions()
        yield from self._vacs()
        yield from self._merges()
        yield from self._commits_of_nothing()
        yield from self._metadata()
        yield from self._damaged()
        yield from self._footers()

    def act(self, key: str, text: str, run: Callable[[], None]) -> Action:
        self.touched.add(key)
        return Action(f"{key}: {text}", run)

    def set_aside(self, key: str, why: str) -> Action:
        return self.act(key, f"set aside: {why}", lambda: quarantine(self.store, [key]))

    def torn(self, suffix: str = "", folder: str = keys.COMMIT_FOLDER) -> Iterator[tuple[str, TerrazzoError]]:
        for key, problem in self.found.broken.items():
            # What a newer release wrote is no damage.
            if isinstance(problem, UnsupportedFeatureError):
                continue
            where, _, name = key.rpartition("/")
            if where in {folder, ""} and (name.endswith(suffix) if suffix else "." not in name):
                yield key, problem

    # -- file by file ---------------------------------------------------------------------------------

    def _strangers(self) -> Iterator[Action]:
        for key, problem in self.found.strangers.items():
            if breaks_open(key) and key in self.found.entries:
                yield self.set_aside(key, problem)

    def _schemas(self) -> Iterator[Action]:
        for key, problem in self.torn(folder=keys.SCHEMA_FOLDER):
            # Fragments written under it are among the lost: without its schema nobody can read them.
            if not any(key.rpartition("/")[2] in str(lost) for lost in self.found.lost.values()):
                yield self.set_aside(key, f"{problem.args[0]}; no fragment asks for this schema")

    def _ignores(self) -> Iterator[Action]:
        for key, problem in self.torn(f".{CommitKind.IGNORE}"):
            commits, rest = told_ignored(self.store.get(key))
            held = {record.key for con in self.found.cons.values() for record in con.records}
            commits += [Commit.parse(name) for name in _completed(rest, held)]  # type: ignore[misc]
            if commits:
                text = f"write the {len(commits)} lines that can be told into another"
                yield self.act(key, text, lambda told=commits: self._put_ign(told))  # type: ignore[misc]
            yield self.set_aside(key, f"{problem.args[0]}")

    def _put_ign(self, commits: Iterable[Commit]) -> None:
        told = list(dict.fromkeys(commits))
        name = new_name(min(c.name.start_ms for c in told), max(c.name.end_ms for c in told), WRITTEN)
        self.store.put(commit_key(name, CommitKind.IGNORE), pack_ign(told))

    def _cons(self) -> Iterator[Action]:
        sound = {key: con for key, con in self.found.cons.items() if not con.problem and not con.broken}
        elsewhere = {record.key for con in sound.values() for record in con.records}
        elsewhere |= {key for key in self.found.entries if key.endswith((".wrt", ".ok"))}
        for key, con in self.found.cons.items():
            problem = con.problem or next(iter(con.broken.values()), None)
            if problem is None or isinstance(problem, UnsupportedFeatureError):
                continue
            kept = [record for record in con.sound if record.key not in elsewhere]
            kept += self._cut_off(key, con)
            if kept:
                text = f"write the {len(kept)} commits that can be told into another"
                yield self.act(key, text, lambda records=kept: self._put_con(records))  # type: ignore[misc]
            gone = [marker for marker in con.broken if marker not in self.found.entries]
            lost = f"; these no longer count: {', '.join(gone)}" if gone else ""
            loose = set(self._uncommitted(key)) - {fragment_key(record.name) for record in kept}
            if con.problem is not None and loose:
                lost += (
                    f"; it may have committed {', '.join(sorted(loose))}: copy them before vacuum takes them"
                )
            yield self.set_aside(key, f"{problem.args[0]}{lost}")

    def _uncommitted(self, con: str) -> Iterator[str]:
        """Whole fragments of the times of a `.con` that no commit names."""
        span = TimestampedName.parse(con.rpartition("/")[2].rpartition(".")[0])
        for folder, files in self.found.folders.items():
            name = TimestampedName.parse(folder.rpartition("/")[2])
            if folder in self.found.ledger.known or name is None or span is None:
                continue
            if span.start_ms <= name.start_ms <= name.end_ms <= span.end_ms and _METADATA in files:
                yield folder

    def _cut_off(self, key: str, con: Con) -> list[Record]:
        """The write whose line is the last and was cut off, if there is but one that it can be."""
        if con.problem is None or con.problem.offset is None:
            return []
        rest = self.store.get(key)[con.problem.offset :].decode("utf-8", "replace")
        names = {
            f"{keys.COMMIT_FOLDER}/{folder.rpartition('/')[2]}.{CommitKind.WRITE}"
            for folder in self._uncommitted(key)
        }
        found = [Commit.parse(name) for name in _completed(rest, names)]
        return [WriteRecord(commit.name) for commit in found if commit is not None]

    def _put_con(self, records: list[Record]) -> None:
        name = new_name(
            min(record.name.start_ms for record in records),
            max(record.name.end_ms for record in records),
            WRITTEN,
        )
        self.store.put(commit_key(name, CommitKind.CONSOLIDATED), pack_con(records))

    def _conditions(self) -> Iterator[Action]:
        for kind, what in ((CommitKind.DELETE, "delete"), (CommitKind.UPDATE, "update")):
            for key, problem in self.torn(f".{kind}"):
                if key in self.found.entries:
                    held = key in self.found.ledger.payloads
                    then = "a .con holds it too" if held else f"its {what} no longer counts"
                    yield self.set_aside(key, f"{problem.args[0]}; {then}")

    def _vacs(self) -> Iterator[Action]:
        for key, problem in self.torn(f".{CommitKind.VACUUM}"):
            name = TimestampedName.parse(key.rpartition("/")[2].rpartition(".")[0])
            if name is None or fragment_key(name) not in self.found.ledger.known:
                yield self.set_aside(key, f"{problem.args[0]}; what it speaks for was never committed")
                continue
            lines = self._told_vac(self.store.get(key))
            text = f"keep the {len(lines)} lines that can be told: {problem.args[0]}{self._maybe_twice}"
            yield self.act(key, text, lambda k=key, told=lines: self._replace(k, pack_vac(told)))  # type: ignore[misc]
        for own, replaced in self.found.ledger.superseded:
            if fragment_key(own) not in self.found.ledger.known:
                hidden = sum(line in self.found.ledger.writes for line in replaced)
                why = f"the fragment that replaces {hidden} others was never committed"
                yield self.set_aside(commit_key(own, CommitKind.VACUUM), why)

    @property
    def _maybe_twice(self) -> str:
        """Without duplicates the newest version hides what a lost line would have hidden."""
        latest = self.found.schemas[current_schema(self.found.schemas, FOREVER)]
        told = "; cells of fragments that it named behind the damage show twice until these are removed"
        return told if latest.sparse and latest.allows_duplicates else ""

    def _told_vac(self, stored: bytes, candidates: Iterable[str] | None = None) -> list[str]:
        lines, rest = told_lines(stored, unpack_vac)
        names = self.found.ledger.writes if candidates is None else candidates
        return lines + _completed(rest, (f"/{key}" for key in names))

    def _replace(self, key: str, content: bytes) -> None:
        copy_aside(self.store, key)
        self.store.put(key, content)

    def _merges(self) -> Iterator[Action]:
        suffix = f".{keys.MERGE_SUFFIX}"
        ledger = self.found.ledger
        for key, problem in self.torn(suffix):
            name = TimestampedName.parse(key.rpartition("/")[2].removesuffix(suffix))
            vac = None if name is None else commit_key(name, CommitKind.VACUUM)
            if name is not None and vac not in self.found.entries and fragment_key(name) in ledger.writes:
                told, rest = told_merge(self.store.get(key))
                replaced = [*told.replaced, *_completed(rest, (f"-{key}" for key in ledger.writes))]
                if replaced:
                    text = f"tell readers of the {len(replaced)} fragments known to be replaced"
                    yield self.act(
                        key, text,
                        lambda v=vac, lines=replaced: self.store.put(v, pack_vac(lines)),  # type: ignore[misc]
                    )  # fmt: skip
            yield self.set_aside(key, f"{problem.args[0]}{self._maybe_twice}")
        for key, merge in ledger.merges:
            yield from self._merge(key, merge)

    def _merge(self, key: str, merge: Merge) -> Iterator[Action]:
        ledger = self.found.ledger
        name = TimestampedName.parse(key.rpartition("/")[2].removesuffix(f".{keys.MERGE_SUFFIX}"))
        assert name is not None
        missing = [created for created in merge.created if created not in ledger.writes]
        if len(missing) == len(merge.created):
            entry = self.found.entries.get(key)
            if entry is None or entry.modified_ms > now_ms() - self.patience_ms:
                return
            yield self.act(
                key, f"roll back the consolidation of {len(merge.replaced)} fragments: it was never committed",
                lambda: self._roll_back(key, missing),
            )  # fmt: skip
            return
        if missing:
            whole = all(keys.FRAGMENT_METADATA_FILE in self.found.folders.get(each, {}) for each in missing)
            if not whole:
                return
            records: list[Record] = [
                WriteRecord(parsed)
                for each in missing
                if (parsed := TimestampedName.parse(each.rpartition("/")[2]))
            ]
            text = f"commit the {len(missing)} fragments of the consolidation that are not yet"
            yield self.act(key, text, lambda: self._put_con(records))
        yield self.act(
            key, f"finish the consolidation of {len(merge.replaced)} fragments",
            lambda: finish_merge(self.store, name, merge),
        )  # fmt: skip

    def _roll_back(self, key: str, created: list[str]) -> None:
        for folder in created:
            self.store.delete_folder(folder)
        self.store.delete([key])

    def _commits_of_nothing(self) -> Iterator[Action]:
        """Commits whose fragment has no file left: readers stumble over them, and there is no cell to lose."""
        for key in sorted(self.found.gone):
            yield from self._uncommit(key, "its folder is gone", ())

    def _uncommit(self, key: str, why: str, files: Iterable[str]) -> Iterator[Action]:
        commit = Commit(self.found.ledger.writes[key], CommitKind.WRITE)
        if commit.key in self.found.ledger.in_con:
            yield self.act(key, f"ignore its commit: {why}", lambda: self._put_ign([commit]))
        aside = [name for name in (commit.key, *files) if name in self.found.entries or name in set(files)]
        if aside:
            yield self.act(key, f"set aside: {why}", lambda: quarantine(self.store, aside))

    def _metadata(self) -> Iterator[Action]:
        for key, problem in self.torn(folder=keys.METADATA_FOLDER):
            yield self.set_aside(key, f"{problem.args[0]}; its metadata no longer counts")
        for key, problem in self.torn(".vac", keys.METADATA_FOLDER):
            if key.startswith(f"{keys.METADATA_FOLDER}/"):
                there = (each for each in self.found.entries if each.startswith(f"{keys.METADATA_FOLDER}/"))
                lines = self._told_vac(self.store.get(key), there)
                text = f"keep the {len(lines)} lines that can be told: {problem.args[0]}"
                yield self.act(key, text, lambda k=key, told=lines: self._replace(k, pack_vac(told)))  # type: ignore[misc]

    def _damaged(self) -> Iterator[Action]:
        if not self.damaged_fragments:
            return
        for key in damaged_keys(self.store, self.cipher, self.found):
            files = [f"{key}/{name}" for name in self.found.folders.get(key, {})]
            yield from self._uncommit(key, "it cannot be read", files)

    def _footers(self) -> Iterator[Action]:
        wrong = [
            (finding.key, finding.problem)
            for finding in fast_findings(self.store, self.cipher, self.found)
            if finding.severity is Severity.ERROR
            and finding.key.endswith(".meta")
            and finding.key in self.found.entries
            and not isinstance(self.found.broken.get(finding.key), UnsupportedFeatureError)
            and finding.key not in self.found.strangers
        ]
        for key, problem in dict(wrong).items():
            yield self.set_aside(key, problem)
        if wrong:
            yield Action(
                f"{keys.FOOTER_FOLDER}: write the footers of all fragments anew", self._rebuild_footers
            )

    def _rebuild_footers(self) -> None:
        try:
            snapshot = take_snapshot(self.store, Window(0, FOREVER), self.cipher)
        except TerrazzoError:
            return  # what is left to mend keeps it from opening; footers only save requests
        consolidate_fragment_metadata(View(self.store, snapshot, self.cipher))


def damaged_keys(store: Store, cipher: Aes256Gcm | None, found: Survey) -> list[str]:
    """Committed fragments with files that are missing, torn or too short; those that are gone apart."""
    bad = {
        f.key.rpartition("/")[0] for f in fast_findings(store, cipher, found) if f.severity is Severity.ERROR
    }
    unsupported = {key for key, problem in found.lost.items() if isinstance(problem, UnsupportedFeatureError)}
    return [
        key
        for key in found.ledger.writes
        if (key in found.lost or key in bad) and key not in found.gone and key not in unsupported
    ]


def _completed(rest: str, candidates: Iterable[str]) -> list[str]:
    """The one name that a line which was cut off can have been the beginning of. Half of its random digits must be
    there: times alone are shared by many."""
    if not _TELLING.search(rest):
        return []
    found = sorted({name for name in candidates if name.startswith(rest)})
    return [found[0].lstrip("/-+")] if len(found) == 1 else []
