"""The Taylor bound: upper bounds on what further changes can bring, at nodes and from any state.

A node's state at step c is the recorded one plus y. A change (c, a) there has an advantage over the recorded policy
that is a quadratic polynomial of y, plus remainders (T35); what further changes add after it is bounded on a ball, or
after that very change (T38). From any state, the recorded policy leads to known states, at each of which the best
change is bounded (T50), (T51). docs/theory.md has the derivation, and the equation numbers.

Precision: outcomes, value expansions P and rewards are float64. What is added to P - advantages, remainders, largest
advantages - is evaluated in float32 with the margins (T53) and (T55), and norms of derivatives in it are multiplied in
float32 with (T54); each is at least four times what rounding does. (T56) is added to every bound in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ifonly.bounds.base import ChildBound, Nodes, unknown_as_infinite
from ifonly.bounds.taylor.advantages import expand_advantages, last_advantages
from ifonly.bounds.taylor.applicability import can_expand, smooth_step
from ifonly.bounds.taylor.blocks import ELEMENTS, rows_by_problem, rows_by_start
from ifonly.bounds.taylor.displacement import DisplacementTables, displacement_tables, follow_recorded
from ifonly.bounds.taylor.evaluation import (
    AdvantageTables,
    CurvatureAt,
    ProblemIndex,
    advantage_tables,
    evaluate_advantages,
    evaluate_curvature,
)
from ifonly.bounds.taylor.largest_advantage import (
    BALLS,
    Expansions,
    LargestAdvantages,
    ball_bound,
    largest_advantages,
)
from ifonly.bounds.taylor.norms import (
    full_precision_float32_matmul,
    largest_product_margin,
    second_derivatives_dtype,
)
from ifonly.bounds.taylor.polynomials import FLOAT32_MARGIN, sum_margin
from ifonly.bounds.taylor.radii import RADII, looked_up
from ifonly.bounds.taylor.recorded import RecordedPaths
from ifonly.bounds.taylor.value_expansion import ValueExpansion, expand_values
from ifonly.errors import InputError
from ifonly.problem import Problem, array_scale
from ifonly.progress import look_at_clock
from ifonly.rewards.bound import BoundReward

NEAR = 2
"""Steps whose changes are examined one by one before all are."""

MARGIN = 1e-10
"""(T56): outward margin of every bound, relative to outcome and bound: far above what float64 rounding does to a
polynomial, far below interest."""

UNKNOWN = 1e3
"""Bounds on children above UNKNOWN * (1 + abs(outcome)) become +inf: they prune nothing and may come of a cap."""


@dataclass(frozen=True)
class TaylorTables:
    """Everything that the bounds of P problems are computed from; they share model, reward, horizon and budget."""

    reward: BoundReward
    max_changes: int
    block_elements: int  # numbers in the largest temporary arrays
    actions: Tensor  # [P, T], recorded
    states: Tensor  # [P, T, D], recorded
    changes: Tensor  # [P, T, A], allowed and not the recorded action
    tolerance: Tensor  # [P], of each problem
    values: ValueExpansion  # float64
    last: Tensor  # [P, A], advantages at the last step (T37), float64
    advantages: AdvantageTables  # float32
    displacements: DisplacementTables  # float32, but for what the other tables were made of
    largest: LargestAdvantages  # float32
    balls: Tensor  # [B], BALLS
    units: int  # hidden, in the largest first layer of the model

    @property
    def horizon(self) -> int:
        """T."""
        return self.actions.shape[1]

    def rewards(self, states: Tensor, actions: Tensor) -> Tensor:
        """Rewards [N, T] of whole courses [N, T, D] with actions [N, T], whatever they change."""
        return self.reward(states, actions, torch.arange(self.horizon, device=states.device))

    @property
    def row_width(self) -> int:
        """Numbers that one row takes at one step."""
        return self.advantages.polynomials.shape[2] + self.advantages.polynomials.shape[3]


@cache
def keep_freed_memory() -> None:
    """Have the C library keep the memory of freed arrays for the next ones, instead of handing it back to the system.

    glibc hands back whatever is free beyond twice the largest block that it ever mapped and freed, 128 KiB at first;
    to get pages again costs more than what is computed in them. So free one block of nearly the largest size that
    counts, 32 MiB; its pages are never touched. Elsewhere nothing happens.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


