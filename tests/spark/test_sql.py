"""SQL with arrays in it: the same answers as Spark gives over the same rows."""

import re
from pathlib import Path

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.spark import sql
from terrazzo.spark.demand import demand
from terrazzo.spark.references import parsed

NAN = float("nan")
SCHEMA = tz.Schema(
    [tz.Dim("x", "int64", (0, 9999), 100), tz.Dim("y", "int32", (0, 9), 10)],
    [
        tz.Attr("v", "float64"), tz.Attr("f", "float32"), tz.Attr("n", "int64", nullable=True),
        tz.Attr("tag", "utf8", nullable=True),
    ],
    capacity=64,
)  # fmt: skip


def fill(path, schema=SCHEMA, n=60):
    array = tz.create(str(path), schema)
    k = np.arange(n)
    array.write(
        {
            "x": k, "y": (k % 5).astype(np.int32), "v": np.where(k % 7 == 0, np.nan, k / 2),
            "f": (k / 10).astype(np.float32), "n": [None if each % 6 == 0 else int(each) * 3 for each in k],
            "tag": [None if each % 4 == 0 else f"t{each % 3}" for each in k],
        }
    )  # fmt: skip
    return array


def rows(df):
    return sorted(map(repr, map(tuple, df.collect())))


def commits(array):
    return sorted(each.key.rpartition(".")[2] for each in array.view.store.list("__commits"))


# -- what goes down ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "columns", "where"),
    [
        ("SELECT v FROM a WHERE x > 5 OR tag = 't1'", "x v tag", "(`x` > 5) OR (`tag` = 't1')"),
        ("SELECT count(*) FROM a", "x", None),
        ("SELECT * FROM a WHERE n IS NOT NULL AND abs(x) = 3", "x y v f n tag", "`n` IS NOT NULL"),
        ("SELECT X FROM a WHERE V < 3 AND V > 1", "x v", "`v` < 3"),
        ("SELECT x FROM a WHERE NOT (v > 3 OR n = 1)", "x v n", "(`v` <= 3) AND (`n` <> 1)"),
        ("SELECT x FROM a WHERE v > 3 OR n = 1", "x v n", None),
        ("SELECT x FROM a WHERE v BETWEEN 1 AND 2.5", "x v", "(`v` >= 1) AND (`v` <= 2.5)"),
        ("SELECT x FROM a WHERE f < 0.7", "x f", None),  # 0.7 is no float32: Spark compares doubles
        ("SELECT x FROM a WHERE f < 1e999 AND f = 1" + "0" * 400, "x f", None),
        ("SELECT x FROM a WHERE f < 0.5", "x f", "`f` < 0.5"),
        ("SELECT x FROM a WHERE n + 1 = 3 AND x = y AND tag = 5 AND x = '7'", "x y n tag", None),
        ("SELECT p.v FROM a AS p, b WHERE b.x = p.x AND b.tag = 'q' AND p.y = 2", "x y v", "`y` = 2"),
        ("SELECT a.v FROM b LEFT JOIN a ON a.x = b.x AND a.y = 1 WHERE a.n = 2", "x y v n", "`y` = 1"),
        ("SELECT a.v FROM a LEFT JOIN b ON a.x = b.x AND a.y = 1 WHERE a.n = 2", "x y v n", "`n` = 2"),
        ("SELECT a.v FROM a FULL JOIN b ON a.x = b.x AND a.y = 1 WHERE a.n = 2", "x y v n", None),
        ("SELECT a.v FROM a RIGHT JOIN b ON a.x = b.x AND a.y = 1 WHERE a.n = 2", "x y v n", None),
        ("SELECT 1 FROM b LEFT ANTI JOIN a ON a.x = b.x AND a.y = 1", "x y", "`y` = 1"),
        ("SELECT * FROM (SELECT x FROM a LIMIT 5) WHERE x > 3", "x", None),
        ("WITH c AS (SELECT x, v FROM a WHERE y = 1) SELECT max(v) FROM c WHERE x > 3", "x y v", "`y` = 1"),
        ("SELECT b.* FROM b WHERE EXISTS (SELECT 1 FROM a WHERE a.x = b.x AND n IN (1, 2))", "x n", "`n` IN (1, 2)"),
        ("SELECT x FROM a TABLESAMPLE (10 ROWS) WHERE y = 1", "x y v f n tag", None),
        ("SELECT v FROM a NATURAL JOIN b WHERE y = 1", "x y v f n tag", None),
        ("SELECT q FROM a AS t(p, q, r, s, u, w) WHERE x = 1", "x y v f n tag", None),
    ],
)  # fmt: skip
def test_a_query_reads_what_it_names_and_no_more_than_its_conditions_let_through(text, columns, where):
    aliased = re.search(r"a AS|TABLESAMPLE", text) is not None
    text = re.sub(r"(?<=FROM |JOIN )a\b", "__terrazzo_0" if aliased else "__terrazzo_0 AS a", text)

    found = demand(parsed(text), "__terrazzo_0", SCHEMA, utc=True)

    assert " ".join(found.columns) == columns
    assert found.where == (None if where is None else f"({where})")


