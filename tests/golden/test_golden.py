"""Files that libtiledb wrote (see make.py) mean what they meant when they were written, and are packed to the
same bytes again. Nothing here needs libtiledb."""

import json
import zlib
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from terrazzo.engine.columns import Column
from terrazzo.engine.dense import domain_box, read_box
from terrazzo.engine.fragments import Sections
from terrazzo.engine.plan import Request, plan_scan
from terrazzo.engine.region import everything
from terrazzo.engine.snapshot import take_snapshot
from terrazzo.engine.sparse import joined, ordered, scan_columns
from terrazzo.engine.view import View
from terrazzo.engine.window import Window
from terrazzo.format.commits import Assignment, Commit, DeleteCommit, UpdateCommit
from terrazzo.format.condition import Combination, Combine, Compare, Op
from terrazzo.format.datatypes import Datatype
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.filters.base import FilterCode
from terrazzo.format.filters.pipeline import FILTERS, Pipeline
from terrazzo.format.fragment import Section
from terrazzo.format.fragment_file import SlotMetadata, pack_metadata_file
from terrazzo.format.generic_tile import pack_generic_tile, unpack_generic_tile
from terrazzo.format.group import GroupDetails, live_members
from terrazzo.format.keys import CommitKind, TimestampedName
from terrazzo.format.ledgers import (
    ConsolidatedFooters,
    DeleteRecord,
    WriteRecord,
    pack_con,
    pack_ign,
    pack_vac,
    unpack_con,
    unpack_ign,
    unpack_vac,
)
from terrazzo.format.metadata import Metadata, values
from terrazzo.format.schema import Schema
from terrazzo.format.sections import unpack_conditions, unpack_u64s
from terrazzo.format.tile import PLACEHOLDER_OFFSETS, TileCodec
from terrazzo.format.wire import Cursor
from terrazzo.storage import open_store

HERE = Path(__file__).parent
ARRAYS = HERE / "arrays"
MEANING = json.loads((HERE / "meaning.json").read_text())
EVER = Window(0, (1 << 63) - 1)
VERSIONED = [name for name in MEANING["arrays"] if name.startswith("v")]

_probe = MEANING["zlib"]
SAME_ZLIB = zlib.compress(bytes.fromhex(_probe["input"]), _probe["level"]).hex() == _probe["output"]
# Other releases of these compress to other bytes.
UNSTABLE = {FilterCode.ZSTD, FilterCode.LZ4} | (set() if SAME_ZLIB else {FilterCode.GZIP})


def cipher_of(key: str | None) -> Aes256Gcm | None:
    return None if key is None else Aes256Gcm(key.encode(), lambda: bytes(12))


def assert_repacked(body: bytes, stored: bytes) -> None:
    """`body` is what a file holds, and its envelope is the one stored."""
    assert body == unpack_generic_tile(stored)
    if SAME_ZLIB:
        assert pack_generic_tile(body) == stored


# -- tiles -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MEANING["tiles"])
def test_a_tile_of_every_filter(name: str) -> None:
    told = MEANING["tiles"][name]
    stored = (HERE / "tiles" / f"{name}.tdb").read_bytes()
    data = bytes.fromhex(told["data"])
    datatype = Datatype[told["datatype"]]
    pipeline = Pipeline.unpack(Cursor(bytes.fromhex(told["pipeline"])), 22)
    codec = TileCodec(
        pipeline, datatype, datatype.size, var=told["offsets"] is not None, cipher=cipher_of(told["key"])
    )

    assert [str(each) for each in pipeline.filters] == told["filters"]
    if told["offsets"] is None:
        assert codec.decode(stored, len(data)).tobytes() == data
        again = codec.encode(np.frombuffer(data, np.uint8))
    else:
        offsets = np.array(told["offsets"], np.uint64)
        stored_offsets = (HERE / "tiles" / f"{name}_offsets.tdb").read_bytes()
        if codec.holds_offsets:
            content, found = codec.decode_strings(stored, len(data), len(offsets))
            assert stored_offsets == PLACEHOLDER_OFFSETS
            assert found.tolist() == told["offsets"]
        else:
            content = codec.decode(stored, len(data))
            unfiltered = TileCodec(Pipeline(), Datatype.UINT64, 8)
            assert (
                unfiltered.decode(stored_offsets, 8 * len(offsets)).view(np.uint64).tolist()
                == told["offsets"]
            )
            assert unfiltered.encode(offsets) == stored_offsets
        assert content.tobytes() == data
        again = codec.encode(np.frombuffer(data, np.uint8), offsets)
    if told["key"] is None and not {each.code for each in pipeline.filters} & UNSTABLE:
        assert again == stored
    assert len(again) == len(stored) or {each.code for each in pipeline.filters} & UNSTABLE


