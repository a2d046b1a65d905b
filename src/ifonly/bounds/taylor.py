"""The Taylor bound: what later changes are worth at a node, from second-order expansions along the observed path.

A node's state at step c is the observed one plus y. The value of its child (c, a), if nothing else changes, is a
second-order polynomial of y plus at most third_limit |y|^3 / 6. A second change j2 at c2 is worth its gain G at the
state that the first one leads to; between y = 0 and y that gain moves by b.y, with b = flow^T (grad G + hess G e) at
the first change's own effect e on the state at c2, plus a rest that is at most kappa |y| for |y| <= radius. Further
changes move it by at most flow_limit |y| times the norm by which they can turn a gradient. What two first changes are
worth at y = 0 is bounded the same way, for the node that is the first change itself, one budget at a time.

docs/theory.md has the derivation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ifonly.bounds.branches import LARGE, RADII, BranchBuilder
from ifonly.bounds.children import ChildBound, Nodes
from ifonly.bounds.lipschitz import unknown_as_infinite
from ifonly.errors import InputError
from ifonly.models.base import TransitionModel
from ifonly.models.smooth import SmoothStep, norm_limit
from ifonly.problem import Problem, Question, array_scale

ELEMENTS = 4_000_000
"""Numbers in the largest temporary array of a call, on a processor."""

TABLE_ELEMENTS = 2**26
"""Numbers in the tables of pairs of one problem, at most: 512 MiB."""

PANEL_ELEMENTS = 2**28
"""Numbers in the tables of pairs of all members of a panel, at most: 2 GiB."""

MARGIN = 1e-10
"""Outward margin, relative to outcome and bound: far above what rounding does to a polynomial, far below interest."""

UNKNOWN = 1e3
"""Bounds of so many times the outcome's size say nothing, and may come of a limit that was capped: infinite, then."""

DIFFERENCE = 1e-4
"""Distance, in scaled units, at which slopes are compared with what the model says they are."""

NOTHING = -1e200
"""Stands for minus infinity in products, also beside `LARGE`."""


