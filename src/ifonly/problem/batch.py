"""Several problems stacked into one; an index says to which problem each row of a tensor belongs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ifonly.automaton import BROKEN, START, changes_to_go
from ifonly.progress import look_at_clock

if TYPE_CHECKING:
    from ifonly.problem.base import BaseProblem

ROWS = 4096
"""Rows per model call on a CPU: hidden layers of this many rows still fit its cache."""


def array_scale(device: torch.device) -> int:
    """How many times larger arrays may be than on a CPU, whose caches are small."""
    return 1 if device.type == "cpu" else 64


Keep = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""`keep(t, rows [n], states [n, (M,) D], earned [n, (M,)])` says which rows [n] to follow beyond step t."""


@dataclass(frozen=True)
class Branches:
    """Sequences that leave a known path at one step."""

    problem: Tensor  # [N] int64
    sequences: Tensor  # [N, T], any integers
    step: Tensor  # [N] int64
    states: Tensor  # [N, (M,) D] float64, at `step`
    earned: Tensor  # [N, (M,)] float64, rewards before `step`

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True)
class Paths:
    """Rolled-out sequences, all float64."""

    states: Tensor  # [N, T, (M,) D]
    earned: Tensor  # [N, T, (M,)], rewards before each step
    totals: Tensor  # [N, (M,)], all rewards
    outcomes: Tensor  # [N], the objective of `totals`

    def select(self, rows: Tensor) -> Paths:
        """Copies of some of the rows."""
        return Paths(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def join(cls, parts: Sequence[Paths]) -> Paths:
        """One after the other."""
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))


