"""Streams out of arrays and into arrays: cells lost 0, cells doubled 0."""

import json
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, ReadMaxRows

import terrazzo as tz
from terrazzo.engine.batches import batch_token, last_batch
from terrazzo.spark.failures import translated
from terrazzo.spark.source import TileDBSource
from terrazzo.spark.types import struct_of

LONG = "10000w"
"""A lateness that reaches back to the instants below."""


def made(path, *, duplicates=False):
    return tz.create(
        str(path),
        tz.Schema(
            [tz.Dim("x", "int64", (0, 9999), 100)],
            [tz.Attr("v", "int64"), tz.Attr("s", "utf8", nullable=True)],
            capacity=16,
            allows_duplicates=duplicates,
        ),
    )


def cells(first, n=10):
    x = np.arange(first, first + n)
    return {"x": x, "v": x * 2, "s": [None if k % 3 else f"s{k}" for k in x]}


def rows(table):
    return Counter((row["x"], row["v"], row["s"]) for row in table.to_pylist())


def expected(*firsts, n=10):
    return sum((rows(pa.table(cells(first, n))) for first in firsts), Counter())


# -- without a session: what Spark calls, called -------------------------------------------------------


def source(uri, **options):
    made_ = TileDBSource({"path": uri, **options})
    return made_.streamReader(made_.schema())


def batch_of(reader, start, end):
    batches = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
    return pa.Table.from_batches(batches) if batches else pa.table(cells(0, 0))


def offset(reader, start):
    """The next offset, as it looks after a restart."""
    found = reader.latestOffset(start, reader.getDefaultReadLimit())
    return json.loads(json.dumps(found))


def test_a_batch_holds_what_was_committed_since_the_last_one(tmp_path):
    array = made(tmp_path / "a")
    array.write(cells(0))
    reader = source(array.uri, partition_size="256")
    first = offset(reader, reader.initialOffset())

    assert len(reader.partitions(reader.initialOffset(), first)) == 1
    assert rows(batch_of(reader, reader.initialOffset(), first)) == expected(0)
    assert offset(reader, first) == first
    assert reader.partitions(first, first) == []
    array.write(cells(100, 64))
    second = offset(reader, first)
    assert len(reader.partitions(first, second)) > 1
    assert rows(batch_of(reader, first, second)) == expected(100, n=64)


def test_options_choose_where_to_start_and_what_to_read(tmp_path):
    array = made(tmp_path / "a")
    for i in range(4):
        array.write(cells(100 * i), at=1000 + i)
    options = {"startAt": "1001", "columns": "v", "where": "v < 620 AND s IS NULL", "region.x": "103:9999"}
    reader = source(array.uri, **options)
    end = offset(reader, reader.initialOffset())

    found = batch_of(reader, reader.initialOffset(), end)
    assert found.column_names == ["v"]
    wanted = array.read(columns=["v"], where="x >= 103 AND v < 620 AND s IS NULL")
    assert sorted(found["v"].to_pylist()) == sorted(wanted["v"].to_pylist())


def test_limits_bound_a_batch_unless_spark_asks_for_all(tmp_path):
    array = made(tmp_path / "a")
    for i in range(4):
        array.write(cells(100 * i))
    by_cells, by_commits = (
        source(array.uri, maxCellsPerTrigger="25"),
        source(array.uri, maxCommitsPerTrigger="1"),
    )
    start = by_cells.initialOffset()

    assert by_cells.getDefaultReadLimit() == ReadMaxRows(25)
    assert by_commits.getDefaultReadLimit() == ReadMaxFiles(1)
    assert rows(batch_of(by_cells, start, offset(by_cells, start))) == expected(0, 100)
    assert rows(batch_of(by_commits, start, offset(by_commits, start))) == expected(0)
    everything = by_commits.latestOffset(start, ReadAllAvailable())
    assert rows(batch_of(by_commits, start, everything)) == expected(0, 100, 200, 300)


def test_available_now_ends_with_what_was_there(tmp_path):
    array = made(tmp_path / "a")
    array.write(cells(0))
    reader = source(array.uri)
    reader.prepareForTriggerAvailableNow()
    array.write(cells(100))
    start = reader.initialOffset()
    end = offset(reader, start)

    assert rows(batch_of(reader, start, end)) == expected(0)
    assert offset(reader, end) == end


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startAt": "soon"}, "startAt='soon'"),
        ({"lateness": "long"}, "lateness='long'"),
        ({"maxCellsPerTrigger": "0"}, "maxcellspertrigger='0'"),
        ({"where": "zz > 1"}, "zz"),
        ({"region.q": "1:2"}, "q"),
        ({"changes": "perhaps"}, "changes='perhaps'"),
        ({"at": "5"}, "there is no option 'at'"),
    ],
)
def test_mistakes_are_told_before_the_query_starts(tmp_path, options, told):
    array = made(tmp_path / "a")

    with pytest.raises(tz.InvalidRequestError) as caught:
        source(array.uri, **options)
    assert told in str(caught.value)


def sink(array, *, overwrite=False):
    return TileDBSource({"path": array.uri}).streamWriter(struct_of(array.schema, ["x", "v", "s"]), overwrite)


