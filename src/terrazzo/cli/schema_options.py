"""The schema of an array that `ingest` creates: taken from the data, and from options where they say otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from terrazzo.cli.options import WrongUsageError, pairs, parse_filters, parse_range, parse_value
from terrazzo.cli.progress import Bar
from terrazzo.cli.sources import Source
from terrazzo.errors import InvalidRequestError
from terrazzo.format.schema import Schema


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """As they stand on the command line."""

    dims: tuple[str, ...] = ()
    domain: tuple[str, ...] = ()
    tile: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    capacity: int | None = None
    order: str | None = None
    tile_order: str | None = None
    allow_duplicates: bool = False
    dense: bool = False

    @property
    def any_given(self) -> bool:
        return self != SchemaOptions()


def schema_for(source: Source, columns: Sequence[str], options: SchemaOptions) -> Schema:
    """The schema that the named columns of a source fit."""
    from terrazzo.engine.infer import schema_of

    for name in options.dims:
        if name not in columns:
            raise InvalidRequestError(
                f"--dim {name}: the source has no such column; it has {', '.join(columns)}"
            )
    if len(set(options.dims)) != len(options.dims):
        raise WrongUsageError(f"--dim {','.join(options.dims)} names a column twice")
    filters = filters_of(options.filters, columns, options.dims)
    sample = miniature(source, columns, options.dims)
    given: dict[str, Any] = {"sparse": not options.dense}
    if options.capacity is not None:
        given["capacity"] = options.capacity
    if options.order is not None:
        given["cell_order"] = options.order
    if options.tile_order is not None:
        given["tile_order"] = options.tile_order
    if options.allow_duplicates:
        given["allows_duplicates"] = True
    return schema_of(
        sample,
        list(options.dims),
        domain={
            name: _domain(name, text, sample)
            for name, text in _of_dims(options.domain, "--domain", options).items()
        },
        tile={
            name: _tile(name, text, sample)
            for name, text in _of_dims(options.tile, "--tile", options).items()
        },
        filters=filters,
        **given,
    )


def _of_dims(given: Sequence[str], option: str, options: SchemaOptions) -> dict[str, str]:
    found = pairs(given, option)
    for name in found:
        if name not in options.dims:
            raise WrongUsageError(
                f"{option} {name}: this is no dimension; those are {', '.join(options.dims)}"
            )
    return found


def _domain(name: str, text: str, sample: Any) -> Any:
    found = parse_range(text, _datatype(name, sample), f"--domain {name}={text}")
    if not isinstance(found, tuple) or None in found:
        raise WrongUsageError(f"--domain {name}={text}: both ends are needed: {name}=0:999")
    return found


def _tile(name: str, text: str, sample: Any) -> Any:
    datatype = _datatype(name, sample)
    if datatype.is_datetime:
        if not text.isdigit():
            raise WrongUsageError(f"--tile {name}={text}: a whole number of its unit is expected")
        return int(text)
    return parse_value(text, datatype, f"--tile {name}={text}")


def _datatype(name: str, sample: Any) -> Any:
    from terrazzo.engine.infer import datatype_of
    from terrazzo.format.datatypes import Datatype

    kind = sample.schema.field(name).type
    found, what = datatype_of(
        sample.schema.field(name), kind.value_type if pa.types.is_dictionary(kind) else kind
    )
    if what == "text":
        raise WrongUsageError(f"{name} is text: it takes neither --domain nor --tile")
    assert isinstance(found, Datatype)
    return found


# -- filters -------------------------------------------------------------------------------------------


def filters_of(given: Sequence[str], columns: Sequence[str], dims: Sequence[str]) -> Any:
    """`byteshuffle,zstd:3` for every attribute, `v=zstd:9` for one column; None where nothing is said."""
    everywhere: list[Any] | None = None
    by_name: dict[str, list[Any]] = {}
    for item in given:
        name, equals, text = item.partition("=")
        if not equals:
            everywhere = parse_filters(item, f"--filter {item}")
        elif name.strip() not in columns:
            raise InvalidRequestError(f"--filter {item}: there is no column {name.strip()!r}")
        else:
            by_name[name.strip()] = parse_filters(text, f"--filter {item}")
    if not by_name:
        return everywhere
    if everywhere is None:
        return by_name
    return dict.fromkeys([name for name in columns if name not in dims], everywhere) | by_name


# -- what the data span --------------------------------------------------------------------------------


@dataclass(slots=True)
class _Span:
    """What a schema wants to know of a column."""

    low: Any = None
    high: Any = None
    some: Any = None  # an array with one value that is not null
    has_nulls: bool = False
    labels: Any = None

    def add(self, column: Any, *, is_dim: bool) -> None:
        self.has_nulls |= column.null_count > 0
        if pa.types.is_dictionary(column.type):
            fresh = (
                column.dictionary
                if self.labels is None
                else pa.concat_arrays([self.labels, column.dictionary])
            )
            self.labels = fresh.unique().drop_null()
            self.has_nulls |= column.dictionary.null_count > 0
        if is_dim:
            plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            found = pc.min_max(plain)
            self._widen(found["min"], found["max"])
        elif self.some is None and column.null_count < len(column):
            self.some = column.drop_null().slice(0, 1)

    def _widen(self, low: Any, high: Any) -> None:
        if low.is_valid:
            self.low = low if self.low is None or low.as_py() < self.low.as_py() else self.low
            self.high = high if self.high is None or high.as_py() > self.high.as_py() else self.high


def miniature(source: Source, columns: Sequence[str], dims: Sequence[str]) -> Any:
    """A table of a few rows for which a schema would be the same as for all of the source."""
    spans = {name: _Span() for name in columns}
    nulls = _null_counts(source)
    left = [name for name in columns if name in dims or name not in nulls]
    for name in columns:
        if name not in left:
            spans[name].has_nulls = nulls[name] > 0
    if left:
        with Bar("looking at the data", source.n_rows, "rows") as bar:
            for batch in bar.counting(source.batches(left)):
                for name in left:
                    spans[name].add(batch.column(name), is_dim=name in dims)
    for name in dims:
        if spans[name].has_nulls:
            raise InvalidRequestError(
                f"column {name!r} has nulls, and coordinates have none; fill them, or choose other dims"
            )
    fields = [source.schema.field(name) for name in columns]
    return pa.table([_rows(spans[f.name], f.type, is_dim=f.name in dims) for f in fields], pa.schema(fields))


def _rows(span: _Span, kind: Any, *, is_dim: bool) -> Any:
    """Two cells of the column."""
    if pa.types.is_dictionary(kind):
        labels = pa.array([], kind.value_type) if span.labels is None else span.labels
        place = None if span.has_nulls or not len(labels) else 0
        made = pa.DictionaryArray.from_arrays(
            pa.array([place, place], kind.index_type), labels, ordered=kind.ordered
        )
        return made.cast(kind) if made.type != kind else made
    if is_dim:
        return (
            pa.nulls(2, kind) if span.low is None else pa.array([span.low.as_py(), span.high.as_py()], kind)
        )
    if span.has_nulls:
        return pa.nulls(2, kind)
    return pa.array([_empty(kind)] * 2, kind) if span.some is None else pa.concat_arrays([span.some] * 2)


def _empty(kind: Any) -> Any:
    """A value of a type whose values do not matter here, but must not be null."""
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        return []
    if types.is_fixed_size_list(kind):
        return [0] * kind.list_size
    if types.is_fixed_size_binary(kind):
        return b"\0" * kind.byte_width
    if types.is_string(kind) or types.is_large_string(kind):
        return ""
    return b"" if types.is_binary(kind) or types.is_large_binary(kind) else None if types.is_null(kind) else 0


def _null_counts(source: Source) -> Mapping[str, int]:
    """Of columns about which the footers of Parquet files say it; labels have to be looked at."""
    if source.kind != "parquet" or not source.files:
        return {}
    counts = {
        field.name: 0
        for field in source.schema
        if not pa.types.is_dictionary(field.type) and not pa.types.is_nested(field.type)
    }
    for file in source.files:
        metadata = pq.read_metadata(file)
        places = {metadata.schema.column(j).path: j for j in range(metadata.num_columns)}
        for name in list(counts):
            known = _nulls_in(metadata, places.get(name))
            if known is None:
                del counts[name]
            else:
                counts[name] += known
    return counts


def _nulls_in(metadata: Any, place: int | None) -> int | None:
    if place is None:
        return int(metadata.num_rows)  # this file lacks the column
    total = 0
    for group in range(metadata.num_row_groups):
        told = metadata.row_group(group).column(place).statistics
        if told is None or not told.has_null_count:
            return None
        total += told.null_count
    return total
