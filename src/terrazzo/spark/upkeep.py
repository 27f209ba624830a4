"""CREATE TABLE, OPTIMIZE, VACUUM, DESCRIBE HISTORY and RESTORE for arrays."""

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from pyspark.sql.types import StructType
from sqlglot import exp

from terrazzo.engine.array import create, exists
from terrazzo.engine.spelling import parse_flag
from terrazzo.errors import ArrayExistsError, InvalidRequestError
from terrazzo.spark.casting import analysing, quoted
from terrazzo.spark.creation import schema_from_options
from terrazzo.spark.ingest import write
from terrazzo.spark.mutations import counts
from terrazzo.spark.options import WRITE, Options
from terrazzo.spark.queries import query
from terrazzo.spark.references import Statement, instant_of

_NAME = r"(?P<name>[\w.]+|`[^`]+`(?:\.`[^`]+`)*)"
_OPTIMIZE = re.compile(
    rf"OPTIMIZE\s+{_NAME}\s*(?:(?:OPTIONS|WITH)?\s*\((?P<options>.*)\))?", re.IGNORECASE | re.DOTALL
)
_VACUUM = re.compile(
    rf"VACUUM\s+{_NAME}(?:\s+RETAIN\s+(?P<n>\d+(?:\.\d+)?)\s+(?P<unit>HOURS?|DAYS?))?(?P<dry>\s+DRY\s+RUN)?",
    re.IGNORECASE,
)
_HISTORY = re.compile(rf"DESC(?:RIBE)?\s+HISTORY\s+{_NAME}(?:\s+LIMIT\s+(?P<limit>\d+))?", re.IGNORECASE)
_RESTORE = re.compile(
    rf"RESTORE\s+(?:TABLE\s+)?{_NAME}\s+TO\s+(?:TIMESTAMP|VERSION)\s+AS\s+OF\s+'?(?P<at>[^']+?)'?",
    re.IGNORECASE,
)
_OPTION = re.compile(r"\s*'?([\w.]+)'?\s*=?\s*('(?:[^'\\]|\\.)*'|[\w.+-]+)\s*(?:,|$)")
_FLAGS = {"purge", "dry_run"}
_NUMBERS = {
    "min_fragments": int,
    "max_fragments": int,
    "size_ratio": float,
    "steps": int,
    "amplification": float,
}
_WORDS: dict[str, Callable[[str], Any]] = {
    "max_fragment_size": str,
    "memory": str,
    "since": instant_of,
    "until": instant_of,
}


def maintain(statement: Statement) -> Any:
    """The outcome of a statement about an array's upkeep; None if the text is something else."""
    text = statement.text.strip().rstrip(";").strip()
    kinds: list[tuple[re.Pattern[str], Callable[[Statement, Any, Any], Any]]] = [
        (_OPTIMIZE, _optimize), (_VACUUM, _vacuum), (_HISTORY, _history), (_RESTORE, _restore),
    ]  # fmt: skip
    for pattern, work in kinds:
        words = pattern.pattern.partition(r"\s")[0]
        match = pattern.fullmatch(text)
        if match is not None:
            reference = statement.target(match["name"])
            return None if reference is None else work(statement, reference.open(statement.spark), match)
        if statement.found and re.match(rf"{words}\b", text, re.IGNORECASE) and pattern is not _HISTORY:
            raise InvalidRequestError(f"{text!r} is not understood; see the guide to SQL for what may follow")
    return None


def _optimize(statement: Statement, array: Any, match: Any) -> Any:
    options: dict[str, Any] = {}
    for name, value in _options(match["options"] or ""):
        if name in _FLAGS:
            options[name] = parse_flag(value, name)
        elif name in _NUMBERS or name in _WORDS:
            options[name] = (_NUMBERS | _WORDS)[name](value)
        else:
            known = ", ".join(sorted(_FLAGS | set(_NUMBERS) | set(_WORDS)))
            raise InvalidRequestError(f"OPTIMIZE: there is no option {name!r}; there are {known}")
    return _told(statement.spark, array.consolidate(**options))


def _options(text: str) -> list[tuple[str, str]]:
    found, place = [], 0
    while place < len(text):
        match = _OPTION.match(text, place)
        if match is None:
            raise InvalidRequestError(
                f"options: {text[place:].strip()!r} is not understood; write name = value, …"
            )
        found.append((match[1].lower(), match[2].strip("'")))
        place = match.end()
    return found


def _vacuum(statement: Statement, array: Any, match: Any) -> Any:
    options: dict[str, Any] = {"dry_run": bool(match["dry"])}
    if match["n"] is not None:
        options["retain"] = f"{match['n']}{match['unit'][0].lower()}"
    return _told(statement.spark, array.vacuum(**options))