class ProblemBatch:
    """P problems that share model (or M members and objective), reward, support, horizon T and budget K, stacked.

    One problem is a batch of one. `problem` [N] is the index of each row's problem throughout. [N, (M,)] stands for [N]
    with one model, and for [N, M] with an ensemble. What only some callers need is computed on first use, so that a
    batch costs little more than stacking its tensors.
    """

    def __init__(self, problems: Sequence[BaseProblem]) -> None:
        first = self._first = problems[0]
        self.problems = tuple(problems)
        self.count, self.budget = len(problems), first.max_changes
        self.horizon, self.action_count, self.device = first.horizon, first.action_count, first.device
        self.members = math.prod(first.members_shape)
        """States per row: one, or one for each member of an ensemble."""
        self.rows = ROWS * max(1, array_scale(first.device) // self.members)
        """Rows per model call."""
        self.first_states = torch.stack([problem.first_states for problem in problems])  # [P, (M,) D]
        self.observed = torch.stack([problem.observed_actions for problem in problems])  # [P, T]
        self.context = torch.stack([problem.context for problem in problems])  # [P, T, C]
        self.noise = torch.stack([problem.noise for problem in problems])  # [P, T-1, (M,) D]
        self.allowed = torch.stack([problem.allowed for problem in problems])  # [P, T, A]
        self._costs = self._floats([problem.change_cost for problem in problems])  # [P]
        self._has_costs = any(problem.change_cost != 0 for problem in problems)

    def _floats(self, values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self.device)

    @cached_property
    def tolerance(self) -> Tensor:
        """Differences in outcome [P] up to this size are rounding."""
        return self._floats([problem.tolerance for problem in self.problems])

    @cached_property
    def plausible_outcomes(self) -> Tensor:
        """Bounds [P] on the outcome of any sequence whose states stay plausible."""
        return self._floats([problem.plausible_outcome for problem in self.problems])

    @cached_property
    def largest_outcomes(self) -> Tensor:
        """Bounds [P] on the outcome of any sequence."""
        return self._floats([problem.largest_outcome for problem in self.problems])

    @cached_property
    def observed_outcomes(self) -> Tensor:
        """The recorded outcomes [P]; without a replay, for whoever looks at the clock may ask for them."""
        rewards = (one.bound_reward(one.observed_states, one.observed_actions, one.steps) for one in self.problems)
        return self._floats([float(earned.sum()) for earned in rewards])

    @cached_property
    def nearest(self) -> Tensor:
        """The sequences [P, T] with the fewest changes that obey the rules: the observed ones, if they do."""
        return torch.stack([problem.nearest_actions for problem in self.problems])

    @cached_property
    def changeable(self) -> Tensor:
        """The changes [P, T, A] that `allowed` leaves."""
        return self.allowed.scatter(2, self.observed.unsqueeze(-1), False)

    @cached_property
    def is_restricted(self) -> bool:
        """Whether some problem has rules beyond `allowed` and the budget."""
        return any(problem.is_restricted for problem in self.problems)

    @cached_property
    def _automata(self) -> tuple[Tensor, Tensor]:
        """The symbols [P, T, A] of all automata and where they lead [P, M, S]; 0 where one has fewer of them."""
        rules = [problem.automaton for problem in self.problems]
        symbols = torch.from_numpy(np.stack([one.symbols for one in rules]))
        after = torch.zeros(len(rules), *np.max([one.after.shape for one in rules], axis=0), dtype=torch.int64)
        for number, one in enumerate(rules):
            after[number, : one.after.shape[0], : one.after.shape[1]] = torch.from_numpy(one.after)
        return symbols.to(self.device), after.to(self.device)

    @cached_property
    def _changes_to_go(self) -> Tensor:
        """The fewest changes [P, T+1, M] that rules demand from a position before a step on; over T: no way on."""
        to_go = torch.full((self.count, self.horizon + 1, self._automata[1].shape[1]), self.horizon + 1)
        for number, problem in enumerate(self.problems):
            fewest = changes_to_go(problem.automaton, problem.episode.actions)
            to_go[number, :, : fewest.shape[1]] = torch.from_numpy(fewest)
        return to_go.to(self.device)

    def next_positions(self, t: int | Tensor, problem: Tensor, positions: Tensor, actions: Tensor) -> Tensor:
        """The positions to which actions at step t lead the automata of their problems; all broadcast.

        Position 0 stands for a broken rule.
        """
        symbols, after = self._automata
        return after[problem, positions, symbols[problem, t, actions]]

    def changes_needed(self, t: int | Tensor, problem: Tensor, positions: Tensor) -> Tensor:
        """The fewest changes that must follow from positions before step t on; more than T where there is no way on."""
        return self._changes_to_go[problem, t, positions]

    def positions(self, problem: Tensor, sequences: Tensor) -> Tensor:
        """The positions of the automata [N, T+1] before each step of sequences [N, T], and at the end."""
        found = [torch.full_like(problem, START)]
        for t, actions in enumerate(sequences.to(torch.int64).unbind(1)):
            found.append(self.next_positions(t, problem, found[-1], actions))
        return torch.stack(found, dim=1)

    def step(self, t: int, problem: Tensor, states: Tensor, actions: Tensor) -> Tensor:
        """States [N, (M,) D] at t+1 (eq:mdp_func), each under its own problem's context and noise."""
        look_at_clock()
        if self.count == 1:
            return self._first.step(t, states, actions)
        return self._first.advance(states, self.context[problem, t], actions, self.noise[problem, t])

    def rewards(self, t: int | slice, problem: Tensor, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [N, (M,)] at step t, or [N, steps, (M,)] at some steps, less the cost of changes."""
        rewards = self._first.free_rewards(t, states, actions)
        if self._has_costs:
            costs = self._costs[problem].view(-1, *[1] * (actions.dim() - 1))
            rewards = rewards - self._first.per_member((actions != self.observed[problem, t]) * costs)
        return rewards

    def counted(self, totals: Tensor) -> Tensor:
        """The outcomes [...] of sums of rewards [..., (M,)]: the sum itself, or an ensemble's objective."""
        return self._first.counted(totals)

    def rollout(self, problem: Tensor, sequences: Tensor) -> Paths:
        """Replay whole sequences [N, T] from the first step on (eq:mdp_trans)."""
        sequences = sequences.to(torch.int64)
        path = [self.first_states[problem]]
        for t in range(self.horizon - 1):
            path.append(self.step(t, problem, path[-1], sequences[:, t]))
        states = torch.stack(path, dim=1)
        # The rewards of all steps at once, but added up step by step: rounding is that of any other replay.
        sums = [torch.zeros(states.shape[:1] + states.shape[2:-1], dtype=torch.float64, device=self.device)]
        for rewards in self.rewards(slice(None), problem, states, sequences).unbind(1):
            sums.append(sums[-1] + rewards)
        return Paths(states, torch.stack(sums[:-1], dim=1), sums[-1], self.counted(sums[-1]))

    def outcomes(self, branches: Branches) -> Tensor:
        """Outcomes [N] of branches."""
        return self.counted(self.follow(branches))

    def continued(self, paths: Paths, branches: Branches) -> Paths:
        """The paths along their branches; the states and sums of `paths` are overwritten."""
        totals = self.follow(branches, into=paths)
        return Paths(paths.states, paths.earned, totals, self.counted(totals))

    def follow(self, branches: Branches, *, into: Paths | None = None, keep: Keep | None = None) -> Tensor:
        """The sums of rewards [N, (M,)] of branches, in one sweep over the steps; a row joins where it branches off.

        States and sums on the way are written to the rows of `into`. Rows that `keep` drops get minus infinity.
        """
        order = branches.step.argsort(stable=True)
        every_step = torch.arange(self.horizon, device=self.device)
        joined = [0, *torch.searchsorted(branches.step[order], every_step, right=True).tolist()]
        totals = torch.full_like(branches.earned, -torch.inf)
        rows, states, earned = order[:0], branches.states[:0], branches.earned[:0]
        for t, (start, end) in enumerate(pairwise(joined)):
            if end > start:
                new = order[start:end]
                rows, states = torch.cat([rows, new]), torch.cat([states, branches.states[new]])
                earned = torch.cat([earned, branches.earned[new]])
            if not len(rows):
                continue
            if into is not None:
                into.states[rows, t], into.earned[rows, t] = states, earned
            problem, actions = branches.problem[rows], branches.sequences[rows, t].to(torch.int64)
            earned = earned + self.rewards(t, problem, states, actions)
            if t == self.horizon - 1:
                totals[rows] = earned
                continue
            states = self.step(t, problem, states, actions)
            if keep is not None:
                kept = keep(t + 1, rows, states, earned)
                rows, states, earned = rows[kept], states[kept], earned[kept]
        return totals

    def steps_from(self, branches: Branches) -> Tensor:
        """How many model steps each branch takes [N]."""
        return self.horizon - 1 - branches.step

    def changes(self, problem: Tensor, sequences: Tensor) -> Tensor:
        """In how many steps sequences [N, T] differ from the observed ones [N]."""
        return (sequences != self.observed[problem]).sum(-1)

    def obey_rules(self, problem: Tensor, sequences: Tensor) -> Tensor:
        """Which whole sequences [N, T] obey every rule but the support [N]."""
        return self.keep_rules(problem, sequences) & (self.changes(problem, sequences) <= self.budget)

    def keep_rules(self, problem: Tensor, sequences: Tensor) -> Tensor:
        """Which whole sequences [N, T] keep every rule but the number of changes [N]."""
        if any(one.automaton.looks_back for one in self.problems):
            return self.positions(problem, sequences)[:, -1] > BROKEN
        steps = torch.arange(self.horizon, device=self.device)
        return self.allowed[problem.unsqueeze(1), steps, sequences.to(torch.int64)].all(-1)

    def have_support(self, problem: Tensor, sequences: Tensor, states: Tensor) -> Tensor:
        """Whether every change of sequences [N, T], which reach states [N, T, (M,) D], is supported there [N]."""
        if self._first.support is None:
            return torch.ones_like(problem, dtype=torch.bool)
        changed = sequences != self.observed[problem]
        options = self.supported_changes(problem, states, changed)
        return (options.gather(2, sequences.unsqueeze(-1)).squeeze(-1) | ~changed).all(1)

    def supported_changes(self, problem: Tensor, states: Tensor, where: Tensor) -> Tensor:
        """The actions [N, T, A] that are supported at states [N, T, (M,) D], at the steps asked for, `where` [N, T]."""
        options = torch.ones(*where.shape, self.action_count, dtype=torch.bool, device=self.device)
        if self._first.support is None:
            return options
        for t in where.any(0).nonzero().squeeze(-1).tolist():
            for rows in where[:, t].nonzero().squeeze(-1).split(self.rows):
                look_at_clock()
                options[rows, t] = self._first.are_supported(t, states[rows, t], self.context[problem[rows], t])
        return options

    def idle_last_changes(self, problem: Tensor, states: Tensor) -> Tensor:
        """Actions [N, A] with the same rewards as the observed one, at last states [N, (M,) D]."""
        every = torch.arange(self.action_count, device=self.device)
        rewards = self._first.free_rewards(-1, states.unsqueeze(1), every).unsqueeze(-1).flatten(2)  # [N, A, M or 1]
        rows = torch.arange(len(states), device=self.device)
        return (rewards == rewards[rows, self.observed[problem, -1]].unsqueeze(1)).all(-1)

    def further_changes(self, problem: Tensor, step: Tensor, sequences: Tensor, changes_left: int) -> Tensor:
        """The changes [N, T, A] that may follow the last one of sequences [N, T], which is at `step` [N] (-1: none).

        A change is excluded if rules then demand more changes than would be left.
        """
        steps = torch.arange(self.horizon, device=self.device)
        options = self.changeable[problem] & (steps > step.unsqueeze(1)).unsqueeze(-1)
        if self.is_restricted:
            rows, every = problem[:, None, None], torch.arange(self.action_count, device=self.device)
            before = self.positions(problem, sequences)[:, :-1, None]
            after = self.next_positions(steps[:, None], rows, before, every)
            options &= self.changes_needed(steps[:, None] + 1, rows, after) < changes_left
        return options


def changed(sequences: Tensor, step: Tensor, action: Tensor) -> Tensor:
    """A copy of sequences [N, T] with `action` [N] at `step` [N]."""
    copies = sequences.clone()
    copies[torch.arange(len(step), device=step.device), step] = action.to(copies.dtype)
    return copies


def ranks_within(group: Tensor, *keys: Tensor, ties: Tensor | None = None) -> Tensor:
    """The rank [N] of each row in its group [N], from 0: largest keys first; of equal ones, the smallest tie."""
    order = torch.arange(len(group), device=group.device) if ties is None else ties.argsort(stable=True)
    for key in reversed(keys):
        order = order[key[order].argsort(descending=True, stable=True)]
    order = order[group[order].argsort(stable=True)]
    ordered = group[order]
    first = torch.searchsorted(ordered, ordered)
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=order.device) - first
    return ranks


def drop_idle_changes(
    batch: ProblemBatch, problem: Tensor, sequences: Tensor, *, tolerance: float | None = None
) -> tuple[Tensor, Tensor]:
    """Sequences [N, T] without changes that gain no more than rounding, and their outcomes [N].

    Changes are undone one by one, that with the best remaining outcome first. All that are undone in a sequence cost at
    most the tolerance in total: the one given, or each problem's own. The remaining sequence is admissible.
    """
    outcomes = batch.rollout(problem, sequences).outcomes
    least = outcomes - (batch.tolerance[problem] if tolerance is None else tolerance)
    sequences = sequences.clone()
    pending = torch.arange(len(problem), device=problem.device)
    while len(pending):
        rows, steps = (sequences[pending] != batch.observed[problem[pending]]).nonzero(as_tuple=True)
        rows = pending[rows]
        trials = changed(sequences[rows], steps, batch.observed[problem[rows], steps])
        obeying = batch.obey_rules(problem[rows], trials)
        rows, trials = rows[obeying], trials[obeying]
        if not len(rows):
            break
        paths = batch.rollout(problem[rows], trials)
        good = (paths.outcomes >= least[rows]) & batch.have_support(problem[rows], trials, paths.states)
        rows, trials, values = rows[good], trials[good], paths.outcomes[good]
        best = ranks_within(rows, values) == 0
        pending = rows[best]
        sequences[pending], outcomes[pending] = trials[best], values[best]
    return sequences, outcomes
