"""The filter that does nothing; libtiledb can store it. Spec: format_spec/filter_pipeline.md."""

from dataclasses import dataclass
from typing import ClassVar, Self

from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.base import Element, FilterCode, Parts
from terrazzo.format.wire import Cursor


@dataclass(frozen=True, slots=True)
class NoOp:
    code: ClassVar = FilterCode.NONE

    def output_type(self, datatype: Datatype) -> Datatype:
        return datatype

    def encode(self, parts: Parts, element: Element) -> Parts:  # noqa: ARG002
        return parts

    def decode(self, parts: Parts, element: Element, limit: int) -> Parts:  # noqa: ARG002
        return parts

    def bound(self, size: int, element: Element) -> int:  # noqa: ARG002
        return size

    def pack_options(self) -> bytes:
        return b""

    @classmethod
    def unpack_options(cls, cursor: Cursor, version: int) -> Self:  # noqa: ARG003
        return cls()
