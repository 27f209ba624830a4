"""Arrays in a text of SQL: tiledb.`uri` and tables of the catalogue, each replaced by a name of its own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlglot
from pyspark.errors import PySparkException
from sqlglot import exp
from sqlglot.tokens import TokenType

from terrazzo.engine.array import open_array
from terrazzo.errors import InvalidRequestError
from terrazzo.spark.array import SparkArray
from terrazzo.spark.casting import quoted
from terrazzo.spark.options import READ, Options

PREFIX = "__terrazzo_"
_TRAVEL = {"TIMESTAMP", "VERSION", "SYSTEM_TIME", "SYSTEM_VERSION"}
_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")
_STORED = re.compile(r"([\w.]+)=(.*?)(?:, (?=[\w.]+=)|$)")
# Statements that sqlglot takes for a word and a text: it finds the names in them once the word is out of the way.
_UPKEEP = re.compile(r"\s*(OPTIMIZE|VACUUM|RESTORE|DESCRIBE|DESC)\b", re.IGNORECASE)
_KNOWN = re.compile(
    r"[\s(]*(SELECT|WITH|FROM|VALUES|TABLE|INSERT|DELETE|UPDATE|MERGE|CREATE)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Reference:
    """One mention of an array."""

    uri: str
    at: int | str | None = None
    key: Any = None
    storage_options: Mapping[str, str] | None = None

    def open(self, spark: Any) -> SparkArray:
        return SparkArray(spark, self.uri, at=self.at, key=self.key, storage_options=self.storage_options)


@dataclass
class Statement:
    """A text without arrays, and what its made-up names stand for."""

    spark: Any
    text: str
    key: Any = None
    storage_options: Mapping[str, str] | None = None
    found: dict[str, Reference] = field(default_factory=dict)
    views: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, spark: Any, text: str, key: Any, storage_options: Mapping[str, str] | None) -> "Statement":
        made = cls(spark, text, key, storage_options)
        made._replace_paths()
        made._replace_tables()
        return made

    @property
    def tree(self) -> Any:
        """The syntax tree; None of what sqlglot does not know."""
        return parsed(self.text)

    def view(self, reference: Reference) -> Any:
        """What the reference shows: the same to all mentions of an array and an instant in one statement."""
        place = reference.uri, reference.at
        if place not in self.views:
            self.views[place] = open_array(
                reference.uri, at=reference.at, key=reference.key, storage_options=reference.storage_options
            ).view
        return self.views[place]

    def _name(self, reference: Reference) -> str:
        name = f"{PREFIX}{len(self.found)}"
        self.found[name] = reference
        return name

    def _replace_paths(self) -> None:
        tokens = tokenized(self.text)
        pieces, done, place = [], 0, 0
        while place + 2 < len(tokens):
            one, dot, path = tokens[place : place + 3]
            alone = place == 0 or tokens[place - 1].token_type is not TokenType.DOT
            if not (
                alone and one.text.lower() == "tiledb" and dot.token_type is TokenType.DOT
                and path.token_type is TokenType.IDENTIFIER
            ):  # fmt: skip
                place += 1
                continue
            after, at = _travel(tokens, place + 3)
            name = self._name(Reference(_plain(path.text), at, self.key, self.storage_options))
            pieces += [self.text[done : one.start], name]
            done, place = tokens[after - 1].end + 1, after
        self.text = "".join([*pieces, self.text[done:]])

    def _replace_tables(self) -> None:
        """Tables of the catalogue that are arrays, in queries and as targets."""
        tree = self.tree
        if tree is None or isinstance(tree, exp.Create):
            return
        local = {each.alias.casefold() for each in tree.find_all(exp.CTE)}
        spans = []
        known: dict[str, Options | None] = {}
        for table in tree.find_all(exp.Table):
            parts = [part for part in table.parts if isinstance(part, exp.Identifier)]
            if not parts or table.name in self.found or not all("start" in part.meta for part in parts):
                continue
            if len(parts) == 1 and table.name.casefold() in local:
                continue
            spelled = ".".join(quoted(part.name) for part in parts)
            if spelled not in known:
                known[spelled] = catalogued(self.spark, spelled)
            if (options := known[spelled]) is not None:
                spans.append((parts[0].meta["start"], parts[-1].meta["end"], table, options))
        tokens = tokenized(self.text)
        for start, end, table, options in sorted(spans, key=lambda span: -span[0]):
            after = next((place for place, token in enumerate(tokens) if token.start > end), len(tokens))
            follows, at = _travel(tokens, after)
            end_of = end if follows == after else tokens[follows - 1].end
            name = self._name(
                Reference(
                    options.uri, at, options.get("key") or self.key, options.storage or self.storage_options
                )
            )
            aliased = table.args.get("alias") or isinstance(table.parent, (exp.Insert, exp.Schema))
            shown = name if aliased else f"{name} AS {quoted(table.name)}"
            self.text = self.text[:start] + shown + self.text[end_of + 1 :]

    def target(self, name: str) -> Reference | None:
        """The array that a statement of maintenance names: made up already, or a table."""
        plain = name.strip("`")
        if plain in self.found:
            return self.found[plain]
        options = catalogued(self.spark, name)
        if options is None:
            return None
        return Reference(
            options.uri, None, options.get("key") or self.key, options.storage or self.storage_options
        )


def tokenized(text: str) -> list[Any]:
    word = _UPKEEP.match(text)
    if word is not None:
        text = " " * word.end() + text[word.end() :]
    try:
        return list(sqlglot.tokenize(text, dialect="spark"))
    except sqlglot.errors.SqlglotError:
        return []  # Spark says what is wrong with it


def parsed(text: str) -> Any:
    if _KNOWN.match(text) is None:
        return None
    try:
        found = sqlglot.parse(text, dialect="spark", error_level=sqlglot.ErrorLevel.RAISE)
    except (sqlglot.errors.SqlglotError, RecursionError):
        return None
    return found[0] if len(found) == 1 and not isinstance(found[0], exp.Command) else None


def _plain(path: str) -> str:
    return path.removeprefix("file:") if path.startswith("file:/") and "://" not in path else path


def _travel(tokens: list[Any], place: int) -> tuple[int, int | str | None]:
    """The instant that stands behind a table, and where the text goes on."""
    start = place
    if place < len(tokens) and tokens[place].text.upper() == "FOR":
        place += 1
    words = [token.text.upper() for token in tokens[place : place + 3]]
    if len(words) < 3 or words[0] not in _TRAVEL or words[1:] != ["AS", "OF"]:
        return start, None
    place += 3
    if place < len(tokens) and tokens[place].text.upper() == "TIMESTAMP":
        place += 1
    value = tokens[place] if place < len(tokens) else None
    if value is None or value.token_type not in {TokenType.STRING, TokenType.NUMBER}:
        raise InvalidRequestError(
            f"{words[0]} AS OF wants an instant: milliseconds since 1970, or text such as '2026-01-31 12:00:00'"
        )
    return place + 1, instant_of(value.text)


def instant_of(text: str) -> int | str:
    return int(text) if text.strip().isdigit() else text


def catalogued(spark: Any, name: str) -> Options | None:
    """The options of a table of the catalogue, if it is an array. Of what Spark tells about tables, only this says."""
    *space, table = [part.replace("``", "`") for part in _PART.findall(name)]
    within = f"IN {'.'.join(quoted(part.strip('`')) for part in space)} " if space else ""
    pattern = table.strip("`").replace("\\", "\\\\").replace("'", "\\'")
    try:
        rows = spark.sql(f"SHOW TABLE EXTENDED {within}LIKE '{pattern}'").collect()
    except PySparkException:
        return None
    named = [row for row in rows if row["tableName"].casefold() == table.strip("`").casefold()]
    if space:
        named = [row for row in named if not row["isTemporary"]]
    if not named or any(row["isTemporary"] for row in named):  # a temporary view hides a table
        return None
    told = dict(line.split(": ", 1) for line in named[0]["information"].splitlines() if ": " in line)
    if told.get("Provider", "").lower() != "tiledb":
        return None
    stored = dict(_STORED.findall(told.get("Storage Properties", "").strip("[]")))
    kept = {k: v for k, v in stored.items() if k == "key" or k.startswith("storage.")}
    return Options.of({"location": told.get("Location", ""), **kept}, READ)
