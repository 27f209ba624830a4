"""terrazzo as an actor: the same histories and queries through its public names, in the same bytes."""

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import terrazzo as tz
from differential.history import (
    Cell,
    Columns,
    Condition,
    Delete,
    Evolve,
    Joined,
    Maintain,
    Member,
    Not,
    Null,
    Put,
    Query,
    Test,
    Update,
    Write,
)  # fmt: skip
from differential.libtiledb import labels_of
from terrazzo import Datatype, Schema
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import VAR
from terrazzo.format.domain import Dim

_UNITS = {"SEC": "s", "MS": "ms", "US": "us", "NS": "ns"}
_TEXT = {Datatype.STRING_ASCII, Datatype.STRING_UTF8}
NOT_A_TIME = np.array(np.iinfo(np.int64).min, "<i8").tobytes()


def create(uri: str, schema: Schema, at: int) -> tz.Array:
    """`tz.create` stamps the schema with the clock's time; history begins earlier, so it is dated back."""
    tz.create(uri, schema)
    (file,) = [path for path in (Path(uri) / "__schema").iterdir() if path.is_file()]
    unique = file.name.rpartition("_")[2]
    file.rename(file.with_name(f"__{at}_{at}_{unique}"))
    return tz.open(uri)


def perform(array: tz.Array, op: Any) -> None:
    match op:
        case Write(at, schema, cells, box):
            region = None
            if box is not None:
                region = {dim.name: bound for dim, bound in zip(schema.dims, box, strict=True)}
            array.write(as_table(cells, schema), at=at, region=region)
        case Delete(at, schema, where):
            array.delete(sql(where, schema), at=at)
        case Update(at, schema, where, values):
            told = {name: python_value(cell, schema.attr(name), schema) for name, cell in values.items()}
            array.update(told, sql(where, schema), at=at)
        case Evolve(at, _, add, drop, extend):
            array.evolve(add=add, drop=drop, extend_enum=extend, at=at)
        case Put(_, values):  # metadata takes the clock's time
            for key, value in values.items():
                if value is None:
                    array.meta.pop(key, None)
                else:
                    array.meta[key] = value


def maintain(array: tz.Array, op: Maintain) -> None:
    match op.mode:
        case "fragments":
            array.consolidate()
        case "commits":
            array.consolidate_commits()
        case "fragment_meta":
            array.consolidate_fragment_metadata()
        case "array_meta":
            array.consolidate_metadata()
    if op.vacuum:
        array.vacuum(retain=0)


def look(array: tz.Array, schema: Schema, query: Query) -> Columns:
    where, region = request_of(schema, query)
    order = None if query.layout == "unordered" else query.layout
    table = array.read(list(query.columns), where, region, order)
    return {name: cells_of(table.column(name), schema.field(name), schema) for name in query.columns}


def request_of(schema: Schema, query: Query) -> tuple[str | None, dict[str, Any] | None]:
    """`where` and `region` of a query, as users write them."""
    region = {
        dim.name: [
            (_coordinate(low, dim), _coordinate(high, dim)) if low != high else _coordinate(low, dim)
            for low, high in query.region[dim.name]
        ]
        for dim in schema.dims
        if dim.name in query.region
    }
    return None if query.where is None else sql(query.where, schema), region or None


def domain(array: tz.Array) -> list[tuple[bytes, bytes]] | None:
    found = array.nonempty_domain()
    if found is None:
        return None
    return [tuple(_coordinate_bytes(end, dim) for end in found[dim.name]) for dim in array.schema.dims]


def _coordinate(stored: bytes, dim: Dim) -> Any:
    return stored.decode() if dim.is_var else np.frombuffer(stored, dim.datatype.dtype)[0].item()


def _coordinate_bytes(value: Any, dim: Dim) -> bytes:
    if isinstance(value, (np.datetime64, np.timedelta64)):
        value = value.astype(np.int64)
    return value.encode() if dim.is_var else np.array(value, dim.datatype.dtype).tobytes()


