"""Every error a caller can meet, by what to do about it.

TerrazzoError
├── FormatError          restore the object, or upgrade: CorruptionError, UnsupportedFeatureError
├── InvalidRequestError  fix the call (also a ValueError)
├── ArrayNotFoundError   fix the URI (also a FileNotFoundError)
├── ArrayExistsError     choose another URI, or open the array (also a FileExistsError)
├── ConflictError        the array changed underneath, e.g. was vacuumed: open again and retry
└── StorageError         the object store refused: wait, or fix credentials
    └── MissingObjectError   a listed object is gone: open again (also a FileNotFoundError)
"""

from typing import Self


class TerrazzoError(Exception):
    """What is wrong, and where: `key` names the object, `offset` the byte in it."""

    def __init__(self, problem: str, *, key: str | None = None, offset: int | None = None) -> None:
        super().__init__(problem)  # one positional argument: the error survives pickling
        self.key, self.offset = key, offset

    def __str__(self) -> str:
        where = "" if self.key is None else f"{self.key}: "
        at = "" if self.offset is None else f" (at byte {self.offset})"
        return f"{where}{self.args[0]}{at}"

    def at_key(self, key: str) -> Self:
        """This error, with the object named unless an inner layer did so already."""
        if self.key is None:
            self.key = key
        return self


class FormatError(TerrazzoError):
    """The bytes are not what the format says."""


class CorruptionError(FormatError):
    """Damaged, truncated or inconsistent bytes: restore the object."""


class UnsupportedFeatureError(FormatError):
    """Sound bytes of a feature or version that this release does not know: upgrade."""


class InvalidRequestError(TerrazzoError, ValueError):
    """The call itself is wrong; nothing was read or written."""


class ArrayNotFoundError(TerrazzoError, FileNotFoundError):
    """There is no array, group or object of that name."""

    # FileNotFoundError brings OSError's own __str__ and __init__; ours come first in the MRO.


class ArrayExistsError(TerrazzoError, FileExistsError):
    """Something is there already, and is left as it is."""


class ConflictError(TerrazzoError):
    """The array changed underneath: open it again and retry."""


class StorageError(TerrazzoError, OSError):
    """The store refused or could not be reached."""


class MissingObjectError(StorageError, FileNotFoundError):
    """The store has no object of that key."""
