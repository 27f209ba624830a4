"""Options of the data source: text by name, names in any case."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from terrazzo.engine.array import Array, open_array
from terrazzo.engine.keys import as_cipher
from terrazzo.engine.plan import parse_size
from terrazzo.engine.spelling import parse_flag
from terrazzo.errors import InvalidRequestError
from terrazzo.storage import Store, open_store

# What Spark's catalogue adds to the options of a table by itself.
_CATALOGUE = {
    "location", "owner", "provider", "external", "is_managed_location", "comment", "collation", "table_type",
}  # fmt: skip
_PLACE = {"path", "key"} | _CATALOGUE
READ = _PLACE | {"at", "since", "columns", "where", "partitions", "partition_size", "pushdown"}
WRITE = _PLACE | {
    "dims", "filters", "capacity", "order", "tile_order", "allows_duplicates", "dense", "fragment_size",
    "cluster", "checkpointlocation", "queryname",
}  # fmt: skip
STREAM = _PLACE | {
    "columns", "where", "partition_size", "changes", "startat", "lateness", "maxcellspertrigger",
    "maxcommitspertrigger",
}  # fmt: skip
_FAMILIES = {"region.", "storage.", "domain.", "tile.", "filters."}

DEFAULT_PARTITION = 64 << 20
"""Bytes of columns per task: large enough to be worth a task, small enough for many of them to fit an executor."""


@dataclass(frozen=True)
class Options:
    """What `.option(…)` said, checked: a misspelt option is an error, not a wish that goes unheard."""

    given: Mapping[str, str]

    @classmethod
    def of(cls, given: Mapping[str, Any], known: set[str]) -> "Options":
        plain = {str(name).lower(): str(value) for name, value in dict(given).items()}
        # A table of the catalogue brings its options twice, once with a prefix.
        plain = {n.removeprefix("option."): v for n, v in plain.items()} | {
            n: v for n, v in plain.items() if not n.startswith("option.")
        }
        for name in plain:
            if name not in known and not any(name.startswith(family) for family in _FAMILIES):
                listed = ", ".join(sorted(known - _CATALOGUE - {"checkpointlocation", "queryname"}))
                raise InvalidRequestError(
                    f"there is no option {name!r}; there are {listed}, and region.<dim>, domain.<dim>, tile.<dim>, "
                    f"filters.<column>, storage.<name>"
                )
        return cls(plain)

    def get(self, name: str) -> str | None:
        return self.given.get(name)

    def family(self, name: str) -> dict[str, str]:
        """Options such as `region.x`, by what stands behind the dot, in lower case."""
        return {key[len(name) :]: value for key, value in self.given.items() if key.startswith(name)}

    def number(self, name: str) -> int | None:
        text = self.get(name)
        if text is None:
            return None
        if not text.strip().isdigit() or int(text) < 1:
            raise InvalidRequestError(f"{name}={text!r}; a whole number above zero is expected")
        return int(text)

    def instant(self, name: str) -> Any:
        """Milliseconds if it is a number, otherwise a date for the engine to read."""
        text = self.get(name)
        return int(text) if text is not None and text.strip().isdigit() else text

    def flag(self, name: str) -> bool:
        text = self.get(name)
        return text is not None and parse_flag(text, name)

    def size(self, name: str, default: int) -> int:
        text = self.get(name)
        return default if text is None else parse_size(text, name)

    @property
    def uri(self) -> str:
        path = self.get("path") or self.get("location")
        if not path:
            # Quirk: of a table of the catalogue, Spark tells a Python source no option when it reads the table.
            raise InvalidRequestError(
                "say which array: .load(uri), .save(uri) or .option('path', uri); a table of the catalogue is read by "
                "terrazzo.spark.sql"
            )
        return path.removeprefix("file:") if path.startswith("file:/") and "://" not in path else path

    @property
    def storage(self) -> dict[str, str] | None:
        return self.family("storage.") or None

    def store(self) -> Store:
        return open_store(self.uri, self.storage)

    def cipher(self) -> Any:
        return as_cipher(self.get("key"))

    def open(self) -> Array:
        return open_array(
            self.uri, at=self.instant("at"), since=self.instant("since"), key=self.get("key"),
            storage_options=self.storage,
        )  # fmt: skip
