"""Checks a log of a search: that everything admissible is covered, and that every number in it is right.

Everything is computed again from the question alone. A subtree that was cut is examined by a bound of the checker's
own; where that is not below the threshold the subtree is taken apart, down to single sequences if need be, as long as
the work granted lasts. What is left then rests on the word of the search, and is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ifonly.progress import Progress, Tick, silent
from ifonly.proofs.coverage import Rules, Tree, check_coverage, last_changes
from ifonly.proofs.expansion import Expansion
from ifonly.proofs.question import Array, Bools, Ints, Question, Record, refuse

SLACK = 10
"""Outcomes computed twice may differ by this many tolerances."""
MARGIN = 1e-10
"""Relative margin of the checker's own bounds."""
ROWS = 20_000
"""Sequences followed together."""


@dataclass(frozen=True)
class Checked:
    """What was found of a log that holds; one that does not is refused by an error."""

    episode: str
    outcome: float
    max_changes: int
    sequences: int
    """How many the rules admit: all of them are covered."""
    replayed: int
    cuts: int
    confirmed: int
    """Cuts below which nothing better lies by the checker's own reckoning; the others rest on the search's word."""
    slack: float

    @property
    def complete(self) -> bool:
        """Whether nothing rests on the word of the search."""
        return self.confirmed == self.cuts

    def __str__(self) -> str:
        first = f"episode {self.episode}: the proof holds"
        if not self.complete:
            first += f", but {self.cuts - self.confirmed:,} of its cuts rest on the bounds of the search alone"
        return "\n".join(
            [
                first,
                f"  best outcome with at most {self.max_changes} changes: {self.outcome:.10g}, up to {self.slack:.2g}",
                f"  covered: all {self.sequences:,} sequences that the rules admit, each once",
                f"  replayed: {self.replayed:,} sequences of the log",
                f"  cuts: {self.cuts:,}; below {self.confirmed:,} of them the checker itself finds nothing better",
            ]
        )


@dataclass(frozen=True)
class Claims:
    """What the log says is best, for every budget."""

    outcomes: Array  # [K+1], minus infinity where the rules leave no sequence
    slack: float
    tolerance: float

    @property
    def limits(self) -> Array:
        """What no sequence with so many changes may exceed [K+1]."""
        return self.outcomes + self.slack + SLACK * self.tolerance


def check_proof(path: str | Path, *, work: int = 20_000_000, progress: Progress = silent) -> Checked:
    """Check a log that `solve(..., proof=FILE)` wrote, or raise `VerificationError` that says where it fails.

    At most about `work` model steps are taken to examine cuts.
    """
    record = Record.read(path)
    if record.entry("complete", bool) is not True:
        refuse("the search was stopped before its end, so that it proves nothing; solve again without limits")
    question = Question.read(record)
    rules = Rules(question)
    tree = Tree.read(record, question.horizon, question.allowed.shape[1])
    claims = _claims(record, rules)
    count = check_coverage(rules, tree)
    replayed = _check_replays(record, rules, tree, claims)
    _check_thresholds(record, rules, tree, claims)
    confirmed = _Examination(rules, claims, work, progress).confirmed(tree.cuts)
    return Checked(
        episode=record.entry("episode", str),
        outcome=float(claims.outcomes[-1]),
        max_changes=question.max_changes,
        sequences=count,
        replayed=replayed,
        cuts=len(tree.cuts),
        confirmed=confirmed,
        slack=claims.slack,
    )


