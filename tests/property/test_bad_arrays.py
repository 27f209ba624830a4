"""Whole arrays with one file damaged: the right cells, or an error that names a file; never anything else."""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tiledb
from damage import SCALE, limited_memory, mutated
from frozen_store import FrozenStore
from specimens import CIPHER, ENUMERATIONS, cells_of, name_of

from terrazzo.engine import runner, snapshot
from terrazzo.engine.commit import commit_condition, commit_records, condition_record, put_fragment
from terrazzo.engine.dense import domain_box, read_box
from terrazzo.engine.encode import encode_sparse
from terrazzo.engine.plan import Request, plan_scan
from terrazzo.engine.region import everything
from terrazzo.engine.snapshot import take_snapshot
from terrazzo.engine.sparse import result_schema, run_scan, to_batch
from terrazzo.engine.tables import columns_of, table_of
from terrazzo.engine.view import View
from terrazzo.engine.window import Window
from terrazzo.engine.write import in_global_order, write_dense
from terrazzo.errors import CorruptionError, TerrazzoError
from terrazzo.format.attribute import Attr
from terrazzo.format.commits import Assignment, DeleteCommit, UpdateCommit
from terrazzo.format.condition import Compare, Op
from terrazzo.format.domain import Dim
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.filters.bit_width import BitWidthReduction
from terrazzo.format.filters.byteshuffle import ByteShuffle
from terrazzo.format.filters.checksum import Md5, Sha256
from terrazzo.format.filters.compress import Lz4, Zstd
from terrazzo.format.filters.dictionary import Dictionary
from terrazzo.format.filters.double_delta import DoubleDelta
from terrazzo.format.filters.rle import Rle
from terrazzo.format.fragment import Footer, Section, split_footer
from terrazzo.format.fragment_file import SectionMap
from terrazzo.format.generic_tile import pack_generic_tile, unpack_generic_tile
from terrazzo.format.keys import FRAGMENT_METADATA_FILE, CommitKind
from terrazzo.format.ledgers import WriteRecord, pack_ign, pack_vac
from terrazzo.format.schema import Schema
from terrazzo.format.sections import pack_u64s, unpack_u64s
from terrazzo.format.versions import WRITTEN
from terrazzo.format.wire import Cursor
from terrazzo.storage import open_store

N_CUTS, N_MUTATIONS = 50, 200
WINDOW = Window(0, 1 << 63)
ENUM_FILE = "__" + "ab" * 16 + "_0"


@dataclass(frozen=True, slots=True)
class Specimen:
    """A sound array. `verified`: every byte of its data files is covered by a checksum or a tag."""

    store: FrozenStore
    schema: Schema
    targets: tuple[str, ...]  # files of one fragment, and all that stand outside of fragments
    cipher: Aes256Gcm | None = None
    verified: bool = False

    def column_of(self, key: str) -> str | None:
        """The field that a data file belongs to; None of other files, which all columns depend on."""
        match = re.fullmatch(r"__fragments/.*/([ad])([0-9]+)(_var|_validity)?\.tdb", key)
        if match is None:
            return None
        return (self.schema.attrs if match[1] == "a" else self.schema.dims)[int(match[2])].name


def read(store: Any, cipher: Aes256Gcm | None, wanted: str | None = None) -> Any:
    """All cells, or one column of them, through snapshot, plan and tasks."""
    taken = take_snapshot(store, WINDOW, cipher)
    taken.require_sound()
    view, schema = View(store, taken, cipher), taken.schema
    names = tuple(field.name for field in (schema.fields if schema.sparse else schema.attrs))
    names = names if wanted is None else (wanted,)
    if schema.dense:
        box = domain_box(schema)
        if np.prod([float(high - low + 1) for low, high in box]) > 1 << 20:
            return None  # nobody asks for all of it
        return pa.Table.from_batches(
            [to_batch(read_box(view, box, names), schema, result_schema(names, schema))]
        )
    plan = plan_scan(view, Request(names, everything(schema)), 1 << 30)
    batches = [batch for task in plan.tasks for batch in run_scan(view, plan.request, task)]
    return pa.Table.from_batches(batches) if batches else None


def checksummed(*filters: Any) -> list[Any]:
    return [*filters, Sha256()]


