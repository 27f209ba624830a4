"""SQL with arrays in it. What Spark knows is Spark's; what it lacks for arrays is done here."""

import re
from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from terrazzo.errors import InvalidRequestError
from terrazzo.spark.failures import telling
from terrazzo.spark.merge_into import merge
from terrazzo.spark.mutations import delete, insert, update
from terrazzo.spark.queries import explained, query
from terrazzo.spark.references import Statement
from terrazzo.spark.upkeep import create_table, creates_array, maintain

_EXPLAIN = re.compile(r"\s*EXPLAIN\s+((?:EXTENDED|FORMATTED|CODEGEN|COST)\s+)?(?=\S)", re.IGNORECASE)
_QUERY = re.compile(r"[\s(]*(SELECT|WITH|FROM|VALUES|TABLE)\b", re.IGNORECASE)
_CHANGES = {exp.Insert: insert, exp.Delete: delete, exp.Update: update, exp.Merge: merge}


def sql(spark: Any, text: str, *, key: Any = None, storage_options: Mapping[str, str] | None = None) -> Any:
    """Run a statement of SQL, in which tiledb.`uri` is the array at a URI, and return a DataFrame.

    SELECT, INSERT, DELETE, UPDATE, MERGE INTO, CREATE TABLE … USING tiledb, OPTIMIZE, VACUUM, DESCRIBE HISTORY and
    RESTORE work on arrays; all that mentions none goes to Spark as it is. `key` and `storage_options` are for the
    arrays that are named by a URI.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidRequestError(f"{text!r} is no statement")
    explain = _EXPLAIN.match(text)
    statement = Statement.of(spark, text[explain.end() :] if explain else text, key, storage_options)
    if explain and not statement.found:
        return spark.sql(text)
    if explain:
        if _QUERY.match(statement.text) is None:
            raise InvalidRequestError(
                "EXPLAIN shows queries over arrays; run the statement, or explain its SELECT"
            )
        with telling():
            return explained(statement, statement.text, (explain[1] or "").strip())
    with telling():
        done = _done(statement)
    return spark.sql(text) if done is None else done


def _done(statement: Statement) -> Any:
    kept = maintain(statement)
    if kept is not None:
        return kept
    tree = statement.tree
    if creates_array(tree, statement):
        return create_table(statement, tree)
    if not statement.found:
        return None
    work = _CHANGES.get(type(tree))
    if work is not None and _target(tree) in statement.found:
        return work(statement, tree)
    if isinstance(tree, exp.Query) or work is not None or (tree is None and _QUERY.match(statement.text)):
        return query(statement, statement.text)  # also changes of Spark's own tables that read arrays
    raise InvalidRequestError(
        f"{statement.text.split()[0].upper()} is not understood here for arrays; there are SELECT, INSERT, DELETE, UPDATE, MERGE, "
        f"CREATE TABLE … USING tiledb, OPTIMIZE, VACUUM, DESCRIBE HISTORY and RESTORE"
    )


def _target(tree: Any) -> str:
    table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    return str(getattr(table, "name", ""))
