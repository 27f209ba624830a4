"""Queries over arrays: Spark runs them over frames that hold just the columns and cells they can want."""

from typing import Any

from terrazzo.engine.reading import explain
from terrazzo.engine.request import make_request
from terrazzo.spark.casting import analysing
from terrazzo.spark.demand import Demand, demand
from terrazzo.spark.failures import telling
from terrazzo.spark.frames import frame_of
from terrazzo.spark.references import Reference, Statement, parsed

_UTC = {"UTC", "ETC/UTC", "GMT", "Z", "+00:00"}


def is_utc(spark: Any) -> bool:
    return str(spark.conf.get("spark.sql.session.timeZone")).upper() in _UTC


def query(statement: Statement, text: str) -> Any:
    """A query as a DataFrame; the arrays in it are seen as of now."""
    wanted = demands(statement, text)
    frames = {
        name: frame_of(statement.spark, statement.view(reference), each.columns, each.where)
        for name, (reference, each) in wanted.items()
    }
    return run(statement.spark, text, frames)


def demands(statement: Statement, text: str) -> dict[str, tuple[Reference, Demand]]:
    """What a text wants of the arrays that it mentions."""
    tree, utc = parsed(text), is_utc(statement.spark)
    return {
        name: (reference, demand(tree, name, statement.view(reference).schema, utc=utc))
        for name, reference in statement.found.items()
        if name in text
    }


def run(spark: Any, text: str, frames: dict[str, Any]) -> Any:
    """The text with frames for its made-up names: bound by Spark itself, so that no view is left behind."""
    if not frames:
        with analysing("sql"):
            return spark.sql(text)
    escaped = text.replace("{", "{{").replace("}", "}}")
    for name in sorted(frames, key=len, reverse=True):
        escaped = escaped.replace(name, "{" + name[2:] + "}")
    with analysing("sql"), telling():
        return spark.sql(escaped, **{name[2:]: frame for name, frame in frames.items()})


def explained(statement: Statement, text: str, how: str) -> Any:
    """What is read of each array, and Spark's plan of the rest."""
    lines = ["== Arrays =="]
    for reference, each in demands(statement, text).values():
        view = statement.view(reference)
        cost = explain(view, make_request(view.schema, each.columns, each.where, None, None))
        at = "" if reference.at is None else f" as of {reference.at}"
        lines += [
            f"{reference.uri}{at}",
            f"  columns: {', '.join(each.columns)}",
            f"  where: {each.where or 'every cell'}",
            *(f"  {line}" for line in str(cost).splitlines()),
        ]
    frames = {
        name: frame_of(statement.spark, statement.view(reference), each.columns, each.where)
        for name, (reference, each) in demands(statement, text).items()
    }
    plan = run(statement.spark, f"EXPLAIN {how} {text}", frames).first()[0]
    return statement.spark.createDataFrame([("\n".join([*lines, "", plan]),)], "plan string")
