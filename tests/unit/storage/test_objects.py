"""What open_store accepts, and what a store says when something is wrong."""

import pickle
import uuid

import pytest

from terrazzo.errors import ConflictError, InvalidRequestError, MissingObjectError, StorageError
from terrazzo.storage import open_store
from terrazzo.storage.local import LocalStore
from terrazzo.storage.options import Options, one_line


def test_paths_and_file_uris_name_the_same_store(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    stores = [open_store(uri) for uri in (tmp_path / "x", str(tmp_path / "x"), f"file://{tmp_path}/x", "x")]
    assert len(set(stores)) == 1
    assert stores[0].uri == f"file://{tmp_path}/x"
    assert open_store(f"file://{tmp_path}/x/") == stores[0]


def test_opening_a_store_touches_nothing(tmp_path) -> None:
    open_store(tmp_path / "x").list()

    assert list(tmp_path.iterdir()) == []


def test_memory_is_shared_by_name_and_by_path_in_it() -> None:
    name = uuid.uuid4().hex
    open_store(f"memory://{name}").put("a/b", b"1")

    assert open_store(f"memory://{name}/").get("a/b") == b"1"
    assert open_store(f"memory://{name}/a").get("b") == b"1"
    assert open_store(f"memory://{name}-other").list_recursive() == []


@pytest.mark.parametrize(
    ("uri", "options"),
    [
        ("s3://bucket/a/b", {"aws_region": "eu-west-1"}),
        (
            "s3a://bucket",
            {"aws_allow_http": "true", "timeout": "10s", "max_retries": "1", "retry_timeout": "2.5"},
        ),
        ("gs://bucket/a", {"google_skip_signature": "true"}),
        ("az://container/a", {"azure_storage_account_name": "account"}),
        ("azure://container/a", {"account_name": "account", "azure_timeout": "5s"}),
        ("abfs://container/a", {"azure_storage_account_name": "account"}),
        ("abfss://container@account.dfs.core.windows.net/a", {}),
    ],
)
def test_every_kind_of_cloud_opens_and_pickles(uri, options) -> None:
    store = open_store(uri + "/", options)

    assert store.uri == uri
    assert pickle.loads(pickle.dumps(store)) == store
    assert open_store(uri) == store if "bucket" in uri else True


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("", "empty path"),
        ("ftp://x/y", r"ftp:// is no store; these are: a path, file://, memory://, s3://"),
        ("s3:///x", "which bucket"),
        ("file://host/x", "has no host"),
        ("s3://b/../x", r"'\.\.' segment"),
        ("s3://id:secret@bucket/x", r"s3://…: credentials do not belong in a URI"),
        ("az://c/x?sig=secret", r"az://…: credentials do not belong in a URI"),
    ],
)
def test_a_uri_that_names_no_store_is_refused_without_quoting_secrets(uri, problem) -> None:
    with pytest.raises(InvalidRequestError, match=problem) as caught:
        open_store(uri)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"aws_acess_key_id": "hush-hush"}, "'aws_acess_key_id' is not valid"),
        ({"max_retries": "hush-hush"}, "'max_retries' takes a number"),
        ({"timeout": "hush-hush"}, "s3://bucket: "),
    ],
)
def test_an_option_that_is_none_is_refused_by_its_name(options, problem) -> None:
    with pytest.raises(InvalidRequestError, match=problem) as caught:
        open_store("s3://bucket/x", {**options, "aws_secret_access_key": "very-secret"})
    assert "very-secret" not in str(caught.value)


def test_options_go_to_whoever_takes_them() -> None:
    split = Options.split(
        {"aws_region": "r", "AWS_ALLOW_HTTP": "true", "azure_timeout": "3s", "max_retries": "4"}
    )

    assert split.store == {"aws_region": "r"}
    assert split.client == {"allow_http": "true", "timeout": "3s", "connect_timeout": "5s"}
    assert split.retry["max_retries"] == 4


def test_reasons_are_one_line_without_signatures_and_secrets() -> None:
    error = ValueError(
        "Generic Azure error: Error performing GET https://a.blob.windows.net/c/x?sv=1&sig=s3cr3t in 3ms - "
        "bad\n token hush-hush\n\nDebug source:\nGeneric { s3cr3t }"
    )

    assert one_line(error, {"azure_storage_sas_key": "hush-hush"}) == "bad token …"
    quoted = ValueError("while asking https://x/y?sig=s3cr3t for it")
    assert one_line(quoted, {}) == "while asking https://x/y for it"
    assert one_line(ValueError("<Error><Message>Access Denied</Message><Key>k</Key>"), {}) == "Access Denied"
    assert len(one_line(ValueError("x" * 1000), {})) == 300


