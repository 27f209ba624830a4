"""`terrazzo demo`: an array is created, written, updated, deleted from and read, and what it shows is printed."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer


def demo(
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[FOLDER]", help="where to put the array, and leave it; a temporary folder if not given"
        ),
    ] = None,
) -> None:
    """Create a small array, write, update, delete, travel back in time, and show each step."""
    if folder is not None:
        _run(str(Path(folder) / "readings"))
        print(
            f"\nThe array stays in {folder}; look into it with: terrazzo inspect {Path(folder) / 'readings'}"
        )
        return
    with tempfile.TemporaryDirectory(prefix="terrazzo-demo-") as made:
        _run(str(Path(made) / "readings"))


def _run(uri: str) -> None:
    import terrazzo as tz

    print("1. An array of readings: a station and a day tell which, the attributes tell what.\n")
    schema = tz.Schema(
        dims=[tz.Dim("station", "ascii"), tz.Dim("day", "int32", domain=(1, 366), tile=31)],
        attrs=[
            tz.Attr("temperature", "float64", filters=[tz.filters.ByteShuffle(), tz.filters.Zstd(3)]),
            tz.Attr("quality", "int8", enum="qualities"),
            tz.Attr("note", "utf8", nullable=True),
        ],
        enums={"qualities": ["good", "suspect"]},
    )
    array = tz.create(uri, schema)
    print(str(array.schema))

    print("\n2. write(): five cells, in any order; one commit.\n")
    array.write(
        {
            "station": ["Oslo", "Bergen", "Oslo", "Bergen", "Oslo"],
            "day": [2, 1, 1, 2, 3],
            "temperature": [-3.5, 4.0, -2.0, 95.0, -4.5],
            "quality": ["good"] * 5,
            "note": ["snow", None, None, None, "fog"],
        }
    )
    _show('read(order="row-major")', array.read(order="row-major"))
    before = array.fragments[-1].name.end_ms

    print(
        '\n3. update({"quality": "suspect", "note": "sensor?"}, "temperature > 60"): one small file, no cell rewritten.\n'
    )
    array.update({"quality": "suspect", "note": "sensor?"}, "temperature > 60")
    _show("read(where=\"quality = 'suspect'\")", array.read(where="quality = 'suspect'"))

    print("\n4. delete(\"station = 'Oslo' AND day = 3\"), and a write that replaces a cell.\n")
    array.delete("station = 'Oslo' AND day = 3")
    array.write(
        {"station": ["Oslo"], "day": [1], "temperature": [-1.0], "quality": ["good"], "note": ["corrected"]}
    )
    _show('read(order="row-major")', array.read(order="row-major"))

    print("\n5. Nothing was overwritten: open(uri, at=…) shows the array as it was after the first write.\n")
    print(
        f"   open(uri, at={before}).count() is {tz.open(uri, at=before).count()}; now it is {array.count()}\n"
    )
    for event in array.history():
        print(f"   {event}")


def _show(call: str, table: Any) -> None:
    print(f"   {call}")
    columns = {name: [_text(value) for value in table[name].to_pylist()] for name in table.column_names}
    widths = {name: max(map(len, (name, *texts))) for name, texts in columns.items()}
    lines = [list(columns), *zip(*columns.values(), strict=True)]
    for line in lines:
        print(
            "     "
            + "  ".join(text.ljust(width) for text, width in zip(line, widths.values(), strict=True)).rstrip()
        )


def _text(value: Any) -> str:
    return "null" if value is None else str(value)
