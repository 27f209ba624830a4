"""Consolidation as users ask for it: step by step until nothing qualifies."""

from collections.abc import Sequence
from dataclasses import dataclass

from terrazzo.engine.clock import FOREVER
from terrazzo.engine.consolidate import (
    ConsolidationPlan,
    commit_consolidation,
    finish_merges,
    plan_consolidation,
    run_consolidation,
)
from terrazzo.engine.ledger import read_ledger
from terrazzo.engine.listing import list_array
from terrazzo.engine.runner import Progress, Runner
from terrazzo.engine.select import Selection
from terrazzo.engine.snapshot import take_snapshot
from terrazzo.engine.view import View
from terrazzo.engine.window import Window


@dataclass(frozen=True, slots=True)
class ConsolidationReport:
    steps: int
    n_sources: int
    n_created: int
    n_cells: int

    def __str__(self) -> str:
        if not self.steps:
            return "nothing to consolidate"
        return f"consolidated {self.n_sources} fragments into {self.n_created}, {self.n_cells:,} cells, {self.steps} steps"


def consolidate(
    view: View, selection: Selection, *, fragments: Sequence[str] | None, purge: bool, memory: int,
    max_fragment_size: int | None, runner: Runner | None, progress: Progress | None, dry_run: bool,
) -> ConsolidationPlan | ConsolidationReport:  # fmt: skip
    steps = sources = created = cells = 0
    if not dry_run:
        finish_merges(view, read_ledger(view.store, list_array(view.store)))
    while selection.steps is None or steps < selection.steps:
        plan = plan_consolidation(
            view,
            selection,
            fragments=fragments,
            purge=purge,
            memory=memory,
            max_fragment_size=max_fragment_size,
        )
        if dry_run:
            return plan
        if not plan.sources:
            break
        made = run_consolidation(plan, runner, progress)
        commit_consolidation(view, plan, made)
        steps, sources, created, cells = (
            steps + 1,
            sources + len(plan.sources),
            created + len(made),
            cells + plan.n_cells,
        )
        if fragments is not None or (selection.max_fragments is None and not view.schema.dense):
            break  # all that qualified are together; the pieces of one result do not want to be joined again
        if len(made) >= len(plan.sources):
            break  # as many pieces as before, by the memory or the size allowed: it would go on for ever
        view = view.following(take_snapshot(view.store, Window(0, FOREVER), view.cipher))
    return ConsolidationReport(steps, sources, created, cells)
