"""Tiles that libtiledb wrote, read and written again: on what bytes mean, it is the judge.

Every array here has one tile, so that a data file is a tile.
"""

import numpy as np
import pytest

from terrazzo.format.chunks import cut_cells
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.filters.bit_width import BitWidthReduction
from terrazzo.format.filters.bitshuffle import BitShuffle
from terrazzo.format.filters.byteshuffle import ByteShuffle
from terrazzo.format.filters.checksum import Md5, Sha256
from terrazzo.format.filters.compress import Bzip2, Gzip, Lz4, Zstd
from terrazzo.format.filters.delta import Delta
from terrazzo.format.filters.dictionary import Dictionary
from terrazzo.format.filters.double_delta import DoubleDelta
from terrazzo.format.filters.noop import NoOp
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.filters.positive_delta import PositiveDelta
from terrazzo.format.filters.rle import Rle
from terrazzo.format.filters.scale_float import ScaleFloat
from terrazzo.format.filters.webp import ColourFormat, WebP
from terrazzo.format.filters.xor import Xor
from terrazzo.format.generic_tile import pack_generic_tile, unpack_generic_tile
from terrazzo.format.tile import PLACEHOLDER_OFFSETS, TileCodec, _chunks
from terrazzo.format.wire import Cursor

tiledb = pytest.importorskip("tiledb")

THEIRS = {
    NoOp: lambda f: tiledb.NoOpFilter(),
    Gzip: lambda f: tiledb.GzipFilter(f.level),
    Zstd: lambda f: tiledb.ZstdFilter(f.level),
    Lz4: lambda f: tiledb.LZ4Filter(f.level),
    Rle: lambda f: tiledb.RleFilter(f.level),
    Bzip2: lambda f: tiledb.Bzip2Filter(f.level),
    Md5: lambda f: tiledb.ChecksumMD5Filter(),
    Sha256: lambda f: tiledb.ChecksumSHA256Filter(),
    Dictionary: lambda f: tiledb.DictionaryFilter(),
    ByteShuffle: lambda f: tiledb.ByteShuffleFilter(),
    BitShuffle: lambda f: tiledb.BitShuffleFilter(),
    Xor: lambda f: tiledb.XORFilter(),
    BitWidthReduction: lambda f: tiledb.BitWidthReductionFilter(f.max_window),
    PositiveDelta: lambda f: tiledb.PositiveDeltaFilter(f.max_window),
    ScaleFloat: lambda f: tiledb.FloatScaleFilter(f.scale, f.offset, f.byte_width),
    Delta: lambda f: tiledb.DeltaFilter(f.level, reinterp_dtype=_theirs_type(f.reinterpret)),
    DoubleDelta: lambda f: tiledb.DoubleDeltaFilter(f.level, reinterp_dtype=_theirs_type(f.reinterpret)),
}


def _theirs_type(datatype):
    return None if datatype is None else datatype.dtype


def theirs(filters):
    return tiledb.FilterList([THEIRS[type(each)](each) for each in filters])


def data_file(path, name):
    (file,) = path.glob(f"__fragments/*/{name}")
    return file.read_bytes()


def schema_of(path):
    (file,) = [each for each in path.glob("__schema/*") if each.is_file()]
    return file


def write_fixed(path, values, filters, ctx=None):
    """One dense tile of `values`; its file."""
    n = len(values)
    dim = tiledb.Dim("i", domain=(0, n - 1), tile=n, dtype=np.int64)
    attr = tiledb.Attr("a", dtype=values.dtype, filters=theirs(filters))
    schema = tiledb.ArraySchema(tiledb.Domain(dim), [attr])
    tiledb.Array.create(str(path), schema, ctx=ctx)
    with tiledb.open(str(path), "w", ctx=ctx) as array:
        array[:] = values
    return data_file(path, "a0.tdb")


def write_cells(path, cells, dtype, filters, ctx=None):
    """One dense tile of variable-length cells; the files of offsets and of data."""
    n = len(cells)
    dim = tiledb.Dim("i", domain=(0, n - 1), tile=n, dtype=np.int64)
    attr = tiledb.Attr("a", dtype=dtype, var=True, filters=theirs(filters))
    schema = tiledb.ArraySchema(tiledb.Domain(dim), [attr])
    tiledb.Array.create(str(path), schema, ctx=ctx)
    values = np.empty(n, dtype=object)
    values[:] = cells
    with tiledb.open(str(path), "w", ctx=ctx) as array:
        array[:] = values
    return data_file(path, "a0.tdb"), data_file(path, "a0_var.tdb")


