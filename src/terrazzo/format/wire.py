"""Bounds-checked reading and writing of little-endian bytes.

A length that was read is never believed: `Cursor` compares it with what is left before anything is
sliced or allocated, so a damaged count costs an error and no memory.
"""

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from terrazzo.errors import CorruptionError

Bytes = bytes | bytearray | memoryview

U8 = struct.Struct("<B")
U16 = struct.Struct("<H")
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
I32 = struct.Struct("<i")
F32 = struct.Struct("<f")
F64 = struct.Struct("<d")


class Cursor:
    """Walks over bytes; every short read is a CorruptionError that says where."""

    __slots__ = ("_view", "base", "position")

    def __init__(self, buffer: Bytes, *, base: int = 0) -> None:
        view = memoryview(buffer)
        self._view = view if view.format == "B" and view.ndim == 1 else view.cast("B")
        self.position = 0
        self.base = base  # offset of the buffer's first byte in the object it was cut from

    @property
    def offset(self) -> int:
        return self.base + self.position

    @property
    def remaining(self) -> int:
        return len(self._view) - self.position

    def take(self, size: int) -> memoryview:
        if size > self.remaining or size < 0:
            raise CorruptionError(f"{size} bytes expected, {self.remaining} left", offset=self.offset)
        start = self.position
        self.position = start + size
        return self._view[start : self.position]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int(U16.unpack(self.take(2))[0])

    def u32(self) -> int:
        return int(U32.unpack(self.take(4))[0])

    def u64(self) -> int:
        return int(U64.unpack(self.take(8))[0])

    def i32(self) -> int:
        return int(I32.unpack(self.take(4))[0])

    def f32(self) -> float:
        return float(F32.unpack(self.take(4))[0])

    def f64(self) -> float:
        return float(F64.unpack(self.take(8))[0])

    def flag(self, what: str) -> bool:
        value = self.u8()
        if value > 1:
            raise CorruptionError(f"{what} is {value}; 0 or 1 expected", offset=self.offset - 1)
        return value == 1

    def count32(self, item_size: int, what: str) -> int:
        """A u32 count of items that each take `item_size` bytes at least."""
        return self._checked(self.u32(), item_size, what, 4)

    def count64(self, item_size: int, what: str) -> int:
        """A u64 count of items that each take `item_size` bytes at least."""
        return self._checked(self.u64(), item_size, what, 8)

    def _checked(self, count: int, item_size: int, what: str, width: int) -> int:
        if count * item_size > self.remaining:
            raise CorruptionError(
                f"{count} {what} do not fit in the {self.remaining} bytes left", offset=self.offset - width
            )
        return count

    def bytes32(self) -> bytes:
        """Bytes behind a u32 length."""
        return bytes(self.take(self.u32()))

    def bytes64(self) -> bytes:
        """Bytes behind a u64 length."""
        return bytes(self.take(self.u64()))

    def str32(self) -> str:
        return self._text(self.bytes32())

    def str64(self) -> str:
        return self._text(self.bytes64())

    def _text(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise CorruptionError("text is not UTF-8", offset=self.offset - len(raw)) from None

    def array(self, dtype: np.dtype[Any] | str, count: int) -> NDArray[Any]:
        """`count` items as a read-only array over the buffer, not copied."""
        resolved = np.dtype(dtype)
        return np.frombuffer(self.take(count * resolved.itemsize), resolved)

    def rest(self) -> memoryview:
        return self.take(self.remaining)

    def expect_end(self) -> None:
        if self.remaining:
            raise CorruptionError(f"{self.remaining} bytes too many", offset=self.offset)


class Writer:
    """Collects little-endian fields; `bytes()` joins them once."""

    __slots__ = ("_pieces", "size")

    def __init__(self) -> None:
        self._pieces: list[Bytes] = []
        self.size = 0

    def raw(self, piece: Bytes) -> None:
        self._pieces.append(piece)
        self.size += len(piece)

    def u8(self, value: int) -> None:
        self.raw(U8.pack(value))

    def u32(self, value: int) -> None:
        self.raw(U32.pack(value))

    def u64(self, value: int) -> None:
        self.raw(U64.pack(value))

    def i32(self, value: int) -> None:
        self.raw(I32.pack(value))

    def u64s(self, values: Iterable[int] | NDArray[Any]) -> None:
        self.raw(np.asarray(values, dtype="<u8").tobytes())

    def bytes32(self, value: Bytes) -> None:
        self.u32(len(value))
        self.raw(value)

    def bytes64(self, value: Bytes) -> None:
        self.u64(len(value))
        self.raw(value)

    def str32(self, value: str) -> None:
        self.bytes32(value.encode())

    def str64(self, value: str) -> None:
        self.bytes64(value.encode())

    def __bytes__(self) -> bytes:
        return b"".join(self._pieces)
