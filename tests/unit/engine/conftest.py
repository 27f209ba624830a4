"""Places for arrays."""

import uuid
from pathlib import Path

import pytest


@pytest.fixture
def uri() -> str:
    """A place in memory that nothing has been put in."""
    return f"memory://{uuid.uuid4().hex}/array"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A place on disk that nothing has been put in; libtiledb finds it there."""
    return str(tmp_path / "array")
