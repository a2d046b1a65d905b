"""The largest advantage of r changes: on balls around the recorded path, and after a given change.

m_r(s, rho) bounds by how much the best sequence with at most r changes from step s on can exceed the second-order
expansion P_s, from every state with |y|_s <= rho (T44). Tables are made in float64 and looked up in float32, rounded up
(T55). Equation numbers are those of docs/theory.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ifonly.bounds.base import unknown_as_infinite
from ifonly.bounds.taylor.advantages import Advantages
from ifonly.bounds.taylor.displacement import DisplacementTables
from ifonly.bounds.taylor.evaluation import AdvantageTables, ProblemIndex, advantages_from, evaluate_polynomials
from ifonly.bounds.taylor.polynomials import monomials, rounded_up_float32
from ifonly.bounds.taylor.radii import RADII, RadiusIndex, looked_up, padded, radii_on
from ifonly.bounds.taylor.value_expansion import ValueExpansion
from ifonly.models.smooth import norm_bound
from ifonly.progress import look_at_clock

MAX_BALL_CHANGES = 3
"""Numbers of further changes for which m_r is known; balls of balls of more would say little."""

BALLS = (0.1, 0.2, 0.3, 0.5)
"""Norms of a node's state up to which the largest advantage after each change is known."""


@dataclass(frozen=True)
class Expansions:
    """What the tables are made of, for P problems."""

    values: ValueExpansion
    advantages: Advantages  # float64
    tables: AdvantageTables  # float32
    displacements: DisplacementTables
    changes: Tensor  # [P, T, A], allowed and not the recorded action
    last: Tensor  # [P, A], advantages at the last step (T37)


@dataclass(frozen=True)
class LargestAdvantages:
    """Tables of the largest advantages; float32."""

    index: RadiusIndex
    last: Tensor  # [P], the largest advantage at the last step, or zero
    value_remainder: Tensor  # [P, T, cells], m_0 / |y|^2: RV_s, per second power of the norm (T30)
    in_ball: tuple[Tensor, ...]  # m_r for r = 0, 1, ...: [P, T, cells] (T44)
    after_change: Tensor | None  # [P, C, A, B + 1], (T48): what one more change adds after (c, a); None for one change


def largest_advantages(given: Expansions, max_changes: int) -> LargestAdvantages:
    """All tables for a budget of `max_changes`."""
    radii, index = radii_on(given.changes.device), given.tables.index
    remainder = given.values.value_remainder[:, :, -1]
    # At least zero, since the recorded action may stay; -inf where it has no alternatives would make sums NaN.
    last = given.last.masked_fill(~given.changes[:, -1], 0.0).amax(1)
    in_ball, first_changes = [padded(remainder)], list(_first_changes(given))  # m_0 = RV
    for _ in range(min(max(1, max_changes - 1), MAX_BALL_CHANGES)):  # the same for a budget, whatever is asked beyond
        in_ball.append(_one_more_change(remainder + last[:, None, None], first_changes, in_ball[-1]))
    largest = LargestAdvantages(
        index=index,
        last=rounded_up_float32(last),
        value_remainder=index.by_cell(rounded_up_float32(padded(remainder / radii**2))),
        in_ball=tuple(index.by_cell(rounded_up_float32(table)) for table in in_ball),
        after_change=None,
    )
    if max_changes <= 1:
        return largest
    after = torch.stack([_after_changes(given, largest, t) for t in range(1, given.changes.shape[1])], dim=1)
    # A minimum with NaN is NaN: it would hide what the other tables know.
    return replace(largest, after_change=rounded_up_float32(padded(unknown_as_infinite(after.double()))))


def ball_bound(tables: LargestAdvantages, which: ProblemIndex, steps: slice, norm: Tensor, changes_left: int) -> Tensor:
    """m_r [P, C, ...] for r = `changes_left`, at `steps` and up to norms [P, C, ...]; infinite where m_r is unknown."""
    if changes_left >= len(tables.in_ball):
        return torch.full_like(norm, torch.inf)
    cells = tables.index.cells(norm).flatten(2)
    if changes_left == 0:  # (T30): the value remainder shrinks with the second power of the norm
        return tables.value_remainder[which, steps].gather(2, cells).view_as(norm).mul_(norm**2)
    return tables.in_ball[changes_left][which, steps].gather(2, cells).view_as(norm)


