import dataclasses
import pickle
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest

from terrazzo.errors import CorruptionError, InvalidRequestError, UnsupportedFeatureError
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import VAR, Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.compress import Gzip, Zstd
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.label import DimensionLabel
from terrazzo.format.orders import DataOrder, Layout
from terrazzo.format.schema import Schema

GOLDEN = bytes.fromhex("""
    16000000 00 01 00 00 0400000000000000
    00000100 01000000 02 05000000 02 ffffffff
    00000100 01000000 02 05000000 02 ffffffff
    00000100 01000000 04 05000000 04 ffffffff
    01000000
      01000000 78 00 01000000 00000100 00000000
      0800000000000000 01000000 64000000 00 0a000000
    01000000
      01000000 61 00 01000000 00000100 00000000
      0400000000000000 00000080 00 00 00 00000000
    00000000 00000000
    00000000 01
""")
X = Dim("x", "int32", (1, 100), 10)
A = Attr("a", "int32")


def of_version(version: int) -> Schema:
    return dataclasses.replace(Schema([X], [A], capacity=4), version=version)


def test_a_schema_is_stored_as_libtiledb_stores_it() -> None:
    schema = Schema([X], [A], capacity=4)

    assert schema.pack() == GOLDEN
    assert Schema.unpack(GOLDEN) == schema


def test_format_1_has_one_type_for_all_dimensions_and_no_fill_values() -> None:
    pipelines = "00000100 01000000 02 05000000 02 ffffffff" * 2
    stored = bytes.fromhex(
        f"01000000 00 00 01 1027000000000000 {pipelines}"
        "00 01000000 01000000 78 01000000 64000000 01"
        "01000000 01000000 61 03 02000000 00000100 00000000"
    )
    schema = Schema.unpack(stored)

    assert (schema.dense, schema.cell_order, schema.version) == (True, Layout.COL_MAJOR, 1)
    assert (schema.dims[0].domain, schema.dims[0].tile) == ((1, 100), None)
    assert schema.attrs[0].fill == Datatype.FLOAT64.default_fill * 2
    assert schema.pack() == stored


@pytest.mark.parametrize("version", range(1, 24))
def test_every_version_reads_what_it_writes(version: int) -> None:
    schema = of_version(version)

    assert Schema.unpack(schema.pack()) == schema


def test_versions_differ_in_size_where_fields_came() -> None:
    sizes = [len(of_version(version).pack()) for version in range(4, 23)]

    # One type for all dimensions before 5; then fill, validity, order, labels, enumerations, current domain.
    assert dict(zip(range(5, 23), np.diff(sizes).tolist(), strict=True)) == {
        **dict.fromkeys(range(5, 23), 0), 5: 21, 6: 12, 7: 20, 17: 1, 18: 4, 20: 8, 22: 5,
    }  # fmt: skip


def test_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeatureError, match="version 24"):
        Schema.unpack(b"\x18" + GOLDEN[1:])


def test_everything_a_schema_can_hold_comes_back() -> None:
    schema = Schema(
        [
            Dim("x", "int64", (0, 999_999), 10_000, [Gzip(3)]),
            Dim("s", "ascii"),
            Dim("t", "datetime64[ms]", (date(2020, 1, 1), datetime(2021, 1, 1)), timedelta(days=1)),
            Dim("f", "float32", (-1.5, 2.5), 0.1),
        ],
        [
            Attr("v", "float64", filters=[Zstd(3)], fill=-1.0),
            Attr("tag", "utf8", nullable=True, fill="none", fill_valid=True),
            Attr("gl", "int32", var=True),
            Attr("rgb", "uint8", values_per_cell=3, fill=(1, 2, 3)),
            Attr("kind", "int8", enum="kinds"),
            Attr("", "bool", filters=Pipeline((Gzip(1),), 1024)),
        ],
        enums={"kinds": ["a", "b"]},
        enum_files={"kinds": "__00_0"},
        allows_duplicates=True,
        capacity=7,
        cell_order="hilbert",
        tile_order="col-major",
        coords_filters=[],
        current_domain={"x": (0, 10), "s": ("a", "zz")},
        labels=[DimensionLabel(0, "l", "__labels/l0", "label", DataOrder.INCREASING, Datatype.FLOAT64)],
    )
    read = Schema.unpack(schema.pack())

    assert read.pack() == schema.pack()
    assert dataclasses.replace(read, enums=schema.enums) == schema
    assert read.current_domain == ((0, 10), (b"a", b"zz"), schema.dims[2].domain, schema.dims[3].domain)
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_dates_become_counts_of_their_unit() -> None:
    dim = Dim("t", "datetime64[D]", (np.datetime64("1970-01-02"), datetime(1970, 1, 11, tzinfo=UTC)), 5)

    assert (dim.domain, dim.tile, dim.n_tiles) == ((1, 10), 5, 2)
    with pytest.raises(InvalidRequestError, match="whole number"):
        Dim("t", "datetime64[D]", (datetime(1970, 1, 2, 12), 10))


