"""What delta and double delta share: their options, and the type they count in.

size  option
   1  compressor: 8 is delta, 6 double delta. Quirk: libtiledb numbers compressors apart from filters
   4  level, i32: without a meaning here, kept so that a schema is written as it was read
   1  the datatype to read elements as, or 17 (ANY) for none; absent before format 19 and 20
"""

import struct
from typing import Any

import numpy as np

from terrazzo.errors import CorruptionError, InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.wire import Cursor

_OPTIONS = struct.Struct("<BiB")
_BYTE = np.dtype(np.uint8)


def pack_options(compressor: int, level: int, reinterpret: Datatype | None) -> bytes:
    return _OPTIONS.pack(compressor, level, Datatype.ANY if reinterpret is None else reinterpret)


def unpack_options(cursor: Cursor, compressor: int, *, reinterprets: bool) -> tuple[Datatype | None, int]:
    if (found := cursor.u8()) != compressor:
        raise CorruptionError(f"compressor {found}; {compressor} expected", offset=cursor.offset - 1)
    level = cursor.i32()
    datatype = Datatype.of_code(cursor.u8(), offset=cursor.offset - 1) if reinterprets else Datatype.ANY
    return None if datatype is Datatype.ANY else datatype, level


def check_options(level: int, reinterpret: Datatype | None) -> None:
    if not -(2**31) <= level < 2**31:
        raise InvalidRequestError(f"a level of {level} does not fit in 32 bits")
    if reinterpret is Datatype.ANY:
        raise InvalidRequestError("elements cannot be read as datatype any; leave reinterpret out")


def counted_as(reinterpret: Datatype | None, datatype: Datatype) -> np.dtype[Any] | None:
    """The type to count in; None where there is none.

    Quirk: text counts in bytes whatever its width, and cannot be reinterpreted to.
    """
    if reinterpret is None:
        return None if datatype.is_float else _BYTE if datatype.is_string else datatype.dtype
    unfit = reinterpret.is_float or reinterpret.is_string or reinterpret is Datatype.CHAR
    return None if unfit or datatype.size % reinterpret.size else reinterpret.dtype


def encoded_as(filter_name: str, reinterpret: Datatype | None, datatype: Datatype) -> np.dtype[Any]:
    dtype = counted_as(reinterpret, datatype)
    if dtype is not None:
        return dtype
    if reinterpret is None:
        raise InvalidRequestError(
            f"{filter_name} does not take {datatype.name.lower()}; set reinterpret to an integer datatype"
        )
    raise InvalidRequestError(
        f"{filter_name} cannot read {datatype.name.lower()} as {reinterpret.name.lower()}; "
        f"reinterpret as an integer of {datatype.size} bytes or less"
    )


def decoded_as(filter_name: str, reinterpret: Datatype | None, datatype: Datatype) -> np.dtype[Any]:
    dtype = counted_as(reinterpret, datatype)
    if dtype is None:
        raise CorruptionError(f"{filter_name} on {datatype.name.lower()}, which it does not take")
    return dtype


def check_whole(filter_name: str, size: int, dtype: np.dtype[Any]) -> None:
    if size % dtype.itemsize:
        raise InvalidRequestError(
            f"{filter_name} takes whole elements of {dtype.itemsize} bytes; a part has {size} bytes"
        )
