"""Time and identity, at the one place where the engine asks for them."""

import os
import re
import secrets
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import numpy as np

from terrazzo.errors import InvalidRequestError
from terrazzo.format.keys import TimestampedName, unique_hex
from terrazzo.format.versions import WRITTEN

FOREVER = (1 << 64) - 1
_PATIENCE_MS = 20
_COUNTED = re.compile(r"[0-7][0-9a-f]{7}")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT = re.compile(
    r"\s*(\d{4}(?:-\d\d(?:-\d\d)?)?)(?:[T ](\d\d(?::\d\d(?::\d\d(?:\.\d{1,18})?)?)?)(Z|[+-]\d\d(?::?\d\d)?)?)?\s*",
    re.ASCII,
)

_lock = threading.Lock()
_KEPT = 1000
_counters: dict[int, int] = {}  # the next number of each millisecond, those asked for last at the end
_owner = [0]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def reach(ms: int) -> None:
    """Wait until the clock has come to a stamp a few milliseconds ahead, before it is committed: whoever opens the
    array from then on sees the commit, and all of it. A clock further behind was set back, and is not waited for."""
    ahead = ms - now_ms()
    if 0 < ahead <= _PATIENCE_MS:
        time.sleep(ahead / 1000)


def instant(value: object, what: str = "at") -> int:
    """Epoch milliseconds of a number, a datetime, or ISO 8601 text; without a zone it is UTC."""
    if isinstance(value, bool):
        raise InvalidRequestError(f"{what}={value!r} is not an instant")
    if isinstance(value, (int, np.integer)):
        if not 0 <= int(value) <= FOREVER:
            raise InvalidRequestError(f"{what}={value!r} is not an instant: milliseconds since 1970 expected")
        return int(value)
    if isinstance(value, np.datetime64):
        if np.isnat(value):
            raise InvalidRequestError(f"{what}={value!r} is not an instant")
        return instant(int(value.astype("datetime64[ms]").astype(np.int64)), what)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidRequestError(
                f"{what}={value!r} is not an instant: use milliseconds, a datetime, or text such as "
                f"'2026-01-31T12:00:00'"
            ) from None
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return instant((aware - _EPOCH) // timedelta(milliseconds=1), what)
    raise InvalidRequestError(
        f"{what}={value!r} is not an instant: use milliseconds, a datetime, or ISO 8601 text"
    )


def moment(text: str) -> np.datetime64:
    """ISO 8601 text, exact to its last digit; a zone becomes UTC. ValueError if it is none."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError(text)
    day, clock, zone = match.groups()
    exact = np.datetime64(f"{day}T{clock}" if clock else day)
    if str(exact)[:4] != day[:4]:
        raise ValueError(text)  # so many digits that 64 bits do not reach from 1970 to there
    if zone and zone != "Z":
        minutes = int(zone[1:3]) * 60 + int(zone[3:].removeprefix(":") or 0)
        exact -= np.timedelta64(minutes if zone[0] == "+" else -minutes, "m")
    return exact


def as_text(ms: int) -> str:
    """An instant for people; one that no calendar has is left as a number."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (OverflowError, ValueError, OSError):
        return str(ms)


def unique(ms: int) -> str:
    """32 hex digits that sort as asked for within one millisecond and process, as libtiledb's do."""
    with _lock:
        if _owner[0] != os.getpid():  # a fork would go on with the numbers of its parent
            _owner[0] = os.getpid()
            _counters.clear()
        number = _counters.pop(ms, None)
        if number is None:
            number = secrets.randbelow(1 << 30)
        _counters[ms] = number + 1
        if len(_counters) > _KEPT:
            del _counters[next(iter(_counters))]
    return unique_hex(number, secrets.token_bytes(12))


def follow(ms: int, uuids: Iterable[str]) -> None:
    """Let the next names of a millisecond sort behind these: of equal times the later commit wins."""
    numbers = [int(uuid[:8], 16) for uuid in uuids if _COUNTED.match(uuid)]
    if numbers:
        unique(ms)
        with _lock:
            _counters[ms] = min(max(_counters.get(ms, 0), max(numbers) + 1), (1 << 31) - _KEPT)


def new_name(start_ms: int, end_ms: int | None = None, version: int | None = WRITTEN) -> TimestampedName:
    end = start_ms if end_ms is None else end_ms
    return TimestampedName(start_ms, end, unique(end), version)