def _claims(record: Record, rules: Rules) -> Claims:
    """The best sequence of every budget, replayed."""
    question = rules.question
    budgets, horizon = question.max_changes + 1, question.horizon
    tolerance, slack = (float(record.entry(name, (int, float))) for name in ("tolerance", "slack"))
    if not 0 <= tolerance <= slack < np.inf:
        refuse("header: 'tolerance' and 'slack' must be numbers, and the first not above the second")
    outcomes = record.array("best_outcomes", (budgets,), infinite=True)
    sequences = record.whole("best", (budgets, horizon), question.allowed.shape[1])
    known = np.arange(budgets) >= rules.fewest_changes()
    if not np.array_equal(np.isfinite(outcomes), known) or not known[-1]:
        refuse("best_outcomes: there must be an outcome for every budget that the rules leave a sequence, and no other")
    fine = rules.admissible(sequences) & ((sequences != question.observed).sum(1) <= np.arange(budgets))
    found = question.replay(sequences)[2]
    for budget in np.flatnonzero(known):
        if not fine[budget]:
            refuse(f"best, budget {budget}: the sequence breaks the rules or has more changes")
        if not abs(found[budget] - outcomes[budget]) <= SLACK * tolerance:
            refuse(f"best, budget {budget}: {outcomes[budget]:.10g} is claimed; its replay gives {found[budget]:.10g}")
    return Claims(np.where(known, outcomes, -np.inf), slack, tolerance)


def _check_replays(record: Record, rules: Rules, tree: Tree, claims: Claims) -> int:
    """Every node and leaf has the outcome that the log says, and none is better than what is claimed."""
    question, count = rules.question, 0
    for name, rows in (("expanded", tree.expanded), ("leaves", tree.leaves), ("the recorded", question.observed[None])):
        logged = None if len(rows) == 1 and name.startswith("the") else f"{name}_outcomes"
        outcomes = None if logged is None else record.array(logged, (len(rows),), infinite=True)
        for start in range(0, len(rows), ROWS):
            part = rows[start : start + ROWS]
            fine, found = rules.admissible(part), question.replay(part)[2]
            changes = (part != question.observed).sum(1)
            if outcomes is not None:
                told = outcomes[start : start + ROWS]
                wrong = fine & ~(np.abs(told - found) <= SLACK * claims.tolerance)
                if wrong.any():
                    row = int(wrong.argmax())
                    refuse(f"{logged}, row {start + row}: {told[row]:.10g}; its replay gives {found[row]:.10g}")
            better = fine & ~(found <= claims.limits[changes])
            if better.any():
                row = int(better.argmax())
                refuse(f"{name}, row {start + row}: its outcome {found[row]:.10g} is better than what is claimed")
            count += int(fine.sum())
    return count


def _check_thresholds(record: Record, rules: Rules, tree: Tree, claims: Claims) -> None:
    """No bound exceeds the threshold that it was cut by, and no threshold what was found in the end."""
    question, budgets = rules.question, rules.question.max_changes + 1
    thresholds = record.array("thresholds", (None, budgets), infinite=True)
    bounds = record.array("cut_bounds", (len(tree.cuts), budgets), infinite=True)
    which = record.whole("cut_thresholds", (len(tree.cuts),), max(1, len(thresholds)))
    late = (thresholds > claims.limits).any(1)
    if late.any():
        refuse(f"thresholds, row {int(late.argmax())}: is above the outcomes that were found")
    changed = tree.cuts != question.observed
    last = last_changes(changed)
    needed = changed.sum(1) + rules.changes_to_go[last, tree.cuts[np.arange(len(last)), last]]
    counts = np.arange(budgets) >= needed[:, None]
    wrong = (counts & ~(bounds <= thresholds[which])).any(1) if len(which) else np.zeros(0, dtype=bool)
    if wrong.any():
        refuse(f"cut_bounds, row {int(wrong.argmax())}: is above the threshold that it was cut by")
    # What a subtree's own first sequence earns is known: no bound on it may be lower.
    for start in range(0, len(tree.cuts), ROWS):
        part = tree.cuts[start : start + ROWS]
        low = bounds[start : start + ROWS, -1] + SLACK * claims.tolerance < question.replay(part)[2]
        low &= rules.admissible(part)
        if low.any():
            refuse(f"cut_bounds, row {start + int(low.argmax())}: is below the outcome of its own sequence")