@torch.no_grad()
@full_precision_float32_matmul
def build_tables(problems: Sequence[Problem]) -> TaylorTables:
    """The tables of P problems.

    Raises `InputError` where the model's step or the reward cannot be expanded.
    """
    keep_freed_memory()
    first = problems[0]
    smooth = smooth_step(first)
    if smooth is None or not can_expand(first):
        raise InputError(
            f"episode {first.episode.id!r}: the Taylor bound needs a model whose step has three derivatives and a "
            "reward that is a sum of features or bends downwards, as penalties do; use bound='lipschitz', or "
            "'auto' to let the problem decide."
        )
    paths = RecordedPaths.of(problems, smooth)
    with torch.inference_mode():  # a seventh faster; models of users, which may do what it forbids, are done with
        values = expand_values(paths)
        advantages, last, changes = expand_advantages(paths, values), last_advantages(paths), paths.changes()
        tables, displacements = advantage_tables(values, advantages, changes[:, :-1]), displacement_tables(values)
        expansions = Expansions(values, advantages, tables, displacements, changes, last)
        tolerances = torch.tensor([problem.tolerance for problem in problems], dtype=torch.float64)
        return TaylorTables(
            reward=first.bound_reward,
            max_changes=first.max_changes,
            block_elements=ELEMENTS * array_scale(first.device),
            actions=paths.actions,
            states=paths.states,
            changes=changes,
            tolerance=tolerances.to(first.device),
            values=values,
            last=last,
            advantages=tables,
            displacements=displacements,
            largest=largest_advantages(expansions, first.max_changes),
            balls=torch.tensor(BALLS, dtype=torch.float64, device=first.device),
            units=max((len(part.state) for part in smooth.parts), default=0),
        )


def recorded_value(tables: TaylorTables, which: ProblemIndex, steps: slice | int, y: Tensor) -> Tensor:
    """P (T5) [P, (C,) M] at displacements y [P, (C,) D, M], in scaled units; float64."""
    values = tables.values
    terms = (values.hessian[which, steps] @ y / 2 + values.gradient[which, steps].unsqueeze(-1)) * y
    return terms.sum(-2) + values.value[which, steps].unsqueeze(-1)


def change_bounds(
    tables: TaylorTables, which: ProblemIndex, first: int, y: Tensor, last_rewards: Tensor, budgets: int
) -> Tensor:
    """Bounds [P, R, C, A, M] on what is earned from each step c >= `first` on, by a change there and at most r - 1
    later ones, from displacements y [P, C, D, M]: (T35), and (T38) for r > 1. `last_rewards` [P, M] are what the
    recorded action earns at the last step."""
    value = recorded_value(tables, which, slice(first, None), y)
    last = (last_rewards.unsqueeze(1) + tables.last[which].unsqueeze(-1)).unsqueeze(1)  # (T37), [P, 1, A, M]
    if first == tables.horizon - 1:
        return last.unsqueeze(1).expand(-1, budgets, -1, -1, -1)
    steps = slice(first, tables.horizon - 1)
    scaled = (tables.values.inverse_root[which, steps] @ y[:, :-1]).float()  # metric units; float32 from here on
    found = evaluate_advantages(tables.advantages, which, steps, scaled)
    advantage = found.advantage + found.remainder
    bounds = []
    for later_changes in range(budgets):
        later = ball_bound(tables.largest, which, slice(first + 1, None), found.reached, later_changes)
        if later_changes == 1 and tables.largest.after_change is not None:  # (T48)
            ball = torch.bucketize(found.curvature.norm, tables.balls)
            later = torch.minimum(later, looked_up(tables.largest.after_change[which, steps], ball))
        bounds.append(torch.cat(((advantage + later).double() + value[:, :-1].unsqueeze(2), last), dim=1))
    return torch.stack(bounds, dim=1)


