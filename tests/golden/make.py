"""Writes the golden files anew, with libtiledb: `python tests/golden/make.py`, where the package `tiledb` is.

    tiles/<filter>[_offsets].tdb   one tile per filter
    arrays/<name>/                 whole arrays: each kind of file, each format version from 7 on
    meaning.json                   what libtiledb was given, and what it says of it

Names and times are those of the run; nothing else changes from one run to the next.
"""

# ruff: noqa: E402 the helpers of tests/interop must be on the path before they are imported
import json
import shutil
import sys
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))

import arrays
import numpy as np
import queries
import tiledb
from capi import write_update

from terrazzo.engine.columns import Column
from terrazzo.format.attribute import Attr
from terrazzo.format.condition import Combination, Combine, Compare, Op
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.filters.bit_width import BitWidthReduction
from terrazzo.format.filters.bitshuffle import BitShuffle
from terrazzo.format.filters.byteshuffle import ByteShuffle
from terrazzo.format.filters.checksum import Md5, Sha256
from terrazzo.format.filters.compress import Bzip2, Gzip, Lz4, Zstd
from terrazzo.format.filters.delta import Delta
from terrazzo.format.filters.dictionary import Dictionary
from terrazzo.format.filters.double_delta import DoubleDelta
from terrazzo.format.filters.noop import NoOp
from terrazzo.format.filters.positive_delta import PositiveDelta
from terrazzo.format.filters.rle import Rle
from terrazzo.format.filters.scale_float import ScaleFloat
from terrazzo.format.filters.xor import Xor
from terrazzo.format.generic_tile import pack_generic_tile
from terrazzo.format.schema import Schema
from terrazzo.format.wire import Writer

KEY = b"0123456789abcdef0123456789ABCDEF"
NUMBERS = [5, 5, 5, -3, 12, 900, 901, 902, 903, 70000, -2147483648, 2147483647, 0, 0, 0, 0, 1]
WORDS = [b"HG", b"HG", b"HG", b"A", b"", b"", b"HG", b"longer than the others", b"A"]
PIPELINES = {
    "none": ("int32", ()),
    "no-op": ("int32", (NoOp(),)),
    "gzip": ("int32", (Gzip(),)),
    "zstd": ("int32", (Zstd(),)),
    "lz4": ("int32", (Lz4(),)),
    "rle": ("int32", (Rle(),)),
    "bzip2": ("int32", (Bzip2(),)),
    "double-delta": ("int32", (DoubleDelta(),)),
    "delta": ("int32", (Delta(),)),
    "delta-of-bytes": ("int32", (Delta(Datatype.UINT8),)),
    "bit-width": ("uint16", (BitWidthReduction(),)),
    "positive-delta": ("uint64", (PositiveDelta(32),)),
    "bit-shuffle": ("int32", (BitShuffle(),)),
    "byte-shuffle": ("int32", (ByteShuffle(),)),
    "xor": ("float64", (Xor(),)),
    "scale-float": ("float64", (ScaleFloat(0.5, 1.0, 2),)),
    "md5": ("int32", (Md5(),)),
    "sha256": ("int32", (Sha256(),)),
    "chain": ("int32", (ByteShuffle(), BitWidthReduction(), Md5(), Bzip2(), Sha256())),
    "strings-rle": ("ascii", (Rle(),)),
    "strings-dictionary": ("utf8", (Dictionary(),)),
    "strings-gzip": ("ascii", (Gzip(),)),
    "encrypted": ("int32", (Gzip(),)),
}


def values_of(kind: str) -> np.ndarray:
    if kind == "int32":
        return np.array(NUMBERS, np.int32)
    if kind == "uint16":
        return np.array([1000, 1001, 1005, 1100, 0, 3], np.uint16)
    if kind == "uint64":
        return np.cumsum(np.arange(20, dtype=np.uint64) % 7)
    return np.array([0.5, 1.5, -3.0, 8.5, 8.5, 1e3])


def words_column(words: list[bytes], validity: np.ndarray | None = None) -> Column:
    return Column(np.frombuffer(b"".join(words), np.uint8), np.cumsum([0, *map(len, words)]), validity)