def joined_cells(cells):
    data = b"".join(cells)
    offsets = np.cumsum([0, *map(len, cells)][:-1], dtype=np.uint64)
    return data, offsets


def strings(sizes, seed=0):
    rng = np.random.default_rng(seed)
    return [bytes(rng.integers(97, 123, size, dtype=np.uint8)) for size in sizes]


INT32 = np.repeat(np.random.default_rng(1).integers(-50, 50, 9001), 7).astype(np.int32)

FIXED = [
    (),
    (NoOp(),),
    (Gzip(),),
    (Gzip(9),),
    (Zstd(),),
    (Zstd(5),),
    (Zstd(-3),),
    (Lz4(),),
    (Rle(),),
    (Bzip2(),),
    (Bzip2(9),),
    (Md5(),),
    (Sha256(),),
    (Md5(), Sha256(), Gzip(3), Md5()),
    (Rle(), Bzip2(2), Sha256(), Gzip()),
    (Sha256(), Zstd(), Md5(), Lz4()),
    (NoOp(), Rle(), Md5(), Gzip()),
]
ELEMENT_WISE = [
    (ByteShuffle(), Gzip()),
    (BitShuffle(), Bzip2()),
    (ByteShuffle(), BitWidthReduction(), Md5(), Lz4()),
    (DoubleDelta(), Gzip()),
    (Delta(), BitShuffle(), Gzip(), Sha256()),
    (Xor(), BitWidthReduction(), ByteShuffle(), Gzip()),
    (BitWidthReduction(), ByteShuffle(), Zstd(), Md5()),
    (Rle(), ByteShuffle(), Md5(), Bzip2()),
    (Delta(Datatype.UINT8), BitWidthReduction(), ByteShuffle(), Gzip()),
    (DoubleDelta(Datatype.INT16), ByteShuffle(), Gzip(), Md5()),
    (Sha256(), Xor(), Delta(), Gzip()),
]
NOT_REPRODUCED = (Zstd, Lz4)  # another release of the same library may choose other bytes


@pytest.mark.parametrize("filters", FIXED + ELEMENT_WISE, ids=str)
def test_a_fixed_tile_of_libtiledb_is_read_and_reproduced(tmp_path, filters):
    stored = write_fixed(tmp_path / "a", INT32, filters)
    codec = TileCodec(Pipeline(filters), Datatype.INT32, 4)

    assert codec.decode(stored, INT32.nbytes).tobytes() == INT32.tobytes()
    assert codec.decode(codec.encode(INT32), INT32.nbytes).tobytes() == INT32.tobytes()
    if not any(isinstance(each, NOT_REPRODUCED) for each in filters):
        assert codec.encode(INT32) == stored


@pytest.mark.parametrize(
    "filters",
    [
        (PositiveDelta(), BitWidthReduction(), ByteShuffle(), Gzip()),
        (PositiveDelta(100), Xor(), Md5(), Gzip()),
        (PositiveDelta(), Gzip(), Md5(), Sha256()),
    ],
    ids=str,
)
def test_a_rising_column_is_read_and_reproduced(tmp_path, filters):
    values = np.arange(0, 40_000, 2, dtype=np.uint64)
    codec = TileCodec(Pipeline(filters), Datatype.UINT64, 8)
    stored = write_fixed(tmp_path / "a", values, filters)

    assert codec.decode(stored, values.nbytes).tobytes() == values.tobytes()
    assert codec.encode(values) == stored


@pytest.mark.parametrize(
    "filters",
    [
        (ScaleFloat(0.5, 10.0, 2), BitWidthReduction(), ByteShuffle(), Gzip()),
        (ScaleFloat(0.25, 0.0, 4), Delta(), Md5(), Gzip()),
        (Xor(), BitShuffle(), Gzip()),
        (ScaleFloat(0.5, 0.0, 8), Rle(), Gzip()),
    ],
    ids=str,
)
def test_a_column_of_floats_is_read_and_reproduced(tmp_path, filters):
    values = np.repeat(np.arange(-5000, 5000) * 0.5, 3)
    codec = TileCodec(Pipeline(filters), Datatype.FLOAT64, 8)
    stored = write_fixed(tmp_path / "a", values, filters)

    assert codec.decode(stored, values.nbytes).tobytes() == values.tobytes()
    assert codec.encode(values) == stored


