"""The span of time that a reader looks at."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from terrazzo.format import versions
from terrazzo.format.keys import TimestampedName


@dataclass(frozen=True, slots=True)
class Window:
    """The instants that a reader looks at, both ends included."""

    since_ms: int
    at_ms: int

    def contains(self, name: TimestampedName) -> bool:
        return self.since_ms <= name.start_ms and name.end_ms <= self.at_ms

    def overlaps(self, name: TimestampedName) -> bool:
        return name.start_ms <= self.at_ms and self.since_ms <= name.end_ms

    def shows(self, name: TimestampedName, *, dense: bool) -> bool:
        """Whether a fragment of that name takes part; cells that carry times are then judged one by one."""
        timed = not dense and name.version is not None and name.version >= versions.DELETE_METADATA
        return self.overlaps(name) if timed else self.contains(name)

    @property
    def as_written(self) -> bool:
        """Whether cells show as they were written, whatever deletes and updates did to them since."""
        return False

    def holds(self, times: Any) -> Any:
        """Which cells were written within the window, by their times."""
        return (times >= np.uint64(self.since_ms)) & (times <= np.uint64(self.at_ms))
