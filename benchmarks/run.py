"""Runs every `bench_*.py` beside this file and prints their tables.

python benchmarks/run.py [--only NAME …] [--write FILE]

The page docs/performance-filters.md is what `--only codecs kernels storage --write` makes.
"""

import argparse
import importlib
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LIBRARIES = ("numpy", "pyarrow", "obstore", "cryptography")
PREFACE = """# Performance of filters and storage

Made by `python benchmarks/run.py --only codecs kernels storage`; the numbers hold for the machine below and its load
at the time. MB/s count unfiltered bytes, the best of several runs. "Bare" is the codec alone plus one copy into the
column when decoding, or just a memory copy where there is no codec; "time by bare" is our time divided by that. One
thread is measured in processor time, two threads by the clock: on a machine with a load of its own, only the former
mean much.
"""


def machine() -> str:
    libraries = ", ".join(f"{name} {version(name)}" for name in LIBRARIES)
    return (
        f"{os.cpu_count()} cores ({platform.machine()}), {platform.system()}, "
        f"Python {platform.python_version()}, {libraries}; load {os.getloadavg()[0]:.1f} when it began."
    )


def table_of(module: Any) -> Any:
    """What `table()` gives, or the dictionaries of `rows()` under the first sentence of the module."""
    from measure import Table

    if hasattr(module, "table"):
        return module.table()
    rows = module.rows()
    header = tuple(rows[0])
    title = module.__doc__.partition(".")[0].partition(":")[0]
    return Table(title, header, [tuple(str(row.get(name, "")) for name in header) for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description="run the benchmarks and print Markdown tables")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="bench_NAME.py only")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page here as well")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE))
    names = sorted(path.stem for path in HERE.glob("bench_*.py"))
    if options.only:
        names = [name for name in names if name.removeprefix("bench_") in options.only]
    page = [PREFACE, f"Machine: {machine()}", ""]
    for name in names:
        text = table_of(importlib.import_module(name)).markdown()
        print(text, end="\n\n", flush=True)
        page += [text, ""]
    if options.write is not None:
        options.write.write_text("\n".join(page))


if __name__ == "__main__":
    main()
