"""The bound that leads a branch-and-bound search: expansions, the paper's anchors or nothing, and which it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from ifonly.bounds.anchors import AnchorStrategy, MonteCarlo, observed_anchors
from ifonly.bounds.children import ChildBound, Nodes
from ifonly.bounds.lipschitz import AnchorBound, unknown_as_infinite, value_constants
from ifonly.bounds.panel import PanelChildBound
from ifonly.bounds.taylor import TABLE_ELEMENTS, TaylorChildBound, can_expand, table_elements
from ifonly.errors import InputError
from ifonly.problem import BaseProblem, EnsembleProblem, Problem

BoundName = Literal["auto", "taylor", "lipschitz", "none"]

SMALL = 50_000
"""Sequences that are enumerated faster than any bound is made."""
ENUMERABLE = 5_000_000
"""Sequences that are enumerated faster than anchors lead to the answer."""


def choose_bound(problem: BaseProblem, bound: BoundName = "auto") -> BoundName:
    """The bound asked for; for "auto" the one that suits this problem, or all members of this panel.

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


def _members(question: BaseProblem) -> tuple[Problem, ...]:
    """The problems of which bounds are made."""
    if isinstance(question, EnsembleProblem):
        return question.members
    assert isinstance(question, Problem)
    return (question,)


def make_child_bound(
    problems: Sequence[BaseProblem], bound: BoundName = "auto", *, check: Callable[[], None] = lambda: None
) -> ChildBound:
    """The bound asked for; "auto" makes `choose_bound`'s choice for the first problem, so hand over alike ones only.

    `check` is called now and then while it is made, and may raise to end the work.
    """
    first, name = problems[0], choose_bound(problems[0], bound)
    if name == "none":
        return NoChildBound(problems)
    by_member = zip(*(_members(problem) for problem in problems), strict=True)
    bounds: list[ChildBound] = []
    for member in by_member:
        if name == "taylor":
            bounds.append(TaylorChildBound(member, check))
        else:
            bounds.append(LipschitzChildBound(member))
        check()
    return PanelChildBound(first.objective, bounds) if isinstance(first, EnsembleProblem) else bounds[0]


@torch.no_grad()
def observed_bounds(question: BaseProblem) -> Tensor:
    """Upper bounds [K+1] on the outcomes of every budget, from Lipschitz anchors on the observed path alone.

    Raises `InputError` where there are no finite constants.
    """
    used = torch.arange(question.max_changes, -1, -1, device=question.device)
    states = question.observed_states[:1].expand(len(used), -1)
    bounds = [
        AnchorBound(member, observed_anchors(member), value_constants(member))(0, states, used)
        for member in _members(question)
    ]
    return bounds[0] if not isinstance(question, EnsembleProblem) else question.objective(torch.stack(bounds, dim=-1))


class NoChildBound(ChildBound):
    """Knows nothing: a search led by it enumerates."""

    method = "enumeration"

    def __init__(self, problems: Sequence[BaseProblem]) -> None:
        self._problems = problems
        allowed = torch.stack([problem.allowed for problem in problems])
        observed = torch.stack([problem.observed_actions for problem in problems])
        self._options = allowed.scatter(2, observed.unsqueeze(-1), False)  # [P, T, A]

    def root(self) -> Tensor:
        """Infinite for every change [P, K, T, A]."""
        return _infinite_where(self._options, self._problems[0].max_changes)

    def children(self, nodes: Nodes) -> Tensor:
        """Infinite for every later change [N, K - level, T, A]."""
        steps = torch.arange(self._options.shape[1], device=self._options.device)
        later = (steps >= nodes.start.unsqueeze(1)).unsqueeze(-1)
        return _infinite_where(self._options[nodes.problem] & later, self._problems[0].max_changes - nodes.level)


