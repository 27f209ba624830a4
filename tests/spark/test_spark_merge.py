"""Changes that Spark computes: updates by expression, merges, history; each of them one commit."""

import datetime as dt

import numpy as np
import pytest
from pyspark.sql import functions as F  # noqa: N812

import terrazzo as tz
from terrazzo.spark import SparkArray

NAN = float("nan")


def made(path, *, dups=False, n=40):
    """Cells at (x, x % 5): some values are NaN, some tags null."""
    array = tz.create(
        str(path),
        tz.Schema(
            [tz.Dim("x", "int64", (0, 99_999), 100), tz.Dim("y", "int32", (0, 9), 10)],
            [tz.Attr("v", "float64"), tz.Attr("n", "uint8"), tz.Attr("tag", "utf8", nullable=True)],
            allows_duplicates=dups,
            capacity=64,
        ),
    )
    k = np.arange(n)
    array.write(
        {
            "x": k,
            "y": (k % 5).astype(np.int32),
            "v": np.where(k % 7 == 0, np.nan, k * 1.0),
            "n": (k % 200).astype(np.uint8),
            "tag": [None if each % 4 == 0 else f"t{each % 3}" for each in k],
        }
    )
    return array


def cells(array):
    """All cells, in an order of their own, so that two of them compare."""
    table = array.refresh().read()
    return sorted(
        zip(*(table.column(name).to_pylist() for name in table.schema.names), strict=True), key=repr
    )


def same(found, wanted):
    return sorted(map(repr, found)) == sorted(map(repr, wanted))


def theirs(uri):
    """The cells that libtiledb shows."""
    import tiledb

    with tiledb.open(uri) as array:
        found = array[:]
    columns = []
    for name in ("x", "y", "v", "n", "tag"):
        values = found[name]
        if name == "tag":
            mask = (
                np.ma.getmaskarray(values)
                if np.ma.isMaskedArray(values)
                else [text is None for text in values]
            )
            raw = np.ma.getdata(values)
            columns.append(
                [
                    None if m else (t.decode() if isinstance(t, bytes) else t)
                    for t, m in zip(raw, mask, strict=True)
                ]
            )
        else:
            columns.append(values.tolist())
    return sorted(zip(*columns, strict=True), key=repr)


def commits(array):
    return sorted(each.key.rpartition(".")[2] for each in array.view.store.list("__commits"))


# -- update --------------------------------------------------------------------------------------------


def test_constants_are_stored_as_an_update(spark, tmp_path):
    array = made(tmp_path / "a")

    SparkArray(spark, array.uri).update({"v": 1.5, "tag": "it's"}, where="x < 10")

    assert commits(array) == ["upd", "wrt"]
    assert {(row[2], row[4]) for row in cells(array) if row[0] < 10} == {(1.5, "it's")}


def test_expressions_are_evaluated_over_the_cells_as_they_are(spark, tmp_path):
    array, before = made(tmp_path / "a"), cells(made(tmp_path / "b"))

    SparkArray(spark, array.uri).update(
        {"v": F.expr("v + n"), "n": F.expr("n * 2"), "tag": "new"}, where="tag = 't1' OR x IN (0, 8)"
    )

    def hit(row):
        return row[4] == "t1" or row[0] in {0, 8}

    assert same(
        cells(array),
        [
            (x, y, v + n, n * 2, "new") if hit((x, y, v, n, t)) else (x, y, v, n, t)
            for x, y, v, n, t in before
        ],
    )
    assert commits(array) == ["wrt", "wrt"]
    assert same(theirs(array.uri), cells(array))


