"""Compressors, checksums, encryption and run lengths, beside the bare codec in the same run."""

import bz2
import hashlib
import time
import zlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from filters import CHUNK, COLUMN, HEADER, Case, Codec, Decoder, Speed, measured, walk
from measure import Table, seconds, speed

from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.filters.byteshuffle import ByteShuffle
from terrazzo.format.filters.checksum import Md5, Sha256
from terrazzo.format.filters.compress import Bzip2, Gzip, Lz4, Zstd
from terrazzo.format.filters.dictionary import Dictionary
from terrazzo.format.filters.noop import NoOp
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.filters.rle import Rle
from terrazzo.format.tile import TileCodec

KEY, NONCE = bytes(32), bytes(12)


def _arrow(name: str, level: int | None) -> tuple[Codec, Decoder]:
    codec = pa.Codec(name) if level is None else pa.Codec(name, compression_level=level)
    return (
        lambda piece: codec.compress(piece, asbytes=True),
        lambda stored, size: codec.decompress(stored, size, asbytes=True),
    )


def _digest(make) -> tuple[Codec, Decoder]:
    def digested(piece, _size=0):
        make(piece).digest()
        return piece

    return digested, digested


def _aes() -> tuple[Codec, Decoder]:
    cipher = AESGCM(KEY)
    return lambda piece: cipher.encrypt(NONCE, piece, None), lambda stored, _: cipher.decrypt(
        NONCE, stored, None
    )


def _cases() -> Iterator[Case]:
    values = walk()
    yield Case("no-op", "walk", (NoOp(),), values)
    yield Case("zstd -1", "walk", (Zstd(),), values, bare=_arrow("zstd", -1))
    yield Case("zstd 3", "walk", (Zstd(3),), values, bare=_arrow("zstd", 3))
    yield Case("byteshuffle, zstd", "walk", (ByteShuffle(), Zstd()), values, beside=False)
    yield Case("lz4", "walk", (Lz4(),), values, bare=_arrow("lz4_raw", None))
    gzip = (
        lambda piece: zlib.compress(piece, -1),
        lambda stored, size: zlib.decompress(stored, bufsize=size),
    )
    yield Case("gzip", "walk", (Gzip(),), values, bare=gzip)
    yield Case(
        "bzip2",
        "walk",
        (Bzip2(),),
        values,
        bare=(lambda p: bz2.compress(p, 1), lambda s, _: bz2.decompress(s)),
    )
    runs = np.repeat(np.arange(COLUMN // 8 // 20, dtype=np.int64), 20)
    yield Case("rle", "runs of 20", (Rle(),), np.resize(runs, COLUMN // 8))
    yield Case("md5", "walk", (Md5(),), values, bare=_digest(hashlib.md5))
    yield Case("sha256", "walk", (Sha256(),), values, bare=_digest(hashlib.sha256))
    yield Case("aes-256-gcm", "walk", (), values, bare=_aes(), cipher=Aes256Gcm(KEY, lambda: NONCE))


def _texts() -> Iterator[tuple[str, ...]]:
    """Text through the two filters that keep the offsets; there is no bare codec to stand beside them."""
    labels = np.array([f"station {i:05d}".encode() for i in range(100)])
    n_cells = COLUMN // labels.itemsize
    chosen = np.random.default_rng(3).integers(0, len(labels), n_cells)
    for name, first, which in (("rle", Rle(), np.sort(chosen)), ("dictionary", Dictionary(), chosen)):
        for label, cells in (("64 KiB", CHUNK // labels.itemsize), ("100 MB", n_cells)):
            data = labels[which[:cells]].view(np.uint8)
            offsets = np.arange(cells, dtype=np.uint64) * np.uint64(labels.itemsize)
            codec = TileCodec(Pipeline((first,)), Datatype.STRING_ASCII, 1, var=True)
            tile = codec.encode(data, offsets)
            content, starts = codec.decode_strings(tile, len(data), cells)
            assert content.tobytes() == data.tobytes()
            assert (starts == offsets).all()
            works = {
                "decode": lambda c=codec, t=tile, d=data, n=cells: c.decode_strings(t, len(d), n),
                "encode": lambda c=codec, d=data, o=offsets: c.encode(d, o),
            }
            for what, work in works.items():
                took = seconds(work, clock=time.process_time, most=50)
                yield f"{name} of text", "100 labels", what, label, "1", speed(len(data), took), "-", "-"


def table() -> Table:
    speeds: list[Speed] = []
    result = Table("Compressors, checksums, encryption", HEADER)
    for case in _cases():
        for each in measured(case):
            speeds.append(each)
            result.rows.append(each.row())
    result.rows.extend(_texts())
    for each in speeds:
        if each.case.name.startswith("zstd") and (each.what, each.size) == ("decode", "100 MB"):
            ratio = each.ours / (each.bare or 1)
            verdict = "kept" if ratio <= 1.3 else "MISSED"
            result.notes.append(
                f"a {each.case.name} column decodes within 1.3 × (codec + one copy), {each.threads} thread(s): "
                f"{ratio:.2f}, {verdict}"
            )
    return result


if __name__ == "__main__":
    print(table().markdown())
