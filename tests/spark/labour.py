"""What the tests run in a process of its own, since one process has one session: `python labour.py <master> <folder>`.

A master `connect` is Spark Connect. Every step says what it found wrong; the last line is `done`.
"""

import os
import signal
import sys
import time
import warnings
from pathlib import Path

warnings.simplefilter("ignore")

import numpy as np  # noqa: E402
from pyspark.sql.functions import expr  # noqa: E402

import terrazzo as tz  # noqa: E402
from terrazzo.spark import SparkArray, session, write  # noqa: E402


def start(master, **settings):
    settings = {
        "spark.sql.shuffle.partitions": "3", "spark.executor.memory": "512m", "spark.driver.memory": "512m",
        "spark.ui.showConsoleProgress": "false", **{k.replace("_", "."): v for k, v in settings.items()},
    }  # fmt: skip
    if master == "connect":
        from pyspark.sql import SparkSession

        made = SparkSession.builder.remote("local[2]").getOrCreate()
        made.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        return made
    return session(master, settings=settings)


def rows(df):
    return sorted(tuple(row) for row in df.collect())


def same(found, wanted, what):
    assert found == wanted, f"{what}: {found} instead of {wanted}"


def everyday(spark, folder):
    """Create, append, read three ways, delete, consolidate."""
    uri = str(folder / "everyday")
    df = spark.range(2000).selectExpr("(id * 7919) % 10007 AS x", "id AS v", "concat('t', id % 7) AS tag")
    same(write(df, uri, dims=["x"], tile={"x": 100}).n_cells, 2000, "cells written")
    more = spark.range(100).selectExpr("20000 + id AS x", "id AS v", "'more' AS tag")
    more.write.format("tiledb").mode("append").save(uri)
    array = SparkArray(spark, uri)
    same(array.count(), 2100, "cells after the append")
    engine = sorted(zip(*array.array.read().to_pydict().values(), strict=True))
    same(rows(spark.read.format("tiledb").load(uri)), engine, "the format")
    same(rows(array.to_df()), engine, "to_df")
    pushed = spark.read.format("tiledb").load(uri).where("x > 500 AND tag = 't3'")
    same(rows(pushed), [row for row in engine if row[0] > 500 and row[2] == "t3"], "a filter")
    array.delete("tag = 't3'")
    kept = [row for row in engine if row[2] != "t3"]
    same(rows(array.to_df()), kept, "after the delete")
    for place in range(3):
        array.array.write({"x": [30_000 + place], "v": [place], "tag": ["late"]})
    array.consolidate(max_fragment_size="16KiB")
    same(len(rows(array.to_df())), len(kept) + 3, "after the consolidation")
    same(array.check(deep=True).ok, True, "the check")


def pipeline(spark, folder):
    """A merge, an update by expression, and a stream from one array to another."""
    uri, copy = str(folder / "pipeline"), str(folder / "copy")
    df = spark.range(300).selectExpr("id AS x", "id AS v")
    write(df, uri, dims=["x"])
    array = SparkArray(spark, uri)
    source = spark.range(200, 400).selectExpr("id AS x", "-id AS v")
    done = (
        array.merge(source)
        .when_matched_delete("source.x < 210")
        .when_matched_update()
        .when_not_matched_insert()
        .execute()
    )
    same((done.inserted, done.updated, done.deleted), (100, 90, 10), "the merge")
    same(array.count(), 390, "cells after the merge")
    array.update({"v": expr("v * 10")}, "x < 5")
    same(rows(array.to_df(where="x < 5")), [(k, 10 * k) for k in range(5)], "the update")
    stream = spark.readStream.format("tiledb").option("maxCommitsPerTrigger", 1).load(uri)
    query = (
        stream.writeStream.format("tiledb")
        .option("dims", "x").option("allows_duplicates", "true")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(copy)
    )  # fmt: skip
    query.awaitTermination(120)
    same(query.exception(), None, "the stream")
    same(tz.open(copy).count(where="v < 0"), 190, "cells of the merge in the copy")


def _once(marker):
    """Whether this is the first process to ask."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _attempt():
    from pyspark import TaskContext

    return TaskContext.get().attemptNumber()


def _failing_twice(batches):
    from pyspark import TaskContext

    yield from batches
    if TaskContext.get().partitionId() == 1 and _attempt() < 2:
        raise RuntimeError("this attempt fails after its cells were read")


def _killing(marker):
    def run(batches):
        yield from batches
        if _once(marker):
            # The worker's parent is Spark's Python daemon, and its parent the executor's Java.
            daemon = os.getppid()
            executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(executor, signal.SIGKILL)
            time.sleep(30)

    return run


def _dawdling(marker):
    def run(batches):
        yield from batches
        if _once(marker):
            time.sleep(25)

    return run


def faulty(spark, folder, name, step):
    """A write of four tasks with a fault in one of them: every cell once, at once."""
    uri = str(folder / name)
    df = spark.range(0, 400, 1, 4).selectExpr("id AS x", "id AS v")
    written = write(df.mapInArrow(step, df.schema), uri, dims=["x"], cluster=False)
    array = tz.open(uri)
    same(written.n_cells, 400, f"{name}: cells written")
    same(array.read(order="row-major").column("x").to_pylist(), list(range(400)), f"{name}: cells")
    same(len(list(Path(uri, "__commits").iterdir())), 1, f"{name}: commits")
    df.mapInArrow(step, df.schema).selectExpr("x + 1000 AS x", "v").write.format("tiledb").mode(
        "append"
    ).save(uri)
    same(tz.open(uri).count(), 800, f"{name}: cells after the second write")
    same(len(list(Path(uri, "__commits").iterdir())), 2, f"{name}: commits of both")


def faults(spark, folder):
    faulty(spark, folder, "failing-twice", _failing_twice)
    faulty(spark, folder, "killed-executor", _killing(str(folder / "killed")))


def dying(spark, folder):
    """The driver dies between the last task and the commit."""
    from terrazzo.engine.bulk import BulkWrite

    uri = str(folder / "dying")
    tz.create(uri, tz.Schema([tz.Dim("x", "int64", (0, 9999), 10)], [tz.Attr("v", "int64")])).write(
        {"x": np.arange(10), "v": np.arange(10)}
    )
    BulkWrite.commit = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    write(spark.range(100).selectExpr("100 + id AS x", "id AS v"), uri, mode="append", partitions=2)


def speculation(spark, folder):
    faulty(spark, folder, "speculation", _dawdling(str(folder / "slow")))


def main():
    master, folder, steps = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    more = {}
    if "speculation" in steps:
        more = {
            "spark_speculation": "true", "spark_speculation_interval": "200ms",
            "spark_speculation_minTaskRuntime": "1s", "spark_speculation_quantile": "0.5",
        }  # fmt: skip
    spark = start(master, **more)
    for step in steps:
        globals()[step](spark, folder)
        print(f"{step} done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
