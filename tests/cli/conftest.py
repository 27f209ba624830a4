"""Commands as a user gives them, in this process."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import terrazzo as tz
from terrazzo.cli.main import run


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch):
    """No key in the environment; and no waiting for the disk, since nobody pulls the plug here."""
    monkeypatch.delenv("TERRAZZO_KEY", raising=False)
    monkeypatch.setattr("os.fsync", lambda _descriptor: None)


@pytest.fixture
def ask(capsys) -> Callable[..., str]:
    """Runs a command that is to succeed; what it printed."""

    def call(*arguments: object, code: int = 0) -> str:
        found = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert (found, printed.err) == (code, "")
        return printed.out

    return call


@pytest.fixture
def ask_json(ask) -> Callable[..., Any]:
    def call(*arguments: object, code: int = 0) -> Any:
        return json.loads(ask(*arguments, "--json", code=code))

    return call


@pytest.fixture
def refuse(capsys) -> Callable[..., str]:
    """Runs a command that is to fail; the one line that says why."""

    def call(*arguments: object, code: int = 1) -> str:
        found = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert found == code, printed.err
        assert "defect" not in printed.err
        lines = printed.err.splitlines()
        if code == 1:
            assert len(lines) == 1, lines
            assert printed.out == ""
        return lines[-1]

    return call


@pytest.fixture
def array(tmp_path, monkeypatch) -> Path:
    """A sparse array of two cells, as `a` in the working folder."""
    monkeypatch.chdir(tmp_path)
    schema = tz.Schema(
        [tz.Dim("x", "int64", (0, 99), 10), tz.Dim("s", "ascii")],
        [tz.Attr("v", "float64"), tz.Attr("tag", "utf8", nullable=True), tz.Attr("k", "int8", enum="kinds")],
        enums={"kinds": ["a", "b"]},
    )
    made = tz.create("a", schema)
    made.write({"x": [1, 2], "s": ["a", "b"], "v": [1.5, 2.5], "tag": ["t", None], "k": ["a", "b"]})
    return tmp_path / "a"
