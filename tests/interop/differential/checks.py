"""The same questions to terrazzo, to libtiledb and to the model."""

import random
from typing import Any

import numpy as np
import pyarrow as pa

import terrazzo as tz
from differential import terrazzo_actor as ours
from differential.compare import difference, rows_of, same_metadata
from differential.generator import Generator, behind_evolution, places, schema_at
from differential.history import Case, Columns, Operation, Query, Window, Write
from differential.model import answer, fill_of, rows_at, shown
from differential.worker import Worker
from terrazzo import Schema
from terrazzo.engine.plan import plan_scan
from terrazzo.engine.sparse import result_schema, run_scan


class Differs(AssertionError):  # noqa: N818
    """The libraries disagree; the message has all that is needed to look into it."""


def check_against_libtiledb(
    worker: Worker, uri: str, generator: Generator, case: Case, window: Window, *, aggregates: bool = False
) -> None:
    if behind_evolution(case, window):
        return
    schema = schema_at(case, window)
    queries = generator.queries(case, schema)
    sums = generator.aggregates(case, schema) if aggregates else []
    theirs = worker.look(uri, schema, window, queries, sums)
    array = tz.open(uri, at=window.at, since=window.since or None)
    if array.schema.attrs != schema.attrs:
        raise Differs(f"{window}: the schema has {array.schema.attrs}, not {schema.attrs}")
    for query, found in zip(queries, theirs["cells"], strict=True):
        mine = _asked(array, schema, query, generator.rng)
        if schema.dense and query.where is not None:
            _same(mine, _matching(found, mine, query, schema), query, schema, f"{window}")
            continue
        _same(mine, found, query, schema, f"{window}")
    for (query, wanted), found in zip(sums, theirs["aggregates"], strict=True):
        cells = ours.look(array, schema, query)
        written = _written(cells, case, window, schema) if schema.dense else cells
        for (how, name), value in zip(wanted, found, strict=True):
            partly = query.where is not None or len(written[name]) < len(cells[name])
            if schema.dense and how == "mean" and partly:
                continue  # libtiledb divides by cells that nobody wrote, too
            if schema.dense and how == "count":
                if query.where is None:  # with a condition, libtiledb counts all cells of a dense array
                    _same_aggregate(cells, how, name, value, schema, f"{window} {query}")
                continue
            _same_aggregate(written, how, name, value, schema, f"{window} {query}")
    if ours.domain(array) != theirs["domain"]:
        raise Differs(f"{window}: non-empty domain {ours.domain(array)}; libtiledb {theirs['domain']}")
    if not same_metadata(dict(array.meta), theirs["meta"]):
        raise Differs(f"{window}: metadata {dict(array.meta)}; libtiledb {theirs['meta']}")


def check_against_model(
    uri: str, generator: Generator, case: Case, operations: list[Operation], window: Window
) -> None:
    schema = schema_at(case, window)
    rows = rows_at(case, operations, window)
    array = tz.open(uri, at=window.at, since=window.since or None)
    for query in generator.queries(case, schema, added=True):
        mine = _asked(array, schema, query, generator.rng)
        _same(mine, answer(rows, query, schema), query, schema, f"model, {window}")


def _asked(array: tz.Array, schema: Schema, query: Query, rng: random.Random) -> Columns:
    """The cells, read in one of several ways."""
    if schema.sparse and query.layout == "unordered" and rng.random() < 0.3:
        return _in_small_tasks(array, schema, query, rng.choice([1, 200, 2000]))
    mine = ours.look(array, schema, query)
    if rng.random() < 0.3:
        where, region = ours.request_of(schema, query)
        n_rows = len(mine[query.columns[0]])
        counted = array.count(where, region)
        if counted != n_rows:
            raise Differs(f"{query}: count() says {counted}, read() has {n_rows} rows")
    return mine


