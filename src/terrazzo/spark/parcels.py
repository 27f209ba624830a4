"""What goes from the driver to every task of a job: pickled once, and small."""

import pickle
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_CODEC = "zstd"


@dataclass(frozen=True, slots=True)
class Parcel:
    packed: bytes
    size: int

    def open(self) -> Any:
        return pickle.loads(pa.decompress(self.packed, self.size, _CODEC, asbytes=True))  # noqa: S301  # our own


def parcel(content: Any) -> Parcel:
    pickled = pickle.dumps(content)
    return Parcel(pa.compress(pickled, _CODEC, asbytes=True), len(pickled))
