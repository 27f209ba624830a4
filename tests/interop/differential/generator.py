"""Random cases. A case is one integer: the same seed gives the same schema, history and questions.

What the generator leaves out, it leaves out by name, in `EXCLUDED`.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

import terrazzo as tz
from differential.history import (
    Box,
    Case,
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
    Operation,
    Put,
    Query,
    Ranges,
    Test,
    Update,
    Window,
    Write,
    fields_of,
)  # fmt: skip
from differential.libtiledb import labels_of
from terrazzo import Attr, Datatype, Dim, Enumeration, InvalidRequestError, Schema
from terrazzo.engine.predicate import compares_first_only
from terrazzo.format.condition import Op
from terrazzo.format.orders import Layout

EXCLUDED = {
    "equal timestamps": "ties depend on names, on .con membership and on the number of fragments",
    "NaN and !=": "libtiledb: NaN != 5 holds. terrazzo: NaN matches no comparison, so that reads, deletes and "
    "updates agree on which cells a condition is about",
    "attribute of another type": "dropped and added again with another type: libtiledb reinterprets old bytes",
    "drop of a tested attribute": "libtiledb can then no longer read the array",
    "IS NULL in deletes": "libtiledb stores it and then cannot read the array, or compares with the empty text",
    "unknown labels": "libtiledb refuses them, or writes an empty set that no reader takes",
    "dates without a literal": "SQL has none before the year 1 and after 9999; they are data, but not in conditions",
    "-0.0 as a coordinate": "equal to 0.0, so which of the two bytes survives is no question of cells",
    "empty text as the end of a range": "to libtiledb it means no end",
    "not-a-time of DATETIME_DAY": "Arrow's date32 has no such value: it reads as null, and a write refuses null",
    "ranges of text beside space tiles": "libtiledb searches texts that are not in order, and finds others",
    "overlapping ranges of text": "libtiledb loses cells that only the wider range holds",
    "ranges that touch the largest number": "of several, libtiledb shows cells of two twice; it adds 1 to see where one "
    "ends",
    "instants before an evolution, once more was written there": "libtiledb reads memory that it does not own, its own "
    "fragments too: their schema is younger than the array's",
    "days beyond 32 bits": "Arrow has no type for them",
    "conditions on added attributes": "libtiledb matches no cell of a fragment that lacks the attribute, and refuses "
    "to answer for dense ones; terrazzo tests the fill value that it shows there. Deletes are as libtiledb has them",
    "late deletes by added attributes": "libtiledb takes the schema of that instant",
    "DoubleDelta of large numbers": "differences of 64 bits are an error in libtiledb's writer",
    "unordered reads of added nullable attributes": "where duplicates are allowed they crash libtiledb; row-major "
    "and global order do not",
    "dense ASCII and CHAR of any length, written by libtiledb": "crash it if attributes outnumber tiles; what we "
    "write of them, it reads",
    "checksums behind other filters of var fields": "libtiledb cannot read back a tile of no bytes",
    "dense writes without an attribute over ones with it": "libtiledb shows the older value where a tile is covered "
    "in part and the fill value where it is covered as a whole; terrazzo shows the fill value",
    "CHAR of a fixed length, compared": "libtiledb compares the first character only; terrazzo all of them, except "
    "in deletes that libtiledb wrote",
    "dense conditions on dimensions": "libtiledb tests other coordinates than those of the cell",
    "-0.0 in a set": "libtiledb looks floats up by their bytes, SQL by their value; deletes are as libtiledb has them",
    "dense IS NULL": "libtiledb tests the validity of other cells where a tile is read in part",
    "consolidation after a var attribute was added": "libtiledb divides by the size that it has nowhere, and dies",
    "drops before consolidation, with updates": "libtiledb rewrites old cells without the attribute: the past is "
    "another one, for the model",
    "late commits after consolidation": "libtiledb names the result after the last source; its own reader then "
    "shows cells too early, and dense cells too late",
}

START = 1_600_000_000_000
"""When every array is created; all instants have the same number of digits."""

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DATES = [
    f"datetime64[{unit}]" for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
]
TIMES = [f"timedelta64[{unit}]" for unit in ("h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")]
FLOATS = ["float32", "float64"]
BYTES = ["utf8", "ascii", "blob", "char", "geom_wkb", "geom_wkt", "string_utf16", "string_utf32"]
F = tz.filters


class Generator:
    def __init__(self, seed: int, *, libtiledb_writes: bool = True) -> None:
        self.seed, self.libtiledb_writes = seed, libtiledb_writes
        self.rng = random.Random(seed)
        self._names = 0

    # -- chance ---------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, items: Sequence[Any]) -> Any:
        return self.rng.choice(items)

    def some(self, items: Sequence[Any], most: int) -> list[Any]:
        return self.rng.sample(list(items), self.rng.randint(1, min(most, len(items))))

    def until_valid(self, make: Callable[[], Any]) -> Any:
        """A try that the schema's own rules let pass."""
        for _ in range(200):
            try:
                return make()
            except InvalidRequestError:
                continue
        raise AssertionError(f"seed {self.seed}: nothing valid in 200 tries")

    # -- schemas --------------------------------------------------------------------------------------

    def schema(self, *, sparse: bool | None = None) -> Schema:
        sparse = self.chance(0.65) if sparse is None else sparse
        dims = self._sparse_dims() if sparse else self._dense_dims()
        enums: dict[str, Enumeration] = {}
        attrs = [self._attr(enums, sparse=sparse) for _ in range(self.rng.randint(1, 4))]
        orders = ["row-major", "col-major"]
        options: dict[str, Any] = {
            "enums": enums,
            "sparse": sparse,
            "cell_order": self.pick([*orders, "hilbert"] if sparse else orders),
            "tile_order": self.pick(orders),
            "capacity": self.pick([1, 2, 3, 5, 8, 50]),
        }
        if sparse:
            options["allows_duplicates"] = self.chance(0.4)
        if self.chance(0.3):
            options["coords_filters"] = self.pick(
                [[F.Gzip(3)], [F.ByteShuffle(), F.Lz4()], [F.Zstd(2), F.Md5()]]
            )
        if self.chance(0.3):
            options["offsets_filters"] = self.pick(
                [
                    [],
                    [F.DoubleDelta(), F.Zstd(1)],
                    [F.PositiveDelta(), F.BitWidthReduction()],
                    [F.Delta(), F.Bzip2(1)],
                ]
            )
        if self.chance(0.2):
            options["validity_filters"] = self.pick([[], [F.BitShuffle(), F.Gzip(1)], [F.Zstd(4)]])
        return Schema(dims, attrs, **options)

    def name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}{self.pick(['', '', '', ' x', '.é', '-'])}"

    def _sparse_dims(self) -> list[Dim]:
        kinds = ["ascii", *INTEGERS, *INTEGERS, *FLOATS, *FLOATS, *DATES, *TIMES]
        count = self.pick([1, 1, 2, 2, 3, 4])
        dims = [self._dim(self.pick([*kinds, "ascii", "ascii", "ascii"])) for _ in range(count)]
        if any(dim.is_var for dim in dims) and self.chance(0.6):  # see `misread_ranges`
            dims = [dim if dim.is_var else replace(dim, tile=None) for dim in dims]
        return dims

    def _dim(self, kind: str) -> Dim:
        if kind == "ascii":
            filters = self.pick([[], [], [F.Rle()], [F.Dictionary()], [F.Gzip(2)], [F.Zstd(1), F.Sha256()]])
            return Dim(self.name("s"), "ascii", filters=filters)
        datatype = Datatype.parse(kind)
        name, filters = self.name("d"), self._filters(datatype, var=False) if self.chance(0.4) else []
        return self.until_valid(lambda: self._number_dim(name, datatype, filters))

    def _number_dim(self, name: str, datatype: Datatype, filters: list[Any]) -> Dim:
        if datatype.is_float:
            low = self.pick([0.0, -10.5, 3.25, -1e6])
            width = self.pick([1.5, 40.0, 1000.75])
            tile = self.pick([None, width / 3, 0.75])
            return Dim(name, datatype, (low, low + width), tile, filters)
        low, high = self._whole_range(datatype, self.pick([3, 9, 40, 1000, 1 << 40]))
        width = high - low + 1
        tile = self.pick([None, 1, 2, 7, self.rng.randint(1, min(width, 50)), width // 2 or 1])
        if width > 10_000:
            tile = self.pick([None, 10_000, width // 3])
        if tile is not None and width > tile > np.iinfo(datatype.dtype).max:
            raise InvalidRequestError("libtiledb takes no such extent, though it makes them up itself")
        return Dim(name, datatype, (low, high), tile, filters)

    def _whole_range(self, datatype: Datatype, width: int) -> tuple[int, int]:
        info = np.iinfo(np.int32 if datatype is Datatype.DATETIME_DAY else datatype.dtype)
        width = min(width, int(info.max) - int(info.min) - 1)
        lows = [0, 1, -width // 2, int(info.min) + 1, int(info.min), int(info.max) - width - 10]
        low = max(self.pick(lows), int(info.min) + (datatype.is_datetime or datatype.is_time))
        return low, min(low + width - 1, int(info.max))

    def _dense_dims(self) -> list[Dim]:
        datatype = Datatype.parse(self.pick([*INTEGERS, *INTEGERS, *DATES]))
        n_dims = self.pick([1, 2, 2, 3])
        widest = {1: 60, 2: 12, 3: 5}[n_dims]

        def one() -> Dim:
            low, high = self._whole_range(datatype, self.rng.randint(1, widest))
            return Dim(self.name("d"), datatype, (low, high), self.rng.randint(1, high - low + 1))

        return [self.until_valid(one) for _ in range(n_dims)]

    def _attr(self, enums: dict[str, Enumeration], *, sparse: bool) -> Attr:
        return self.until_valid(lambda: self._fitting(self._any_attr(enums, sparse=sparse), sparse=sparse))

    def _fitting(self, attr: Attr, *, sparse: bool) -> Attr:
        text = attr.is_var and attr.datatype in {Datatype.STRING_ASCII, Datatype.CHAR}
        if self.libtiledb_writes and text and not sparse:
            raise InvalidRequestError(
                "dense text crashes libtiledb when there are fewer tiles than attributes"
            )
        return attr

    def _any_attr(self, enums: dict[str, Enumeration], *, sparse: bool) -> Attr:
        name, nullable = self.name("a"), self.chance(0.4)
        kind = self.pick(["number", "number", "number", "bytes", "bytes", "date", "enum"])
        if kind == "enum":
            enum = self._enumeration()
            enums[enum.name] = enum
            datatype = Datatype.parse(self.pick(INTEGERS))
            return Attr(
                name, datatype, nullable=nullable, enum=enum.name, filters=self._filters(datatype, var=False)
            )
        if kind == "bytes":
            datatype = Datatype.parse(self.pick(["utf8", "utf8", "ascii", "ascii", *BYTES]))
            count = self.rng.randint(2, 4) if self.chance(0.2) else None
        else:
            datatype = Datatype.parse(
                self.pick([*DATES, *TIMES] if kind == "date" else [*INTEGERS, *FLOATS, *FLOATS, "bool"])
            )
            count = self.pick([None, None, None, 2, 3])
        var = None if kind == "bytes" or count else self.chance(0.25)
        is_var = var or (kind == "bytes" and count is None)
        fill = self._fill(datatype, count or 1, is_var=bool(is_var)) if self.chance(0.3) else None
        return Attr(
            name, datatype, var=var, nullable=nullable, values_per_cell=count, fill=fill,
            fill_valid=fill is not None and nullable and self.chance(0.4),
            filters=self._filters(datatype, var=bool(is_var), several=bool(count)),
        )  # fmt: skip

    def _fill(self, datatype: Datatype, count: int, *, is_var: bool) -> bytes:
        if is_var:
            return b"".join(self.value(datatype) for _ in range(self.rng.randint(1, 3)))
        return b"".join(self.value(datatype) for _ in range(count))

    def _enumeration(self) -> Enumeration:
        kind = self.pick(["utf8", "utf8", "ascii", "int32", "float64", "uint8", "int64"])
        labels = self._labels(Datatype.parse(kind), self.rng.randint(1, 6), ())
        return Enumeration(self.name("e"), labels, ordered=self.chance(0.5), datatype=kind)

    def _labels(self, datatype: Datatype, count: int, taken: Sequence[Any]) -> list[Any]:
        if datatype.is_string:
            letters = "abcdeé" if datatype is Datatype.STRING_UTF8 else "abcde"
            pool: list[Any] = [a + b for a in letters for b in ("", "x", "yz")]
        elif datatype.is_float:
            pool = [n / 4 for n in range(-8, 30)]
        else:
            pool = list(range(40))
        pool = [label for label in pool if label not in taken]
        return self.rng.sample(pool, count)

    def _filters(self, datatype: Datatype, *, var: bool, several: bool = False) -> list[Any]:
        """A pipeline that fits: differences and widths for whole numbers, shuffles and compressors for all."""
        if self.chance(0.35):
            return []
        if var and datatype in {Datatype.STRING_ASCII, Datatype.STRING_UTF8} and self.chance(0.4):
            return [self.pick([F.Rle(), F.Dictionary()]), *([F.Zstd(1)] if self.chance(0.4) else [])]
        whole = datatype.is_integer or datatype.is_datetime or datatype.is_time
        compressors = [F.Gzip(1), F.Zstd(3), F.Lz4(1), F.Bzip2(1)]
        early: list[Any] = [F.ByteShuffle(), F.BitShuffle()]
        if whole and not var:
            early += [F.Delta(), F.BitWidthReduction(), F.BitWidthReduction(64)]
            early += [F.DoubleDelta()] if datatype.size < 8 else []
        if (whole or datatype.is_float) and not var and not several:
            early.append(F.Xor())
        if not var and self.chance(0.1):  # runs of whole cells: nothing may stand before it
            return [F.Rle(), *([F.Zstd(1)] if self.chance(0.5) else [])]
        chosen = [self.pick(early)] if self.chance(0.5) else []
        chosen += [self.pick(compressors)] if self.chance(0.7) else []
        checksums = [self.pick([F.Md5(), F.Sha256()])] if self.chance(0.2) else []
        return checksums + chosen if var else chosen + checksums

    # -- values ---------------------------------------------------------------------------------------

    def value(self, datatype: Datatype) -> bytes:
        """One value, often one that others have too."""
        dtype = datatype.dtype
        if datatype is Datatype.BOOL:
            return bytes([self.rng.randint(0, 1)])
        if datatype.is_float:
            special = [float("nan"), float("inf"), float("-inf"), -0.0, 1e-40, float(np.finfo(dtype).max)]
            number = self.pick(special) if self.chance(0.15) else self.rng.randint(-12, 12) / 4
            return np.array(number, dtype).tobytes()
        if datatype.is_integer or datatype.is_datetime or datatype.is_time:
            info = np.iinfo(dtype)
            if self.chance(0.1) and datatype is not Datatype.DATETIME_DAY:
                return np.array(self.pick([info.min, info.max, info.max - 1]), dtype).tobytes()
            return np.array(self.rng.randint(max(-8, int(info.min)), 8), dtype).tobytes()
        if datatype in {Datatype.STRING_ASCII, Datatype.STRING_UTF8, Datatype.CHAR, Datatype.GEOM_WKT}:
            return self.pick("abcxyz '").encode()
        if datatype.is_string:
            return np.array(self.pick([97, 98, 233, 0x20AC]), dtype).tobytes()
        return np.array(self.rng.randint(0, 255), np.uint8).tobytes()

    def cell(self, attr: Attr, schema: Schema) -> Cell:
        if attr.nullable and self.chance(0.25):
            return None
        if attr.enum is not None:
            return self.pick(labels(schema.enums[attr.enum]))
        if not attr.is_var:
            return b"".join(self.value(attr.datatype) for _ in range(attr.cell_val_num))
        text = b"".join(self.value(attr.datatype) for _ in range(self.pick([0, 1, 1, 2, 3, 5])))
        if attr.datatype is Datatype.STRING_UTF8 and self.chance(0.2):
            text += self.pick("éß€𝄞").encode()
        return text

    def coordinate_pool(self, dim: Dim) -> list[bytes]:
        """A few coordinates, so that cells meet; the ends of the domain are often among them."""
        if dim.is_var:
            words = ["a", "b", "ab", "abc", "z", "zz", "q r", "~", ""]
            return [word.encode() for word in self.some(words, 6)]
        low, high = dim.domain
        dtype = dim.datatype.dtype
        count = self.rng.randint(2, 9)
        if dim.datatype.is_float:
            pool = {np.clip(dtype.type(self.rng.uniform(low, high)), low, high) for _ in range(count)}
            pool |= {dtype.type(low), dtype.type(high)} if self.chance(0.5) else set()
            return [(np.array(value, dtype) + dtype.type(0)).tobytes() for value in sorted(pool)]
        pool = {self.rng.randint(low, high) for _ in range(count)}
        pool |= {low, high} if self.chance(0.5) else set()
        return [np.array(value, dtype).tobytes() for value in sorted(pool)]

    # -- histories ------------------------------------------------------------------------------------

    def case(
        self,
        *,
        sparse: bool | None = None,
        deletes: bool = True,
        updates: bool = False,
        maintenance: bool = False,
        plain_deletes: bool = False,
    ) -> Case:
        """`plain_deletes`: by fields whose cells are neither null nor NaN, of which SQL and libtiledb think alike."""
        first = schema = self.schema(sparse=sparse)
        pools = [self.coordinate_pool(dim) for dim in schema.dims]
        operations: list[Operation] = []
        now, used, tested = START, {START}, set()
        consolidated = False
        for place in range(self.rng.randint(2, 9)):
            kind = self._kind(place, schema, deletes=deletes, updates=updates, maintenance=maintenance)
            if kind == "maintain":
                mode = self.pick(["fragments", "fragments", "commits", "fragment_meta", "array_meta"])
                operations.append(Maintain(mode, self.chance(0.6)))
                consolidated |= mode == "fragments"
                continue
            now += self.rng.randint(5, 50)
            at = now
            movable = not consolidated and (schema.sparse or schema is first)
            if movable and kind in {"write", "delete", "put", "update"} and self.chance(0.15):
                at = self.rng.randint(START + 1, now)  # committed after what it happened before
            late_on = schema if at == now else first  # what it tests was there at its time
            while used & {at - 1, at, at + 1}:  # a delete may write cells again one millisecond later
                at += 1
            used.add(at)
            now = max(now, at)
            match kind:
                case "write":
                    operations.append(self._write(at, schema, pools))
                case "delete" | "update":
                    known = tuple(attr for attr in late_on.attrs if schema.has(attr.name))
                    if kind == "delete" and plain_deletes:
                        known = tuple(attr for attr in known if first.has(attr.name) and never_unknown(attr))
                    then = replace(late_on, attrs=known)
                    if not self._testable(then, pools, delete=True):
                        continue
                    where = self.condition(then, pools, delete=True)
                    tested |= fields_of(where)
                    if kind == "delete":
                        operations.append(Delete(at, schema, where))
                    elif known:
                        operations.append(Update(at, schema, where, self._assignments(then)))
                case "evolve":
                    change = self._evolve(at, schema, tested, maintenance=maintenance, updates=updates)
                    if change is not None:
                        schema = change.schema
                        operations.append(change)
                case "put":
                    operations.append(Put(at, self._metadata()))
        return Case(self.seed, first, operations, self._windows(used, now), pools)

    def _kind(self, place: int, schema: Schema, *, deletes: bool, updates: bool, maintenance: bool) -> str:
        if place == 0:
            return "write"
        kinds = ["write"] * 5 + ["evolve", "evolve", "put"]
        if schema.sparse:
            kinds += ["delete"] * 3 if deletes else []
            kinds += ["update"] * 5 if updates else []
        return self.pick(kinds + ["maintain"] * (4 if maintenance else 0))

    def _write(self, at: int, schema: Schema, pools: list[list[bytes]]) -> Write:
        if schema.dense:
            return self._dense_write(at, schema)
        wanted = self.pick([1, 3, 10, 30])
        rows = [tuple(self.pick(pool) for pool in pools) for _ in range(wanted)]
        if not schema.allows_duplicates:
            rows = list(dict.fromkeys(rows))
        cells: Columns = {dim.name: [row[j] for row in rows] for j, dim in enumerate(schema.dims)}
        for attr in schema.attrs:
            cells[attr.name] = [self.cell(attr, schema) for _ in rows]
        return Write(at, schema, cells)

    def _dense_write(self, at: int, schema: Schema) -> Write:
        box: Box = ()
        for dim in schema.dims:
            low, high = dim.domain
            a, b = sorted((self.rng.randint(low, high), self.rng.randint(low, high)))
            if self.chance(0.3):  # whole tiles
                a -= (a - low) % dim.tile
                b = min(high, b + dim.tile - 1 - (b - low) % dim.tile)
            box += (((low, high) if self.chance(0.2) else (a, b)),)
        n_cells = prod(b - a + 1 for a, b in box)
        return Write(
            at,
            schema,
            {attr.name: [self.cell(attr, schema) for _ in range(n_cells)] for attr in schema.attrs},
            box,
        )

    def _assignments(self, schema: Schema) -> dict[str, Cell]:
        values = {}
        for attr in self.some(schema.attrs, 2):
            cell = self.cell(attr, schema)
            while cell == b"" and attr.nullable:  # an .upd spells it as it spells null
                cell = self.cell(attr, schema)
            values[attr.name] = cell
        return values

    def _evolve(
        self, at: int, schema: Schema, tested: set[str], *, maintenance: bool, updates: bool
    ) -> Evolve | None:
        enums, add, drop, extend = dict(schema.enums), [], [], {}
        droppable = [attr.name for attr in schema.attrs if attr.name not in tested]
        if maintenance and updates:  # consolidation takes dropped attributes from the past as well
            droppable = []
        if self.chance(0.6):
            scratch: dict[str, Enumeration] = {}
            attr = self.until_valid(
                lambda: self._plain(self._attr(scratch, sparse=schema.sparse), maintenance)
            )
            add.append(attr)
        if droppable and len(schema.attrs) + len(add) > 1 and self.chance(0.35):
            drop.append(self.pick(droppable))
        if enums and self.chance(0.5):
            name = self.pick(sorted(enums))
            known = enums[name]
            extend[name] = self._labels(known.datatype, self.rng.randint(1, 3), known.values.to_pylist())
            enums[name] = known.extend(extend[name])
        if not (add or drop or extend):
            return None
        attrs = tuple(attr for attr in (*schema.attrs, *add) if attr.name not in drop)
        changed = replace(schema, attrs=attrs, enums=enums)
        return Evolve(at, changed, tuple(add), tuple(drop), extend)

    def _plain(self, attr: Attr, maintenance: bool) -> Attr:
        if maintenance and attr.is_var:
            raise InvalidRequestError(
                "libtiledb divides by 0 when it consolidates fragments that all lack it"
            )
        if attr.enum is not None:
            raise InvalidRequestError("an enumeration that is added with its attribute has its own tests")
        return attr

    def _metadata(self) -> dict[str, Any]:
        values = [
            1, -(1 << 62), 2.5, "text", "é€", b"\x00\xff", (1, 2, 3), (0.5, -1.5), np.arange(3, dtype="uint16"),
            np.arange(6, dtype="int64").reshape(2, 3), np.array([1.5, 2.5], "float32"), "", True,
        ]  # fmt: skip
        return {
            self.pick(["k", "unit", "ü", "other"]): None if self.chance(0.2) else self.pick(values)
            for _ in range(self.rng.randint(1, 3))
        }

    # -- questions ------------------------------------------------------------------------------------

    def _windows(self, used: set[int], now: int) -> list[Window]:
        instants = sorted({at + step for at in used for step in (-1, 0, 1)} | {START - 5})
        windows = [Window()]
        windows += [Window(at) for at in self.some(instants, 4)]
        low, high = sorted(self.rng.sample(instants, 2))
        return [*windows, Window(high, low), Window(now + 3, low)]

    def queries(self, case: Case, schema: Schema, count: int = 3, *, added: bool = False) -> list[Query]:
        """Questions about an array with this schema. `added`: conditions may test added attributes too."""
        pools = case.pools
        names = tuple(field.name for field in schema.fields)
        layouts = ["unordered", "unordered", "global"] if schema.sparse else ["row-major"]
        first = {attr.name for attr in case.schema.attrs}
        newer = [attr for attr in schema.attrs if attr.name not in first]
        lasting = first.intersection(
            *({attr.name for attr in op.schema.attrs} for op in case.operations if isinstance(op, Evolve))
        )
        if schema.allows_duplicates and any(attr.nullable for attr in newer):
            layouts = ["row-major", "global"]  # unordered, libtiledb crashes
            if any(isinstance(op, Maintain) for op in case.operations):
                layouts = ["global"]  # in row-major order it does not find the conditions that were processed
        queries = [Query(names, layout=self.pick(layouts))]
        dims = tuple(dim.name for dim in schema.dims)
        for _ in range(count):
            chosen = tuple(self.some(names, len(names))) if self.chance(0.5) else names
            if schema.dense:  # a box of cells without places says nothing
                chosen = (*dims, *(name for name in chosen if name not in dims))
            region = {} if self.chance(0.4) else self.region(schema, pools, disjoint="row-major" in layouts)
            # "conditions on added attributes"
            tested = replace(
                schema, attrs=tuple(attr for attr in schema.attrs if added or attr.name in lasting)
            )
            possible = self._testable(tested, pools, delete=False)
            where = self.condition(tested, pools, delete=False) if possible and self.chance(0.6) else None
            where = None if where is None else decided_alike(where, schema)
            # In global order libtiledb takes one range per dimension.
            if layouts == ["global"]:
                region = {name: ranges[:1] for name, ranges in region.items()}
            layout = self.pick(layouts) if all(len(ranges) == 1 for ranges in region.values()) else layouts[0]
            queries.append(Query(chosen, region, where, layout))
        return queries

    def aggregates(self, case: Case, schema: Schema) -> list[tuple[Query, list[tuple[str, str]]]]:
        """Sums and the like: of everything, which libtiledb takes from statistics, and of a part."""
        asked = []
        for query in self.queries(case, schema, 1):
            wanted = [("count", schema.attrs[0].name)]
            for attr in schema.attrs:
                if case.schema.has(attr.name):  # sums over fragments that lack the attribute crash libtiledb
                    wanted += [(how, attr.name) for how in self._aggregates_of(attr)]
            names = tuple(dict.fromkeys([*query.columns, *(name for _, name in wanted)]))
            asked.append((replace(query, columns=names), wanted))
        return asked

    def _aggregates_of(self, attr: Attr) -> list[str]:
        """Those that libtiledb can answer from statistics of its own."""
        if attr.enum is not None:
            return []
        if attr.is_var:
            return ["min", "max"] if attr.datatype is Datatype.STRING_ASCII else []
        if attr.cell_val_num > 1 or not (attr.datatype.is_integer or attr.datatype.is_float):
            return []
        return ["min", "max", "sum", "mean", *(["null_count"] if attr.nullable else [])]

    def region(self, schema: Schema, pools: list[list[bytes]], *, disjoint: bool) -> dict[str, Ranges]:
        """`disjoint`: read in row-major order, libtiledb gives a cell once for each range that holds it."""
        chosen: dict[str, Ranges] = {}
        for place, (dim, pool) in enumerate(zip(schema.dims, pools, strict=True)):
            if self.chance(0.35) or (dim.is_var and misread_ranges(schema, place)):
                continue
            chosen[dim.name] = self._ranges(dim, pool, disjoint=disjoint)
        return chosen

    def _ranges(self, dim: Dim, pool: list[bytes], *, disjoint: bool) -> Ranges:
        if dim.is_var:
            words = sorted({*pool, b"a", b"b", b"m", b"zzz"} - {b""})
            ends = sorted(self.rng.sample(words, 2 * self.pick([1, 1, 2])))  # no range within another
            pairs = list(zip(ends[::2], ends[1::2], strict=True))
            return [(a, a) if self.chance(0.4) else (a, b) for a, b in pairs]
        dtype = dim.datatype.dtype
        low, high = dim.domain
        numbers = [np.frombuffer(place, dtype)[0].item() for place in pool]
        for _ in range(4):
            if dim.datatype.is_float:
                numbers.append(dtype.type(self.rng.uniform(low, high)).item())
            else:
                numbers.append(self.rng.randint(low, high))
        if disjoint:
            numbers = sorted(
                self.rng.sample(sorted(set(numbers)), min(len(set(numbers)), self.pick([1, 2, 4])))
            )
        else:
            numbers = [self.pick(numbers) for _ in range(2 * self.pick([1, 1, 2, 3]))]
        if len(numbers) % 2:
            numbers.append(numbers[-1])
        pairs = [tuple(sorted(pair)) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
        pairs = [(a, a) if self.chance(0.3) else (a, b) for a, b in pairs]
        if not dim.datatype.is_float and any(b == np.iinfo(dtype).max for _, b in pairs):
            pairs = pairs[:1]  # "ranges that touch the largest number"
        return [tuple(np.array(end, dtype).tobytes() for end in pair) for pair in pairs]

    def condition(
        self, schema: Schema, pools: list[list[bytes]], *, delete: bool, depth: int = 0
    ) -> Condition:
        """What both libraries can say. `delete`: what both can store."""
        if depth < 3 and self.chance(0.4 if depth == 0 else 0.25):
            children = tuple(
                self.condition(schema, pools, delete=delete, depth=depth + 1)
                for _ in range(self.rng.randint(2, 3))
            )
            return Joined(self.pick(["AND", "OR"]), children)
        if depth < 3 and self.chance(0.15):
            return Not(self.condition(schema, pools, delete=delete, depth=depth + 1))
        fields = self._testable(schema, pools, delete=delete)
        nullable = [attr for attr in schema.attrs if attr.nullable]
        if nullable and not delete and schema.sparse and self.chance(0.15):  # "dense IS NULL"
            return Null(self.pick(nullable).name, self.chance(0.5))
        return self._test(self.pick(fields), schema, pools, delete=delete)

    def _testable(self, schema: Schema, pools: list[list[bytes]], *, delete: bool) -> list[Attr | Dim]:
        dims = [
            dim
            for dim, pool in zip(schema.dims, pools, strict=True)
            if schema.sparse and any(expressible(value, dim.datatype) for value in pool)
        ]
        fields = [*dims, *(attr for attr in schema.attrs if comparable(attr))]
        if delete and self.libtiledb_writes:
            return fields
        return [field for field in fields if not compares_first_only(field)]

    def _test(
        self, field: Attr | Dim, schema: Schema, pools: list[list[bytes]], *, delete: bool
    ) -> Condition:
        enum = schema.enums[field.enum] if isinstance(field, Attr) and field.enum else None
        ops = [Op.LT, Op.LE, Op.GT, Op.GE, Op.EQ, Op.NE]
        if enum is not None and not enum.ordered:
            ops = [Op.EQ, Op.NE]

        def value() -> bytes:
            if isinstance(field, Dim):
                pool = pools[schema.dims.index(field)]
                return self.pick([place for place in pool if expressible(place, field.datatype)])
            if enum is not None:
                return self.pick(labels(enum))
            for _ in range(100):
                cell = self.cell(field, schema)
                if cell is not None and expressible(cell, field.datatype):
                    return cell
            raise AssertionError(f"seed {self.seed}: no value for {field}")

        if self.chance(0.2):
            members = tuple({value(): None for _ in range(self.rng.randint(1, 4))})
            if field.datatype.is_float and enum is None and not (delete and self.libtiledb_writes):
                zeros = {np.array(zero, field.datatype.dtype).tobytes() for zero in (0.0, -0.0)}
                members = tuple(member for member in members if member not in zeros) or (
                    np.array(1.0, field.datatype.dtype).tobytes(),
                )
            if members == (b"",):  # libtiledb takes no set of no bytes
                return Test(self.pick(ops), field.name, b"")
            return Member(self.pick([Op.IN, Op.NOT_IN]), field.name, members)
        return Test(self.pick(ops), field.name, value())


def labels(enum: Enumeration) -> list[bytes]:
    return labels_of(enum, enum.data, enum.offsets)


def comparable(attr: Attr) -> bool:
    """Whether a condition of libtiledb can compare the attribute."""
    if attr.enum is not None:
        return True
    text = attr.datatype in {Datatype.STRING_ASCII, Datatype.STRING_UTF8, Datatype.CHAR}
    if attr.is_var or attr.cell_val_num > 1:
        return text
    numbers = attr.datatype.is_integer or attr.datatype.is_float or attr.datatype is Datatype.BOOL
    return text or numbers or attr.datatype.is_datetime or attr.datatype.is_time


def expressible(value: bytes, datatype: Datatype) -> bool:
    """Whether SQL has a literal for it: finite numbers, and dates of the years 1 to 9999."""
    if datatype.is_float:
        return bool(np.isfinite(np.frombuffer(value, datatype.dtype)[0]))
    if datatype.is_datetime:
        count = int(np.frombuffer(value, datatype.dtype)[0])
        per_year = {"Y": 1, "M": 12, "W": 53, "D": 366, "h": 8784, "m": 527_040, "s": 31_622_400}
        most = 1900 * per_year.get(datatype.unit, 10**18)
        if datatype.unit in {"ms", "us"}:
            most = 1900 * 31_622_400 * (1000 if datatype.unit == "ms" else 10**6)
        return abs(count) <= most and count != np.iinfo(np.int64).min
    return True


def misread_ranges(schema: Schema, place: int) -> bool:
    """Where libtiledb takes the texts of a tile to be in order, though the tiles of another dimension come first."""
    leads = place == (len(schema.dims) - 1 if schema.cell_order is Layout.COL_MAJOR else 0)
    others = [dim for index, dim in enumerate(schema.dims) if index != place and not dim.is_var]
    return leads and schema.cell_order is not Layout.HILBERT and any(dim.n_tiles != 1 for dim in others)


def never_unknown(attr: Attr) -> bool:
    return (
        not attr.nullable
        and (attr.enum is not None or not attr.datatype.is_float)
        and not compares_first_only(attr)
    )


def decided_alike(condition: Condition, schema: Schema, *, negated: bool = False) -> Condition:
    """The condition without `!=` on floats, once every NOT is carried down: "NaN and !=" of `EXCLUDED`."""
    match condition:
        case Joined(how, children):
            return Joined(how, tuple(decided_alike(child, schema, negated=negated) for child in children))
        case Not(child):
            return Not(decided_alike(child, schema, negated=not negated))
        case Test(op, name, value) | Member(op, name, value):
            differs = op.negated if negated else op
            floats = any(
                attr.name == name and attr.enum is None and attr.datatype.is_float for attr in schema.attrs
            )
            if floats and differs in {Op.NE, Op.NOT_IN}:
                return type(condition)(op.negated, name, value)
    return condition


def schema_at(case: Case, window: Window) -> Schema:
    """The schema that a reader sees: the newest up to its instant, the first before that."""
    schema = case.schema
    for op in case.operations:
        if isinstance(op, Evolve) and (window.at is None or op.at <= window.at):
            schema = op.schema
    return schema


def behind_evolution(case: Case, window: Window) -> bool:
    """Whether cells show that were written with a schema younger than the one that shows."""
    younger: list[int] = []
    for op in case.operations:
        if isinstance(op, Evolve) and window.at is not None and op.at > window.at:
            younger.append(op.at)
        if isinstance(op, Write) and younger and window.at is not None and op.at <= window.at:
            return True
    return False


def places(box: Box, schema: Schema) -> list[tuple[bytes, ...]]:
    """Coordinates of the cells of a box, in row-major order."""
    lines = [
        [np.array(value, dim.datatype.dtype).tobytes() for value in range(low, high + 1)]
        for (low, high), dim in zip(box, schema.dims, strict=True)
    ]
    return list(product(*lines))
