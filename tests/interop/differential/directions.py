"""Who writes and who reads.

A   libtiledb performs the history; both read it
B   terrazzo performs it; libtiledb, terrazzo and the model read it
C   both take turns, libtiledb consolidates and vacuums between; both read it
U   as C, with updates: libtiledb has no right answer for them, so terrazzo reads and the model is the judge
"""

from collections.abc import Callable

import terrazzo as tz
from differential import terrazzo_actor as ours
from differential.checks import Differs, check_against_libtiledb, check_against_model
from differential.generator import START, Generator
from differential.history import Case, Delete, Evolve, Maintain, Operation, Put, Update, Write
from differential.worker import Crashed, Refused, Worker
from terrazzo import InvalidRequestError

_CALLS = {
    Write: "write", Delete: "delete", Update: "update", Evolve: "evolve", Put: "put", Maintain: "maintain",
}  # fmt: skip

_CANNOT_MAINTAIN = (
    "cannot get file size",  # a second consolidation of commits, once a .del lives in a .con
    "timestamp",  # names that would end before they begin
    "cannot consolidate",
)

_CANNOT_DELETE = ("consolidate first", "compares the first character only")


def _theirs(worker: Worker, uri: str, op: Operation) -> None:
    worker.call(_CALLS[type(op)], uri, op)


def direction_a(worker: Worker, uri: str, seed: int) -> None:
    generator = Generator(seed)
    case = generator.case()
    worker.create(uri, case.schema, START)
    for op in case.operations:
        _theirs(worker, uri, op)
    for window in case.windows:
        check_against_libtiledb(worker, uri, generator, case, window)


def direction_b(worker: Worker, uri: str, seed: int) -> None:
    generator = Generator(seed, libtiledb_writes=False)
    case = generator.case()
    array = ours.create(uri, case.schema, START)
    done, rewritten, told = [], set(), True
    for op in case.operations:
        if _ours(array, op):
            done.append(op)
            # A cell that comes late meets a delete in its stored form, and that takes nulls and NaN along; a delete
            # that comes late does not meet the cells that one after it wrote again.
            late = isinstance(op, (Write, Delete)) and any(op.at <= at for at in rewritten)
            # And the cells that a late delete writes again lack what was dropped in the meantime.
            dropped = isinstance(op, Delete) and any(
                isinstance(was, Evolve) and op.at < was.at for was in done
            )
            told = told and not late and not dropped
            if isinstance(op, Delete):
                rewritten.add(op.at)  # cells that SQL keeps are back one millisecond later
    for window in case.windows:
        check_against_libtiledb(worker, uri, generator, case, window, aggregates=True)
        if told and not window.since and window.at not in rewritten:
            check_against_model(uri, generator, case, done, window)


def _ours(array: tz.Array, op: Operation) -> bool:
    """Whether the operation was done: a delete that libtiledb would misread is refused, with a reason."""
    try:
        ours.perform(array, op)
    except InvalidRequestError as problem:
        if isinstance(op, Delete) and any(reason in str(problem) for reason in _CANNOT_DELETE):
            return False
        raise
    return True


def direction_c(worker: Worker, uri: str, seed: int) -> None:
    generator = Generator(seed)
    case = generator.case(maintenance=True)
    _in_turns(worker, uri, generator, case)
    for window in case.windows:
        check_against_libtiledb(worker, uri, generator, case, window)


def direction_u(worker: Worker, uri: str, seed: int) -> None:
    generator = Generator(seed)
    case = generator.case(sparse=True, updates=True, maintenance=True, plain_deletes=True)
    done = _in_turns(worker, uri, generator, case)
    for window in case.windows:
        if not window.since:
            check_against_model(uri, generator, case, done, window)


def _in_turns(worker: Worker, uri: str, generator: Generator, case: Case) -> list[Operation]:
    if generator.chance(0.5):
        worker.create(uri, case.schema, START)
        array = tz.open(uri)
    else:
        array = ours.create(uri, case.schema, START)
    done: list[Operation] = []
    for op in case.operations:
        if isinstance(op, Maintain):
            if generator.chance(0.3):
                ours.maintain(array.refresh(), op)
                continue
            try:
                _theirs(worker, uri, op)
            except Refused as problem:
                if not any(reason in str(problem).lower() for reason in _CANNOT_MAINTAIN):
                    raise
        elif generator.chance(0.5) and _libtiledb_can(op):
            _theirs(worker, uri, op)
            done.append(op)
        elif _ours(array.refresh(), op):
            done.append(op)
    return done


def _libtiledb_can(op: Operation) -> bool:
    """An update of several values per cell is beyond libtiledb."""
    if not isinstance(op, Update):
        return True
    attrs = [op.schema.attr(name) for name in op.values]
    return all(attr.is_var or attr.cell_val_num == 1 for attr in attrs)


DIRECTIONS: dict[str, Callable[[Worker, str, int], None]] = {
    "A": direction_a, "B": direction_b, "C": direction_c, "U": direction_u,
}  # fmt: skip


def run(worker: Worker, folder: str, direction: str, seed: int) -> None:
    """One case; what goes wrong is told with the direction and the seed."""
    try:
        DIRECTIONS[direction](worker, f"{folder}/{direction}{seed}", seed)
    except (Differs, Crashed, Refused, tz.TerrazzoError) as problem:
        raise AssertionError(
            f"direction {direction}, seed {seed}: {type(problem).__name__}: {problem}"
        ) from problem