def folders(path):
    return sorted(each.name for each in (path / "__fragments").glob("*"))


def commits(path):
    return sorted(each.suffix for each in (path / "__commits").iterdir())


def test_a_batch_committed_twice_is_in_the_array_once(tmp_path):
    array = made(tmp_path / "a", duplicates=True)
    writer = sink(array)
    messages = [writer.run(cells(0), "query", 0), writer.run(cells(50), "query", 0)]

    writer.commit(messages, 0)
    writer.commit(messages, 0)
    assert rows(array.refresh().read()) == expected(0, 50)
    assert commits(tmp_path / "a") == [".con", ".stream"]
    again = sink(array)
    again.commit([again.run(cells(0), "query", 0), again.run(cells(50), "query", 0)], 0)
    assert rows(array.refresh().read()) == expected(0, 50)
    assert len(folders(tmp_path / "a")) == 2  # the second attempt left nothing behind
    other = sink(array)
    other.commit([other.run(cells(0), "another query", 0)], 0)
    assert rows(array.refresh().read()) == expected(0, 0, 50)


@pytest.mark.parametrize("noted", [True, False])
def test_a_batch_tried_again_is_known_by_either_trace(tmp_path, noted):
    array = made(tmp_path / "a", duplicates=True)
    for batch in range(2):
        writer = sink(array)
        writer.commit([writer.run(cells(10 * batch), "query", batch)], batch)
    assert last_batch(array.view.store, "query") == 1
    if noted:  # the names are gone
        array.consolidate()
        array.consolidate_commits()
        array.vacuum(retain=0)
        assert not any(batch_token("query", 1) in name for name in folders(tmp_path / "a"))
    else:  # the driver died between the commit and the note
        next((tmp_path / "a" / "__commits").glob("*.stream")).unlink()
        array.consolidate_commits()

    writer = sink(array)
    writer.commit([writer.run(cells(10), "query", 1)], 1)
    assert rows(array.refresh().read()) == expected(0, 10)
    assert last_batch(array.view.store, "query") == 1
    assert not array.check().findings


def test_an_abort_removes_what_is_not_committed_and_nothing_else(tmp_path):
    array = made(tmp_path / "a", duplicates=True)
    writer = sink(array)
    messages = [writer.run(cells(0), "query", 0), writer.run(cells(50), "query", 0)]
    lost = sink(array)
    lost.abort([lost.run(cells(0), "query", 1), None], 1)

    assert len(folders(tmp_path / "a")) == 2
    with pytest.raises(tz.ConflictError, match="lost on the way"):
        writer.commit([*messages, None], 0)
    assert array.refresh().count() == 0
    writer.commit(messages, 0)
    writer.abort(messages, 0)  # Spark took the commit for a failure
    assert rows(array.refresh().read()) == expected(0, 50)


def test_overwriting_batches_replace_each_other(tmp_path):
    array = made(tmp_path / "a")
    for batch, first in enumerate((0, 50, 50)):
        writer = sink(array, overwrite=True)
        writer.commit([writer.run(cells(first), "query", min(batch, 1))], min(batch, 1))

    assert rows(array.refresh().read()) == expected(50)
    assert commits(tmp_path / "a") == [".con", ".con", ".stream"]


def test_libtiledb_reads_and_maintains_an_array_that_a_stream_wrote(tmp_path):
    tiledb = pytest.importorskip("tiledb")
    array = made(tmp_path / "a", duplicates=True)
    for batch in range(2):
        writer = sink(array)
        writer.commit([writer.run(cells(10 * batch), "query", batch)], batch)

    for mode in ("commits", "fragments"):
        config = tiledb.Config({"sm.consolidation.mode": mode, "sm.vacuum.mode": mode})
        tiledb.consolidate(array.uri, config=config)
        tiledb.vacuum(array.uri, config=config)
    with tiledb.open(array.uri) as theirs:
        assert len(theirs[:]["x"]) == 20
    assert rows(array.refresh().read()) == expected(0, 10)
    assert last_batch(array.view.store, "query") == 1


# -- with a session ------------------------------------------------------------------------------------


def run(spark, array, target, checkpoint, **options):
    """Stream what is there into an array; the number of rows of each batch."""
    df = spark.readStream.format("tiledb").options(**options).load(array.uri)
    query = (
        df.writeStream.format("tiledb")
        .option("checkpointLocation", str(checkpoint))
        .options(**{"dims": "x", "domain.x": "0:9999", "tile.x": "100", "allows_duplicates": "true"})
        .trigger(availableNow=True)
        .start(str(target))
    )
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress]