def sparse_schema(*, verified: bool = False) -> Schema:
    closed: Callable[..., list[Any]] = checksummed if verified else lambda *filters: [*filters]
    return Schema(
        [
            Dim("x", "ascii", filters=closed(Rle(-1))),
            Dim("y", "int64", (-1000, 1000), 10, filters=closed(DoubleDelta(), Zstd())),
        ],
        [
            Attr("i", "int32", filters=closed(BitWidthReduction(), Lz4()), fill=7),
            Attr("u", "utf8", nullable=True, filters=closed(Dictionary(), Zstd())),
            Attr("f", "float64", nullable=True, filters=closed(ByteShuffle())),
            Attr("e", "uint8", enum="colours", filters=closed()),
            Attr("v", "int16", var=True, filters=closed()),
            Attr("c", "ascii", values_per_cell=3, filters=[Md5()] if verified else ()),
        ],
        enums={"colours": ENUMERATIONS[0]}, enum_files={"colours": ENUM_FILE}, capacity=10,
        coords_filters=closed(Zstd()), offsets_filters=closed(Zstd()), validity_filters=closed(Rle(-1)),
    )  # fmt: skip


def _created(root: Path, schema: Schema, cipher: Aes256Gcm | None = None) -> tuple[Any, str]:
    store, name = open_store(str(root)), str(name_of(1, None))
    store.put(f"__schema/{name}", pack_generic_tile(schema.pack(), cipher))
    for enum, file in schema.enum_files.items():
        store.put(f"__schema/__enumerations/{file}", pack_generic_tile(schema.enums[enum].pack(file), cipher))
    return store, name


def _sparse(root: Path, *, verified: bool = False, cipher: Aes256Gcm | None = None) -> None:
    """Two fragments in a `.con` with a delete, an update beside it, and every other ledger."""
    schema = sparse_schema(verified=verified)
    store, schema_name = _created(root, schema, cipher)
    names = []
    for time in (10, 20):
        ordered = in_global_order(cells_of(schema), schema)
        encoded = encode_sparse(name_of(time), schema, schema_name, ordered, cipher=cipher)
        put_fragment(store, encoded)
        names.append(encoded.fragment.name)
    delete = DeleteCommit.of(Compare(Op.LT, "i", (5).to_bytes(4, "little"))).pack()
    update = UpdateCommit.of(
        Compare(Op.EQ, "i", (9).to_bytes(4, "little")),
        (Assignment("c", b"new"), Assignment("u", "é".encode())),
    )
    record = condition_record(name_of(30), CommitKind.DELETE, delete, cipher)
    commit_records(store, [*map(WriteRecord, names), record])
    commit_condition(store, name_of(40), CommitKind.UPDATE, update.pack(), cipher)
    store.put(f"__commits/{name_of(50)}.ign", pack_ign([]) or f"__commits/{name_of(2)}.wrt\n".encode())
    store.put(f"__commits/{name_of(51)}.vac", pack_vac([f"__fragments/{name_of(2)}"]))


def _dense(root: Path) -> None:
    schema = Schema(
        [Dim("x", "int32", (1, 20), 5), Dim("y", "int32", (1, 12), 4)],
        [Attr("a", "float32", filters=[ByteShuffle(), Zstd()], fill=-1), Attr("b", "utf8", nullable=True)],
        sparse=False, tile_order="col-major",
    )  # fmt: skip
    store, schema_name = _created(root, schema)
    for time, box in ((10, ((3, 14), (2, 9))), (20, ((5, 20), (4, 12)))):
        n = int(np.prod([high - low + 1 for low, high in box]))
        data = {"a": np.arange(n, dtype=np.float32) + time,
                "b": [None if i % 5 == 0 else "t" * (i % 3) for i in range(n)]}  # fmt: skip
        write_dense(
            store, schema, schema_name, columns_of(table_of(data), schema, ["a", "b"]), box, time, None
        )


def _consolidated(root: Path) -> None:
    """Written, deleted from and consolidated by libtiledb, with times and delete metadata in the fragment."""
    domain = tiledb.Domain(tiledb.Dim("x", domain=(0, 999), tile=10, dtype=np.int32))
    attrs = [tiledb.Attr("a", dtype=np.int64), tiledb.Attr("s", dtype="ascii", var=True)]
    schema = tiledb.ArraySchema(domain=domain, attrs=attrs, sparse=True, capacity=20)
    tiledb.Array.create(str(root), schema)
    for time in (10, 20, 30):
        with tiledb.open(str(root), "w", timestamp=time) as array:
            places = np.arange(25) * time // 10
            array[places] = {"a": places * 10, "s": np.array([f"s{i}" for i in places], dtype="O")}
        with tiledb.open(str(root), "d", timestamp=time + 5) as array:
            array.query(cond=f"a == {time * 5}").submit()
    for mode in ("fragments", "fragment_meta", "commits"):
        settings = {"sm.consolidation.mode": mode, "sm.consolidation.with_delete_meta": "true"}
        tiledb.consolidate(str(root), config=tiledb.Config(settings))
        if mode == "fragments":  # a later one, so that there are footers to consolidate
            with tiledb.open(str(root), "w", timestamp=50) as array:
                array[np.arange(900, 905)] = {"a": np.arange(5), "s": np.array(["t"] * 5, dtype="O")}