# -- cells to Arrow ---------------------------------------------------------------------------------------


def as_table(cells: Columns, schema: Schema) -> pa.Table:
    return pa.table({name: as_array(column, schema.field(name), schema) for name, column in cells.items()})


def as_array(cells: list[Cell], field: Attr | Dim, schema: Schema) -> pa.Array:
    enum = schema.enums[field.enum] if getattr(field, "enum", None) else None
    if enum is not None:
        return _values(cells, enum.datatype, enum.cell_val_num)
    return _values(cells, field.datatype, field.cell_val_num)


def _values(cells: list[Cell], datatype: Datatype, per_cell: int) -> pa.Array:
    if _is_bytes(datatype):
        if per_cell == VAR:
            if datatype in _TEXT:
                return pa.array([None if cell is None else cell.decode() for cell in cells], pa.string())
            return pa.array(cells, pa.binary())
        return pa.array(cells, pa.binary(per_cell * datatype.size))
    if per_cell == 1:
        zero = bytes(datatype.size)
        flat = _numbers(b"".join(zero if cell is None else cell for cell in cells), datatype)
        return _nulled(flat, cells)
    if per_cell == VAR:
        edges = np.cumsum([0, *(len(cell or b"") // datatype.size for cell in cells)])
        mask = pa.array([cell is None for cell in cells])
        items = _numbers(b"".join(cell or b"" for cell in cells), datatype)
        return pa.ListArray.from_arrays(pa.array(edges, pa.int32()), items, mask=mask)
    zero = bytes(datatype.size * per_cell)
    items = _numbers(b"".join(zero if cell is None else cell for cell in cells), datatype)
    mask = pa.array([cell is None for cell in cells])
    return pa.FixedSizeListArray.from_arrays(items, per_cell, mask=mask)


def _numbers(raw: bytes, datatype: Datatype) -> pa.Array:
    plain = np.frombuffer(raw, datatype.dtype)
    if datatype is Datatype.BOOL:
        return pa.array(plain != 0)
    if datatype is Datatype.DATETIME_DAY:
        return pa.array(plain.astype(np.int32)).view(pa.date32())
    unit = _UNITS.get(datatype.name.partition("_")[2])
    if unit and (datatype.is_datetime or datatype.is_time):
        kind = pa.timestamp(unit) if datatype.is_datetime else pa.duration(unit)
        return pa.array(plain).view(kind)
    return pa.array(plain)


def _nulled(array: pa.Array, cells: list[Cell]) -> pa.Array:
    if None not in cells:
        return array
    valid = np.array([cell is not None for cell in cells])
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(array.type, len(array), [bitmap, *array.buffers()[1:]])


def _is_bytes(datatype: Datatype) -> bool:
    return datatype.is_string or datatype in {
        Datatype.CHAR, Datatype.BLOB, Datatype.GEOM_WKB, Datatype.GEOM_WKT,
    }  # fmt: skip


# -- Arrow to cells ---------------------------------------------------------------------------------------


def cells_of(column: pa.ChunkedArray, field: Attr | Dim, schema: Schema) -> list[Cell]:
    enum = schema.enums[field.enum] if getattr(field, "enum", None) else None
    found: list[Cell] = []
    for chunk in column.chunks:
        chunk.validate(full=True)
        if enum is not None:
            assert pa.types.is_dictionary(chunk.type)
            labels = _stored(chunk.dictionary, enum.datatype, enum.cell_val_num)
            assert labels == labels_of(enum, enum.data, enum.offsets)
            found += [None if index is None else labels[index] for index in chunk.indices.to_pylist()]
        else:
            cells = _stored(chunk, field.datatype, field.cell_val_num)
            found += cells
    return found


def _stored(array: pa.Array, datatype: Datatype, per_cell: int) -> list[Cell]:
    if _is_bytes(datatype):
        return [cell.encode() if isinstance(cell, str) else cell for cell in array.to_pylist()]
    if per_cell == 1:
        raw = _raw(array, datatype)
        width = datatype.size
        cells: list[Cell] = [raw[at : at + width] for at in range(0, len(raw), width)]
        if array.null_count:
            cells = [
                cell if ok else None for cell, ok in zip(cells, array.is_valid().to_pylist(), strict=True)
            ]
        return cells
    return [_raw(cell.values, datatype) if cell.is_valid else None for cell in array]


def _raw(array: pa.Array, datatype: Datatype) -> bytes:
    if datatype is Datatype.BOOL:
        return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False), np.uint8).tobytes()
    if datatype is Datatype.DATETIME_DAY:
        days = array.view(pa.int32())
        absent = np.iinfo(np.int64).min
        return b"".join(np.array(absent if day is None else day, "<i8").tobytes() for day in days.to_pylist())
    width = datatype.size
    if array.null_count and (datatype.is_datetime or datatype.is_time):
        counts = array.view(pa.int64()).fill_null(np.iinfo(np.int64).min)
        return counts.to_numpy(zero_copy_only=False).astype("<i8").tobytes()
    data = array.buffers()[1]
    return b"" if data is None else bytes(data)[array.offset * width : (array.offset + len(array)) * width]


# -- conditions and values --------------------------------------------------------------------------------

_SQL = {0: "<", 1: "<=", 2: ">", 3: ">=", 4: "=", 5: "!="}


def sql(condition: Condition, schema: Schema) -> str:
    match condition:
        case Test(op, name, value):
            return f"`{name}` {_SQL[op]} {literal(value, schema.field(name), schema)}"
        case Member(op, name, members):
            told = ", ".join(literal(value, schema.field(name), schema) for value in members)
            return f"`{name}` {'NOT IN' if op == 7 else 'IN'} ({told})"
        case Null(name, is_null):
            return f"`{name}` IS {'' if is_null else 'NOT '}NULL"
        case Joined(how, children):
            return "(" + f" {how} ".join(sql(child, schema) for child in children) + ")"
        case Not(child):
            return f"NOT ({sql(child, schema)})"


def literal(value: bytes, field: Attr | Dim, schema: Schema) -> str:
    datatype = field.datatype
    enum = schema.enums[field.enum] if getattr(field, "enum", None) else None
    if enum is not None:
        datatype = enum.datatype
    if _is_bytes(datatype):
        if datatype in _TEXT or datatype is Datatype.CHAR:
            return "'" + value.decode().replace("\\", "\\\\").replace("'", "\\'") + "'"
        return f"X'{value.hex()}'"
    number = np.frombuffer(value, datatype.dtype)[0]
    if datatype is Datatype.BOOL:
        return "TRUE" if number else "FALSE"
    if datatype.is_datetime:
        return f"TIMESTAMP '{np.datetime64(int(number), datatype.unit)}'"
    if datatype.is_float:
        return f"{Decimal(float(number)):f}"
    return str(int(number))


def python_value(cell: Cell, attr: Attr, schema: Schema) -> Any:
    """A cell as a user writes it."""
    if cell is None:
        return None
    datatype = attr.datatype
    if attr.enum is None and (datatype.is_datetime or datatype.is_time):
        kind = "M" if datatype.is_datetime else "m"
        values = list(np.frombuffer(cell, f"<{kind}8[{datatype.unit}]"))
        return values if attr.is_var or attr.cell_val_num > 1 else values[0]
    return as_array([cell], attr, schema)[0].as_py()


def some_python_form(cells: Columns, schema: Schema, rng: random.Random) -> Any:
    """The cells as a table, as batches, or as a dict."""
    table = as_table(cells, schema)
    if rng.random() < 0.3:
        return table.to_batches(max_chunksize=3)
    return {name: table.column(name) for name in table.schema.names} if rng.random() < 0.4 else table
