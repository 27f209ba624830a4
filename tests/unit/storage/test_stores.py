"""The stores keep what every store promises; the wrappers change nothing of it."""

import uuid

import pytest

from terrazzo.storage import Store, open_store
from terrazzo.testing.conformance import StoreConformance
from terrazzo.testing.stores import CountingStore, DyingStore, FailingStore, LaggingStore


def _never(_request, _number):
    return False


@pytest.fixture
def memory_uri() -> str:
    return f"memory://{uuid.uuid4().hex}/below/a root"


class TestLocalStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path) -> Store:
        return open_store(tmp_path / "not yet" / "there")


class TestLocalStoreByUri(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path) -> Store:
        return open_store(f"file://{tmp_path}/100%25 odd")


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self, memory_uri) -> Store:
        return open_store(memory_uri)


class TestMemoryStoreAtItsRoot(StoreConformance):
    @pytest.fixture
    def store(self) -> Store:
        return open_store(f"memory://{uuid.uuid4().hex}")


class TestS3Store(StoreConformance):
    @pytest.fixture
    def store(self, s3_uri, s3_server) -> Store:
        return open_store(s3_uri, s3_server.options)


class TestCountingStore(StoreConformance):
    @pytest.fixture
    def store(self, memory_uri) -> Store:
        return CountingStore(open_store(memory_uri))


class TestLaggingStore(StoreConformance):
    @pytest.fixture
    def store(self, memory_uri) -> Store:
        return LaggingStore(open_store(memory_uri), 0.0001)


class TestFailingStoreThatDoesNot(StoreConformance):
    @pytest.fixture
    def store(self, memory_uri) -> Store:
        return FailingStore(open_store(memory_uri), _never)


class TestDyingStoreThatLives(StoreConformance):
    @pytest.fixture
    def store(self, memory_uri) -> Store:
        return DyingStore(open_store(memory_uri), 1_000_000, deletes_count=True)
