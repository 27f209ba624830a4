"""Staging, durability and speed of the local store."""

import multiprocessing
import os
import time

import pytest

from terrazzo.errors import ConflictError, StorageError
from terrazzo.storage import local, open_store, staging


def _race(uri: str, racer: int, start, winners) -> None:
    store = open_store(uri)
    for lap in range(20):
        start.wait(60)
        try:
            store.put(f"prizes/{lap}", b"%d" % racer, if_absent=True)
        except ConflictError:
            continue
        winners.put((lap, racer))
    winners.put(None)


def test_of_eight_processes_that_put_if_absent_one_wins_each_lap(tmp_path) -> None:
    context = multiprocessing.get_context("spawn")
    start, winners = context.Barrier(8), context.Queue()
    racers = [context.Process(target=_race, args=(str(tmp_path), i, start, winners)) for i in range(8)]
    for racer in racers:
        racer.start()
    won, running = [], 8
    while running:
        message = winners.get(timeout=60)
        running -= message is None
        won += [] if message is None else [message]
    for racer in racers:
        racer.join(60)
    winners.close()
    winners.join_thread()

    store = open_store(tmp_path)
    assert sorted(lap for lap, _ in won) == list(range(20))
    assert all(store.get(f"prizes/{lap}") == b"%d" % racer for lap, racer in won)
    assert os.listdir(tmp_path) == ["prizes"]


def test_a_put_flushes_the_file_then_new_folders_and_last_the_folder_of_the_name(
    tmp_path, monkeypatch
) -> None:
    steps = []
    fsync, replace = os.fsync, os.replace

    def name(fd):
        path = os.readlink(f"/proc/self/fd/{fd}").removeprefix(str(tmp_path))
        return "staged" if staging.FOLDER in path else path or "/"

    monkeypatch.setattr(os, "fsync", lambda fd: (steps.append(name(fd)), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda *paths: (steps.append("rename"), replace(*paths)))
    store = open_store(tmp_path / "store")
    store.put("a/b/x", b"1")

    # The root's entry, the file, the folders from above to below, the name.
    assert steps == ["/", "staged", "/store", "/store/a", "rename", "/store/a/b"]

    steps.clear()
    store.put("a/b/y", b"1")
    assert steps == ["staged", "rename", "/store/a/b"]


def test_deleting_flushes_each_folder_once(tmp_path, monkeypatch) -> None:
    store = open_store(tmp_path)
    keys = [f"{folder}/{i}" for folder in "ab" for i in range(5)]
    for key in keys:
        store.put(key, b"")
    flushed = []
    monkeypatch.setattr(staging, "flush_folder", flushed.append)
    store.delete(keys)

    assert flushed == [f"{tmp_path}/a", f"{tmp_path}/b"]


def test_nothing_of_staging_is_listed_and_nothing_is_left_there(tmp_path) -> None:
    store = open_store(tmp_path)
    with store.open_writer("f/x") as writer:
        writer.write(b"1")
        assert (tmp_path / staging.FOLDER).is_dir()
        assert store.list_level() == open_store("memory://empty-for-comparison").list_level()
        assert store.list_recursive() == []
        store.put("y", b"2")
        assert [entry.key for entry in store.list_recursive()] == ["y"]

    assert sorted(os.listdir(tmp_path)) == ["f", "y"]


def test_leftovers_are_reclaimed_once_they_are_old_enough(tmp_path) -> None:
    store = open_store(tmp_path)
    store.put("x", b"1")
    folder = tmp_path / staging.FOLDER
    folder.mkdir()
    for name, age_s in (("old", 100), ("new", 1)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (time.time() - age_s,) * 2)

    assert store.reclaim_staging(50_000) == 1
    assert os.listdir(folder) == ["new"]
    assert store.reclaim_staging(0) == 1
    assert os.listdir(tmp_path) == ["x"]
    assert open_store(tmp_path / "nowhere").reclaim_staging(0) == 0


def test_folders_removed_behind_its_back_are_made_again(tmp_path) -> None:
    import shutil

    store = open_store(tmp_path / "store")
    store.put("a/b/x", b"1")
    shutil.rmtree(tmp_path / "store" / "a")
    store.put("a/b/y", b"2")
    shutil.rmtree(tmp_path / "store")
    store.put("a/b/z", b"3", if_absent=True)

    assert [entry.key for entry in store.list_recursive()] == ["a/b/z"]


def test_a_disk_that_takes_only_part_of_a_write_gets_the_rest(tmp_path, monkeypatch) -> None:
    writev = os.writev

    def stingy(fd, buffers):
        return writev(fd, [memoryview(b"".join(buffers))[:7]])

    monkeypatch.setattr(os, "writev", stingy)
    store = open_store(tmp_path)
    parts = [b"abc", b"", b"defghijklmnop", memoryview(bytes(range(16))).cast("I"), b"z"]
    store.put("x", parts)

    assert store.get("x") == b"abcdefghijklmnop" + bytes(range(16)) + b"z"


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch) -> None:
    store = open_store(tmp_path)
    store.put("x", b"before")

    def full(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(StorageError, match="x: no space left on device"):
        store.put("x", b"after")
    assert store.get("x") == b"before"
    assert os.listdir(tmp_path) == ["x"]


def test_reads_larger_than_a_system_call_are_put_together(tmp_path, monkeypatch) -> None:
    store = open_store(tmp_path)
    content = os.urandom(100_000)
    store.put("x", content)
    monkeypatch.setattr(local, "_LARGEST_READ", 999)

    assert store.get("x") == content
    assert [bytes(part) for part in store.get_ranges("x", [(1, 5000), (90_000, 10_000)])] == [
        content[1:5001],
        content[90_000:],
    ]


def test_links_are_followed_and_those_to_nowhere_are_not_there(tmp_path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x").write_bytes(b"12")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "file").symlink_to("real/x")
    (tmp_path / "broken").symlink_to("nowhere")
    level = open_store(tmp_path).list_level()

    assert [(entry.key, entry.size) for entry in level.files] == [("file", 2)]
    assert level.folders == ["folder", "real"]


def test_ten_thousand_files_list_in_well_under_a_third_of_a_second(tmp_path) -> None:
    for i in range(10_000):
        os.close(os.open(tmp_path / f"__{i}_{i}_{i:032x}_22.wrt", os.O_CREAT))
    store = open_store(tmp_path)

    def seconds() -> float:
        start = time.perf_counter()
        assert len(store.list()) == 10_000
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.3
