"""Check: whether an array is sound, and whether libtiledb would read it as we do. Nothing is changed.

The fast check reads every file but the cells; the deep one decodes these too. Damage never raises: each problem is a
finding, also where the array cannot be opened.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations, groupby

from terrazzo.engine.deep import check_cells
from terrazzo.engine.findings import CheckReport, Finding, Severity, in_order
from terrazzo.engine.fragments import Fragment, Sections
from terrazzo.engine.schemas import current_schema
from terrazzo.engine.survey import Survey, survey
from terrazzo.errors import FormatError, TerrazzoError
from terrazzo.format import keys, versions
from terrazzo.format.commits import UpdateCommit
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.fragment import Footer
from terrazzo.format.keys import CommitKind, TimestampedName
from terrazzo.format.ledgers import UpdateRecord
from terrazzo.format.schema import Schema
from terrazzo.storage.base import Store

_FOREVER = (1 << 64) - 1
_READ_BY_NAME = (keys.SCHEMA_FOLDER, keys.METADATA_FOLDER, keys.FOOTER_FOLDER)
_FOLDERS = {
    keys.SCHEMA_FOLDER, keys.FRAGMENT_FOLDER, keys.COMMIT_FOLDER, keys.FOOTER_FOLDER, keys.METADATA_FOLDER,
    keys.LABEL_FOLDER, keys.GROUP_FOLDER,
}  # fmt: skip


def check_array(store: Store, cipher: Aes256Gcm | None, *, deep: bool = False) -> CheckReport:
    found = survey(store, cipher)
    findings = list(fast_findings(store, cipher, found))
    n_cells = 0
    if deep:
        told, n_cells = check_cells(store, cipher, found)
        findings += told
    return CheckReport(store.uri, in_order(findings), deep, len(found.ledger.writes), n_cells)


def fast_findings(store: Store, cipher: Aes256Gcm | None, found: Survey) -> Iterator[Finding]:
    yield from _strangers(found)
    yield from _broken(found)
    yield from _cons(found)
    yield from _superseded(found)
    yield from _merges(found)
    yield from _committed(found)
    yield from _orphans(found)
    yield from _footers(found)
    if not found.schemas:
        yield Finding(
            Severity.ERROR, keys.SCHEMA_FOLDER, "no schema can be read", "restore one, or give the right key"
        )
        return
    yield from _misread(store, cipher, found)


def _strangers(found: Survey) -> Iterator[Finding]:
    for key, problem in found.strangers.items():
        if breaks_open(key):
            yield Finding(
                Severity.ERROR, key, problem, "libtiledb cannot open the array: repair sets it aside"
            )
        else:
            yield Finding(Severity.NOTE, key, problem, "readers step over it")
    for folder in found.listed.root_folders:
        if folder not in _FOLDERS and folder not in found.folders:
            yield Finding(Severity.NOTE, folder, "no folder of an array", "readers step over it")


def breaks_open(key: str) -> bool:
    """Whether a file of an unknown name keeps readers from opening the array."""
    folder, _, name = key.rpartition("/")
    stem, _, suffix = name.rpartition(".")
    if folder in _READ_BY_NAME or suffix in {CommitKind.WRITE, CommitKind.OK}:
        return True
    return folder in {"", keys.COMMIT_FOLDER} and _contradicts_itself(stem or name)


def _contradicts_itself(name: str) -> bool:
    try:
        TimestampedName.parse(name)
    except FormatError:
        return True
    return False


def _broken(found: Survey) -> Iterator[Finding]:
    for key, problem in found.broken.items():
        yield Finding.of(key, problem, "restore this object, or run repair")


def _cons(found: Survey) -> Iterator[Finding]:
    for key, con in found.cons.items():
        if con.problem is not None:
            sound = f"repair keeps the {len(con.sound)} commits before the damage"
            yield Finding.of(key, con.problem, f"restore this object, or run repair: {sound}")
        for marker, problem in con.broken.items():
            yield Finding.of(key, type(problem)(f"{marker}: {problem}"), "restore this object, or run repair")
        if con.problem is None:
            yield from _span(key, [record.name for record in con.records])
        if any(isinstance(record, UpdateRecord) for record in con.records):
            yield Finding(
                Severity.WARNING, key, "holds updates, which libtiledb does not look for there: it shows the "
                "values from before", "consolidate to write the new values down",
            )  # fmt: skip


def _span(key: str, names: list[TimestampedName]) -> Iterator[Finding]:
    """A file that speaks for others is named by their first and last time."""
    name = TimestampedName.parse(key.rpartition("/")[2].rpartition(".")[0])
    if name is None:
        return
    if not names:
        yield Finding(Severity.WARNING, key, "is empty", "if it was cut off, restore it")
    elif name.start_ms not in {n.start_ms for n in names} or name.end_ms not in {n.end_ms for n in names}:
        yield Finding(
            Severity.WARNING, key, "its commits do not span the times in its name: some may be missing",
            "compare with a backup",
        )  # fmt: skip


def _superseded(found: Survey) -> Iterator[Finding]:
    for name, lines in found.ledger.superseded:
        key = keys.commit_key(name, CommitKind.VACUUM)
        shown = [line for line in lines if line in found.ledger.writes]
        if keys.fragment_key(name) in found.ledger.known:
            continue
        if shown:
            yield Finding(
                Severity.ERROR, key, f"hides {len(shown)} fragments in favour of one that was never committed: "
                f"their cells are gone for libtiledb", "run repair",
            )  # fmt: skip
        else:
            yield Finding(Severity.NOTE, key, "speaks of fragments that are gone", "repair sets it aside")


def _merges(found: Survey) -> Iterator[Finding]:
    for key, merge in found.ledger.merges:
        if all(created in found.ledger.writes for created in merge.created):
            problem = "a consolidation was committed but not finished: libtiledb may show cells twice"
            yield Finding(Severity.WARNING, key, problem, "vacuum or repair finishes it")
        else:
            problem = "a consolidation is at work, or was interrupted"
            yield Finding(Severity.WARNING, key, problem, "repair rolls it back after an hour")


def _committed(found: Survey) -> Iterator[Finding]:
    hidden = found.hidden
    for key, problem in found.lost.items():
        if key in found.gone and key in hidden:
            yield Finding(
                Severity.NOTE, key, "superseded, and its folder is gone", "vacuum removes its commit"
            )
        elif key in found.gone:
            yield Finding(
                Severity.ERROR, key, "is committed, but its folder is gone",
                "restore it, or run repair to give it up",
            )  # fmt: skip
        elif keys.FRAGMENT_METADATA_FILE not in found.folders[key]:
            place = f"{key}/{keys.FRAGMENT_METADATA_FILE}"
            yield Finding(
                Severity.ERROR, place, "is missing", "restore it; repair can set the fragment aside"
            )
        else:
            place = f"{key}/{keys.FRAGMENT_METADATA_FILE}"
            yield Finding.of(place, problem, "restore it; repair can set the fragment aside")
    for key, fragment in found.fragments.items():
        yield from check_files(found, key, fragment)


def check_files(found: Survey, key: str, fragment: Fragment) -> Iterator[Finding]:
    """That the data files are there, and as long as the footer says."""
    there = found.folders.get(key, {})
    wanted = data_files(fragment.footer, found.schemas[fragment.schema_name])
    for name, size in wanted.items():
        advice = "restore it; repair can set the fragment aside"
        if name not in there:
            if size:
                yield Finding(Severity.ERROR, f"{key}/{name}", "is missing", advice)
        elif there[name].size < size:
            told = f"has {there[name].size} bytes of {size}"
            yield Finding(Severity.ERROR, f"{key}/{name}", told, advice)
        elif there[name].size > size:
            told = f"has {there[name].size - size} bytes more than the fragment knows of"
            yield Finding(Severity.NOTE, f"{key}/{name}", told)
    for name in there:
        if name not in wanted and name != keys.FRAGMENT_METADATA_FILE:
            yield Finding(Severity.NOTE, f"{key}/{name}", "no file of this fragment", "readers step over it")


def data_files(footer: Footer, schema: Schema) -> dict[str, int]:
    """The files of a fragment, each with its size."""
    found: dict[str, int] = {}
    version, slots = footer.version, footer.slots

    def add(files: keys.DataFiles, slot: int, *, var: bool, nullable: bool) -> None:
        found[files.fixed] = footer.file_sizes[slot]
        if var:
            found[files.var] = footer.var_file_sizes[slot]
        if nullable:
            found[files.validity] = footer.validity_file_sizes[slot]

    for index, attr in enumerate(schema.attrs):
        files = keys.attribute_files(index, attr.name, version)
        add(files, index, var=attr.is_var, nullable=attr.nullable)
    if not footer.dense and version < versions.SPLIT_DIMENSIONS:
        found[keys.COORDS_FILE] = footer.file_sizes[slots.coords]
    elif not footer.dense:
        for index, dim in enumerate(schema.dims):
            files = keys.dimension_files(index, dim.name, version)
            add(files, slots.dim(index), var=dim.is_var, nullable=False)
    if slots.has_timestamps:
        found[keys.TIMESTAMPS_FILE] = footer.file_sizes[slots.timestamps]
    if slots.has_delete_metadata:
        found[keys.DELETE_TIMESTAMPS_FILE] = footer.file_sizes[slots.delete_timestamps]
        found[keys.DELETE_CONDITIONS_FILE] = footer.file_sizes[slots.delete_condition]
    return found


def _orphans(found: Survey) -> Iterator[Finding]:
    at_work = {key for _, merge in found.ledger.merges for key in merge.created}
    replaced = {line for _, lines in found.ledger.superseded for line in lines}
    for folder in found.folders:
        if folder not in found.ledger.writes and folder not in at_work | replaced:
            told = "was never committed: a writer is at work, or died"
            yield Finding(Severity.NOTE, folder, told, "vacuum removes it once it is old enough")


def _footers(found: Survey) -> Iterator[Finding]:
    """That consolidated footers say what the fragments say: readers believe them."""
    for key, footers in found.footers.items():
        for name, stored in footers.items():
            fragment = found.fragments.get(f"{keys.FRAGMENT_FOLDER}/{name}") or found.fragments.get(name)
            if fragment is None:
                continue  # vacuumed since
            try:
                same = Footer.unpack(stored, found.schemas[fragment.schema_name]) == fragment.footer
            except FormatError:
                same = False
            if not same:
                told = f"its footer of {name} is not that of the fragment"
                yield Finding(Severity.ERROR, key, told, "repair sets it aside and writes it anew")


# -- where libtiledb would read something else -----------------------------------------------------------


def _misread(store: Store, cipher: Aes256Gcm | None, found: Survey) -> Iterator[Finding]:
    schema = found.schemas[current_schema(found.schemas, _FOREVER)]
    hidden = found.hidden
    shown = [fragment for key, fragment in found.fragments.items() if key not in hidden]
    if not schema.dense:
        yield from _pending(store, cipher, found, shown)
        yield from _dropped(found, schema)
    if schema.dense or not schema.allows_duplicates:
        yield from _ties(shown)


def _pending(
    store: Store, cipher: Aes256Gcm | None, found: Survey, shown: list[Fragment]
) -> Iterator[Finding]:
    updates = [condition for condition in found.conditions if isinstance(condition.body, UpdateCommit)]
    loose = [condition for condition in updates if condition.marker not in found.ledger.payloads]
    if not loose:
        return
    processed: dict[str, tuple[str, ...]] = {}
    for fragment in shown:
        try:
            sections = Sections(store, fragment, found.schemas[fragment.schema_name], cipher)
            processed[fragment.key] = sections.processed
        except TerrazzoError:
            processed[fragment.key] = ()  # told of by the deep check
    for condition in loose:
        waiting = [
            fragment
            for fragment in shown
            if fragment.name.start_ms <= condition.time_ms and condition.marker not in processed[fragment.key]
        ]
        if waiting:
            yield Finding(
                Severity.WARNING, condition.marker, f"an update that {len(waiting)} fragments do not hold yet: "
                "libtiledb shows the cells that it matches as deleted", "consolidate to write the new values down",
            )  # fmt: skip


def _dropped(found: Survey, schema: Schema) -> Iterator[Finding]:
    for condition in found.conditions:
        unknown = sorted(name for name in condition.body.condition.fields if not schema.has(name))
        if unknown:
            yield Finding(
                Severity.WARNING, condition.marker, f"tests {', '.join(map(repr, unknown))}, which the schema no "
                "longer has: libtiledb cannot read the array", "read it with terrazzo, or add the attribute again",
            )  # fmt: skip


def _ties(shown: Iterable[Fragment]) -> Iterator[Finding]:
    """Fragments of one instant that may hold the same cell: which of them wins depends on the reader."""
    ordered = sorted(shown, key=lambda fragment: fragment.order)
    for start, group in groupby(ordered, key=lambda fragment: fragment.name.start_ms):
        for one, other in combinations(group, 2):
            if _meet(one.footer, other.footer):
                yield Finding(
                    Severity.WARNING, other.key, f"begins at {start} as {one.name} does, and they overlap: which "
                    "of them wins depends on the reader", "consolidate to settle it",
                )  # fmt: skip
                break


def _meet(one: Footer, other: Footer) -> bool:
    if one.domain is None or other.domain is None:
        return False
    return all(a <= d and c <= b for (a, b), (c, d) in zip(one.domain, other.domain, strict=True))
