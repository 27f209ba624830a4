"""Fixtures that any test may ask for."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True)
class S3Server:
    """An S3 on this machine, with one bucket."""

    endpoint: str
    bucket: str

    @property
    def options(self) -> dict[str, str]:
        """Storage options that reach it."""
        return {
            "aws_endpoint": self.endpoint,
            "aws_allow_http": "true",
            "aws_region": "us-east-1",
            "aws_access_key_id": "an-id-for-tests",
            "aws_secret_access_key": "a-secret-for-tests",
            "max_retries": "2",
            "retry_timeout": "10",
        }


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """moto in a process of its own, so that its warnings and threads stay there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = S3Server(f"http://127.0.0.1:{port}", "tests")
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    try:
        _create_bucket(server, process, patience_s=60)
        yield server
    finally:
        process.terminate()
        process.wait(10)


def _create_bucket(server: S3Server, process: subprocess.Popen[bytes], *, patience_s: float) -> None:
    request = urllib.request.Request(f"{server.endpoint}/{server.bucket}", method="PUT")
    # Loopback is not to go through a proxy that the environment may name.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + patience_s
    while True:
        try:
            opener.open(request, timeout=10).close()
        except (urllib.error.URLError, ConnectionError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


@pytest.fixture
def s3_uri(s3_server: S3Server) -> str:
    """A place in the bucket that nothing has been put in."""
    return f"s3://{s3_server.bucket}/{uuid.uuid4().hex}"
