"""What every Store promises, as tests. Subclass, and give it a store that is empty for each test:

class TestMyStore(StoreConformance):
    @pytest.fixture
    def store(self) -> Store:
        return MyStore(...)
"""

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from terrazzo.errors import ConflictError, InvalidRequestError, MissingObjectError, StorageError
from terrazzo.storage.base import Store

ODD_NAMES = (
    "with space",
    "ü-漢字-🙂",
    "100%",
    "%41%2F",
    "a#b?c&d=e",
    "q'u\"o`te",
    "~tilde",
    "[x]{y}(z)",
    "a+b,c;d:e@f!$",
    ".hidden",
    "-dash",
    "a\\b",
    "n" * 200,
)


class StoreConformance:
    """Test methods only; the fixture is the subclass's."""

    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError("the subclass gives the store")

    def test_what_was_put_is_what_is_got(self, store: Store) -> None:
        store.put("a/b", b"hello")

        assert store.get("a/b") == b"hello"
        assert type(store.get("a/b")) is bytes
        assert store.size("a/b") == 5

    def test_pieces_of_any_buffer_type_become_one_object(self, store: Store) -> None:
        words = memoryview(bytearray(range(8))).cast("I")
        store.put("x", [b"ab", b"", bytearray(b"cd"), memoryview(b"efgh")[::1], words])

        assert store.get("x") == b"abcdefgh" + bytes(range(8))

    def test_many_pieces_become_one_object(self, store: Store) -> None:
        store.put("x", [i.to_bytes(3, "little") for i in range(5000)])

        assert store.get("x") == b"".join(i.to_bytes(3, "little") for i in range(5000))

    @pytest.mark.parametrize("data", [b"", [], [b"", b""]])
    def test_an_empty_object_is_an_object(self, store: Store, data: bytes | list[bytes]) -> None:
        store.put("empty", data)

        assert store.get("empty") == b""
        assert store.size("empty") == 0
        assert [entry.key for entry in store.list()] == ["empty"]

    def test_a_put_replaces(self, store: Store) -> None:
        store.put("x", b"a longer text")
        store.put("x", b"short")

        assert store.get("x") == b"short"

    def test_a_put_if_absent_leaves_what_is_there(self, store: Store) -> None:
        store.put("a/x", b"first", if_absent=True)

        with pytest.raises(ConflictError, match="a/x: is there already"):
            store.put("a/x", b"second", if_absent=True)
        assert store.get("a/x") == b"first"

    def test_of_many_that_put_if_absent_one_wins(self, store: Store) -> None:
        start = threading.Barrier(8)

        def race(racer: int) -> int | None:
            start.wait()
            try:
                store.put("prize", b"%d" % racer, if_absent=True)
            except ConflictError:
                return None
            return racer

        for _ in range(5):
            with ThreadPoolExecutor(8) as threads:
                winners = [racer for racer in threads.map(race, range(8)) if racer is not None]

            assert [b"%d" % winner for winner in winners] == [store.get("prize")]
            store.delete(["prize"])

    @pytest.mark.parametrize("call", ["get", "size", "get_ranges"])
    @pytest.mark.parametrize("key", ["nowhere", "no/such/folder", "folder", "folder/x/below"])
    def test_an_object_that_is_not_there_is_missing(self, store: Store, call: str, key: str) -> None:
        store.put("folder/x", b"1")

        with pytest.raises(MissingObjectError, match="no such object") as caught:
            getattr(store, call)(*((key, [(0, 1)]) if call == "get_ranges" else (key,)))
        assert caught.value.key == f"{store.uri}/{key}"
        assert isinstance(caught.value, FileNotFoundError)

    def test_ranges_come_back_in_the_order_asked_for(self, store: Store) -> None:
        content = bytes(i * 7 % 251 for i in range(100_000))
        store.put("x", content)
        ranges = [
            (99_990, 10),
            (0, 5),
            (5, 5),
            (3, 4),
            (50_000, 1),
            (0, 0),
            (100_000, 0),
            (0, 100_000),
            (0, 5),
        ]

        found = store.get_ranges("x", ranges)

        assert [bytes(part) for part in found] == [
            content[start : start + length] for start, length in ranges
        ]

    def test_no_ranges_are_no_bytes(self, store: Store) -> None:
        store.put("x", b"abc")

        assert store.get_ranges("x", []) == []

    @pytest.mark.parametrize(
        "ranges",
        [[(0, 4)], [(3, 1)], [(900, 10)], [(0, 1), (1, 90)], [(0, 1), (900, 2)], [(0, 1), (1 << 40, 9)]],
    )
    def test_a_range_beyond_the_end_says_how_long_the_object_is(
        self, store: Store, ranges: list[tuple[int, int]]
    ) -> None:
        store.put("x", b"abc")
        needed = max(start + length for start, length in ranges)

        with pytest.raises(StorageError, match=f"x: {needed} bytes expected, the object has 3") as caught:
            store.get_ranges("x", ranges)
        assert not isinstance(caught.value, MissingObjectError)

    def test_a_negative_range_is_refused(self, store: Store) -> None:
        store.put("x", b"abc")

        with pytest.raises(InvalidRequestError):
            store.get_ranges("x", [(-1, 2)])

    def test_a_level_is_its_files_and_its_folders_in_order(self, store: Store) -> None:
        for key in ("b", "a", "d/2", "d/10", "d/e/f", "c/x", "dd"):
            store.put(key, b"12")

        assert [entry.key for entry in store.list()] == ["a", "b", "dd"]
        assert store.list_level().folders == ["c", "d"]
        assert [(entry.key, entry.size) for entry in store.list("d")] == [("d/10", 2), ("d/2", 2)]
        assert store.list_level("d/") == store.list_level("d")
        assert store.list_level("d").folders == ["d/e"]
        assert [entry.key for entry in store.list_recursive("d")] == ["d/10", "d/2", "d/e/f"]
        assert [e.key for e in store.list_recursive()] == ["a", "b", "c/x", "d/10", "d/2", "d/e/f", "dd"]

    def test_entries_know_when_they_were_written(self, store: Store) -> None:
        store.put("x", b"1")
        now_ms = time.time_ns() // 1_000_000

        assert abs(store.list()[0].modified_ms - now_ms) < 60_000

    @pytest.mark.parametrize("prefix", ["", "nowhere", "no/such/folder", "x", "x/y"])
    def test_a_folder_that_is_not_there_lists_as_empty(self, store: Store, prefix: str) -> None:
        if prefix:
            store.put("x", b"1")

        assert store.list(prefix) == []
        assert store.list_level(prefix).folders == []
        assert store.list_recursive(prefix) == []

    def test_deleting_is_idempotent(self, store: Store) -> None:
        for key in ("a", "b", "f/c"):
            store.put(key, b"1")
        store.delete(["a", "nowhere", "no/such", "f/c", "a"])
        store.delete([])
        store.delete(key for key in ("a", "f/c"))

        assert [entry.key for entry in store.list_recursive()] == ["b"]

    def test_a_folder_is_deleted_with_all_that_is_in_it(self, store: Store) -> None:
        for key in ("f/a", "f/g/b", "ff", "fg/x"):
            store.put(key, b"1")
        store.delete_folder("f")
        store.delete_folder("f/")
        store.delete_folder("nowhere/at/all")

        assert store.list_level().folders == ["fg"]
        assert [entry.key for entry in store.list_recursive()] == ["ff", "fg/x"]

        store.put("f/a", b"again")
        assert store.get("f/a") == b"again"

    def test_a_streamed_object_appears_when_its_block_ends(self, store: Store) -> None:
        with store.open_writer("s/x") as writer:
            buffer = bytearray(b"one ")
            writer.write(buffer)
            buffer[:] = b"two "  # the caller may use its memory again
            writer.write(memoryview(buffer))
            assert store.list("s") == []

        assert store.get("s/x") == b"one two "

    def test_a_streamed_object_of_nothing_is_empty(self, store: Store) -> None:
        with store.open_writer("x"):
            pass

        assert store.get("x") == b""

    @pytest.mark.parametrize("size", [10, 40 << 20])
    def test_a_stream_that_fails_leaves_what_was_there(self, store: Store, size: int) -> None:
        store.put("x", b"before")

        def stream() -> None:
            with store.open_writer("x") as writer:
                writer.write(bytes(size))
                raise FileExistsError("of the caller")

        with pytest.raises(FileExistsError, match="of the caller"):
            stream()
        assert store.get("x") == b"before"
        assert len(store.list_recursive()) == 1

    def test_large_objects_survive_every_way_of_writing_them(self, store: Store) -> None:
        piece = bytes(range(256)) * 4096
        store.put("put", [piece] * 40)
        with store.open_writer("streamed") as writer:
            for _ in range(40):
                writer.write(piece)

        assert store.size("put") == store.size("streamed") == 40 << 20
        ranges = [(i << 20, 1 << 20) for i in range(40)]
        assert all(part == piece for key in ("put", "streamed") for part in store.get_ranges(key, ranges))

    def test_a_reader_never_sees_a_half_object(self, store: Store) -> None:
        versions = [bytes([i]) * (200_000 + i * 1000) for i in range(6)]
        whole = {(data[0], len(data)) for data in versions}
        done = threading.Event()
        store.put("x", versions[0])

        def write() -> None:
            try:
                for data in versions * 4:
                    store.put("x", [data[:100_000], data[100_000:]])
            finally:
                done.set()

        with ThreadPoolExecutor(1) as threads:
            writing = threads.submit(write)
            while not done.is_set():
                seen = store.get("x")
                assert (seen[0], len(seen)) in whole
                assert seen.count(seen[0]) == len(seen)
            writing.result()

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_are_names(self, store: Store, name: str) -> None:
        store.put(f"f/{name}/{name}", b"1")

        assert store.get(f"f/{name}/{name}") == b"1"
        assert store.list_level("f").folders == [f"f/{name}"]
        assert [entry.key for entry in store.list(f"f/{name}")] == [f"f/{name}/{name}"]
        store.delete([f"f/{name}/{name}"])
        assert store.list_recursive() == []

    @pytest.mark.parametrize("key", ["", "/", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\0b"])
    def test_a_key_that_leaves_the_store_is_refused(self, store: Store, key: str) -> None:
        with pytest.raises(InvalidRequestError, match="not a key"):
            store.put(key, b"1")
        with pytest.raises(InvalidRequestError):
            store.get(key)
        with pytest.raises(InvalidRequestError):
            store.delete([key])
        assert store.list_recursive() == []

    def test_a_pickled_store_is_the_same_store(self, store: Store) -> None:
        store.put("x", b"1")
        copy = pickle.loads(pickle.dumps(store))

        assert copy == store
        assert hash(copy) == hash(store)
        assert copy.uri == store.uri
        assert copy.get("x") == b"1"

    def test_staging_holds_nothing_of_writers_that_are_done(self, store: Store) -> None:
        store.put("x", b"1")

        assert store.reclaim_staging(0) == 0
        assert store.get("x") == b"1"

    def test_it_is_a_store(self, store: Store) -> None:
        assert isinstance(store, Store)
        assert "://" in store.uri