def make_tiles(scratch: Path) -> dict:
    told = {}
    for name, (kind, filters) in PIPELINES.items():
        key = KEY if name == "encrypted" else None
        column = words_column(WORDS) if kind in {"ascii", "utf8"} else Column(values_of(kind))
        n = len(column)
        attr = Attr("a", kind, filters=filters)
        schema = Schema([Dim("x", "int32", (1, n), n)], [attr], sparse=False, offsets_filters=[])
        root = scratch / name
        arrays.create(root, schema, key=key)
        queries.write(root, schema, {"a": column}, 10, box=((1, n),), key=key)
        (folder,) = (root / "__fragments").iterdir()
        stored = "a0_var.tdb" if attr.is_var else "a0.tdb"
        shutil.copy(folder / stored, HERE / "tiles" / f"{name}.tdb")
        if attr.is_var:
            shutil.copy(folder / "a0.tdb", HERE / "tiles" / f"{name}_offsets.tdb")
        pipeline = Writer()
        attr.filters.pack(pipeline)
        told[name] = {
            "datatype": attr.datatype.name,
            "filters": [str(each) for each in filters],
            "pipeline": bytes(pipeline).hex(),
            "data": np.ascontiguousarray(column.values).tobytes().hex(),
            "offsets": None if column.offsets is None else column.offsets[:-1].tolist(),
            "key": None if key is None else key.decode(),
        }
    return told


def make_webp(root: Path) -> dict:
    """Pixels of three colours, lossless: WebP wants two dimensions."""
    height, width = 12, 8
    image = np.zeros((height, width * 3), np.uint8)
    image[::2, :] = 200
    image[:, ::3] = 90
    dims = [
        tiledb.Dim("y", domain=(1, height), tile=height, dtype=np.uint32),
        tiledb.Dim("x", domain=(1, width * 3), tile=width * 3, dtype=np.uint32),
    ]
    webp = tiledb.WebpFilter(tiledb.filter.lt.WebpInputFormat.WEBP_RGB, quality=100.0, lossless=True)
    attr = tiledb.Attr("a", dtype=np.uint8, filters=filters(webp))
    tiledb.Array.create(str(root), tiledb.ArraySchema(tiledb.Domain(*dims), [attr]))
    with tiledb.open(str(root), "w") as array:
        array[:] = image
    (folder,) = (root / "__fragments").iterdir()
    shutil.copy(folder / "a0.tdb", HERE / "tiles" / "webp.tdb")
    pipeline = Writer()
    arrays.view_of(root).schema.attr("a").filters.pack(pipeline)
    return {"pipeline": bytes(pipeline).hex(), "data": image.tobytes().hex()}


def told_of(root: Path, *, key: bytes | None = None, timestamp: int | None = None) -> dict:
    """What libtiledb reads, cell by cell as stored bytes, and what it says of the fragments."""
    schema = arrays.view_of(root, key=key).schema
    cells = queries.read(root, schema, key=key, timestamp=timestamp)
    facts = queries.fragment_facts(root, schema, key)
    return {
        "key": None if key is None else key.decode(),
        "cells": {
            name: [None if cell is None else cell.hex() for cell in arrays.cell_list(column)]
            for name, column in cells.items()
        },
        "fragments": [
            {
                "name": fact.uri.rpartition("/")[2],
                "version": fact.version,
                "dense": fact.dense,
                "cells": fact.n_cells,
                "domain": [
                    [end.hex() if isinstance(end, bytes) else end for end in ends] for ends in fact.domain
                ],
                "boxes": [
                    [[end.hex() if isinstance(end, bytes) else end for end in ends] for ends in box]
                    for box in fact.boxes
                ],
            }
            for fact in facts
        ],
    }


def i4(*values: int) -> Column:
    return Column(np.array(values, np.int32))


def filters(*given: tiledb.Filter) -> tiledb.FilterList:
    return tiledb.FilterList(list(given))


def make_sparse(root: Path, ctx: tiledb.Ctx | None = None) -> None:
    enum = tiledb.Enumeration("colours", True, values=["red", "green"])
    domain = tiledb.Domain(
        tiledb.Dim("x", domain=(1, 100), tile=10, dtype="int32"),
        tiledb.Dim("s", domain=(None, None), tile=None, dtype="ascii"),
    )
    attrs = [
        tiledb.Attr("a", dtype="int64", filters=filters(tiledb.GzipFilter(1))),
        tiledb.Attr("text", dtype="U0", var=True, nullable=True),
        tiledb.Attr("list", dtype="float32", var=True),
        tiledb.Attr("colour", dtype="int8", enum_label="colours"),
    ]
    schema = tiledb.ArraySchema(
        domain, attrs, sparse=True, capacity=4, enums=[enum], coords_filters=filters()
    )
    tiledb.Array.create(str(root), schema, ctx=ctx)


