"""Fragments of both engines side by side: every file, and every section of the metadata."""

from pathlib import Path

from terrazzo.engine.fragments import Sections, load_fragment
from terrazzo.format.filters.aes import Aes256Gcm
from terrazzo.format.fragment import Footer, Section
from terrazzo.format.keys import FRAGMENT_METADATA_FILE, TimestampedName
from terrazzo.format.schema import Schema
from terrazzo.storage import open_store

PER_SLOT = [section for section in Section if Section.TILE_OFFSETS <= section <= Section.NULL_COUNTS]
LISTS = (Section.TILE_OFFSETS, Section.VAR_OFFSETS, Section.VAR_SIZES, Section.VALIDITY_OFFSETS)


class Stored:
    """A fragment on disk, taken apart."""

    def __init__(
        self, folder: Path, schema: Schema, schema_name: str, cipher: Aes256Gcm | None = None
    ) -> None:
        root = folder.parents[1] if folder.parent.name == "__fragments" else folder.parent
        store = open_store(str(root))
        name = TimestampedName.parse(folder.name)
        self.folder, self.schema = folder, schema
        self.fragment = load_fragment(store, name, {schema_name: schema}, cipher)
        self.footer: Footer = self.fragment.footer
        self.sections = Sections(store, self.fragment, schema, cipher)
        self.files = {
            path.name: path.read_bytes() for path in folder.iterdir() if path.name != FRAGMENT_METADATA_FILE
        }

    def slot(self, name: str) -> int:
        for index, attr in enumerate(self.schema.attrs):
            if attr.name == name:
                return index
        return self.footer.slots.dim([dim.name for dim in self.schema.dims].index(name))

    def body(self, section: Section, name: str | None = None) -> bytes | None:
        return self.sections.body(section, 0 if name is None else self.slot(name))


def only_fragment(root: Path) -> Path:
    (folder,) = (root / "__fragments").iterdir()
    return folder