def test_a_repr_shows_the_uri_and_no_options(s3_server) -> None:
    store = open_store("s3://bucket/a", s3_server.options)

    assert repr(store) == "ObstoreStore('s3://bucket/a')"
    assert "secret" not in repr(Options.split(s3_server.options))


def test_a_path_below_a_file_cannot_be_written(tmp_path) -> None:
    store = open_store(tmp_path)
    store.put("file", b"1")

    with pytest.raises(StorageError, match=f"^file://{tmp_path}/file/x: not a directory$"):
        store.put("file/x", b"2")
    with pytest.raises(StorageError, match="not a directory"):
        open_store(tmp_path / "file" / "root").put("x", b"2")
    with pytest.raises(StorageError, match="is a directory"):
        open_store(tmp_path.parent).put(tmp_path.name, b"2")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert store.get("file") == b"1"


def test_a_bucket_that_is_not_there_is_not_a_missing_object(s3_server) -> None:
    store = open_store("s3://no-such-bucket/a", s3_server.options)

    calls = [
        lambda: store.get("x"),
        lambda: store.get_ranges("x", [(0, 1)]),
        lambda: store.put("x", b"1"),
        lambda: store.put("x", b"1", if_absent=True),
        lambda: store.delete(["x"]),
        store.list,
        store.list_recursive,
    ]
    for call in calls:
        with pytest.raises(StorageError, match=r"^s3://no-such-bucket/a.*bucket does not exist$") as caught:
            call()
        assert not isinstance(caught.value, MissingObjectError)
        assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there_is_a_storage_error_on_one_line(s3_server) -> None:
    store = open_store(
        "s3://b/a", {**s3_server.options, "aws_endpoint": "http://127.0.0.1:9", "max_retries": "0"}
    )

    for call in (lambda: store.get("x"), lambda: store.put("x", b""), store.list):
        with pytest.raises(StorageError, match=r"^s3://b/a\S*: [^\n]{5,200}$"):
            call()
    with pytest.raises(StorageError, match="s3://b/a/x: "), store.open_writer("x") as writer:
        writer.write(bytes(64 << 20))


def test_errors_survive_pickling(tmp_path) -> None:
    store = open_store(tmp_path)
    store.put("x", b"1")
    with pytest.raises(MissingObjectError) as missing:
        store.get("y")
    with pytest.raises(ConflictError) as conflict:
        store.put("x", b"2", if_absent=True)

    for error in (missing.value, conflict.value):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert str(copy) == str(error)
        assert copy.key == error.key


def test_a_listing_of_more_than_a_page_is_whole(s3_uri, s3_server) -> None:
    from concurrent.futures import ThreadPoolExecutor

    store = open_store(s3_uri, s3_server.options)
    keys = [f"f/{i:04}" for i in range(1050)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda key: store.put(key, b""), keys))

    assert [entry.key for entry in store.list("f")] == keys
    assert [entry.key for entry in store.list_recursive()] == keys
    store.delete_folder("f")
    assert store.list("f") == []


def test_an_aborted_stream_leaves_no_upload_behind(s3_uri, s3_server) -> None:
    from urllib.request import ProxyHandler, build_opener

    store = open_store(s3_uri, s3_server.options)
    with pytest.raises(KeyError), store.open_writer("aborted") as writer:  # noqa: PT012
        writer.write(bytes(50 << 20))
        raise KeyError
    with build_opener(ProxyHandler({})).open(f"{s3_server.endpoint}/{s3_server.bucket}?uploads") as answer:
        uploads = answer.read().decode()

    assert "<Key>" not in uploads
    assert store.list_recursive() == []


def test_a_marker_of_a_folder_is_not_in_it(s3_uri, s3_server) -> None:
    from urllib.request import ProxyHandler, Request, build_opener

    store = open_store(s3_uri, s3_server.options)
    store.put("f/x", b"1")
    marker = f"{s3_server.endpoint}/{s3_uri.removeprefix('s3://')}/f/"
    build_opener(ProxyHandler({})).open(Request(marker, data=b"", method="PUT")).close()

    assert [entry.key for entry in store.list("f")] == ["f/x"]
    assert store.list_level().folders == ["f"]


def test_the_local_store_is_one_by_its_path(tmp_path) -> None:
    assert LocalStore(tmp_path) == open_store(tmp_path)
    assert LocalStore(tmp_path) != open_store(tmp_path / "x")
    assert LocalStore(tmp_path) != open_store("memory://x")
