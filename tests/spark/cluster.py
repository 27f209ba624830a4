"""A standalone cluster on this machine: one master, two workers, started from the PySpark package."""

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pyspark

from terrazzo.spark.java import ensure_java

_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


def _start(folder, name, *arguments):
    log = folder / f"{name}.log"
    environment = {
        **os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(_CLASS.parent.parent),
        "PYSPARK_PYTHON": sys.executable, "SPARK_WORKER_DIR": str(folder / name), "SPARK_DAEMON_MEMORY": "256m",
    }  # fmt: skip
    with log.open("w") as out:
        command = [str(_CLASS), f"org.apache.spark.deploy.{name.partition('-')[0]}", *arguments]
        return subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True), log


def _wait(log, pattern, seconds=60):
    for _ in range(seconds * 10):
        if found := re.search(pattern, log.read_text()):
            return found
        time.sleep(0.1)
    raise TimeoutError(f"{pattern} not in {log}: {log.read_text()[-2000:]}")


@contextmanager
def cluster(folder):
    """The master's URL."""
    ensure_java()
    processes = []
    try:
        master, log = _start(
            folder, "master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        processes.append(master)
        url = _wait(log, r"spark://127\.0\.0\.1:\d+")[0]
        for place in (1, 2):
            worker, worker_log = _start(
                folder, f"worker.Worker-{place}", "--host", "127.0.0.1", "--webui-port", "0", "-c", "1", "-m", "1g",
                url,
            )  # fmt: skip
            processes.append(worker)
            _wait(worker_log, "Successfully registered")
        yield url
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(20)
