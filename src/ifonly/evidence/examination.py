"""Asking how far an answer may be trusted: of one answer, or the same of many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.errors import IfonlyError, InputError
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.evidence.refits import agreement, require_exact
from ifonly.evidence.sensitivity import sensitivity as sensitivity_of
from ifonly.evidence.shifts import checked_sequence
from ifonly.evidence.support import support_of
from ifonly.models.base import TransitionModel
from ifonly.problem import BaseProblem, EnsembleProblem, HasMembers, Problem, members_of
from ifonly.progress import Progress, silent
from ifonly.query import Limits, Query
from ifonly.result import Evidence, Result, Sensitivity
from ifonly.result.evidence import ExaminationFailure
from ifonly.search.base import Solver

Found = TypeVar("Found")


def examine(
    problem: BaseProblem,
    answer: Result | npt.ArrayLike | Tensor,
    *,
    behaviour: BehaviourModel | None = None,
    refits: Sequence[TransitionModel] | HasMembers | None = None,
    each_refit: bool | None = None,
    sensitivity: bool | None = None,
    solver: Solver | None = None,
    limits: Limits | None = None,
    progress: Progress = silent,
) -> Evidence:
    """How far to trust an answer to `problem`: a result, or its actions [T].

    Told is what a check concluded about the model; what the changes gain under each of `refits`, by default the members
    of the ensemble that is asked, and with `each_refit` what these would do themselves (see `agreement` for `solver`
    and `limits`); how usual they are, by `behaviour`; and with `sensitivity` what would undo the gain: of an ensemble
    problem, the gain of the member that gains least of those that gain anything. What cannot be told of this answer is
    kept in `Evidence.failures`, and costs nothing else. `each_refit` and `sensitivity` are as the query says,
    unless they are given.
    """
    each_refit = problem.query.each_refit if each_refit is None else each_refit
    sensitivity = problem.query.sensitivity if sensitivity is None else sensitivity
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
            "refits",
            lambda: agreement(
                problem, sequence, members, each_refit=each_refit, solver=solver, limits=limits, progress=progress
            ),
        )
    if behaviour is not None:
        supported = parts.ask("support", lambda: support_of(problem, sequence, behaviour))
    if sensitivity:
        undone = parts.ask("sensitivity", lambda: _what_would_undo(problem, sequence))
    return Evidence(
        changed_steps=tuple((sequence != problem.observed_actions).nonzero().flatten().tolist()),
        check=problem.standing,
        refits=agreed,
        support=supported,
        sensitivity=undone,
        failures=tuple(parts.failures),
    )


class _Parts:
    """Parts of an examination, each of which may fail without the others."""

    def __init__(self) -> None:
        self.failures: list[ExaminationFailure] = []

    def ask(self, part: str, find: Callable[[], Found]) -> Found | None:
        """What is found; None where that fails, of which the reason is kept."""
        try:
            return find()
        except IfonlyError as error:
            self.failures.append(ExaminationFailure(part, str(error)))
            return None


def _check_same_episode(problem: BaseProblem, result: Result) -> None:
    recorded = problem.observed_actions.cpu().numpy()
    if result.episode != problem.episode.id or not np.array_equal(result.observed_actions, recorded):
        raise InputError(
            f"examine: the result is about episode {result.episode!r} and the problem about {problem.episode.id!r}, "
            "or what was done there differs; give the problem that was solved."
        )


def _own_refits(problem: BaseProblem) -> Sequence[TransitionModel] | HasMembers | None:
    """The members of an ensemble problem, or the ensemble that is asked."""
    if isinstance(problem, EnsembleProblem):
        return problem.models
    model: Any = problem.models[0]
    return model if getattr(model, "members", None) else None


def _what_would_undo(problem: BaseProblem, sequence: Tensor) -> Sensitivity:
    """The sensitivity of a problem; of an ensemble problem that of its weakest member."""
    if isinstance(problem, EnsembleProblem):
        member = _weakest_member(problem, sequence)
        return replace(sensitivity_of(problem.members[member], sequence), member=member)
    assert isinstance(problem, Problem)
    return sensitivity_of(problem, sequence)


def _weakest_member(ensemble: EnsembleProblem, sequence: Tensor) -> int:
    """The member that gains least of those that gain anything; where none does, the one that loses least."""
    totals = ensemble.replay(torch.stack([ensemble.observed_actions, sequence]))[1]
    gains = (totals[1] - totals[0]).nan_to_num(nan=-torch.inf)
    helps = gains > ensemble.tolerance
    return int(torch.where(helps, gains, torch.inf).argmin() if helps.any() else gains.argmax())


def unexamined(problem: BaseProblem, result: Result, reason: str) -> Evidence:
    """What is left to say of an answer whose examination failed for `reason`."""
    return Evidence(
        changed_steps=tuple(change.step for change in result.changes),
        check=problem.standing,
        failures=(ExaminationFailure("all", reason),),
    )


def check_examination(query: Query, model: TransitionModel, solver: Solver, behaviour: BehaviourModel | None) -> None:
    """Refuse, before anything is solved, what could not be told of any answer of this model."""
    if behaviour is not None:
        behaviour.schema.require_same(model.schema, here="the behaviour model", there="the model")
    if query.each_refit:
        members_of(model)
        require_exact(solver)
