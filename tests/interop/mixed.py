"""Random histories by libtiledb and by us in turns, and what libtiledb shows of them.

Things happen every fourth millisecond, so that what is written one behind them, and late writes two behind them, never
meet at one instant: of ties libtiledb's winner is another one in each of its readers.
"""

import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tiledb
from capi import DELETE, write_update

import terrazzo as tz
from terrazzo.engine.ledger import read_ledger
from terrazzo.engine.listing import list_array
from terrazzo.format.condition import Compare, Op

sys.path.insert(0, str(Path(__file__).parents[1] / "property"))
from histories import all_shown

START, STEP_MS = 1000, 4  # libtiledb sorts schemas as text: all times have as many digits
WORDS = [None, "a", "b", "cc", ""]
TYPES = {"k": "i4", "v": "f8", "w": "i2", "n": "i4"}
MODES = ("fragments", "commits", "fragment_meta", "array_meta")


def run_theirs(uri: str, mode: str, *, vacuum: bool = True) -> None:
    config = tiledb.Config({"sm.consolidation.mode": mode, "sm.vacuum.mode": mode})
    tiledb.consolidate(uri, config=config)
    if vacuum:
        tiledb.vacuum(uri, config=config)


def theirs(uri: str, at: int, order: str = "U") -> list[str]:
    """What libtiledb shows at an instant, as `histories.shown` gives ours."""
    with tiledb.open(uri, timestamp=at) as array:
        found = array.query(order=order)[:]
        schema = array.schema
        names = [schema.domain.dim(j).name for j in range(schema.ndim)]
        names += [schema.attr(j).name for j in range(schema.nattr)]
    columns = [_plain(found[name]) for name in names]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    if order in "CF":
        places = [row["x"] for row in rows]
        assert places == sorted(places)
    return sorted(map(repr, rows))


def _plain(column: Any) -> list[Any]:
    masked = (
        np.ma.getmaskarray(column) if isinstance(column, np.ma.MaskedArray) else np.zeros(len(column), bool)
    )
    cells = np.ma.getdata(column).tolist()
    return [None if hidden else cell for cell, hidden in zip(cells, masked, strict=True)]


def schema_of(rnd: random.Random) -> tz.Schema:
    return tz.Schema(
        [tz.Dim("x", "int32", (0, 30), 5)],
        [
            tz.Attr("k", "int32"),
            tz.Attr("v", "float64"),
            tz.Attr("t", "utf8", nullable=True),
            tz.Attr("w", "int16", fill=-3),
        ],
        allows_duplicates=rnd.random() < 0.5,
        capacity=rnd.choice([1, 4, 50]),
        cell_order=rnd.choice(["row-major", "col-major", "hilbert"]),
    )  # fmt: skip


