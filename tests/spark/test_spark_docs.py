"""The pages that need a session: their Python runs."""

import pytest
from tests.unit.test_docs import PAGES, python_blocks, run_page

ON_SPARK = [page for page in PAGES if len(python_blocks(page, spark=True)) > len(python_blocks(page))]


@pytest.mark.parametrize("page", ON_SPARK, ids=lambda page: page.name)
def test_the_python_of_a_page_runs_with_a_session(page, spark, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    run_page(page, {"__name__": "a_page", "spark": spark}, spark=True)


def test_the_guide_and_the_readme_have_such_blocks():
    assert {"README.md", "spark.md"} <= {page.name for page in ON_SPARK}
