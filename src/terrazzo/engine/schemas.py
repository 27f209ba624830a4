"""The schemas of an array, and which of them is in force when."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from terrazzo.engine.listing import Listed
from terrazzo.engine.runner import parallel
from terrazzo.errors import CorruptionError, FormatError
from terrazzo.format import keys
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.generic_tile import unpack_generic_tile
from terrazzo.format.keys import TimestampedName
from terrazzo.format.schema import Schema
from terrazzo.storage.base import Store


def load_schemas(
    store: Store, listed: Listed, cipher: Aes256Gcm | None, known: Mapping[str, Schema] = MappingProxyType({})
) -> dict[str, Schema]:
    """Every schema file, oldest first; fragments name the one they were written with."""
    names = sorted(
        (n for n in map(TimestampedName.parse, listed.schemas) if n is not None), key=lambda n: n.order
    )
    wanted = ([keys.SCHEMA_FILE] if keys.SCHEMA_FILE in listed.root else []) + [str(name) for name in names]

    def load(name: str) -> Schema:
        if name in known:
            return known[name]
        key = keys.schema_key(name)
        try:
            return Schema.unpack(unpack_generic_tile(store.get(key), cipher))
        except FormatError as problem:
            raise problem.at_key(f"{store.uri}/{key}") from None

    return dict(zip(wanted, parallel(load, wanted), strict=True))


def current_schema(schemas: Mapping[str, Schema], at_ms: int) -> str:
    """The newest schema up to the instant; before the first one, the first."""
    chosen = next(iter(schemas))
    for name in schemas:
        parsed = TimestampedName.parse(name)
        if parsed is None or parsed.end_ms <= at_ms:
            chosen = name
    return chosen


def with_enumerations(store: Store, schema: Schema, cipher: Aes256Gcm | None) -> Schema:
    """The schema with the labels that it refers to by file name."""

    def load(item: tuple[str, str]) -> tuple[str, Enumeration]:
        key = keys.enumeration_key(item[1])
        try:
            enumeration, _ = Enumeration.unpack(unpack_generic_tile(store.get(key), cipher))
            if enumeration.name != item[0]:
                raise CorruptionError(f"holds enumeration {enumeration.name!r}, not {item[0]!r}")
            return item[0], enumeration
        except FormatError as problem:
            raise problem.at_key(f"{store.uri}/{key}") from None

    if schema.enum_files.keys() <= schema.enums.keys():
        return schema
    return replace(schema, enums=dict(parallel(load, schema.enum_files.items())))
