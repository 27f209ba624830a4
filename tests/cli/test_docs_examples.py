"""The page of the command line: its tour runs and prints what it says, and every command and option is on it."""

import re
import shlex
from pathlib import Path

import pytest

from terrazzo.cli.app import app
from terrazzo.cli.main import run

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
SESSIONS = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def steps(session: str) -> list[tuple[str, str]]:
    """Each command with what it is said to print; `…` is anything."""
    return [
        (command, printed)
        for command, _, printed in (
            step.partition("\n") for step in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]
        )
    ]


@pytest.mark.parametrize("session", SESSIONS)
def test_a_session_prints_what_the_page_says(session, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tour.csv").write_text(
        "station,day,temperature,note\nOslo,1,-2,\nOslo,2,-3.5,snow\nBergen,1,4,windy\nBergen,2,95,\n"
    )

    for command, printed in steps(session):
        assert run(shlex.split(command)[1:]) == 0
        pattern = ".*".join(map(re.escape, printed.split("…")))
        shown = capsys.readouterr().out
        assert re.fullmatch(pattern, shown, re.DOTALL), (command, shown)


def test_every_command_and_option_is_on_the_page(ask) -> None:
    shared = {"--help", "--debug", "--key-file", "--storage"}
    for command in app.registered_commands:
        name = command.callback.__name__
        lines = re.findall(rf"^terrazzo {name} .*?(?=^terrazzo |^```)", PAGE, re.MULTILINE | re.DOTALL)
        assert lines or f"terrazzo {name} " in PAGE, name
        options = set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", ask(name, "--help"), re.MULTILINE)) - shared
        assert [option for option in sorted(options) if lines and option not in "".join(lines)] == [], name
