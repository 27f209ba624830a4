"""terrazzo: TileDB arrays in Python."""

from terrazzo import errors, filters
from terrazzo.engine.array import Array, create, exists
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
    "UnsupportedFeatureError", "create", "errors", "exists", "filters", "open", "schema_of",
]  # fmt: skip