def test_a_tile_of_webp() -> None:
    pytest.importorskip("PIL")
    told = MEANING["webp"]
    data = bytes.fromhex(told["data"])
    codec = TileCodec(Pipeline.unpack(Cursor(bytes.fromhex(told["pipeline"])), 22), Datatype.UINT8, 1)

    assert codec.decode((HERE / "tiles" / "webp.tdb").read_bytes(), len(data)).tobytes() == data


def test_every_filter_has_a_tile() -> None:
    pipelines = [told["pipeline"] for told in (*MEANING["tiles"].values(), MEANING["webp"])]
    seen = {
        each.code
        for stored in pipelines
        for each in Pipeline.unpack(Cursor(bytes.fromhex(stored)), 22).filters
    }

    assert seen == set(FILTERS)
    assert MEANING["tiles"]["encrypted"]["key"] is not None


# -- whole arrays ----------------------------------------------------------------------------------------


@cache
def view_of(name: str, at: int | None = None) -> View:
    store, cipher = open_store(str(ARRAYS / name)), cipher_of(MEANING["arrays"].get(name, {}).get("key"))
    window = EVER if at is None else Window(0, at)
    return View(store, take_snapshot(store, window, cipher), cipher)


def read(view: View) -> dict[str, Column]:
    schema = view.schema
    if schema.dense:
        return read_box(view, domain_box(schema), [attr.name for attr in schema.attrs])
    names = tuple(field.name for field in schema.fields)
    plan = plan_scan(view, Request(names, everything(schema)), 1 << 30)
    batches = [batch for task in plan.tasks for batch in scan_columns(view, plan.request, task)]
    if not batches:
        return {}
    cells = ordered(joined(batches), schema, "row-major")
    return {name: cells[name] for name in names}


def in_hex(column: Column) -> list[str | None]:
    data = np.ascontiguousarray(column.values).tobytes()
    edges = column.offsets
    if edges is None:
        edges = np.linspace(0, len(data), len(column) + 1).astype(np.int64)
    cells = [data[a:b].hex() for a, b in pairwise(edges.tolist())]
    if column.validity is None:
        return list(cells)
    return [cell if valid else None for cell, valid in zip(cells, column.validity.tolist(), strict=True)]


@pytest.mark.parametrize("name", MEANING["arrays"])
def test_every_cell_of_every_array(name: str) -> None:
    found = read(view_of(name))

    assert {field: in_hex(column) for field, column in found.items()} == MEANING["arrays"][name]["cells"]


@pytest.mark.parametrize("name", MEANING["arrays"])
def test_what_libtiledb_said_of_the_fragments(name: str) -> None:
    view = view_of(name)
    told = {each["name"]: each for each in MEANING["arrays"][name]["fragments"]}

    assert [str(fragment.name) for fragment in view.snapshot.fragments] == list(told)
    for fragment in view.snapshot.fragments:
        fact = told[str(fragment.name)]
        reader = view.reader(fragment)
        domain = [
            [end.hex() if isinstance(end, bytes) else end for end in ends] for ends in fragment.footer.domain
        ]
        assert (fragment.version, fragment.footer.dense, reader.n_cells) == (
            fact["version"],
            fact["dense"],
            fact["cells"],
        )
        assert domain == fact["domain"]
        boxes = reader.sections.rtree.leaves.columns
        rows = [
            [
                [end.hex() if isinstance(end, bytes) else end for end in (low[tile], high[tile])]
                for low, high in boxes
            ]
            for tile in range(len(reader.sections.rtree.leaves))
        ]
        assert rows == fact["boxes"]


def test_every_format_version_from_7_on_is_there() -> None:
    versions = {view_of(name).snapshot.fragments[0].version for name in VERSIONED}

    assert versions == set(range(7, 23))
    assert {(ARRAYS / name / "__fragments").exists() for name in VERSIONED if name < "v12"} == {False}


def test_the_past_of_an_array() -> None:
    for at, expected in MEANING["arrays"]["history"]["at"].items():
        found = read(view_of("history", int(at)))

        assert (found["a"].values.tolist() if found else []) == expected, at


# -- each kind of file -----------------------------------------------------------------------------------


def files(pattern: str) -> list[Path]:
    found = sorted(path for path in ARRAYS.glob(pattern) if path.is_file())
    assert found
    return found


