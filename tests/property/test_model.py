"""Any history of writes, deletes, updates and evolutions reads as the plain model of `model.py` says, at any instant.

TERRAZZO_PROFILE chooses how long this looks: ci (the default), dev (a glance) or nightly.
"""

import itertools
import math
import os
import uuid
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from model import (
    Changed,
    Event,
    Log,
    Node,
    SchemaVersion,
    Spec,
    Test,
    Tree,
    Written,
    names_of,
    negated,
    plain,
    truth,
)

import terrazzo as tz
from terrazzo.engine import clock
from terrazzo.engine.array import Array
from terrazzo.engine.plan import plan_scan
from terrazzo.engine.sparse import run_scan
from terrazzo.errors import InvalidRequestError
from terrazzo.format.commits import UpdateCommit
from terrazzo.storage import open_store

PROFILES = {"dev": (15, 15), "ci": (140, 30), "nightly": (3000, 60)}
EXAMPLES, STEPS = PROFILES[os.environ.get("TERRAZZO_PROFILE", "ci")]

VALUES: dict[str, list[Any]] = {
    "float64": [0.0, 1.0, 2.5, -1.0, math.nan],
    "int32": [0, 1, 2, -5],
    "utf8": ["", "a", "b", "ab", "é"],
    "ascii": ["", "a", "b", "ab"],
    "list": [(), (1,), (2, 3)],
    "enum": [0, 1, 2, 3],
}
COORDS: dict[str, list[Any]] = {"x": list(range(6)), "y": ["a", "b", "ab", "c"]}
LABELS = ("p", "q", "r", "s")
OPS = ("<", "<=", ">", ">=", "=", "!=")
TICKS = st.sampled_from([0, 0, 1, 1, 2, 5, 5, 30, -40])

CHANGES = (
    *["write"] * 5, "upsert", *["delete"] * 3, *["update"] * 4, *["portable"] * 2, *["evolve"] * 2, "metadata",
)  # fmt: skip

specs_ = st.builds(Spec, st.sampled_from(sorted(VALUES)), st.booleans())


class FakeTime:
    """Stands in for the module `time`: a clock that moves when it is told to."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def time_ns(self) -> int:
        return self.ms * 1_000_000

    def sleep(self, seconds: float) -> None:
        self.ms += math.ceil(seconds * 1000)


class Handle:
    """An open array, and what the model knows of the same handle."""

    def __init__(self, array: Array, log: Log, now: int) -> None:
        self.array, self.log = array, log
        self.at_ms = 0
        self.look(now)

    def look(self, now: int, *, ahead: bool = False) -> None:
        """Look again; before a change also at what others' clocks stamped ahead of this one."""
        log = self.log
        orders = [e.order for e in (*log.events, *log.schemas)] + [order for order, _, _ in log.metadata]
        self.at_ms = max([self.at_ms, now, *(ms for ms, _ in orders if ahead)])
        self.known: list[Event] = [e for e in self.log.events if e.order[0] <= self.at_ms]
        self.schema = self.log.schema_at(self.at_ms)
        self.metadata = self.log.metadata_at(0, self.at_ms)

    def rows(self, where: Tree = True) -> list[dict[str, Any]]:
        return self.log.rows(self.known, self.schema.specs, 0, self.at_ms, where)


def shown(rows: list[dict[str, Any]], schema: SchemaVersion, columns: list[str] | None = None) -> list[str]:
    """Rows of the model as they read, in an order of their own."""

    def cell(name: str, value: Any) -> Any:
        spec = schema.specs.get(name)
        if spec is not None and spec.kind == "enum" and value is not None:
            return schema.labels[value] if 0 <= value < len(schema.labels) else None
        return list(value) if isinstance(value, tuple) else value

    return sorted(
        repr([(n, cell(n, v)) for n, v in sorted(row.items()) if columns is None or n in columns])
        for row in rows
    )


def read(table: pa.Table) -> list[str]:
    table.validate(full=True)
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