def test_an_array_streams_into_another_across_restarts_and_maintenance(spark, tmp_path):
    array, target, checkpoint = made(tmp_path / "a"), tmp_path / "b", tmp_path / "checkpoint"
    for i in range(3):
        array.write(cells(100 * i), at=1000 + 10 * i)

    assert run(spark, array, target, checkpoint, lateness=LONG, maxCommitsPerTrigger=2) == [20, 10]
    array.write(cells(500), at=1005)  # late
    array.consolidate()
    array.vacuum(retain=0)
    array.write(cells(600), at=2000)
    assert run(spark, array, target, checkpoint, lateness=LONG) == [20]
    copy = tz.open(str(target))
    assert rows(copy.read()) == rows(array.read()) == expected(0, 100, 200, 500, 600)

    # The driver died after the commit to the array and before Spark noted it.
    for trace in (checkpoint / "commits").glob("*2*"):
        trace.unlink()
    copy.consolidate()
    copy.vacuum(retain=0)
    array.write(cells(700), at=1001)
    run(spark, array, target, checkpoint, lateness=LONG)
    assert rows(copy.refresh().read()) == rows(array.read())


@pytest.mark.parametrize("forgotten", [False, True], ids=["stopped", "stopped before Spark noted the batch"])
def test_a_stream_that_is_stopped_at_every_batch_loses_and_doubles_nothing(spark, tmp_path, forgotten):
    array, target, checkpoint = made(tmp_path / "a"), tmp_path / "b", tmp_path / "checkpoint"
    firsts = [100 * i for i in range(4)]
    for i, first in enumerate(firsts):
        array.write(cells(first), at=1000 + 10 * i)
    done, counts, redone = 0, set[int](), set[int]()
    for _ in range(40):
        df = spark.readStream.format("tiledb").options(lateness=LONG, maxCommitsPerTrigger=1).load(array.uri)
        query = (
            df.writeStream.format("tiledb")
            .option("checkpointLocation", str(checkpoint))
            .options(**{"dims": "x", "domain.x": "0:9999", "tile.x": "100", "allows_duplicates": "true"})
            .start(str(target))
        )
        patience = time.monotonic() + 60
        while query.isActive and time.monotonic() < patience and len(noted(checkpoint)) <= done:
            time.sleep(0.02)
        query.stop()
        done = len(noted(checkpoint))
        counts.add(tz.open(str(target)).count())
        if forgotten and done not in redone:
            redone.add(done)
            noted(checkpoint)[-1].unlink()
            done -= 1
        if done == len(firsts):
            break

    assert rows(tz.open(str(target)).read()) == expected(*firsts)
    assert all(count % 10 == 0 for count in counts)
    assert len(redone) == (len(firsts) if forgotten else 0)


def noted(checkpoint):
    """What Spark wrote down of the batches that were committed."""
    return sorted(checkpoint.glob("commits/[0-9]*"), key=lambda path: int(path.name))


def test_a_failing_task_commits_nothing_and_is_told(spark, tmp_path):
    array = made(tmp_path / "a")
    array.write(cells(0))
    narrow = tz.create(
        str(tmp_path / "b"), tz.Schema([tz.Dim("x", "int64", (0, 99), 10)], [tz.Attr("v", "uint8")])
    )
    df = spark.readStream.format("tiledb").option("columns", "x,v").load(array.uri)
    query = (
        df.selectExpr("x", "CAST(v * 100 AS int) AS v")
        .writeStream.format("tiledb")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(narrow.uri)
    )

    with pytest.raises(Exception, match="column 'v'") as caught:
        query.awaitTermination()
    assert isinstance(translated(caught.value), tz.InvalidRequestError)
    assert narrow.refresh().count() == 0
    assert not folders(tmp_path / "b")


def test_the_change_feed_tells_values_before_and_after(spark, tmp_path):
    array = made(tmp_path / "a")
    array.write(cells(0, 4))
    array.update({"v": -1}, "x = 2")
    array.delete("x = 3")

    df = spark.readStream.format("tiledb").options(changes="true", lateness="0").load(array.uri)
    checkpoint = str(tmp_path / "checkpoint")

    def told():
        writer = (
            df.writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
        )
        writer.start(str(tmp_path / "out")).awaitTermination()
        return sorted(tuple(row)[:3] for row in spark.read.parquet(str(tmp_path / "out")).collect())

    assert df.columns == ["_change", "x", "v", "s"]
    first = [("insert", 0, 0), ("insert", 1, 2), ("insert", 2, -1)]
    assert told() == first
    array.write(cells(1, 1) | {"v": [7]})
    array.delete("x = 0")
    array.consolidate()
    array.vacuum(retain=0)
    assert told() == sorted([*first, ("delete", 0, 0), ("update_before", 1, 2), ("update_after", 1, 7)])


def test_complete_mode_replaces_the_array_with_each_batch(spark, tmp_path):
    array = made(tmp_path / "a")
    for i in range(2):
        array.write(cells(100 * i), at=1000 + i)
    df = spark.readStream.format("tiledb").option("maxCommitsPerTrigger", 1).load(array.uri)
    query = (
        df.groupBy((df.x % 2).alias("x"))
        .count()
        .writeStream.format("tiledb")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .options(**{"dims": "x", "domain.x": "0:9", "tile.x": "10"})
        .trigger(availableNow=True)
        .start(str(tmp_path / "b"))
    )
    query.awaitTermination()

    found = tz.open(str(tmp_path / "b")).read(order="row-major").to_pylist()
    assert found == [{"x": 0, "count": 10}, {"x": 1, "count": 10}]
