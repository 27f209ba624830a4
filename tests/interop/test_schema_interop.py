"""Schemas and the small files around them, beside libtiledb: read what it wrote and pack it to the same
bytes; write our own and let it open them."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tiledb

from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.base import FilterCode
from terrazzo.format.filters.compress import Gzip, Zstd
from terrazzo.format.generic_tile import pack_generic_tile, unpack_generic_tile
from terrazzo.format.keys import ENUMERATION_FOLDER, SCHEMA_FOLDER, enumeration_name, unique_hex
from terrazzo.format.orders import DataOrder, Layout
from terrazzo.format.schema import Schema

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DATES = [
    f"datetime64[{unit}]" for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
]
TIMES = [f"timedelta64[{unit}]" for unit in ("h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")]
UNITS = [*DATES, *TIMES]


def x(name: str = "x", **options: object) -> tiledb.Dim:
    return tiledb.Dim(name, **{"domain": (1, 100), "tile": 10, "dtype": "int32", **options})


def a(name: str = "a", **options: object) -> tiledb.Attr:
    return tiledb.Attr(name, **{"dtype": "int32", **options})


def sparse(*dims: tiledb.Dim, attrs: tuple = (), **options: object) -> tiledb.ArraySchema:
    return tiledb.ArraySchema(tiledb.Domain(*(dims or (x(),))), attrs or (a(),), sparse=True, **options)


def dense(*dims: tiledb.Dim, attrs: tuple = (), **options: object) -> tiledb.ArraySchema:
    return tiledb.ArraySchema(tiledb.Domain(*(dims or (x(),))), attrs or (a(),), sparse=False, **options)


def schema_files(root: Path) -> list[Path]:
    return sorted(path for path in (root / SCHEMA_FOLDER).iterdir() if path.is_file())


def read(root: Path) -> Schema:
    """The newest schema, enumerations attached, after checking that every file packs to the same bytes."""
    files = {}
    for path in (root / ENUMERATION_FOLDER).glob("*"):
        stored = path.read_bytes()
        enum, own_name = Enumeration.unpack(unpack_generic_tile(stored))
        assert own_name == path.name
        assert pack_generic_tile(enum.pack(own_name)) == stored
        files[path.name] = enum
    for path in schema_files(root):
        stored = path.read_bytes()
        schema = Schema.unpack(unpack_generic_tile(stored))
        assert pack_generic_tile(schema.pack()) == stored
    return dataclasses.replace(schema, enums={name: files[file] for name, file in schema.enum_files.items()})


def created(root: Path, schema: tiledb.ArraySchema) -> Schema:
    tiledb.Array.create(str(root), schema)
    ours = read(root)
    assert_same(ours, tiledb.ArraySchema.load(str(root)))
    return ours


def assert_same(ours: Schema, theirs: tiledb.ArraySchema) -> None:
    assert (ours.sparse, ours.version) == (theirs.sparse, theirs.version)
    assert ours.capacity == theirs.capacity
    assert ours.dense or ours.allows_duplicates == theirs.allows_duplicates
    assert ours.cell_order is Layout.parse(theirs.cell_order)
    if ours.cell_order is not Layout.HILBERT:  # where it is, the package reports no tile order
        assert ours.tile_order is Layout.parse(theirs.tile_order)
    for mine, other in (
        (ours.coords_filters, theirs.coords_filters),
        (ours.offsets_filters, theirs.offsets_filters),
        (ours.validity_filters, theirs.validity_filters),
    ):
        assert_same_filters(mine, other)
    assert [dim.name for dim in ours.dims] == [theirs.domain.dim(i).name for i in range(theirs.ndim)]
    for i, dim in enumerate(ours.dims):
        # Quirk: what libtiledb reports for a dimension without filters are those of the coordinates.
        assert_same_filters(ours.filters_of(dim), theirs.domain.dim(i).filters)
        assert_same_dim(dim, theirs.domain.dim(i))
    assert [attr.name for attr in ours.attrs] == [theirs.attr(i).name for i in range(theirs.nattr)]
    for i, attr in enumerate(ours.attrs):
        assert_same_attr(attr, theirs.attr(i))


def assert_same_filters(ours: object, theirs: tiledb.FilterList) -> None:
    assert ours.max_chunk_size == theirs.chunksize
    assert [FilterCode(each.code) for each in ours.filters] == [_code(each) for each in theirs]
    for mine, other in zip(ours.filters, theirs, strict=True):
        if hasattr(mine, "level") and hasattr(other, "level"):
            assert mine.level == other.level


def _code(each: tiledb.Filter) -> FilterCode:
    names = {
        "NoOp": "NONE", "BitWidthReduction": "BIT_WIDTH_REDUCTION", "BitShuffle": "BIT_SHUFFLE",
        "ByteShuffle": "BYTE_SHUFFLE", "PositiveDelta": "POSITIVE_DELTA", "DoubleDelta": "DOUBLE_DELTA",
        "ChecksumMD5": "CHECKSUM_MD5", "ChecksumSHA256": "CHECKSUM_SHA256", "FloatScale": "SCALE_FLOAT",
    }  # fmt: skip
    name = type(each).__name__.removesuffix("Filter")
    return FilterCode[names.get(name, name.upper())]


def assert_same_dim(ours: Dim, theirs: tiledb.Dim) -> None:
    assert ours.is_var == theirs.isvar
    if ours.is_var:
        assert (ours.domain, ours.tile) == (None, None)
        assert theirs.dtype.kind == "S"
        return
    assert Datatype.parse(theirs.dtype) is ours.datatype
    assert list(ours.domain) == [_plain(value) for value in theirs.domain]
    extent = _plain(theirs.tile)
    assert ours.tile == (extent if ours.datatype.is_float else extent % (1 << 8 * ours.datatype.size))


def _plain(value: object) -> object:
    array = np.asarray(value)
    return array.astype("i8").item() if array.dtype.kind in "mM" else array.item()


def assert_same_attr(ours: Attr, theirs: tiledb.Attr) -> None:
    assert_same_filters(ours.filters, theirs.filters)
    assert (ours.nullable, ours.enum or "") == (theirs.isnullable, theirs.enum_label or "")
    assert ours.is_var == theirs.isvar
    if theirs.dtype.kind in "iufbmM" and not ours.datatype.is_text and theirs.dtype.names is None:
        assert ours.datatype is Datatype.BLOB or Datatype.parse(theirs.dtype) is ours.datatype
        if ours.cell_val_num == 1 and not ours.nullable:
            np.testing.assert_array_equal(
                np.asarray(theirs.fill).view(ours.datatype.dtype).ravel()[0],
                np.frombuffer(ours.fill, ours.datatype.dtype)[0],
            )


@pytest.mark.parametrize("datatype", [*INTEGERS, "float32", "float64", *DATES, *TIMES, "bool"])
def test_an_attribute_of_every_number(datatype: str, tmp_path: Path) -> None:
    attrs = (a("a", dtype=datatype), a("n", dtype=datatype, nullable=True), a("v", dtype=datatype, var=True))
    ours = created(tmp_path / "array", sparse(attrs=attrs))

    assert ours.attr("a") == Attr("a", datatype)
    assert ours.attr("n") == Attr("n", datatype, nullable=True)
    assert ours.attr("v") == Attr("v", datatype, var=True)


@pytest.mark.parametrize("datatype", ["ascii", "utf8", "blob", "wkb", "wkt", "S", "S3", "U3"])
def test_an_attribute_of_every_text(datatype: str, tmp_path: Path) -> None:
    given = np.dtype(datatype) if datatype[0] in "SU" else datatype if datatype != "utf8" else "U"
    ours = created(tmp_path / "array", sparse(attrs=(a(dtype=given), a("n", dtype=given, nullable=True))))
    name = {"S": "char", "U3": "utf8", "wkb": "geom_wkb", "wkt": "geom_wkt"}.get(datatype, datatype)
    expected = Attr("a", "char", values_per_cell=3) if datatype == "S3" else Attr("a", name)

    assert ours.attr("a") == expected


def test_attributes_of_several_values_and_with_fill_values(tmp_path: Path) -> None:
    attrs = (
        a("c8", dtype=np.complex64),
        a("pair", dtype=np.dtype("i2,i2,i2")),
        a("filled", dtype="int32", fill=7),
        a("null", dtype="int32", nullable=True, fill=7),
        a("text", dtype="ascii", var=True, fill="abc"),
        a("", dtype="float64"),
    )
    ours = created(tmp_path / "array", sparse(attrs=attrs))

    assert ours.attr("c8") == Attr("c8", "float32", values_per_cell=2)
    assert ours.attr("pair") == Attr("pair", "int16", values_per_cell=3)
    assert ours.attr("filled") == Attr("filled", "int32", fill=7)
    assert ours.attr("null").fill == b"\7\0\0\0"
    assert ours.attr("text") == Attr("text", "ascii", fill="abc")
    assert ours.attr("") == Attr("", "float64")


@pytest.mark.parametrize("datatype", [*INTEGERS, "float32", "float64"])
def test_a_dimension_of_every_number(datatype: str, tmp_path: Path) -> None:
    ours = created(tmp_path / "array", sparse(x(dtype=datatype), x("whole", dtype=datatype, tile=None)))

    assert ours.dims == (Dim("x", datatype, (1, 100), 10), Dim("whole", datatype, (1, 100)))


def test_a_signed_dimension_has_an_unsigned_tile(tmp_path: Path) -> None:
    ours = created(tmp_path / "array", sparse(x(dtype="int8", domain=(-100, 100), tile=None)))

    assert ours.dims == (Dim("x", "int8", (-100, 100), 201),)


@pytest.mark.parametrize("datatype", DATES)
def test_a_dimension_of_every_date(datatype: str, tmp_path: Path) -> None:
    unit = datatype[11:-1]
    domain = (np.datetime64(1, unit), np.datetime64(100, unit))
    ours = created(tmp_path / "array", dense(x(dtype=datatype, domain=domain, tile=np.timedelta64(10, unit))))

    assert ours.dims == (Dim("x", datatype, domain, np.timedelta64(10, unit)),)


def test_a_dimension_of_text(tmp_path: Path) -> None:
    ours = created(
        tmp_path / "array", sparse(x(), tiledb.Dim("s", domain=(None, None), tile=None, dtype="ascii"))
    )

    assert ours.dim("s") == Dim("s", "ascii")


@pytest.mark.parametrize("cell_order", ["row-major", "col-major", "hilbert"])
@pytest.mark.parametrize("tile_order", ["row-major", "col-major"])
def test_orders_capacity_and_duplicates(cell_order: str, tile_order: str, tmp_path: Path) -> None:
    options = {"cell_order": cell_order, "tile_order": tile_order, "capacity": 77, "allows_duplicates": True}
    ours = created(tmp_path / "array", sparse(x(), x("y"), **options))

    assert ours.cell_order is Layout.parse(cell_order)


@pytest.mark.parametrize("cell_order", ["row-major", "col-major"])
def test_a_dense_array(cell_order: str, tmp_path: Path) -> None:
    ours = created(tmp_path / "array", dense(x(), x("y"), cell_order=cell_order, tile_order="col-major"))

    assert ours.dense


EVERY_FILTER = [
    (tiledb.NoOpFilter(), "int32"),
    (tiledb.GzipFilter(7), "int32"),
    (tiledb.ZstdFilter(19), "int32"),
    (tiledb.LZ4Filter(3), "int32"),
    (tiledb.RleFilter(), "int32"),
    (tiledb.Bzip2Filter(9), "int32"),
    (tiledb.DoubleDeltaFilter(), "int32"),
    (tiledb.DoubleDeltaFilter(reinterp_dtype=np.uint8), "int32"),
    (tiledb.DeltaFilter(), "int32"),
    (tiledb.DeltaFilter(reinterp_dtype=np.int64), "int64"),
    (tiledb.BitWidthReductionFilter(512), "int32"),
    (tiledb.PositiveDeltaFilter(2048), "int32"),
    (tiledb.BitShuffleFilter(), "int32"),
    (tiledb.ByteShuffleFilter(), "int32"),
    (tiledb.XORFilter(), "int32"),
    (tiledb.ChecksumMD5Filter(), "int32"),
    (tiledb.ChecksumSHA256Filter(), "int32"),
    (tiledb.FloatScaleFilter(0.5, 3.0, bytewidth=2), "float64"),
    (tiledb.DictionaryFilter(), "ascii"),
]


@pytest.mark.parametrize(("each", "datatype"), EVERY_FILTER, ids=lambda value: str(value)[:24])
def test_every_filter_and_its_options(each: tiledb.Filter, datatype: str, tmp_path: Path) -> None:
    ours = created(tmp_path / "array", sparse(attrs=(a(dtype=datatype, filters=[each]),)))

    assert len(ours.attr("a").filters.filters) == 1


def test_a_picture_filter(tmp_path: Path) -> None:
    webp = tiledb.WebpFilter(tiledb.WebpFilter.WebpInputFormat.WEBP_RGB, 50.0, True)
    pixels = (x("y", tile=50), x(tile=30))
    ours = created(tmp_path / "array", dense(*pixels, attrs=(a(dtype="uint8", filters=[webp]),)))

    assert ours.attr("a").filters.filters[0].code is FilterCode.WEBP


def test_filters_of_dimensions_offsets_and_validity_with_a_chunk_size(tmp_path: Path) -> None:
    chain = tiledb.FilterList([tiledb.GzipFilter(2), tiledb.ZstdFilter(1)], chunksize=1024)
    schema = sparse(
        x(filters=chain),
        attrs=(a(filters=chain),),
        offsets_filters=chain,
        validity_filters=chain,
    )
    ours = created(tmp_path / "array", schema)

    assert ours.attr("a").filters.max_chunk_size == 1024
    assert ours.offsets_filters.filters == (Gzip(2), Zstd(1))
    assert ours.filters_of("x").filters == (Gzip(2), Zstd(1))


@pytest.mark.parametrize("ordered", [True, False])
def test_enumerations(ordered: bool, tmp_path: Path) -> None:
    enums = [
        tiledb.Enumeration("text", ordered, values=["red", "", "blue"]),
        tiledb.Enumeration("ascii", ordered, values=np.array([b"a", b"bc"])),
        tiledb.Enumeration("nums", ordered, values=np.array([10, 20], "int64")),
        tiledb.Enumeration("floats", ordered, values=np.array([1.5, 2.5])),
        tiledb.Enumeration("none", ordered, dtype=np.int32),
    ]
    attrs = tuple(a(enum.name, dtype="uint8", enum_label=enum.name, nullable=True) for enum in enums)
    ours = created(tmp_path / "array", sparse(attrs=attrs, enums=enums))

    assert ours.enums == {
        "text": Enumeration("text", ["red", "", "blue"], ordered=ordered),
        "ascii": Enumeration("ascii", [b"a", b"bc"], ordered=ordered),
        "nums": Enumeration("nums", [10, 20], ordered=ordered),
        "floats": Enumeration("floats", [1.5, 2.5], ordered=ordered),
        "none": Enumeration("none", [], datatype="int32", ordered=ordered),
    }


def test_evolution_adds_a_schema_beside_the_first(tmp_path: Path) -> None:
    root = tmp_path / "array"
    enum = tiledb.Enumeration("e", True, values=["a", "b"])
    tiledb.Array.create(str(root), sparse(attrs=(a(), a("k", dtype="int8", enum_label="e")), enums=[enum]))
    change = tiledb.ArraySchemaEvolution()
    change.add_attribute(a("later", dtype="float32", nullable=True))
    change.drop_attribute("a")
    change.extend_enumeration(enum.extend(["c"]))
    change.array_evolve(str(root))
    ours = read(root)

    assert_same(ours, tiledb.ArraySchema.load(str(root)))
    assert len(schema_files(root)) == 2
    assert ours.enums["e"] == Enumeration("e", ["a", "b"], ordered=True).extend(["c"])


def test_a_current_domain(tmp_path: Path) -> None:
    domain = tiledb.Domain(x(), tiledb.Dim("s", domain=(None, None), tile=None, dtype="ascii"))
    box = tiledb.NDRectangle(tiledb.default_ctx(), domain)
    box.set_range(0, 5, 50)
    box.set_range(1, "aa", "zzz")
    current = tiledb.CurrentDomain(tiledb.default_ctx())
    current.set_ndrectangle(box)
    schema = tiledb.ArraySchema(domain, (a(),), sparse=True)
    schema.set_current_domain(current)
    ours = created(tmp_path / "array", schema)

    assert ours.current_domain == ((5, 50), (b"aa", b"zzz"))


def test_dimension_labels(tmp_path: Path) -> None:
    root, dim = tmp_path / "array", x()
    labels = {
        0: {
            "up": dim.create_label_schema(order="increasing", dtype=np.float64),
            "down": dim.create_label_schema(order="decreasing", dtype="ascii"),
        }
    }
    ours = created(root, dense(dim, attrs=(a(),), dim_labels=labels))

    assert {label.name: (label.order, label.datatype) for label in ours.labels} == {
        "up": (DataOrder.INCREASING, Datatype.FLOAT64),
        "down": (DataOrder.DECREASING, Datatype.STRING_ASCII),
    }
    for label in ours.labels:
        assert read(root / label.uri).attr("label").order is label.order


def written(root: Path, schema: Schema) -> Path:
    """An array of ours: schema and enumerations, nothing else."""
    folder = root / ENUMERATION_FOLDER
    folder.mkdir(parents=True)
    files = {}
    for number, (name, enum) in enumerate(schema.enums.items()):
        files[name] = enumeration_name(unique_hex(number, bytes(12)))
        (folder / files[name]).write_bytes(pack_generic_tile(enum.pack(files[name])))
    body = dataclasses.replace(schema, enum_files=files).pack()
    path = root / SCHEMA_FOLDER / f"__1700000000000_1700000000000_{unique_hex(5, bytes(12))}"
    path.write_bytes(pack_generic_tile(body))
    return root


OURS = {
    "sparse": Schema(
        [Dim("x", "int64", (0, 999_999), 10_000), Dim("s", "ascii"), Dim("f", "float32", (-1, 1), 0.5)],
        [
            Attr("v", "float64", filters=[Zstd(3)], fill=0.0),
            Attr("tag", "utf8", nullable=True),
            Attr("gl", "int32", var=True),
            Attr("rgb", "uint8", values_per_cell=3),
            Attr("kind", "int8", enum="kinds"),
            Attr("b", "bool"),
            Attr("raw", "blob"),
        ],
        enums={"kinds": ["a", "b"], "unused": [1, 2]},
        allows_duplicates=True,
        cell_order="hilbert",
        capacity=100_000,
    ),
    "dense": Schema(
        [Dim("t", "datetime64[ms]", (0, 10**12), 10**9), Dim("u", "datetime64[ms]", (0, 9))],
        [Attr("v", "uint16", fill=9)],
        sparse=False,
        tile_order="col-major",
    ),
    "current": Schema(
        [Dim("x", "uint8", (0, 199), 100), Dim("s", "ascii")], [Attr("v", "int8")],
        current_domain={"x": (0, 99), "s": ("a", "b")},
    ),
    "dates": Schema([Dim("x", "int32", (0, 9))], [Attr(f"v{i}", each) for i, each in enumerate(UNITS)]),
    "no attributes": Schema([Dim("x", "int8", (-100, 100))], []),
}  # fmt: skip


@pytest.mark.parametrize("name", OURS)
def test_libtiledb_opens_a_schema_of_ours(name: str, tmp_path: Path) -> None:
    root = written(tmp_path / "array", OURS[name])
    theirs = tiledb.ArraySchema.load(str(root))

    assert_same(OURS[name], theirs)
    with tiledb.open(str(root)) as array:
        assert array.nattr == len(OURS[name].attrs)
        for enum in OURS[name].enums.values():
            assert list(array.enum(enum.name).values()) == enum.values.to_pylist()


def test_libtiledb_writes_to_a_schema_of_ours(tmp_path: Path) -> None:
    root = written(
        tmp_path / "array", Schema([Dim("x", "int32", (0, 9))], [Attr("s", "utf8", nullable=True)])
    )
    with tiledb.open(str(root), "w") as array:
        array[[1, 2]] = {"s": np.array(["a", "b"], dtype=object)}

    with tiledb.open(str(root)) as array:
        assert list(array[:]["s"]) == ["a", "b"]


@pytest.mark.parametrize("version", range(7, 22))
def test_libtiledb_opens_old_versions_of_ours(version: int, tmp_path: Path) -> None:
    schema = dataclasses.replace(
        Schema([Dim("x", "int32", (0, 9), 5)], [Attr("v", "float64", nullable=True)]), version=version
    )
    root = written(tmp_path / "array", schema)

    assert_same(schema, tiledb.ArraySchema.load(str(root)))
