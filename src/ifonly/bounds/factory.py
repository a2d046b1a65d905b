"""Which bound leads a branch-and-bound search - Taylor expansions, the paper's anchors or none - and its making."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from ifonly.bounds.anchors import observed_anchors
from ifonly.bounds.base import ChildBound, NoChildBound
from ifonly.bounds.ceilings import have_ceilings, with_ceilings
from ifonly.bounds.lipschitz import AnchorBound, LipschitzChildBound, value_constants
from ifonly.bounds.members import EnsembleChildBound
from ifonly.bounds.reach import can_reach, tightened_bounds
from ifonly.bounds.taylor import TaylorChildBound, can_expand, table_elements
from ifonly.bounds.taylor.applicability import TABLE_ELEMENTS
from ifonly.errors import InputError
from ifonly.problem import BaseProblem, EnsembleProblem, Problem

BoundName = Literal["auto", "taylor", "lipschitz", "none"]

SMALL = 20_000
"""Sequences that are enumerated faster than any bound is made."""
ENUMERABLE = 5_000_000
"""Sequences that are enumerated faster than anchors lead to the answer."""


def choose_bound(problem: BaseProblem, bound: BoundName = "auto") -> BoundName:
    """The bound asked for; for "auto" the one that suits this problem, or all members of this ensemble problem.

    Small problems are enumerated. Expansions lead where model and reward have them; elsewhere anchors lead, unless
    there are no finite constants or enumerating is quicker.
    """
    if bound != "auto":
        return bound
    count = problem.sequence_count()
    if count <= SMALL:
        return "none"
    members = _members(problem)
    if all(can_expand(member) for member in members) and table_elements(problem) * len(members) <= TABLE_ELEMENTS:
        return "taylor"
    return "lipschitz" if count > ENUMERABLE and all(_has_constants(member) for member in members) else "none"


BOUNDS: dict[str, Callable[[Sequence[Problem]], ChildBound]] = {
    "taylor": TaylorChildBound,
    "lipschitz": LipschitzChildBound,
    "none": NoChildBound,
}


def is_enumerable(problem: BaseProblem, max_changes: int) -> bool:
    """Whether sequences with at most so many changes are enumerated faster than anchors lead to the best."""
    return problem.sequence_count(max_changes) <= ENUMERABLE


def _members(problem: BaseProblem) -> tuple[Problem, ...]:
    """The problems of which bounds are made."""
    if isinstance(problem, EnsembleProblem):
        return problem.members
    assert isinstance(problem, Problem)
    return (problem,)


def make_child_bound(problems: Sequence[BaseProblem], bound: BoundName = "auto") -> ChildBound:
    """The bound asked for; "auto" makes `choose_bound`'s choice for the first problem, so hand over alike ones only."""
    first, name = problems[0], choose_bound(problems[0], bound)
    by_member = list(zip(*(_members(problem) for problem in problems), strict=True))
    if name == "none" and not any(have_ceilings(member) for member in by_member):
        return NoChildBound(problems)
    bounds = [with_ceilings(BOUNDS[name](member), member) for member in by_member]
    return EnsembleChildBound(first.objective, bounds) if isinstance(first, EnsembleProblem) else bounds[0]


@torch.no_grad()
def observed_bounds(problem: BaseProblem) -> Tensor:
    """Upper bounds [K+1] on the outcomes of every budget, from Lipschitz anchors on the recorded path alone: (L4), and
    (E4) for ensemble problems.

    Raises `InputError` where there are no finite constants.
    """
    used = torch.arange(problem.max_changes, -1, -1, device=problem.device)
    states = problem.observed_states[:1].expand(len(used), -1)
    bounds = [
        AnchorBound(member, observed_anchors(member), value_constants(member))(0, states, used)
        for member in _members(problem)
    ]
    return bounds[0] if not isinstance(problem, EnsembleProblem) else problem.objective(torch.stack(bounds, dim=-1))


def hard_bounds(problem: BaseProblem, smallest: int) -> Iterator[Tensor]:
    """Upper bounds [K+1] on the outcomes of budgets from `smallest` on, the later the tighter, where many changes leave
    the Taylor bound without any: (P7), and (E4) for ensemble problems. None come where there are none."""
    members = _members(problem)
    if all(can_reach(member) for member in members):
        for bounds in zip(*(tightened_bounds(member, smallest) for member in members), strict=False):
            yield (
                bounds[0]
                if not isinstance(problem, EnsembleProblem)
                else problem.objective(torch.stack(bounds, dim=-1))
            )


@torch.no_grad()
def _has_constants(problem: Problem) -> bool:
    try:
        value_constants(problem)
    except InputError:
        return False
    return True
