"""Asking how far an answer may be trusted: of one answer, or the same of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.errors import IfonlyError, InputError
from ifonly.evidence import limits as warning_limits
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.evidence.refits import agreement, require_exact
from ifonly.evidence.sensitivity import Sensitivity
from ifonly.evidence.sensitivity import sensitivity as sensitivity_of
from ifonly.evidence.sequences import checked_sequence
from ifonly.evidence.supported import support_of
from ifonly.evidence.trusted import Trust
from ifonly.models.base import TransitionModel
from ifonly.problem import BaseProblem, EnsembleProblem, HasMembers, Problem, members_of
from ifonly.progress import Progress, silent
from ifonly.search.base import Limits, Solver
from ifonly.search.result import Result

Found = TypeVar("Found")


def examine(
    problem: BaseProblem,
    answer: Result | npt.ArrayLike | Tensor,
    *,
    behaviour: BehaviourModel | None = None,
    refits: Sequence[TransitionModel] | HasMembers | None = None,
    each_refit: bool = False,
    sensitivity: bool = False,
    solver: Solver | None = None,
    limits: Limits | None = None,
    progress: Progress = silent,
) -> Trust:
    """How far to trust an answer to `problem`: a result, or its actions [T].

    Told is what a check concluded about the model; what the changes gain under each of `refits`, by default the members
    of a panel or of the ensemble that is asked, and with `each_refit` what these would do themselves (see `agreement`
    for `solver` and `limits`); how usual they are, by `behaviour`; and with `sensitivity` what would undo the gain: of
    a panel, the gain of the member that gains least of those that gain anything. What cannot be told of this answer is
    said in a warning (`Trust.failure`), and costs nothing else.
    """
    if isinstance(answer, Result):
        _check_same_episode(problem, answer)
        answer = answer.actions
    sequence = checked_sequence(problem, answer)
    members = refits if refits is not None else _own_refits(problem)
    if members is None and each_refit:
        raise InputError(
            "examine: there are no refits to solve; ask an ensemble (fit_ensemble, `ifonly fit --ensemble 20`), or "
            "pass refits=..."
        )
    model = problem.models[0]
    if behaviour is not None:
        behaviour.schema.require_same(model.schema, here="the behaviour model", there="the model")
    if refits is not None:
        members_of([model, *members_of(refits)])
    if each_refit and solver is not None:
        require_exact(solver)
    parts = _Parts()
    agreed = supported = undone = None
    if members is not None:
        agreed = parts.ask(
            "what refits say",
            lambda: agreement(
                problem, sequence, members, each_refit=each_refit, solver=solver, limits=limits, progress=progress
            ),
        )
    if behaviour is not None:
        supported = parts.ask("what the data supports", lambda: support_of(problem, sequence, behaviour))
    if sensitivity:
        undone = parts.ask("what would undo the gain", lambda: _what_would_undo(problem, sequence))
    undoing, member = undone or (None, None)
    return Trust(
        changed_steps=tuple((sequence != problem.observed_actions).nonzero().flatten().tolist()),
        model_check=problem.standing,
        refits=agreed,
        support=supported,
        sensitivity=undoing,
        sensitive_member=member,
        failure="; ".join(parts.failures) or None,
    )


class _Parts:
    """Parts of an examination, each of which may fail without the others."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def ask(self, what: str, find: Callable[[], Found]) -> Found | None:
        """What is found; None where that fails, of which the reason is kept."""
        try:
            return find()
        except IfonlyError as error:
            self.failures.append(f"{what} ({str(error).rstrip('.')})")
            return None


def _check_same_episode(problem: BaseProblem, result: Result) -> None:
    recorded = problem.observed_actions.cpu().numpy()
    if result.episode_id != problem.episode.id or not np.array_equal(result.observed_actions, recorded):
        raise InputError(
            f"examine: the result is about episode {result.episode_id!r} and the problem about {problem.episode.id!r}, "
            "or what was done there differs; give the problem that was solved."
        )


def _own_refits(problem: BaseProblem) -> Sequence[TransitionModel] | HasMembers | None:
    """The members of a panel, or the ensemble that is asked."""
    if isinstance(problem, EnsembleProblem):
        return problem.models
    model: Any = problem.models[0]
    return model if getattr(model, "members", None) else None


def _what_would_undo(problem: BaseProblem, sequence: Tensor) -> tuple[Sensitivity, int | None]:
    """The sensitivity of a problem; of a panel that of its weakest member, and which one that is."""
    if isinstance(problem, EnsembleProblem):
        member = _weakest_member(problem, sequence)
        return sensitivity_of(problem.members[member], sequence), member
    assert isinstance(problem, Problem)
    return sensitivity_of(problem, sequence), None


def _weakest_member(panel: EnsembleProblem, sequence: Tensor) -> int:
    """The member that gains least of those that gain anything; where none does, the one that loses least."""
    totals = panel.replay(torch.stack([panel.observed_actions, sequence]))[1]
    gains = (totals[1] - totals[0]).nan_to_num(nan=-torch.inf)
    helps = gains > panel.tolerance
    return int(torch.where(helps, gains, torch.inf).argmin() if helps.any() else gains.argmax())


@dataclass(frozen=True)
class Examination:
    """What to ask about every answer."""

    behaviour: BehaviourModel | None = None
    each_refit: bool = False
    sensitivity: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is asked beyond what is always told: the model's check, and the agreement of its refits."""
        return self.behaviour is None and not self.each_refit and not self.sensitivity

    def check(self, model: TransitionModel, solver: Solver) -> None:
        """Refuse, before anything is solved, what could not be told of any answer of this model."""
        if self.behaviour is not None:
            self.behaviour.schema.require_same(model.schema, here="the behaviour model", there="the model")
        if self.each_refit:
            members_of(model)
            require_exact(solver)

    def has_answers(self, model: TransitionModel) -> bool:
        """Whether there is anything to tell: what is asked, or what is known of the model, its check and its refits."""
        return not self.is_empty or model.standing is not None or bool(getattr(model, "members", None))

    def to_dict(self) -> dict[str, Any]:
        """Plain types for a manifest."""
        return {
            "behaviour": None if self.behaviour is None else self.behaviour.fingerprint,
            "distances": self.behaviour is not None and self.behaviour.neighbours is not None,
            "each_refit": self.each_refit,
            "sensitivity": self.sensitivity,
            "limits": warning_limits.in_force(),
        }

    def of(
        self,
        problem: BaseProblem,
        result: Result | npt.ArrayLike | Tensor,
        *,
        limits: Limits | None = None,
        solver: Solver | None = None,
        progress: Progress = silent,
    ) -> Trust:
        """The answers for one result."""
        return examine(
            problem,
            result,
            behaviour=self.behaviour,
            each_refit=self.each_refit,
            sensitivity=self.sensitivity,
            solver=solver,
            limits=limits,
            progress=progress,
        )

    def attempt(self, problem: BaseProblem, result: Result) -> Trust:
        """The same; where the answer cannot be examined, that is what is told: it is still an answer."""
        try:
            return self.of(problem, result)
        except IfonlyError as error:
            return unexamined(problem, result, str(error))


def unexamined(problem: BaseProblem, result: Result, reason: str) -> Trust:
    """What is left to say of an answer whose examination failed for `reason`."""
    return Trust(
        changed_steps=tuple(change.step for change in result.changes),
        model_check=problem.standing,
        failure=reason,
    )