def test_schemas() -> None:
    for path in [
        *files("*/__schema/__*"),
        *files("*/__array_schema.tdb"),
        *files("labels/__labels/*/__schema/__*"),
    ]:
        if path.relative_to(ARRAYS).parts[0] == "encrypted":
            continue  # its envelope has a nonce
        stored = path.read_bytes()
        assert_repacked(Schema.unpack(unpack_generic_tile(stored)).pack(), stored)


def test_the_schema_of_the_sparse_array() -> None:
    first, second = (
        Schema.unpack(unpack_generic_tile(path.read_bytes()))
        for path in sorted(
            files("sparse/__schema/__*"), key=lambda path: TimestampedName.parse(path.name).order
        )[::-1]
    )  # the evolved one has an earlier time

    assert [
        (attr.name, attr.datatype.name, attr.is_var, attr.nullable, attr.enum) for attr in first.attrs
    ] == [
        ("a", "INT64", False, False, None),
        ("text", "STRING_UTF8", True, True, None),
        ("list", "FLOAT32", True, False, None),
        ("colour", "INT8", False, False, "colours"),
    ]
    assert [attr.name for attr in second.attrs] == ["a", "text", "colour", "later"]
    assert [(dim.name, dim.datatype.name, dim.domain, dim.tile) for dim in first.dims] == [
        ("x", "INT32", (1, 100), 10),
        ("s", "STRING_ASCII", None, None),
    ]
    assert (first.capacity, first.version, first.sparse) == (4, 22, True)


def test_enumerations() -> None:
    labels = set()
    for path in files("sparse/__schema/__enumerations/*"):
        stored = path.read_bytes()
        enum, own_name = Enumeration.unpack(unpack_generic_tile(stored))
        labels.add((enum.name, enum.ordered, tuple(enum.values.to_pylist())))
        assert own_name == path.name
        assert_repacked(enum.pack(own_name), stored)

    assert labels == {("colours", True, ("red", "green")), ("colours", True, ("red", "green", "blue"))}


def test_fragment_metadata_is_put_together_again_from_its_parts() -> None:
    n_files = 0
    for name in MEANING["arrays"]:
        view = view_of(name)
        for fragment in view.snapshot.fragments:
            if fragment.version != 22 or view.cipher is not None:
                continue
            schema = view.snapshot.schema_of(fragment)
            stored = (ARRAYS / name / fragment.key / "__fragment_metadata.tdb").read_bytes()
            sections = Sections(view.store, fragment, schema, None)
            slots = [
                SlotMetadata(
                    *(unpack_u64s(sections.body(section, slot)) for section in list(Section)[1:5]),
                    *(sections.body(section, slot) for section in list(Section)[5:9]),
                    sections.statistics[slot],
                )
                for slot in range(fragment.footer.slots.count)
            ]
            tree = None if fragment.footer.dense else sections.rtree
            markers = unpack_conditions(sections.body(Section.PROCESSED_CONDITIONS))
            again, footer = pack_metadata_file(fragment.footer, schema, tree, slots, markers)
            n_files += 1
            assert not SAME_ZLIB or again == stored
            size = int.from_bytes(stored[-8:], "little")
            assert not SAME_ZLIB or footer == stored[-8 - size : -8]
            assert len(footer) == size

    assert n_files >= 8


def test_deletes() -> None:
    (path,) = files("history/__commits/*.del")
    stored = path.read_bytes()
    commit = DeleteCommit.unpack(unpack_generic_tile(stored))
    members = tuple(np.int32(value).tobytes() for value in (4007, 1001))

    assert commit.matches == Compare(Op.IN, "a", members=members)
    assert_repacked(DeleteCommit.of(commit.matches).pack(), stored)
    assert Commit.parse(f"__commits/{path.name}").name.start_ms == 60


def test_updates() -> None:
    (path,) = files("update/__commits/*.upd")
    stored = path.read_bytes()
    update = UpdateCommit.unpack(unpack_generic_tile(stored))

    assert update.matches == Combine(
        Combination.OR, (Compare(Op.GE, "a", np.int32(25).tobytes()), Compare(Op.EQ, "s", b"one"))
    )
    assert update.assignments == (Assignment("s", b"new"), Assignment("a", np.int32(99).tobytes()))
    assert_repacked(update.pack(), stored)


def test_writes_are_empty_files() -> None:
    for path in files("*/__commits/*.wrt") + files("v0*/*.ok"):
        assert path.stat().st_size == 0
        assert Commit.parse(path.name if path.suffix == ".ok" else f"__commits/{path.name}") is not None


