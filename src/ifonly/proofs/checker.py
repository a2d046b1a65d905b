"""Checks a log of a search: that everything admissible is covered, and that every number in it is right.

Everything is computed again from the question alone. A subtree that was cut is examined by a bound of the checker's
own; where that is not below what is claimed the subtree is taken apart, down to single sequences if need be, as long as
the work granted lasts. What is left then rests on the word of the search, and is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ifonly.progress import Progress, silent
from ifonly.proofs.coverage import Family, LoggedNodes, LoggedTree, Rules, check_coverage, last_changes
from ifonly.proofs.examination import ROWS, Changed, Examiner
from ifonly.proofs.question import Array, Bools, Ints, Question, Record, refusals_about, refuse

SLACK = 10
"""Outcomes computed twice may differ by this many tolerances."""
RELATIVE = 1e-9
"""So may those of leaves, as a share: on a logarithmic scale bad ones may be of any size."""
CLAIMED = 1e-12
"""And those that are claimed to be best, as a share (R4)."""


@dataclass(frozen=True)
class Checked:
    """What was found of a log that holds; one that does not is refused by an error."""

    episode: str
    outcomes: tuple[float, ...]
    """The best of every budget 0..K; minus infinity where the rules leave no sequence."""
    bounds: tuple[float, ...]
    """What nothing exceeds, for every budget."""
    sequences: int
    """How many the rules admit: all of them are covered."""
    replayed: int
    cuts: int
    confirmed: int
    """Cuts below which nothing better lies by the checker's own reckoning; the others rest on the search's word."""
    rounding: float
    """Outcomes above a bound by no more than this count as equal to it: what the log says that rounding does."""

    @property
    def complete(self) -> bool:
        """Whether nothing rests on the word of the search."""
        return self.confirmed == self.cuts

    def __str__(self) -> str:
        first = f"episode {self.episode}: the proof holds"
        if not self.complete:
            first += f", but {self.cuts - self.confirmed:,} of its cuts rest on the bounds of the search alone"
        changes, best, bound = len(self.outcomes) - 1, self.outcomes[-1], self.bounds[-1]
        gap = "" if bound <= best else f", and no sequence exceeds {bound:.10g}"
        return "\n".join(
            [
                first,
                f"  best outcome with at most {changes} changes: {best:.10g}{gap}",
                f"  outcomes less than {self.rounding:.1g} better count as equal",
                f"  covered, for every number of changes: all {self.sequences:,} sequences that the rules admit, "
                "each once",
                f"  replayed: {self.replayed:,} sequences of the log",
                f"  cuts: {self.cuts:,}; below {self.confirmed:,} of them the checker itself finds nothing better",
            ]
        )


@dataclass(frozen=True)
class Claims:
    """What the log says is best, for every budget [K+1]; minus infinity where the rules leave no sequence."""

    outcomes: Array
    bounds: Array
    tolerance: float

    @property
    def limits(self) -> Array:
        """What no sequence with at most so many changes may exceed [K+1]."""
        return self.bounds + self.rounding

    @property
    def rounding(self) -> Array:
        """What replays of one sequence may differ by, as the log says, and by the size of its outcomes (R4) [K+1]."""
        return SLACK * self.tolerance + CLAIMED * np.abs(np.where(np.isfinite(self.bounds), self.bounds, 0.0))


def check_proof(path: str | Path, *, work: int = 20_000_000, progress: Progress = silent) -> Checked:
    """Check a log that `solve(..., proof=FILE)` wrote, or raise an error that says where it fails.

    `StoreError`: the file is damaged or of another kind; `VerificationError`: it proves nothing. At most about `work`
    model steps are taken to examine cuts.
    """
    record = Record.read(path)
    with refusals_about(f"{path} is refused"):
        if record.entry("complete", bool) is not True:
            refuse("the search was stopped before its end, so that it proves nothing; solve again without limits")
        question = Question.read(record)
        claims = read_claims(record, question)
        examiner = Examiner(question, work, progress, total=len(record.arrays.get("cuts", ())))
        parts = [
            _check_budget(
                replace(question, max_changes=budget), LoggedTree.read(record, question, budget), claims, examiner
            )
            for budget in range(question.max_changes + 1)
        ]
    sequences, replayed, cuts, confirmed = np.array(parts, dtype=object).T
    return Checked(
        episode=record.entry("episode", str),
        outcomes=tuple(claims.outcomes.tolist()),
        bounds=tuple(claims.bounds.tolist()),
        sequences=int(sequences[-1]),
        replayed=int(replayed.sum()),
        cuts=int(cuts.sum()),
        confirmed=int(confirmed.sum()),
        rounding=float(claims.rounding.max()),
    )


def read_claims(record: Record, question: Question) -> Claims:
    """The best sequence of every budget, replayed."""
    rules, budgets, horizon = Rules(question), question.max_changes + 1, question.horizon
    tolerance = float(record.entry("tolerance", (int, float)))
    if not 0 <= tolerance < np.inf:
        refuse("header: 'tolerance' must be a number")
    outcomes, bounds = (record.array(f"best/{name}", (budgets,), infinite=True) for name in ("outcomes", "bounds"))
    sequences = record.whole("best", (budgets, horizon), question.allowed.shape[1])
    known = np.arange(budgets) >= rules.fewest_changes()
    if not known[-1] or not all(np.array_equal(np.isfinite(one), known) for one in (outcomes, bounds)):
        refuse("best: there must be an outcome and a bound for every budget that the rules leave a sequence")
    fine = rules.admissible(sequences) & ((sequences != question.observed).sum(1) <= np.arange(budgets))
    found = question.replay(sequences)[2]
    for budget in np.flatnonzero(known):
        if not fine[budget]:
            refuse(f"best, budget {budget}: the sequence breaks the rules or has more changes")
        if not abs(found[budget] - outcomes[budget]) <= SLACK * tolerance + CLAIMED * abs(found[budget]):
            refuse(f"best, budget {budget}: {outcomes[budget]:.10g} is claimed; its replay gives {found[budget]:.10g}")
    return Claims(np.where(known, outcomes, -np.inf), np.where(known, bounds, -np.inf), tolerance)


def _check_budget(
    question: Question, tree: LoggedTree, claims: Claims, examiner: Examiner
) -> tuple[int, int, int, int]:
    """Check the tree of one budget: sequences covered, sequences replayed, cuts, and cuts confirmed."""
    budget, rules = question.max_changes, Rules(question)
    with refusals_about(f"budget {budget}"):
        family = check_coverage(rules, tree)
        walk = _Walk(rules, tree, family, float(claims.limits[budget]), SLACK * claims.tolerance)
        walk.check_thresholds()
        walk.check_leaves()
        confirmed = sum(examiner.confirmed(rules, below, cuts, walk.limit) for cuts, below in walk.cuts_by_parent())
    replayed = len(tree.leaves) + int(rules.admissible(family.nodes).sum())
    return family.sequences, replayed, len(tree.cuts), confirmed


@dataclass(frozen=True)
class _Walk:
    """A tree that is gone through, with what no outcome may exceed and by how much outcomes may differ."""

    rules: Rules
    tree: LoggedTree
    family: Family
    limit: float
    slack: float

    def check_thresholds(self) -> None:
        """No bound exceeds the threshold that it was cut by, and no threshold what was found in the end."""
        for wrong, what in (
            (self.tree.thresholds > self.limit, "the threshold is above the outcome that was found"),
            (self.tree.cuts.values > self.tree.thresholds, "the bound is above the threshold that it was cut by"),
        ):
            if wrong.any():
                refuse(f"cuts, row {int(wrong.argmax())}: {what}")

    def check_leaves(self) -> None:
        """Leaves have the outcomes that the log says, and none is better than what is claimed."""
        leaves = self.tree.leaves
        for start in range(0, len(leaves), ROWS):
            rows = np.arange(start, min(start + ROWS, len(leaves)))
            self._compare(leaves, rows, self.rules.question.replay(leaves.rows[rows])[2])

    def cuts_by_parent(self) -> Iterator[tuple[Ints, Changed]]:
        """Replay nodes, part by part, and compare their outcomes; the cuts [n] that continue them, right after their
        last change."""
        question, below = self.rules.question, len(self.tree.expanded) + len(self.tree.leaves)
        parents, size = self.family.parents[below:], max(1, ROWS // question.horizon)
        order = np.argsort(parents, kind="stable")
        for start in range(0, len(self.family.nodes), size):
            nodes = self.family.nodes[start : start + size]
            states, earned, outcomes = question.replay(nodes)
            fine = self.rules.admissible(nodes)
            rows = np.arange(start, start + len(nodes)) - 1
            logged = rows >= 0  # the recorded sequence comes first and is not logged
            self._compare(self.tree.expanded, rows[fine & logged], outcomes[fine & logged])
            if (fine & ~logged & ~(outcomes <= self.limit)).any():
                refuse("the recorded sequence is better than what is claimed")
            first, end = np.searchsorted(parents[order], (start, start + size))
            for part in range(int(first), int(end), ROWS):
                cuts = order[part : min(part + ROWS, int(end))]
                yield cuts, self._changed(cuts, parents[cuts] - start, states, earned)

    def _compare(self, nodes: LoggedNodes, rows: Ints, found: Array) -> None:
        told = nodes.values[rows]
        for wrong, what in (
            (~(np.abs(told - found) <= self.slack + RELATIVE * np.abs(found)), "has another outcome when replayed"),
            (~(found <= self.limit), "is better than what is claimed"),
        ):
            if wrong.any():
                row = int(wrong.argmax())
                refuse(
                    f"{nodes.kind}, row {rows[row]}: {told[row]:.10g} in the log, {found[row]:.10g} replayed; {what}"
                )

    def _changed(self, cuts: Ints, parents: Ints, states: Array, earned: Array) -> Changed:
        """Where cuts [n] leave their parents; no bound may be lower than what its own sequence earns."""
        question, sequences = self.rules.question, self.tree.cuts.rows[cuts]
        changed = sequences != question.observed
        last, every = last_changes(changed), np.arange(len(cuts))
        positions = self.rules.positions(sequences)[every, last + 1]
        below, outcomes = Changed.follow(
            question,
            (last, sequences[every, last], changed.sum(1), positions),
            states[parents, last],
            earned[parents, last],
        )
        low: Bools = self.rules.admissible(sequences) & (self.tree.cuts.values[cuts] + self.slack < outcomes)
        if low.any():
            refuse(f"cuts, row {cuts[int(low.argmax())]}: the bound is below what its own sequence earns")
        return below