class Mixed:
    """An array to which both libraries do things."""

    def __init__(self, seed: int, path: Path) -> None:
        self.rnd = random.Random(seed)
        self.array = tz.create(str(path), schema_of(self.rnd), at=START)
        self.uri, self.time = self.array.uri, START
        self.log: list[Any] = [str(self.array.schema)]
        self.done: Counter[str] = Counter()
        self.updates: list[int] = []
        self.written: list[int] = []
        self.pending_ms = (
            1 << 62
        )  # libtiledb takes an update that is not worked in for a delete, from then on
        # A late write between what libtiledb consolidated gets a wrong name from it, and then it misreads itself.
        self.may_be_late = self.rnd.random() < 0.5
        self.dropped = False

    # -- what happens to cells ----------------------------------------------------------------------------

    def step(self) -> None:
        self.time += STEP_MS
        ours = self.rnd.random() < 0.5
        what = self.rnd.choice(["write"] * 6 + ["delete"] * 2 + ["update"] * 2 + ["evolve", "meta"])
        if what == "evolve" and (self.may_be_late or not self.array.schema.has("w")):
            what = "write"  # a late one would be under another schema
        self.record("ours" if ours else "theirs", what, self.time)
        getattr(self, f"_{what}")(ours)
        self.array = tz.open(self.uri)

    def record(self, who: str, what: str, *details: Any) -> None:
        self.log.append((who, what, *details))
        self.done[f"{who} {what}"] += 1

    def cells(self, most: int = 9) -> dict[str, list[Any]]:
        places = self.rnd.sample(range(31), self.rnd.randint(1, most))
        values = {
            "k": lambda: self.rnd.randint(0, 4),
            "v": lambda: self.rnd.choice([0.5, 1.5, 2.5, float("nan")]),
            "t": lambda: self.rnd.choice(WORDS),
        }
        other = lambda: self.rnd.randint(-9, 9)  # noqa: E731
        attrs = [attr.name for attr in self.array.schema.attrs]
        return {"x": places} | {name: [values.get(name, other)() for _ in places] for name in attrs}

    def _write(self, ours: bool) -> None:
        at = self.time
        if self.may_be_late and self.written and self.rnd.random() < 0.3:
            at = self.rnd.choice(self.written) + 2
            if at in self.written:
                at = self.time
            else:
                self.record("ours" if ours else "theirs", "late write", at)
                self.pending_ms = min([self.pending_ms, *(update for update in self.updates if update >= at)])
        self.written.append(at)
        self.write(ours, at)

    def write(self, ours: bool, at: int) -> None:
        cells = self.cells()
        if ours:
            self.array.write(cells, at=at)
            return
        columns: dict[str, Any] = {
            name: pa.array(values, pa.large_string()) if name == "t" else np.array(values, TYPES[name])
            for name, values in cells.items()
            if name != "x"
        }
        with tiledb.open(self.uri, "w", timestamp=at) as array:
            array[np.array(cells["x"], np.int32)] = columns

    def _delete(self, ours: bool) -> None:
        k, place = self.rnd.randint(0, 4), self.rnd.randint(0, 25)
        stored = [
            Compare(Op.EQ, "k", np.int32(k).tobytes()), Compare(Op.GT, "v", np.float64(2).tobytes()),
            Compare(Op.EQ, "t", b"a"), Compare(Op.GE, "x", np.int32(place).tobytes()),
        ]  # fmt: skip
        number = self.rnd.randrange(len(stored))
        if ours:
            self.array.delete([f"k = {k}", "v > 2", "t = 'a'", f"x >= {place}"][number], at=self.time)
        else:
            write_update(self.uri, stored[number], {}, self.time, kind=DELETE)
        self.written.append(self.time)  # where a late write may follow

    def _update(self, ours: bool) -> None:
        k = self.rnd.randint(0, 4)
        if ours:
            portable = self.rnd.random() < 0.2
            self.array.update({"t": "zz", "k": k}, f"k < {k}", at=self.time, portable=portable)
            if portable:
                return
        else:
            where = Compare(Op.LT, "k", np.int32(k).tobytes())
            write_update(self.uri, where, {"t": b"zz", "k": np.int32(k).tobytes()}, self.time)
        self.updates.append(self.time)
        self.pending_ms = min(self.pending_ms, self.time)

    def _evolve(self, ours: bool) -> None:
        """Attributes that no condition names: libtiledb cannot open an array whose conditions name a dropped one."""
        if not self.array.schema.has("n"):
            if ours:
                self.array.evolve(add=[tz.Attr("n", "int32", fill=2)], at=self.time)
            else:
                evolution = tiledb.ArraySchemaEvolution()
                evolution.add_attribute(tiledb.Attr("n", dtype="int32", fill=2))
                evolution.timestamp(self.time)
                evolution.array_evolve(self.uri)
        else:
            self.dropped = True
            self.drop("w", ours=ours)

    def drop(self, name: str, *, ours: bool) -> None:
        if ours:
            self.array.evolve(drop=[name], at=self.time)
            return
        evolution = tiledb.ArraySchemaEvolution()
        evolution.drop_attribute(name)
        evolution.timestamp(self.time)
        evolution.array_evolve(self.uri)

    def _meta(self, ours: bool) -> None:
        time.sleep(0.002)  # libtiledb's order within a millisecond is by chance
        if ours:
            self.array.meta[self.rnd.choice("ab")] = self.time
        else:
            with tiledb.open(self.uri, "w") as array:
                array.meta[self.rnd.choice("ab")] = self.time

    # -- maintenance --------------------------------------------------------------------------------------

    def maintain(self) -> None:
        self.array = tz.open(self.uri)
        if self.rnd.random() < 0.5:
            self._ours(self.rnd.choice(["consolidate"] * 3 + ["commits", "footers", "metadata"]))
        else:
            self._theirs(self.rnd.choice(["fragments", "fragments", *MODES]))

    def _ours(self, what: str) -> None:
        array = self.array
        if what == "consolidate all":
            self.record("ours", what)
            assert array.consolidate(memory=self.rnd.choice([700, "1GiB"])).steps
            self.pending_ms = 1 << 62
            return
        if what == "consolidate":
            names = [str(fragment.name) for fragment in array._everything().snapshot.fragments]
            how: dict[str, Any] = self.rnd.choice(
                [
                    {},
                    {"memory": 700},
                    {"max_fragments": 2, "steps": 1},
                    {"until": self.rnd.randint(START, self.time)},
                ]
            )
            if len(names) > 2 and self.rnd.random() < 0.3:
                how = {"fragments": names[: self.rnd.randint(2, len(names) - 1)]}
            self.record("ours", what, how)
            report = array.consolidate(**how)
            if how.keys() <= {"memory"} and report.steps:
                self.pending_ms = 1 << 62
            return
        self.record("ours", what)
        {
            "commits": array.consolidate_commits,
            "footers": array.consolidate_fragment_metadata,
            "metadata": array.consolidate_metadata,
        }[what]()

    def _theirs(self, mode: str) -> None:
        if not self.can_run_theirs(mode):
            self._ours("consolidate")
            return
        self.record("theirs", mode)
        run_theirs(self.uri, mode, vacuum=False)

    def can_run_theirs(self, mode: str) -> bool:
        """What libtiledb cannot do without damage, or at all, is left out."""
        if mode == "fragments":  # it would drop what earlier instants show, or misname the fragment
            return not (self.may_be_late or self.dropped)
        if mode == "commits":  # it cannot gather them again once a condition stands in a `.con` only
            store = self.array._store
            return not (self.may_be_late or read_ledger(store, list_array(store)).payloads)
        return True

    def vacuum(self) -> None:
        if self.rnd.random() < 0.6:
            self.record("ours", "vacuum", str(tz.open(self.uri).vacuum(retain=0)))
            return
        for mode in MODES:
            self.record("theirs", f"vacuum {mode}")
            tiledb.vacuum(self.uri, config=tiledb.Config({"sm.vacuum.mode": mode}))

    # -- what shows ---------------------------------------------------------------------------------------

    @property
    def instants(self) -> list[int]:
        late = [at for at in self.written if at % STEP_MS]
        times = range(START, self.time + STEP_MS, STEP_MS)
        return sorted({*times, *(at + 1 for at in times), *late, self.time + 3})

    @property
    def shared_instants(self) -> list[int]:
        """Those at which libtiledb shows what we do."""
        return [at for at in self.instants if at < self.pending_ms and at not in self.updates]


