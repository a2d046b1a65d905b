"""Where at most so many changes can lead, and from it upper bounds for every budget, however large.

The Taylor bound expands around the recorded path, and says nothing of states that five changes or more reach. Here the
sets of states that can be reached are bounded step by step, and what is earned by linear functions of the state that
are fitted to these sets. That gives a wide bracket, but one for any number of changes. Equation numbers are those of
docs/theory.md. All numbers are float64; J = K + 1 numbers of changes so far, C = T - 1 steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn import Parameter

from ifonly.bounds.taylor.applicability import can_expand, smooth_step
from ifonly.models.adam import Adam
from ifonly.models.smooth import DERIVATIVE_BOUNDS, Part, curve_derivatives
from ifonly.problem import Problem
from ifonly.progress import look_at_clock
from ifonly.rewards.decoding import ValueCurve

CENTRED = 2
"""How often the path is moved to the middle of what is reached."""
ROUNDS, RATE = 24, 0.1
"""Of fitting the linear functions, and how far a round moves them at first, in rewards per scaled unit."""
EVERY = 8
"""Rounds from one bound to the next."""
MARGIN = 1e-9
"""Relative outward margin of every bound: what float64 rounding does to its sums stays far below."""
ELEMENTS = 2**23
"""Numbers in the largest array, at most."""

METHOD = "reachable states"
"""What the bounds rest on, for certificates."""

Farthest = Callable[[Tensor], Tensor]
"""How far [J, n] states can lie in directions [1, n, D]."""


def can_reach(problem: Problem) -> bool:
    """Whether sets can be bounded: networks of one hidden layer, a reward that expands, arrays that fit."""
    if problem.horizon < 2 or not can_expand(problem):
        return False
    step = smooth_step(problem)
    assert step is not None, "it can be expanded"
    changes, budgets = problem.horizon * problem.action_count, problem.max_changes + 1
    units, size = sum(len(part.state) for part in step.parts), problem.observed_states.shape[1]
    directions = 2 * (units + 2 * problem.action_count * size)
    widest = changes * max(directions, budgets * changes, (budgets + size) * (units + size))
    return widest <= ELEMENTS and all(part.is_shallow for part in step.parts)


@torch.inference_mode(False)  # gradients are needed, whoever asks
@torch.no_grad()
def tightened_bounds(problem: Problem, smallest: int = 0) -> Iterator[Tensor]:
    """Upper bounds [K+1] on the outcomes of every budget, the later the tighter; budgets from `smallest` on count.

    None come where the first tell no more of any budget than that rewards are limited.
    """
    path, best = problem.observed_states, problem.observed_states.new_full((problem.max_changes + 1,), torch.inf)
    for _ in range(CENTRED + 1):
        reach = Reach(problem, path)
        weights = Parameter(reach.adjoints().repeat(problem.max_changes + 1, 1, 1))
        best = torch.fmin(best, reach.outcomes(weights, smallest))  # NaN, where all overflowed, is unknown
        useful = best < problem.largest_outcome
        if useful.any():
            yield best
        path = reach.middle()
    if not useful.any():
        return
    fit = Adam([weights])
    for turn in range(ROUNDS):
        with torch.enable_grad():
            sharpness = 4.0 * 10 ** (turn / ROUNDS)  # of soft maxima: at first, what nearly counts counts, too
            loss = reach.from_start(weights, sharpness)[useful.flip(0)].mean()
        fit.step(loss, RATE * (1.02 - turn / ROUNDS))
        if (turn + 1) % EVERY == 0:
            best = torch.fmin(best, reach.outcomes(weights, smallest))
            yield best


class Reach:
    """The states that one problem's sequences can reach, around a path [T, D] that begins where they do (P1).

    States are `z` from the path. Of a change the largest and the smallest effect are known for every direction, of
    everything that is not linear a box for each step and number of changes before it.
    """

    def __init__(self, problem: Problem, path: Tensor) -> None:
        self._problem, self.path = problem, path
        observed, every = problem.observed_actions, torch.arange(problem.action_count, device=path.device)
        step = smooth_step(problem)
        assert step is not None, "callers ask can_reach first"
        steps, actions, size = problem.horizon - 1, problem.action_count, path.shape[1]
        before = [array[:steps, None].expand(-1, actions, -1).flatten(0, 1) for array in (path, problem.context)]
        noise = problem.noise[:, None].expand(-1, actions, -1).flatten(0, 1)
        given = (*before, every.repeat(steps), noise)
        self._jacobians = step.jacobians(*given).unflatten(0, (steps, actions))  # [C, A, D, D]
        self._effects = problem.model.step(*given).unflatten(0, (steps, actions)) - path[1:, None]  # [C, A, D]
        self._options = problem.allowed.scatter(1, observed.unsqueeze(1), False)
        here = torch.arange(steps, device=path.device)
        self._kept_jacobians, self._kept_effects = (
            array[here, observed[:-1]] for array in (self._jacobians, self._effects)
        )
        self._led = path.new_zeros(steps + 1, steps, size, size)  # Phi from s + 1 to t, [T, C, D, D]
        for t in range(1, steps + 1):
            self._led[t, : t - 1] = self._kept_jacobians[t - 1] @ self._led[t - 1, : t - 1]
            self._led[t, t - 1] = torch.eye(size, dtype=path.dtype, device=path.device)
        curve = problem.bound_reward.expand(path)
        assert curve is not None, "callers ask can_reach first"
        self._slopes = curve.slope  # [T, D]
        self._rewards = problem.bound_reward(path.unsqueeze(1), every, problem.steps.unsqueeze(1))
        self._rewards = self._rewards + curve.offset.unsqueeze(1) - problem.change_cost * self._options  # [T, A]
        # What is not linear: above and below zero, by the recorded action and by a change, [J, C, D].
        budgets = problem.max_changes + 1
        self._kept, self._changed = (path.new_zeros(2, budgets, steps, size) for _ in range(2))
        self._units = [Units(step.parts, path[t], problem.context[t], problem.noise[t]) for t in range(steps)]
        for t, units in enumerate(self._units):
            self._bound_errors(t, units)
        self._bent = torch.stack([self._bound_curve(t, curve) for t in range(steps + 1)], dim=1)  # [J, T]

    def _bound_curve(self, t: int, curve: ValueCurve) -> Tensor:
        """(P5): how much [J] a curved reward at step t exceeds its linear expansion."""
        if not (curve.curvature.any() or curve.third_bound.any() or curve.cut.any()):
            return self.path.new_zeros(self._kept.shape[1])
        eye = torch.eye(self.path.shape[1], dtype=self.path.dtype, device=self.path.device)
        off = _either_way(partial(self.farthest, t), eye).amax(0)  # [J, D]
        distance = off.norm(dim=1, keepdim=True)
        growing = (curve.growth[t] * distance).exp() * off
        third, fourth = curve.third_bound[t] * growing, (curve.quartic[t] * off + curve.growing[t] * growing) * off
        wild = torch.fmin(third / 3, curve.third[t].abs() * off / 3 + fourth / 12)
        bent = ((curve.curvature[t] + wild).clamp(min=0) / 2 * off**2 + curve.cut[t] * off**3).sum(1)
        steepest = self._problem.bound_reward.lipschitz.max() + curve.slope[t].norm()
        return torch.fmin(bent, steepest * distance.squeeze(1))

    def _bound_errors(self, t: int, units: Units) -> None:
        """(P5): what the next state is beside a linear function of this one, for every action."""
        eye, actions = torch.eye(self.path.shape[1], dtype=self.path.dtype, device=self.path.device), self._options[t]
        units.bound_remainders(partial(self.farthest, t), self._kept.shape[1], len(actions))
        boxes = torch.stack([units.remainder(sign * eye.expand(1, len(actions), -1, -1)) for sign in (1, -1)])
        observed = self._problem.observed_actions[t]
        self._kept[:, :, t] = boxes[:, :, observed]
        turned = (self._jacobians[t] - self._jacobians[t, observed]).flatten(0, 1)
        for sign, box, changed in zip((1, -1), boxes, self._changed, strict=True):
            box = box + self.farthest(t, sign * turned.unsqueeze(0)).unflatten(1, actions.shape + eye.shape[:1])
            changed[:, t] = box[:, actions].amax(1) if bool(actions.any()) else 0.0

    def farthest(self, t: int, directions: Tensor) -> Tensor:
        """(P3), by (P2): how far [J, n] states at step t can lie in directions [J, n, D], or [1, n, D] for all j."""
        look_at_clock()
        if t == 0:
            return directions.new_zeros(self._kept.shape[1], directions.shape[1])
        led = torch.einsum("jnd,sde->jnse", directions, self._led[t, :t])
        above, below = led.clamp(min=0), (-led).clamp(min=0)
        count = self._kept.shape[1] if len(led) == 1 else len(led)

        def sums(errors: Tensor, most: int) -> Tensor:
            upper, lower = errors[:, :most, :t].unsqueeze(2)
            both: Tensor = (above * upper).sum(-1) + (below * lower).sum(-1)
            return both

        kept = (led * self._kept_effects[:t]).sum(-1) + sums(self._kept, count)
        changed = torch.einsum("jnse,sae->jnsa", led, self._effects[:t])
        changed = changed.masked_fill(~self._options[:t], -torch.inf).amax(-1)
        if len(led) > 1:
            changed, above, below = changed[1:], above[1:], below[1:]
        # The change at s had one change less before it than all together.
        gained = (changed + sums(self._changed, count - 1) - kept[1:]).clamp(min=0)
        gained = gained.sort(dim=-1, descending=True).values
        order = torch.arange(gained.shape[-1], device=gained.device)
        counted = order < torch.arange(1, count, device=order.device)[:, None, None]
        more = torch.where(counted, gained, 0.0).sum(-1)
        found: Tensor = kept.sum(-1) + torch.cat((torch.zeros_like(kept[:1, :, 0]), more))
        return found

    def middle(self) -> Tensor:
        """The path through the middle of all that is reached [T, D]."""
        eye = torch.eye(self.path.shape[1], dtype=self.path.dtype, device=self.path.device).unsqueeze(0)
        ends = [[self.farthest(t, sign * eye)[-1] for sign in (1, -1)] for t in range(len(self.path))]
        shift = torch.stack([(upper - lower) / 2 for upper, lower in ends])
        return self.path + torch.where(shift.isfinite().all(1, keepdim=True), shift, 0.0)

    def adjoints(self) -> Tensor:
        """What a state is worth to first order where nothing is changed [T, D]: the linear functions to begin with."""
        worth = [self._slopes[-1]]
        for t in range(len(self._units) - 1, -1, -1):
            worth.append(self._slopes[t] + worth[-1] @ self._kept_jacobians[t])
        return torch.stack(worth[::-1])

    def outcomes(self, weights: Tensor, smallest: int = 0) -> Tensor:
        """Upper bounds [K+1], for linear functions [K+1, T, D] by the number of changes left; infinite for budgets
        below `smallest`."""
        found = torch.full_like(weights[:, 0, 0], torch.inf)
        for budget in range(smallest, len(weights)):
            found[budget] = self.from_start(weights[: budget + 1], None)[0]
        return found + MARGIN * (1 + found.abs()) + self._problem.tolerance

    def from_start(self, weights: Tensor, sharpness: float | None) -> Tensor:
        """(P7): from the first state on, after j = 0, ..., k changes [k+1], for linear functions [k+1, T, D] by the
        number of changes left; with soft maxima where a `sharpness` is given."""
        worth, last = weights.flip(0), len(self._units)  # by the number of changes so far
        ends = self.farthest(last, (self._slopes[last] - worth[:, last]).unsqueeze(1))[: len(worth), 0]
        observed = self._problem.observed_actions
        ends = ends + self._bent[: len(worth), last]
        best = ends + self._rewards[last, observed[last]]
        if bool(self._options[last].any()):
            best = _larger(best, ends[:-1] + self._rewards[last][self._options[last]].amax(), sharpness)
        for t in range(last - 1, -1, -1):
            kept = observed[t : t + 1]
            stay = best + self._earned(t, kept, worth, worth).squeeze(1)
            options = self._options[t].nonzero().squeeze(1)
            if len(options) and len(worth) > 1:
                gains = self._earned(t, options, worth[:-1], worth[1:])
                largest = gains.amax(1) if sharpness is None else (gains * sharpness).logsumexp(1) / sharpness
                stay = _larger(stay, best[1:] + largest, sharpness)
            best = stay
        return best

    def _earned(self, t: int, actions: Tensor, here: Tensor, there: Tensor) -> Tensor:
        """(P6): what actions [n] at step t earn at most, and bring by the linear functions `there` of the next state
        beyond those `here` of this one [J, n]; both [J, T, D]."""
        following = there[:, t + 1]
        pulled = torch.einsum("jd,nde->jne", following, self._jacobians[t, actions])
        rest = pulled + (self._slopes[t] - here[:, t]).unsqueeze(1)
        moved = following @ self._effects[t, actions].mT + self._rewards[t, actions]
        units = self._units[t].remainder(following[:, None, None].expand(-1, len(actions), -1, -1), actions)
        curved = units[: len(here), :, 0] + self._bent[: len(here), t].unsqueeze(1)
        earned: Tensor = moved + curved + self.farthest(t, rest)[: len(here)]
        return earned


def _larger(kept: Tensor, changed: Tensor, sharpness: float | None) -> Tensor:
    """The larger of both, of which the second [k] belongs to the first k of the first [k+1]."""
    if sharpness is None:
        return torch.cat((torch.maximum(kept[:-1], changed), kept[-1:]))
    return torch.cat((torch.logaddexp(kept[:-1] * sharpness, changed * sharpness) / sharpness, kept[-1:]))


class Units:
    """What hidden units of a step add to its linear expansion at one state, for every action."""

    def __init__(self, parts: tuple[Part, ...], state: Tensor, context: Tensor, noise: Tensor) -> None:
        self._parts, self._state, self._context, self._noise = parts, state, context, noise

    def bound_remainders(self, farthest: Farthest, budgets: int, actions: int) -> None:
        """(P4), where states lie as far in directions [1, n, D] as `farthest` [J, n] says."""
        size = len(self._state)
        bends, remainders = [self._state.new_zeros(actions, size, 0)], [self._state.new_zeros(2, budgets, actions, 0)]
        for part in self._parts:
            matrix = part.matrices[0]
            hidden = part.actions + part.state @ self._state + part.context @ self._context  # [A, H]
            value, slope, curvature, third = curve_derivatives(part.activation, hidden)
            s1, s2, s3, s4 = DERIVATIVE_BOUNDS[part.activation]
            radius = _either_way(farthest, part.state).amax(0).unsqueeze(1)  # [J, 1, H]
            wild = torch.minimum(third.abs() * radius / 3 + s4 * radius**2 / 12, s3 * radius / 3)
            most = torch.minimum(s2 * radius**2 / 2, (s1 + slope.abs()) * radius)
            parts = [
                torch.minimum((bent + wild).clamp(min=0) * radius**2 / 2, most) for bent in (curvature, -curvature)
            ]
            remainder = torch.stack(parts)  # [2, J, A, H], above and below
            if not part.by_noise:
                bends.append(matrix.expand(actions, -1, -1))
                remainders.append(remainder)
                continue
            # The softplus of what the units sum to lies between its tangent and a parabola; its slope is at most 1.
            tangent = torch.sigmoid(value @ matrix.mT + part.biases[0])  # [A, D]
            steep = ((slope.unsqueeze(1) * matrix) @ part.state).flatten(0, 1)  # of the network, [A * D, D]
            added = remainder @ matrix.mT.clamp(min=0) + remainder.flip(0) @ (-matrix.mT).clamp(min=0)
            off = (_either_way(farthest, steep).unflatten(2, (actions, size)) + added).amax(0)  # [J, A, D]
            parabola = torch.stack((torch.minimum(off**2 / 8, off), torch.zeros_like(off)))
            bends += [(tangent * self._noise).unsqueeze(2) * matrix, torch.diag(self._noise).expand(actions, -1, -1)]
            remainders += [remainder, parabola]
        self._bends = torch.cat(bends, dim=2)  # [A, D, U], how much of each remainder the next state has
        self._remainders = torch.cat(remainders, dim=3)  # [2, J, A, U]

    def remainder(self, directions: Tensor, actions: Tensor | slice = slice(None)) -> Tensor:
        """How much [J, a, n] of it lies at most in directions [J or 1, a, n, D] of the next state after `actions`."""
        shares = torch.einsum("jand,adu->janu", directions, self._bends[actions])
        above, below = self._remainders[:, : len(shares) if len(shares) > 1 else None, actions]
        if len(shares) == 1:
            shares = shares.squeeze(0)
        sums = "anu,jau->jan" if shares.dim() == 3 else "janu,jau->jan"
        found: Tensor = torch.einsum(sums, shares.clamp(min=0), above) + torch.einsum(
            sums, (-shares).clamp(min=0), below
        )
        return found


def _either_way(farthest: Farthest, directions: Tensor) -> Tensor:
    """How far [2, J, n] states lie along directions [n, D] and against them."""
    return torch.stack([farthest(sign * directions.unsqueeze(0)).abs() for sign in (1, -1)])
