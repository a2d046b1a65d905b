"""Whether an answer survives refitting: what it gains under every refit, and what the refits would do themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.episode import FloatArray
from ifonly.data.schema import Schema, moment
from ifonly.errors import InputError
from ifonly.evidence.sequences import checked_sequence
from ifonly.evidence.words import finite
from ifonly.models.base import TransitionModel
from ifonly.problem import BaseProblem, EnsembleProblem, HasMembers, Problem
from ifonly.progress import Progress, Tick, silent
from ifonly.rewards import Shown
from ifonly.search.base import Limits, Solver
from ifonly.search.branch import BranchAndBound
from ifonly.search.result import Result, Status
from ifonly.search.solve import solve

INTERVAL = (0.05, 0.95)
"""The quantiles over refits between which nine of ten lie."""

MANY = 20
"""Refits from which on that is a statement; of fewer, all are told."""


@dataclass(frozen=True)
class StepAgreement:
    """How many of `of` refits, each solved on its own, do the same at a changed step in their own best sequence."""

    step: int
    action: int
    same_step: int
    """They change this step."""
    same_action: int
    """They change it to this very action."""
    of: int


@dataclass(frozen=True, eq=False)
class Agreement:
    """One sequence under every one of M refits."""

    improvements: FloatArray
    """[M], over the observed outcome, in the reward's units, the cost of changes included; minus infinity where a
    refit gives no finite outcome.
    """
    helping: int
    """Refits under which it helps, by more than rounding."""
    steps: tuple[StepAgreement, ...] | None
    """One for each changed step; None where the refits were not solved themselves."""
    unsolved: int
    """Refits without a proven best sequence of their own, within the limits; 0 where not asked."""
    notes: tuple[str, ...]
    """What limits what the agreement can mean, such as few subjects."""
    schema: Schema
    changes: int
    """How many steps the sequence changes."""
    observed: Shown
    """The observed outcome as people read it: its name, and whether more of it is better."""
    change_cost: float = 0.0
    """What each change was counted as."""

    @property
    def count(self) -> int:
        """How many refits there are, M."""
        return len(self.improvements)

    @property
    def share(self) -> float:
        """The share of refits under which it helps."""
        return self.helping / self.count

    @property
    def median(self) -> float:
        """The median improvement over refits."""
        return _quantile(self.improvements, 0.5)

    @property
    def low(self) -> float:
        """The 5 % quantile of the improvements: the lower end of a 90 % interval over refits."""
        return _quantile(self.improvements, INTERVAL[0])

    @property
    def high(self) -> float:
        """The 95 % quantile of the improvements: the upper end."""
        return _quantile(self.improvements, INTERVAL[1])

    @property
    def summary(self) -> str:
        """In a few words."""
        if not self.changes:
            return "nothing is changed, so refits have nothing to agree on"
        return agreeing(self.helping, self.count)

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; what is infinite is null."""
        return {
            "summary": self.summary,
            "refits": self.count,
            "helping": self.helping,
            "share": self.share,
            "median": finite(self.median),
            "low": finite(self.low),
            "high": finite(self.high),
            "improvements": [finite(value) for value in self.improvements.tolist()],
            "label": self.observed.label,
            "higher_is_better": self.observed.higher_is_better,
            "steps": None if self.steps is None else [asdict(step) for step in self.steps],
            "unsolved": self.unsolved,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        if not self.changes:
            return self.summary
        lines = [f"{self.summary} that the changes help", f"  {self._gains_in_words()}"]
        broken = int(np.isinf(self.improvements).sum())
        if broken:
            lines.append(f"  refits under which the outcome is not finite: {broken} of {self.count}")
        lines += [f"  {self._step_in_words(step)}" for step in self.steps or () if step.of]
        if self.unsolved:
            lines.append(f"  refits without a proven best sequence of their own: {self.unsolved} of {self.count}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def _gains_in_words(self) -> str:
        """The improvements in the outcome's own direction; of a few refits all of them, of one no interval."""
        counted = f" (each change counted as a loss of {self.change_cost:g})" if self.change_cost else ""
        head = f"{self.observed.label} {self._moved(self.median)}"
        if self.count == 1:
            return f"{head} under it{counted}; one refit cannot show how much refits differ"
        ends = (self.low, self.high) if self.count >= MANY else (self.improvements.min(), self.improvements.max())
        which = "nine of ten refits" if self.count >= MANY else "the refits"
        return f"{head} in the median; {which} lie between {' and '.join(map(self._moved, ends))}{counted}"

    def _moved(self, improvement: float) -> str:
        if not math.isfinite(improvement):
            return "without a finite value"
        if improvement == 0:
            return "unchanged"
        return f"{abs(improvement):.4g} {'higher' if (improvement > 0) == self.observed.higher_is_better else 'lower'}"

    def _step_in_words(self, step: StepAgreement) -> str:
        return (
            f"{moment(self.schema, step.step)}: {step.same_step} of {step.of} refits change it too in their own best "
            f"sequence, {step.same_action} to the same action"
        )


def agreeing(helping: int, count: int) -> str:
    """Under how many refits a sequence helps, in a few words.

    >>> agreeing(18, 20), agreeing(0, 1)
    ('18 of 20 refits agree', 'the only refit does not agree')
    """
    if count == 1:
        return f"the only refit {'agrees' if helping else 'does not agree'}"
    return f"{helping} of {count} refits agree"


@torch.no_grad()
def agreement(
    problem: BaseProblem,
    actions: npt.ArrayLike | Tensor,
    members: Sequence[TransitionModel] | HasMembers,
    *,
    each_refit: bool = False,
    solver: Solver | None = None,
    limits: Limits | None = None,
    progress: Progress = silent,
) -> Agreement:
    """What `actions` [T], a result's for instance, gain under each of `members`: refits of the model, or an ensemble.

    Every member abducts the noise of the recording for itself. With `each_refit` the question is also solved for each
    of them, by `solver` (`BranchAndBound`; it must be an exact one) within `limits` for each, which tells how many
    would change the same steps. Ctrl-C ends it with KeyboardInterrupt.
    """
    sequence = checked_sequence(problem, actions)
    panel = _asked(problem, members)
    totals = panel.replay(torch.stack([panel.observed_actions, sequence]))[1]  # [2, M]
    gains = totals[1] - totals[0]
    gains = torch.where(gains.isfinite(), gains, -torch.inf)
    gains = torch.where(gains.abs() <= panel.tolerance, 0.0, gains)  # rounding
    own = _own_answers(panel, solver, limits or Limits(), progress) if each_refit else None
    return Agreement(
        improvements=gains.cpu().numpy(),
        helping=int((gains > 0).sum()),
        steps=None if own is None else _step_agreement(panel, sequence, own),
        unsolved=0 if own is None else len(panel.models) - len(own),
        notes=panel.notes,
        schema=problem.episode.schema,
        changes=int(problem.changes(sequence)),
        observed=problem.reward.show(problem.observed_outcome),
        change_cost=problem.change_cost,
    )


def _asked(problem: BaseProblem, members: Sequence[TransitionModel] | HasMembers) -> EnsembleProblem:
    """The question put to every member; of a panel that asks them already, the panel."""
    if isinstance(problem, EnsembleProblem):
        return problem if members is problem.models else EnsembleProblem.from_problem(problem.members[0], members)
    assert isinstance(problem, Problem)
    return EnsembleProblem.from_problem(problem, members)


def require_exact(solver: Solver) -> None:
    """Refuse a solver that would not tell the best sequence of a refit."""
    if not solver.exact:
        raise InputError(
            f"agreement: {solver.name!r} proves nothing, so that what it finds for a refit need not be the refit's "
            "best sequence; choose an exact solver."
        )


def _own_answers(panel: EnsembleProblem, solver: Solver | None, limits: Limits, progress: Progress) -> list[Result]:
    """The proven best sequences of those members that have one."""
    solver = BranchAndBound() if solver is None else solver
    require_exact(solver)
    proven = []
    for number, problem in enumerate(panel.members):
        progress(Tick("refits", number, len(panel.models)))
        result = _own_answer(problem, solver, limits)
        if result is not None:
            proven.append(result)
    progress(Tick("refits", len(panel.models), len(panel.models)))
    return proven


def _own_answer(problem: Problem, solver: Solver, limits: Limits) -> Result | None:
    """The best sequence of one member; None where there is none, or where it is not proven within the limits."""
    try:
        result = solve(problem, solver, limits=limits)
    except InputError:  # under this member no sequence is admissible, or outcomes overflow
        return None
    if result.status is Status.INTERRUPTED:  # searches turn Ctrl-C into an answer; here nobody waits for it
        raise KeyboardInterrupt
    return result if result.status is Status.OPTIMAL else None


def _step_agreement(panel: EnsembleProblem, sequence: Tensor, own: list[Result]) -> tuple[StepAgreement, ...]:
    observed = panel.observed_actions.tolist()
    return tuple(
        StepAgreement(
            step=step,
            action=action,
            same_step=sum(int(result.actions[step]) != observed[step] for result in own),
            same_action=sum(int(result.actions[step]) == action for result in own),
            of=len(own),
        )
        for step, action in enumerate(sequence.tolist())
        if action != observed[step]
    )


def _quantile(values: FloatArray, level: float) -> float:
    """Between two values in proportion; minus infinity next to minus infinity."""
    with np.errstate(invalid="ignore"):
        found = float(np.quantile(values, level))
    return -math.inf if math.isnan(found) else found