@pytest.mark.parametrize("cell_size", [1, 2, 3, 7, 24, 1000, 40000, 65536, 65537, 70001])
@pytest.mark.parametrize("size", [1, 65535, 65536, 65537, 200000])
def test_fixed_chunks_are_cut_where_libtiledb_cuts(tmp_path, cell_size, size):
    n = max(size // cell_size, 1)
    values = np.arange(n * cell_size, dtype=np.uint32).astype(np.uint8).view(f"S{cell_size}")
    stored = write_fixed(tmp_path / "a", values, ())

    assert TileCodec(Pipeline(), Datatype.CHAR, cell_size).encode(values.tobytes()) == stored
    assert len(cut_cells(n * cell_size, cell_size)) == Cursor(stored).u64()


def var_sizes():
    rng = np.random.default_rng(7)
    yield [65536]
    yield [65537]
    yield [65537, 0, 0]
    yield [65536, 1]
    yield [32768, 32769]
    yield [32769, 65536]
    yield [32768, 65537]
    yield [32769, 65537]
    yield [32769, 65537, 1]
    yield [65536, 0, 65536]
    yield [40000, 200000, 40000, 3]
    yield [60000, 60000, 60000]
    yield [0, 0, 70000, 0, 0]
    yield [1] * 70000
    yield [98304, 98305, 32768, 65536, 65537]
    for scale in (10, 3000, 30000, 50000, 70000, 100000):
        for _ in range(4):
            yield list(rng.integers(0, scale, min(400_000 // scale, 20_000)))


@pytest.mark.parametrize("sizes", list(var_sizes()), ids=lambda sizes: f"{len(sizes)}x{max(sizes)}")
def test_var_chunks_are_cut_where_libtiledb_cuts(tmp_path, sizes):
    cells = strings(sizes)
    _, stored = write_cells(tmp_path / "a", cells, "S0", ())
    data, offsets = joined_cells(cells)

    assert TileCodec(Pipeline(), Datatype.CHAR, 1, var=True).encode(data, offsets) == stored


def test_var_chunks_of_numbers_are_cut_where_libtiledb_cuts(tmp_path):
    rng = np.random.default_rng(3)
    cells = [rng.integers(0, 9, size).astype(np.int32) for size in rng.integers(0, 9000, 60)]
    _, stored = write_cells(tmp_path / "a", cells, np.int32, (Gzip(),))
    data, offsets = joined_cells([cell.tobytes() for cell in cells])
    codec = TileCodec(Pipeline((Gzip(),)), Datatype.INT32, 4, var=True)

    assert codec.encode(data, offsets) == stored
    assert codec.decode(stored, len(data)).tobytes() == data


EMPTY = [
    (),
    (Gzip(),),
    (Zstd(),),
    (Lz4(),),
    (Bzip2(),),
    (Rle(),),
    (Md5(),),
    (Sha256(), Md5()),
    (Md5(), Gzip()),
    (Rle(), Gzip(), Md5()),
    (ByteShuffle(),),
    (ByteShuffle(), Gzip()),
    (BitShuffle(), Gzip()),
    (Md5(), ByteShuffle(), Gzip()),
]


@pytest.mark.parametrize("filters", EMPTY, ids=str)
def test_a_tile_of_empty_cells_is_one_chunk_of_nothing_that_passes_the_filters(tmp_path, filters):
    _, stored = write_cells(tmp_path / "a", [b""] * 5, "S0", filters)
    codec = TileCodec(Pipeline(filters), Datatype.CHAR, 1, var=True)

    assert codec.decode(stored, 0).tobytes() == b""
    assert codec.encode(b"", np.zeros(5, np.uint64)) == stored


@pytest.mark.parametrize("filter_", [DoubleDelta(), Delta(), BitWidthReduction(), PositiveDelta()])
def test_a_tile_without_chunks_is_what_libtiledb_reads_as_empty_cells(tmp_path, filter_):
    # Its own writer divides by zero in some of these filters; a checksum stands in for them.
    _, stored = write_cells(tmp_path / "a", [np.array([], np.int32)] * 5, np.int32, (Md5(),))
    codec = TileCodec(Pipeline((filter_,)), Datatype.INT32, 4, var=True)
    ours = codec.encode(b"", np.zeros(5, np.uint64))
    (file,) = (tmp_path / "a").glob("__fragments/*/a0_var.tdb")
    (footer,) = (tmp_path / "a").glob("__fragments/*/__fragment_metadata.tdb")
    sizes = footer.read_bytes()
    old, new = (len(each).to_bytes(8, "little") for each in (stored, ours))
    file.write_bytes(ours)
    footer.write_bytes(sizes[:-700] + sizes[-700:].replace(old, new))

    assert ours == bytes(8)
    with tiledb.open(str(tmp_path / "a")) as array:
        assert [len(cell) for cell in array[:]["a"]] == [0] * 5


STRINGS = {
    "words": [b"HG", b"HG", b"HG", b"A", b"", b"", b"HG"],
    "empty": [b""] * 4,
    "one": [b"x"],
    "255 cells": [b"a", b"b", b"c"] * 85,
    "256 cells": [b"a", b"b", b"c", b"d"] * 64,
    "257 cells": [b"a"] * 257,
    "65535 cells": [b"ab", b"c", b""] * 21845,
    "65536 cells": [b"x", b"yz"] * 32768,
    "run of 255": [b"q"] * 255 + [b"r"],
    "run of 256": [b"q"] * 256 + [b"r"],
    "length 255": [b"l" * 255, b"m"],
    "length 256": [b"l" * 256, b"m"],
    "length 65536": [b"l" * 65536, b"m"],
    "large": [*strings(np.random.default_rng(5).integers(0, 60, 9000)), b""],
    "repeated": sorted(strings([3] * 2000) * 40),
}
STRING_FILTERS = [
    (Rle(),),
    (Dictionary(),),
    (Rle(), Gzip()),
    (Dictionary(), Gzip()),
    (Dictionary(), Md5(), Gzip(), Sha256()),
    (Rle(), Sha256(), Bzip2(), Zstd()),
]


@pytest.mark.parametrize("dtype", ["ascii", "U0"])
@pytest.mark.parametrize("filters", STRING_FILTERS, ids=str)
@pytest.mark.parametrize("name", STRINGS)
def test_strings_that_hold_their_offsets_are_read_and_reproduced(tmp_path, name, filters, dtype):
    cells = STRINGS[name]
    text = cells if dtype == "ascii" else [cell.decode() for cell in cells]
    offsets_tile, stored = write_cells(tmp_path / "a", text, dtype, filters)
    data, offsets = joined_cells(cells)
    datatype = Datatype.STRING_ASCII if dtype == "ascii" else Datatype.STRING_UTF8
    codec = TileCodec(Pipeline(filters), datatype, 1, var=True)
    content, found = codec.decode_strings(stored, len(data), len(cells))

    assert codec.holds_offsets
    assert offsets_tile == PLACEHOLDER_OFFSETS
    assert content.tobytes() == data
    assert found.tolist() == offsets.tolist()
    if not any(isinstance(each, NOT_REPRODUCED) for each in filters):
        assert codec.encode(data, offsets) == stored


def test_rle_of_var_bytes_and_numbers_keeps_the_offsets_apart(tmp_path):
    cells = [np.array([5, 5, 6], np.int16), np.array([6], np.int16)]
    offsets_tile, stored = write_cells(tmp_path / "a", cells, np.int16, (Rle(),))
    codec = TileCodec(Pipeline((Rle(),)), Datatype.INT16, 2, var=True)

    assert not codec.holds_offsets
    assert len(offsets_tile) > len(PLACEHOLDER_OFFSETS)
    assert codec.decode(stored, 8).view(np.int16).tolist() == [5, 5, 6, 6]
    assert codec.encode(np.array([5, 5, 6, 6], np.int16), np.array([0, 6], np.uint64)) == stored


def test_the_longest_string_last_is_where_we_part_from_libtiledb(tmp_path):
    cells = [b"short", b"x" * 300]
    data, offsets = joined_cells(cells)
    codec = TileCodec(Pipeline((Rle(),)), Datatype.STRING_ASCII, 1, var=True)
    _, stored = write_cells(tmp_path / "a", cells, "ascii", (Rle(),))

    assert codec.encode(data, offsets) != stored
    assert codec.decode_strings(codec.encode(data, offsets), len(data), 2)[1].tolist() == [0, 5]


KEY = b"0123456789abcdef0123456789ABCDEF"


def encrypted_context():
    return tiledb.Ctx({"sm.encryption_type": "AES_256_GCM", "sm.encryption_key": KEY.decode()})


def test_encrypted_tiles_and_generic_tiles_of_libtiledb_are_read(tmp_path):
    values = np.arange(50_000, dtype=np.int64)
    stored = write_fixed(tmp_path / "a", values, (Md5(), Gzip(1)), ctx=encrypted_context())
    cipher = Aes256Gcm(KEY, lambda: b"0" * 12)
    codec = TileCodec(Pipeline((Md5(), Gzip(1))), Datatype.INT64, 8, cipher=cipher)
    schema = schema_of(tmp_path / "a").read_bytes()

    assert codec.decode(stored, values.nbytes).tobytes() == values.tobytes()
    assert unpack_generic_tile(schema, cipher)[:4] == b"\x16\x00\x00\x00"


def test_a_schema_repacked_and_encrypted_by_us_opens_in_libtiledb(tmp_path):
    values = np.arange(100, dtype=np.int64)
    write_fixed(tmp_path / "a", values, (), ctx=encrypted_context())
    file = schema_of(tmp_path / "a")
    body = unpack_generic_tile(file.read_bytes(), Aes256Gcm(KEY, lambda: b"0" * 12))
    file.write_bytes(pack_generic_tile(body, Aes256Gcm(KEY, lambda: b"another one!")))

    with tiledb.open(str(tmp_path / "a"), ctx=encrypted_context()) as array:
        assert array[:]["a"].tolist() == values.tolist()


def test_an_encrypted_tile_of_ours_is_read_by_libtiledb(tmp_path):
    values = np.arange(50_000, dtype=np.int64)
    stored = write_fixed(tmp_path / "a", values, (Sha256(),), ctx=encrypted_context())
    cipher = Aes256Gcm(KEY, lambda: b"another one!")
    ours = TileCodec(Pipeline((Sha256(),)), Datatype.INT64, 8, cipher=cipher).encode(values[::-1])
    (file,) = (tmp_path / "a").glob("__fragments/*/a0.tdb")
    assert len(ours) == len(stored)
    file.write_bytes(ours)

    with tiledb.open(str(tmp_path / "a"), ctx=encrypted_context()) as array:
        assert array[:]["a"].tolist() == values[::-1].tolist()


def test_a_generic_tile_repacked_is_the_same_bytes(tmp_path):
    write_fixed(tmp_path / "a", np.arange(3), (Zstd(), Md5()))
    stored = schema_of(tmp_path / "a").read_bytes()

    assert pack_generic_tile(unpack_generic_tile(stored)) == stored


@pytest.mark.parametrize("lossless", [True, False])
@pytest.mark.parametrize("colours", list(ColourFormat)[1:])
def test_webp_tiles_decode_to_the_pixels_that_libtiledb_reads(tmp_path, colours, lossless):
    pytest.importorskip("PIL")
    channels = 4 if "A" in colours.name else 3
    height, width = 24, 16
    image = np.zeros((height, width * channels), np.uint8)
    image[::2, :] = 200
    image[:, ::channels] = 90
    if channels == 4:
        image[:, 3::4] = 255
    path = tmp_path / "a"
    dims = [
        tiledb.Dim("y", domain=(1, height), tile=height, dtype=np.uint32),
        tiledb.Dim("x", domain=(1, width * channels), tile=width * channels, dtype=np.uint32),
    ]
    formats = tiledb.filter.lt.WebpInputFormat
    theirs_filter = tiledb.WebpFilter(
        getattr(formats, f"WEBP_{colours.name}"), quality=100.0, lossless=lossless
    )
    attr = tiledb.Attr("a", dtype=np.uint8, filters=tiledb.FilterList([theirs_filter]))
    tiledb.Array.create(str(path), tiledb.ArraySchema(tiledb.Domain(*dims), [attr]))
    with tiledb.open(str(path), "w") as array:
        array[:] = image
    with tiledb.open(str(path)) as array:
        expected = array[:]["a"]
    stored = data_file(path, "a0.tdb")
    codec = TileCodec(Pipeline((WebP(100.0, colours, lossless, height, width),)), Datatype.UINT8, 1)
    found = codec.decode(stored, image.size).reshape(image.shape)

    assert len(_chunks(memoryview(stored), image.size)[0]) == 1
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= (0 if lossless else 3)
