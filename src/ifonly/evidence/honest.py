"""The winner's curse: what a question promises to models of other subjects than those that chose the sequence.

A best sequence is best under its model partly because that model errs in its favour. How much of a promise is owed to
that shows where one half of the subjects chooses and the other half judges: members of each half are asked for their
own best sequence, and the same sequence is replayed under the members of the other half, which had no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ifonly.errors import InputError
from ifonly.models.ensemble import Ensemble
from ifonly.problem import BaseProblem, EnsembleProblem, Problem
from ifonly.query import Limits
from ifonly.result.verdict import HonestGain
from ifonly.search.base import Solver
from ifonly.search.solve import solve


@torch.no_grad()
def honest_gain(
    problem: BaseProblem, ensemble: Ensemble, *, solver: Solver | None = None, limits: Limits | None = None
) -> HonestGain:
    """What the best sequences of each half of the subjects promise, and what the other half says of them.

    The half that chooses asks as `problem` does: one model, here the half's member of the kind with the largest weight;
    or, where the query has an objective, all members of the half with their weights. The other half judges by the mean
    of its members, each with its weight. Searches that reach their limit choose the best that they found.
    """
    halves = [_members_of(ensemble, half) for half in (0, 1)]
    if not all(halves):
        raise InputError(
            "honest gain: the ensemble has no members of both halves of the subjects; fit one with kinds "
            "(`ifonly fit --ensemble kinds`)."
        )
    asked = problem.members[0] if isinstance(problem, EnsembleProblem) else problem
    assert isinstance(asked, Problem)
    promised, judged = [], []
    for choosing, judging in (halves, halves[::-1]):
        result = solve(_choosing(problem, asked, ensemble, choosing), solver, limits=limits or problem.query.limits)
        promised.append(result.improvement)
        sequence = torch.as_tensor(list(result.actions), device=problem.device)
        judged.append(_mean_gain(asked, ensemble, judging, sequence))
    return HonestGain(sum(promised) / 2, sum(judged) / 2)


def _members_of(ensemble: Ensemble, half: int) -> list[int]:
    return [number for number, label in enumerate(ensemble.labels) if label.half == half]


def _choosing(problem: BaseProblem, asked: Problem, ensemble: Ensemble, members: Sequence[int]) -> BaseProblem:
    """The query put to those who choose."""
    if isinstance(problem, EnsembleProblem):
        objective = problem.query.objective
        assert objective is not None, "set when the problem was built"
        chosen = Ensemble(
            [ensemble.members[number] for number in members], labels=[ensemble.labels[number] for number in members]
        )
        return EnsembleProblem.from_problem(asked, chosen, objective=objective)
    first = max(members, key=lambda number: ensemble.labels[number].weight)
    return EnsembleProblem.from_problem(asked, [ensemble.members[first]]).members[0]


def _mean_gain(asked: Problem, ensemble: Ensemble, members: Sequence[int], sequence: Tensor) -> float:
    """The mean gain of a sequence [T] over members, each with its weight."""
    judges = EnsembleProblem.from_problem(asked, [ensemble.members[number] for number in members])
    totals = judges.replay(torch.stack([judges.observed_actions, sequence]))[1]  # [2, M]
    weights = totals.new_tensor([ensemble.labels[number].weight for number in members])
    return float(((totals[1] - totals[0]) * weights).sum() / weights.sum())
