"""The border between arrays and Spark: which type becomes which, without loss or with an error.

    array                                        Spark
    int8 … int64, float32, float64, bool         byte … long, float, double, boolean
    uint8, uint16, uint32                        short, int, long
    uint64                                       decimal(20,0)
    DATETIME_DAY                                 date
    DATETIME_SEC, _MS, _US                       timestamp_ntz
    TIME_SEC, _MS, _US                           interval day to second
    DATETIME_NS, TIME_NS and all other units     long: the count, its unit in the column's metadata `tiledb.datatype`
    ASCII, UTF-8                                 string
    other bytes, of any or of fixed length       binary
    lists, of any or of fixed length             array of the above
    enumerations                                 their labels

A type that Spark is asked for by a schema of the user's takes the place of the one here, if every value fits it.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from terrazzo.engine.arrow import arrow_field, enumeration_of, value_type
from terrazzo.engine.changes import CHANGE
from terrazzo.errors import InvalidRequestError
from terrazzo.format.attribute import Attr
from terrazzo.format.datatypes import Datatype
from terrazzo.format.domain import Dim
from terrazzo.format.schema import Schema

DATATYPE = "tiledb.datatype"
"""Key of a column's metadata: the array's type, where Spark's says less."""

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}


def spark_arrow_type(kind: Any) -> Any:
    """The Arrow type in which Spark takes a column of `kind`."""
    if pa.types.is_dictionary(kind):
        return spark_arrow_type(kind.value_type)
    if kind in _WIDER:
        return _WIDER[kind]
    if pa.types.is_timestamp(kind):
        return pa.int64() if kind.unit == "ns" else pa.timestamp("us")
    if pa.types.is_duration(kind):
        return pa.int64() if kind.unit == "ns" else pa.duration("us")
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(spark_arrow_type(kind.value_type))
    return kind


def struct_of(schema: Schema, columns: Sequence[str]) -> StructType:
    """The columns of an array as Spark's."""
    return StructType([_struct_field(schema.field(name), schema) for name in columns])


def with_change(struct: StructType) -> StructType:
    """The columns of a change feed: the kind of change comes first."""
    return StructType([StructField(CHANGE, StringType(), nullable=False), *struct.fields])


def _struct_field(field: Attr | Dim, schema: Schema) -> StructField:
    stored = arrow_field(field, schema)
    given = spark_arrow_type(stored.type)
    # Where Spark's type alone would come back as another one, the column says what it was.
    changed = given != stored.type or stored.metadata
    metadata = {DATATYPE: field.datatype.name} if changed and enumeration_of(field, schema) is None else {}
    return StructField(field.name, from_arrow_type(given), stored.nullable, metadata or None)


def arrow_schema_of(struct: StructType) -> Any:
    """The Arrow schema that Spark expects for its columns, to the letter."""
    return to_arrow_schema(struct, timezone="UTC")


def to_spark(batch: Any, wanted: Any) -> Any:
    """A batch of the engine as a batch of exactly the schema `wanted`."""
    arrays = []
    for field in wanted:
        try:
            arrays.append(_converted(batch.column(field.name), field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
            reason = str(problem).splitlines()[0]
            raise InvalidRequestError(
                f"column {field.name!r} of {batch.schema.field(field.name).type} does not fit {field.type}: {reason}"
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _converted(array: Any, kind: Any) -> Any:
    if array.type == kind:
        return array
    if pa.types.is_dictionary(array.type):
        return _converted(array.dictionary_decode(), kind)
    return pc.cast(array, kind)


def empty_table(struct: StructType) -> Any:
    """No rows of a DataFrame's columns, as Arrow, each of the type that its metadata tell; what arrays have no type
    for is left as it is, and refused by them."""
    told = {field.name: dict(field.metadata or {}).get(DATATYPE) for field in struct.fields}
    return pa.schema([_original(field, told[field.name]) for field in arrow_schema_of(struct)]).empty_table()


def _original(field: Any, name: str | None) -> Any:
    if name is None or name not in Datatype.__members__:
        return field
    lists = pa.types.is_list(field.type)
    single = value_type(Datatype[name])
    if single is None or spark_arrow_type(single) != (field.type.value_type if lists else field.type):
        return field  # it was cast since
    return pa.field(field.name, pa.list_(single) if lists else single, field.nullable, {DATATYPE: name})
