"""Errors of tasks, as the errors of the engine that they are: Spark hands them over as the text of a traceback."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from terrazzo import errors

_TOLD = re.compile(r"^terrazzo\.errors\.(\w+): (.*)$", re.MULTILINE)


@contextmanager
def telling() -> Iterator[None]:
    """Raise the engine's own error in place of Spark's, if a task or the driver's side of a source raised one."""
    try:
        yield
    except errors.TerrazzoError:
        raise
    except Exception as problem:
        found = translated(problem)
        if found is None:
            raise
        raise found from None


def translated(problem: BaseException) -> errors.TerrazzoError | None:
    told = _TOLD.findall(str(problem))
    if not told:
        from pyspark.errors import AnalysisException  # noqa: PLC0415

        # What Spark itself finds wrong with a request: a path, a name, a type.
        if isinstance(problem, AnalysisException):
            return errors.InvalidRequestError(str(problem).splitlines()[0].partition(" SQLSTATE")[0])
        return None
    name, message = told[-1]
    kind = getattr(errors, name, errors.TerrazzoError)
    return kind(message.strip()) if issubclass(kind, errors.TerrazzoError) else None
