"""Writes of DataFrames: all four save modes, sorted into the array's order first where that pays, one commit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from terrazzo.engine.bulk import FRAGMENT_SIZE, BulkWrite, Written, plan_bulk_write
from terrazzo.engine.keys import as_cipher
from terrazzo.engine.listing import list_array
from terrazzo.engine.plan import parse_size
from terrazzo.errors import ArrayExistsError, InvalidRequestError, TerrazzoError
from terrazzo.format.ledgers import Record
from terrazzo.format.orders import Layout
from terrazzo.format.schema import Schema
from terrazzo.spark.creation import schema_from_struct
from terrazzo.spark.failures import telling
from terrazzo.spark.writer import check_columns
from terrazzo.storage import open_store

MODES = ("error", "append", "overwrite", "ignore")
_SCHEMA = "names array<string>, n_cells bigint, size bigint"


def write(
    df: Any, uri: str, *, mode: str = "error", schema: Schema | None = None, dims: Sequence[Any] | None = None,
    domain: Mapping[str, Any] | None = None, tile: Mapping[str, Any] | None = None,
    filters: Mapping[str, Any] | None = None, cluster: bool | None = None, partitions: int | None = None,
    fragment_size: int | str = FRAGMENT_SIZE, key: Any = None, storage_options: Mapping[str, str] | None = None,
    **options: Any,
) -> Written:  # fmt: skip
    """Write a DataFrame to the array at `uri` under one commit, and say what was written.

    mode      error: there must be no array yet; append; overwrite: all present cells go, under the same commit;
              ignore: an array that is there is left as it is
    schema    the array to create, or `dims` with `domain`, `tile`, `filters` and other options of `tz.schema_of`
    cluster   range-partition and sort by the array's order first, so that fragments do not overlap; the default for
              sparse arrays, since every later read is cheaper for it. Dense arrays always need whole tiles per task.
    """
    if mode not in MODES:
        raise InvalidRequestError(f"mode={mode!r}; there are {', '.join(MODES)}")
    store = open_store(str(uri), storage_options)
    if list_array(store).is_array:
        if mode == "error":
            raise ArrayExistsError(
                f"there is an array at {store.uri} already; say mode='append' or 'overwrite'"
            )
        if mode == "ignore":
            return Written((), 0, 0)
    elif schema is None and dims is not None:
        schema = schema_from_struct(df.schema, dims, domain=domain, tile=tile, filters=filters, **options)
    bulk = plan_bulk_write(
        store, as_cipher(key), schema, replaces=mode == "overwrite",
        fragment_size=parse_size(fragment_size, "fragment_size"),
    )  # fmt: skip
    return run_bulk_write(df, bulk, cluster=cluster, partitions=partitions)


def run_bulk_write(
    df: Any, bulk: BulkWrite, *, cluster: bool | None = None, partitions: int | None = None,
    also: Sequence[Record] = (), check: Callable[[], None] | None = None,
) -> Written:  # fmt: skip
    """Put the rows as fragments and commit them, with `also` under the same commit, unless `check` objects."""
    check_columns(df.columns, bulk)
    if cluster is None or cluster or bulk.schema.dense:
        df = clustered(df, bulk.schema, partitions)
    elif partitions is not None:
        df = df.repartition(partitions)
    try:
        with telling():
            rows = df.mapInArrow(_job(bulk), _SCHEMA).collect()
            results = [Written(tuple(row["names"]), row["n_cells"], row["size"]) for row in rows]
            if check is not None:
                check()
            bulk.commit(results, also)
    except BaseException:
        with suppress(TerrazzoError):
            bulk.discard_all()
        raise
    names = tuple(name for result in results for name in result.names)
    return Written(names, sum(r.n_cells for r in results), sum(r.size for r in results))


def _job(bulk: BulkWrite) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        written = bulk.run(batches)
        yield pa.RecordBatch.from_pydict(
            {
                "names": pa.array([list(written.names)], pa.list_(pa.string())),
                "n_cells": pa.array([written.n_cells], pa.int64()),
                "size": pa.array([written.size], pa.int64()),
            }
        )

    return run


def clustered(df: Any, schema: Schema, partitions: int | None = None) -> Any:
    """The rows range-partitioned by their place in the array's global order."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    if schema.dense:
        first = schema.dims[0]
        if not _has_tiles(first):
            return df.coalesce(1)  # dates have no tile that Spark could compute
        # All tiles with the same first coordinate together: they make whole boxes.
        low, extent = (F.lit(str(n)).cast("decimal(20,0)") for n in ((first.domain or (0, 0))[0], first.tile))
        keys = [F.floor((F.col(_quoted(first.name)).cast("decimal(20,0)") - low) / extent)]
    elif schema.cell_order is Layout.HILBERT or not all(_has_tiles(dim) for dim in schema.dims):
        # A curve has no expression in SQL; neighbours along the first dimension are the next best.
        keys = [F.col(_quoted(dim.name)) for dim in schema.dims]
    else:
        dims = schema.dims if schema.tile_order is Layout.ROW_MAJOR else schema.dims[::-1]
        keys = [_tile_of(dim, F) for dim in dims]
        cells = schema.dims if schema.cell_order is Layout.ROW_MAJOR else schema.dims[::-1]
        keys += [F.col(_quoted(dim.name)) for dim in cells]
    if partitions is None:
        return df.repartitionByRange(*keys)
    return df.repartitionByRange(partitions, *keys)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _has_tiles(dim: Any) -> bool:
    """Whether the tile of a coordinate is a quotient of whole numbers that Spark can form."""
    return dim.tile is not None and dim.datatype.is_integer and dim.domain is not None


def _tile_of(dim: Any, functions: Any) -> Any:
    column = functions.col(_quoted(dim.name))
    if not _has_tiles(dim):
        return column
    low, high, extent = int(dim.domain[0]), int(dim.domain[1]), int(dim.tile)
    if low > -(1 << 62) and high < 1 << 62:
        return functions.expr(f"(CAST({_quoted(dim.name)} AS BIGINT) - ({low})) div {extent}")
    # The distance from the low end might need more than 64 bits, and decimals are slow. Boundaries that are a little
    # off do: tasks sort their cells themselves.
    return functions.expr(f"{_quoted(dim.name)} div {extent}")