@dataclass(frozen=True)
class _Open:
    """Sequences followed up to a step t, whose actions are chosen before it."""

    cut: Ints  # [N], which cut each belongs to
    states: Array  # [N, D]
    earned: Array  # [N]
    before: Ints  # [N], the action at t - 1
    used: Ints  # [N], changes so far

    def take(self, rows: Bools | Ints) -> _Open:
        """Some of the rows."""
        return _Open(self.cut[rows], self.states[rows], self.earned[rows], self.before[rows], self.used[rows])


class _Examination:
    """Takes cuts apart, step by step, where the checker's own bound does not settle them."""

    def __init__(self, rules: Rules, claims: Claims, work: int, progress: Progress) -> None:
        self._rules, self._claims, self._work, self._progress = rules, claims, work, progress
        self._question = rules.question
        self._bound = Expansion.of(self._question)

    def confirmed(self, cuts: Ints) -> int:
        """How many cuts nothing better lies below; refuses the log where something does."""
        total = 0
        for start in range(0, len(cuts), ROWS):
            part = cuts[start : start + ROWS]
            total += self._examine(part, start)
            self._progress(Tick("proof", min(start + ROWS, len(cuts)), len(cuts)))
        return total

    def _examine(self, cuts: Ints, first: int) -> int:
        question, horizon = self._question, self._question.horizon
        changed = cuts != question.observed
        last, states = last_changes(changed), question.replay(cuts)
        open_ = np.ones(len(cuts), dtype=bool)
        # Cuts by the step of their last change, the latest first: the fewest sequences lie below those.
        for step in np.unique(last)[::-1]:
            rows = np.flatnonzero(last == step)
            actions, own = cuts[rows, step], states[0][rows, step]
            earned = states[1][rows, step] + question.rewards(int(step), own, actions)
            after = own if step == horizon - 1 else question.step(int(step), own, actions)
            found = _Open(rows, after, earned, actions, changed[rows].sum(1))
            pending = [(int(step) + 1, found)]
            while pending:
                t, part = pending.pop()
                if self._work <= 0:
                    open_[part.cut] = False
                    continue
                pending += self._followed(t, part, first)
        return int(open_.sum())

    def _followed(self, t: int, part: _Open, first: int) -> list[tuple[int, _Open]]:
        """The sequences one step further, without those that are settled, in parts that fit memory."""
        question, rules = self._question, self._rules
        if t == question.horizon:
            better = ~(part.earned <= self._claims.limits[part.used])
            if better.any():
                row = int(better.argmax())
                value = part.earned[row]
                refuse(f"cuts, row {first + int(part.cut[row])}: {value:.10g}, better than what is claimed, lies below")
            return []
        part = part.take(~self._settled(t, part))
        options = question.allowed[t] & question.links[t][part.before] if t else question.allowed[t][None]
        count = options.shape[1]
        used = part.used[:, None] + (np.arange(count) != question.observed[t])
        rows, actions = (options & (used + rules.changes_to_go[t] <= question.max_changes)).nonzero()
        self._work -= len(rows)
        further = []
        for start in range(0, len(rows), ROWS):
            one, chosen = rows[start : start + ROWS], actions[start : start + ROWS]
            states = part.states[one]
            earned = part.earned[one] + question.rewards(t, states, chosen)
            after = states if t == question.horizon - 1 else question.step(t, states, chosen)
            further.append((t + 1, _Open(part.cut[one], after, earned, chosen, used[one, chosen])))
        return further

    def _settled(self, t: int, part: _Open) -> Bools:
        """Where the bound leaves nothing better, for every number of changes that may still be made."""
        settled = np.zeros(len(part.cut), dtype=bool)
        if self._bound is None:
            return settled
        for used in np.unique(part.used):
            rows = np.flatnonzero(part.used == used)
            fine = np.ones(len(rows), dtype=bool)
            for more in range(self._question.max_changes - int(used) + 1):
                bound = part.earned[rows] + self._bound(t, part.states[rows], more)
                bound = bound + MARGIN * (1 + np.abs(bound))
                # A budget that leaves no sequence has no limit to keep.
                limit = self._claims.limits[used + more]
                fine &= (bound <= limit) | (limit == -np.inf)
            settled[rows] = fine
        return settled
