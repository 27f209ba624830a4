"""The documents: their Python runs, and what they name is there."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
_FENCE = re.compile(r"^```python([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def python_blocks(page: Path, *, spark: bool = False) -> list[tuple[int, str]]:
    """Line and code of each block that is to run: those without a session, or all."""
    text = page.read_text()
    return [
        (text.count("\n", 0, match.start(2)) + 1, match[2])
        for match in _FENCE.finditer(text)
        if "notest" not in match[1] and (spark or "spark" not in match[1])
    ]


def run_page(page: Path, names: dict[str, object], *, spark: bool = False) -> None:
    """Run the blocks from top to bottom; an error is told with the line of the page."""
    for line, code in python_blocks(page, spark=spark):
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)

    run_page(page, {"__name__": "a_page"})


def test_the_readme_has_python_that_runs() -> None:
    assert python_blocks(ROOT / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_that_a_page_names_exists(page) -> None:
    named = set(re.findall(r"`(terrazzo(?:\.[a-z_0-9]+)+)`", page.read_text()))

    assert [name for name in sorted(named) if find_spec(name) is None] == []


def test_every_module_of_the_format_is_on_its_page() -> None:
    page = (ROOT / "docs" / "format.md").read_text()
    package = ROOT / "src" / "terrazzo" / "format"
    modules = {path.stem for path in package.glob("[!_]*.py")} - {"schema_text"}

    assert [name for name in sorted(modules) if f"terrazzo.format.{name}`" not in page] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page) -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())

    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_pages_build_without_a_warning_and_load_nothing_from_elsewhere(tmp_path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    pages = [page.read_text() for page in tmp_path.rglob("*.html")]

    assert done.returncode == 0, done.stderr
    assert len(pages) > len(PAGES) - 1
    assert [page for page in pages if "```" in page] == []  # a fence that was not understood
    assert [re.findall(r"<(?:script|img|link)[^>]+https?://[^>]+>", page) for page in pages] == [[]] * len(
        pages
    )