def future_bounds(tables: TaylorTables, which: ProblemIndex, t: int, y: Tensor, end: int, changes_left: int) -> Tensor:
    """Bounds [P, R + 1, M] on what is earned from step t on with at most r = 0, ..., R = `changes_left` changes, from
    displacements y [P, D, M]. First changes before `end` are examined one by one (T50); all later ones together, by the
    ball at `end` (T51)."""
    last, largest = tables.horizon - 1, tables.largest
    scaled = (tables.values.inverse_root[which, t] @ y).float()  # metric units; float32 from here on
    norm = scaled.square().sum(1).sqrt() * (1 + FLOAT32_MARGIN)
    remainder = ball_bound(largest, which, slice(t, t + 1), norm.unsqueeze(1), 0).squeeze(1)
    # Without a change the value remainder is left; with one at the last step its advantage is added.
    best = [remainder] + [remainder + largest.last[which].unsqueeze(-1)] * changes_left
    if changes_left and end > t:
        followed = slice(t, min(end + 1, last))
        there = follow_recorded(tables.displacements, tables.advantages.index, which, followed, scaled, norm)
        steps, count = slice(t, end), end - t
        found = evaluate_advantages(tables.advantages, which, steps, there.y[:, :count], there.off[:, :count])
        tail = slice(end, min(end + 1, last))
        after = evaluate_curvature(tables.advantages, which, tail, there.y[:, count:], there.off[:, count:])

        def before(curvature: CurvatureAt, rows: slice) -> Tensor:
            """(T39): what the rewards before a step exceed their expansion by, and the bracket (T50)."""
            extra = there.remainder[:, rows] + curvature.term - there.first_order_term[:, rows]
            return extra + curvature.slope * there.off[:, rows]

        total = found.advantage + found.remainder + before(found.curvature, slice(count)).unsqueeze(2)
        later = before(after, slice(count, None))
        for r in range(1, changes_left + 1):
            bound = total + ball_bound(largest, which, slice(t + 1, end + 1), found.reached, r - 1)
            best[r] = torch.maximum(best[r], bound.flatten(1, 2).amax(1))
            if end < last:
                together = later + ball_bound(largest, which, slice(end, end + 1), after.norm, r)  # (T51)
                best[r] = torch.maximum(best[r], together.squeeze(1))
    return torch.stack(best, dim=1).double() + recorded_value(tables, which, t, y).unsqueeze(1)


