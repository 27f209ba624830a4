"""Stored datatype codes: sizes, numpy types, default fill values. Spec: format_spec/array_schema.md."""

from enum import IntEnum
from functools import cached_property
from typing import Any, Self

import numpy as np

from terrazzo.errors import CorruptionError, InvalidRequestError

VAR = 0xFFFF_FFFF
"""cell_val_num of a field whose cells vary in length."""


class Datatype(IntEnum):
    INT32 = 0
    INT64 = 1
    FLOAT32 = 2
    FLOAT64 = 3
    CHAR = 4
    INT8 = 5
    UINT8 = 6
    INT16 = 7
    UINT16 = 8
    UINT32 = 9
    UINT64 = 10
    STRING_ASCII = 11
    STRING_UTF8 = 12
    STRING_UTF16 = 13
    STRING_UTF32 = 14
    STRING_UCS2 = 15
    STRING_UCS4 = 16
    ANY = 17
    DATETIME_YEAR = 18
    DATETIME_MONTH = 19
    DATETIME_WEEK = 20
    DATETIME_DAY = 21
    DATETIME_HR = 22
    DATETIME_MIN = 23
    DATETIME_SEC = 24
    DATETIME_MS = 25
    DATETIME_US = 26
    DATETIME_NS = 27
    DATETIME_PS = 28
    DATETIME_FS = 29
    DATETIME_AS = 30
    TIME_HR = 31
    TIME_MIN = 32
    TIME_SEC = 33
    TIME_MS = 34
    TIME_US = 35
    TIME_NS = 36
    TIME_PS = 37
    TIME_FS = 38
    TIME_AS = 39
    BLOB = 40
    BOOL = 41
    GEOM_WKB = 42
    GEOM_WKT = 43

    @classmethod
    def of_code(cls, code: int, *, offset: int | None = None) -> Self:
        try:
            return cls(code)
        except ValueError:
            raise CorruptionError(f"there is no datatype {code}", offset=offset) from None

    @classmethod
    def parse(cls, name: object) -> "Datatype":
        """A datatype by its own name (`"float64"`, `"datetime_ms"`), a short one (`"ascii"`, `"utf8"`,
        `"datetime64[ms]"`), or a numpy dtype."""
        if isinstance(name, cls):
            return name
        text = str(name).strip() if isinstance(name, (str, np.dtype)) else _numpy_name(name)
        # As spelled first: in brackets M is months and m is minutes.
        for short in (text, text.lower(), _numpy_name(text)):
            if short in _SHORT_NAMES:
                return _SHORT_NAMES[short]
            if short.upper() in cls.__members__:
                return cls[short.upper()]
        raise InvalidRequestError(
            f"there is no datatype {text!r}; there are {', '.join(m.lower() for m in cls.__members__)}"
        )

    @property
    def size(self) -> int:
        """Bytes of one value."""
        return _SIZES[self]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of the stored bytes: datetimes are int64 counts, text is bytes (uint8)."""
        return _DTYPES[self]

    @property
    def is_string(self) -> bool:
        return Datatype.STRING_ASCII <= self <= Datatype.STRING_UCS4

    @property
    def is_text(self) -> bool:
        """Bytes that read as characters: CHAR, ASCII and UTF-8."""
        return self in {Datatype.CHAR, Datatype.STRING_ASCII, Datatype.STRING_UTF8}

    @property
    def is_datetime(self) -> bool:
        return Datatype.DATETIME_YEAR <= self <= Datatype.DATETIME_AS

    @property
    def is_time(self) -> bool:
        return Datatype.TIME_HR <= self <= Datatype.TIME_AS

    @property
    def is_float(self) -> bool:
        return self in {Datatype.FLOAT32, Datatype.FLOAT64}

    @property
    def is_integer(self) -> bool:
        """INT8…INT64 and UINT8…UINT64, neither dates nor characters."""
        return self in _INTEGERS

    @property
    def is_unsigned(self) -> bool:
        return self in {Datatype.UINT8, Datatype.UINT16, Datatype.UINT32, Datatype.UINT64}

    @cached_property
    def default_fill(self) -> bytes:
        """The bytes of one value that libtiledb fills absent cells with."""
        if self.is_float:
            return np.array(np.nan, self.dtype).tobytes()
        if self is Datatype.CHAR:
            return b"\x80"
        if self.is_unsigned:
            return b"\xff" * self.size
        if self.is_integer or self.is_datetime or self.is_time:
            return np.array(np.iinfo(self.dtype).min, self.dtype).tobytes()
        return bytes(self.size)

    @property
    def unit(self) -> str:
        """The numpy unit of a datetime or time: `"ms"` of DATETIME_MS."""
        return _UNITS[self.name.partition("_")[2]]


def _numpy_name(value: object) -> str:
    try:
        return str(np.dtype(value))  # type: ignore[call-overload]
    except TypeError:
        return str(value)


_UNITS = {
    "YEAR": "Y", "MONTH": "M", "WEEK": "W", "DAY": "D", "HR": "h", "MIN": "m", "SEC": "s",
    "MS": "ms", "US": "us", "NS": "ns", "PS": "ps", "FS": "fs", "AS": "as",
}  # fmt: skip

_INTEGERS = frozenset(Datatype[f"{sign}INT{bits}"] for sign in ("", "U") for bits in (8, 16, 32, 64))

_NUMBERS = {
    Datatype.INT32: "<i4", Datatype.INT64: "<i8", Datatype.FLOAT32: "<f4", Datatype.FLOAT64: "<f8",
    Datatype.CHAR: "i1", Datatype.INT8: "i1", Datatype.UINT8: "u1", Datatype.INT16: "<i2",
    Datatype.UINT16: "<u2", Datatype.UINT32: "<u4", Datatype.UINT64: "<u8",
    Datatype.STRING_UTF16: "<u2", Datatype.STRING_UCS2: "<u2",
    Datatype.STRING_UTF32: "<u4", Datatype.STRING_UCS4: "<u4",
}  # fmt: skip


def _dtype(datatype: Datatype) -> np.dtype[Any]:
    if datatype.is_datetime or datatype.is_time:
        return np.dtype("<i8")
    return np.dtype(_NUMBERS.get(datatype, "u1"))


_DTYPES = {datatype: _dtype(datatype) for datatype in Datatype}
_SIZES = {datatype: dtype.itemsize for datatype, dtype in _DTYPES.items()}

_SHORT_NAMES = {
    "ascii": Datatype.STRING_ASCII,
    "utf8": Datatype.STRING_UTF8,
    "str": Datatype.STRING_UTF8,
    "string": Datatype.STRING_UTF8,
    "bytes": Datatype.BLOB,
    "binary": Datatype.BLOB,
    "float": Datatype.FLOAT64,
    "double": Datatype.FLOAT64,
    "int": Datatype.INT64,
    **{
        f"{kind}64[{unit}]": Datatype[f"{stored}_{name}"]
        for kind, stored in (("datetime", "DATETIME"), ("timedelta", "TIME"))
        for name, unit in _UNITS.items()
        if f"{stored}_{name}" in Datatype.__members__
    },
}
