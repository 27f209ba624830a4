"""terrazzo: TileDB arrays in Python.

A public name is imported when it is first used, so that `terrazzo --help` answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from terrazzo import errors, filters
    from terrazzo.engine.array import Array, check, create, exists, repair
    from terrazzo.engine.array import open_array as open  # noqa: A004
    from terrazzo.engine.groups import Group
    from terrazzo.engine.infer import schema_of
    from terrazzo.errors import (
        ArrayExistsError,
        ArrayNotFoundError,
        ConflictError,
        CorruptionError,
        FormatError,
        InvalidRequestError,
        StorageError,
        TerrazzoError,
        UnsupportedFeatureError,
    )
    from terrazzo.format.attribute import Attr
    from terrazzo.format.datatypes import Datatype
    from terrazzo.format.domain import Dim
    from terrazzo.format.enumeration import Enumeration
    from terrazzo.format.schema import Schema

__version__ = "0.1.0"

__all__ = [
    "Array", "ArrayExistsError", "ArrayNotFoundError", "Attr", "ConflictError", "CorruptionError", "Datatype", "Dim",
    "Enumeration", "FormatError", "Group", "InvalidRequestError", "Schema", "StorageError", "TerrazzoError",
    "UnsupportedFeatureError", "check", "create", "errors", "exists", "filters", "open", "repair", "schema_of",
]  # fmt: skip

_HOMES = {
    "Array": "engine.array", "check": "engine.array", "repair": "engine.array", "create": "engine.array", "exists": "engine.array", "open": "engine.array",
    "Group": "engine.groups", "schema_of": "engine.infer",
    "Attr": "format.attribute", "Datatype": "format.datatypes", "Dim": "format.domain",
    "Enumeration": "format.enumeration", "Schema": "format.schema",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in {"errors", "filters"}:
        return import_module(f"{__name__}.{name}")
    home = import_module(f"{__name__}.{_HOMES.get(name, 'errors')}")
    value = getattr(home, "open_array" if name == "open" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
