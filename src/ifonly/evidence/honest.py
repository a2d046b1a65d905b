"""The winner's curse: what a question promises to models of other subjects than those that chose the sequence.

A best sequence is best under its model partly because that model errs in its favour. How much of a promise is owed to
that shows where one half of the subjects chooses and the other half judges: members of each half are asked for their
own best sequence, and the same sequence is replayed under the members of the other half, which had no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ifonly.errors import InputError
from ifonly.models.ensemble import Ensemble
from ifonly.problem import BaseProblem, EnsembleProblem, Problem, all_on
from ifonly.problem.problem import put_all_to
from ifonly.query import Limits
from ifonly.result import Result
from ifonly.result.verdict import HonestGain
from ifonly.search.base import Solver
from ifonly.search.batch import solve_batch


def honest_gain(
    problem: BaseProblem, ensemble: Ensemble, *, solver: Solver | None = None, limits: Limits | None = None
) -> HonestGain:
    """What the best sequences of each half of the subjects promise, and what the other half says of them.

    The half that chooses asks as `problem` does: one model, here the half's member of the kind with the largest weight;
    or, where the query has an objective, all members of the half with their weights. The other half judges by the mean
    of its members, each with its weight. Searches that reach their limit choose the best that they found.
    """
    return honest_gains([problem], ensemble, solver=solver, limits=limits)[0]


@torch.no_grad()
def honest_gains(
    problems: Sequence[BaseProblem],
    ensemble: Ensemble,
    *,
    solver: Solver | None = None,
    limits: Limits | None = None,
    device: torch.device | str | None = None,
) -> list[HonestGain]:
    """The same of each of some problems that share model and query, searched together (`solve_batch`) on `device`."""
    halves = [_members_of(ensemble, half) for half in (0, 1)]
    if not all(halves):
        raise InputError(
            "honest gain: the ensemble has no members of both halves of the subjects; fit one with kinds "
            "(`ifonly fit --ensemble kinds`)."
        )
    alone = [problem.members[0] if isinstance(problem, EnsembleProblem) else problem for problem in problems]
    asked = [one for one in alone if isinstance(one, Problem)]
    assert len(asked) == len(problems), "there are no other kinds of problem"
    judges = [EnsembleProblem.from_problem(one, ensemble) for one in asked]
    objective = problems[0].query.objective if isinstance(problems[0], EnsembleProblem) else None
    promised, judged = np.zeros(len(problems)), np.zeros(len(problems))
    for choosing, judging in (halves, halves[::-1]):
        put = _choosing(objective, asked, ensemble, choosing)
        results = solve_batch(_moved(put, device), solver, limits=limits or problems[0].query.limits)
        promised += [result.improvement for result in results]
        judged += [_mean_gain(*pair, ensemble, judging) for pair in zip(judges, results, strict=True)]
    pairs = zip((promised / 2).tolist(), (judged / 2).tolist(), strict=True)
    return [HonestGain(*pair, together=objective is not None) for pair in pairs]


def _members_of(ensemble: Ensemble, half: int) -> list[int]:
    return [number for number, label in enumerate(ensemble.labels) if label.half == half]


def _choosing(
    objective: str | float | None, asked: Sequence[Problem], ensemble: Ensemble, members: Sequence[int]
) -> Sequence[Problem] | Sequence[EnsembleProblem]:
    """The query put to those who choose."""
    if objective is None:
        first = max(members, key=lambda number: ensemble.labels[number].weight)
        return put_all_to(asked, ensemble.members[first])
    labels = [ensemble.labels[number] for number in members]
    chosen = Ensemble([ensemble.members[number] for number in members], labels=labels)
    return [EnsembleProblem.from_problem(one, chosen, objective=objective) for one in asked]


def _moved(
    problems: Sequence[Problem] | Sequence[EnsembleProblem], device: torch.device | str | None
) -> Sequence[BaseProblem]:
    """The problems on the device where they are searched."""
    if device is None or torch.device(device).type == problems[0].device.type:
        return problems
    models = [model.for_search(device) for model in problems[0].models]
    return all_on(list(problems), device, models if problems[0].members_shape else models[0])


def _mean_gain(problem: EnsembleProblem, result: Result, ensemble: Ensemble, members: Sequence[int]) -> float:
    """The mean gain of an answer over some members of those that are asked, each with its weight."""
    sequence = torch.as_tensor(list(result.actions), device=problem.device)
    totals = problem.replay(torch.stack([problem.observed_actions, sequence]))[1][:, members]  # [2, m]
    weights = totals.new_tensor([ensemble.labels[number].weight for number in members])
    return float(((totals[1] - totals[0]) * weights).sum() / weights.sum())
