"""The recorded tails: what the observed actions earn from step s on, as a function of the state at s.

A tail starts at the observed state plus y and follows the observed actions. Its path has a flow X_t(y) and its value
W_s(y) is the sum of the rewards from s on. Kept are the first two derivatives of the flows and of the values at y = 0,
and how far both can be from these expansions. How large y is, is measured by a gauge |y|_s: the Euclidean length
of inverse_s y, in which what changes before s do to the state at s looks alike in all directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ifonly.bounds.limits import LARGE, capped, single_means_single, turned
from ifonly.bounds.looks import RADII, Look, look
from ifonly.models.smooth import SmoothStep, norm_limit, unpacked
from ifonly.problem import Problem, array_scale

ELEMENTS = 2**22
"""Numbers in the largest temporary arrays, on a processor."""

FLOOR = 0.15
"""Of the largest mean square of effects in any direction: what is allowed for in all others."""


@dataclass(frozen=True)
class Episodes:
    """P problems that share model, reward, horizon and actions, stacked; the observed path as the model replays it."""

    problems: Sequence[Problem]
    smooth: SmoothStep
    observed: Tensor  # [P, T]
    context: Tensor  # [P, T, C]
    noise: Tensor  # [P, T-1, D]
    center: Tensor  # [P, T, D]
    weights: Tensor  # [P, T, D], tangents of the reward at the observed path
    effects: Tensor  # [P, T-1, A, D], of every action on the next state

    @classmethod
    def of(cls, problems: Sequence[Problem], smooth: SmoothStep) -> Episodes:
        """Replays the observed actions, and every single action from the observed states."""
        first = problems[0]
        observed = torch.stack([problem.observed_actions for problem in problems])
        context = torch.stack([problem.context for problem in problems])
        noise = torch.stack([problem.noise for problem in problems])
        states = torch.stack([problem.observed_states[0] for problem in problems])
        center = [states]
        for t in range(first.horizon - 1):
            states = first.model.step(states, context[:, t], observed[:, t], noise[:, t])
            center.append(states)
        path = torch.stack(center, dim=1)
        weights = first.bound_reward.tangents(path)
        assert weights is not None, "callers ask can_expand first"
        every = torch.arange(first.action_count, device=first.device)
        before, luck = path[:, :-1, None], noise[:, :, None]
        shape = (*before.shape[:2], first.action_count)
        following = first.model.step(
            before.expand(*shape, -1), context[:, :-1, None].expand(*shape, -1), every.expand(shape), luck
        )
        return cls(problems, smooth, observed, context, noise, path, weights, following - path[:, 1:, None])

    def some(self, rows: Tensor) -> Episodes:
        """Some of the problems."""
        tables = (self.observed, self.context, self.noise, self.center, self.weights, self.effects)
        chosen = (table[rows.to(table.device)] for table in tables)
        return Episodes([self.problems[row] for row in rows.tolist()], self.smooth, *chosen)

    def look(self, problem: Tensor, step: Tensor, action: Tensor, gradient: Tensor, *, thirds: bool) -> Look:
        """Single steps [N] from the observed states, under gradients [N, D]; with all third derivatives, or without."""
        states, context, noise = (table[problem, step] for table in (self.center, self.context, self.noise))
        return look(self.smooth, states, context, action, noise, gradient, thirds=thirds)


@dataclass(frozen=True)
class TailTables:
    """What is known of the tails of P problems; G radii. Tails start at s and are met at t, [P, S, T, ...], S = T."""

    value: Tensor  # [P, S]
    gradient: Tensor  # [P, S, D]
    hessian: Tensor  # [P, S, D, D]
    unit: Tensor  # [P, S, D, D], symmetric: states of gauge at most 1 are unit_s times the unit ball
    inverse: Tensor  # [P, S, D, D]
    flow: Tensor  # [P, S, T, D, D], derivatives of the path in the state at s
    bow: Tensor  # [P, S, T, D, D, D], second derivatives of the path, in units of the gauge at s
    bend: Tensor  # [P, S, T, G], limits of how far the path is from its first-order expansion ...
    beyond: Tensor  # [P, S, T, G], ... and from its second-order expansion
    rest: Tensor  # [P, S, T, G], limits of how far the rewards before t plus gradient_t . (X_t(y) - X_t(0)) are from
    # their second-order expansion; those of the whole value at t = T - 1


def make_tails(episodes: Episodes, check: Callable[[], None] = lambda: None) -> TailTables:
    """All tails, of so many problems at a time that temporary arrays stay small."""
    count, horizon, size = episodes.center.shape
    together = max(1, ELEMENTS * array_scale(episodes.center.device) // (horizon * size**4))
    parts = [TailBuilder(episodes.some(rows), check).build() for rows in torch.arange(count).split(together)]
    if len(parts) == 1:  # the tables are large
        return parts[0]
    return TailTables(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(TailTables)))


class TailBuilder:
    """Sweeps over the steps, all tails of all problems at once."""

    def __init__(
        self, episodes: Episodes, check: Callable[[], None] = lambda: None, *, round_gauge: bool = False
    ) -> None:
        """`check` is called now and then, and may raise to end the work; a round gauge is the Euclidean length."""
        self._episodes, self._check, self._round = episodes, check, round_gauge
        self._count, self._horizon, self._size = episodes.center.shape
        self._like = episodes.center
        self._radii = torch.tensor(RADII, dtype=torch.float64, device=self._like.device)

    @single_means_single
    def build(self) -> TailTables:
        """All sweeps."""
        episodes = self._episodes
        before = (episodes.center[:, :-1], episodes.context[:, :-1], episodes.observed[:, :-1], episodes.noise)
        states, context, actions, noise = (table.flatten(0, 1) for table in before)
        steps = episodes.smooth.jacobians(states, context, actions, noise).unflatten(0, (self._count, -1))
        flow, gradient = self._flows(steps), self._pull_back(steps)
        unit, inverse = self._gauges(steps)
        hessian = torch.zeros_like(unit)
        pairs = (self._count, self._horizon, self._horizon)
        bend, beyond, rest = self._like.new_zeros(3, *pairs, len(self._radii)).unbind()
        bow = self._like.new_zeros(*pairs, self._size, self._size, self._size)
        problem, step = torch.ones_like(gradient[:, 1:, 0]).nonzero(as_tuple=True)
        around = episodes.look(problem, step, actions, gradient[problem, step + 1], thirds=True)
        along = around.along.unflatten(0, (self._count, -1))
        for t in range(self._horizon - 2, -1, -1):
            hessian[:, t] = along[:, t] + steps[:, t].mT @ hessian[:, t + 1] @ steps[:, t]
        self._push_forward(around, flow, unit, bow, bend, beyond, rest)
        return TailTables(self._values(), gradient, hessian, unit, inverse, flow, bow, bend, beyond, rest)

    def _values(self) -> Tensor:
        episodes = self._episodes
        rewards: Tensor = episodes.problems[0].bound_reward(episodes.center, episodes.observed)
        return rewards.flip(1).cumsum(1).flip(1)

    def _flows(self, steps: Tensor) -> Tensor:
        flow = self._like.new_zeros(self._count, self._horizon, self._horizon, self._size, self._size)
        for t in range(self._horizon):
            if t > 0:
                flow[:, :t, t] = steps[:, None, t - 1] @ flow[:, :t, t - 1]
            flow[:, t, t] = torch.eye(self._size, dtype=flow.dtype, device=flow.device)
        return flow

    def _pull_back(self, steps: Tensor) -> Tensor:
        """The gradient of what follows at every observed state [P, T, D]."""
        gradient = self._episodes.weights.clone()
        for t in range(self._horizon - 2, -1, -1):
            gradient[:, t] += (gradient[:, t + 1].unsqueeze(1) @ steps[:, t]).squeeze(1)
        return gradient

    def _gauges(self, steps: Tensor) -> tuple[Tensor, Tensor]:
        """For each step the mean square of what single changes do to its state, to first order of what they do to the
        next one; scaled so that none of these exceeds gauge 1."""
        eye = torch.eye(self._size, dtype=torch.float64, device=self._like.device)
        every = eye.expand(self._count, self._horizon, -1, -1)
        if self._round:
            return every, every
        problems = self._episodes.problems
        allowed = torch.stack([problem.allowed for problem in problems])
        changes = allowed.scatter(2, self._episodes.observed.unsqueeze(-1), False)
        # Any gauge is valid, also where a change leads beyond all numbers.
        effects = torch.where(changes[:, :-1, :, None], self._episodes.effects, 0.0)
        effects = effects.permute(0, 3, 1, 2)
        pushed = effects.new_zeros(self._count, self._horizon, *effects.shape[1:])  # [P, T, D, C, A]
        for t in range(1, self._horizon):
            if t > 1:
                pushed[:, t] = (steps[:, t - 1] @ pushed[:, t - 1].flatten(2)).view_as(pushed[:, t])
            pushed[:, t, :, t - 1] = effects[:, :, t - 1]
        pushed = pushed.flatten(3).nan_to_num(0.0, 0.0, 0.0).clamp(-LARGE, LARGE)
        values, vectors = torch.linalg.eigh(pushed @ pushed.mT)
        largest = values[..., -1:]
        nothing = largest < 1e-18  # then any gauge will do
        values = torch.where(nothing, 1.0, values.clamp(min=0) + FLOOR * largest)
        gauges = ((vectors.mT @ pushed) / values.sqrt().unsqueeze(-1)).norm(dim=-2).amax(-1, keepdim=True)
        scales = values.sqrt() * torch.where(nothing, 1.0, gauges)
        unit = (vectors * scales.unsqueeze(-2)) @ vectors.mT
        inverse = (vectors / scales.unsqueeze(-2)) @ vectors.mT
        return unit, inverse

    def _push_forward(
        self,
        around: Look,
        flow: Tensor,
        unit: Tensor,
        bow: Tensor,
        bend: Tensor,
        beyond: Tensor,
        rest: Tensor,
    ) -> None:
        """Limits of what the expansions leave out: docs/theory.md, "Rests"."""
        radii = self._radii
        growth = norm_limit(flow)  # [P, S, T], by how much what is off at s can be off at t
        growth.diagonal(dim1=1, dim2=2).fill_(1.0)
        scaled = flow @ unit.unsqueeze(2)
        added = torch.zeros_like(bend)
        cubic = torch.zeros_like(bow[:, :, 0])  # third derivatives of the value so far
        fourth = torch.zeros_like(bend[:, :, 0])
        length = norm_limit(scaled).unsqueeze(-1) * radii
        reaches = norm_limit(unit).unsqueeze(-1) * radii  # [P, S, G], how far the tails can be from the observed path
        for t in range(self._horizon):
            self._check()
            frames, bent = scaled[:, : t + 1, t], bow[:, : t + 1, t]
            reach, straight = reaches[:, : t + 1], length[:, : t + 1, t]
            bowed = norm_limit(bent.flatten(3)).unsqueeze(-1) * radii**2 / 2
            more = beyond[:, : t + 1, t]
            off = capped(torch.minimum(bowed + more, reach + straight))
            reach, more = torch.minimum(reach, straight + off), capped(torch.minimum(more, reach + straight + bowed))
            bend[:, : t + 1, t], beyond[:, : t + 1, t] = off, more
            if t == self._horizon - 1:
                break
            step = self._at(around, t)
            third, over, whole = step.limits(frames, radii, off, reach)
            along = frames.mT @ step.along.unsqueeze(1)
            mixed = (along @ bent.flatten(3)).view_as(bent)
            mixed = mixed + mixed.transpose(2, 3) + mixed.transpose(2, 4)
            cubic[:, : t + 1] += third + mixed
            crossed = norm_limit(along).unsqueeze(-1) * radii * more
            least = crossed + norm_limit(step.along)[:, None, None] * off**2 / 2 + over / 6
            fourth[:, : t + 1] += capped(least)
            so_far = norm_limit(cubic[:, : t + 1].flatten(3)).unsqueeze(-1) * radii**3 / 6
            rest[:, : t + 1, t + 1] = so_far + fourth[:, : t + 1]
            second = unpacked(step.second, self._size)
            once = turned(second.flatten(1, 2).unsqueeze(1), frames)
            curved = turned(once.view(*once.shape[:2], -1, self._size), frames).unflatten(3, (self._size, -1))
            curved = curved.permute(0, 1, 4, 2, 3)
            left_out = _length(once.flatten(2)) * radii * off
            left_out = left_out + _length(second.flatten(1)).unsqueeze(1) * off**2 / 2
            twice = norm_limit(curved.flatten(3)).unsqueeze(-1) * radii**2 / 2
            left_out = torch.minimum(left_out + whole / 6, step.bent.unsqueeze(1) * reach**2 / 2 + twice)
            added[:, : t + 1, t] = capped(left_out)
            total = growth[:, None, 1 : t + 2, t + 1, None] * added[:, : t + 1, : t + 1]
            beyond[:, : t + 1, t + 1] = capped(total.sum(2) * (1 + 1e-9))
            steep = norm_limit(step.jacobian)[:, None, None]
            reached = torch.minimum(step.slope.unsqueeze(1), steep + step.bent.unsqueeze(1) * reach / 2) * reach
            reaches = torch.cat((reached, reaches[:, t + 1 :]), dim=1)
            pushed = (step.jacobian.unsqueeze(1) @ bent.flatten(3)).view_as(bent)
            bow[:, : t + 1, t + 1] = pushed + curved
        rest.copy_(capped(rest) * (1 + 1e-9))

    def _at(self, around: Look, t: int) -> Look:
        """Step t of every problem."""
        return around.changed(lambda table: table.unflatten(0, (self._count, -1))[:, t])


def _length(tables: Tensor) -> Tensor:
    """Lengths [..., 1] of what stands in the last axis, slightly enlarged."""
    lengths: Tensor = torch.linalg.vector_norm(tables, dim=-1, keepdim=True)
    return lengths * (1 + 1e-12)