def sql(tree: Tree, schema: SchemaVersion) -> str:
    if isinstance(tree, bool):
        return str(tree).upper()
    if isinstance(tree, Node):
        return f" {tree.how.upper()} ".join(f"({sql(child, schema)})" for child in tree.children)

    def literal(value: Any) -> str:
        if tree.name in schema.specs and schema.specs[tree.name].kind == "enum":
            value = schema.labels[value]
        return f"'{value}'" if isinstance(value, str) else str(value)

    if tree.op in {"null", "not null"}:
        return f"{tree.name} IS {tree.op.upper()}"
    if tree.op in {"in", "not in"}:
        return f"{tree.name} {tree.op.upper()} ({', '.join(map(literal, tree.value))})"
    return f"{tree.name} {tree.op} {literal(tree.value)}"


def check(found: list[str], expected: list[str]) -> None:
    more, less = (Counter(found) - Counter(expected)), (Counter(expected) - Counter(found))
    assert not more + less, f"read {list(more.elements())}, and not {list(less.elements())}"


class ArrayMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.time = FakeTime(1_700_000_000_000)
        self.real_time, clock.time = clock.time, self.time  # type: ignore[misc, assignment]

    def teardown(self) -> None:
        clock.time = self.real_time  # type: ignore[misc]
        if hasattr(self, "uri"):
            open_store(self.uri).delete_folder("")

    @initialize(
        dims=st.sampled_from([("x",), ("y",), ("x", "y"), ("y", "x")]),
        duplicates=st.booleans(),
        attrs=st.lists(specs_, min_size=1, max_size=3),
        capacity=st.sampled_from([1, 2, 5]),
        order=st.sampled_from(["row-major", "col-major", "hilbert"]),
    )
    def create(self, dims, duplicates, attrs, capacity, order) -> None:
        specs = {f"a{i}": spec for i, spec in enumerate(attrs)}
        schema = tz.Schema(
            dims=[tz.Dim("x", "int64", domain=(0, 9), tile=4) if d == "x" else tz.Dim("y", "ascii") for d in dims],
            attrs=[attr(name, spec) for name, spec in specs.items()],
            enums={"labels": list(LABELS[:2])},
            sparse=True, allows_duplicates=duplicates, capacity=capacity, cell_order=order,
        )  # fmt: skip
        self.uri = f"memory://model/{uuid.uuid4().hex}"
        array = tz.create(self.uri, schema)
        first = SchemaVersion(schema_order(array), specs, LABELS[:2])
        self.log = Log(dims, duplicates, [first])
        self.handles = [Handle(array, self.log, self.time.ms), Handle(self.open(), self.log, self.time.ms)]
        self.n_attrs = itertools.count(len(attrs))
        self.gone: dict[str, Spec] = {}

    def open(self, **window: Any) -> Array:
        return Array(open_store(self.uri), None, **window)

    # -- what is drawn --------------------------------------------------------------------------------

    def handle(self, data: st.DataObject) -> Handle:
        return self.handles[data.draw(st.sampled_from([0, 0, 1]), "handle")]

    def instant(self, data: st.DataObject) -> int | None:
        """Mostly none: now. Otherwise at, before or after something that happened."""
        if data.draw(st.integers(0, 3), "late") > 0:
            return None
        times = [s.order[0] for s in self.log.schemas] + [e.order[0] for e in self.log.events]
        return data.draw(st.sampled_from(times)) + data.draw(st.sampled_from([0, 0, -1, 1]))

    def rows(self, data: st.DataObject, schema: SchemaVersion, *, distinct: bool) -> list[dict[str, Any]]:
        coords = st.tuples(*(st.sampled_from(COORDS[dim]) for dim in self.log.dims))
        values = st.tuples(*(value_of(spec, schema) for spec in schema.specs.values()))
        rows = data.draw(
            st.lists(
                st.tuples(coords, values), min_size=2, max_size=6,
                unique_by=(lambda row: row[0]) if distinct else None,
            ),
            "cells",
        )  # fmt: skip
        names = (*self.log.dims, *schema.specs)
        return [dict(zip(names, (*c, *v), strict=True)) for c, v in rows]

    def where(self, data: st.DataObject, schema: SchemaVersion, depth: int = 2) -> Tree:
        kind = data.draw(st.sampled_from(["test", "test", "and", "or", "not"] if depth else ["test"]))
        if kind == "not":
            return negated(self.where(data, schema, depth - 1))
        if kind != "test":
            return Node(kind, tuple(self.where(data, schema, depth - 1) for _ in range(2)))
        name = data.draw(st.sampled_from([*schema.specs, *schema.specs, *self.log.dims]))
        spec = schema.specs.get(name)
        if spec is not None and data.draw(st.integers(0, 3)) == 0:
            return Test(data.draw(st.sampled_from(["null", "not null"])), name)
        if spec is not None and spec.kind == "list":
            return Test(data.draw(st.sampled_from(["null", "not null"])), name)
        known = COORDS[name] if spec is None else VALUES[spec.kind]
        if spec is not None and spec.kind == "enum":
            known = known[: len(schema.labels)]
        values = st.sampled_from([value for value in known if not is_nan(value)])
        ops = ("=", "!=") if spec is not None and spec.kind == "enum" else OPS
        if data.draw(st.integers(0, 4)) == 0:
            members = data.draw(st.lists(values, min_size=1, max_size=3))
            return Test(data.draw(st.sampled_from(["in", "not in"])), name, tuple(members))
        return Test(data.draw(st.sampled_from(ops)), name, data.draw(values))

    # -- what happens ---------------------------------------------------------------------------------

    # Two rules that choose among many, and not many rules: some things must come more often than others.

    @rule(data=st.data(), tick=TICKS, what=st.sampled_from(CHANGES))
    def change(self, data, tick, what) -> None:
        self.time.ms += tick
        match what:
            case "write":
                self.write(data)
            case "upsert":
                self.write(data, upsert=True)
            case "delete":
                self.delete(data)
            case "update":
                self.update(data)
            case "portable":
                self.update(data, portable=True)
            case "evolve":
                self.evolve(data)
            case "metadata":
                self.metadata(data)
        self.check_handles()

    @rule(
        data=st.data(),
        tick=TICKS,
        what=st.sampled_from(["refresh", "query", "query", "search", "travel", "changes"]),
    )
    def look(self, data, tick, what) -> None:
        self.time.ms += tick
        getattr(self, what)(data)

    def told(self, handle: Handle, verb: str, what: Any, at: int | None) -> None:
        note(f"{self.time.ms}: handle {self.handles.index(handle)}: {verb} {what!r} at={at}")

    def write(self, data: st.DataObject, *, upsert: bool = False) -> None:
        handle, at = self.handle(data), self.instant(data)
        upsert = upsert and not self.log.duplicates
        rows = self.rows(data, handle.schema, distinct=not self.log.duplicates and not upsert)
        table = as_table(rows, handle.schema, self.log.dims)
        newest = self.newest(handle)
        self.told(handle, "upsert" if upsert else "write", table.to_pylist(), at)
        if upsert:
            handle.array.upsert(table, at=at)
            rows = list({tuple(row[d] for d in self.log.dims): row for row in rows}.values())
        else:
            handle.array.write(table, at=at)
        (name,), conditions = self.committed(handle)

        assert not conditions
        assert name.start_ms == at if at is not None else name.start_ms > newest
        self.append(handle, Written(name.order, handle.schema.specs, self.log.as_cells(rows)))

    def delete(self, data: st.DataObject) -> None:
        handle, at = self.handle(data), self.instant(data)
        handle.look(self.time.ms, ahead=True)
        where = plain(self.where(data, handle.schema), handle.schema.specs)
        text = sql(where, handle.schema)
        newest = self.newest(handle)
        self.told(handle, "delete", text, at)
        if self.too_early(handle, names_of(where), at):
            with pytest.raises(InvalidRequestError, match="choose a later instant"):
                handle.array.delete(text, at=at)
            return
        if self.refused(handle, where, at):
            with pytest.raises(InvalidRequestError, match="consolidate first"):
                handle.array.delete(text, at=at)
            return
        handle.array.delete(text, at=at)
        fragments, conditions = self.committed(handle)
        if where is False:
            assert not fragments
            assert not conditions
            return

        ((order, body),) = conditions
        assert not isinstance(body, UpdateCommit)
        assert order[0] == at if at is not None else order[0] > newest
        spared = self.log.spared(handle.known, handle.schema.specs, where, order[0])
        assert len(fragments) == bool(spared)
        self.append(handle, Changed(order, where, handle.schema.specs, None))
        for name in fragments:
            assert name.start_ms == order[0] + 1
            self.append(handle, Written(name.order, handle.schema.specs, self.log.as_cells(spared)))

    def too_early(self, handle: Handle, names: set[str], at: int | None) -> bool:
        """Whether a change names an attribute that was not there at its instant, or was another one."""
        if at is None:
            return False
        now, then = handle.schema.specs, self.log.schema_at(at).specs
        return any(name in now and now[name] != then.get(name) for name in names)

    def refused(self, handle: Handle, where: Tree, at: int | None) -> bool:
        """libtiledb would remove all cells of fragments that lack a tested attribute."""
        tested, specs = names_of(where), handle.schema.specs
        time_ms = math.inf if at is None else at
        return any(
            fragment.order[0] <= time_ms
            and any(name in specs and fragment.specs.get(name) != specs[name] for name in tested)
            for fragment in handle.known
            if isinstance(fragment, Written)
        )

    def update(self, data: st.DataObject, *, portable: bool = False) -> None:
        handle, at = self.handle(data), self.instant(data)
        handle.look(self.time.ms, ahead=True)
        specs = handle.schema.specs
        names = data.draw(st.lists(st.sampled_from(sorted(specs)), min_size=1, max_size=2, unique=True))
        values = {name: data.draw(value_of(specs[name], handle.schema)) for name in names}
        where = data.draw(st.booleans()) or plain(self.where(data, handle.schema), specs)
        text = None if where is True else sql(where, handle.schema)
        newest = self.newest(handle)
        given = {name: given_value(value, specs[name], handle.schema) for name, value in values.items()}
        self.told(handle, "update", (given, text, portable), at)
        if where is not False and self.too_early(handle, names_of(where) | set(values), at):
            with pytest.raises(InvalidRequestError, match="choose a later instant"):
                handle.array.update(given, text, at=at, portable=portable)
            return
        try:
            handle.array.update(given, text, at=at, portable=portable)
        except InvalidRequestError:
            assert self.log.duplicates
            assert self.refused(handle, where, at)
            return
        fragments, conditions = self.committed(handle)
        if any(isinstance(body, UpdateCommit) for _, body in conditions):
            ((order, _),) = conditions
            assert not portable
            assert not fragments
            assert order[0] == at if at is not None else order[0] > newest
            self.append(handle, Changed(order, where, specs, values))
        elif fragments:
            self.rewritten(handle, fragments, conditions, where, values)
        else:
            rows = self.log.rows(handle.known, specs, 0, self.now(handle, at), where)
            assert where is False or not rows

    def now(self, handle: Handle, at: int | None) -> int:
        return max(handle.at_ms, self.time.ms) if at is None else at

    def rewritten(self, handle: Handle, fragments, conditions, where: Tree, values) -> None:
        """A portable update: the cells again, and with duplicates the old ones deleted under the same commit."""
        (name,), specs = fragments, handle.schema.specs
        time_ms = name.start_ms - self.log.duplicates
        rows = [{**row, **values} for row in self.log.rows(handle.known, specs, 0, time_ms, where)]
        if self.log.duplicates:
            ((order, _),) = conditions
            assert order[0] == time_ms
            rows += self.log.spared(handle.known, specs, where, time_ms)
            self.append(handle, Changed(order, where, specs, None))
        else:
            assert not conditions
        self.append(handle, Written(name.order, specs, self.log.as_cells(rows)))

    def evolve(self, data: st.DataObject) -> None:
        how = data.draw(st.sampled_from(["add", "add", "again", "drop", "force", "extend"]), "how")
        handle = self.handle(data)
        handle.look(self.time.ms, ahead=True)
        schema, change = handle.schema, {}
        specs, labels = dict(schema.specs), schema.labels
        if how == "extend" and len(labels) == len(LABELS):
            with pytest.raises(InvalidRequestError, match="twice"):
                handle.array.evolve(extend_enum={"labels": [LABELS[0]]})
            return
        if how == "extend":
            labels = LABELS[: len(labels) + 1]
            change = {"extend_enum": {"labels": [labels[-1]]}}
        elif how in {"drop", "force"}:
            name = data.draw(st.sampled_from(sorted(specs)))
            tested = any(name in names_of(event.where) for event in handle.known)
            if len(specs) == 1 or (tested and how == "drop"):
                with pytest.raises(InvalidRequestError, match=r"at least one attribute|tests"):
                    handle.array.evolve(drop=[name])
                return
            self.gone[name] = specs.pop(name)
            change = {"drop": [name], "force": how == "force"}
        else:
            name, spec = f"a{next(self.n_attrs)}", data.draw(specs_)
            gone = [n for n in self.gone if n not in specs]
            if how == "again" and gone:  # the same name, perhaps for something else
                name = data.draw(st.sampled_from(gone))
                spec = data.draw(st.sampled_from([spec, self.gone[name]]))
                if any(c.specs[name] != spec for c in handle.known if name in names_of(c.where)):
                    with pytest.raises(InvalidRequestError, match="choose another name"):
                        handle.array.evolve(add=[attr(name, spec)])
                    return
            specs[name] = spec
            change = {"add": [attr(name, spec)]}
        newest = self.newest(handle)
        self.told(handle, "evolve", change, None)
        handle.array.evolve(**change)
        order = schema_order(handle.array)

        assert order[0] > newest
        handle.schema = SchemaVersion(order, specs, labels)
        self.log.schemas.append(handle.schema)
        handle.at_ms = max(handle.at_ms, order[0])

    def metadata(self, data: st.DataObject) -> None:
        key, value = data.draw(st.sampled_from("kl")), data.draw(st.sampled_from([1, 2.5, "text", None]))
        handle = self.handle(data)
        if value is not None:
            handle.array.meta[key] = value
        elif key in handle.metadata:
            del handle.array.meta[key]
        else:
            with pytest.raises(KeyError):
                del handle.array.meta[key]
            return
        order = handle.array._view.snapshot.metadata_names[-1].order
        self.log.metadata.append((order, key, value))
        handle.metadata.pop(key, None)
        if value is not None:
            handle.metadata[key] = value
        handle.at_ms = max(handle.at_ms, order[0])

        assert dict(handle.array.meta) == handle.metadata

    def newest(self, handle: Handle) -> int:
        """The newest stamp that a handle knows of."""
        return max([handle.schema.order[0], *(e.order[0] for e in handle.known)])

    def committed(self, handle: Handle) -> tuple[list[Any], list[Any]]:
        """Names of fragments, and conditions, that are new with this handle."""
        names = {event.order[1] for event in self.log.events}
        snapshot = handle.array._view.snapshot
        return (
            [f.name for f in snapshot.fragments if str(f.name) not in names],
            [(c.order, c.body) for c in snapshot.conditions if c.marker not in names],
        )

    def append(self, handle: Handle, event: Event) -> None:
        self.log.events.append(event)
        handle.known.append(event)
        handle.at_ms = max(handle.at_ms, event.order[0])

    # -- what is seen ---------------------------------------------------------------------------------

    def check_handles(self) -> None:
        """A handle shows its own changes, and those of others that were there when it last looked."""
        for handle in self.handles:
            check(read(handle.array.read()), shown(handle.rows(), handle.schema))

    def refresh(self, data: st.DataObject) -> None:
        handle = self.handle(data)
        handle.array.refresh()
        handle.look(self.time.ms)

        self.check_handles()
        assert dict(handle.array.meta) == handle.metadata
        assert [a.name for a in handle.array.schema.attrs] == list(handle.schema.specs)

    def query(self, data: st.DataObject) -> None:
        handle = self.handle(data)
        schema, array = handle.schema, handle.array
        where = self.where(data, schema)
        region, inside = self.region(data)
        names = [*self.log.dims, *schema.specs]
        columns = data.draw(st.none() | st.lists(st.sampled_from(names), min_size=1, unique=True))
        order = data.draw(st.sampled_from([None, "row-major", "col-major", "global"]))
        text = data.draw(st.sampled_from([None, sql(where, schema)]))
        rows = [row for row in handle.rows(True if text is None else where) if inside(row)]
        found = array.read(columns=columns, where=text, region=region, order=order)

        check(read(found), shown(rows, schema, columns))
        assert columns is None or found.schema.names == columns
        assert array.count(where=text, region=region) == len(rows)
        if order in {"row-major", "col-major"} and (columns is None or set(self.log.dims) <= set(columns)):
            dims = self.log.dims if order == "row-major" else self.log.dims[::-1]
            coords = [tuple(row[d] for d in dims) for row in found.select(list(dims)).to_pylist()]
            assert coords == sorted(coords)
        batches = list(array.scan(columns=columns, where=text, region=region, memory=1))
        check(read(pa.Table.from_batches(batches, found.schema)), read(found))
        # Tasks of a few bytes: every cut that a plan can make.
        plan = plan_scan(array._view, array._request(columns, text, region, None), 1)
        batches = [batch for task in plan.tasks for batch in run_scan(array._view, plan.request, task)]
        check(read(pa.Table.from_batches(batches, found.schema)), read(found))

    def search(self, data: st.DataObject) -> None:
        """Every comparison with every value of a column: no tile is left out that holds a match."""
        handle = self.handle(data)
        name = data.draw(st.sampled_from([*handle.schema.specs, *self.log.dims]))
        spec = handle.schema.specs.get(name)
        known = COORDS[name] if spec is None else VALUES[spec.kind]
        if spec is not None and spec.kind in {"enum", "list"}:
            return
        rows = handle.rows()
        for op, value in itertools.product(("=", "<", ">=", "!="), known):
            if not is_nan(value):
                test = Test(op, name, value)
                found = handle.array.read(where=sql(test, handle.schema), columns=[*self.log.dims])
                expected = [row for row in rows if truth(test, row)]
                check(read(found), shown(expected, handle.schema, list(self.log.dims)))

    def region(self, data: st.DataObject) -> tuple[dict[str, Any] | None, Any]:
        region: dict[str, Any] = {}
        for dim in self.log.dims:
            values = st.sampled_from(COORDS[dim])
            match data.draw(st.sampled_from(["all", "range", "points", "ranges"])):
                case "range":
                    region[dim] = tuple(sorted([data.draw(values), data.draw(values)]))
                case "points":
                    region[dim] = data.draw(st.lists(values, max_size=3))
                case "ranges":
                    pairs = data.draw(st.lists(st.tuples(values, values), min_size=1, max_size=2))
                    region[dim] = [tuple(sorted(pair)) for pair in pairs]

        def inside(row: dict[str, Any]) -> bool:
            for dim, wanted in region.items():
                ranges = [wanted] if isinstance(wanted, tuple) else wanted
                ranges = [each if isinstance(each, tuple) else (each, each) for each in ranges]
                if not any(low <= row[dim] <= high for low, high in ranges):
                    return False
            return True

        return region or None, inside

    def travel(self, data: st.DataObject) -> None:
        times = sorted({self.time.ms, *(e.order[0] for e in self.log.events)})
        near = st.builds(int.__add__, st.sampled_from(times), st.sampled_from([0, -1, 1]))
        at = data.draw(st.none() | near, "at")
        end = self.time.ms if at is None else at
        since = data.draw(st.none() | near.filter(lambda ms: ms <= end), "since")
        array = self.open(at=at, since=since)
        schema = self.log.schema_at(end)
        where = self.where(data, schema)
        start = since or 0

        rows = self.log.rows(self.log.events, schema.specs, start, end)
        check(read(array.read()), shown(rows, schema))
        assert array.count() == len(rows)
        found = array.read(where=sql(where, schema))
        check(read(found), shown([row for row in rows if truth(where, row)], schema))
        assert dict(array.meta) == self.log.metadata_at(start, end)

    def changes(self, data: st.DataObject) -> None:
        handle = self.handle(data)
        times = st.sampled_from([0, *(e.order[0] for e in self.log.events)])
        since, until = sorted([data.draw(times), data.draw(times)])
        schema = self.log.schema_at(until)
        old, new = (
            shown(self.log.rows(self.log.events, schema.specs, 0, ms), schema) for ms in (since, until)
        )
        table = handle.array.changes(since, until)
        kinds = table.column("_change").to_pylist()
        found = list(zip(kinds, table.drop_columns(["_change"]).to_pylist(), strict=True))

        def of(*wanted: str) -> list[str]:
            return sorted(repr(sorted(row.items())) for kind, row in found if kind in wanted)

        for row in old.copy():
            if row in new:
                old.remove(row)
                new.remove(row)
        check(of("delete", "update_before"), old)
        check(of("insert", "update_after"), new)
        if self.log.duplicates:
            assert not of("update_before", "update_after")
        else:
            before, after = (
                {tuple(row[d] for d in self.log.dims) for kind, row in found if kind == k}
                for k in ("update_before", "update_after")
            )
            only = {
                tuple(row[d] for d in self.log.dims) for kind, row in found if kind in {"insert", "delete"}
            }
            assert before == after
            assert not before & only


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def schema_order(array: Array) -> tuple[int, str]:
    name = array._view.snapshot.schema_name
    return int(name.split("_")[2]), name