def test_consolidated_commits_with_a_delete_inside() -> None:
    (path,) = files("history/__commits/*.con")
    records = unpack_con(path.read_bytes())
    (delete,) = [record for record in records if isinstance(record, DeleteRecord)]

    assert sorted(record.name.start_ms for record in records if isinstance(record, WriteRecord)) == [10, 20]
    assert DeleteCommit.unpack(unpack_generic_tile(delete.payload)).matches == Combine(
        Combination.OR,
        (Compare(Op.EQ, "a", np.int32(1002).tobytes()), Compare(Op.GT, "a", np.int32(2005).tobytes())),
    )
    assert pack_con(records) == path.read_bytes()


def test_ignored_commits() -> None:
    (path,) = files("history/__commits/*.ign")
    commits = unpack_ign(path.read_bytes())

    assert sorted((commit.kind, commit.name.start_ms) for commit in commits) == [
        (CommitKind.WRITE, 10),
        (CommitKind.WRITE, 20),
    ]
    assert pack_ign(commits) == path.read_bytes()


def test_vacuum_files() -> None:
    (fragments,) = files("history/__commits/*.vac")
    (metadata,) = files("history/__meta/*.vac")
    names = {path: [TimestampedName.parse(key.rpartition("/")[2]) for key in unpack_vac(path.read_bytes())]
             for path in (fragments, metadata)}  # fmt: skip

    assert sorted((name.start_ms, name.end_ms) for name in names[fragments]) == [(10, 40), (50, 50), (70, 70)]
    assert sorted((name.start_ms, name.end_ms) for name in names[metadata]) == [(15, 15), (25, 25)]
    for path in names:
        assert pack_vac(unpack_vac(path.read_bytes())) == path.read_bytes()


def test_consolidated_footers() -> None:
    (path,) = files("history/__fragment_meta/*.meta")
    stored = path.read_bytes()
    footers = ConsolidatedFooters.unpack(unpack_generic_tile(stored))

    assert sorted(TimestampedName.parse(name).start_ms for name in footers.footers) == [10, 80]
    assert_repacked(footers.pack(), stored)
    for name, footer in footers.footers.items():
        own = (ARRAYS / "history" / "__fragments" / name / "__fragment_metadata.tdb").read_bytes()
        size = int.from_bytes(own[-8:], "little")
        assert footer == own[-8 - size : -8]


def test_array_metadata_with_a_tombstone() -> None:
    entries: dict = {}
    for path in files("sparse/__meta/*"):
        stored = path.read_bytes()
        metadata = Metadata.unpack(unpack_generic_tile(stored))
        entries |= metadata.entries
        assert_repacked(metadata.pack(), stored)

    assert values({key: entry for key, entry in entries.items() if entry is not None}) == {
        "t": "hé",
        "f": (1.5, 2.5),
    }
    assert entries["n"] is None


def test_a_group() -> None:
    details = []
    for path in sorted(files("group/__group/*"), key=lambda path: TimestampedName.parse(path.name).order):
        stored = path.read_bytes()
        details.append(GroupDetails.unpack(unpack_generic_tile(stored)))
        assert_repacked(details[-1].pack(), stored)
    live = live_members(details)
    (note,) = files("group/__meta/*")

    assert {name: [member.kind.name, member.uri] for name, member in live.items()} == MEANING["group"]
    assert all(member.relative for member in live.values())
    assert values(Metadata.unpack(unpack_generic_tile(note.read_bytes())).entries) == {"note": "hello"}


def test_labels_are_arrays_of_their_own() -> None:
    schema = view_of("labels").schema
    (label,) = schema.labels
    store = open_store(str(ARRAYS / "labels" / label.uri))
    nested = View(store, take_snapshot(store, EVER, None), None)

    assert (label.name, label.order.name, label.datatype.name) == ("up", "INCREASING", "FLOAT64")
    assert read(nested)["label"].values.tolist() == [number / 4 for number in range(10)]


def test_nothing_of_an_array_was_left_out() -> None:
    """Every kind of file there is stands in one of the arrays."""
    suffixes = {path.suffix for path in ARRAYS.rglob("*") if path.is_file() and not path.name.endswith("_22")}

    assert {".wrt", ".del", ".upd", ".con", ".ign", ".vac", ".meta", ".ok", ".tdb"} <= suffixes
    assert {path.name for path in files("history/__fragments/*/*.tdb")} >= {"t.tdb", "dt.tdb", "dci.tdb"}
