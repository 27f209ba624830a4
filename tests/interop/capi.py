"""libtiledb's C interface, for what its Python package cannot do: update queries.

Handles are all made here, through ctypes on the library that the `tiledb` wheel has loaded.
"""

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from ctypes import POINTER, byref, c_char_p, c_int32, c_uint64, c_void_p
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import tiledb

from terrazzo.format.condition import Compare, Condition

DELETE, UPDATE = 2, 3  # TILEDB_DELETE, TILEDB_UPDATE


@cache
def library() -> ctypes.CDLL:
    origin = find_spec("tiledb").origin
    folders = [Path(origin).parent.parent / "tiledb.libs", Path(origin).parent]
    found = [
        path for folder in folders for path in folder.glob("libtiledb*.so*") if "cpython" not in path.name
    ]
    return ctypes.CDLL(str(found[0]))


class Session:
    """A context with updates allowed; frees what it made."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self._made: list[tuple[str, c_void_p]] = []
        handle, error = self.new("config"), c_void_p()
        library().tiledb_config_alloc(byref(handle), byref(error))
        for key, value in config.items():
            library().tiledb_config_set(handle, key.encode(), value.encode(), byref(error))
        self.ctx = self.new("ctx")
        assert library().tiledb_ctx_alloc(handle, byref(self.ctx)) == 0

    def new(self, kind: str) -> c_void_p:
        handle = c_void_p()
        self._made.append((kind, handle))
        return handle

    def call(self, function: str, *arguments: object) -> None:
        if getattr(library(), function)(self.ctx, *arguments) != 0:
            error, message = c_void_p(), c_char_p()
            library().tiledb_ctx_get_last_error(self.ctx, byref(error))
            library().tiledb_error_message(error, byref(message))
            raise tiledb.TileDBError(message.value.decode())

    def make(self, kind: str, *arguments: object) -> c_void_p:
        handle = self.new(kind)
        self.call(f"tiledb_{kind}_alloc", *arguments, byref(handle))
        return handle

    def condition(self, node: Condition) -> c_void_p:
        if isinstance(node, Compare):
            return self._comparison(node)
        left = self.condition(node.children[0])
        for child in node.children[1:]:
            combined = self.new("query_condition")
            self.call(
                "tiledb_query_condition_combine",
                left, self.condition(child), c_int32(node.combination), byref(combined),
            )  # fmt: skip
            left = combined
        return left

    def _comparison(self, node: Compare) -> c_void_p:
        name = node.field.encode()
        if node.members is None:
            handle = self.make("query_condition")
            value = node.value or None
            size = c_uint64(len(node.value))
            self.call("tiledb_query_condition_init", handle, name, value, size, c_int32(node.op))
            return handle
        data = b"".join(node.members)
        offsets = np.cumsum([0, *map(len, node.members)], dtype="<u8")[:-1].tobytes()
        handle = self.new("query_condition")
        self.call(
            "tiledb_query_condition_alloc_set_membership",
            name, data, c_uint64(len(data)), offsets, c_uint64(len(offsets)), c_int32(node.op), byref(handle),
        )  # fmt: skip
        return handle

    def close(self) -> None:
        for kind, handle in reversed(self._made):
            with suppress(AttributeError):
                free = getattr(library(), f"tiledb_{kind}_free")
                free.argtypes = [POINTER(c_void_p)]
                free(byref(handle))


def write_update(
    uri: str,
    condition: Condition,
    assignments: Mapping[str, bytes | None],
    timestamp: int | None = None,
    *,
    kind: int = UPDATE,
    config: Mapping[str, str] | None = None,
) -> None:
    """Commit an update. `condition` is the user's, not negated; a value is the bytes of a cell, None is null.

    With `kind=DELETE` and no assignments it is a delete.
    """
    session = Session({"sm.allow_updates_experimental": "true", **(config or {})})
    try:
        array = session.make("array", str(uri).encode())
        if timestamp is not None:
            session.call("tiledb_array_set_open_timestamp_end", array, c_uint64(timestamp))
        session.call("tiledb_array_open", array, c_int32(kind))
        query = session.make("query", array, c_int32(kind))
        session.call("tiledb_query_set_condition", query, session.condition(condition))
        for name, value in assignments.items():
            size = c_uint64(len(value or b""))
            # An empty cell needs an address, a null none.
            session.call("tiledb_query_add_update_value", query, name.encode(), value, size)
        session.call("tiledb_query_submit", query)
        session.call("tiledb_query_finalize", query)
        session.call("tiledb_array_close", array)
    finally:
        session.close()
