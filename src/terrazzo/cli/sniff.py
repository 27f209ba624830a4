"""Which kind of file some bytes are, where their name does not tell: the first kind that they parse as, whole."""

from collections.abc import Callable

from terrazzo.cli.kinds import FileKind
from terrazzo.errors import FormatError, InvalidRequestError
from terrazzo.format.commits import DeleteCommit, UpdateCommit
from terrazzo.format.condition import unpack_condition
from terrazzo.format.enumeration import Enumeration
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.fragment import schema_name, split_footer
from terrazzo.format.generic_tile import GenericTileHeader, unpack_generic_tile
from terrazzo.format.group import GroupDetails
from terrazzo.format.ledgers import ConsolidatedFooters, unpack_con, unpack_ign, unpack_vac
from terrazzo.format.metadata import Metadata
from terrazzo.format.schema import Schema
from terrazzo.format.tile import ChunkHeader
from terrazzo.format.versions import WRITTEN
from terrazzo.format.wire import Cursor


def sniff(content: bytes, cipher: Aes256Gcm | None) -> FileKind:
    if not content:
        return FileKind.OTHER
    if _fits(lambda: _one_tile(content)):
        return _of_body(unpack_generic_tile(content, cipher))
    checks: tuple[tuple[FileKind, Callable[[], object]], ...] = (
        (FileKind.FRAGMENT_METADATA, lambda: _metadata_file(content)),
        (FileKind.IGNORE, lambda: unpack_ign(content)),
        (FileKind.CONSOLIDATED, lambda: unpack_con(content)),
        (FileKind.VACUUM, lambda: unpack_vac(content)),
        (FileKind.DATA, lambda: _tiles(content)),
    )
    return next((kind for kind, check in checks if _fits(check)), FileKind.OTHER)


def _of_body(body: bytes) -> FileKind:
    # Stricter layouts first: many bytes would pass for key-value metadata.
    checks: tuple[tuple[FileKind, Callable[[], object]], ...] = (
        (FileKind.SCHEMA, lambda: Schema.unpack(body)),
        (FileKind.ENUMERATION, lambda: Enumeration.unpack(body)),
        (FileKind.GROUP, lambda: GroupDetails.unpack(body)),
        (FileKind.DELETE, lambda: _delete(body)),
        (FileKind.UPDATE, lambda: UpdateCommit.unpack(body)),
        (FileKind.FOOTERS, lambda: _footers(body)),
        (FileKind.METADATA, lambda: Metadata.unpack(body)),
    )
    return next((kind for kind, check in checks if _fits(check)), FileKind.OTHER)


def _fits(check: Callable[[], object]) -> bool:
    try:
        check()
    except (FormatError, InvalidRequestError):
        return False
    return True


def _one_tile(content: bytes) -> None:
    cursor = Cursor(content)
    header = GenericTileHeader.unpack(cursor)
    cursor.take(header.pipeline_size + header.stored_size)
    cursor.expect_end()


def _metadata_file(content: bytes) -> None:
    GenericTileHeader.unpack(Cursor(content))
    footer = split_footer(content, WRITTEN, None)
    if isinstance(footer, int):
        raise FormatError("no footer")
    schema_name(footer)


def _delete(body: bytes) -> DeleteCommit:
    cursor = Cursor(body)
    condition = unpack_condition(cursor)
    cursor.expect_end()
    return DeleteCommit(condition)


def _footers(body: bytes) -> None:
    for footer in ConsolidatedFooters.unpack(body).footers.values():
        schema_name(footer)


def _tiles(content: bytes) -> None:
    cursor = Cursor(content)
    while cursor.remaining:
        for _ in range(cursor.count64(12, "chunks")):
            header = ChunkHeader.unpack(cursor)
            cursor.take(header.metadata_size + header.filtered_size)
