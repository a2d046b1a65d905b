"""Several questions as one: stacked tensors in which every row knows the question that it belongs to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ifonly.problem import BaseProblem, array_scale

ROWS = 4096
"""Rows per model call on a processor: the hidden layers of this many rows still fit its cache."""


@dataclass(frozen=True)
class Branches:
    """Sequences that leave a known path at one step."""

    problem: Tensor  # [N]
    sequences: Tensor  # [N, T]
    step: Tensor  # [N]
    states: Tensor  # [N, (M,) D], at `step`
    earned: Tensor  # [N, (M,)], rewards before `step`

    def __len__(self) -> int:
        return len(self.step)


@dataclass(frozen=True)
class Paths:
    """Rolled-out sequences."""

    states: Tensor  # [N, T, (M,) D]
    earned: Tensor  # [N, T, (M,)], rewards before each step
    totals: Tensor  # [N, (M,)], all rewards
    outcomes: Tensor  # [N], what counts of them

    def select(self, rows: Tensor) -> Paths:
        """Copies of some of the rows."""
        return Paths(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def join(cls, parts: Sequence[Paths]) -> Paths:
        """One after the other."""
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))


class ProblemBatch:
    """P questions that share model (or M members and objective), reward, support, horizon T and budget K, stacked.

    [N, (M,)] stands for [N] where there is one model, and for [N, M] where there is a panel.
    """

    def __init__(self, problems: Sequence[BaseProblem]) -> None:
        first = self._first = problems[0]
        self.problems = tuple(problems)
        self.count, self.budget = len(problems), first.max_changes
        self.horizon, self.action_count, self.device = first.horizon, first.action_count, first.device
        self.members = math.prod(first.members_shape)
        """How many states each row has: one, or one for each member of a panel."""
        self.rows = ROWS * max(1, array_scale(first.device) // self.members)
        """Rows per model call."""
        self.first_states = torch.stack([problem.first_states for problem in problems])  # [P, (M,) D]
        self.observed = torch.stack([problem.observed_actions for problem in problems])  # [P, T]
        self.context = torch.stack([problem.context for problem in problems])  # [P, T, C]
        self.noise = torch.stack([problem.noise for problem in problems])  # [P, T-1, (M,) D]
        self.allowed = torch.stack([problem.allowed for problem in problems])  # [P, T, A]
        self.tolerance = self._floats([problem.tolerance for problem in problems])  # [P]
        self._costs = self._floats([problem.change_cost for problem in problems])  # [P]
        self._has_costs = bool((self._costs != 0).any())
        self.changeable = self.allowed.scatter(2, self.observed.unsqueeze(-1), False)
        """The changes [P, T, A] that `allowed` leaves."""
        self.is_restricted = any(problem.is_restricted for problem in problems)
        if self.is_restricted:
            self._keep_rules()

    def _floats(self, values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self.device)

    def _keep_rules(self) -> None:
        everything = torch.ones(self.horizon, self.action_count, self.action_count, dtype=torch.bool)
        self._links = torch.stack(
            [everything.to(self.device) if problem.links is None else problem.links for problem in self.problems]
        )  # [P, T, A, A]
        required = torch.stack([problem.must_change for problem in self.problems])
        steps = torch.arange(self.horizon, device=self.device)
        due = torch.where(required, steps, self.horizon)
        end = torch.full_like(due[:, :1], self.horizon)
        self._next_required = torch.cat([due, end], dim=1).flip(1).cummin(1).values.flip(1)
        """The first step [P, T+1], from a step on, that must change; T where none must."""
        self.changes_to_go = torch.stack([problem.changes_to_go for problem in self.problems])  # [P, T, A]
        before = self.observed.roll(1, 1)[..., None, None].expand(-1, -1, 1, self.action_count)
        self._after_observed = self._links.gather(2, before).squeeze(2)
        """Which actions [P, T, A] may follow the observed one of the step before."""
        self._after_observed[:, 0] = True

    def step(self, t: int, problem: Tensor, states: Tensor, actions: Tensor) -> Tensor:
        """States [N, (M,) D] at t+1, each under its own problem's context and noise."""
        if self.count == 1:
            return self._first.step(t, states, actions)
        return self._first.advance(states, self.context[problem, t], actions, self.noise[problem, t])

    def rewards(self, t: int, problem: Tensor, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [N, (M,)] at step t, less the cost of a change."""
        rewards = self._first.free_rewards(states, actions)
        if self._has_costs:
            costs = (actions != self.observed[problem, t]) * self._costs[problem]
            rewards = rewards - self._first.per_member(costs)
        return rewards

    def counted(self, totals: Tensor) -> Tensor:
        """What counts [...] of all rewards [..., (M,)]."""
        return self._first.counted(totals)

    def outcomes(self, branches: Branches) -> Tensor:
        """Outcomes [N] of branches."""
        return self.counted(self._follow(branches))

    def continued(self, paths: Paths, branches: Branches) -> Paths:
        """What becomes of paths where their branches leave them; the states and sums of `paths` are overwritten."""
        totals = self._follow(branches, into=paths)
        return Paths(paths.states, paths.earned, totals, self.counted(totals))

    def _follow(self, branches: Branches, *, into: Paths | None = None) -> Tensor:
        """All rewards [N, (M,)] of branches, in one sweep over the steps: a row joins where it branches off."""
        order = branches.step.argsort(stable=True)
        problem, taken = branches.problem[order], branches.sequences[order].to(torch.int64).T.contiguous()
        start, earned = branches.states[order], branches.earned[order]
        every_step = torch.arange(self.horizon, device=self.device)
        joined = torch.searchsorted(branches.step[order], every_step, right=True).tolist()
        states, total, before = start[:0], earned[:0], 0
        for t, now in enumerate(joined):
            if now > before:
                states, total = torch.cat([states, start[before:now]]), torch.cat([total, earned[before:now]])
            if now:
                rows, actions = problem[:now], taken[t, :now]
                if into is not None:
                    into.states[order[:now], t], into.earned[order[:now], t] = states, total
                total = total + self.rewards(t, rows, states, actions)
                if t < self.horizon - 1:
                    states = self.step(t, rows, states, actions)
            before = now
        return total[order.argsort()]

    def steps_from(self, branches: Branches) -> Tensor:
        """How many model steps each branch takes [N]."""
        return self.horizon - 1 - branches.step

    def rollout(self, problem: Tensor, sequences: Tensor) -> Paths:
        """Replay whole sequences [N, T]."""
        states = self.first_states[problem]
        total = torch.zeros(states.shape[:-1], dtype=torch.float64, device=self.device)
        path, sums = [], []
        for t in range(self.horizon):
            path.append(states)
            sums.append(total)
            total = total + self.rewards(t, problem, states, sequences[:, t])
            if t < self.horizon - 1:
                states = self.step(t, problem, states, sequences[:, t])
        return Paths(torch.stack(path, dim=1), torch.stack(sums, dim=1), total, self.counted(total))

    def changes(self, problem: Tensor, sequences: Tensor) -> Tensor:
        """In how many steps sequences [N, T] differ from the observed ones [N]."""
        return (sequences != self.observed[problem]).sum(-1)

    def obey_rules(self, problem: Tensor, sequences: Tensor) -> Tensor:
        """Which whole sequences [N, T] obey every rule, supported or not [N]."""
        fine = self.allowed[problem].gather(2, sequences.unsqueeze(-1)).squeeze(-1).all(-1)
        fine &= self.changes(problem, sequences) <= self.budget
        if self.is_restricted:
            steps = torch.arange(1, self.horizon, device=self.device)
            fine &= self._links[problem.unsqueeze(1), steps, sequences[:, :-1], sequences[:, 1:]].all(-1)
        return fine

    def have_support(self, problem: Tensor, sequences: Tensor, paths: Paths) -> Tensor:
        """Whether every change of sequences [N, T] is supported where their paths are then [N]."""
        if self._first.support is None:
            return torch.ones_like(problem, dtype=torch.bool)
        changed = sequences != self.observed[problem]
        options = self.supported_changes(problem, paths.states, changed)
        return (options.gather(2, sequences.unsqueeze(-1)).squeeze(-1) | ~changed).all(1)

    def supported_changes(self, problem: Tensor, states: Tensor, where: Tensor) -> Tensor:
        """The actions [N, T, A] that are supported at states [N, T, (M,) D], at the steps asked for, `where` [N, T]."""
        options = torch.ones(*where.shape, self.action_count, dtype=torch.bool, device=self.device)
        if self._first.support is None:
            return options
        for t in where.any(0).nonzero().squeeze(-1).tolist():
            for rows in where[:, t].nonzero().squeeze(-1).split(self.rows):
                options[rows, t] = self._first.are_supported(t, states[rows, t], self.context[problem[rows], t])
        return options

    def idle_last_changes(self, problem: Tensor, states: Tensor) -> Tensor:
        """Actions [N, A] with the same rewards as the observed one, at last states [N, (M,) D]."""
        every = torch.arange(self.action_count, device=self.device)
        rewards = self._first.free_rewards(states.unsqueeze(1), every).unsqueeze(-1).flatten(2)  # [N, A, M or 1]
        rows = torch.arange(len(states), device=self.device)
        return (rewards == rewards[rows, self.observed[problem, -1]].unsqueeze(1)).all(-1)

    def are_answers(self, problem: Tensor, step: Tensor, action: Tensor) -> Tensor:
        """Whether sequences whose last change is `action` [N] at `step` [N] (-1: none) obey the rules from there on."""
        fine = torch.ones_like(problem, dtype=torch.bool)
        if self.is_restricted:
            fine = (self._next_required[problem, step + 1] == self.horizon) & self._may_return(problem, step, action)
        return fine

    def _may_return(self, problem: Tensor, step: Tensor, action: Tensor) -> Tensor:
        """Whether the observed action may follow after the last change [N]."""
        after = (step + 1).clamp(max=self.horizon - 1)
        linked = self._links[problem, after, action, self.observed[problem, after]]
        return linked | (step < 0) | (step + 1 == self.horizon)

    def further_changes(self, problem: Tensor, step: Tensor, action: Tensor) -> Tensor:
        """The changes [N, T, A] that may come next after a last change at `step` [N] (-1: none)."""
        steps = torch.arange(self.horizon, device=self.device)
        options = self.changeable[problem] & (steps > step.unsqueeze(1)).unsqueeze(-1)
        if self.is_restricted:
            skipped = steps > self._next_required[problem, step + 1].unsqueeze(1)
            options &= ~skipped.unsqueeze(-1)
            options &= self._linked_changes(problem, step, action)
        return options

    def _linked_changes(self, problem: Tensor, step: Tensor, action: Tensor) -> Tensor:
        """The changes [N, T, A] that links permit: right after the last one, or later, after an observed action."""
        later = self._after_observed[problem] & self._may_return(problem, step, action)[:, None, None]
        follows = (step >= 0) & (step + 1 < self.horizon)
        rows = follows.nonzero().squeeze(-1)
        after = step[rows] + 1
        later[rows, after] = self._links[problem[rows], after, action[rows]]
        return later


def changed(sequences: Tensor, step: Tensor, action: Tensor) -> Tensor:
    """A copy of sequences [N, T] with `action` [N] at `step` [N]."""
    copies = sequences.clone()
    copies[torch.arange(len(step), device=step.device), step] = action.to(copies.dtype)
    return copies