QUERIES = [
    "SELECT * FROM {a}",
    "SELECT v, tag FROM {a} AS t WHERE t.x > 20 AND (t.v >= 12 OR t.tag = 't1') AND NOT t.v = 15",
    "SELECT tag, count(*), sum(n), max(v) FROM {a} WHERE v > 3 OR n IS NULL GROUP BY tag HAVING count(*) > 1",
    "SELECT p.x, q.v, q.tag FROM {a} p LEFT JOIN {b} q ON p.x = q.x AND q.y < 3 WHERE p.y <> 1 ORDER BY 1",
    "SELECT p.x, q.x FROM {a} p FULL OUTER JOIN {b} q ON p.x = q.x AND p.v < 10 WHERE p.y = 1 OR q.y = 2",
    "WITH c AS (SELECT x, v, f FROM {a} WHERE f < 0.7) SELECT c.* FROM c WHERE x IN (SELECT x FROM {b} WHERE v <= 9)",
    "SELECT x, row_number() OVER (PARTITION BY y ORDER BY x) FROM {a} WHERE tag NOT IN ('t1') OR v = double('nan')",
    "SELECT x FROM {a} WHERE n > 30 UNION ALL SELECT x FROM {b} WHERE v != 4 AND tag LIKE 't%'",
    "SELECT count(*), '{{}}' AS braces FROM {a} WHERE v > 1 AND v < 1e9",
]


def test_queries_answer_as_spark_does_over_the_same_rows(spark, tmp_path):
    one, two = fill(tmp_path / "a"), fill(tmp_path / "b", n=30)
    two.delete("x = 11")
    two.update({"v": 4.5}, "x IN (12, 14)")
    spark.createDataFrame(one.read()).createOrReplaceTempView("plain_a")
    spark.createDataFrame(two.read()).createOrReplaceTempView("plain_b")

    for text in QUERIES:
        found = sql(spark, text.format(a=f"tiledb.`{one.uri}`", b=f"tiledb.`{two.uri}`"))
        wanted = spark.sql(text.format(a="plain_a", b="plain_b"))
        assert found.columns == wanted.columns
        assert rows(found) == rows(wanted), text
    assert not [each.name for each in spark.catalog.listTables() if "terrazzo" in each.name]


# -- changes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dups", [False, True])
def test_changes_leave_what_spark_would_leave(spark, tmp_path, dups):
    schema = tz.Schema(SCHEMA.dims, SCHEMA.attrs, capacity=64, allows_duplicates=dups)
    array = fill(tmp_path / "a", schema)
    if dups:
        more = {"x": [3, 3], "y": np.int32([3, 3]), "v": [NAN, 1.0], "f": np.float32([0, 1]), "n": [None, 5]}
        array.write({**more, "tag": [None, "t0"]})
    wanted = spark.createDataFrame(array.read())

    def step(text, wanted, **new):
        n = len(commits(array))
        told = sql(spark, text.format(a=f"tiledb.`{array.uri}`")).first()
        assert told["num_affected_rows"] > 0
        assert len(commits(array)) == n + 1, text
        hit = f"coalesce({text.partition(' WHERE ')[2].replace('t.', '')}, false)"
        if text.startswith("DELETE"):
            return wanted.where(f"NOT {hit}")
        return wanted.selectExpr(
            *(f"if({hit}, {new[c]}, {c}) AS {c}" if c in new else c for c in wanted.columns)
        )

    wanted = step("DELETE FROM {a} WHERE n > 100 AND tag = 't1'", wanted)
    wanted = step("DELETE FROM {a} AS t WHERE t.v > 25", wanted)  # and with them NaN
    if not dups:
        wanted = step("DELETE FROM {a} WHERE x % 10 = 1 OR n = x * 3 AND y = 2", wanted)
        wanted = step("UPDATE {a} SET tag = 'new', n = NULL WHERE y = 3", wanted, tag="'new'", n="NULL")
        wanted = step("UPDATE {a} t SET v = t.v + x WHERE t.tag = 'new'", wanted, v="v + x")
    wanted = step("UPDATE {a} SET v = (SELECT max(id) FROM range(8)) WHERE length(tag) = 2", wanted, v="7D")
    assert rows(sql(spark, f"SELECT * FROM tiledb.`{array.uri}`")) == rows(wanted)


