"""The Taylor bound: what further changes are worth at a node, from second-order expansions along the observed path.

A node's state at step c is the observed one plus y. A change (c, a) there gains a quadratic polynomial of y over the
recorded tail, plus a rest that depends on how far y and the state that is reached are from the observed path. What r
more changes can add to a tail at most, is known for all states up to some gauge (`_most`), and more sharply for a given
state (`onward`): at every later step the best change at the state to which the tail leads, and what the others can add
after it.

docs/theory.md has the derivation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ifonly.bounds.children import ChildBound, Nodes
from ifonly.bounds.gains import last_gains, make_gains
from ifonly.bounds.limits import single_means_single
from ifonly.bounds.lipschitz import unknown_as_infinite
from ifonly.bounds.looks import RADII
from ifonly.bounds.polynomials import (
    ROUNDING,
    features,
    looked_up,
    packed,
    padded,
    room_for,
    share_rounded,
    single,
    single_limits,
)
from ifonly.bounds.tails import Episodes, make_tails
from ifonly.bounds.worth import Which, Worth
from ifonly.errors import InputError
from ifonly.models.base import TransitionModel
from ifonly.models.smooth import SmoothStep, norm_limit
from ifonly.problem import Problem, Question, array_scale

ELEMENTS = 2**20
"""Numbers in the largest temporary arrays, on a processor."""

TABLE_ELEMENTS = 2**26
"""Numbers in the tables of one problem or panel, at most: 512 MiB."""

MOST_TABLES = 3
"""Numbers of further changes for which it is known what they add at most; of more, that would say little."""

FILLED = 128
"""Rows that may fill up, rather than do with fewer problems at a time."""

STARTS = 3
"""Groups of nodes by their first step."""

BALLS = (0.1, 0.2, 0.3, 0.5)
"""Gauges of nodes up to which it is known what one more change adds after each change."""

NEAR = 2
"""Steps that are looked at for a further change, before all are."""

MARGIN = 1e-10
"""Outward margin, relative to outcome and bound: far above what rounding does to a polynomial, far below interest."""

UNKNOWN = 1e3
"""Bounds of so many times the outcome's size say nothing, and may come of a limit that was capped: infinite, then."""

DIFFERENCE = 1e-4
"""Distance, in scaled units, at which slopes are compared with what the model says they are."""


def table_elements(problem: Question) -> int:
    """Numbers in the tables of one problem."""
    horizon, size = problem.horizon, problem.observed_states.shape[1]
    changes, pairs = horizon * problem.action_count, horizon**2
    return changes * (4 * size**2 + 5 * len(RADII)) + pairs * (2 * size**3 + 2 * size**2 + 4 * len(RADII))


def can_expand(problem: Problem) -> bool:
    """Whether the step has three derivatives, and the reward tangents that are nowhere below it."""
    return _smooth_step(problem) is not None and problem.bound_reward.tangents(problem.observed_states) is not None


@torch.no_grad()
def _smooth_step(problem: Problem) -> SmoothStep | None:
    """How the model's step depends on the state, if what it says of itself is true.

    A subclass that changed `step` alone has inherited a description of something else. What else a subclass may have
    changed shows in the slopes along the observed path.
    """
    model = problem.model
    definer = next(kind for kind in type(model).__mro__ if {"step", "smooth"} & set(vars(kind)))
    smooth = model.smooth() if "smooth" in vars(definer) else None
    if smooth is None:
        return None
    if model not in _DESCRIBED:  # once per model: on a GPU many small checks would cost more than the search
        _DESCRIBED[model] = _is_as_described(smooth, problem)
    return smooth if _DESCRIBED[model] else None


_DESCRIBED: WeakKeyDictionary[TransitionModel, bool] = WeakKeyDictionary()


