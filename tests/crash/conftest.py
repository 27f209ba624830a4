"""Processes for tests that kill them, or run many at a time."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest


class Nursery:
    """Starts processes that call a function of `labour`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.pids = process, set[int]()

    def start(self, function: str, *arguments: Any) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([function, *arguments]) + "\n")
        self.process.stdin.flush()
        pid = int(self.process.stdout.readline())
        self.pids.add(pid)
        return pid

    def kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self.wait(pid, patience_s=30)

    def wait(self, pid: int, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while is_alive(pid):
            assert time.monotonic() < deadline, f"process {pid} does not end"
            time.sleep(0.001)
        self.pids.discard(pid)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    script = Path(__file__).with_name("labour.py")
    process = subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    running = Nursery(process)
    try:
        yield running
    finally:
        for pid in list(running.pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=30)