MAKERS: dict[str, Callable[[Path], None]] = {
    "sparse": _sparse,
    "dense": _dense,
    "consolidated": _consolidated,
    "checksummed": lambda root: _sparse(root, verified=True),
    "encrypted": lambda root: _sparse(root, cipher=CIPHER),
}


@cache
def specimen(name: str) -> Specimen:
    with TemporaryDirectory() as folder:
        root = Path(folder) / "array"
        MAKERS[name](root)
        store = FrozenStore.of_folder(root)
    cipher = CIPHER if name == "encrypted" else None
    taken = take_snapshot(store, WINDOW, cipher)
    chosen = max(taken.fragments, key=lambda each: (each.has_timestamps, each.order)).key
    targets = [
        key for key, stored in store.files.items() if stored and ("__fragments" not in key or chosen in key)
    ]
    assert read(store, cipher).num_rows > 20
    return Specimen(store, taken.schema, tuple(targets), cipher, name in {"checksummed", "encrypted"})


def damages(name: str, sound: Specimen, key: str) -> Iterator[bytes]:
    """The file cut, and mutated; what is compressed mostly behind the compression."""
    stored = sound.store.files[key]
    chance = random.Random(f"{name} {key.rpartition('/')[2][-12:]}")
    for _ in range(max(1, int(N_CUTS * SCALE))):
        yield stored[: chance.randrange(len(stored))]
    for turn in range(max(1, int(N_MUTATIONS * SCALE))):
        if turn % 4 and key.endswith(FRAGMENT_METADATA_FILE):
            yield _section_damaged(stored, sound, chance)
        elif turn % 4 and (key.startswith("__schema") or key.endswith((".del", ".upd", ".meta"))):
            yield pack_generic_tile(mutated(unpack_generic_tile(stored, sound.cipher), chance), sound.cipher)
        else:
            yield mutated(stored, chance)


def _section_damaged(stored: bytes, sound: Specimen, chance: random.Random) -> bytes:
    footer = Footer.unpack(split_footer(stored, WRITTEN, None), sound.schema)
    start = chance.choice([start for group in footer.offsets.values() for start in group])
    body = unpack_generic_tile(Cursor(stored[start:]), sound.cipher)
    return replaced(stored, sound, start, mutated(body, chance))


def replaced(stored: bytes, sound: Specimen, chosen: int, body: bytes) -> bytes:
    """A metadata file with another section where one began, and the others found where they now are."""
    schema = sound.schema
    packed = split_footer(stored, WRITTEN, None)
    footer = Footer.unpack(packed, schema)
    starts = sorted({start for group in footer.offsets.values() for start in group})
    ends = [*starts[1:], len(stored) - len(packed) - 8]
    moved: dict[int, int] = {}
    pieces, position = [], 0
    for start, end in zip(starts, ends, strict=True):
        piece, moved[start] = stored[start:end], position
        if start == chosen:
            piece = pack_generic_tile(body, sound.cipher)
        pieces.append(piece)
        position += len(piece)
    offsets = {section: tuple(map(moved.__getitem__, group)) for section, group in footer.offsets.items()}
    closing = replace(footer, offsets=offsets).pack(schema)
    return b"".join([*pieces, closing, len(closing).to_bytes(8, "little")])


def outcome(sound: Specimen, key: str, stored: bytes, column: str | None) -> Any:
    """Cells, or the error, which must tell what it is about."""
    try:
        return read(sound.store.damaged(key, stored), sound.cipher, column)
    except TerrazzoError as error:
        return error
    except Exception as error:
        raise AssertionError(
            f"{type(error).__name__}: {error}; {key} is bytes.fromhex({stored.hex()!r})"
        ) from error


def names_a_place(error: TerrazzoError) -> bool:
    """A file of the array, or, once cells are out of their files, a column."""
    return "__" in str(error) or "column '" in str(error)


