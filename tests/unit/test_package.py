"""The package as a whole: quick to import, typed, and in layers."""

import resource
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import terrazzo

ROOT = Path(__file__).parents[2]


def fresh(code: str) -> str:
    """What `code` prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_the_package_is_imported_in_half_a_second() -> None:
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        fresh("import terrazzo")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Processor time: on a busy machine the clock would tell of the others.
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    assert min(times) < 0.5


def test_no_heavy_library_is_imported_by_what_does_not_need_it() -> None:
    code = """
import sys, terrazzo
for name in terrazzo.__all__:
    getattr(terrazzo, name)
print(*(name for name in ("pyspark", "numba", "pandas", "polars", "sqlglot", "tiledb") if name in sys.modules))
"""
    assert fresh(code).split() == []


def test_every_public_name_is_there_and_no_other_passes() -> None:
    assert all(getattr(terrazzo, name) is not None for name in terrazzo.__all__)
    assert set(terrazzo.__all__) <= set(dir(terrazzo))

    with pytest.raises(AttributeError, match="nothing_of_that_name"):
        _ = terrazzo.nothing_of_that_name


def test_the_package_is_marked_as_typed() -> None:
    assert files("terrazzo").joinpath("py.typed").is_file()


def test_the_layers_point_one_way() -> None:
    pytest.importorskip("importlinter")
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
