"""Spark: arrays beside Parquet on the same session, and beside libtiledb inside mapInArrow.

Ten columns: two int64 dimensions and eight float64 attributes. A ratio above 1 means that terrazzo is faster. Each
number of cores is a session of its own in a process of its own. `SMALL=1` runs a tenth of the rows, `ROWS=…` as many as it says.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SMALL = bool(os.environ.get("SMALL"))
ROWS = int(os.environ.get("ROWS") or (1_000_000 if SMALL else 10_000_000))
PIECES = 200
SIDE = 100_000
COLUMNS = ["x", "y", *(f"v{i}" for i in range(8))]


def seconds(work: Callable[[], object], repeats: int = 1) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def sample(spark: Any, rows: int, first: int = 0) -> Any:
    """Rows in no order: every place once."""
    place = f"((id + {first}) * 7919 % {ROWS * 2 + 1})"
    values = [f"rand({i}) AS v{i}" for i in range(8)]
    spread = SIDE * SIDE // (ROWS * 2 + 1)
    frame = spark.range(rows).selectExpr(f"{place} * {spread} AS flat", *values)
    return frame.selectExpr(f"flat div {SIDE} AS x", f"flat % {SIDE} AS y", *(f"v{i}" for i in range(8)))


def their_scan(uri: str, box: tuple[int, int] | None, pieces: int) -> Callable[[Any], Any]:
    """libtiledb in a task: each reads its strip of x."""

    def run(batches: Any) -> Any:
        import pyarrow as pa
        import tiledb

        low, high = box or (0, SIDE - 1)
        for batch in batches:
            for place in batch.column(0).to_pylist():
                a, b = (
                    low + (high - low + 1) * place // pieces,
                    low + (high - low + 1) * (place + 1) // pieces - 1,
                )
                ys = slice(None) if box is None else slice(*box)
                with tiledb.open(uri) as array:
                    found = array.multi_index[a:b, ys]
                table = pa.table({name: found[name] for name in COLUMNS})
                yield from table.to_batches(max_chunksize=250_000)

    return run


def measure(cores: int, folder: Path) -> dict[str, float]:
    import numpy as np

    import terrazzo as tz
    from terrazzo.spark import SparkArray, session, write

    spark = session(
        f"local[{cores}]",
        settings={
            "spark.sql.shuffle.partitions": "4", "spark.driver.memory": "4g",
            "spark.ui.showConsoleProgress": "false",
        },
    )  # fmt: skip
    spark.range(10).mapInArrow(
        lambda batches: batches, "id bigint"
    ).count()  # the first Python worker is slow
    uri, parquet, unsorted = str(folder / "array"), str(folder / "sorted"), str(folder / "unsorted")
    data = sample(spark, ROWS)
    data.write.mode("overwrite").parquet(unsorted)
    data = spark.read.parquet(unsorted)
    found: dict[str, float] = {}
    zstd = {name: [tz.filters.Zstd()] for name in COLUMNS}
    bounds = {"x": (0, SIDE - 1), "y": (0, SIDE - 1)}
    shutil.rmtree(uri, ignore_errors=True)
    found["ingest"] = seconds(
        lambda: write(
            data, uri, dims=["x", "y"], domain=bounds, tile={"x": 1000, "y": 1000}, filters=zstd, partitions=4
        )
    )
    order = ["x div 1000", "y div 1000", "x", "y"]
    found["ingest parquet"] = seconds(
        lambda: data.repartitionByRange(4, *map(_expression, order))
        .sortWithinPartitions(*map(_expression, order))
        .write.mode("overwrite").option("compression", "zstd").parquet(parquet)
    )  # fmt: skip
    array = SparkArray(spark, uri)
    box = (30_000, 39_999)
    where = f"x BETWEEN {box[0]} AND {box[1]} AND y BETWEEN {box[0]} AND {box[1]}"
    wanted = spark.read.parquet(unsorted).where(where).count()
    assert array.count(where=where) == wanted

    def drain(df: Any) -> None:
        df.write.format("noop").mode("overwrite").save()

    found["scan"] = seconds(lambda: drain(array.to_df()), 2)
    found["scan source"] = seconds(lambda: drain(spark.read.format("tiledb").load(uri)), 2)
    found["scan parquet"] = seconds(lambda: drain(spark.read.parquet(unsorted)), 2)
    found["box"] = seconds(lambda: drain(array.to_df(where=where)), 3)
    found["box parquet"] = seconds(lambda: drain(spark.read.parquet(unsorted).where(where)), 3)
    found["sum"] = seconds(lambda: array.to_df(["v3"]).selectExpr("sum(v3)").collect(), 3)
    found["sum parquet"] = seconds(lambda: spark.read.parquet(unsorted).selectExpr("sum(v3)").collect(), 3)
    pieces = 8
    struct = array.to_df().schema
    tasks = spark.range(0, pieces, 1, pieces)
    found["scan libtiledb"] = seconds(lambda: drain(tasks.mapInArrow(their_scan(uri, None, pieces), struct)))
    found["box libtiledb"] = seconds(lambda: drain(tasks.mapInArrow(their_scan(uri, box, pieces), struct)), 2)
    fresh = sample(spark, ROWS // 10, ROWS - ROWS // 20).localCheckpoint()
    found["merge"] = seconds(
        lambda: array.merge(fresh).when_matched_update().when_not_matched_insert().execute()
    )

    def merge_parquet() -> None:
        old = spark.read.parquet(parquet)
        kept = old.join(fresh, ["x", "y"], "left_anti").select(COLUMNS).union(fresh.select(COLUMNS))
        kept.repartitionByRange(4, *map(_expression, order)).sortWithinPartitions(
            *map(_expression, order)
        ).write.mode("overwrite").option("compression", "zstd").parquet(str(folder / "merged"))

    found["merge parquet"] = seconds(merge_parquet)
    many = str(folder / "many")
    shutil.rmtree(many, ignore_errors=True)
    made = tz.create(many, array.schema)
    rng = np.random.default_rng(7)
    n = ROWS // 10 // PIECES * 4
    for piece in range(PIECES):
        flat = np.unique(rng.integers(0, SIDE * SIDE // PIECES, n)) * PIECES + piece
        cells = {"x": flat // SIDE, "y": flat % SIDE}
        made.write(cells | {f"v{i}": rng.random(len(flat)) for i in range(8)})
    SparkArray(spark, many).to_df(["v0"]).count()
    found["consolidate"] = seconds(lambda: SparkArray(spark, many).consolidate(max_fragment_size="32MiB"))
    spark.stop()
    return found


def _expression(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


def child(cores: int) -> dict[str, float]:
    folder = tempfile.mkdtemp(prefix="terrazzo-spark-")
    try:
        # As many cores as the session has: a task of ours would use all of the machine's otherwise.
        command = [sys.executable, __file__, "--child", str(cores), folder]
        if shutil.which("taskset"):
            command = ["taskset", "-c", f"0-{cores - 1}", *command]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        return json.loads(told.splitlines()[-1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rows() -> list[dict[str, object]]:
    by_cores = {cores: child(cores) for cores in (1, 2)}
    print(by_cores, file=sys.stderr)
    table: list[dict[str, object]] = []

    def add(what: str, ours: str, theirs: str, aim: str = "") -> None:
        for cores, found in by_cores.items():
            other = found.get(theirs)
            table.append(
                {
                    "what": what, "cores": cores, "terrazzo s": f"{found[ours]:.2f}", "beside": theirs.rsplit(maxsplit=1)[-1],
                    "its s": "" if other is None else f"{other:.2f}",
                    "times as fast": "" if other is None else f"{other / found[ours]:.2f}", "aim": aim,
                }
            )  # fmt: skip

    add(f"full scan of {ROWS:,} rows, ten columns", "scan", "scan parquet")
    add("the same through the format", "scan source", "scan parquet")
    add("the same", "scan", "scan libtiledb")
    add("box of 1 %", "box", "box parquet", "5")
    add("the same", "box", "box libtiledb")
    add("sum of one column of ten", "sum", "sum parquet")
    add(f"ingest {ROWS:,} rows, sorted", "ingest", "ingest parquet", "0.5")
    add(f"merge {ROWS // 10:,} rows into {ROWS:,}", "merge", "merge parquet")
    one, two = by_cores[1]["consolidate"], by_cores[2]["consolidate"]
    table.append(
        {
            "what": f"consolidate {PIECES} fragments", "cores": 2, "terrazzo s": f"{two:.2f}", "beside": "1 core",
            "its s": f"{one:.2f}", "times as fast": f"{one / two:.2f}", "aim": "1.6",
        }
    )  # fmt: skip
    return table


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(int(sys.argv[2]), Path(sys.argv[3]))))
    else:
        for each in rows():
            print(each)
