"""Attributes that were dropped, kept by consolidation: earlier instants still show them.

A consolidated fragment needs a schema that has them. Where none of the array's is it, one more is put, under the
instant of the present schema and a name that sorts just before: at no instant is it the newest, so nobody opens
the array with it.
"""

import secrets
from collections.abc import Sequence
from dataclasses import replace

from terrazzo.engine.fragments import Fragment
from terrazzo.engine.view import View, same_cells
from terrazzo.format.attribute import Attr
from terrazzo.format.keys import TimestampedName
from terrazzo.format.schema import Schema


def alien(view: View) -> tuple[Fragment, ...]:
    """Fragments with an attribute whose name means another one now: no schema can hold both."""
    held: dict[str, Attr] = {attr.name: attr for attr in view.schema.attrs}
    found = []
    for fragment in reversed(view.snapshot.fragments):
        attrs = view.snapshot.schema_of(fragment).attrs
        if all(same_cells(attr, held.get(attr.name, attr)) for attr in attrs):
            held |= {attr.name: attr for attr in attrs if attr.name not in held}
        else:
            found.append(fragment)
    return tuple(found)


def keep_dropped(view: View, run: Sequence[Fragment]) -> View:
    """The view under a schema that has all that the fragments of `run` hold."""
    snapshot = view.snapshot
    present = TimestampedName.parse(snapshot.schema_name)
    dropped: dict[str, Attr] = {}
    for fragment in run:
        for attr in snapshot.schema_of(fragment).attrs:
            if not view.schema.has(attr.name):
                dropped.setdefault(attr.name, replace(attr, enum=None))
    if not dropped or present is None:
        return view
    attrs = (*view.schema.attrs, *(dropped[name] for name in sorted(dropped)))
    wide = replace(view.schema, attrs=attrs)
    name = _found(view, wide) or str(replace(present, uuid=f"{0:08x}{secrets.token_hex(12)}"))
    schemas = {**snapshot.schemas, name: wide}
    return view.following(replace(snapshot, schema=wide, schema_name=name, schemas=schemas))


def _found(view: View, wide: Schema) -> str | None:
    """The name of a schema that was put for this before."""
    for name, schema in view.snapshot.schemas.items():
        if (schema.attrs, schema.dims, schema.capacity) == (wide.attrs, wide.dims, wide.capacity):
            return name
    return None
