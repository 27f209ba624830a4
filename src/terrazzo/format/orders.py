"""In which order cells, tiles and labels come: small stored codes. Spec: format_spec/array_schema.md."""

from enum import IntEnum
from typing import Self

from terrazzo.errors import CorruptionError, InvalidRequestError


class _Code(IntEnum):
    @classmethod
    def of_code(cls, code: int, *, offset: int | None = None) -> Self:
        try:
            return cls(code)
        except ValueError:
            raise CorruptionError(f"there is no {cls.__name__} {code}", offset=offset) from None

    @classmethod
    def parse(cls, name: object) -> Self:
        """A member, or its name with `-` or `_`."""
        if isinstance(name, cls):
            return name
        try:
            return cls[str(name).upper().replace("-", "_")]
        except KeyError:
            raise InvalidRequestError(f"{name!r} is none of {', '.join(map(str, cls))}") from None

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


class Layout(_Code):
    """The order of cells in a tile, of tiles in an array, and of cells in a result."""

    ROW_MAJOR = 0
    COL_MAJOR = 1
    GLOBAL = 2  # of queries only
    UNORDERED = 3  # of queries only
    HILBERT = 4  # of the cells of sparse arrays only


class DataOrder(_Code):
    """Whether the values of a label array rise or fall."""

    UNORDERED = 0
    INCREASING = 1
    DECREASING = 2
