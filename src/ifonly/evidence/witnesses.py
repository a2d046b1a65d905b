"""Shifts of the noise that undo a gain: found along rays, turned until they are as short as can be found.

Each shift that is returned was replayed, so its length is an upper bound of the smallest one's; nothing here is a
lower bound.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ifonly.evidence.shifts import Courses

POINTS = 16
"""Lengths tried along a ray, and again between the last that leaves a gain and the first that does not."""
ROUNDS = 6
KEPT_STARTS = 4
"""Directions per step that are turned further."""
TURNS = 8
DIFFERENCE = 1e-4
"""Standard deviations by which noise is moved to find the slope of the gain."""


def along_rays(courses: Courses, owner: Tensor, rays: Tensor, longest: Tensor, *, rounds: int = ROUNDS) -> Tensor:
    """The shortest multiples [B] of `rays` [B, T-1, D] found, up to `longest` [B], that undo the gain; or infinity.

    Each is of the course of `owner` [B].
    """
    shares = torch.linspace(0, 1, POINTS + 1, dtype=torch.float64, device=rays.device)
    # Squared, so that the first points are denser where shifts are short.
    low, high, found = _narrowed(courses, owner, rays, torch.zeros_like(longest), longest, shares.square())
    rows = found.nonzero().squeeze(-1)
    owner, rays, low, short = owner[rows], rays[rows], low[rows], high[rows]
    for _ in range(rounds - 1 if len(rows) else 0):
        low, short, _ = _narrowed(courses, owner, rays, low, short, shares)
    lengths = torch.full_like(longest, torch.inf)
    lengths[rows] = short
    return lengths


def _narrowed(
    courses: Courses, owner: Tensor, rays: Tensor, low: Tensor, high: Tensor, shares: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The first of the parts between `low` and `high` [B] at whose end the gain is undone, and whether there is one.

    Where there is none, or rounding hides it, that is the last part.
    """
    lengths = low.unsqueeze(1) + shares * (high - low).unsqueeze(1)  # [B, POINTS + 1]
    trials = (lengths[:, 1:, None, None] * rays.unsqueeze(1)).flatten(0, 1)
    undone = _is_undone(courses, owner.repeat_interleave(len(shares) - 1), trials).view(len(rays), -1)
    found = undone.any(1)
    undone[:, -1] = True
    place = undone.to(torch.int64).argmax(1, keepdim=True)
    return lengths.gather(1, place).squeeze(1), lengths.gather(1, place + 1).squeeze(1), found


def _is_undone(courses: Courses, owner: Tensor, shifts: Tensor) -> Tensor:
    """Whether the gain is gone [B], by more than rounding, so that every replay agrees; NaN is no answer."""
    return courses.gains(owner, shifts) <= -courses.batch.tolerance[owner]


def shifts_per_step(courses: Courses) -> int:
    """How many shifts are tried at once for a step: several lengths of the slope of the gain, and of axes both ways."""
    return (2 * courses.states.shape[2] + 1) * POINTS


def smallest_at_steps(courses: Courses, owner: Tensor, steps: Tensor, longest: float) -> tuple[Tensor, Tensor]:
    """For each of `steps` [S] of courses `owner` [S]: the length [S] of the smallest shift found at that step alone,
    and the shift [S, D].

    Lengths are those of standardised noise. From a few directions (against the slope of the gain, and along every
    axis both ways) the shortest multiples are found; each is then turned towards the steepest descent at its end:
    where the shortest shift ends, both agree.
    """
    size = courses.states.shape[2]
    axes = torch.eye(size, dtype=torch.float64, device=courses.device)
    slope = _descent(courses, owner, steps, axes.new_zeros(len(steps), size))
    starts = torch.cat([slope.unsqueeze(1), torch.cat([axes, -axes]).expand(len(steps), -1, -1)], dim=1)  # [S, n, D]
    count = starts.shape[1]

    def shortest(directions: Tensor, longest: Tensor, *, rounds: int = ROUNDS) -> Tensor:
        each = len(directions) // len(steps)
        rays = _at_steps(courses, steps.repeat_interleave(each), directions)
        return along_rays(courses, owner.repeat_interleave(each), rays, longest, rounds=rounds)

    everywhere = axes.new_full((len(steps) * count,), longest)
    lengths = shortest(starts.flatten(0, 1), everywhere, rounds=2).view(len(steps), count)
    kept = lengths.topk(min(KEPT_STARTS, count), dim=1, largest=False).indices
    lengths = lengths.gather(1, kept).flatten()
    directions = starts.gather(1, kept.unsqueeze(-1).expand(-1, -1, size)).flatten(0, 1)
    places = owner.repeat_interleave(kept.shape[1]), steps.repeat_interleave(kept.shape[1])
    lengths, directions = _turn(courses, places, lengths, directions, shortest)
    lengths = shortest(directions, torch.where(lengths.isfinite(), lengths, longest))
    best = lengths.view(len(steps), -1).min(1)
    chosen = directions.view(len(steps), -1, size)[torch.arange(len(steps), device=steps.device), best.indices]
    shifts = torch.where(best.values.isfinite(), best.values, 0.0).unsqueeze(1) * chosen @ courses.factor.mT
    return best.values, shifts


def _turn(
    courses: Courses,
    places: tuple[Tensor, Tensor],
    lengths: Tensor,
    directions: Tensor,
    shortest: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """Turn each direction as long as that makes the shift shorter; `places` are courses [B] and steps [B]."""
    for turn in range(TURNS):
        reachable = lengths.isfinite()
        if not reachable.any():
            break
        ends = torch.where(reachable, lengths, 0.0).unsqueeze(1) * directions
        steepest = _descent(courses, *places, ends)
        # All the way, then less and less: far from the end the slope may point elsewhere.
        turned = torch.nn.functional.normalize(directions + (steepest - directions) * 2.0 ** -(turn // 2), dim=1)
        found = shortest(turned, torch.where(reachable, lengths, 1.0))
        better = reachable & (found < lengths)
        lengths = torch.where(better, found, lengths)
        directions = torch.where(better.unsqueeze(1), turned, directions)
    return lengths, directions


def _at_steps(courses: Courses, steps: Tensor, standardised: Tensor) -> Tensor:
    """Shifts [B, T-1, D] of standardised noise [B, D] at one step each, `steps` [B]."""
    shifts = standardised.new_zeros(len(steps), *courses.batch.noise.shape[1:])
    shifts[torch.arange(len(steps), device=steps.device), steps] = standardised @ courses.factor.mT
    return shifts


def _descent(courses: Courses, owner: Tensor, steps: Tensor, standardised: Tensor) -> Tensor:
    """Unit directions [B, D] in which the gain falls fastest, by differences: rewards need no derivatives."""
    count, size = standardised.shape
    moves = DIFFERENCE * torch.eye(size, dtype=torch.float64, device=standardised.device)
    trials = standardised.unsqueeze(1) + torch.cat([moves, -moves])  # [B, 2 D, D]
    each = [values.repeat_interleave(2 * size) for values in (owner, steps)]
    gains = courses.gains(each[0], _at_steps(courses, each[1], trials.flatten(0, 1)))
    up, down = gains.view(count, 2, size).unbind(1)
    slopes = (down - up).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return torch.nn.functional.normalize(slopes, dim=1)
