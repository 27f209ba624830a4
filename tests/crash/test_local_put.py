"""A writer that is killed leaves whole objects, and leftovers that do no harm."""

import os
import random
import signal
import subprocess
import sys
import time

from terrazzo.storage import open_store, staging

# The writer says when it has begun, and then writes until it dies: objects of one repeated byte, of a
# length that their first byte tells; new names, replaced names, streamed and conditional.
_WRITER = """
import sys
from terrazzo.storage import open_store
store = open_store(sys.argv[1])
number = int(sys.argv[2]) * 1000
print("begun", flush=True)
while True:
    number += 1
    byte = number % 251 + 1
    part = bytes([byte]) * (byte * 1000)
    store.put(f"folder/{number % 7}", [part] * 20)
    store.put(f"new/{number}/x", [part] * 20, if_absent=True)
    with store.open_writer(f"streamed/{number % 5}") as writer:
        for _ in range(20):
            writer.write(part)
"""


def _kill_a_writer(root: str, number: int, after_s: float) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, root, str(number)], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        time.sleep(after_s)
        writer.send_signal(signal.SIGKILL)


def test_forty_killed_writers_leave_no_half_object(tmp_path) -> None:
    store = open_store(tmp_path)
    chance = random.Random(20)
    n_left = 0
    for number in range(40):
        _kill_a_writer(str(tmp_path), number, chance.uniform(0, 0.06))

        for entry in store.list_recursive():
            content = store.get(entry.key)
            assert content, entry
            assert len(content) == content[0] * 20_000
            assert content.count(content[0]) == len(content)
        store.delete_folder("new")  # keeps the next round short
        n_left = len(os.listdir(tmp_path / staging.FOLDER)) if (tmp_path / staging.FOLDER).exists() else 0

    assert n_left > 0  # else no writer was hit in the midst of a put, and this test proves nothing
    assert store.reclaim_staging(3_600_000) == 0
    assert store.reclaim_staging(0) == n_left
    assert not (tmp_path / staging.FOLDER).exists()
    store.put("after", b"all is well")
    assert store.get("after") == b"all is well"