def test_without_a_tile_one_spans_the_domain() -> None:
    assert Dim("x", "int8", (-100, 100)).tile == 201
    assert Dim("x", "float64", (0, 4)).tile == 4.0
    assert Dim("x", "float64", (3, 3)).tile == 1.0


@pytest.mark.parametrize(
    ("dim", "n_tiles"),
    [
        (X, 10),
        (Dim("x", "int8", (-5, 5), 10), 2),
        (Dim("x", "float64", (0, 1), 0.3), 4),
        (Dim("s", "ascii"), None),
    ],
)
def test_a_dimension_counts_its_tiles(dim: Dim, n_tiles: int | None) -> None:
    assert dim.n_tiles == n_tiles


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("x", "int32"), "needs a domain"),
        (("x", "int32", 5), "expected"),
        (("x", "int32", (5, 4)), "empty"),
        (("x", "int8", (0, 200)), "goes from -128 to 127"),
        (("x", "int8", (-128, 127)), "leave out one value"),
        (("x", "int32", (0, 9.5)), "whole numbers"),
        (("x", "int32", (0, "a")), "whole numbers"),
        (("x", "int32", (0, date(2020, 1, 1))), "not dates"),
        (("x", "int32", (0, 9), 11), "holds 10 values"),
        (("x", "int32", (0, 9), 0), "holds 10 values"),
        (("x", "int32", (0, 9), -1), "goes from 0"),
        (("x", "int64", (0, 2**63 - 2), 10), "reaches beyond"),
        (("x", "uint8", (0, 250), 20), "reaches beyond"),
        (("x", "float64", (0, float("inf"))), "finite"),
        (("x", "float64", (0, 1), 3.0), "wide"),
        (("x", "float64", (0, 1), 0.0), "wide"),
        (("x", "float64", (-1e308, 1e308)), "wider than any number"),
        (("x", "float32", (0, 1e300)), "finite"),
        (("x", "utf8"), "cannot be STRING_UTF8"),
        (("x", "bool", (0, 1)), "cannot be BOOL"),
        (("s", "ascii", ("a", "b")), "neither a domain"),
        (("s", "ascii", None, 4), "neither a domain"),
        ((5, "int32", (0, 9)), "is text"),
        (("x", "number", (0, 9)), "no datatype"),
    ],
)
def test_dimensions_that_cannot_be_are_refused(arguments: tuple, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        Dim(*arguments)


@pytest.mark.parametrize(
    ("attr", "cell_val_num", "cell_size"),
    [
        (Attr("a", "utf8"), VAR, None),
        (Attr("a", "blob"), VAR, None),
        (Attr("a", "char"), VAR, None),
        (Attr("a", "ascii", values_per_cell=4), 4, 4),
        (Attr("a", "ascii", var=False), 1, 1),
        (Attr("a", "int16"), 1, 2),
        (Attr("a", "int16", values_per_cell=3), 3, 6),
        (Attr("a", "int16", var=True), VAR, None),
    ],
)
def test_text_varies_in_length_unless_told_otherwise(
    attr: Attr, cell_val_num: int, cell_size: int | None
) -> None:
    assert (attr.cell_val_num, attr.cell_size, attr.is_var) == (cell_val_num, cell_size, cell_size is None)
    assert dataclasses.replace(attr) == attr


@pytest.mark.parametrize(
    ("datatype", "fill", "stored"),
    [
        ("int32", 7, b"\7\0\0\0"),
        ("float64", float("nan"), np.array(np.nan).tobytes()),
        ("datetime64[D]", np.datetime64("1970-01-03"), b"\2" + bytes(7)),
        ("utf8", "é", "é".encode()),
        ("blob", b"xy", b"xy"),
        ("string_utf16", "a", b"a\0"),
        ("bool", True, b"\1"),
    ],
)
def test_fill_values_become_the_bytes_of_a_cell(datatype: str, fill: object, stored: bytes) -> None:
    assert Attr("a", datatype, fill=fill).fill == stored


@pytest.mark.parametrize(
    ("datatype", "options", "problem"),
    [
        ("int32", {"fill": b"\0"}, "4 bytes expected"),
        ("int32", {"fill": 1 << 31}, "goes from"),
        ("int32", {"fill": "a"}, "whole numbers"),
        ("utf8", {"fill": ""}, "one or more"),
        ("uint8", {"values_per_cell": 3, "fill": (1, 2)}, "3 bytes expected"),
        ("int32", {"values_per_cell": 0}, "values per cell"),
        ("int32", {"values_per_cell": 2, "var": True}, "yet var"),
        ("any", {"var": False}, "vary in length"),
        ("float32", {"enum": "e"}, "one whole number"),
        ("int32", {"enum": "e", "var": True}, "one whole number"),
        ("int32", {"order": "sideways"}, "none of"),
    ],
)
def test_attributes_that_cannot_be_are_refused(datatype: str, options: dict, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        Attr("a", datatype, **options)


def test_names_of_attributes_do_not_begin_with_two_underscores() -> None:
    with pytest.raises(InvalidRequestError, match="reserved"):
        Attr("__a", "int32")


@pytest.mark.parametrize(
    ("arguments", "options", "problem"),
    [
        (([], [A]), {}, "at least one dimension"),
        (([X], [A, A]), {}, "more than one"),
        (([X], [Attr("x", "int8")]), {}, "more than one"),
        (([X], [A]), {"capacity": 0}, "0 cells"),
        (([X], [A]), {"cell_order": "diagonal"}, "none of"),
        (([X], [A]), {"cell_order": "global"}, "cannot be in global order"),
        (([X], [A]), {"tile_order": "hilbert"}, "cannot be in hilbert order"),
        (([X], [A]), {"sparse": False, "cell_order": "hilbert"}, "for sparse arrays"),
        (([X], [A]), {"sparse": False, "allows_duplicates": True}, "duplicates"),
        (([Dim("s", "ascii")], [A]), {"sparse": False}, "whole numbers or dates"),
        (([Dim("f", "float32", (0, 1))], [A]), {"sparse": False}, "whole numbers or dates"),
        (([X, Dim("y", "int64", (0, 9))], [A]), {"sparse": False}, "one and the same"),
        (([Dim(f"x{i}", "int8", (0, 9)) for i in range(16)], [A]), {"cell_order": "hilbert"}, "up to 15"),
        (([X], [Attr("k", "int8", enum="e")]), {}, "not there"),
        (([X], [A]), {"enums": {"f": Enumeration("e", ["a"])}}, "given as"),
        (([X], [A]), {"current_domain": {"y": (1, 2)}}, "no such dimension"),
        (([X], [A]), {"current_domain": {"x": (1, 101)}}, "its domain"),
        (([X], [A]), {"current_domain": [(1, 2), (1, 2)]}, "2 ranges for 1"),
        (([Dim("s", "ascii")], [A]), {"current_domain": {}}, "expected"),
        (([Dim("s", "ascii")], [A]), {"current_domain": {"s": ("b", "a")}}, "empty"),
    ],
)
def test_schemas_that_cannot_be_are_refused(arguments: tuple, options: dict, problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        Schema(*arguments, **options)


def test_a_dimension_without_filters_has_those_of_the_coordinates() -> None:
    schema = Schema([X, Dim("y", "int32", (0, 9), filters=[Gzip(2)])], [A], coords_filters=[Zstd(5)])

    assert schema.filters_of("x").filters == (Zstd(5),)
    assert schema.filters_of(schema.dim("y")).filters == (Gzip(2),)
    assert schema.filters_of("a").filters == ()


def test_files_per_dimension_under_a_schema_of_before_format_5_are_not_filtered() -> None:
    for version, expected in ((4, ()), (5, (Zstd(5),))):
        schema = Schema([X], [A], coords_filters=[Zstd(5)], version=version)

        assert schema.filters_of("x").filters == expected


def test_a_name_that_is_not_there_is_answered_with_those_that_are() -> None:
    schema = Schema([X], [A])

    assert (schema.dim("x"), schema.attr("a"), schema.field("x"), schema.fields) == (X, A, X, (X, A))
    with pytest.raises(InvalidRequestError, match="no attribute 'x'; the schema has 'a'"):
        schema.attr("x")


def test_enumerations_need_a_file_before_they_are_stored() -> None:
    schema = Schema([X], [Attr("k", "int8", enum="e")], enums={"e": ["a"]})

    with pytest.raises(InvalidRequestError, match="no file is named"):
        schema.pack()
    assert schema.enum_of("k") == Enumeration("e", ["a"])


def test_enumerations_keep_the_order_they_were_stored_in() -> None:
    schema = Schema([X], [A], enum_files={"z": "f1", "a": "f2", "m": "f3"})

    assert list(Schema.unpack(schema.pack()).enum_files) == ["z", "a", "m"]


def test_a_stored_schema_that_makes_no_sense_is_damage() -> None:
    nameless = GOLDEN.replace(b"\1\0\0\0a", b"\1\0\0\0x")

    with pytest.raises(CorruptionError, match="more than one"):
        Schema.unpack(nameless)
    with pytest.raises(CorruptionError, match="too many"):
        Schema.unpack(GOLDEN + b"\0")


def test_a_schema_reads_well() -> None:
    schema = Schema([X, Dim("sample", "ascii")], [Attr("v", "float32", values_per_cell=2, nullable=True)])

    assert schema.describe().splitlines() == [
        "sparse array · cells row-major · tiles row-major · capacity 10,000 · duplicates not allowed · format 22",
        "  dim   x       int32         [1, 100] tile 10  zstd",
        "  dim   sample  string_ascii                    zstd",
        "  attr  v       float32[2]    nullable",
    ]
    assert str(schema) == schema.describe()