class LipschitzChildBound(ChildBound):
    """The paper's anchor bound of each problem: what a change earns, plus a bound on what its next state can reach.

    Raises `InputError` where the Lipschitz constants are not finite.
    """

    method = AnchorBound.method
    rests_on_constants = True

    def __init__(self, problems: Sequence[Problem], *, anchors: AnchorStrategy | None = None, seed: int = 0) -> None:
        strategy = anchors or MonteCarlo()
        self._problems = problems
        self._bounds = []
        for problem in problems:
            constants = value_constants(problem)
            generator = torch.Generator().manual_seed(seed)
            self._bounds.append(AnchorBound(problem, strategy.choose(problem, constants, generator), constants))

    def root(self) -> Tensor:
        """Every single change of the observed sequences [P, K, T, A]."""
        first = self._problems[0]
        outcomes = [problem.observed_outcome for problem in self._problems]
        nodes = Nodes(
            level=0,
            problem=torch.arange(len(self._problems), device=first.device),
            start=torch.zeros(len(self._problems), dtype=torch.int64, device=first.device),
            states=torch.stack([problem.observed_states for problem in self._problems]),
            outcomes=torch.tensor(outcomes, dtype=torch.float64, device=first.device),
        )
        return self.children(nodes)

    def children(self, nodes: Nodes) -> Tensor:
        """Bounds [N, K - level, T, A], problem by problem: each has anchors of its own."""
        first = self._problems[0]
        shape = (len(nodes.problem), first.max_changes - nodes.level, first.horizon, first.action_count)
        bounds = torch.full(shape, -torch.inf, dtype=torch.float64, device=first.device)
        for number in nodes.problem.unique().tolist():
            rows = (nodes.problem == number).nonzero().squeeze(-1)
            for t in range(int(nodes.start[rows].min()), first.horizon):
                late = rows[nodes.start[rows] <= t]
                bounds[late, :, t] = self._at(self._bounds[number], nodes, late, t)
        return unknown_as_infinite(bounds)

    def _at(self, bound: AnchorBound, nodes: Nodes, rows: Tensor, t: int) -> Tensor:
        """Bounds [n, K - level, A] for changes at step t of nodes that may change there."""
        problem, level = bound.problem, nodes.level
        actions = problem.alternatives(t)
        states = nodes.states[rows, t]
        levels = range(level + 1, problem.max_changes + 1)
        bounds = torch.full(
            (len(rows), len(levels), problem.action_count), -torch.inf, dtype=torch.float64, device=problem.device
        )
        if not len(actions):
            return bounds
        earned = nodes.outcomes[rows] - _observed_rewards(problem, nodes.states[rows, t:], t)
        values = (earned.unsqueeze(1) + problem.rewards(t, states.unsqueeze(1), actions)).unsqueeze(1)
        if t < problem.horizon - 1:
            following = problem.step(t, states.unsqueeze(1), actions).flatten(0, 1)
            reached = bound.reach(t + 1, following, levels).view(len(rows), len(actions), -1)
            # More changes used means fewer left: the last level leaves none, which is the first entry.
            values = values + reached.flip(2).mT
        bounds[:, :, actions] = values.expand(-1, len(levels), -1)
        return bounds

    def details(self, problem: int = 0) -> Mapping[str, Any]:
        """Sizes and constants of one problem's anchors."""
        return self._bounds[problem].details()


def _observed_rewards(problem: Problem, states: Tensor, t: int) -> Tensor:
    """What the observed actions earn from step t on [N], at `states` [N, T - t, D]."""
    rewards: Tensor = problem.bound_reward(states, problem.observed_actions[t:]).sum(1)
    return rewards


def _infinite_where(options: Tensor, budgets: int) -> Tensor:
    bounds = torch.where(options, torch.inf, -torch.inf).to(torch.float64)
    return bounds.unsqueeze(1).expand(-1, budgets, -1, -1)


@torch.no_grad()
def _has_constants(problem: Problem) -> bool:
    try:
        value_constants(problem)
    except InputError:
        return False
    return True