# -- dense -----------------------------------------------------------------------------------------------


def theirs_dense(uri: str, at: int, order: str = "C") -> list[str]:
    """What libtiledb shows at an instant, every cell of the domain; the order is only that of its reader."""
    with tiledb.open(uri, timestamp=at) as array:
        found = array.query(order=order)[:]["k"]
        if order == "F":  # its Python gives the cells in that order, in an array of the other one
            found = np.reshape(found.ravel(), found.shape, order="F")
        low = [int(array.schema.domain.dim(j).domain[0]) for j in range(array.schema.ndim)]
    rows = []
    for place, cell in np.ndenumerate(found):
        coords = [a + i for a, i in zip(low, place, strict=True)]
        rows.append(dict(zip("xy", coords, strict=False)) | {"k": int(cell)})
    return sorted(map(repr, rows))


class MixedDense:
    """A dense array that both libraries write, consolidate and vacuum."""

    def __init__(self, seed: int, path: Path) -> None:
        self.rnd = random.Random(seed)
        dims = [tz.Dim("x", "int32", (1, 12), self.rnd.choice([3, 5]))]
        if self.rnd.random() < 0.6:
            dims.append(tz.Dim("y", "int32", (0, 6), self.rnd.choice([2, 4])))
        orders = ["row-major", "col-major"]
        schema = tz.Schema(
            dims, [tz.Attr("k", "int32", fill=-1)], sparse=False,
            cell_order=self.rnd.choice(orders), tile_order=self.rnd.choice(orders),
        )  # fmt: skip
        self.uri, self.time = tz.create(str(path), schema, at=START).uri, START
        self.dims, self.log = dims, list[Any]()

    def step(self) -> None:
        self.time += STEP_MS
        box = [tuple(sorted(self.rnd.randint(*dim.domain) for _ in range(2))) for dim in self.dims]
        cells = np.array(
            [self.rnd.randint(0, 99) for _ in range(int(np.prod([b - a + 1 for a, b in box])))], np.int32
        )
        ours = self.rnd.random() < 0.5
        self.log.append(("ours" if ours else "theirs", box, self.time))
        if ours:
            region = {dim.name: bounds for dim, bounds in zip(self.dims, box, strict=True)}
            tz.open(self.uri).write({"k": cells}, region=region, at=self.time)
        else:
            with tiledb.open(self.uri, "w", timestamp=self.time) as array:
                array[tuple(slice(a, b + 1) for a, b in box)] = cells.reshape([b - a + 1 for a, b in box])

    def maintain(self) -> None:
        if self.rnd.random() < 0.5:
            how = self.rnd.choice([{}, {"memory": 600}, {"max_fragments": 2}, {"amplification": 3.0}])
            self.log.append(("ours", how, str(tz.open(self.uri).consolidate(**how))))
        else:
            self.log.append("theirs")
            run_theirs(self.uri, "fragments", vacuum=False)
        if self.rnd.random() < 0.5:
            tz.open(self.uri).consolidate_commits()
            tz.open(self.uri).consolidate_fragment_metadata()

    def vacuum(self) -> list[tuple[int, int]]:
        """The instants that are lost by it, as ranges."""
        lost = list(tz.open(self.uri).vacuum(retain=0, dry_run=True).lost)
        if self.rnd.random() < 0.5:
            assert list(tz.open(self.uri).vacuum(retain=0).lost) == lost
        else:
            for mode in MODES:
                tiledb.vacuum(self.uri, config=tiledb.Config({"sm.vacuum.mode": mode}))
        self.log.append(("lost", lost))
        return lost

    def all_shown(self) -> dict[int, list[str]]:
        times = range(START, self.time + STEP_MS, STEP_MS)
        return all_shown(self.uri, times)