def sparse_cells(schema: Schema, start: int, n: int) -> dict[str, Column]:
    rng = np.random.default_rng(start)
    columns = {attr.name: arrays.cells_of(attr, n, rng, extreme=attr.name == "a") for attr in schema.attrs}
    columns["colour"] = Column(np.arange(n).astype(np.int8) % 2)
    columns["x"] = Column((np.arange(n) * 7 % 50 + start).astype(np.int32))
    columns["s"] = words_column([b"%d" % (number % 3) for number in range(n)])
    return columns


def make_arrays(root: Path) -> dict:
    told = {}
    ctx = tiledb.Ctx(queries.encryption(KEY))
    for name, key in (("sparse", None), ("encrypted", KEY)):
        array = root / name
        make_sparse(array, ctx if key else None)
        schema = arrays.view_of(array, key=key).schema
        queries.write(array, schema, sparse_cells(schema, 1, 10), 10, key=key)
        if key is None:
            change = tiledb.ArraySchemaEvolution()
            longer = tiledb.Enumeration("colours", True, values=["red", "green"]).extend(["blue"])
            change.extend_enumeration(longer)
            change.add_attribute(tiledb.Attr("later", dtype="uint16", fill=7))
            change.drop_attribute("list")
            change.timestamp(1_700_000_000_000)
            change.array_evolve(str(array))
            schema = arrays.view_of(array).schema
            queries.write(array, schema, sparse_cells(schema, 40, 3), 1_700_000_000_001)
            for at, values in ((20, {"n": 5, "t": "hé"}), (30, {"f": (1.5, 2.5)})):
                with tiledb.open(str(array), "w", timestamp=at) as handle:
                    handle.meta.update(values)
            with tiledb.open(str(array), "w", timestamp=40) as handle:
                del handle.meta["n"]
        told[name] = told_of(array, key=key)
    told["dense"] = make_dense(root / "dense")
    told["history"] = make_history(root / "history")
    told["update"] = make_update(root / "update")
    told["labels"] = make_labels(root / "labels")
    return told


def make_dense(root: Path) -> dict:
    schema = Schema(
        [Dim("x", "int32", (1, 20), 3), Dim("y", "int32", (1, 20), 4)],
        [Attr("a", "int16", nullable=True), Attr("u", "utf8"), Attr("rgb", "uint8", values_per_cell=3)],
        sparse=False, tile_order="col-major", current_domain={"x": (1, 8), "y": (1, 6)},
    )  # fmt: skip
    arrays.create(root, schema)
    rng = np.random.default_rng(5)
    for at, box, n in ((10, ((2, 7), (2, 6)), 30), (20, ((1, 3), (5, 6)), 6)):
        cells = {attr.name: arrays.cells_of(attr, n, rng) for attr in schema.attrs}
        queries.write(root, schema, cells, at, box=box)
    return told_of(root)


def consolidate(root: Path, mode: str, *, vacuum: bool = False, mark: str = "consolidation") -> None:
    tiledb.consolidate(str(root), config=tiledb.Config({f"sm.{mark}.mode": mode}))
    if vacuum:
        tiledb.vacuum(str(root), config=tiledb.Config({"sm.vacuum.mode": mode}))


def make_history(root: Path) -> dict:
    """Every kind of file in the folder of commits: .wrt .del .con .ign .vac, and .meta, and metadata's .vac."""
    schema = Schema([Dim("x", "int32", (1, 100), 10)], [Attr("a", "int32")], capacity=4)
    arrays.create(root, schema)

    def write(at: int, *places: int) -> None:
        queries.write(root, schema, {"x": i4(*places), "a": i4(*(at * 100 + place for place in places))}, at)

    write(10, 1, 2, 3, 4, 5)
    write(20, 4, 5, 6)
    with tiledb.open(str(root), "d", timestamp=30) as array:
        array.query(cond="a == 1002 or a > 2005").submit()
    consolidate(root, "commits", vacuum=True)
    write(40, 7, 8)
    consolidate(root, "fragments", vacuum=True)
    write(50, 1, 9)
    with tiledb.open(str(root), "d", timestamp=60) as array:
        array.query(cond="a in [4007, 1001]").submit()
    write(70, 10)
    consolidate(root, "fragments")
    write(80, 11)
    consolidate(root, "fragment_meta")
    for at in (15, 25):
        with tiledb.open(str(root), "w", timestamp=at) as array:
            array.meta["at"] = at
    consolidate(root, "array_meta")
    instants = [5, 10, 15, 20, 29, 30, 40, 49, 50, 59, 60, 70, 80]
    return told_of(root) | {
        "at": {
            str(at): queries.read(root, schema, ["x", "a"], timestamp=at)["a"].values.tolist()
            for at in instants
        }
    }


