"""MERGE: rows of a DataFrame meet the cells at their coordinates; clauses say what becomes of both."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sqlglot
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812
from sqlglot import exp

from terrazzo.engine.basis import Basis, committed
from terrazzo.engine.plan import Request
from terrazzo.engine.region import Region, everything
from terrazzo.errors import InvalidRequestError
from terrazzo.format.schema import Schema
from terrazzo.spark.casting import analysing, column, expression, fitted
from terrazzo.spark.coordinates import box_of, region_of
from terrazzo.spark.failures import telling
from terrazzo.spark.frames import frame_of_request
from terrazzo.spark.outcome import ACTION, DELETE, INSERT, KEEP, SOURCES, UPDATE, MergeResult, apply_outcome
from terrazzo.spark.types import struct_of

MATCHED, NOT_MATCHED, BY_SOURCE = "matched", "not matched", "not matched by source"
_CLAUSE, _THERE, _HERE, _PLACE = "__terrazzo_clause", "__terrazzo_there", "__terrazzo_here", "__terrazzo_d"


@dataclass(frozen=True)
class Clause:
    when: str
    action: str
    values: Mapping[str, Any] | None = None
    condition: Any = None


@dataclass(frozen=True)
class Merge:
    """A merge in the making. Of the clauses whose condition holds, the first one counts.

    Conditions and values are SQL text or Columns over `source.…` and `target.…`; a text to set is written as SQL
    writes it, in quotes of its own: {"tag": "'new'"}.
    """

    array: Any  # a SparkArray
    source: Any
    on: Mapping[str, Any] | None = None  # what in the source gives a dimension; the column of its name
    names: tuple[str, str] = ("target", "source")
    clauses: tuple[Clause, ...] = field(default=())

    def when_matched_update(self, values: Mapping[str, Any] | None = None, condition: Any = None) -> "Merge":
        """Set attributes of the cell; all that the source has columns for, unless `values` says which."""
        return self._with(MATCHED, UPDATE, values, condition)

    def when_matched_delete(self, condition: Any = None) -> "Merge":
        return self._with(MATCHED, DELETE, None, condition)

    def when_not_matched_insert(
        self, values: Mapping[str, Any] | None = None, condition: Any = None
    ) -> "Merge":
        """Write a cell at the row's coordinates, with the columns of the source unless `values` says otherwise."""
        return self._with(NOT_MATCHED, INSERT, values, condition)

    def when_not_matched_by_source_update(self, values: Mapping[str, Any], condition: Any = None) -> "Merge":
        return self._with(BY_SOURCE, UPDATE, values, condition)

    def when_not_matched_by_source_delete(self, condition: Any = None) -> "Merge":
        return self._with(BY_SOURCE, DELETE, None, condition)

    def _with(self, when: str, action: str, values: Mapping[str, Any] | None, condition: Any) -> "Merge":
        return replace(self, clauses=(*self.clauses, Clause(when, action, values, condition)))

    def execute(self) -> MergeResult:
        """Do it, under one commit; nothing is committed if nothing is to be done."""
        if not self.clauses:
            raise InvalidRequestError("a merge needs a clause, such as when_matched_update()")
        engine = self.array.array
        ledger = committed(engine.view.store)
        basis = Basis.of(engine.latest(), ledger)
        schema = basis.view.schema
        if schema.dense and any((c.when, c.action) != (MATCHED, UPDATE) for c in self.clauses):
            raise InvalidRequestError(
                "a dense array has a value in every cell: none can be inserted or deleted; merge into it with "
                "when_matched_update alone"
            )
        source = self._placed(schema).persist()
        try:
            done = apply_outcome(self.array.spark, basis, self._outcome(basis, source))
        finally:
            source.unpersist()
        self.array.refresh()
        return done

    def _placed(self, schema: Schema) -> Any:
        """The source with its coordinates as the array has them, and how many rows share them."""
        source = self.source.alias(self.names[1])
        given = {name.casefold(): name for name in self.source.columns}
        found = {}
        for dim in schema.dims:
            if self.on is not None:
                found[dim.name] = expression(self.on[dim.name])
            elif dim.name in self.source.columns or dim.name.casefold() in given:
                own = dim.name if dim.name in self.source.columns else given[dim.name.casefold()]
                found[dim.name] = column(own)
            else:
                raise InvalidRequestError(
                    f"the source has no column for the dimension {dim.name!r}; it has "
                    f"{', '.join(map(repr, self.source.columns))}"
                )
        places = fitted(source, found, schema, "merge")
        named = [_PLACE + str(j) for j in range(len(places))]
        source = source.select(
            "*", *(each.alias(name) for each, name in zip(places.values(), named, strict=True))
        )
        count = F.count(F.lit(1)).over(Window.partitionBy(*map(column, named)))
        return source.withColumn(SOURCES, count).withColumn(_HERE, F.lit(True))

    def _outcome(self, basis: Basis, source: Any) -> Any:
        view, schema = basis.view, basis.view.schema
        target_name, source_name = self.names
        kinds = {clause.when for clause in self.clauses}
        request = Request(self._needed(schema), self._region(basis, source, kinds))
        target = frame_of_request(self.array.spark, view, request).withColumn(_THERE, F.lit(True))
        same = [
            column(dim.name, target_name) == column(_PLACE + str(j), source_name)
            for j, dim in enumerate(schema.dims)
        ]
        how = "full" if BY_SOURCE in kinds else "right" if NOT_MATCHED in kinds else "inner"
        pairs = target.alias(target_name).join(source.alias(source_name), same, how)
        there, here = column(_THERE, target_name).isNotNull(), column(_HERE, source_name).isNotNull()
        sides = {MATCHED: there & here, NOT_MATCHED: ~there & here, BY_SOURCE: there & ~here}
        chosen, action = F, F
        for place, clause in enumerate(self.clauses):
            holds = sides[clause.when]
            if clause.condition is not None:
                holds &= expression(clause.condition)
            chosen = chosen.when(holds, F.lit(place))
            action = action.when(column(_CLAUSE) == place, F.lit(clause.action))
        with analysing("merge"):
            pairs = pairs.withColumn(_CLAUSE, chosen)
            _ = pairs.schema
        counted = column(_CLAUSE).isNotNull()
        pairs = pairs.where(counted | there if schema.allows_duplicates else counted)
        return pairs.select(
            *self._fields(pairs, schema, request.columns),
            action.otherwise(F.lit(KEEP)).alias(ACTION),
            F.coalesce(column(SOURCES, source_name), F.lit(1)).alias(SOURCES),
        )

    def _region(self, basis: Basis, source: Any, kinds: set[str]) -> Region:
        """The part of the array that can be concerned: the box of the source, if what lies outside does not matter."""
        schema = basis.view.schema
        if BY_SOURCE in kinds:
            return everything(schema)
        with telling():
            box = box_of(source, schema, [_PLACE + str(j) for j in range(len(schema.dims))])
        region = region_of(box, schema)
        if schema.dense:
            for j, dim in enumerate(schema.dims):
                assert dim.domain is not None
                region = region.restricted(j, dim.domain)
        return region if box is not None else replace(region, ranges=((), *region.ranges[1:]))

    def _needed(self, schema: Schema) -> tuple[str, ...]:
        """Columns of the array to read. Cells are written again as a whole; to delete them, their places will do."""
        names = tuple(each.name for each in schema.fields)
        conditions = [clause.condition for clause in self.clauses if clause.condition is not None]
        if schema.allows_duplicates or any(clause.action == UPDATE for clause in self.clauses):
            return names
        try:
            trees = [sqlglot.parse_one(text, dialect="spark") for text in conditions if isinstance(text, str)]
        except sqlglot.errors.SqlglotError:
            return names  # Spark says what is wrong with it
        if len(trees) < len(conditions):
            return names
        told = {word.name.casefold() for tree in trees for word in tree.find_all(exp.Identifier)}
        dims = {dim.name for dim in schema.dims}
        return tuple(name for name in names if name in dims or name.casefold() in told)

    def _fields(self, pairs: Any, schema: Schema, read: tuple[str, ...]) -> list[Any]:
        """Every field of the array: as the clause that counts sets it, or as it is."""
        per_clause = [
            fitted(pairs, given, schema, f"merge, when {clause.when} then {clause.action}")
            if (given := self._values(clause, schema))
            else {}
            for clause in self.clauses
        ]
        made = []
        for each in schema.fields:
            value = F
            for place, values in enumerate(per_clause):
                if each.name in values:
                    value = value.when(column(_CLAUSE) == place, values[each.name])
            absent = F.lit(None).cast(struct_of(schema, [each.name])[0].dataType)
            own = column(each.name, self.names[0]) if each.name in read else absent
            made.append((own if value is F else value.otherwise(own)).alias(each.name))
        return made

    def _values(self, clause: Clause, schema: Schema) -> dict[str, Any]:
        """What a clause sets, by field."""
        if clause.action == DELETE:
            return {}
        dims, attrs = [dim.name for dim in schema.dims], [attr.name for attr in schema.attrs]
        fields = {name.casefold(): name for name in dims + attrs}
        held = {name.casefold(): name for name in self.source.columns}
        if clause.values is None:
            found = {n: column(held[n.casefold()], self.names[1]) for n in attrs if n.casefold() in held}
        else:
            found = {}
            for name, value in clause.values.items():
                if name not in dims + attrs and name.casefold() not in fields:
                    schema.field(name)  # says which there are
                found[name if name in dims + attrs else fields[name.casefold()]] = expression(value)
        if clause.action == UPDATE:
            for name in found:
                if name in dims:
                    raise InvalidRequestError(
                        f"{name!r} is a dimension: the place of a cell cannot be updated; delete and insert"
                    )
            if not found:
                raise InvalidRequestError("the source has no column of an attribute's name; say what to set")
            return found
        for j, name in enumerate(dims):
            found.setdefault(name, column(_PLACE + str(j), self.names[1]))
        for attr in schema.attrs:
            if attr.name not in found:
                if not attr.nullable:
                    raise InvalidRequestError(
                        f"the insert has no value for {attr.name!r}, which is not nullable"
                    )
                found[attr.name] = F.lit(None)
        return found
