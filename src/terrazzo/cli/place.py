"""From what a user typed to a store and a key, and from a file up to the array that it belongs to."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NoReturn

from terrazzo.cli.kinds import parse_name
from terrazzo.engine.listing import list_array
from terrazzo.engine.schemas import load_schemas, with_enumerations
from terrazzo.errors import ArrayNotFoundError, FormatError, InvalidRequestError
from terrazzo.format import keys
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.keys import TimestampedName
from terrazzo.format.schema import Schema
from terrazzo.storage import Store, open_store

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^/]*)(.*)", re.DOTALL)
_LEVELS = 5  # a file lies at most three folders below its array


@dataclass(frozen=True)
class Place:
    """A path or URI, cut into a base that names the file system or bucket, and segments below it."""

    base: str
    segments: tuple[str, ...]
    cipher: Aes256Gcm | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, given: str, cipher: Aes256Gcm | None, options: Mapping[str, str] | None = None) -> "Place":
        if (match := _URI.fullmatch(given)) is None:
            if not given:
                raise InvalidRequestError("an empty path names no file")
            base, path = "/", os.path.abspath(given)  # noqa: PTH100 - a link is not to be followed
        else:
            base, path = f"{match[1]}/", match[2]
        return cls(base, tuple(part for part in path.split("/") if part), cipher, options or {})

    @property
    def uri(self) -> str:
        return self.base + "/".join(self.segments)

    @property
    def name(self) -> str:
        return self.segments[-1]

    def up(self, levels: int) -> "Place":
        return replace(self, segments=self.segments[: len(self.segments) - levels])

    @cached_property
    def store(self) -> Store:
        """Everything below this place."""
        return open_store(self.uri, self.options)

    @cached_property
    def folder(self) -> Store:
        """What lies beside this file."""
        return self.up(1).store

    @cached_property
    def fragment_name(self) -> TimestampedName | None:
        """Of the fragment whose folder this file is in."""
        return parse_name(self.segments[-2]) if len(self.segments) > 1 else None

    @cached_property
    def array(self) -> "Place | None":
        """The nearest folder above that holds a schema."""
        for levels in range(1, min(_LEVELS, len(self.segments)) + 1):
            place = self.up(levels)
            if place.is_array:
                return place
        return None

    @cached_property
    def is_array(self) -> bool:
        if self.store.list(keys.SCHEMA_FOLDER):
            return True
        return any(entry.key == keys.SCHEMA_FILE for entry in self.store.list())

    @cached_property
    def schemas(self) -> dict[str, Schema]:
        """Every schema of the array above, oldest first; none where there is no array."""
        if self.array is None:
            return {}
        store = self.array.store
        return load_schemas(store, list_array(store), self.cipher)

    @cached_property
    def newest_schema(self) -> Schema | None:
        """With its labels, if they can be read: they make conditions readable, and are no more than that."""
        if not self.schemas or self.array is None:
            return None
        return self.labelled(next(reversed(self.schemas.values())))

    def labelled(self, schema: Schema) -> Schema:
        if self.array is None:
            return schema
        try:
            return with_enumerations(self.array.store, schema, self.cipher)
        except (FormatError, FileNotFoundError):
            return schema

    def missing(self) -> NoReturn:
        raise ArrayNotFoundError(f"{self.uri}: there is no such file or folder; check the path")
