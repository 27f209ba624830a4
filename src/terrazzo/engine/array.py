"""The object users hold. Every method is a few lines that call the engine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from terrazzo.engine.clock import FOREVER, instant, now_ms
from terrazzo.engine.evolve import evolve, put_schema, require_free
from terrazzo.engine.fragments import Fragment
from terrazzo.engine.keys import as_cipher
from terrazzo.engine.listing import list_array
from terrazzo.engine.metadata import Entries, Metadata, load_entries, put_entries
from terrazzo.engine.plan import Request, parse_size
from terrazzo.engine.request import make_request
from terrazzo.engine.session import next_time, reaching, with_fragments
from terrazzo.engine.snapshot import take_snapshot
from terrazzo.engine.view import View
from terrazzo.engine.window import Window
from terrazzo.errors import ArrayExistsError, InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.schema import Schema
from terrazzo.storage import open_store
from terrazzo.storage.base import Store

Options = Mapping[str, str]


def create(
    uri: str, schema: Schema, *, key: Any = None, storage_options: Options | None = None, at: object = None
) -> "Array":
    """Make an empty array. An array that is there already is left as it is, and that is an error. `at` backdates
    the schema, for histories that begin in the past."""
    if not isinstance(schema, Schema):
        raise InvalidRequestError(f"schema={schema!r}; a terrazzo.Schema is expected")
    if schema.dense and not schema.attrs:
        raise InvalidRequestError("a dense array needs at least one attribute")
    store, cipher = open_store(str(uri), storage_options), as_cipher(key)
    listed = list_array(store)
    if listed.is_array:
        raise ArrayExistsError(f"there is an array at {store.uri} already; open it, or choose another place")
    require_free(store, listed)
    # Enumerations of another array have their files there: here they get files of their own.
    put_schema(store, replace(schema, enum_files={}), now_ms() if at is None else instant(at), cipher)
    return open_array(uri, key=key, storage_options=storage_options)


def open_array(
    uri: str,
    *,
    at: object = None,
    since: object = None,
    key: Any = None,
    storage_options: Options | None = None,
) -> "Array":
    """The array as of now, or `at` an instant; with `since`, only what was written from then on."""
    return Array(open_store(str(uri), storage_options), as_cipher(key), at=at, since=since)


def exists(uri: str, *, storage_options: Options | None = None) -> bool:
    """Whether there is an array at a URI."""
    return list_array(open_store(str(uri), storage_options)).is_array


def check(uri: str, *, deep: bool = False, key: Any = None, storage_options: Options | None = None) -> Any:
    """`Array.check`, for arrays that may not open."""
    from terrazzo.engine.check import check_array  # noqa: PLC0415

    return check_array(open_store(str(uri), storage_options), as_cipher(key), deep=deep)


def repair(
    uri: str, *, dry_run: bool = True, damaged_fragments: bool = False, key: Any = None,
    storage_options: Options | None = None,
) -> Any:  # fmt: skip
    """`Array.repair`, for arrays that may not open."""
    from terrazzo.engine.repair import repair_array  # noqa: PLC0415

    store = open_store(str(uri), storage_options)
    return repair_array(store, as_cipher(key), dry_run=dry_run, damaged_fragments=damaged_fragments)


class Array:
    """A snapshot of an array. It shows its own writes at once, and those of others after `refresh()`."""

    def __init__(
        self, store: Store, cipher: Aes256Gcm | None, *, at: object = None, since: object = None
    ) -> None:
        self._store, self._cipher = store, cipher
        self._at = None if at is None else instant(at, "at")
        self._since = 0 if since is None else instant(since, "since")
        if self._at is not None and self._since > self._at:
            raise InvalidRequestError(f"since={since!r} is later than at={at!r}")
        self._view: View
        self.refresh()

    def refresh(self) -> "Array":
        """Look again: what others committed since becomes visible. An array opened `at` an instant stays there."""
        # Commits of this process may be stamped a little ahead of the clock: none of them is left out.
        ahead = self._view.snapshot.window.at_ms if hasattr(self, "_view") and self._at is None else 0
        self._look(max(now_ms(), ahead) if self._at is None else self._at)
        return self

    def _look(self, at_ms: int) -> None:
        known = self._view.snapshot if hasattr(self, "_view") else None
        snapshot = take_snapshot(self._store, Window(self._since, at_ms), self._cipher, known)
        self._view = (
            self._view.following(snapshot)
            if hasattr(self, "_view")
            else View(self._store, snapshot, self._cipher)
        )

    # -- what it is -----------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        return self._store.uri

    @property
    def view(self) -> View:
        """What plans and tasks read through: the snapshot, the store and the key."""
        return self._view

    @property
    def schema(self) -> Schema:
        return self._view.schema

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """What the cells are stored in, in the order in which later ones win."""
        return self._view.snapshot.fragments

    @property
    def meta(self) -> Metadata:
        """Key-value metadata, as a dict."""
        return Metadata(self._entries, self._put_metadata)

    def _entries(self) -> Entries:
        snapshot = self._view.snapshot
        for problem in snapshot.metadata_problems:
            raise problem
        return load_entries(self._store, snapshot.metadata_names, self._cipher)

    def _put_metadata(self, entries: Entries) -> None:
        time_ms = self._next_time(None)
        name = put_entries(self._store, entries, time_ms, self._cipher)
        self._view = self._view.following(self._view.snapshot.with_metadata(name))

    def nonempty_domain(self) -> dict[str, tuple[Any, Any]] | None:
        """Lowest and highest coordinate written, per dimension; None for an empty array."""
        from terrazzo.engine.reading import nonempty_domain  # noqa: PLC0415

        return nonempty_domain(self._view)

    def history(self) -> list[Any]:
        """Every commit, oldest first: what happened, when, how many cells, how many bytes."""
        from terrazzo.engine.events import read_history  # noqa: PLC0415

        return read_history(self._store, self._cipher)

    def __repr__(self) -> str:
        kind = "sparse" if self.schema.sparse else "dense"
        dims = ", ".join(dim.name for dim in self.schema.dims)
        attrs = ", ".join(attr.name for attr in self.schema.attrs)
        return f"<Array {self.uri}: {kind}, dims {dims}; attrs {attrs}; {len(self.fragments)} fragments>"

    def picture(self, dims: Sequence[str] | None = None) -> str:
        """A page of HTML to save and open: a map of fragments and tiles, a timeline of commits, the history. `dims`
        names the dimensions of the map, the one across first."""
        from terrazzo.engine.picture import render  # noqa: PLC0415

        return render(self._view, dims)

    def _repr_html_(self) -> str:
        """What a notebook shows: the picture, or this array in words where none can be made."""
        try:
            from terrazzo.engine.picture import render_part  # noqa: PLC0415

            return render_part(self._view)
        except Exception:
            return f"<pre>{escape(repr(self))}</pre>"

    # -- reading --------------------------------------------------------------------------------------

    def read(
        self, columns: Sequence[str] | None = None, where: str | None = None, region: Mapping[str, Any] | None = None,
        order: str | None = None,
    ) -> Any:  # fmt: skip
        """Cells as a pyarrow.Table. `where` is SQL; ranges of `region` are inclusive, lists are points."""
        from terrazzo.engine.reading import read_table  # noqa: PLC0415

        return read_table(self._view, self._request(columns, where, region, order))

    def scan(
        self, columns: Sequence[str] | None = None, where: str | None = None, region: Mapping[str, Any] | None = None,
        memory: int | str = "1GiB", progress: Any = None,
    ) -> Any:  # fmt: skip
        """Cells as a pyarrow.RecordBatchReader, in no particular order, with a bound on the memory in use. `progress`
        is called with the tasks done and the tasks in all."""
        from terrazzo.engine.reading import scan_batches  # noqa: PLC0415

        request = self._request(columns, where, region, None)
        return scan_batches(self._view, request, parse_size(memory), progress=progress)

    def count(self, where: str | None = None, region: Mapping[str, Any] | None = None) -> int:
        from terrazzo.engine.reading import count_cells  # noqa: PLC0415

        request = self._request([self.schema.dims[0].name], where, region, None)
        return count_cells(self._view, request)

    def explain(
        self,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        region: Mapping[str, Any] | None = None,
    ) -> Any:
        """What a read would take: fragments and tiles, which are left out and why, bytes and requests."""
        from terrazzo.engine.reading import explain  # noqa: PLC0415

        return explain(self._view, self._request(columns, where, region, None))

    def _request(self, columns: Any, where: Any, region: Any, order: str | None) -> Request:
        return make_request(self.schema, columns, where, region, order)

    def __getitem__(self, index: Any) -> Any:
        """A box of a dense array: half-open, in coordinates of the domain. One attribute gives an ndarray."""
        from terrazzo.engine.dense import read_box, shape_of  # noqa: PLC0415
        from terrazzo.engine.slicing import parse_index, squeezed, to_numpy  # noqa: PLC0415

        self._view.snapshot.require_sound()
        box, dropped = parse_index(index, self.schema)
        attrs = self.schema.attrs
        columns = read_box(self._view, box, [attr.name for attr in attrs])
        found = {
            attr.name: squeezed(to_numpy(columns[attr.name], attr, self.schema, shape_of(box)), dropped)
            for attr in attrs
        }
        return found if len(attrs) > 1 else found[attrs[0].name]

    def changes(self, since: object, until: object = None) -> Any:
        """Rows inserted, deleted and updated after `since` and up to `until`, with the kind in column `_change`."""
        from terrazzo.engine.changes import changes  # noqa: PLC0415

        last = self._view.snapshot.window.at_ms if until is None else instant(until, "until")
        return changes(self._view, instant(since, "since"), last)

    # -- writing --------------------------------------------------------------------------------------

    def write(
        self, data: Any, *, at: object = None, region: Mapping[str, Any] | None = None,
        fragment_size: int | str | None = None,
    ) -> None:  # fmt: skip
        """Write cells under one commit. Sparse: any order, any size, Arrow, pandas, polars or a dict of arrays; batches
        are gathered until they hold `fragment_size` (1 GiB), and then become a fragment.
        Dense: a dict of blocks, one value per cell of the region, or of the whole domain; or columns with the
        coordinates of all cells of a box."""
        from terrazzo.engine.slicing import dense_input  # noqa: PLC0415
        from terrazzo.engine.write import FRAGMENT_SIZE, write_dense, write_sparse  # noqa: PLC0415

        size = FRAGMENT_SIZE if fragment_size is None else parse_size(fragment_size, "fragment_size")
        time_ms = self._next_time(at)
        snapshot = self._view.snapshot
        if self.schema.sparse:
            if region is not None:
                raise InvalidRequestError(
                    "region is for dense arrays: the cells of a sparse one bring coordinates"
                )
            written = write_sparse(
                self._store, self.schema, snapshot.schema_name, data, time_ms, self._cipher, size
            )
        else:
            columns, box = dense_input(data, region, self.schema)
            written = write_dense(
                self._store, self.schema, snapshot.schema_name, columns, box, time_ms, self._cipher
            )
        self._view = with_fragments(self._view, written)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write a box of a dense array: an array for one attribute, a dict of them for several."""
        from terrazzo.engine.slicing import parse_index  # noqa: PLC0415

        box, _ = parse_index(index, self.schema)
        self.write(value, region={dim.name: bound for dim, bound in zip(self.schema.dims, box, strict=True)})

    def delete(self, where: str, *, at: object = None) -> None:
        """Delete the cells that match an SQL condition, under one commit."""
        from terrazzo.engine.delete import delete  # noqa: PLC0415

        self._look_again()
        self._view = delete(self._view, self._where(where), self._next_time(at))

    def update(
        self,
        values: Mapping[str, Any],
        where: str | None = None,
        *,
        at: object = None,
        portable: bool = False,
    ) -> None:
        """Set attributes of the cells that match an SQL condition, under one commit. `portable` writes the cells
        again, so that libtiledb shows the new values too."""
        from terrazzo.engine.predicate import TRUE  # noqa: PLC0415
        from terrazzo.engine.update import cell_values, update  # noqa: PLC0415

        self._look_again()
        predicate = TRUE if where is None else self._where(where)
        stored = cell_values(values, self.schema)
        self._view = update(self._view, stored, predicate, self._next_time(at), portable=portable)

    def upsert(self, data: Any, *, at: object = None, fragment_size: int | str | None = None) -> None:
        """Write cells, replacing those that have the same coordinates; of two in the data the last counts. Batches are
        gathered as by `write`."""
        from terrazzo.engine.upsert import upsert  # noqa: PLC0415
        from terrazzo.engine.write import FRAGMENT_SIZE  # noqa: PLC0415

        if self.schema.dense or self.schema.allows_duplicates:
            kind = (
                "is dense: write() replaces cells"
                if self.schema.dense
                else "allows duplicates: nothing is replaced"
            )
            raise InvalidRequestError(
                f"upsert needs an array where coordinates identify a cell; this one {kind}"
            )
        size = FRAGMENT_SIZE if fragment_size is None else parse_size(fragment_size, "fragment_size")
        written = upsert(self._view, data, self._next_time(at), size)
        self._view = with_fragments(self._view, written)

    def evolve(
        self, *, add: Attr | Iterable[Attr] = (), drop: str | Iterable[str] = (), extend_enum: Mapping[str, Any] | None = None,
        add_enum: Mapping[str, Any] | None = None, expand_domain: Mapping[str, Any] | None = None,
        force: bool = False, at: object = None,
    ) -> None:  # fmt: skip
        """Add or drop attributes, extend enumerations, expand the current domain. Nothing is rewritten."""
        self._look_again()
        self._view = evolve(
            self._view, self._next_time(at), add=add, drop=drop, extend_enum=extend_enum, add_enum=add_enum,
            expand_domain=expand_domain, force=force,
        )  # fmt: skip

    # -- maintenance ----------------------------------------------------------------------------------

    def consolidate(
        self, *, purge: bool = False, max_fragment_size: int | str | None = None, memory: int | str = "1GiB",
        fragments: Sequence[str] | None = None, min_fragments: int = 2, max_fragments: int | None = None,
        size_ratio: float = 0.0, steps: int | None = None, amplification: float = 1.0, since: object = None,
        until: object = None, runner: Any = None, progress: Any = None, dry_run: bool = False,
    ) -> Any:  # fmt: skip
        """Bring fragments together; every instant reads as before, unless `purge` drops what is not shown now.
        `dry_run` gives the plan of the first step and changes nothing."""
        from terrazzo.engine.maintain import consolidate  # noqa: PLC0415
        from terrazzo.engine.select import Selection  # noqa: PLC0415

        selection = Selection(
            min_fragments, max_fragments, size_ratio, steps, amplification,
            0 if since is None else instant(since, "since"), FOREVER if until is None else instant(until, "until"),
        )  # fmt: skip
        size = None if max_fragment_size is None else parse_size(max_fragment_size, "max_fragment_size")
        done = consolidate(
            self._everything(), selection, fragments=fragments, purge=purge, memory=parse_size(memory),
            max_fragment_size=size, runner=runner, progress=progress, dry_run=dry_run,
        )  # fmt: skip
        if not dry_run:
            self.refresh()
        return done

    def consolidate_commits(self) -> None:
        """All commit files into one, so that an open lists and reads few."""
        from terrazzo.engine.compact import consolidate_commits  # noqa: PLC0415

        self._require_writable()
        consolidate_commits(self._view)

    def consolidate_fragment_metadata(self) -> None:
        """The footers of all fragments into one file, so that an open need not visit each fragment."""
        from terrazzo.engine.compact import consolidate_fragment_metadata  # noqa: PLC0415

        self._require_writable()
        consolidate_fragment_metadata(self._view)

    def consolidate_metadata(self) -> None:
        """All metadata files into one."""
        from terrazzo.engine.compact import consolidate_metadata  # noqa: PLC0415

        self._require_writable()
        consolidate_metadata(self._view)
        self.refresh()

    def vacuum(self, *, retain: int | str = "7d", dry_run: bool = False) -> Any:
        """Remove what consolidation replaced, and what crashed writers left, if older than `retain`. The report, that
        of a dry run too, tells what breaks by it."""
        from terrazzo.engine.vacuum import parse_age, vacuum  # noqa: PLC0415

        self._require_writable()
        report = vacuum(self._view, retain_ms=parse_age(retain), dry_run=dry_run)
        if not dry_run:
            self.refresh()
        return report

    def check(self, deep: bool = False) -> Any:
        """What is wrong with the files, and where libtiledb would read something else; `deep` decodes every cell.
        Nothing is changed. `terrazzo.check(uri)` looks at arrays that do not open."""
        from terrazzo.engine.check import check_array  # noqa: PLC0415

        return check_array(self._store, self._cipher, deep=deep)

    def repair(self, dry_run: bool = True, *, damaged_fragments: bool = False) -> Any:
        """Set aside what is torn, beside the array in `<uri>.quarantine`, and finish what was interrupted. No
        committed cell goes, unless `damaged_fragments` gives up fragments that cannot be read.
        A dry run tells what would be done. `terrazzo.repair(uri)` mends arrays that do not open."""
        from terrazzo.engine.repair import repair_array  # noqa: PLC0415

        self._require_writable()
        report = repair_array(self._store, self._cipher, dry_run=dry_run, damaged_fragments=damaged_fragments)
        if not dry_run:
            self.refresh()
        return report

    def restore(self, at: object, *, memory: int | str = "1GiB") -> None:
        """Show again the cells that the array showed at an instant, under one new commit: the history is kept. The
        schema stays as it is now, and so does the metadata; attributes added since get their fill values."""
        from terrazzo.engine.restore import restore  # noqa: PLC0415

        at_ms = instant(at)
        self._look_again()
        self._view = restore(self._view, at_ms, self._next_time(None), parse_size(memory))

    def delete_fragments(self, since: object = None, until: object = None, *, dry_run: bool = False) -> Any:
        """Remove whole fragments whose times lie between two instants, both included, and with them their history.
        A dry run tells which."""
        from terrazzo.engine.removal import delete_fragments  # noqa: PLC0415

        if since is None and until is None:
            raise InvalidRequestError("say since= or until=; since=0 removes every fragment")
        first = 0 if since is None else instant(since, "since")
        last = FOREVER if until is None else instant(until, "until")
        report = delete_fragments(self._everything(), first, last, dry_run=dry_run)
        if not dry_run:
            self.refresh()
        return report

    def _everything(self) -> View:
        """All that is committed, whatever its time."""
        self._require_writable()
        snapshot = take_snapshot(self._store, Window(0, FOREVER), self._cipher)
        return self._view.following(snapshot)

    def _where(self, where: str) -> Any:
        from terrazzo.engine.where import parse_where  # noqa: PLC0415

        return parse_where(where, self.schema)

    def latest(self) -> View:
        """Everything that is committed by now, for a change that depends on it."""
        self._look_again()
        return self._view

    def _look_again(self) -> None:
        """Before a change that depends on what is there: an older view lacks cells that others wrote since, and
        would bring back those that they replaced. The change will be the newest of all, so everything counts
        that is there, also what other clocks stamped ahead of this one."""
        self._require_writable()
        if self._since:
            raise InvalidRequestError(
                f"this array is opened since {self._since} and shows a part of its cells; open it without since= "
                f"to change it"
            )
        present = max(now_ms(), self._view.snapshot.window.at_ms)
        self._look(FOREVER)
        self._view = reaching(self._view, max(present, self._view.snapshot.newest_ms))
        self._view.snapshot.require_sound()

    def _require_writable(self) -> None:
        if self._at is not None and self._at != FOREVER:
            raise InvalidRequestError(
                f"this array is opened at {self._at} and cannot be written; open it without at="
            )

    def _next_time(self, at: object) -> int:
        self._require_writable()
        return next_time(self._view.snapshot, at)