def _told(spark: Any, report: Any) -> Any:
    """A report as one row: numbers and flags as they are, lists by their length, the whole as text."""
    row: dict[str, Any] = {}
    for each in fields(report) if is_dataclass(report) else ():
        value = getattr(report, each.name)
        if isinstance(value, (bool, int)):
            row[each.name] = value
        elif isinstance(value, tuple):
            row[each.name] = len(value)
    kinds = ", ".join(f"{name} {'boolean' if isinstance(v, bool) else 'bigint'}" for name, v in row.items())
    return spark.createDataFrame([(*row.values(), str(report))], f"{kinds}{', ' * bool(kinds)}text string")


def _history(_statement: Statement, array: Any, match: Any) -> Any:
    told = array.history().orderBy("start_ms", "name", ascending=False)  # newest first, as Delta has it
    return told if match["limit"] is None else told.limit(int(match["limit"]))


def _restore(statement: Statement, array: Any, match: Any) -> Any:
    array.restore(instant_of(match["at"].strip()))
    return counts(statement.spark, restored=array.count())


def creates_array(tree: Any, statement: Statement) -> bool:
    """Whether a statement is CREATE TABLE … USING tiledb, or of tiledb.`uri`."""
    if not isinstance(tree, exp.Create) or str(tree.args.get("kind")).upper() != "TABLE":
        return False
    form = tree.find(exp.FileFormatProperty)
    table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if form is None and table.name in statement.found:
        return True
    return form is not None and form.name.lower() == "tiledb"


def create_table(statement: Statement, tree: Any) -> Any:
    """Make the array, fill it from the query if there is one, and enter it into the catalogue if it has a name."""
    table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    given = {
        _option_name(each.this): str(each.args["value"].name)
        for options in tree.find_all(exp.OptionsProperty)
        for each in options.expressions
    }
    reference = statement.found.get(table.name)
    where = tree.find(exp.LocationProperty)
    path = (
        reference.uri
        if reference is not None
        else given.get("path") or (where.name if where is not None else None)
    )
    if path is None:
        raise InvalidRequestError(
            "CREATE TABLE … USING tiledb: say where, with OPTIONS (path '…') or LOCATION '…'"
        )
    options = Options.of({**given, "path": path}, WRITE)
    key = options.get("key") or statement.key
    storage = options.storage or statement.storage_options
    if tree.args.get("replace"):
        raise InvalidRequestError("CREATE OR REPLACE would lose an array's history; use INSERT OVERWRITE")
    there = exists(options.uri, storage_options=storage)
    named_only = reference is None and tree.expression is None and not isinstance(tree.this, exp.Schema)
    if there and not named_only and not tree.args.get("exists"):
        raise ArrayExistsError(
            f"there is an array at {options.uri} already; INSERT INTO it, choose another place, or leave out the "
            f"columns to give it a name"
        )
    n = 0
    if tree.expression is not None:
        if isinstance(tree.this, exp.Schema):
            raise InvalidRequestError(
                "CREATE TABLE … AS SELECT takes its columns from the query; leave the list out"
            )
        if not there:
            n = _filled(statement, tree, options, key, storage)
    elif not there:
        create(options.uri, _schema(_columns(tree), options), key=key, storage_options=storage)
    if reference is None:
        _enter(statement, tree, table, options)
    return counts(statement.spark, affected=n, inserted=n)


def _option_name(node: Any) -> str:
    return node.sql("spark").replace("`", "").strip("'") if isinstance(node, exp.Dot) else str(node.name)


def _filled(statement: Statement, tree: Any, options: Options, key: Any, storage: Any) -> int:
    rows = query(statement, tree.expression.sql("spark"))
    schema = _schema(rows.schema, options)
    return write(rows, options.uri, schema=schema, key=key, storage_options=storage).n_cells


def _columns(tree: Any) -> StructType:
    if not isinstance(tree.this, exp.Schema):
        raise InvalidRequestError(
            "CREATE TABLE … USING tiledb: there is no array yet; give its columns, or AS SELECT …"
        )
    with analysing("CREATE TABLE"):
        return StructType.fromDDL(", ".join(each.sql("spark") for each in tree.this.expressions))


def _schema(struct: StructType, options: Options) -> Any:
    schema = schema_from_options(struct, options)
    if schema is None:
        raise InvalidRequestError(
            "CREATE TABLE … USING tiledb: say which columns are dimensions: OPTIONS (dims 'x, y')"
        )
    return schema


def _enter(statement: Statement, tree: Any, table: Any, options: Options) -> None:
    """The table as Spark's catalogue keeps it: a name for a place."""
    name = ".".join(quoted(part.name) for part in table.parts)
    unless = "IF NOT EXISTS " if tree.args.get("exists") else ""
    kept = {
        "path": options.uri,
        **{f"storage.{k}": v for k, v in (options.storage or {}).items()},
    }
    told = ", ".join(f"'{k}' '{v}'" for k, v in kept.items())
    with analysing("CREATE TABLE"):
        statement.spark.sql(f"CREATE TABLE {unless}{name} USING tiledb OPTIONS ({told})")
