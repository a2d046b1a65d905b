"""Single changes: what another action at step c brings over the observed one, as a function of the state at c.

From the observed state at c plus y, a change (c, a) leads to the state at c + 1 that lies effect + jacobian y + ...
from the observed one, and from there on a recorded tail follows. So its gain over the recorded tail from c on is a
quadratic polynomial of y, plus what the step's expansion leaves out, plus the rest of the tail at the state reached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from ifonly.bounds.limits import capped, lengths_in_frames
from ifonly.bounds.looks import RADII
from ifonly.bounds.tails import Episodes, TailTables
from ifonly.models.smooth import norm_limit, positive_limit
from ifonly.problem import array_scale

LOOKS = 800
"""States at which a step is looked at together, on a processor."""


@dataclass(frozen=True)
class GainTables:
    """What is known of all single changes (c, a) of P problems but those of the last step; G radii, C = T - 1."""

    value: Tensor  # [P, C, A]
    gradient: Tensor  # [P, C, A, D]
    hessian: Tensor  # [P, C, A, D, D]
    steepness: Tensor  # [P, C, A], length of the gradient, in units of the gauge
    bent: Tensor  # [P, C, A], largest eigenvalue of the Hessian, in units of the gauge, or zero
    rest: Tensor  # [P, C, A, G], limits of what the step's expansion leaves out of the gain
    effect: Tensor  # [P, C, A, D], state at c + 1 minus the observed one, in gauge units of c + 1
    jacobian: Tensor  # [P, C, A, D, D], how that moves with the state at c
    spread: Tensor  # [P, C, A], by at most how much, per unit of the gauge at c
    bend: Tensor  # [P, C, A, G], limits of what that leaves out

    def masked(self, changes: Tensor) -> GainTables:
        """With zeros for all but some changes [P, C, A]."""

        def kept(table: Tensor) -> Tensor:
            return torch.where(changes.view(*changes.shape, *[1] * (table.dim() - 3)), table, 0.0)

        return GainTables(**{field.name: kept(getattr(self, field.name)) for field in fields(self)})


def make_gains(episodes: Episodes, tails: TailTables, check: Callable[[], None]) -> GainTables:
    """All single changes of the steps before the last."""
    count, steps, actions, size = episodes.effects.shape
    device = episodes.center.device
    effects = episodes.effects
    radii = torch.tensor(RADII, dtype=torch.float64, device=device)
    # The gradient of the tail's second-order expansion at the state that is reached.
    ahead = tails.hessian[:, 1:, None]
    pulled = (effects.unsqueeze(-2) @ ahead).squeeze(-2)
    gradient = tails.gradient[:, 1:, None] + pulled
    every = torch.arange(actions, device=device)
    problem, step = torch.ones_like(effects[..., 0, 0]).nonzero(as_tuple=True)
    parts: list[tuple[Tensor, ...]] = []
    together = max(1, LOOKS * array_scale(device) // actions)
    for p, c in zip(problem.split(together), step.split(together), strict=True):
        check()
        groups = len(p)
        q = gradient[p, c].flatten(0, 1)
        around = episodes.look(
            p.repeat_interleave(actions), c.repeat_interleave(actions), every.repeat(groups), q, thirds=False
        )
        frames, later, inverse = tails.unit[p, c], tails.hessian[p, c + 1], tails.inverse[p, c + 1]
        cubic, whole = around.limits_anywhere(frames, radii)  # [N, G], [B, G], N = B * A
        bend = lengths_in_frames(around.second, frames) * radii**2 / 2
        bend = capped(bend + whole.repeat_interleave(actions, 0) / 6)
        beside = around.jacobian.unflatten(0, (groups, actions)).transpose(1, 2).flatten(2)  # [B, D, A * D]
        bowed, jacobian = (
            (matrix @ beside).unflatten(2, (actions, size)).transpose(1, 2).flatten(0, 1) for matrix in (later, inverse)
        )
        hessian = around.jacobian.mT @ bowed + around.along
        turned = (torch.cat((bowed, jacobian), dim=1).view(groups, -1, size) @ frames).view(len(q), 2 * size, size)
        steep, spread = norm_limit(turned[:, :size]), capped(norm_limit(turned[:, size:]))
        rest = cubic / 6 + steep.unsqueeze(1) * radii * bend
        rest = capped(rest + norm_limit(later).repeat_interleave(actions).unsqueeze(1) * bend**2 / 2)
        pull = (q.unsqueeze(1) @ around.jacobian).squeeze(1)
        bend = capped(norm_limit(inverse).repeat_interleave(actions).unsqueeze(1) * bend * (1 + 1e-9))
        parts.append((hessian, pull, rest * (1 + 1e-9), bend, jacobian, spread))
    shape = (count, steps, actions)
    hessian, pull, rest, bend, jacobian, spread = (
        torch.cat(tables).unflatten(0, shape) for tables in zip(*parts, strict=True)
    )
    hessian = hessian - tails.hessian[:, :-1, None]
    slope = pull + (episodes.weights - tails.gradient)[:, :-1, None]
    unit = tails.unit[:, :-1, None]
    bowed = unit @ hessian @ unit
    # The largest eigenvalue of a matrix moved until it is positive, and back again.
    shift = norm_limit(bowed)
    eye = torch.eye(size, dtype=torch.float64, device=device)
    largest = capped(positive_limit(bowed + shift[..., None, None] * eye) - shift).clamp(min=0)
    value = _rewards(episodes)[:, :-1] + tails.value[:, 1:, None] - tails.value[:, :-1, None]
    value = value + ((tails.gradient[:, 1:, None] + pulled / 2) * effects).sum(-1)
    return GainTables(
        value=value,
        gradient=slope,
        hessian=hessian,
        steepness=(slope.unsqueeze(-2) @ unit).squeeze(-2).norm(dim=-1) * (1 + 1e-12),
        bent=largest,
        rest=rest,
        effect=(effects.unsqueeze(-2) @ tails.inverse[:, 1:, None]).squeeze(-2),
        jacobian=jacobian,
        spread=spread,
        bend=bend,
    )


def last_gains(episodes: Episodes) -> Tensor:
    """What changes of the last step bring [P, A], whatever the state."""
    rewards = _rewards(episodes)[:, -1]
    return rewards - rewards.gather(1, episodes.observed[:, -1:])


def _rewards(episodes: Episodes) -> Tensor:
    """Of all actions at the observed states [P, T, A], less the costs of changes."""
    first = episodes.problems[0]
    every = torch.arange(first.action_count, device=episodes.center.device)
    costs = torch.tensor([problem.change_cost for problem in episodes.problems], dtype=torch.float64)
    changes = every != episodes.observed.unsqueeze(-1)
    rewards: Tensor = first.bound_reward(episodes.center.unsqueeze(2), every)
    return rewards - changes * costs.to(rewards)[:, None, None]