def _in_small_tasks(array: tz.Array, schema: Schema, query: Query, task_size: int) -> Columns:
    """As a scan of an array that is too large for memory would read it: boxes, cut until each is small."""
    where, region = ours.request_of(schema, query)
    request = array._request(list(query.columns), where, region, None)
    plan = plan_scan(array._view, request, task_size)
    batches = [batch for task in plan.tasks for batch in run_scan(array._view, plan.request, task)]
    table = pa.Table.from_batches(batches, result_schema(request.columns, array.schema))
    return {name: ours.cells_of(table.column(name), schema.field(name), schema) for name in query.columns}


def _same(mine: Columns, other: Columns, query: Query, schema: Schema, told: str) -> None:
    found = difference(rows_of(mine, query, schema), rows_of(other, query, schema))
    if found:
        raise Differs(f"{told}: {query}\n{found}")


def _written(cells: Columns, case: Case, window: Window, schema: Schema) -> Columns:
    """Dense cells that some fragment holds: libtiledb's aggregates leave out the others."""
    last = window.at if window.at is not None else 1 << 63
    known = {
        place
        for op in case.operations
        if isinstance(op, Write) and window.since <= op.at <= last
        for place in places(op.box, schema)
    }
    found = zip(*(cells[dim.name] for dim in schema.dims), strict=True)
    rows = [row for row, place in enumerate(found) if place in known]
    return {name: [column[row] for row in rows] for name, column in cells.items()}


def _matching(found: Columns, mine: Columns, query: Query, schema: Schema) -> Columns:
    """The cells of a dense answer that matched: libtiledb gives all cells, and fills those that did not."""
    dims = [dim.name for dim in schema.dims]
    wanted = set(zip(*(mine[name] for name in dims), strict=True))
    kept: Columns = {name: [] for name in query.columns}
    for row, place in enumerate(zip(*(found[name] for name in dims), strict=True)):
        if place in wanted:
            for name in query.columns:
                kept[name].append(found[name][row])
            continue
        for name in query.columns:
            if name not in dims and found[name][row] != shown(fill_of(schema.attr(name), schema)):
                raise Differs(f"{query}: libtiledb finds a match at {place}: {name} = {found[name][row]!r}")
    return kept


def _same_aggregate(cells: Columns, how: str, name: str, value: Any, schema: Schema, told: str) -> None:
    column = cells[name]
    field = schema.field(name)
    present = [cell for cell in column if cell is not None]
    if how == "count":
        expected, answered = len(column), int(np.frombuffer(value, "<u8")[0])
    elif how == "null_count":
        expected, answered = len(column) - len(present), int(np.frombuffer(value, "<u8")[0])
    elif not present:
        return  # libtiledb leaves the buffer as it was
    elif field.is_var:
        expected, answered = (min if how == "min" else max)(present), value
    else:
        numbers = np.frombuffer(b"".join(present), field.datatype.dtype)
        if field.datatype.is_float and not (np.abs(numbers) < 1e30).all():
            return  # NaN, infinities and overflow depend on the order of the cells
        if value is None and how in {"min", "max"}:
            raise Differs(f"{told}: {how}({name}) is of {len(present)} values; libtiledb says null")
        if how in {"min", "max"}:
            expected = numbers.min() if how == "min" else numbers.max()
            answered = np.frombuffer(value, field.datatype.dtype)[0]
        else:
            exact = [float(n) if field.datatype.is_float else int(n) for n in numbers]
            total = sum(exact)
            if sum(map(abs, exact)) >= 1 << 62:
                return  # beyond 64 bits the answer is null, or the largest number
            if value is None:
                raise Differs(f"{told}: {how}({name}) is {total}; libtiledb says null")
            kind = (
                "<f8"
                if how == "mean" or field.datatype.is_float
                else "<u8"
                if field.datatype.is_unsigned
                else "<i8"
            )
            answered = np.frombuffer(value, kind)[0]
            expected = total / len(exact) if how == "mean" else total
            if kind == "<f8":
                if not np.isclose(answered, expected, rtol=1e-6, atol=1e-6):
                    raise Differs(f"{told}: {how}({name}) is {expected}; libtiledb says {answered}")
                return
    if answered != expected:
        raise Differs(f"{told}: {how}({name}) is {expected!r}; libtiledb says {answered!r}")
