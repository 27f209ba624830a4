"""The format `tiledb`: reads and writes as Spark's own formats do them."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

import terrazzo as tz
from terrazzo.engine.keys import as_cipher
from terrazzo.spark import SparkArray, SparkRunner, write
from terrazzo.spark.failures import translated


@pytest.fixture
def points(tmp_path):
    """Cells in three fragments: two overlap."""
    array = tz.create(
        str(tmp_path / "points"),
        tz.Schema(
            [tz.Dim("x", "int64", (0, 9999), 100), tz.Dim("y", "int64", (0, 9999), 100)],
            [tz.Attr("v", "float64"), tz.Attr("tag", "utf8", nullable=True)],
            capacity=64,
        ),
    )
    n = 1000
    for i in range(3):
        array.write(
            {
                "x": np.arange(n) * 5 + i % 2,
                "y": np.arange(n) * 3,
                "v": np.where(np.arange(n) % 7 == 0, np.nan, np.arange(n) + 10_000.0 * i),
                "tag": [None if k % 5 == 0 else f"t{k % 4}" for k in range(n)],
            }
        )
    return array


def rows(df):
    return sorted(map(repr, df.collect()))


def engine_rows(array, spark, **request):
    """The engine's answer in Spark's spelling."""
    return rows(spark.createDataFrame(array.read(**request)))


def test_a_read_returns_what_the_engine_returns(spark, points):
    df = spark.read.format("tiledb").load(points.uri)

    assert rows(df) == engine_rows(points, spark)
    assert df.columns == ["x", "y", "v", "tag"]


def test_options_choose_columns_instant_region_and_condition(spark, points):
    then = points.fragments[1].name.end_ms
    df = (
        spark.read.format("tiledb")
        .option("at", then)
        .option("columns", "v, x")
        .option("where", "tag = 't1' OR v > 500")
        .option("region.X", "100:2000")
        .load(points.uri)
    )

    past = tz.open(points.uri, at=then)
    wanted = past.read(columns=["v", "x"], where="tag = 't1' OR v > 500", region={"x": (100, 2000)})
    assert df.columns == ["v", "x"]
    assert rows(df) == rows(spark.createDataFrame(wanted))


def test_the_number_of_partitions_follows_the_options(spark, points):
    def partitions(**options):
        df = spark.read.format("tiledb").options(**options).load(points.uri)
        assert df.count() == points.count()
        return df.rdd.getNumPartitions()

    assert partitions(partitions="1") == 1
    assert partitions(partitions="6") > 2
    assert partitions(partition_size="4KiB") > partitions(partition_size="1GiB") == 1


@pytest.mark.parametrize(
    "condition",
    [
        "x > 100 AND x <= 900", "v < 500", "v >= 500", "v = v", "NOT (v < 500)", "v != 3", "NOT v > 5",
        "tag IN ('t1', 't3')", "tag NOT IN ('t1')", "tag IS NULL", "tag IS NOT NULL AND y = 30", "tag <=> NULL",
        "v IN (1.0, 2.0, double('nan'))", "isnan(v)", "tag LIKE 't%'", "x = 5 OR y = 30", "tag = 'it\\'s'",
    ],
)  # fmt: skip
def test_a_filter_keeps_sparks_meaning_wherever_it_is_applied(spark, points, condition):
    df = spark.read.format("tiledb").option("pushdown", "true").load(points.uri)
    plain = spark.createDataFrame(points.read())

    assert rows(df.where(condition)) == rows(plain.where(condition))


def test_a_frame_that_is_used_again_shows_all_cells_again(spark, points):
    df = spark.read.format("tiledb").load(points.uri)
    some, all_ = points.count(where="x < 50"), points.count()

    assert df.where("x < 50").count() == some
    assert df.count() == all_
    assert df.union(df.where("x < 50")).count() == all_ + some


def test_filters_that_went_down_are_shown(spark, points):
    df = (
        spark.read.format("tiledb")
        .option("pushdown", "true")
        .load(points.uri)
        .where("x > 100 AND v < 7 AND v > 1")
    )
    told = df._jdf.queryExecution().explainString(
        spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    )

    assert "PushedFilters: [GreaterThan(x,100), LessThan(v,7.0)]" in told
    assert "Condition : (v#" in told  # NaN is greater than 1 in Spark


def test_a_session_without_push_down_reads_too(spark, points):
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "false")
    try:
        found = spark.read.format("tiledb").load(points.uri).where("x > 100").count()
    finally:
        spark.conf.set(setting, "true")

    assert found == points.count(where="x > 100")


def test_a_schema_of_the_users_prunes_columns(spark, points):
    df = spark.read.format("tiledb").schema("tag string, x bigint").load(points.uri)

    assert df.columns == ["tag", "x"]
    assert df.count() == points.count()


def everything_table(n=40):
    return {
        "i8": pa.array(np.arange(n) - 20, pa.int8()), "i16": pa.array(np.arange(n), pa.int16()),
        "i32": pa.array(np.arange(n), pa.int32()), "i64": pa.array(np.arange(n), pa.int64()),
        "u8": pa.array(np.full(n, 255), pa.uint8()), "u16": pa.array(np.full(n, 65535), pa.uint16()),
        "u32": pa.array(np.full(n, 2**32 - 1), pa.uint32()), "u64": pa.array([2**64 - 1] * n, pa.uint64()),
        "f32": pa.array(np.arange(n) / 2, pa.float32()), "f64": pa.array(np.arange(n) / 3),
        "flag": pa.array([True, False] * (n // 2)), "day": pa.array(np.arange(n).astype("M8[D]")),
        "sec": pa.array(np.arange(n).astype("M8[s]")), "ms": pa.array(np.arange(n).astype("M8[ms]")),
        "us": pa.array(np.arange(n).astype("M8[us]")), "ns": pa.array(np.arange(n).astype("M8[ns]")),
        "took": pa.array(np.arange(n).astype("m8[ms]")), "took_ns": pa.array(np.arange(n).astype("m8[ns]")),
        "text": pa.array(["é" * (k % 3) for k in range(n)]), "raw": pa.array([b"\x00\xff"] * n),
        "list": pa.array([list(range(k % 4)) for k in range(n)], pa.list_(pa.int32())),
        "ulist": pa.array([[2**64 - 1]] * n, pa.list_(pa.uint64())),
    }  # fmt: skip


def test_every_type_comes_back_through_spark_as_it_was(spark, tmp_path):
    table = pa.table(everything_table())
    array = tz.create(str(tmp_path / "a"), tz.schema_of(table, dims=["i64"]))
    array.write(table)

    df = spark.read.format("tiledb").load(array.uri)
    write(df, str(tmp_path / "b"), dims=["i64"])
    back = tz.open(str(tmp_path / "b")).read(order="row-major")

    assert dict(df.dtypes)["u64"] == "decimal(20,0)"
    assert dict(df.dtypes)["ns"] == "bigint"
    first = array.read(order="row-major")
    for name in first.schema.names:
        assert back.column(name).type == first.column(name).type
        assert back.column(name).equals(first.column(name)), name


def test_labels_and_fixed_bytes_become_text_and_bytes(spark, tmp_path):
    schema = tz.Schema(
        [tz.Dim("x", "int32", (0, 99), 10)],
        [tz.Attr("kind", "int8", enum="kinds"), tz.Attr("code", "blob", values_per_cell=2)],
        enums={"kinds": ["a", "b"]},
    )
    array = tz.create(str(tmp_path / "a"), schema)
    array.write({"x": [1, 2], "kind": ["b", "a"], "code": [b"xy", b"zz"]})

    df = spark.read.format("tiledb").load(array.uri).orderBy("x")

    assert [tuple(row) for row in df.collect()] == [(1, "b", b"xy"), (2, "a", b"zz")]
    df.selectExpr("x + 10 AS x", "kind", "code").selectExpr("CAST(x AS int) x", "kind", "code").write.format(
        "tiledb"
    ).mode("append").save(array.uri)
    assert array.refresh().read(order="row-major").column("kind").to_pylist() == ["b", "a", "b", "a"]


def test_a_number_that_does_not_fit_fails_and_writes_nothing(spark, tmp_path):
    array = tz.create(
        str(tmp_path / "a"), tz.Schema([tz.Dim("x", "int64", (0, 99), 10)], [tz.Attr("u", "uint8")])
    )
    df = spark.createDataFrame([(1, 300)], "x bigint, u int")

    with pytest.raises(Exception, match=r"PythonException|u") as caught:
        df.write.format("tiledb").mode("append").save(array.uri)
    assert "column 'u'" in str(translated(caught.value))
    assert array.refresh().count() == 0
    assert not list((tmp_path / "a" / "__fragments").glob("*"))


# -- writing -------------------------------------------------------------------------------------------


def commits(path):
    return sorted(each.suffix for each in (path / "__commits").iterdir())


def test_a_write_of_many_tasks_is_one_commit(spark, tmp_path):
    df = spark.range(1000).selectExpr("id AS x", "id * 2 AS v").repartition(4)

    df.write.format("tiledb").option("dims", "x").option("domain.x", "0:9999").option("tile.x", 50).option(
        "filters.v", "byteshuffle,zstd:5"
    ).option("capacity", 100).mode("append").save(str(tmp_path / "a"))

    array = tz.open(str(tmp_path / "a"))
    assert commits(tmp_path / "a") == [".con"]
    assert len(array.fragments) == 4
    assert array.schema.dims[0].domain == (0, 9999)
    assert array.schema.capacity == 100
    assert [type(each).__name__ for each in array.schema.attr("v").filters.filters] == ["ByteShuffle", "Zstd"]
    assert array.read(order="row-major").column("v").to_pylist() == list(range(0, 2000, 2))


def test_overwrite_replaces_everything_under_one_commit_and_keeps_the_past(spark, tmp_path):
    uri = str(tmp_path / "a")
    write(spark.range(100).selectExpr("id AS x", "id AS v"), uri, dims=["x"])
    before = tz.open(uri).fragments[-1].name.end_ms

    spark.range(3).selectExpr("id AS x", "id AS v").write.format("tiledb").mode("overwrite").save(uri)

    assert tz.open(uri).count() == 3
    assert tz.open(uri, at=before).count() == 100
    assert len(commits(tmp_path / "a")) == 2


def test_the_four_modes(spark, tmp_path):
    uri, df = str(tmp_path / "a"), spark.range(10).selectExpr("id AS x", "id AS v")
    more = spark.range(10, 15).selectExpr("id AS x", "id AS v")

    assert write(df, uri, dims=["x"]).n_cells == 10
    with pytest.raises(tz.ArrayExistsError, match="mode='append'"):
        write(df, uri, dims=["x"])
    assert write(more, uri, mode="ignore").n_cells == 0
    write(more, uri, mode="append")
    assert tz.open(uri).count() == 15
    write(more, uri, mode="overwrite")
    assert tz.open(uri).count() == 5


def test_clustered_fragments_do_not_overlap(spark, tmp_path):
    df = spark.range(5000).selectExpr("(id * 7919) % 10007 AS x", "id AS v").repartition(5)

    write(df, str(tmp_path / "a"), dims=["x"], domain={"x": (0, 19_999)}, tile={"x": 100}, partitions=3)

    array = tz.open(str(tmp_path / "a"))
    boxes = sorted(fragment.footer.domain[0] for fragment in array.fragments)
    assert len(boxes) == 3
    assert all(high < low for (_, high), (low, _) in itertools.pairwise(boxes))
    assert array.count() == 5000


def test_dense_cells_become_boxes_of_whole_tiles(spark, tmp_path):
    df = spark.range(40 * 30).selectExpr("id div 30 AS r", "id % 30 AS c", "CAST(id AS float) AS v")

    write(
        df.repartition(7), str(tmp_path / "a"), dims=["r", "c"], dense=True,
        domain={"r": (0, 39), "c": (0, 29)}, tile={"r": 10, "c": 10},
    )  # fmt: skip

    assert (tz.open(str(tmp_path / "a"))[:, :].ravel() == np.arange(1200)).all()


def test_a_dense_write_with_holes_is_refused(spark, tmp_path):
    array = tz.create(
        str(tmp_path / "a"),
        tz.Schema([tz.Dim("r", "int64", (0, 9), 5)], [tz.Attr("v", "int64")], sparse=False),
    )

    with pytest.raises(tz.InvalidRequestError):
        write(spark.createDataFrame([(0, 1), (2, 3)], "r bigint, v bigint"), array.uri, mode="append")
    assert not array.refresh().fragments


def test_duplicates_across_input_partitions_are_found_by_clustering(spark, tmp_path):
    df = spark.range(100).selectExpr("id % 99 AS x", "id AS v").repartition(4)

    with pytest.raises(tz.InvalidRequestError, match="two cells at x=0"):
        write(df, str(tmp_path / "a"), dims=["x"])
    assert not tz.exists(str(tmp_path / "a"))
    assert not [each for each in (tmp_path / "a").rglob("*") if each.is_file()]


def test_libtiledb_reads_what_spark_wrote(spark, tmp_path):
    import tiledb

    df = spark.range(2000).selectExpr("id AS x", "id % 13 AS y", "id / 2 AS v", "CAST(id AS string) AS s")
    write(df, str(tmp_path / "a"), dims=["x", "y"], partitions=3)

    with tiledb.open(str(tmp_path / "a")) as theirs:
        found = theirs[:]
    order = np.argsort(found["x"])
    assert (found["v"][order] == np.arange(2000) / 2).all()
    assert list(found["s"][order][:3]) in (["0", "1", "2"], [b"0", b"1", b"2"])


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda s, a: s.read.format("tiledb").load(a + "nowhere"), "there is no array at"),
        (lambda s, a: s.read.format("tiledb").option("wher", "x > 1").load(a), "there is no option 'wher'"),
        (lambda s, a: s.read.format("tiledb").option("columns", "zz").load(a), "zz"),
        (lambda s, a: s.read.format("tiledb").option("where", "zz > 1").load(a).count(), "zz"),
        (lambda s, a: s.read.format("tiledb").option("region.q", "1:2").load(a).count(), "q"),
        (lambda s, a: s.read.format("tiledb").option("partitions", "no").load(a).count(), "partitions"),
        (lambda s, a: s.read.format("tiledb").load(), "say which array"),
        (lambda s, a: s.range(3).write.format("tiledb").mode("append").save(a), "the data lack"),
        (lambda s, a: s.range(3).write.format("tiledb").mode("append").save(a + "new"), "there is no array"),
        (
            lambda s, a: s.range(3).write.format("tiledb").option("cluster", "true").mode("append").save(a),
            "terrazzo.spark.write",
        ),
        (
            lambda s, a: (
                s.range(3).write.format("tiledb").option("dims", "zz").mode("append").save(a + "new")
            ),
            "zz",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(spark, points, make, told):
    with pytest.raises(Exception) as caught:
        make(spark, points.uri)

    assert told in str(translated(caught.value))


# -- SparkArray ----------------------------------------------------------------------------------------


def test_to_df_reads_the_columns_asked_for_and_no_others(spark, points):
    array = SparkArray(spark, points.uri)
    df = array.to_df(["v"], where="x < 500 OR tag = 't3'", region={"y": (0, 1000)}, partition_size="8KiB")

    assert df.columns == ["v"]
    assert df.rdd.getNumPartitions() > 1
    assert rows(df) == engine_rows(
        points, spark, columns=["v"], where="x < 500 OR tag = 't3'", region={"y": (0, 1000)}
    )
    assert array.to_df(at=points.fragments[0].name.end_ms).count() == 1000
    assert array.to_df(where="x > 9990").count() == 0


def test_consolidation_on_executors_keeps_every_cell(spark, points):
    array = SparkArray(spark, points.uri)
    before, told = engine_rows(points, spark), []

    array.consolidate(max_fragment_size="8KiB", progress=lambda done, total: told.append((done, total)))

    assert len(array.array.fragments) > 1
    assert engine_rows(points.refresh(), spark) == before
    assert told[-1][0] == told[-1][1] > 1


def test_the_runner_raises_what_a_task_raised(spark):
    with pytest.raises(tz.InvalidRequestError, match="32 bytes"):
        list(SparkRunner(spark).map(as_cipher, [b"a short key", None]))
    assert list(SparkRunner(spark).map(abs, [-1, -2, 3])) == [1, 2, 3]
    assert not list(SparkRunner(spark).map(abs, []))


def test_an_array_is_no_small_table_to_spark(spark, tmp_path):
    """Spark would send a small one to every task of a join."""
    uri = str(tmp_path / "a")
    write(spark.range(1_000_000).selectExpr("id AS x", "id AS v"), uri, dims=["x"])
    array = SparkArray(spark, uri)
    other = spark.range(2_000_000).selectExpr("id AS x", "id AS w")

    def size(df):
        return int(str(df._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))

    joined = array.to_df().join(other, "x")

    assert 10 << 20 < size(array.to_df()) < 40 << 20
    assert size(array.to_df(region={"x": (0, 10)})) < 1 << 20
    assert joined.selectExpr("sum(v)").first()[0] == 999_999 * 500_000
