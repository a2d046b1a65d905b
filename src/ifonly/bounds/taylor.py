"""The Taylor bound: what later changes are worth at a node, from second-order expansions along the observed path.

A node's state at step c is the observed one plus y. Its child (c, a) alone is worth a second-order polynomial of y plus
a rest that grows with the third power of y's gauge. A second change (c2, a2) adds its gain at the state to which the
first leads: worth + turn.y, plus limits of what bends, curvature and the gain's own rest add. Further changes are
bounded at the first change's own effect and for every state within some slack of it, one budget at a time.

docs/theory.md has the derivation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ifonly.bounds.branches import RADII, BranchBuilder
from ifonly.bounds.children import ChildBound, Nodes
from ifonly.bounds.limits import LARGE, single_means_single
from ifonly.bounds.lipschitz import unknown_as_infinite
from ifonly.errors import InputError
from ifonly.models.base import TransitionModel
from ifonly.models.smooth import SmoothStep, norm_limit
from ifonly.problem import Problem, Question, array_scale

ELEMENTS = 4_000_000
"""Numbers in the largest temporary array of a call, on a processor."""

MOST_TABLES = 3
"""Budgets above one for which tables are made: of more changes they would say little, and each takes a while."""

SOME_RADII = (0, 3, 6, 9, 12, 15, len(RADII) - 1)
"""Numbers of the radii for which it is computed by how much more than two changes can bring."""

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

NOTHING = -1e30
"""Stands for minus infinity, in single precision too."""

SINGLE = 1e-5
"""Relative room for rounding in single precision: sums of some twenty products stay within it."""


def table_count(problem: Question) -> int:
    """For how many budgets above one there are tables, memory permitting; more changes than that are not bounded.

    Only the root could ask for the whole budget, and looking at every single change costs no more than that answer.
    """
    return min(max(0, problem.max_changes - 2), MOST_TABLES, table_elements(problem) // pair_elements(problem))


def table_elements(problem: Question) -> int:
    """Numbers that the tables of pairs may hold: those of a problem, or of one member of a panel."""
    return min(TABLE_ELEMENTS, PANEL_ELEMENTS // len(problem.models))


def pair_elements(problem: Question) -> int:
    """Numbers in the table of all pairs of changes of one problem, for one budget."""
    changes = problem.horizon * problem.action_count
    return changes**2 * (1 + problem.observed_states.shape[1])


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
class _Pairs:
    """First changes (c, a) of one step c, followed by changes (c2, a2) of S later steps; G radii around the state at c.

    Both changes earn what the first earns alone, plus the gain of the second at the state to which the first leads.
    What is multiplied by nodes' offsets - reached, flow, turn and worth - is in single precision.
    """

    reached: Tensor  # [P, D*S*A], the states at c2 to which first changes lead from the observed state, in gauge units
    flow: Tensor  # [P, D, D*S*A], how these move with the state at c
    spread: Tensor  # [P, S*A], by at most how much
    bend: Tensor  # [P, G + 1, S*A], limits of what that leaves out, in gauge units
    turn: Tensor  # [P, D, B*S*A], how the gains move with the state at c
    steepness: Tensor  # [P, S*A], by at most how much
    rest: Tensor  # [P, G + 1, S*A], limits of what the gains' expansions leave out, but for their own rests ...
    own_rest: Tensor  # [P, S*(G + 1)], ... per third power of the gauge at c2
    worth: dict[int, Tensor]  # [P, B*S*A], for each budget: the gains at y = 0, and what more changes add
    growth: dict[int, Tensor]  # [P, G + 1, S*A], by how much the latter can grow

    def of(self, which: Tensor | slice) -> _Pairs:
        """Some of the problems."""
        if isinstance(which, slice):
            return self
        tensors = [getattr(self, field.name)[which] for field in fields(self)[:-2]]
        dicts = ({r: table[which] for r, table in tables.items()} for tables in (self.worth, self.growth))
        return _Pairs(*tensors, *dicts)


@dataclass(frozen=True)
class _Shared:
    """What all first changes need of changes (c2, a2) at any step."""

    value: Tensor  # [P, T, A], of the gain over the observed action
    gradient: Tensor  # [P, T, A, D]
    hessian: Tensor  # [P, T, A, D, D]
    curvature: Tensor  # [P, T], its largest norm, in gauge units
    inverse_norm: Tensor  # [P, T]
    rest: Tensor  # [P, T, G + 1], limits of what expansions of any gain leave out, per third power of the gauge


class TaylorChildBound(ChildBound):
    """Bounds from second-order expansions for P problems that share model, reward, horizon and budget.

    Raises `InputError` where the model's step has kinks, or the reward some that bend upwards.
    """

    method = "taylor"

    @torch.no_grad()
    @single_means_single
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
        self._single = max(SINGLE, 2e-7 * first.observed_states.shape[1] ** 1.5)
        self._branches = BranchBuilder(problems, smooth, check).build()
        self._polynomials = self._make_polynomials()
        self._bounded = 1
        if tables:
            self._solve_pairs(1 + tables)
        del self._check  # whoever keeps the bound need not keep the search that made it

    def _make_polynomials(self) -> Tensor:
        """Coefficients [P, C, F, A] of 1, y, y_i y_j and the gauge's third power within each radius."""
        b = self._branches
        size = b.gradient.shape[-1]
        i, j = torch.triu_indices(size, size, device=b.value.device)
        twice = torch.where(i == j, 0.5, 1.0).to(b.value)
        # A rest shrinks at least with the third power of the gauge.
        parts = (b.value.unsqueeze(-1), b.gradient, b.hessian[..., i, j] * twice, b.rest / self._radii**3)
        return torch.cat(parts, dim=-1).mT.contiguous()

    def _values(self, c: int, y: Tensor, place: Tensor, gauge: Tensor, which: Tensor | slice) -> Tensor:
        """What single changes at c earn from there on, at most [P, M, A], at offsets y [P, M, D]."""
        size = y.shape[-1]
        i, j = torch.triu_indices(size, size, device=y.device)
        within = torch.nn.functional.one_hot(place.clamp(max=len(self._radii) - 1), len(self._radii))
        cubes = gauge.unsqueeze(-1) ** 3 * within
        features = torch.cat((torch.ones_like(cubes[..., :1]), y, y[..., i] * y[..., j], cubes), dim=-1)
        return features @ self._polynomials[which, c]

    def _measure(
        self, c: int, y: Tensor, which: Tensor | slice = slice(None), slack: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The gauge [P, M] of offsets y [P, M, D] at step c, slightly enlarged, and the first radius that covers it."""
        gauge = (y @ self._branches.inverse[which, c]).norm(dim=-1) * (1 + 1e-12)
        return gauge, self._place(gauge if slack is None else gauge + slack)

    def _place(self, gauges: Tensor) -> Tensor:
        """The first radius that covers each gauge; G where none does."""
        return torch.bucketize(gauges.contiguous(), self._radii)

    def _make_pairs(self, c: int, shared: _Shared) -> _Pairs:
        """Everything but what more than two changes bring."""
        self._check()
        b, later = self._branches, slice(c + 1, None)
        gradient, hessian = shared.gradient[:, later], shared.hessian[:, later]
        effects = b.path[:, c, :, later].transpose(1, 2)  # [P, S, A, D]
        flow = b.flow[:, c, :, later].transpose(1, 2)  # [P, S, A, D, D]
        inverse, own = b.inverse[:, later, None], b.unit[:, c, None, None]
        changes = self._changes[:, later, None]  # [P, S, 1, B]
        # The gains' gradients at the effects of first changes [P, S, A, B, D].
        turned = (effects.unsqueeze(2) @ hessian + gradient.unsqueeze(3)).transpose(2, 3)
        halves = ((turned + gradient.unsqueeze(2)) @ effects.unsqueeze(-1)).squeeze(-1) / 2
        worth = torch.where(changes, shared.value[:, later, None] + halves, NOTHING)
        turn = turned @ flow
        scaled = inverse @ flow
        spread = norm_limit(scaled @ own, squarings=2)
        bend = b.bend[:, c, :, later].transpose(1, 2)
        bent = shared.inverse_norm[:, later, None, None] * bend
        steepest, steepness = (
            torch.where(changes, gradients.square().sum(-1), 0.0).amax(-1).sqrt() for gradients in (turned, turn @ own)
        )
        reach = spread.unsqueeze(-1) * self._radii + bent
        rest = steepest.unsqueeze(-1) * bend + shared.curvature[:, later, None, None] * reach**2 / 2
        return _Pairs(
            reached=(inverse.squeeze(2) @ effects.mT).transpose(1, 2).flatten(1).float(),
            flow=scaled.permute(0, 4, 3, 1, 2).flatten(2).float(),
            spread=spread.flatten(1),
            bend=_by_radius(bent),
            turn=turn.permute(0, 4, 3, 1, 2).float().flatten(2),
            steepness=steepness.flatten(1) * (1 + 1e-9),
            rest=_by_radius(rest * (1 + 1e-9)),
            own_rest=shared.rest[:, later].flatten(1),
            worth={2: worth.permute(0, 3, 1, 2).float().flatten(1)},
            growth={},
        )

    def _less_observed(self, table: Tensor) -> Tensor:
        """Minus the observed action's entries, for tables [P, T, A, ...]."""
        index = self._observed.view(*self._observed.shape, *[1] * (table.dim() - 2))
        return table - table.gather(2, index.expand(-1, -1, 1, *table.shape[3:]))

    def _share(self) -> _Shared:
        b = self._branches
        value, gradient, hessian = (self._less_observed(table) for table in (b.value, b.gradient, b.hessian))
        unit = b.unit.unsqueeze(2)
        curvature = torch.where(self._changes, norm_limit(unit @ hessian @ unit), 0.0).amax(-1)
        rest = b.rest.gather(2, self._observed[..., None, None].expand(-1, -1, 1, len(self._radii))).squeeze(2)
        rest = rest + torch.where(self._changes.unsqueeze(-1), b.rest, 0.0).amax(2)
        return _Shared(
            value,
            gradient,
            hessian,
            curvature,
            norm_limit(b.inverse),
            _padded((rest / self._radii**3).clamp(max=LARGE)),
        )

    def _solve_pairs(self, most: int) -> None:
        """Tables for budgets up to `most`, one budget at a time."""
        shared = self._share()
        self._pairs = [self._make_pairs(c, shared) for c in range(self._horizon - 1)]
        self._bounded = most
        for r in range(3, most + 1):
            self._add_budget(r)

    def _add_budget(self, r: int) -> None:
        """What second changes are worth with r - 2 more after them, from what r - 1 are worth without the first."""
        b, count, actions = self._branches, len(self._observed), self._actions
        more: list[list[Tensor]] = [[] for _ in self._pairs]  # for each first step, of each second: [P, A, B]
        grown: list[list[Tensor]] = [[] for _ in self._pairs]  # [P, A, G]
        for c2 in range(1, self._horizon):
            self._check()
            if c2 == self._horizon - 1:
                least = self._radii.new_zeros(count, c2 * actions, actions)
                growth = self._radii.new_zeros(count, c2 * actions, len(self._radii))
            else:
                effects, changes = b.path[:, :c2, :, c2].flatten(1, 2), self._changes[:, None, c2]
                least = self._later(c2, effects, r - 1)
                some = {
                    place: torch.where(changes, self._later(c2, effects, r - 1, slack=slack) - least, 0.0).amax(-1)
                    for place, slack in enumerate(self._moves(c2).unbind(-1))
                    if place in SOME_RADII
                }
                # Growth grows with the radius: elsewhere the next larger one's will do.
                places = [min(one for one in SOME_RADII if one >= place) for place in range(len(self._radii))]
                growth = torch.stack([some[place] for place in places], dim=-1)
            for c, parts in enumerate(zip(least.split(actions, 1), growth.split(actions, 1), strict=True)):
                more[c].append(parts[0])
                grown[c].append(parts[1])
        for pairs, own, growths in zip(self._pairs, more, grown, strict=True):
            added = torch.stack(own, dim=1).permute(0, 3, 1, 2).flatten(1)
            pairs.worth[r] = pairs.worth[2] + (added * (1 + self._single)).clamp(max=-NOTHING / 10).float()
            pairs.growth[r] = _by_radius(torch.stack(growths, dim=1))

    def _moves(self, c2: int) -> Tensor:
        """By how much, in gauge units, states at c2 after first changes move with the state before [P, C*A, G]."""
        parts = []
        for c, pairs in enumerate(self._pairs[:c2]):
            step = slice((c2 - c - 1) * self._actions, (c2 - c) * self._actions)
            parts.append(pairs.spread[:, step, None] * self._radii + pairs.bend[:, :-1, step].mT)
        return torch.cat(parts, dim=1)

    def _later(
        self, c: int, y: Tensor, r: int, which: Tensor | slice = slice(None), *, slack: Tensor | None = None
    ) -> Tensor:
        """The most [P, M, A] that r - 1 changes after one at c add at offsets y [P, M, D], or at any state whose gauge
        from there is at most `slack` [P, M]; at least nothing."""
        pairs = self._pairs[c].of(which)
        rows = max(1, ELEMENTS * array_scale(y.device) // (len(pairs.turn) * pairs.turn.shape[2]))
        slacks = [None] * -(-y.shape[1] // rows) if slack is None else slack.split(rows, dim=1)
        parts = zip(y.split(rows, dim=1), slacks, strict=True)
        return torch.cat([self._later_part(c, part, r, (pairs, which), own) for part, own in parts], dim=1)

    def _later_part(
        self, c: int, y: Tensor, r: int, tables: tuple[_Pairs, Tensor | slice], slack: Tensor | None
    ) -> Tensor:
        pairs, which = tables
        later, several = self._horizon - 1 - c, len(self._radii) + 1
        gauge, place = self._measure(c, y, which, slack)
        rows, single = torch.arange(len(y), device=y.device).unsqueeze(1), y.float()
        scores = torch.baddbmm(pairs.worth[r].unsqueeze(1), single, pairs.turn)
        scores = scores.unflatten(2, (self._actions, -1)).amax(2).double()  # [P, M, S*A]
        reached = torch.baddbmm(pairs.reached.unsqueeze(1), single, pairs.flow)
        away = reached.unflatten(2, (y.shape[-1], -1)).square().sum(2).sqrt().double()
        off = (gauge * self._single + (0.0 if slack is None else slack)).unsqueeze(-1)
        scores = scores + self._single * scores.abs() + pairs.steepness.unsqueeze(1) * off
        away = away * (1 + self._single) + pairs.spread.unsqueeze(1) * off + pairs.bend[rows, place]
        steps = torch.arange(later, device=y.device).repeat_interleave(self._actions) * several
        cubes = pairs.own_rest[rows.unsqueeze(-1), steps + self._place(away)]
        scores = scores + pairs.rest[rows, place] + cubes * away**3
        if r > 2:
            scores = scores + pairs.growth[r][rows, place]
        best: Tensor = scores.unflatten(2, (later, self._actions)).amax(2)
        return best.clamp(min=0.0, max=LARGE)

    def _brackets(self, c: int, y: Tensor, budgets: int, which: Tensor | slice = slice(None)) -> Tensor:
        """Bounds [P, M, R, A] on what is earned from step c on by changes at c and r - 1 later, at offsets y."""
        gauge, place = self._measure(c, y, which)
        single = self._values(c, y, place, gauge, which)
        single = torch.where((place == len(self._radii)).unsqueeze(-1), torch.inf, single)
        values = [single]
        for r in range(2, budgets + 1):
            if c == self._horizon - 1:
                values.append(single)
            elif r > self._bounded:
                values.append(torch.full_like(single, torch.inf))
            else:
                values.append(single + self._later(c, y, r, which))
        return torch.stack(values, dim=2)

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
    @single_means_single
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
                bounds[mine[valid], :, c] = self._brackets(c, y, budgets, which)[valid]
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
        return {"radii": list(RADII), "margin": MARGIN, "changes_bounded": self._bounded}


def _padded(limits: Tensor) -> Tensor:
    """With LARGE for what lies beyond the last radius, the last axis."""
    return torch.cat((limits, torch.full_like(limits[..., :1], LARGE)), dim=-1)


def _by_radius(limits: Tensor) -> Tensor:
    """Limits [P, G + 1, S*A] from [P, S, A, G], with one for what lies beyond the last radius."""
    return _padded(limits.clamp(max=LARGE)).flatten(1, 2).mT.contiguous()
