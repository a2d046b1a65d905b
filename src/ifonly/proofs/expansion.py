"""A bound of the checker's own on what a rest can earn: second-order expansions around the recorded path.

It follows docs/theory.md, "The Taylor bound", without all that makes the search's own bound sharp: lengths are
Euclidean, third derivatives are bounded everywhere and never known, and there are no tables of pairs of changes. So it
is weaker and true for the same reasons. For linear models, and networks with one hidden layer of smooth units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ifonly.proofs.question import Array, Ints, LoggedNetwork, LoggedReward, Question, sigmoid

CURVES = {"tanh": (1.0, 0.7699, 2.0), "softplus": (1.0, 0.25, 0.0963), "sigmoid": (0.25, 0.0963, 0.125)}
"""The largest absolute values of the first three derivatives of each kind of unit, rounded up."""
CUBIC = 4 / 27
"""The largest value of (x - 1) / x^3, as in (T60)."""
RADII = np.concatenate([[0.0], 1e-3 * 1.15 ** np.arange(100)])
"""Lengths of displacements for which remainders are tabulated, in scaled units: up to about 1,000."""
UPWARD = 1 + 1e-9
"""Factor on norms and constants, far above what rounding takes from them."""


def norm(matrix: Array) -> float:
    """The largest singular value."""
    return float(np.linalg.norm(matrix, 2)) * UPWARD if matrix.size else 0.0


@dataclass(frozen=True)
class Slopes:
    """Bounds on the first three derivatives of something at every state."""

    first: float
    second: float
    third: float

    @classmethod
    def of(cls, network: LoggedNetwork) -> Slopes:
        """Of a network with one hidden layer: (T15), and the same with fewer factors."""
        s1, s2, s3 = CURVES[network.activation]
        rows, columns = np.linalg.norm(network.state, axis=1), np.linalg.norm(network.matrices[0], axis=0)
        squares = network.state[:, :, None] * network.state[:, None, :]
        second, third = (
            float(np.linalg.eigvalsh((units[:, None, None] * squares).sum(0))[-1]) * UPWARD
            for units in (columns * s2, columns * rows * s3)
        )
        return cls(norm(network.matrices[0]) * s1 * norm(network.state), max(second, 0.0), max(third, 0.0))


def curve(activation: str, z: Array) -> tuple[Array, Array]:
    """First two derivatives of units at z."""
    if activation == "tanh":
        value = np.tanh(z)
        return 1 - value**2, -2 * value * (1 - value**2)
    logistic = sigmoid(z)
    slope = logistic * (1 - logistic)
    return (logistic, slope) if activation == "softplus" else (slope, slope * (1 - 2 * logistic))


@dataclass(frozen=True)
class Step:
    """The step of one action from a recorded state: its Jacobian, and its second derivative along any direction."""

    jacobian: Array  # [D, D]
    squares: tuple[Array, ...]  # of each part, [n, D]: the second derivative along q is a sum of q-weighted squares
    weights: tuple[Array, ...]  # of each part, [n, D]: from q [D] to the weights of the squares

    def second(self, q: Array) -> Array:
        """q . D^2 f [D, D]."""
        total = np.zeros_like(self.jacobian)
        for rows, weights in zip(self.squares, self.weights, strict=True):
            total += rows.T @ ((weights @ q)[:, None] * rows)
        return total


@dataclass(frozen=True)
class ValueTerms:
    """The reward of a step around its recorded state: not above value + slope.z + 1/2 z.curvature z + excess(|z|)."""

    value: float
    slope: Array  # [D]
    curvature: Array  # [D]
    third: Array  # [D]
    growth: Array  # [D], rate at which the third derivative may grow
    cut: Array  # [D], factor of |z|^3 by which cut values can exceed uncut ones
    most: Array  # [D], what they exceed them by at most

    def excess(self, reach: Array) -> Array:
        """What lies above the quadratic terms at displacements up to `reach` [R]."""
        lengths = reach[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            thirds = np.where(self.third > 0, self.third * np.exp(self.growth * lengths), 0.0).max(1)
            cuts = np.fmin(self.most, self.cut * lengths**3).sum(1)
        return np.asarray((thirds * reach**3 / 6 + cuts) * UPWARD)


def value_terms(reward: LoggedReward, t: int, state: Array, action: int) -> ValueTerms | None:
    """The reward of step t at its recorded state and action; None where it bends upwards."""
    values, weights = reward.values(state[None])[0], np.zeros(len(state))
    for part in reward.parts:
        if part.kind == "hinges" and (part.factors > 0).any():
            return None
        active = part.weights @ values + part.constants > 0 if part.kind == "hinges" else np.ones(len(part.factors))
        weights = weights + part.steps[t] * ((active * part.factors) @ part.weights)
    d = reward.decoder
    log, bounded = d["log"] > 0, d["bounded"] > 0
    linked = state * d["scale"] + d["offset"]
    logistic, grown = sigmoid(linked), np.exp(np.where(log, linked, 0.0))
    first, second, scale = logistic * (1 - logistic), logistic * (1 - logistic) * (1 - 2 * logistic), d["scale"]
    third = np.where(bounded, d["width"] * 0.125, np.where(log, grown, 0.0)) * np.abs(weights) * scale**3
    cut, most = _cuts(reward, linked, weights)
    return ValueTerms(
        value=float(reward(t, state[None], np.array([action]))[0]),
        slope=weights * scale * np.where(bounded, d["width"] * first, np.where(log, grown, 1.0)),
        curvature=weights * scale**2 * np.where(bounded, d["width"] * second, np.where(log, grown, 0.0)),
        third=third,
        # exp(z) >= 1 + z + z^2/2 + z^3/6: minus an exponential needs no more than its third derivative here.
        growth=np.where(log & (weights > 0), scale, 0.0),
        cut=cut,
        most=most,
    )


def _cuts(reward: LoggedReward, linked: Array, weights: Array) -> tuple[Array, Array]:
    """(T60): what cutting a value at an end of its range can add to the reward, where it raises it."""
    d = reward.decoder
    log, bounded = d["log"] > 0, d["bounded"] > 0
    cut, most = np.zeros_like(linked), np.zeros_like(linked)
    for end, side in ((d["ceiling"], 1), (d["floor"], -1)):
        counts = (side * weights < 0) & (bounded | (log & (d["log_offset"] > 0) & (side < 0)))
        share = np.clip(np.where(bounded, (np.where(bounded, end, 0.0) - d["low"]) / d["width"], 0.5), 1e-300, 1.0)
        outer = 1 - share if side > 0 else share
        with np.errstate(divide="ignore", invalid="ignore"):
            there = np.where(log, np.log(np.where(log, d["log_offset"], 1.0)), np.log(share / (1 - share)))
            distance = np.maximum(side * (there - linked), 0.0) / d["scale"]
            # Beyond the end the curve flattens, unless the end lies before its middle.
            steep = np.where(log, d["log_offset"], d["width"] * np.where(outer <= 0.5, share * (1 - share), 0.25))
            factor = CUBIC * np.abs(weights) * steep * d["scale"] / distance**2
        beyond = np.where(log, d["log_offset"], d["width"] * outer)
        cut = cut + np.where(counts, factor, 0.0)
        most = most + np.where(counts, np.abs(weights) * beyond, 0.0)
    return cut, most


@dataclass(frozen=True)
class Changes:
    """Numbers of every change at a step [n, 1]: its advantage at the recorded state, and lengths of what bends it."""

    flat: Array
    slope: Array
    bend: Array
    adjoint: Array
    turn: Array
    effect: Array
    steepness: Array


class Expansion:
    """Upper bounds on what the recorded actions with some changes earn from any state on."""

    def __init__(self, question: Question, states: Array, terms: list[ValueTerms]) -> None:
        """`states` [T, D] are those of the recorded sequence, `terms` the rewards there."""
        self._question, self._states, self._terms = question, states, terms
        self._constants = self._step_constants()
        horizon = question.horizon
        self._steps = [
            [self._step(t, action) for action in range(question.allowed.shape[1])] for t in range(horizon - 1)
        ]
        self._values()
        self._largest: list[Array] = []
        """For every number of changes, what exceeds the value expansion [T, R]."""
        self._all_changes = [self._changes(c) for c in range(horizon - 1)]
        self._prepare_remainders()
        for changes in range(question.max_changes + 1):
            self._largest.append(self._tabulated(changes))

    @classmethod
    def of(cls, question: Question) -> Expansion | None:
        """None where the model or the reward has kinks, or more than one hidden layer."""
        networks = [one for one in (question.model.location, question.model.scale) if one is not None]
        if any(one.activation not in CURVES or len(one.matrices) > 1 for one in networks):
            return None
        states = question.replay(question.observed[None])[0][0]
        recorded = zip(states, question.observed.tolist(), strict=True)
        terms = [value_terms(question.reward, t, *pair) for t, pair in enumerate(recorded)]
        known = [one for one in terms if one is not None]
        return cls(question, states, known) if len(known) == len(terms) else None

    def __call__(self, t: int, states: Array, changes: int) -> Array:
        """Bounds [N] on what is earned from step t on, from states [N, D], with at most so many changes."""
        y = states - self._states[t]
        lengths = np.linalg.norm(y, axis=1) * UPWARD
        place = np.searchsorted(RADII, lengths)
        rest = np.append(self._largest[changes][t], np.inf)[place]
        quadratic = self.value[t] + y @ self.gradient[t] + 0.5 * np.einsum("ni,ij,nj->n", y, self.hessian[t], y)
        return np.asarray(np.where(np.isnan(rest), np.inf, quadratic + rest))

    def _step_constants(self) -> list[Slopes]:
        """Bounds on the derivatives of every step, whatever the action."""
        model, noise = self._question.model, np.abs(self._question.noise)
        if model.matrices is not None:
            steepest = max(norm(matrix) for matrix in model.matrices)
            return [Slopes(steepest, 0.0, 0.0)] * len(noise)
        assert model.location is not None
        location, skip = Slopes.of(model.location), float(np.abs(model.diagonal).max(initial=0.0))
        first, second, third = location.first + skip, location.second, location.third
        if model.scale is None:
            return [Slopes(first, second, third)] * len(noise)
        n, (s1, s2, s3) = Slopes.of(model.scale), CURVES["softplus"]
        own = (
            s1 * n.first,
            s2 * n.first**2 + s1 * n.second,
            s3 * n.first**3 + 3 * s2 * n.first * n.second + s1 * n.third,  # (T20)
        )
        largest = noise.max(1, initial=0.0).tolist()
        return [Slopes(first + u * own[0], second + u * own[1], third + u * own[2]) for u in largest]

    def _step(self, t: int, action: int) -> Step:
        question, model = self._question, self._question.model
        if model.matrices is not None:
            return Step(model.matrices[action], (), ())
        state, context, chosen = self._states[t : t + 1], question.context[t], np.array([action])
        jacobian, squares, weights = np.diag(model.diagonal), [], []
        for network in (model.location, model.scale):
            if network is None:
                continue
            slope, bend = (one[0] for one in curve(network.activation, network.hidden(state, context, chosen)))
            matrix, gradient = network.matrices[0], (network.matrices[0] * slope) @ network.state
            factor = np.ones(len(matrix))
            if network is model.scale:
                top, second = (one[0] for one in curve("softplus", network(state, context, chosen)))
                factor = top * question.noise[t]
                squares.append(gradient)
                weights.append(np.diag(second * question.noise[t]))
            jacobian = jacobian + factor[:, None] * gradient
            squares.append(network.state)
            weights.append((matrix * factor[:, None]).T * bend[:, None])
        return Step(jacobian, tuple(squares), tuple(weights))

    def _values(self) -> None:
        """(T3) to (T5): value, gradient and Hessian of what the recorded actions earn from each step on."""
        question, terms = self._question, self._terms
        horizon, size = self._states.shape
        self.value, self.gradient = np.zeros(horizon + 1), np.zeros((horizon + 1, size))
        self.hessian, self.second = np.zeros((horizon + 1, size, size)), np.zeros((horizon, size, size))
        for t in range(horizon - 1, -1, -1):
            self.value[t] = terms[t].value + self.value[t + 1]
            self.gradient[t], self.second[t] = terms[t].slope, np.diag(terms[t].curvature)
            self.hessian[t] = self.second[t]
            if t < horizon - 1:
                step = self._steps[t][question.observed[t]]
                self.second[t] += step.second(self.gradient[t + 1])
                self.gradient[t] = self.gradient[t] + step.jacobian.T @ self.gradient[t + 1]
                self.hessian[t] = self.second[t] + step.jacobian.T @ self.hessian[t + 1] @ step.jacobian

    def _prepare_remainders(self) -> None:
        """For displacements at s up to each radius, along the recorded actions to t: (T22) to (T28), with lengths only.

        `_first[s, t]` is the norm of the sensitivity, `_off` [T, T, R] how far the path leaves its first order, and
        `_remainder` [T, T+1, R] what the rewards before t exceed their expansion by.
        """
        question, horizon, count = self._question, self._question.horizon, len(RADII)
        jacobians = [self._steps[t][question.observed[t]].jacobian for t in range(horizon - 1)]
        self._first = np.zeros((horizon, horizon))
        self._off, self._remainder = np.zeros((horizon, horizon, count)), np.zeros((horizon, horizon + 1, count))
        for s in range(horizon):
            carried = np.eye(self._states.shape[1])
            for t in range(s, horizon):
                self._first[s, t] = norm(carried)
                carried = jacobians[t] @ carried if t < horizon - 1 else carried
        with np.errstate(over="ignore", invalid="ignore"):
            for s in range(horizon):
                self._remainders_from(s, [norm(one) for one in jacobians])

    def _remainders_from(self, s: int, steepness: list[float]) -> None:
        horizon, reach = self._question.horizon, RADII.copy()
        sources: list[Array] = []
        for t in range(s, horizon):
            if t > s:
                later = sum(self._first[u + 1, t] * source for u, source in zip(range(s, t), sources, strict=True))
                self._off[s, t] = np.minimum(later, reach + self._first[s, t] * RADII)
                reach = np.minimum(reach, self._first[s, t] * RADII + self._off[s, t])
            bent = norm(self.second[t]) * (self._first[s, t] * RADII * self._off[s, t] + self._off[s, t] ** 2 / 2)
            extra = bent + self._terms[t].excess(reach)
            if t < horizon - 1:
                constants = self._constants[t]
                extra = extra + norm(self.gradient[t + 1][:, None]) * constants.third * reach**3 / 6
                sources.append(constants.second * reach**2 / 2)
                reach = np.minimum(constants.first, steepness[t] + constants.second * reach / 2) * reach
            self._remainder[s, t + 1] = (self._remainder[s, t] + extra) * UPWARD

    def _tabulated(self, changes: int) -> Array:
        """(T44): what at most so many changes from s on add to the value expansion, within each radius [T, R]."""
        horizon = self._question.horizon
        none = self._remainder[:, horizon]
        if changes == 0:
            return none
        table = np.where(np.isnan(none), np.inf, none)
        last = self._last_advantage()
        with np.errstate(over="ignore", invalid="ignore"):
            for s in range(horizon):
                table[s] = table[s] + last
                for c in range(s, horizon - 1):
                    before, there = self._before(s, c)
                    found = before + self._gains(c, there, changes)
                    table[s] = np.maximum(table[s], np.where(np.isnan(found), np.inf, found))
        return table

    def _before(self, s: int, c: int) -> tuple[Array, Array]:
        """What the rewards before c exceed their expansion by [R], and the displacement there [R]: (T39) to (T41)."""
        first, off = self._first[s, c] * RADII, self._off[s, c]
        bracket = norm(self.hessian[c]) * (first * off + off**2 / 2)
        return self._remainder[s, c] + bracket, first + off

    def _last_advantage(self) -> float:
        """The most that a change of the last step adds, or nothing."""
        last = self._question.horizon - 1
        return max([0.0, *(self._extra(last, action) for action in self._others(last).tolist())])

    def _others(self, c: int) -> Ints:
        question = self._question
        options = question.allowed[c].copy()
        options[question.observed[c]] = False
        return np.flatnonzero(options)

    def _extra(self, c: int, action: int) -> float:
        """What an action earns more at its own step than the recorded one."""
        question = self._question
        tables = sum(
            (part.steps[c] * part.table for part in question.reward.parts), np.zeros(question.allowed.shape[1])
        )
        return float(tables[action] - tables[question.observed[c]]) - question.change_cost

    def _changes(self, c: int) -> Changes:
        """Every change at c, as the advantage (T32) has them."""
        question, after, terms = self._question, c + 1, self._terms[c]
        gradient, hessian = self.gradient[after], self.hessian[after]
        rows = []
        for action in self._others(c).tolist():
            jacobian = self._steps[c][action].jacobian
            effect = question.step(c, self._states[c : c + 1], np.array([action]))[0] - self._states[after]
            q = gradient + hessian @ effect
            flat = self._extra(c, action) + terms.value + self.value[after] - self.value[c]
            slope = terms.slope + jacobian.T @ q - self.gradient[c]
            bend = np.diag(terms.curvature) + jacobian.T @ hessian @ jacobian + self._steps[c][action].second(q)
            rows.append(
                (
                    flat + gradient @ effect + effect @ hessian @ effect / 2,
                    norm(slope[:, None]),
                    max(0.0, float(np.linalg.eigvalsh(bend - self.hessian[c])[-1])) * UPWARD,
                    norm(q[:, None]),
                    norm(hessian @ jacobian),
                    norm(effect[:, None]),
                    norm(jacobian),
                )
            )
        return Changes(*np.array(rows).reshape(-1, 7).T[:, :, None])

    def _gains(self, c: int, there: Array, changes: int) -> Array:
        """The most that a change at c adds, with `changes` - 1 later ones, from displacements up to `there` [R]: (T33),
        (T34), (T42), (T43)."""
        all_, constants, size = self._all_changes[c], self._constants[c], norm(self.hessian[c + 1])
        if not len(all_.flat):
            return np.full_like(there, -np.inf)
        bent = constants.second * there**2 / 2 + constants.third * there**3 / 6
        rest = all_.adjoint * constants.third * there**3 / 6 + all_.turn * there * bent + size * bent**2 / 2
        moved = all_.effect + all_.steepness * there + bent
        later = np.append(self._largest[changes - 1][c + 1], np.inf)[np.searchsorted(RADII, moved)]
        found = all_.flat + all_.slope * there + all_.bend * there**2 / 2 + rest + later
        return np.asarray(np.where(np.isnan(found), np.inf, found).max(0) + self._terms[c].excess(there))