def test_inserts_fill_columns_by_place_and_by_name(spark, tmp_path):
    array = fill(tmp_path / "a", n=3)
    mine, then = f"tiledb.`{array.uri}`", array.fragments[-1].name.end_ms

    told = sql(spark, f"INSERT INTO {mine} (y, x, v, f) VALUES (1, 100, 2, 0.5), (2, 101, 3, 0.25)").first()
    assert told["num_inserted_rows"] == 2
    sql(
        spark,
        f"WITH c AS (SELECT 200 AS x, 1 AS y) INSERT INTO {mine} SELECT x, y, v, 1, 7, 'q' FROM c, (SELECT max(v) AS v FROM {mine} WHERE v <= 3)",
    )
    found = array.refresh().read(region={"x": (100, 200)}, order="row-major").to_pylist()
    assert [tuple(row.values()) for row in found] == [
        (100, 1, 2.0, 0.5, None, None), (101, 2, 3.0, 0.25, None, None), (200, 1, 3.0, 1.0, 7, "q"),
    ] or found[2]["v"] != found[2]["v"]  # fmt: skip
    assert commits(array) == ["wrt", "wrt", "wrt"]
    past = f"SELECT count(*), (SELECT count(*) FROM {mine}) FROM {mine} VERSION AS OF {then} AS p WHERE p.x < 150"
    assert tuple(sql(spark, past).first()) == (3, 6)
    for text, problem in [
        ("VALUES (1, 2)", "2 columns, and 6"),
        ("(x, y, v) VALUES (1, 2, 3)", "no value for 'f'"),
        ("(x, y, v, f, q) VALUES (1, 2, 3, 4, 5)", "'q'"),
        ("(x, y, v, f) VALUES (1, 2.5, 3, 4)", "'y' cannot be set to 2.5"),
    ]:
        with pytest.raises(tz.InvalidRequestError, match=problem):
            sql(spark, f"INSERT INTO {mine} {text}")
    assert len(commits(array)) == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("DELETE FROM {a} WHERE nowhere = 1", "nowhere"),
        ("UPDATE {a} SET x = 1", "is a dimension"),
        ("UPDATE {a} SET q = 1", "'q'"),
        ("MERGE INTO {a} t USING {a} s ON t.x = s.x WHEN MATCHED THEN DELETE", "lacks the dimensions 'y'"),
        ("MERGE INTO {a} t USING {a} s ON t.x = s.x AND t.y = s.y AND t.v = 1 WHEN MATCHED THEN DELETE", "WHEN MATCHED AND"),
        ("SELECT * FROM tiledb.`/nowhere/at/all`", "there is no array"),
        ("SELECT * FROM {a} TIMESTAMP AS OF now()", "an instant"),
        ("SELECT nowhere FROM {a}", "nowhere"),
        ("VACUUM {a} RETAIN 5 MOONS", "not understood"),
        ("EXPLAIN DELETE FROM {a}", "explain its SELECT"),
        ("OPTIMIZE {a} (speed = 11)", "'speed'"),
        ("CREATE TABLE {a} (x INT) USING tiledb OPTIONS (dims 'x')", "already"),
        ("CREATE TABLE tiledb.`new-one` (x INT) USING tiledb", "dims"),
        ("CREATE OR REPLACE TABLE {a} (x INT) USING tiledb OPTIONS (dims 'x')", "INSERT OVERWRITE"),
        ("ALTER TABLE {a} DROP COLUMN v", "not understood|sql"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line_and_change_nothing(spark, tmp_path, text, problem):
    array = fill(tmp_path / "a", n=5)

    with pytest.raises(tz.TerrazzoError, match=problem) as caught:
        sql(spark, text.format(a=f"tiledb.`{array.uri}`"))
    assert "\n" not in str(caught.value)
    assert commits(array) == ["wrt"]


# -- the guide -----------------------------------------------------------------------------------------


def test_every_example_of_the_guide_runs(spark, tmp_path):
    guide = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
    examples = re.findall(r"```sql\n(.*?)```", guide, re.DOTALL)
    told = []
    try:
        for text in examples:
            told.append(sql(spark, text.replace("/data/", f"{tmp_path}/")))
            if text.startswith("SELECT p.tag"):
                assert rows(told[-1]) == rows(
                    spark.createDataFrame(
                        [("a", 0.5, 1), ("b", 1.5, 1), (None, 11.5, 4)], "tag string, s double, n int"
                    )
                )
        assert sql(spark, "SELECT count(*) FROM totals AS t WHERE t.day < 5").first()[0] == 5
    finally:
        spark.sql("DROP TABLE IF EXISTS totals")

    words = [" ".join(text.split()[:2]) for text in examples]
    assert told[words.index("EXPLAIN SELECT")].first()[0].startswith("== Arrays ==")
    assert "columns: x, v" in told[words.index("EXPLAIN SELECT")].first()[0]
    merged = told[words.index("MERGE INTO")].first()
    assert (merged["num_inserted_rows"], merged["num_updated_rows"], merged["num_deleted_rows"]) == (5, 4, 1)
    assert told[words.index("DESCRIBE HISTORY")].count() > 8
    assert len(list((tmp_path / "points" / "__fragments").iterdir())) > 3
    assert tz.open(str(tmp_path / "totals")).count() == 20
    array = tz.open(str(tmp_path / "points"))
    assert array.count("tag = 'merged'") == 5
    assert array.count("x IN (2, 3, 12, 35)") == 0
    assert array.read(where="x = 11").column("tag").to_pylist() == ["new!"]
