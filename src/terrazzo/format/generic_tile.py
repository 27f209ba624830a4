"""Generic tile: a tile that says itself how it is stored, the envelope of all metadata.

Spec: format_spec/generic_tile.md.

    offset  size  field of the header
         0     4  version of the library's format
         4     8  bytes of the tile as stored
        12     8  bytes of the tile before filtering
        20     1  datatype, CHAR
        21     8  bytes of a cell, 1
        29     1  encryption: 0 none, 1 AES-256-GCM
        30     4  bytes of the pipeline

Then the pipeline (gzip of level 1, and AES-256-GCM if encrypted), then the tile.
"""

import struct
from dataclasses import dataclass
from typing import Self

from terrazzo.errors import CorruptionError, FormatError, InvalidRequestError
from terrazzo.format.datatypes import Datatype
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.filters.base import FilterCode
from terrazzo.format.filters.compress import Gzip
from terrazzo.format.filters.pipeline import Pipeline
from terrazzo.format.tile import TileCodec
from terrazzo.format.versions import WRITTEN, check
from terrazzo.format.wire import Bytes, Cursor, Writer

_HEADER = struct.Struct("<IQQBQBI")
_PIPELINE = (Gzip(1),)
_NO_KEY = Aes256Gcm(bytes(32), bytes)  # stands for encryption in a pipeline that is looked at, not run


@dataclass(frozen=True, slots=True)
class GenericTileHeader:
    version: int
    stored_size: int
    size: int
    datatype: Datatype
    cell_size: int
    encrypted: bool
    pipeline_size: int

    def pack(self) -> bytes:
        return _HEADER.pack(
            self.version,
            self.stored_size,
            self.size,
            self.datatype,
            self.cell_size,
            self.encrypted,
            self.pipeline_size,
        )

    @classmethod
    def unpack(cls, cursor: Cursor) -> Self:
        start = cursor.offset
        version, stored_size, size, datatype, cell_size, encryption, pipeline_size = cursor.unpack(_HEADER)
        check(version, "a generic tile", offset=start)
        if encryption > 1:
            raise CorruptionError(f"there is no encryption {encryption}", offset=start + 29)
        if cell_size == 0:
            raise CorruptionError("cells of 0 bytes", offset=start + 21)
        datatype = Datatype.of_code(datatype, offset=start + 20)
        return cls(version, stored_size, size, datatype, cell_size, encryption == 1, pipeline_size)


def pack_generic_tile(body: Bytes, cipher: Aes256Gcm | None = None) -> bytes:
    tile = TileCodec(Pipeline(_PIPELINE), Datatype.CHAR, 1, cipher=cipher).encode(body)
    pipeline = Writer()
    Pipeline(_PIPELINE if cipher is None else (*_PIPELINE, cipher)).pack(pipeline)
    header = GenericTileHeader(
        WRITTEN, len(tile), len(body), Datatype.CHAR, 1, cipher is not None, pipeline.size
    )
    return b"".join((header.pack(), bytes(pipeline), tile))


def unpack_generic_tile(stored: Bytes | Cursor, cipher: Aes256Gcm | None = None) -> bytes:
    """What the tile holds. A cursor is left behind the tile; bytes must be one tile and no more."""
    if not isinstance(stored, Cursor):
        cursor = Cursor(stored)
        body = unpack_generic_tile(cursor, cipher)
        cursor.expect_end()
        return body
    header = GenericTileHeader.unpack(stored)
    pipeline_bytes = Cursor(stored.take(header.pipeline_size), base=stored.offset - header.pipeline_size)
    pipeline = Pipeline.unpack(pipeline_bytes, header.version, cipher or _NO_KEY)
    pipeline_bytes.expect_end()
    if header.encrypted != any(each.code == FilterCode.AES_256_GCM for each in pipeline.filters):
        raise CorruptionError(
            "header and pipeline disagree on encryption", offset=pipeline_bytes.base - _HEADER.size + 29
        )
    if header.encrypted and cipher is None:
        raise InvalidRequestError("the array is encrypted; open it with its key")
    if cipher is not None and not header.encrypted:
        raise InvalidRequestError("the array is not encrypted; open it without a key")
    start = stored.offset
    tile = stored.take(header.stored_size)
    # The cipher is in the pipeline as stored.
    codec = TileCodec(pipeline, header.datatype, header.cell_size, header.version)
    try:
        return codec.decode(tile, header.size).tobytes()
    except FormatError as error:
        error.offset = start + (error.offset or 0)
        raise