@pytest.mark.parametrize("values", [{"v": F.lit}, {"v": 9.5}], ids=["expression", "portable"])
def test_with_duplicates_the_old_cells_go_and_those_of_null_and_nan_stay(spark, tmp_path, values):
    array = made(tmp_path / "a", dups=True)
    array.write(
        {"x": [5, 5], "y": np.int32([0, 0]), "v": [100.0, NAN], "n": np.uint8([1, 2]), "tag": [None, "t2"]}
    )
    before = cells(array)
    given = {"v": F.lit(9.5)} if values["v"] is F.lit else values

    SparkArray(spark, array.uri).update(given, where="v > 3 AND tag = 't2'", portable=True)

    assert same(cells(array), [(x, y, 9.5 if v > 3 and t == "t2" else v, n, t) for x, y, v, n, t in before])
    assert commits(array) == ["con", "wrt", "wrt"]
    assert same(theirs(array.uri), cells(array))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"n": "n + 0.5"}, "'n' cannot be set to 1.5"),
        ({"n": "n + 255"}, "column 'n'"),
        ({"v": "NULL"}, "'v' is not nullable"),
        ({"v": "concat('a', x)"}, "'v' cannot be set to a1"),
        ({"v": "nowhere + 1"}, "nowhere"),
        ({"x": "x + 1"}, "is a dimension"),
        ({"q": "1"}, "'q'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_nothing_is_committed(spark, tmp_path, values, told):
    array = made(tmp_path / "a")

    with pytest.raises(tz.InvalidRequestError, match=told):
        SparkArray(spark, array.uri).update({k: F.expr(v) for k, v in values.items()}, where="x = 1")
    assert commits(array) == ["wrt"]
    assert len(list((tmp_path / "a" / "__fragments").iterdir())) == 1


def test_an_update_that_matches_nothing_commits_nothing(spark, tmp_path):
    array = made(tmp_path / "a", dups=True)

    SparkArray(spark, array.uri).update({"v": F.expr("v * 2")}, where="x > 5000")

    assert commits(array) == ["wrt"]


def test_what_others_commit_meanwhile_is_not_lost(spark, tmp_path):
    array = made(tmp_path / "a")
    early = array.fragments[0].name.end_ms
    seen = []

    class Meddling(SparkArray):
        """Another process writes after the change was planned, with a time before it."""

        def __init__(self, *given):
            super().__init__(*given)
            latest = self.array.latest

            def then():
                view = latest()
                tz.open(array.uri).write(
                    {"x": [1], "y": np.int32([1]), "v": [77.0], "n": np.uint8([7]), "tag": ["other"]},
                    at=early + 1,
                )
                seen.append(view)
                return view

            self.array.latest = then

    with pytest.raises(tz.ConflictError, match="try again"):
        Meddling(spark, array.uri).update({"v": F.expr("v * 2")}, where="x < 3")
    assert seen
    assert [row for row in cells(array) if row[0] == 1] == [(1, 1, 77.0, 7, "other")]
    assert len(list((tmp_path / "a" / "__fragments").iterdir())) == 2


def test_types_that_spark_knows_otherwise_survive_a_rewrite(spark, tmp_path):
    array = tz.create(
        str(tmp_path / "a"),
        tz.Schema(
            [tz.Dim("t", "datetime_ns", (np.datetime64(0, "ns"), np.datetime64(10**6, "ns")), 1000), tz.Dim("s", "ascii")],
            [
                tz.Attr("u", "uint64"), tz.Attr("d", "datetime_ms"), tz.Attr("k", "int8", enum="kinds"),
                tz.Attr("g", "int32", var=True), tz.Attr("b", "blob", var=True), tz.Attr("v", "int64"),
            ],
            enums={"kinds": ["a", "b"]},
        ),
    )  # fmt: skip
    array.write(
        {
            "t": np.array([1, 2], "M8[ns]"), "s": ["p", "q"], "u": np.array([2**64 - 1, 0], np.uint64),
            "d": np.array(["2026-01-01T00:00:00.123", "1960-01-01"], "M8[ms]"), "k": ["b", "a"],
            "g": [[1, 2], []], "b": [b"\x00\xff", b""], "v": [1, 2],
        }
    )  # fmt: skip
    before = array.read(order="row-major")

    SparkArray(spark, array.uri).update({"v": F.expr("v * 10")})
    source = spark.createDataFrame([(2, "q", 7)], "t bigint, s string, v bigint")
    SparkArray(spark, array.uri).merge(source).when_matched_delete().execute()

    after = array.refresh().read(order="row-major")
    assert after.drop_columns("v") == before.drop_columns("v").slice(0, 1)
    assert after.column("v").to_pylist() == [10]


def test_dense_cells_are_updated_and_merged_by_expression(spark, tmp_path):
    array = tz.create(
        str(tmp_path / "a"),
        tz.Schema(
            [tz.Dim("r", "int64", (0, 19), 5), tz.Dim("c", "int64", (0, 9), 5)],
            [tz.Attr("v", "int64")],
            sparse=False,
        ),
    )
    array[:, :] = np.arange(200).reshape(20, 10)
    wanted = np.arange(200).reshape(20, 10)
    mine = SparkArray(spark, array.uri)

    mine.update({"v": F.expr("v * 10 + c")}, where="r BETWEEN 3 AND 7")
    wanted[3:8] = wanted[3:8] * 10 + np.arange(10)
    assert (array.refresh()[:, :] == wanted).all()

    source = spark.createDataFrame([(0, 0, 5), (19, 9, 6), (4, 2, 7)], "r bigint, c bigint, v bigint")
    done = mine.merge(source).when_matched_update({"v": "target.v + source.v"}, "source.v > 5").execute()
    wanted[19, 9] += 6
    wanted[4, 2] += 7
    assert (array.refresh()[:, :] == wanted).all()
    assert done.updated == 2
    with pytest.raises(tz.InvalidRequestError, match="dense"):
        mine.merge(source).when_matched_delete().execute()


# -- merge ---------------------------------------------------------------------------------------------


def rows_of(spark, rows):
    return spark.createDataFrame(rows, "x bigint, y int, v double, n int, tag string")


@pytest.mark.parametrize("dups", [False, True])
def test_a_merge_does_what_its_clauses_say_under_one_commit(spark, tmp_path, dups):
    array = made(tmp_path / "a", dups=dups)
    if dups:
        array.write(
            {"x": [2, 3], "y": np.int32([2, 3]), "v": [-1.0, NAN], "n": np.uint8([9, 9]), "tag": ["d", None]}
        )
    before, n_commits = cells(array), len(commits(array))
    source = rows_of(
        spark,
        [(k, k % 5, k * 100.0, 1, None if k % 2 else "s") for k in range(2, 12)]
        + [(500, 1, NAN, 2, None), (501, 1, -5.0, 2, "no")],
    )

    done = (
        SparkArray(spark, array.uri)
        .merge(source)
        .when_matched_delete("source.x % 4 = 0")
        .when_matched_update(
            {"v": "target.v + source.v", "tag": F.col("source.tag")}, "target.tag IS NOT NULL"
        )
        .when_not_matched_insert(condition="source.v > 0")
        .execute()
    )

    wanted, updated, deleted = [], 0, 0
    for x, y, v, n, tag in before:
        if 2 <= x < 12 and x % 4 == 0:
            deleted += 1
        elif 2 <= x < 12 and tag is not None:
            wanted.append((x, y, v + x * 100.0, n, None if x % 2 else "s"))
            updated += 1
        else:
            wanted.append((x, y, v, n, tag))
    wanted.append((500, 1, NAN, 2, None))  # NaN is above all numbers in Spark
    assert same(cells(array), wanted)
    assert (done.inserted, done.updated, done.deleted) == (1, updated, deleted)
    assert len(commits(array)) == n_commits + 1
    assert same(theirs(array.uri), wanted)


def test_a_merge_that_deletes_very_many_cells_keeps_all_others(spark, tmp_path):
    array = made(tmp_path / "a", n=4000)
    array.delete("x = 17")
    wanted = [
        (x, y, v, n, "up" if x < 100 else t) for x, y, v, n, t in cells(array) if not 500 <= x < 3000 or x % 2
    ]
    source = spark.range(0, 4000).selectExpr("id AS x", "CAST(id % 5 AS int) AS y")

    done = (
        SparkArray(spark, array.uri)
        .merge(source)
        .when_matched_delete("source.x BETWEEN 500 AND 2999 AND source.x % 2 = 0")
        .when_matched_update({"tag": "'up'"}, "target.x < 100")
        .execute()
    )

    assert (done.updated, done.deleted) == (99, 1250)
    assert same(cells(array), wanted)
    assert commits(array) == ["con", "del", "wrt"]
    assert same(theirs(array.uri), wanted)


def test_cells_that_the_source_lacks_can_go_or_change(spark, tmp_path):
    array = made(tmp_path / "a")

    done = (
        SparkArray(spark, array.uri)
        .merge(rows_of(spark, [(k, k % 5, 0.0, 0, "") for k in range(30)]))
        .when_not_matched_by_source_delete("target.x >= 35")
        .when_not_matched_by_source_update({"n": "target.n + 1"})
        .execute()
    )

    assert (done.inserted, done.updated, done.deleted) == (0, 5, 5)
    assert [row[3] for row in sorted(cells(array))][28:] == [28, 29, 31, 32, 33, 34, 35]


def test_a_merge_that_only_deletes_reads_the_columns_it_tests(spark, tmp_path):
    array = made(tmp_path / "a")
    source = rows_of(spark, [(k, k % 5, 0.0, 0, "") for k in range(20)])
    merge = (
        SparkArray(spark, array.uri).merge(source).when_matched_delete("target.tag = 't1' OR source.x = 3")
    )

    done = merge.when_not_matched_insert().execute()

    assert merge._needed(array.schema) == ("x", "y", "tag")
    assert done.deleted == 6
    assert commits(array) == ["del", "wrt"]
    assert array.refresh().count("x < 20") == 14


def test_two_rows_for_one_cell_are_an_error_that_names_it(spark, tmp_path):
    array = made(tmp_path / "a")
    source = rows_of(spark, [(3, 3, 1.0, 1, "a"), (3, 3, 2.0, 1, "b"), (4, 4, 1.0, 1, "a")])

    with pytest.raises(tz.InvalidRequestError, match="x=3, y=3"):
        SparkArray(spark, array.uri).merge(source).when_matched_update().execute()
    with pytest.raises(tz.InvalidRequestError, match="the dimension 'x'"):
        SparkArray(spark, array.uri).merge(source.drop("x")).when_matched_update().execute()
    assert commits(array) == ["wrt"]


# -- history -------------------------------------------------------------------------------------------


def test_history_changes_and_restore_are_told_as_frames(spark, tmp_path):
    array = made(tmp_path / "a", n=3)
    first = array.fragments[-1].name.end_ms
    mine = SparkArray(spark, array.uri)
    mine.update({"v": 5.0}, where="x = 1")
    mine.delete("x = 2")

    told = mine.history()
    assert [row["kind"] for row in told.collect()] == ["create", "write", "update", "delete"]
    assert isinstance(told.first()["timestamp"], dt.datetime)
    assert [row["n_cells"] for row in told.collect()] == [None, 3, None, None]
    kinds = mine.changes(first).groupBy("_change").count().collect()
    assert dict(kinds) == {"update_before": 1, "update_after": 1, "delete": 1}
    mine.restore(first)
    assert mine.to_df().count() == 3
    assert mine.changes(first).isEmpty()
