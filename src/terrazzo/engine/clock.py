"""Time and identity, at the one place where the engine asks for them."""

import itertools
import os
import re
import secrets
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from terrazzo.errors import InvalidRequestError
from terrazzo.format.keys import TimestampedName, unique_hex
from terrazzo.format.versions import WRITTEN

FOREVER = (1 << 64) - 1

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT = re.compile(
    r"\s*(\d{4}(?:-\d\d(?:-\d\d)?)?)(?:[T ](\d\d(?::\d\d(?::\d\d(?:\.\d{1,18})?)?)?)(Z|[+-]\d\d(?::?\d\d)?)?)?\s*",
    re.ASCII,
)

_lock = threading.Lock()
_state: dict[str, Any] = {"ms": -1, "counter": None, "pid": None}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


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
        if _state["ms"] != ms or _state["pid"] != os.getpid():
            _state.update(ms=ms, pid=os.getpid(), counter=itertools.count(secrets.randbelow(1 << 30)))
        return unique_hex(next(_state["counter"]), secrets.token_bytes(12))


def new_name(start_ms: int, end_ms: int | None = None, version: int | None = WRITTEN) -> TimestampedName:
    end = start_ms if end_ms is None else end_ms
    return TimestampedName(start_ms, end, unique(end), version)