@pytest.fixture(autouse=True)
def _on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files this small take longer to hand to a thread than to decode."""
    monkeypatch.setattr(runner, "cpu_count", lambda: 1)
    monkeypatch.setattr(snapshot, "parallel", lambda work, items: [work(item) for item in items])


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("name", MAKERS)
def test_with_one_file_damaged_an_array_is_read_or_the_error_names_a_file(name: str, half: int) -> None:
    sound = specimen(name)

    with limited_memory():
        for key in sound.targets[half::2]:
            column = sound.column_of(key)
            cells = read(sound.store, sound.cipher, column)
            for damaged in damages(name, sound, key):
                found = outcome(sound, key, damaged, column)

                assert not isinstance(found, TerrazzoError) or names_a_place(found), f"{key}: {found}"
                if sound.verified and column is not None:
                    assert isinstance(found, TerrazzoError) or found.equals(cells), f"{key}: {damaged.hex()}"


def changed(sound: Specimen, key: str, change: Callable[[bytes], bytes]) -> FrozenStore:
    """The array with the body of one file, a generic tile, changed."""
    body = unpack_generic_tile(sound.store.files[key], sound.cipher)
    return sound.store.damaged(key, pack_generic_tile(change(body), sound.cipher))


def only(sound: Specimen, ending: str) -> str:
    (key,) = [key for key in sound.store.files if key.endswith(ending)]
    return key


def test_an_update_that_tests_a_field_which_never_was_names_its_commit() -> None:
    sound = specimen("sparse")
    update = UpdateCommit.of(Compare(Op.EQ, "nobody", b"1234"), (Assignment("c", b"new"),))
    key = only(sound, ".upd")

    with pytest.raises(CorruptionError, match="nobody") as caught:
        read(changed(sound, key, lambda _: update.pack()), None)

    assert caught.value.key == key


def test_an_update_of_another_size_names_its_commit() -> None:
    sound = specimen("sparse")
    update = UpdateCommit.of(Compare(Op.EQ, "i", (9).to_bytes(4, "little")), (Assignment("c", b"four"),))
    key = only(sound, ".upd")

    with pytest.raises(CorruptionError, match="assigns 4 bytes") as caught:
        read(changed(sound, key, lambda _: update.pack()), None)

    assert caught.value.key == key


def test_an_enumeration_under_another_name_is_damage_of_its_file() -> None:
    sound = specimen("sparse")
    key = only(sound, ENUM_FILE)

    with pytest.raises(CorruptionError, match="holds enumeration 'colourz'") as caught:
        read(changed(sound, key, lambda body: body.replace(b"colours", b"colourz")), None)

    assert str(caught.value.key).endswith(key)


@pytest.mark.parametrize("name", ["sparse", "encrypted"])
def test_strings_that_claim_gigabytes_make_no_room(name: str) -> None:
    sound = specimen(name)
    (key,) = [key for key in sound.targets if key.endswith(FRAGMENT_METADATA_FILE)]
    footer = take_snapshot(sound.store, WINDOW, sound.cipher).fragments[-1].footer
    stored = sound.store.files[key]
    for slot, field in [(1, "u"), (footer.slots.dim(0), "x")]:
        start, size = SectionMap(footer, None).span(Section.VAR_SIZES, slot)
        sizes = unpack_u64s(unpack_generic_tile(stored[start : start + size], sound.cipher)).copy()
        sizes[1] = 0xFF00_0000
        damaged = replaced(stored, sound, start, pack_u64s(sizes))

        with limited_memory(1 << 30), pytest.raises(CorruptionError, match="cannot hold"):
            read(sound.store.damaged(key, damaged), sound.cipher, field)


def test_a_damaged_footer_beside_its_fragment_is_passed_over() -> None:
    sound = specimen("consolidated")
    key = only(sound, ".meta")

    damaged = changed(sound, key, lambda body: body[:-20])

    assert read(damaged, None).equals(read(sound.store, None))


def test_values_cut_in_the_middle_are_damage_of_their_file() -> None:
    sound = specimen("consolidated")
    (key,) = [key for key in sound.store.files if key.startswith("__schema/__")]
    s = b"\1\0\0\0s"

    with pytest.raises(CorruptionError, match="no whole values of 4 bytes") as caught:
        read(changed(sound, key, lambda body: body.replace(s + b"\x0b", s + b"\x00")), None)

    assert str(caught.value.key).endswith((".tdb", "_var.tdb"))


def test_cells_that_libtiledb_deleted_and_consolidated_stay_deleted() -> None:
    """The list of conditions that it accounted for stands last in the metadata file, before the footer."""
    cells = read(specimen("consolidated").store, None)

    assert {50, 100, 150}.isdisjoint(cells["a"].to_pylist())
