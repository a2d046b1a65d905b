"""Whether anything better lies below a subtree that was cut, by the checker's own bound and its own replays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ifonly.progress import Progress, Tick
from ifonly.proofs.ceilings import MARGIN as MOST_MARGIN
from ifonly.proofs.ceilings import most_to_go
from ifonly.proofs.coverage import Rules
from ifonly.proofs.expansion import Expansion
from ifonly.proofs.question import Array, Bools, Ints, Question, refuse

MARGIN = 1e-10
"""Relative margin of the checker's own bounds."""
ROWS = 20_000
"""Sequences followed together."""


@dataclass(frozen=True)
class Changed:
    """Sequences right after their last change."""

    step: Ints  # [N], of that change
    used: Ints  # [N], changes up to it
    position: Ints  # [N], where it has led the automaton that keeps the rules
    states: Array  # [N, D], at the step after it
    earned: Array  # [N], up to it

    @classmethod
    def follow(
        cls, question: Question, change: tuple[Ints, Ints, Ints, Ints], states: Array, earned: Array
    ) -> tuple[Changed, Array]:
        """Make changes (steps, actions, number so far, positions after them) at states [N, D] with what was earned
        before them [N], and go on with the recorded actions: what is true after the change, and the outcomes [N]."""
        step, action, used, position = change
        order = np.argsort(step, kind="stable")
        after, so_far, states, earned = states.copy(), earned.copy(), states.copy(), earned.copy()
        for t in range(int(step.min(initial=question.horizon)), question.horizon):
            rows = order[: np.searchsorted(step[order], t, side="right")]
            now = step[rows] == t
            chosen = np.where(now, action[rows], question.observed[t])
            earned[rows] += question.rewards(t, states[rows], chosen)
            if t < question.horizon - 1:
                states[rows] = question.step(t, states[rows], chosen)
            after[rows[now]], so_far[rows[now]] = states[rows[now]], earned[rows[now]]
        return cls(step, used, position, after, so_far), earned


@dataclass(frozen=True)
class _Open:
    """Sequences followed up to a step t, whose actions are chosen before it."""

    cut: Ints  # [N], which cut each belongs to
    states: Array  # [N, D]
    earned: Array  # [N]
    position: Ints  # [N], where the actions before t have led the automaton that keeps the rules
    used: Ints  # [N], changes so far

    def take(self, rows: Bools | Ints) -> _Open:
        """Some of the rows."""
        return _Open(self.cut[rows], self.states[rows], self.earned[rows], self.position[rows], self.used[rows])


class Examiner:
    """Takes cuts apart, step by step, where the checker's own bound does not settle them."""

    def __init__(self, question: Question, work: int, progress: Progress, *, total: int) -> None:
        self._work, self._progress, self._total, self._done = work, progress, total, 0
        self._bound, self._most_to_go = Expansion.of(question), most_to_go(question)

    def confirmed(self, rules: Rules, below: Changed, cuts: Ints, limit: float) -> int:
        """How many of the `cuts` [N] have nothing above `limit` below them; refuses the log where something is."""
        settled = np.ones(len(cuts), dtype=bool)
        # By the step of the last change, the latest first: the fewest sequences lie below those.
        for step in np.unique(below.step)[::-1]:
            rows = np.flatnonzero(below.step == step)
            states, earned = below.states[rows], below.earned[rows]
            pending = [(int(step) + 1, _Open(rows, states, earned, below.position[rows], below.used[rows]))]
            while pending:
                t, part = pending.pop()
                if self._work <= 0:
                    settled[part.cut] = False
                elif t < rules.question.horizon:
                    pending += self._followed(rules, t, part, limit)
                elif not (part.earned <= limit).all():
                    row = int((~(part.earned <= limit)).argmax())
                    refuse(
                        f"cuts, row {cuts[part.cut[row]]}: {part.earned[row]:.10g}, better than what is claimed, "
                        "lies below it"
                    )
        self._done += len(cuts)
        self._progress(Tick("proof", self._done, self._total))
        return int(settled.sum())

    def _followed(self, rules: Rules, t: int, part: _Open, limit: float) -> list[tuple[int, _Open]]:
        """The sequences one step further, without those that are settled, in parts that fit memory."""
        question = rules.question
        part = part.take(~self._settled(t, part, question.max_changes, limit))
        leads = question.after[part.position][:, question.symbols[t]]
        used = part.used[:, None] + (np.arange(leads.shape[1]) != question.observed[t])
        rows, actions = (used + rules.changes_to_go[t + 1][leads] <= question.max_changes).nonzero()
        self._work -= len(rows)
        further = []
        for start in range(0, len(rows), ROWS):
            one, chosen = rows[start : start + ROWS], actions[start : start + ROWS]
            states = part.states[one]
            earned = part.earned[one] + question.rewards(t, states, chosen)
            after = states if t == question.horizon - 1 else question.step(t, states, chosen)
            further.append((t + 1, _Open(part.cut[one], after, earned, leads[one, chosen], used[one, chosen])))
        return further

    def _settled(self, t: int, part: _Open, budget: int, limit: float) -> Bools:
        """Where the bound leaves nothing better, for as many changes as may still be made."""
        with np.errstate(invalid="ignore"):  # infinities of both signs: settles nothing
            ceilings = part.earned + self._most_to_go[t, (part.used < budget).astype(np.int64)]
            settled = np.asarray(ceilings + MOST_MARGIN * (1 + np.abs(part.earned) + np.abs(ceilings)) <= limit)
        if self._bound is None:
            return settled
        for used in np.unique(part.used[~settled]):
            rows = np.flatnonzero((part.used == used) & ~settled)
            bound = part.earned[rows] + self._bound(t, part.states[rows], budget - int(used))
            settled[rows] = bound + MARGIN * (1 + np.abs(bound)) <= limit
        return settled