def make_update(root: Path) -> dict:
    """An .upd: libtiledb writes it, but does not apply it; the cells are those after it."""
    schema = Schema(
        [Dim("x", "int32", (1, 100), 10)], [Attr("a", "int32"), Attr("s", "ascii", nullable=True)]
    )
    arrays.create(root, schema)
    validity = np.array([True, True, False])
    cells = {"x": i4(1, 2, 3), "a": i4(10, 20, 30), "s": words_column([b"one", b"two", b""], validity)}
    queries.write(root, schema, cells, 10)
    told = told_of(root)
    value = np.int32(25).tobytes()
    condition = Combine(Combination.OR, (Compare(Op.GE, "a", value), Compare(Op.EQ, "s", b"one")))
    write_update(str(root), condition, {"s": b"new", "a": np.int32(99).tobytes()}, 20)
    new = {"a": np.int32(99).tobytes().hex(), "s": b"new".hex()}
    for name, cell in new.items():
        told["cells"][name] = [cell, told["cells"][name][1], cell]
    return told


def make_labels(root: Path) -> dict:
    dim = tiledb.Dim("x", domain=(1, 10), tile=5, dtype="int32")
    labels = {0: {"up": dim.create_label_schema(order="increasing", dtype=np.float64)}}
    schema = tiledb.ArraySchema(
        tiledb.Domain(dim), [tiledb.Attr("a", dtype="int32")], sparse=False, dim_labels=labels
    )
    tiledb.Array.create(str(root), schema)
    with tiledb.open(str(root), "w") as array:
        array[:] = {"a": np.arange(10, dtype=np.int32), "up": np.arange(10) / 4}
    return told_of(root)


def make_group(root: Path) -> dict:
    tiledb.Group.create(str(root))
    tiledb.Group.create(str(root / "inner"))
    arrays.create(root / "array", Schema([Dim("x", "int32", (1, 9))], [Attr("a", "int8")]))
    with tiledb.Group(str(root), "w") as group:
        group.add("inner", name="I", relative=True)
        group.add("array", name="A", relative=True)
        group.meta["note"] = "hello"
    with tiledb.Group(str(root), "w") as group:
        group.remove("I")
        group.add("inner", relative=True)
    return {"A": ["ARRAY", "array"], "inner": ["GROUP", "inner"]}


def make_versions(root: Path) -> dict:
    told = {}
    for version in range(7, 23):
        for kind in ("sparse", "dense"):
            array = root / f"v{version:02}-{kind}"
            attrs = [
                Attr("a b", "int32", nullable=True),
                Attr("t", "datetime_ms", filters=[BitWidthReduction()]),
            ]
            if kind == "sparse":
                attrs += [Attr("s", "ascii", filters=[Rle()] if version >= 12 else [Gzip()])]
                schema = Schema([Dim("x", "int32", (1, 99), 10)], attrs, capacity=3, version=version)
            else:
                schema = Schema([Dim("x", "int32", (1, 9), 4)], attrs[:1], sparse=False, version=version)
            folder = array if version < 10 else array / "__schema"
            folder.mkdir(parents=True)
            name = "__array_schema.tdb" if version < 10 else f"__1_1_{'0' * 32}"
            (folder / name).write_bytes(pack_generic_tile(schema.pack()))
            rng = np.random.default_rng(version)
            n = 5 if kind == "sparse" else 6
            cells = {attr.name: arrays.cells_of(attr, n, rng, extreme=False) for attr in schema.attrs}
            if kind == "sparse":
                cells["x"] = i4(9, 3, 50, 4, 7)
            queries.write(array, schema, cells, 10, box=None if kind == "sparse" else ((2, 7),))
            told[array.name] = told_of(array)
    return told


def main() -> None:
    for folder in ("tiles", "arrays"):
        shutil.rmtree(HERE / folder, ignore_errors=True)
        (HERE / folder).mkdir()
    scratch = HERE / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        told = {
            "written by": ".".join(map(str, tiledb.libtiledb.version())),
            # Streams of zlib differ between its implementations; this one tells whether ours is libtiledb's.
            "zlib": {
                "input": bytes(range(200)).hex(),
                "level": 1,
                "output": zlib.compress(bytes(range(200)), 1).hex(),
            },
            "tiles": make_tiles(scratch),
            "webp": make_webp(scratch / "webp"),
            "arrays": make_arrays(HERE / "arrays") | make_versions(HERE / "arrays"),
            "group": make_group(HERE / "arrays" / "group"),
        }
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    (HERE / "meaning.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
