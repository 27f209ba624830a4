"""Damage: cuts and mutations of sound bytes, and what a parser may make of them.

A parser ends with a value or with a FormatError, within a second, without taking memory that neither the
bytes at hand nor the schema justify. TERRAZZO_FUZZ scales how much is tried: 1 is 20,000 mutations of every
kind of file, as `make fuzz` tries them; the default is what a test run has time for.
"""

import os
import random
import resource
import struct
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from terrazzo.errors import FormatError, InvalidRequestError
from terrazzo.format.generic_tile import pack_generic_tile, unpack_generic_tile

SCALE = float(os.environ.get("TERRAZZO_FUZZ", "0.25"))
MUTATIONS = int(20_000 * SCALE)
SLOWEST_S = 1.0
_HUGE = (0, 1, 2, 0x7F, 0xFF, 0xFFFF, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 2, (1 << 32) - 1)
_HUGER = (*_HUGE, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 8, (1 << 64) - 1)
_BYTES = (0, 1, 2, 0x0A, 0x7F, 0x80, 0xFE, 0xFF)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file: sound examples, and what reads them. `in_tile`: the file is a generic tile of these."""

    name: str
    sound: tuple[bytes, ...]
    parse: Callable[[bytes], object]
    in_tile: bool = False
    justified: int = 0  # bytes that the schema says a reader needs, beyond those of the file
    cost: int = 1  # how many plain parses one parse is worth; so many fewer are made

    @property
    def mutations(self) -> int:
        return max(1, MUTATIONS // self.cost)

    def parse_file(self, stored: bytes) -> object:
        return self.parse(unpack_generic_tile(stored)) if self.in_tile else self.parse(stored)

    @property
    def files(self) -> tuple[bytes, ...]:
        return tuple(pack_generic_tile(body) if self.in_tile else body for body in self.sound)


def cuts(size: int) -> Iterator[int]:
    """Where to cut: everywhere, or in a large file in the first and last KiB and here and there between."""
    if size <= 4096:
        yield from range(size)
        return
    yield from range(1024)
    yield from range(1024, size - 1024, max(1, (size - 2048) // 1024))
    yield from range(size - 1024, size)


def mutated(stored: bytes, chance: random.Random) -> bytes:
    """One change, sometimes a few more."""
    damaged = bytearray(stored)
    for _ in range(1 if chance.random() < 0.7 else chance.randrange(2, 5)):
        _mutate(damaged, chance)
    return bytes(damaged)


def _mutate(damaged: bytearray, chance: random.Random) -> None:
    size = len(damaged)
    if not size:
        damaged += chance.randbytes(chance.randrange(1, 9))
        return
    draw = chance.random
    kind, at = int(draw() * 12), int(draw() * size)
    match kind:
        case 0 | 1:
            damaged[at] ^= 1 << int(draw() * 8)
        case 2 | 3:
            damaged[at] = _BYTES[int(draw() * len(_BYTES))]
        case 4:
            damaged[at] = int(draw() * 256)
        case 5:
            damaged[at] = (damaged[at] + (1 if draw() < 0.5 else 255)) & 255
        case 6 | 7:
            damaged[at : at + 4] = struct.pack("<I", _HUGE[int(draw() * len(_HUGE))])[: size - at]
        case 8:
            damaged[at : at + 8] = struct.pack("<Q", _HUGER[int(draw() * len(_HUGER))])[: size - at]
        case 9:
            del damaged[at : at + 1 + int(draw() * draw() * 32)]
        case 10:
            piece = damaged[at : at + 1 + int(draw() * 32)]
            damaged[at:at] = piece * (1 if draw() < 0.9 else 50)
        case _:
            length, other = 1 + int(draw() * 16), int(draw() * size)
            one, two = sorted((at, other))
            length = min(length, two - one, size - two)
            damaged[one : one + length], damaged[two : two + length] = (
                damaged[two : two + length],
                damaged[one : one + length],
            )


def damaged_parses(kind: Kind, seed: int, count: int) -> Iterator[tuple[bytes, Callable[[bytes], object]]]:
    """Damaged bytes, each with what reads them. Behind the compression of a generic tile it is mostly the
    body that is damaged; of ten, one is packed again and one is damaged as a file."""
    chance = random.Random(f"{kind.name} {seed}")
    files, sound = kind.files, kind.sound
    for turn in range(count):
        which = turn % len(sound)
        if not kind.in_tile:
            yield mutated(sound[which], chance), kind.parse
        elif turn % 10 == 0:
            yield mutated(files[which], chance), kind.parse_file
        elif turn % 10 == 1:
            yield pack_generic_tile(mutated(sound[which], chance)), kind.parse_file
        else:
            yield mutated(sound[which], chance), kind.parse


def attempt(parse: Callable[[bytes], object], stored: bytes) -> FormatError | None:
    """Parse; anything but a value or a FormatError fails the test, and so does taking too long."""
    started = time.thread_time()
    problem: FormatError | None = None
    try:
        parse(stored)
    except FormatError as error:
        problem = error
    except InvalidRequestError as error:
        if "encrypted" not in str(error):  # whether a key is needed is told by the file, damaged or not
            raise AssertionError(_report(stored, f"{type(error).__name__}: {error}")) from error
    except Exception as error:
        raise AssertionError(_report(stored, f"{type(error).__name__}: {error}")) from error
    spent = time.thread_time() - started
    assert spent < SLOWEST_S, _report(stored, f"{spent:.1f} s")
    return problem


def _report(stored: bytes, what: str) -> str:
    return f"{what}; parsing bytes.fromhex({stored.hex()!r})"


def has_place(problem: FormatError) -> bool:
    """Whether the error says where it happened, or by which numbers, or in a whole sentence what is wrong."""
    message = str(problem)
    return problem.offset is not None or any(map(str.isdigit, message)) or len(message.split()) >= 6


def peak_of(parse: Callable[[bytes], object], stored: bytes) -> int:
    """Bytes allocated at most while parsing; numpy's and those of bytes objects count."""
    tracemalloc.start()
    try:
        with suppress(FormatError, InvalidRequestError):
            parse(stored)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextmanager
def limited_memory(extra: int = 3 << 30) -> Iterator[None]:
    """Address space for `extra` bytes more and no further: an allocation by a damaged number fails here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as status:
        used = int(status.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + extra, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
