"""`terrazzo demo` runs, shows its steps, and leaves an array where it is told to."""

import terrazzo as tz
from terrazzo.cli.main import run


def test_the_demo_shows_every_step(capsys) -> None:
    assert run(["demo"]) == 0

    shown = capsys.readouterr().out
    assert "sensor?" in shown
    assert "count() is 5; now it is 4" in shown
    assert "set quality = 'suspect', note = 'sensor?' where temperature > 60.0" in shown


def test_the_demo_leaves_its_array_in_a_given_folder(tmp_path, capsys) -> None:
    assert run(["demo", str(tmp_path)]) == 0

    assert tz.open(str(tmp_path / "readings")).count() == 4
    assert run(["demo", str(tmp_path)]) == 1
    assert "there is an array" in capsys.readouterr().err
