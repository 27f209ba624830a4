"""Who listens is told how far something has come."""

import numpy as np
import pytest

import terrazzo as tz
from terrazzo.engine.runner import listening, steps


@pytest.fixture
def array(tmp_path):
    schema = tz.Schema([tz.Dim("x", "int64", (0, 9999), 100)], [tz.Attr("v", "float64", nullable=True)])
    made = tz.create(str(tmp_path / "a"), schema)
    for piece in range(3):
        made.write({"x": np.arange(100) * 3 + piece, "v": np.arange(100.0)})
    return made


@pytest.mark.parametrize(
    "work",
    [
        lambda array: array.check(deep=True),
        lambda array: array.count(where="v > 3"),
        lambda array: array.delete("v > 50"),
        lambda array: array.update({"v": 0.0}, "v > 50", portable=True),
        lambda array: array.restore(array.fragments[0].name.end_ms),
        lambda array: (array.consolidate(), array.vacuum(retain=0)),
    ],
    ids=["check", "count", "delete", "update", "restore", "vacuum"],
)
def test_what_takes_long_tells_of_its_steps(array, work):
    told = []
    with listening(lambda done, total: told.append((done, total))):
        work(array)

    assert told
    assert told[-1][0] == told[-1][1]


def test_nobody_listens_outside_of_the_block():
    told = []
    with listening(lambda *step: told.append(step)):
        assert list(steps("ab")) == ["a", "b"]

    assert told == [(1, 2), (2, 2)]
    assert list(steps("ab")) == ["a", "b"]
    assert len(told) == 2