def _is_as_described(smooth: SmoothStep, problem: Problem) -> bool:
    states, rest = problem.observed_states[:-1], (problem.context[:-1], problem.observed_actions[:-1], problem.noise)
    jacobians = smooth.jacobians(states, *rest)
    shift = DIFFERENCE * torch.nn.functional.normalize(torch.ones_like(states), dim=1)
    step = problem.model.step
    slopes = (step(states + shift, *rest) - step(states - shift, *rest)) / (2 * DIFFERENCE)
    wanted = (jacobians @ shift.unsqueeze(-1)).squeeze(-1) / DIFFERENCE
    return torch.allclose(slopes, wanted, rtol=1e-4, atol=1e-4)


class TaylorChildBound(ChildBound):
    """Bounds from second-order expansions for P problems that share model, reward, horizon and budget.

    Raises `InputError` where the model's step has kinks, or the reward some that bend upwards.
    """

    method = "taylor"

    @torch.no_grad()
    @single_means_single
    def __init__(self, problems: Sequence[Problem], check: Callable[[], None] = lambda: None) -> None:
        """`check` is called now and then, and may raise to end the work."""
        first = problems[0]
        smooth = _smooth_step(first)
        if smooth is None or not can_expand(first):
            raise InputError(
                f"episode {first.episode.id!r}: the Taylor bound needs a model whose step has three derivatives and a "
                "reward that is linear in the state or bends downwards, as penalties do; use bound='lipschitz', or "
                "'auto' to let the problem decide."
            )
        self._horizon, self._actions, self._budget = first.horizon, first.action_count, first.max_changes
        self._reward = first.bound_reward
        self._observed = torch.stack([problem.observed_actions for problem in problems])
        allowed = torch.stack([problem.allowed for problem in problems])
        self._changes = allowed.scatter(2, self._observed.unsqueeze(-1), False)  # [P, T, A]
        tolerances = torch.tensor([problem.tolerance for problem in problems], dtype=torch.float64)
        self._tolerance = tolerances.to(first.device)
        self._balls = torch.tensor(BALLS, dtype=torch.float64, device=first.device)
        self._elements = ELEMENTS * array_scale(first.device)
        self._radii = torch.tensor(RADII, dtype=torch.float64, device=first.device)
        episodes = Episodes.of(problems, smooth)
        self._center = episodes.center
        self._tails = make_tails(episodes, check)
        self._gains = make_gains(episodes, self._tails, check)
        self._last = last_gains(episodes)
        size = self._center.shape[-1]
        self._width = 2 * self._actions + 2 + (size + 1) * (size + 2) // 2
        self._worth = Worth(self._tails, self._gains, self._changes[:, :-1])
        # At least zero, since it may stay as it is; with -inf where it has no alternatives, sums would be NaN.
        self._best_last = self._last.masked_fill(~self._changes[:, -1], 0.0).amax(1)
        self._ways = [self._make_ways(t) for t in range(self._horizon - 1)]
        self._best_last_up = single_limits(self._best_last)
        tail_rest = padded(self._tails.rest[:, :, -1] / self._radii**2)
        self._tail_rest = single_limits(tail_rest)[..., self._worth.places]  # [P, T, cells]
        self._make_tail_tables()
        most = [padded(self._tails.rest[:, :, -1])]
        for _ in range(min(max(1, self._budget - 2), MOST_TABLES)):
            check()
            most.append(self._add_change(most[-1]))
        # [P, T, cells] for each number of further changes
        self._most = [single_limits(table)[..., self._worth.places] for table in most]
        if self._budget > 1:
            self._after = self._make_after()

    def _make_after(self) -> Tensor:
        """What one more change can add after each change (c, a) [P, C, A, B + 1], at states of some gauges at c."""
        tails, gains, last = self._tails, self._gains, self._horizon - 1
        chosen = torch.tensor([RADII.index(radius) for radius in BALLS], device=self._radii.device)
        befores = single_limits(padded((tails.rest + self._crossed) / self._radii**2))
        after = []
        for t in range(1, self._horizon):
            effect = gains.effect[:, t - 1].mT  # [P, D, A]
            far = effect.square().sum(1).sqrt().unsqueeze(-1)  # [P, A, 1]
            away = gains.spread[:, t - 1].unsqueeze(-1) * self._radii[chosen] + gains.bend[:, t - 1][..., chosen]
            gauge = ((far + away) * (1 + 1e-9)).flatten(1)  # [P, A * B]
            best = self._beyond(slice(t, t + 1), gauge.unsqueeze(1), 0, slice(None)).squeeze(1)
            best = (best + self._best_last_up.unsqueeze(-1)).float()
            if t < last:
                later, place = slice(t, last), self._worth.place(gauge)
                led = self._ways[t].flatten(1, 2) @ features(effect.float())[:, 1:]
                moved = led.unflatten(1, (last - t, -1))[:, :, :-1]
                values = self._worth.values(slice(None), later, moved)
                moved, values = (
                    table.unsqueeze(-1).expand(-1, -1, -1, -1, len(BALLS)).flatten(3) for table in (moved, values)
                )
                bent = ((far + away / 2) * away).flatten(1).unsqueeze(1)
                off = self._stretch[:, t, later] * away.flatten(1).unsqueeze(1) + self._bow[:, t, later] * bent
                gauge = gauge.unsqueeze(1)
                off = single_limits(off + looked_up(self._beyonds[:, t, later], place) * gauge)
                worths = self._worth.at(slice(None), later, moved, values, off)
                before = single_limits(looked_up(befores[:, t, later], place) * gauge**2)
                value = worths.gain + worths.rest + before.unsqueeze(2)
                value = value + self._beyond(slice(t + 1, None), worths.reached, 0, slice(None))
                best = torch.maximum(best, value.flatten(1, 2).amax(1))
            after.append(best.unflatten(1, away.shape[1:]))
        # A minimum with NaN is NaN: it would hide what the other tables know.
        return single_limits(padded(unknown_as_infinite(torch.stack(after, dim=1).double())))

    def _make_tail_tables(self) -> None:
        """How tails stretch and bend from step to step in gauge units, and what is left out, by radius."""
        tails, radii = self._tails, self._radii
        flow, inverse = tails.flow @ tails.unit.unsqueeze(2), tails.inverse[:, None]
        self._stretch = norm_limit(inverse @ flow).unsqueeze(-1)  # [P, T, T, 1]
        self._stretch.diagonal(dim1=1, dim2=2).fill_(1 + 1e-9)
        self._bow = norm_limit(inverse @ tails.bow.flatten(-2)).unsqueeze(-1)
        pulled, form = tails.hessian[:, None] @ flow, flow.mT @ tails.hessian[:, None] @ flow
        self._crossed = norm_limit(pulled).unsqueeze(-1) * radii * tails.bend
        self._crossed += norm_limit(tails.hessian)[:, None, :, None] * tails.bend**2 / 2  # [P, T, T, G]
        # Per power of the gauge, and with room for rounding of where tails lead to second order.
        share = share_rounded(features(flow[0, 0, 0, :, :1]).shape[0])
        rounding = share * (self._stretch + self._bow * radii) * flow.shape[-1]
        beyond = tails.beyond * norm_limit(tails.inverse)[:, None, :, None] / radii
        self._beyonds = single_limits(padded(beyond + rounding))  # [P, T, T, G + 1]
        rounding = room_for(form.flatten(-2).norm(dim=-1).unsqueeze(-1), share)
        self._rests = single_limits(padded(tails.rest / radii**2)) + rounding

    def _make_ways(self, t: int) -> Tensor:
        """Where tails from t lead [P, C, D + 1, F - 1], to second order, in gauge units; and what the second-order
        terms of later tails are along them, to first order."""
        tails = self._tails
        flow = tails.flow[:, t, t:-1] @ tails.unit[:, None, t]
        half = flow.mT @ tails.hessian[:, t:-1] @ flow / 2
        paths = torch.cat((flow, packed(tails.bow[:, t, t:-1] / 2)), dim=-1)
        forms = torch.nn.functional.pad(packed(half), (flow.shape[-1], 0))
        return single(torch.cat((tails.inverse[:, t:-1] @ paths, forms.unsqueeze(2)), dim=2))

    def _add_change(self, most: Tensor) -> Tensor:
        """What one change more than `most` is about can add [P, T, G + 1] to the second-order expansions of tails."""
        tails, gains, radii = self._tails, self._gains, self._radii
        rest = tails.rest[:, :, -1]
        best = rest + self._best_last[:, None, None]
        inverse_norm = norm_limit(tails.inverse)
        for c in range(self._horizon - 1):
            off = tails.bend[:, : c + 1, c]  # [P, S, G]
            gauge = self._stretch[:, : c + 1, c] * radii + inverse_norm[:, c, None, None] * off
            gauge = gauge.unsqueeze(2)  # [P, S, 1, G]
            before = tails.rest[:, : c + 1, c] + self._crossed[:, : c + 1, c]
            tables = (gains.value, gains.steepness, gains.bent, gains.spread, gains.effect.norm(dim=-1))
            value, steepness, bent, spread, effect = (table[:, c, None, :, None] for table in tables)
            place = self._worth.place(gauge).expand(-1, -1, value.shape[2], -1)
            rest, bend = (
                padded(table[:, c])[:, None].expand(-1, c + 1, -1, -1).gather(3, place)
                for table in (gains.rest / radii**3, gains.bend / radii**2)
            )
            gain = value + steepness * gauge + (bent / 2 + rest * gauge) * gauge**2
            reached = self._worth.place(effect + spread * gauge + bend * gauge**2)
            gain = gain + most[:, c + 1].gather(1, reached.flatten(1)).view_as(gain)
            gain = gain.masked_fill(~self._changes[:, None, c, :, None], -torch.inf).amax(2)
            best[:, : c + 1] = torch.maximum(best[:, : c + 1], before + gain)
        return padded(best)

    def _tail(self, steps: slice | int, y: Tensor, which: Which) -> Tensor:
        """Second-order expansions [P, (C,) M] of what tails earn from offsets y [P, (C,) D, M] at steps on."""
        tails = self._tails
        bowed = (tails.hessian[which, steps] @ y / 2 + tails.gradient[which, steps].unsqueeze(-1)) * y
        return bowed.sum(-2) + tails.value[which, steps].unsqueeze(-1)

    def _beyond(self, steps: slice, gauge: Tensor, further: int, which: Which) -> Tensor:
        """What that leaves out, and `further` changes add, up to gauges [P, C, ...] at steps."""
        if further >= len(self._most):
            return torch.full_like(gauge, torch.inf)
        cells = self._worth.cells(gauge).flatten(2)
        if further == 0:  # rests shrink at least with the second power of the gauge
            return self._tail_rest[which, steps].gather(2, cells).view_as(gauge).mul_(gauge**2)
        return self._most[further][which, steps].gather(2, cells).view_as(gauge)

    def _brackets(self, first: int, y: Tensor, budgets: int, which: Which) -> Tensor:
        """Bounds [P, R, C, A, M] on what is earned from each step on by a change there and r - 1 later, at offsets y
        [P, C, D, M] on steps from the first on."""
        tail = self._tail(slice(first, None), y, which)
        last = (tail[:, -1:] + self._last[which].unsqueeze(-1)).unsqueeze(1)  # [P, 1, A, M]
        if first == self._horizon - 1:
            return last.unsqueeze(1).expand(-1, budgets, -1, -1, -1)
        steps = slice(first, self._horizon - 1)
        scaled = (self._tails.inverse[which, steps] @ y[:, :-1]).float()
        worths = self._worth.at(which, steps, scaled, self._worth.values(which, steps, scaled))
        gain = worths.gain + worths.rest
        brackets = []
        for r in range(budgets):
            later = self._beyond(slice(first + 1, None), worths.reached, r, which)
            if r == 1:
                place = torch.bucketize(worths.tails.gauge, self._balls)
                later = torch.minimum(later, looked_up(self._after[which, steps], place))
            brackets.append(torch.cat(((gain + later).double() + tail[:, :-1].unsqueeze(2), last), dim=1))
        return torch.stack(brackets, dim=1)

    def _ahead(self, t: int, y: Tensor, end: int, further: int, which: Which) -> Tensor:
        """Bounds [P, R + 1, M] on what is earned from step t on with up to R further changes, at offsets y [P, D, M].
        Changes before `end` are looked at one by one; later ones together, at the state to which the tail leads."""
        last = self._horizon - 1
        scaled = (self._tails.inverse[which, t] @ y).float()
        gauge = scaled.square().sum(1).sqrt() * (1 + ROUNDING)
        rest = self._beyond(slice(t, t + 1), gauge.unsqueeze(1), 0, which).squeeze(1)
        bests = [rest] + [rest + self._best_last_up[which].unsqueeze(-1)] * further
        if further and end > t:
            moved, off, straight, rests = self._led(t, slice(t, min(end + 1, last)), scaled, gauge, which)
            steps, count = slice(t, end), end - t
            values = self._worth.values(which, steps, moved[:, :count])
            worths = self._worth.at(which, steps, moved[:, :count], values, off[:, :count])
            before = rests[:, :count] + worths.tails.bowed - straight[:, :count] + worths.tails.steep * off[:, :count]
            gain = worths.gain + worths.rest + before.unsqueeze(2)
            following = self._worth.tails(which, slice(end, min(end + 1, last)), moved[:, count:], off[:, count:])
            later = rests[:, count:] + following.bowed - straight[:, count:] + following.steep * off[:, count:]
            for r in range(1, further + 1):
                value = gain + self._beyond(slice(t + 1, end + 1), worths.reached, r - 1, which)
                bests[r] = torch.maximum(bests[r], value.flatten(1, 2).amax(1))
                if end < last:
                    more = later + self._beyond(slice(end, end + 1), following.gauge, r, which)
                    bests[r] = torch.maximum(bests[r], more.squeeze(1))
        return torch.stack(bests, dim=1).double() + self._tail(t, y, which).unsqueeze(1)

    def _led(
        self, t: int, steps: slice, scaled: Tensor, gauge: Tensor, which: Which
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Where tails lead from offsets at t [P, D, M], on steps from t on: offsets [P, C, D, M], how far these can be
        off, all in gauge units; the second-order term of the tail there at what is reached to first order, and what
        the expansion of all rewards before leaves out [P, C, M]."""
        place, power = self._worth.place(gauge), gauge.unsqueeze(1)
        off = looked_up(self._beyonds[which, t, steps], place) * power
        rests = looked_up(self._rests[which, t, steps], place) * power**2
        ways = self._ways[t][which, steps.start - t : steps.stop - t]
        led = (ways.flatten(1, 2) @ features(scaled)[:, 1:]).unflatten(1, ways.shape[1:3])
        return led[:, :, :-1], off, led[:, :, -1], rests

    @property
    def looks_onward(self) -> bool:
        """One exact step leaves less to expand."""
        return True

    @torch.no_grad()
    @single_means_single
    def onward(self, t: int, problem: Tensor, states: Tensor, further: int, needed: Tensor | None = None) -> Tensor:
        """Bounds [N, R + 1] on what is earned from step t on, from states [N, D], with at most R further changes."""
        bounds = states.new_full((len(states), further + 1), torch.inf)
        rows, last = torch.arange(len(states), device=states.device), self._horizon - 1
        hasty = further == 1 and needed is not None and t + NEAR < last
        for end in (t + NEAR, last) if hasty else (last,):
            for which, ranks, valid in self._by_problem(problem[rows], max(1, end - t) * self._width):
                mine = rows[ranks]
                y = (states[mine] - self._center[which, None, t]).mT.contiguous()
                found, mine = self._ahead(t, y, end, further, which).mT[valid], mine[valid]
                bounds[mine] = torch.fmin(bounds[mine], found)
            if needed is not None and end < last:
                rows = rows[~(bounds[rows] <= needed[rows]).all(1)]
                if not len(rows):
                    break
        return unknown_as_infinite(bounds + MARGIN * (1 + bounds.abs()) + self._tolerance[problem, None])

    @torch.no_grad()
    def root(self) -> Tensor:
        """Every single change of the observed sequences [P, K, T, A]."""
        count = len(self._center)
        rewards = self._reward(self._center, self._observed)
        return self.children(
            Nodes(
                level=0,
                problem=torch.arange(count, device=rewards.device),
                start=torch.zeros(count, dtype=torch.int64, device=rewards.device),
                states=self._center,
                outcomes=rewards.sum(1),
            )
        )

    @torch.no_grad()
    @single_means_single
    def children(self, nodes: Nodes) -> Tensor:
        """Bounds [N, K - level, T, A]."""
        rest = self._reward(nodes.states, self._observed[nodes.problem])
        steps = torch.arange(self._horizon, device=rest.device)
        rest = torch.where(steps >= nodes.start.unsqueeze(1), rest, 0.0).flip(1).cumsum(1).flip(1)
        earned = nodes.outcomes.unsqueeze(1) - rest  # [N, T], meaningful from start on
        budgets = self._budget - nodes.level
        shape = (len(nodes.problem), budgets, self._horizon, self._actions)
        bounds = rest.new_full(shape, -torch.inf)
        for first, chosen in self._from_starts(nodes.start):
            later = steps[first:]
            for which, ranks, valid in self._by_problem(nodes.problem[chosen], len(later) * self._width):
                rows = chosen[ranks]
                y = (nodes.states[rows, first:] - self._center[which, None, first:]).permute(0, 2, 3, 1).contiguous()
                found = self._brackets(first, y, budgets, which) + earned[rows, first:].mT[:, None, :, None]
                size = 1 + nodes.outcomes.abs()[rows][:, None, None, None]
                found = torch.where(found > UNKNOWN * size, torch.inf, found)
                found = found + MARGIN * (size + found.abs()) + self._tolerance[which][:, None, None, None, None]
                begun = later.unsqueeze(1) >= nodes.start[rows].unsqueeze(1)  # [P, C, M]
                options = self._changes[which, first:].unsqueeze(-1) & begun.unsqueeze(2)
                found = unknown_as_infinite(found).masked_fill_(~options.unsqueeze(1), -torch.inf)
                bounds[rows[valid], :, first:] = found.permute(0, 4, 1, 2, 3)[valid]
        return bounds

    def _from_starts(self, start: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Nodes that may change again from about the same step on, and the first of these steps."""
        edges = [self._horizon * part // STARTS for part in range(STARTS)] + [self._horizon]
        for first, end in pairwise(edges):
            chosen = ((start >= first) & (start < end)).nonzero().squeeze(-1)
            if len(chosen):
                yield int(start[chosen].min()), chosen

    def _by_problem(self, problem: Tensor, width: int) -> Iterator[tuple[Which, Tensor, Tensor]]:
        """Nodes as rows [P', M] of some problems with about as many nodes each, and which rows only fill up; so few
        that arrays with `width` numbers per row stay small."""
        if len(self._observed) == 1:
            every = torch.arange(len(problem), device=problem.device).unsqueeze(0)
            for rows in every.split(max(1, self._elements // width), dim=1):
                yield slice(None), rows, torch.ones_like(rows, dtype=torch.bool)
            return
        counts = torch.bincount(problem, minlength=len(self._observed))
        order, first = problem.argsort(stable=True), counts.cumsum(0) - counts
        sizes = counts.clamp(min=1).log2().ceil().long().masked_fill(counts == 0, -1)
        if int((counts > 0).sum()) * int(counts.max()) < 2 * len(problem) + FILLED:
            sizes = sizes.clamp(max=0)
        for size in sizes.unique().tolist():
            which = (sizes == size).nonzero().squeeze(-1)
            if size >= 0:
                chosen = slice(None) if len(which) == len(counts) else which
                slots = torch.arange(int(counts[which].max()), device=problem.device)
                valid = slots < counts[which].unsqueeze(1)
                rows = order[torch.where(valid, first[which].unsqueeze(1) + slots, 0)]
                together = max(1, self._elements // (width * len(which)))
                for some in slots.split(together):
                    yield chosen, rows[:, some], valid[:, some]

    def details(self, problem: int = 0) -> Mapping[str, Any]:
        """The radii, the margin added, and up to how many further changes nodes are bounded."""
        return {"radii": list(RADII), "margin": MARGIN, "changes_bounded": len(self._most)}