class TaylorChildBound(ChildBound):
    """Bounds from second-order expansions for P problems that share model, reward, horizon and budget.

    Raises `InputError` where the model's step has kinks, or the reward some that bend upwards.
    """

    method = "taylor"
    has_reward_to_go = True

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.tables = build_tables(problems)

    @torch.no_grad()
    def root(self) -> Tensor:
        """Every single change of the recorded sequences [P, K, T, A]."""
        tables, count = self.tables, len(self.tables.states)
        rewards = tables.rewards(tables.states, tables.actions)
        return self.children(
            Nodes(
                level=0,
                problem=torch.arange(count, device=rewards.device),
                start=torch.zeros(count, dtype=torch.int64, device=rewards.device),
                states=tables.states,
                outcomes=rewards.sum(1),
            )
        )

    @full_precision_float32_matmul
    def children(self, nodes: Nodes) -> Tensor:
        """Bounds [N, K - level, T, A]: what the node earned before each change, plus `change_bounds`."""
        shape = (nodes.budgets(self.tables.max_changes), *self.tables.changes.shape[1:])
        bounds = nodes.outcomes.new_full((len(nodes.problem), *shape), -torch.inf)
        with torch.inference_mode():
            self._fill_children(nodes, bounds)
        return bounds

    def _fill_children(self, nodes: Nodes, bounds: Tensor) -> None:
        """The bounds of `children`, in place."""
        tables = self.tables
        rewards = tables.rewards(nodes.states, tables.actions[nodes.problem])
        steps = torch.arange(tables.horizon, device=rewards.device)
        to_come = torch.where(steps >= nodes.start.unsqueeze(1), rewards, 0.0).flip(1).cumsum(1).flip(1)
        earned = nodes.outcomes.unsqueeze(1) - to_come  # [N, T], before each step; meaningful from start on
        for first, chosen in rows_by_start(nodes.start, tables.horizon):
            later = steps[first:]
            for which, ranks, valid in self._blocks(nodes.problem[chosen], len(later)):
                rows = chosen[ranks]
                y = (nodes.states[rows, first:] - tables.states[which, None, first:]).permute(0, 2, 3, 1).contiguous()
                found = change_bounds(tables, which, first, y, rewards[rows, -1], bounds.shape[1])
                found = found + earned[rows, first:].mT[:, None, :, None]
                size = 1 + nodes.outcomes.abs()[rows][:, None, None, None]
                found = torch.where(found > UNKNOWN * size, torch.inf, found)
                tolerance = tables.tolerance[which][:, None, None, None, None]
                found = found + MARGIN * (size + found.abs()) + tolerance  # (T56)
                begun = later.unsqueeze(1) >= nodes.start[rows].unsqueeze(1)  # [P, C, M]
                options = tables.changes[which, first:].unsqueeze(-1) & begun.unsqueeze(2)
                found = unknown_as_infinite(found).masked_fill_(~options.unsqueeze(1), -torch.inf)
                bounds[rows[valid], :, first:] = found.permute(0, 4, 1, 2, 3)[valid]

    @full_precision_float32_matmul
    def reward_to_go(
        self, t: int, problem: Tensor, states: Tensor, changes_left: int, cutoff: Tensor | None = None
    ) -> Tensor:
        """Bounds [N, R + 1] on what is earned from step t on, from states [N, D], with at most R changes left."""
        bounds = states.new_full((len(states), changes_left + 1), torch.inf)
        with torch.inference_mode():
            self._fill_to_go(bounds, t, problem, states, changes_left, cutoff)
        return bounds

    def _fill_to_go(
        self, bounds: Tensor, t: int, problem: Tensor, states: Tensor, changes_left: int, cutoff: Tensor | None
    ) -> None:
        """The bounds of `reward_to_go`, in place."""
        tables, last = self.tables, self.tables.horizon - 1
        rows = torch.arange(len(states), device=states.device)
        # For one change left the first steps often tell enough; what stays above the cutoff is examined in full.
        two_passes = changes_left == 1 and cutoff is not None and t + NEAR < last
        for end in (t + NEAR, last) if two_passes else (last,):
            for which, ranks, valid in self._blocks(problem[rows], max(1, end - t)):
                mine = rows[ranks]
                y = (states[mine] - tables.states[which, None, t]).mT.contiguous()
                found, mine = future_bounds(tables, which, t, y, end, changes_left).mT[valid], mine[valid]
                bounds[mine] = torch.fmin(bounds[mine], found)
            if cutoff is not None and end < last:
                rows = rows[~(bounds[rows] <= cutoff[rows]).all(1)]  # NaN bounds are never pruned
                if not len(rows):
                    break
        bounds += MARGIN * (1 + bounds.abs()) + tables.tolerance[problem, None]  # (T56)
        bounds.nan_to_num_(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)

    def details(self, problem: int = 0) -> Mapping[str, Any]:
        """Radii, the number of changes that nodes are bounded for, and which parts have which precision and margin."""
        tables = self.tables
        polynomials, size = tables.advantages.polynomials, tables.states.shape[-1]
        return {
            "radii": list(RADII),
            "changes_bounded": len(tables.largest.in_ball),
            "precision": {
                "outcomes": "float64",
                "expansions": _dtype_name(tables.values.hessian.dtype),
                "second_derivatives": _dtype_name(second_derivatives_dtype(size)),
                "derivative_norms": "float32",
                "pruning": _dtype_name(polynomials.dtype),
                "rounding_margin": sum_margin(polynomials.shape[-1]),  # (T53)
                "product_margin": largest_product_margin(size, tables.units),  # (T54)
                "table_margin": FLOAT32_MARGIN,  # (T55)
                "bound_margin": MARGIN,  # (T56)
            },
        }

    def _blocks(self, problem: Tensor, steps: int) -> Iterator[tuple[ProblemIndex, Tensor, Tensor]]:
        """Blocks of rows of problems [N] whose arrays span so many steps."""
        tables = self.tables
        for block in rows_by_problem(problem, len(tables.actions), steps * tables.row_width, tables.block_elements):
            look_at_clock()
            yield block


def _dtype_name(dtype: torch.dtype) -> str:
    """As in NumPy: float32, float64."""
    return str(dtype).removeprefix("torch.")