def _first_changes(given: Expansions) -> Iterator[tuple[Tensor, Tensor]]:
    """For every step c, of all changes there from s <= c on, in balls: what (T44) adds m_{r-1} to [P, S, A, G], and the
    index [P, S, A, G] of the radius that they reach (T43); float64."""
    values, advantages, displaced = given.values, given.advantages, given.displacements
    radii, index = radii_on(given.changes.device), given.tables.index
    inverse_norm = norm_bound(values.inverse_root)
    effects = advantages.effect.norm(dim=-1)
    for c in range(given.changes.shape[1] - 1):
        look_at_clock()
        r1 = values.first_remainder[:, : c + 1, c]  # [P, S, G]
        norm = displaced.stretch[:, : c + 1, c] * radii + inverse_norm[:, c, None, None] * r1  # (T41)
        norm = norm.unsqueeze(2)  # [P, S, 1, G]
        before = values.value_remainder[:, : c + 1, c] + displaced.crossed[:, : c + 1, c]  # (T39), (T40)
        arrays = (
            advantages.value,
            advantages.gradient_norm,
            advantages.largest_eigenvalue,
            advantages.jacobian_norm,
            effects,
        )
        value, gradient, eigenvalue, jacobian, effect = (array[:, c, None, :, None] for array in arrays)
        radius = index(norm).expand(-1, -1, value.shape[2], -1)
        step, effect_remainder = (
            padded(table[:, c])[:, None].expand(-1, c + 1, -1, -1).gather(3, radius)
            for table in (advantages.remainder / radii**3, advantages.effect_remainder / radii**2)
        )
        total = value + gradient * norm + (eigenvalue / 2 + step * norm) * norm**2  # (T42)
        total = (before.unsqueeze(2) + total).masked_fill(~given.changes[:, None, c, :, None], -torch.inf)
        yield total, index(effect + jacobian * norm + effect_remainder * norm**2)  # (T43)


def _one_more_change(none: Tensor, first_changes: Sequence[tuple[Tensor, Tensor]], in_ball: Tensor) -> Tensor:
    """m_r [P, T, G + 1] from m_{r-1} (T44): the largest sum of (T38) over first changes (c, a), or what no change
    before the last step adds, `none` [P, T, G]; float64."""
    best = none.clone()
    for c, (total, reached) in enumerate(first_changes):
        later = in_ball[:, c + 1].gather(1, reached.flatten(1)).view_as(total)
        best[:, : c + 1] = torch.maximum(best[:, : c + 1], (total + later).amax(2))
    return padded(best)


def _after_changes(given: Expansions, largest: LargestAdvantages, t: int) -> Tensor:
    """(T48) [P, A, B]: what one more change adds at most after a change at t - 1, for the norms BALLS of the state at
    which that change is made. The ball is around where the change leads, not around the recorded path."""
    look_at_clock()
    advantages, displaced, tables = given.advantages, given.displacements, given.tables
    radii, every, last = radii_on(given.changes.device), slice(None), given.changes.shape[1] - 1
    chosen = torch.tensor([RADII.index(radius) for radius in BALLS], device=radii.device)
    effect = advantages.effect[:, t - 1].mT  # [P, D, A], e in metric units
    length = effect.square().sum(1).sqrt().unsqueeze(-1)  # [P, A, 1]
    # (T45), [P, A, B]
    away = advantages.jacobian_norm[:, t - 1].unsqueeze(-1) * radii[chosen]
    away = away + advantages.effect_remainder[:, t - 1][..., chosen]
    norm = ((length + away) * (1 + 1e-9)).flatten(1)  # [P, A * B]
    best = ball_bound(largest, every, slice(t, t + 1), norm.unsqueeze(1), 0).squeeze(1)
    best = (best + largest.last.unsqueeze(-1)).float()
    if t < last:
        later, radius = slice(t, last), tables.index(norm)
        led = displaced.maps[t].flatten(1, 2) @ monomials(effect.float())[:, 1:]
        p = led.unflatten(1, (last - t, -1))[:, :, :-1]
        evaluated = evaluate_polynomials(tables, every, later, p)
        p, evaluated = (table.unsqueeze(-1).expand(-1, -1, -1, -1, len(BALLS)).flatten(3) for table in (p, evaluated))
        curved = ((length + away / 2) * away).flatten(1).unsqueeze(1)
        off = displaced.stretch[:, t, later] * away.flatten(1).unsqueeze(1)
        off = off + displaced.second_stretch[:, t, later] * curved
        norm = norm.unsqueeze(1)
        off = rounded_up_float32(off + looked_up(displaced.second_remainder[:, t, later], radius) * norm)  # (T46)
        found = advantages_from(tables, every, later, p, evaluated, off)  # (T47)
        # (T39) with the bracket bounded as in a ball (T40).
        before = given.values.value_remainder[:, t, later] + displaced.crossed[:, t, later]
        before = rounded_up_float32(padded(before / radii**2))
        before = rounded_up_float32(looked_up(before, radius) * norm**2)
        total = found.advantage + found.remainder + before.unsqueeze(2)
        total = total + ball_bound(largest, every, slice(t + 1, None), found.reached, 0)
        best = torch.maximum(best, total.flatten(1, 2).amax(1))
    unflattened: Tensor = best.unflatten(1, away.shape[1:])
    return unflattened
