"""Whether an answer survives refitting: what it gains under every refit, and what the refits would do themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.errors import InputError
from ifonly.models.base import TransitionModel
from ifonly.problem import BaseProblem, EnsembleProblem, HasMembers, Problem
from ifonly.progress import Progress, Tick, silent
from ifonly.query import Limits
from ifonly.result import Agreement, Result, Status
from ifonly.result.agreement import StepAgreement
from ifonly.search.base import Solver
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.solve import solve


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
    sequence = problem.checked_sequence(actions)
    ensemble = put_to_members(problem, members)
    totals = ensemble.replay(torch.stack([ensemble.observed_actions, sequence]))[1]  # [2, M]
    gains = totals[1] - totals[0]
    gains = torch.where(gains.isfinite(), gains, -torch.inf)
    gains = torch.where(gains.abs() <= ensemble.tolerance, 0.0, gains)  # rounding
    own = _own_answers(ensemble, solver, limits or problem.query.limits, progress) if each_refit else None
    return Agreement(
        improvements=gains.cpu().numpy(),
        helping=int((gains > 0).sum()),
        steps=None if own is None else _step_agreement(ensemble, sequence, own),
        unsolved=0 if own is None else len(ensemble.models) - len(own),
        notes=ensemble.notes,
        labels=tuple(getattr(members, "labels", ensemble.labels if members is ensemble.models else ())),
    )


def own_refits(problem: BaseProblem) -> Sequence[TransitionModel] | HasMembers | None:
    """The members of an ensemble problem, or the ensemble that is asked; None: one model alone is."""
    if isinstance(problem, EnsembleProblem):
        return problem.models
    model: Any = problem.models[0]
    return model if getattr(model, "members", None) else None


def put_to_members(problem: BaseProblem, members: Sequence[TransitionModel] | HasMembers) -> EnsembleProblem:
    """The question put to every member; of an ensemble problem that asks them already, the ensemble problem."""
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


def _own_answers(ensemble: EnsembleProblem, solver: Solver | None, limits: Limits, progress: Progress) -> list[Result]:
    """The proven best sequences of those members that have one."""
    solver = BranchAndBound() if solver is None else solver
    require_exact(solver)
    proven = []
    for number, problem in enumerate(ensemble.members):
        progress(Tick("refits", number, len(ensemble.models)))
        result = _own_answer(problem, solver, limits)
        if result is not None:
            proven.append(result)
    progress(Tick("refits", len(ensemble.models), len(ensemble.models)))
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


def _step_agreement(ensemble: EnsembleProblem, sequence: Tensor, own: list[Result]) -> tuple[StepAgreement, ...]:
    observed = ensemble.observed_actions.tolist()
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
