"""`terrazzo demo`: the life of an array on an embedded Spark, one line for each step."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer


def demo(
    folder: Annotated[
        str, typer.Argument(metavar="[FOLDER]", help="where to put the array, and leave it")
    ] = "terrazzo-demo",
    master: Annotated[
        str, typer.Option("--master", metavar="URL", help="where Spark runs; on this machine if not given")
    ] = "local[*]",
) -> None:
    """Ingest 336,776 flights through Spark, query, correct, thin out, travel in time, consolidate, export, and draw."""
    from terrazzo.errors import ArrayExistsError

    place = Path(folder)
    if place.exists() and any(place.iterdir()):
        raise ArrayExistsError(f"{folder} is not empty; choose another folder, or remove it")
    place.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    _run(place, master)
    print(f"\nAll of it took {time.monotonic() - start:.0f} s. Look around with:")
    print(f"  terrazzo info {place / 'flights'}\n  terrazzo history {place / 'flights'}")


class _Line:
    """A step: what it did, how many cells, how fast, and what lies in the folder then."""

    def __init__(self, uri: Path) -> None:
        self.uri, self.step = uri, 0

    @contextmanager
    def __call__(self, what: str) -> Iterator[dict[str, Any]]:
        self.step += 1
        told: dict[str, Any] = {}
        start = time.monotonic()
        yield told
        took = time.monotonic() - start
        cells = told.get("cells")
        rate = f" at {cells / took / 1000:,.0f} k cells/s" if cells and told.get("rate", True) else ""
        amount = "" if cells is None else f": {cells:,} cells"
        more = f", {told['more']}" if "more" in told else ""
        print(
            f"{self.step:>2}. {what}{amount}{more} in {took:.1f} s{rate}; {folder_text(self.uri)}", flush=True
        )


def folder_text(uri: Path) -> str:
    """What lies in the folder of an array, in a few words."""
    if not uri.exists():
        return "no array yet"
    fragments = sum(1 for _ in (uri / "__fragments").iterdir()) if (uri / "__fragments").exists() else 0
    commits: dict[str, int] = {}
    for each in (uri / "__commits").iterdir() if (uri / "__commits").exists() else ():
        commits[each.suffix] = commits.get(each.suffix, 0) + 1
    size = sum((Path(at) / name).stat().st_size for at, _, names in os.walk(uri) for name in names)
    told = ", ".join(f"{n} {suffix}" for suffix, n in sorted(commits.items()))
    return f"{fragments} fragment{'s' * (fragments != 1)}, {told or 'no commit'}, {size / 1e6:.1f} MB"


def _run(place: Path, master: str) -> None:
    from terrazzo.cli.flights import COLUMNS, flights_schema, unpack_flights
    from terrazzo.spark import SparkArray, session, write
    from terrazzo.spark.jobs import export_files, read_files

    uri = place / "flights"
    line = _Line(uri)
    csv = unpack_flights(place)
    with line("Start Spark"):
        spark = session(
            master,
            settings={"spark.sql.shuffle.partitions": "4", "spark.ui.showConsoleProgress": "false"},
        )
    try:
        df = read_files(spark, [str(csv)], "csv").selectExpr(*COLUMNS)
        with line("Ingest the first half of 2013") as told:
            half = df.where("time < TIMESTAMP_NTZ '2013-07-01'")
            told["cells"] = write(half, str(uri), schema=flights_schema(), partitions=3).n_cells
        with line("Append the second half") as told:
            rest = df.where("time >= TIMESTAMP_NTZ '2013-07-01'")
            told["cells"] = write(rest, str(uri), mode="append", partitions=3).n_cells
        array = SparkArray(spark, str(uri))
        before = array.array.fragments[-1].name.end_ms
        with line("Read a box (JFK in July)") as told:
            box = {"time": ("2013-07-01", "2013-07-31T23:59:59"), "origin": ["JFK"]}
            july = array.to_df(["dest", "delay"], region=box)
            told["cells"], told["rate"] = july.count(), False
        with line("Aggregate by a condition") as told:
            late = array.to_df(["carrier", "delay"], where="delay > 60 AND distance < 500")
            worst = late.groupBy("carrier").count().orderBy("count", ascending=False).first()
            told["more"] = f"{worst['carrier']} has most short flights that were late, {worst['count']:,}"
        with line("Update: carrier 'FL' became 'WN'") as told:
            told["cells"], told["rate"] = array.count(where="carrier = 'FL'"), False
            array.update({"carrier": "WN"}, "carrier = 'FL'")
            told["more"] = "in one small file"
        with line("Delete the flights that never departed") as told:
            told["cells"], told["rate"] = array.count(where="departed IS NULL"), False
            array.delete("departed IS NULL")
        with line("Travel back to before the corrections") as told:
            told["cells"], told["rate"] = array.to_df(["flight"], at=before).count(), False
            told["more"] = f"and {array.count():,} now"
        with line("Consolidate on the executors") as told:
            told["cells"] = array.count()
            array.consolidate(max_fragment_size="1MB")
        with line("Vacuum what was replaced"):
            array.vacuum(retain=0)
        with line("Export to Parquet") as told:
            done = export_files(spark, array.array, str(place / "parquet"))
            told["cells"], told["more"] = done.cells, f"{done.size / 1e6:.1f} MB in {done.pieces} files"
        picture = place / "flights.html"
        with line("Draw the array"):
            picture.write_text(array.array.picture(), encoding="utf-8")
        print(f"\nA picture of its fragments, tiles and commits: {picture.resolve()}")
    finally:
        csv.unlink(missing_ok=True)
        spark.stop()