def table_count(problem: Question) -> int:
    """For how many budgets above one there is memory; more changes than that are not bounded."""
    return min(max(0, problem.max_changes - 1), table_elements(problem) // pair_elements(problem))


def table_elements(problem: Question) -> int:
    """Numbers that the tables of pairs may hold: those of a problem, or of one member of a panel."""
    return min(TABLE_ELEMENTS, PANEL_ELEMENTS // len(problem.models))


def pair_elements(problem: Question) -> int:
    """Numbers in the table of all pairs of changes of one problem, for one budget."""
    changes = problem.horizon * problem.action_count
    return changes**2 * (len(RADII) + problem.observed_states.shape[1])


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
    if smooth is None or problem.horizon < 2:
        return smooth
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


@dataclass(frozen=True)
class _Gains:
    """What changes (c2, a2) gain over the observed action, at the states to which first changes (c, a), c < c2, lead.

    C = c2 first steps, A first and B = A second actions, G radii around the observed state at c.
    """

    turn: Tensor  # [P, C, D, A, B], the gain's gradient in the state at c
    rest: Tensor  # [P, C, G, A, B], kappa for two changes
    slopes: Tensor  # [P, C, G, A, B], limits of the gain's gradient in the state at c2
    flow_limit: Tensor  # [P, C, G, A, 1]
    places: Tensor  # [P, C, G, A], the radius around the observed state at c2 that covers the states reached


class TaylorChildBound(ChildBound):
    """Bounds from second-order expansions for P problems that share model, reward, horizon and budget.

    Raises `InputError` where the model's step has kinks, or the reward some that bend upwards.
    """

    method = "taylor"

    @torch.no_grad()
    def __init__(
        self, problems: Sequence[Problem], check: Callable[[], None] = lambda: None, *, tables: int | None = None
    ) -> None:
        """`check` is called now and then, and may raise to end the work; `tables` is `table_count` if not given."""
        first = problems[0]
        tables = table_count(first) if tables is None else tables
        smooth = _smooth_step(first)
        self._check = check
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
        self._radii = torch.tensor(RADII, dtype=torch.float64, device=first.device)
        self._branches = BranchBuilder(problems, smooth, check).build()
        self._polynomials = self._make_polynomials()
        self._tables: dict[int, list[Tensor]] = {}
        if tables:
            self._solve_pairs(1 + tables)
        del self._check  # whoever keeps the bound need not keep the search that made it

    def _make_polynomials(self) -> Tensor:
        """Coefficients [P, C, F, A] of 1, y, y_i y_j and |y|^3 within each radius."""
        b = self._branches
        size = b.gradient.shape[-1]
        i, j = torch.triu_indices(size, size, device=b.value.device)
        twice = torch.where(i == j, 0.5, 1.0).to(b.value)
        parts = (b.value.unsqueeze(-1), b.gradient, b.hessian[..., i, j] * twice, b.third_limit / 6)
        return torch.cat(parts, dim=-1).mT.contiguous()

    def _features(self, y: Tensor) -> Tensor:
        """What the polynomials' coefficients multiply [..., F], for y [..., D]."""
        size = y.shape[-1]
        i, j = torch.triu_indices(size, size, device=y.device)
        length, within = self._within(y)
        return torch.cat((torch.ones_like(length), y, y[..., i] * y[..., j], length**3 * within), dim=-1)

    def _within(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """|y| [..., 1], slightly enlarged, and which radius is the first to cover it [..., G]; none: the last."""
        length = y.norm(dim=-1, keepdim=True) * (1 + 1e-12)
        place = torch.bucketize(length.squeeze(-1).contiguous(), self._radii).clamp(max=len(self._radii) - 1)
        return length, torch.nn.functional.one_hot(place, len(self._radii)).to(y)

    def _place(self, lengths: Tensor) -> Tensor:
        """The first radius that covers each length; G where none does."""
        return torch.bucketize(lengths.contiguous(), self._radii)

    def _gains(self, c2: int) -> _Gains:
        self._check()
        b = self._branches
        gradient, hessian = (self._less_observed(table[:, c2], c2) for table in (b.gradient, b.hessian))
        curvature = norm_limit(hessian)[:, None, None, None]  # [P, 1, 1, 1, B]
        effect, flow = b.path[:, :c2, :, c2], b.flow[:, :c2, :, c2]
        length = (effect.norm(dim=-1) * (1 + 1e-12))[:, :, None, :, None]  # [P, C, 1, A, 1]
        l1, l2, reach = (table[:, :c2, :, c2].mT.unsqueeze(-1) for table in (b.flow_limit, b.bend_limit, b.reach))
        at_effect = gradient[:, None, None] + torch.einsum("pbij,pcaj->pcabi", hessian, effect)
        slope = at_effect.norm(dim=-1).unsqueeze(2)  # [P, C, 1, A, B]
        around = length + reach
        places = self._place(around.squeeze(-1))
        third = self._third_of_gains(c2, places)  # [P, C, G, A, B]
        missed = third * length**2 / 2  # of the gradient, at the first change's own effect
        bend = curvature + third * length  # there
        ball = self._radii[:, None, None]
        rest = missed * l1 + ball / 2 * (slope * l2 + bend * l1**2) + third / 6 * ball**2 * l1**3
        return _Gains(
            turn=torch.einsum("pcaij,pcabi->pcjab", flow, at_effect),
            rest=rest.clamp(max=LARGE) * (1 + 1e-9),
            slopes=(slope + missed + bend * reach + third / 2 * reach**2).clamp(max=LARGE) * (1 + 1e-9),
            flow_limit=l1,
            places=places,
        )

    def _less_observed(self, table: Tensor, c: int) -> Tensor:
        """Minus the observed action's entry, for tables [P, A, ...] of step c."""
        rows = torch.arange(len(table), device=table.device)
        return table - table[rows, self._observed[:, c]].unsqueeze(1)

    def _third_of_gains(self, c2: int, places: Tensor) -> Tensor:
        """Third-derivative limits [P, C, G, A, B] of gains at c2 over the balls numbered places [P, C, G, A]."""
        return _looked_up(self._branches.gain_third_limit[:, c2], places)

    def _solve_pairs(self, most: int) -> None:
        """Tables [P, D + G + 1, A * S] for budgets up to `most` and first steps: what multiplies (y, |y| within, 1).

        S are the second changes. The last row holds what the two changes and r - 2 more earn beyond the first alone,
        from the observed state.
        """
        horizon = self._horizon
        gains = {c2: self._gains(c2) for c2 in range(1, horizon)}
        turned = torch.zeros_like(self._branches.third_limit)  # by further changes, [P, C, A, G]
        for r in range(2, most + 1):
            columns = {c2: self._columns(c2, r, gains[c2], turned) for c2 in range(1, horizon)}
            self._tables[r] = [
                torch.stack([columns[c2][:, c] for c2 in range(c + 1, horizon)], dim=3).flatten(2)
                for c in range(horizon - 1)
            ]
            if r < most:
                turned = self._turns(gains, turned)

    def _columns(self, c2: int, r: int, gains: _Gains, turned: Tensor) -> Tensor:
        """Of the tables, those for second changes at c2: [P, C, D + G + 1, A, B]."""
        self._check()
        b, rest = self._branches, gains.rest
        if r > 2:
            rest = (rest + gains.flow_limit * _looked_up(turned[:, c2], gains.places)).clamp(max=LARGE)
        effects = b.path[:, :c2, :, c2]
        worth = self._brackets(c2, effects.flatten(1, 2), r - 1).unflatten(1, effects.shape[1:3])  # [P, C, A, B]
        beyond = b.earned[:, :c2, :, c2, None] + worth - b.value[:, :c2, :, None]
        beyond = torch.where(self._changes[:, None, None, c2], beyond, NOTHING)
        return torch.cat((gains.turn, rest, beyond.unsqueeze(2)), dim=2)

    def _turns(self, gains: Mapping[int, _Gains], turned: Tensor) -> Tensor:
        """By how much q + 1 further changes turn a branch's gradient [P, C, A, G], from the same for q."""
        result = torch.zeros_like(turned)
        for c2, gain in gains.items():
            total = gain.flow_limit * (gain.slopes + _looked_up(turned[:, c2], gain.places))
            total = torch.where(self._changes[:, None, None, None, c2], total, 0.0).amax(-1)  # [P, C, G, A]
            result[:, :c2] = torch.maximum(result[:, :c2], total.mT.clamp(max=LARGE))
        return result * (1 + 1e-9)

    def _brackets(self, c: int, y: Tensor, r: int, which: Tensor | slice = slice(None)) -> Tensor:
        """Bounds [P, M, A] on what is earned from step c on by changes at c and r - 1 later, at offsets y [P, M, D]."""
        length, within = self._within(y)
        value = self._features(y) @ self._polynomials[which, c]
        if r > 1 and c < self._horizon - 1:
            if r not in self._tables:
                return torch.full_like(value, torch.inf)
            features = torch.cat((y, length * within, torch.ones_like(length)), dim=-1)
            value = value + self._best_second(features, self._tables[r][c][which])
        return torch.where(length > self._radii[-1], torch.inf, value)

    def _best_second(self, features: Tensor, table: Tensor) -> Tensor:
        """The most that a second change and those after it add [P, M, A], at least nothing."""
        rows = max(1, ELEMENTS * array_scale(table.device) // (table.shape[0] * table.shape[2]))
        parts = []
        for part in features.split(rows, dim=1):
            scores = part @ table
            parts.append(scores.unflatten(2, (self._actions, -1)).amax(-1))
        return torch.cat(parts, dim=1).clamp(min=0.0)

    @torch.no_grad()
    def root(self) -> Tensor:
        """Every single change of the observed sequences [P, K, T, A]."""
        b = self._branches
        count = len(b.center)
        rewards = self._reward(b.center, self._observed)
        return self.children(
            Nodes(
                level=0,
                problem=torch.arange(count, device=b.center.device),
                start=torch.zeros(count, dtype=torch.int64, device=b.center.device),
                states=b.center,
                outcomes=rewards.sum(1),
            )
        )

    @torch.no_grad()
    def children(self, nodes: Nodes) -> Tensor:
        """Bounds [N, K - level, T, A]."""
        rest = self._reward(nodes.states, self._observed[nodes.problem])
        steps = torch.arange(self._horizon, device=rest.device)
        rest = torch.where(steps >= nodes.start.unsqueeze(1), rest, 0.0).flip(1).cumsum(1).flip(1)
        earned = nodes.outcomes.unsqueeze(1) - rest  # [N, T], meaningful from start on
        budgets = self._budget - nodes.level
        bounds = torch.full(
            (len(nodes.problem), budgets, self._horizon, self._actions),
            -torch.inf,
            dtype=torch.float64,
            device=rest.device,
        )
        for c in range(int(nodes.start.min()) if len(nodes.start) else self._horizon, self._horizon):
            late = (nodes.start <= c).nonzero().squeeze(-1)
            for which, rows, valid in self._by_problem(nodes.problem[late]):
                mine = late[rows]
                y = nodes.states[mine, c] - self._branches.center[which, None, c]
                for r in range(1, budgets + 1):
                    bounds[mine[valid], r - 1, c] = self._brackets(c, y, r, which)[valid]
        bounds = bounds + earned[:, None, :, None]
        size = 1 + nodes.outcomes.abs()[:, None, None, None]
        bounds = torch.where(bounds > UNKNOWN * size, torch.inf, bounds)
        bounds = bounds + MARGIN * (size + bounds.abs()) + self._tolerance[nodes.problem, None, None, None]
        options = self._changes[nodes.problem] & (steps >= nodes.start.unsqueeze(1)).unsqueeze(-1)
        return unknown_as_infinite(bounds).masked_fill(~options.unsqueeze(1), -torch.inf)

    def _by_problem(self, problem: Tensor) -> Iterator[tuple[Tensor | slice, Tensor, Tensor]]:
        """Nodes as rows [P', M] of some problems with about as many nodes each, and which rows only fill up."""
        counts = torch.bincount(problem, minlength=len(self._observed))
        order, first = problem.argsort(stable=True), counts.cumsum(0) - counts
        sizes = counts.clamp(min=1).log2().ceil().long().masked_fill(counts == 0, -1)
        for size in sizes.unique().tolist():
            which = (sizes == size).nonzero().squeeze(-1)
            if size >= 0:
                slots = torch.arange(int(counts[which].max()), device=problem.device)
                valid = slots < counts[which].unsqueeze(1)
                rows = order[torch.where(valid, first[which].unsqueeze(1) + slots, 0)]
                yield slice(None) if len(which) == len(counts) else which, rows, valid

    def details(self, problem: int = 0) -> Mapping[str, Any]:
        """The radii, the margin added, and up to how many further changes nodes are bounded."""
        return {"radii": list(RADII), "margin": MARGIN, "changes_bounded": 1 + len(self._tables)}


def _looked_up(limits: Tensor, places: Tensor) -> Tensor:
    """Entries [P, C, G, A, B] of limits [P, B, G] at the radii numbered places [P, C, G, A]; beyond the last: LARGE."""
    padded = torch.cat((limits, torch.full_like(limits[..., :1], LARGE)), dim=-1).mT  # [P, G + 1, B]
    rows = torch.arange(len(limits), device=limits.device)
    return padded[rows[:, None, None, None], places]
