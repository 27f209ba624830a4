"""Schemas: the first one, and every one after it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from terrazzo.engine.clock import new_name, reach, unique
from terrazzo.engine.listing import Listed
from terrazzo.engine.view import View, same_cells
from terrazzo.errors import ArrayExistsError, InvalidRequestError
from terrazzo.format import keys
from terrazzo.format.attribute import Attr
from terrazzo.format.current_domain import as_current_domain
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.generic_tile import pack_generic_tile
from terrazzo.format.keys import TimestampedName
from terrazzo.format.schema import Schema
from terrazzo.format.versions import WRITTEN
from terrazzo.storage.base import Store
from terrazzo.storage.local import LocalStore


def require_free(store: Store, listed: Listed) -> None:
    """That an array can be made here; there is none."""
    if isinstance(store, LocalStore) and store.is_file:
        raise ArrayExistsError(f"{store.uri} is a file, and an array is a folder; choose another place")
    # What a create or a first write that was cut short leaves behind is no obstacle to the next one.
    if listed.root or set(listed.root_folders) - {keys.SCHEMA_FOLDER, keys.FRAGMENT_FOLDER}:
        raise ArrayExistsError(f"the folder {store.uri} is not empty; choose another place")


def put_schema(
    store: Store, schema: Schema, time_ms: int, cipher: Aes256Gcm | None, name: str | None = None
) -> tuple[str, Schema]:
    """Store a schema and the enumerations that it has and no file has yet; the schema's own put comes last."""
    _check_labels(schema)
    files = dict(schema.enum_files)
    for label, enum in schema.enums.items():
        if label not in files:
            file = keys.enumeration_name(unique(time_ms))
            store.put(keys.enumeration_key(file), pack_generic_tile(enum.pack(file), cipher))
            files[label] = file
    stored = replace(schema, enum_files=files, version=WRITTEN)
    name = name or str(new_name(time_ms, version=None))
    reach(time_ms)
    store.put(keys.schema_key(name), pack_generic_tile(stored.pack(), cipher))
    return name, stored


def _check_labels(schema: Schema) -> None:
    """That every attribute can count the labels of its enumeration."""
    for attr in schema.attrs:
        if attr.enum in schema.enums:
            most, n = int(np.iinfo(attr.datatype.dtype).max) + 1, len(schema.enums[attr.enum])
            if n > most:
                raise InvalidRequestError(
                    f"{attr.name!r} is {attr.datatype.name} and counts up to {most} labels; "
                    f"{attr.enum!r} would have {n}"
                )


def evolve(
    view: View, time_ms: int, *, add: Attr | Iterable[Attr] = (), drop: str | Iterable[str] = (),
    extend_enum: Mapping[str, Any] | None = None, add_enum: Mapping[str, Any] | None = None,
    expand_domain: Mapping[str, Any] | None = None, force: bool = False,
) -> View:  # fmt: skip
    """The view after the change; fragments keep the schema that they were written with."""
    schema = view.schema
    newest = TimestampedName.parse(view.snapshot.schema_name)
    if newest is not None and time_ms <= newest.end_ms:
        raise InvalidRequestError(
            f"at={time_ms} is not after the present schema, which is of {newest.end_ms}; nobody would see the change"
        )
    add = [add] if isinstance(add, Attr) else list(add)
    drop = [drop] if isinstance(drop, str) else list(drop)
    enums, files = dict(schema.enums), dict(schema.enum_files)
    for name, values in (add_enum or {}).items():
        if name in enums:
            raise InvalidRequestError(f"there is an enumeration {name!r} already; extend it with extend_enum")
        enums[name] = values if isinstance(values, Enumeration) else Enumeration(name, values)
    for name, values in (extend_enum or {}).items():
        if name not in enums:
            known = ", ".join(map(repr, enums)) or "none"
            raise InvalidRequestError(f"no enumeration {name!r}; the schema has {known}")
        enums[name] = enums[name].extend(values)
        files.pop(name, None)  # the longer list goes to a file of its own
    attrs = list(schema.attrs)
    for attr in add:
        if schema.has(attr.name):
            raise InvalidRequestError(f"there is a field {attr.name!r} already")
        _check_meaning(view, attr)
        attrs.append(attr)
    for name in drop:
        schema.attr(name)
        attrs = [attr for attr in attrs if attr.name != name]
    if not attrs:
        raise InvalidRequestError("an array keeps at least one attribute")
    for name in () if force else drop:
        _check_untested(view, name)
    current = _expanded(schema, expand_domain)
    if (attrs, enums, current) == (list(schema.attrs), schema.enums, schema.current_domain):
        raise InvalidRequestError("nothing to change: give add, drop, extend_enum, add_enum or expand_domain")
    changed = replace(schema, attrs=tuple(attrs), enums=enums, enum_files=files, current_domain=current)
    name, stored = put_schema(view.store, changed, time_ms, view.cipher)
    return view.following(view.snapshot.with_schema(name, stored, time_ms))


def _check_untested(view: View, name: str) -> None:
    for condition in view.snapshot.conditions:
        if name in condition.body.condition.fields:
            raise InvalidRequestError(
                f"{condition.marker} tests {name!r}: without it libtiledb could not read the array any more "
                f"(terrazzo could); drop it with force=True if that is fine"
            )


def _check_meaning(view: View, attr: Attr) -> None:
    """A condition that tests a dropped attribute would test the new one of that name, with bytes of another type."""
    for condition in view.snapshot.conditions:
        if attr.name in condition.body.condition.fields:
            then = {old.name: old for old in view.snapshot.schema_at(condition.time_ms).attrs}
            if not same_cells(attr, then.get(attr.name)):
                raise InvalidRequestError(
                    f"{condition.marker} tests an attribute {attr.name!r} of another type, which was dropped since; "
                    f"choose another name"
                )


def _expanded(schema: Schema, wanted: Mapping[str, Any] | None) -> Any:
    if not wanted:
        return schema.current_domain
    for name in wanted:
        schema.dim(name)
    current = schema.current_domain
    if current is None:
        raise InvalidRequestError("the array has no current domain: it is as large as its domain")
    ranges = {
        dim.name: wanted.get(dim.name, bounds) for dim, bounds in zip(schema.dims, current, strict=True)
    }
    expanded: Any = as_current_domain(ranges, schema.dims)
    for dim, (low, high), (first, last) in zip(schema.dims, current, expanded, strict=True):
        if first > low or last < high:
            raise InvalidRequestError(
                f"the current domain of {dim.name!r} is {low!r} to {high!r} and can only grow"
            )
    return expanded