def attr(name: str, spec: Spec) -> tz.Attr:
    if spec.kind == "list":
        return tz.Attr(name, "int16", var=True, nullable=spec.nullable)
    if spec.kind == "enum":
        return tz.Attr(name, "int8", enum="labels", nullable=spec.nullable)
    return tz.Attr(name, spec.kind, nullable=spec.nullable)


def value_of(spec: Spec, schema: SchemaVersion) -> st.SearchStrategy[Any]:
    values = VALUES[spec.kind]
    if spec.kind == "enum":
        values = values[: len(schema.labels)]
    return st.sampled_from([*values, None] if spec.nullable else values)


def given_value(value: Any, spec: Spec, schema: SchemaVersion) -> Any:
    if value is None:
        return None
    return schema.labels[value] if spec.kind == "enum" else list(value) if spec.kind == "list" else value


def as_table(rows: list[dict[str, Any]], schema: SchemaVersion, dims: tuple[str, ...]) -> pa.Table:
    types = {
        "float64": pa.float64(), "int32": pa.int32(), "utf8": pa.string(), "ascii": pa.string(),
        "list": pa.list_(pa.int16()), "enum": pa.string(), "x": pa.int64(), "y": pa.string(),
    }  # fmt: skip
    columns = {dim: pa.array([row[dim] for row in rows], types[dim]) for dim in dims}
    for name, spec in schema.specs.items():
        values = [given_value(row[name], spec, schema) for row in rows]
        columns[name] = pa.array(values, types[spec.kind])
    return pa.table(columns)


def test_every_history_reads_as_the_model_says() -> None:
    run_state_machine_as_test(
        ArrayMachine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None,
            suppress_health_check=list(HealthCheck), print_blob=True,
        ),
    )  # fmt: skip
