"""Goals: at which steps a reward counts and how much, ranges that values should keep to, and costs of doses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from ifonly.data.periods import Period
from ifonly.data.plain import as_number, as_numbers, did_you_mean
from ifonly.data.scaling import Scaler
from ifonly.data.schema import Schema
from ifonly.errors import InputError
from ifonly.rewards.bound import (
    BoundGoals,
    BoundHinges,
    BoundReward,
    BoundTable,
    Schedule,
    as_float64,
    goals_of,
    require_finite,
)
from ifonly.rewards.decoding import Decoder
from ifonly.rewards.parts import Hinge, PiecewiseLinear, Reward, Shown, check_finite


@dataclass(frozen=True)
class Goal(Reward):
    """A reward that counts `weight` times, and at some steps more than at others (G1).

    `over` says at which steps: "all", "end" (the last step alone), or a period such as "last 24 hours" or "first 6
    steps"; of periods that end within a step that step counts. Step t, from 0, then counts `discount` to the power t,
    and `step_weights`, where given, say for each step how often it counts: one number for each step of the episode.

    >>> from ifonly.rewards import Linear
    >>> Goal(Linear({"SOFA": -1.0}), over="end").show(-4.0)
    Shown(label='SOFA at the end', value=4.0, higher_is_better=False, feature='SOFA')
    """

    reward: Reward
    weight: float = 1.0
    over: str = "all"
    discount: float = 1.0
    step_weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.reward, Reward):
            raise InputError(f"goal: {self.reward!r} is no reward; pass one, such as minus('SOFA').")
        object.__setattr__(self, "weight", as_number("goal: weight", self.weight))
        if not 0 < self.weight < math.inf:
            raise InputError(
                f"goal: weight {self.weight:g} must be positive; for the opposite, maximize instead of minimize."
            )
        object.__setattr__(self, "discount", as_number("goal: discount", self.discount))
        if not 0 < self.discount <= 1:
            raise InputError(f"goal: discount {self.discount:g} must be above 0 and up to 1, such as 0.95.")
        over = " ".join(str(self.over).lower().split())
        object.__setattr__(self, "over", over)
        if over not in ("all", "end") and _period(over)[1] is None:
            raise InputError(
                f"goal: over {self.over!r} is unknown; say all, end, or a period such as 'last 24 hours' or 'first 6 "
                "steps'."
            )
        if self.step_weights is not None:
            weights = as_numbers("goal: step_weights", self.step_weights)
            if not weights or min(weights) < 0 or not 0 < max(weights) < math.inf:
                raise InputError(
                    "goal: step_weights must be finite and not negative, and one of them positive: a step that counts "
                    "less than nothing would need a reward of the opposite kind."
                )
            object.__setattr__(self, "step_weights", weights)

    def bind(self, schema: Schema, scaler: Scaler, device: torch.device | str = "cpu") -> BoundReward:
        """Its reward, with the weights of steps; these are known when the episode's length is."""
        bound = self.reward.bind(schema, scaler, device)
        own = Schedule(self.weight, *self._steps(schema), self.discount, self.step_weights)
        return BoundGoals([(part, (*others, own)) for part, others in goals_of(bound)], bound.decoder)

    def _steps(self, schema: Schema) -> tuple[int | None, int | None]:
        """How many of the first and of the last steps count; None: all."""
        if self.over == "all":
            return None, None
        if self.over == "end":
            return None, 1
        side, period = _period(self.over)
        assert period is not None, "checked when built"
        count = period.steps(f"goal: over {self.over!r}", schema, example="last 6 steps")
        return (count, None) if side == "first" else (None, count)

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        weights = None if self.step_weights is None else list(self.step_weights)
        own = {"weight": self.weight, "over": self.over, "discount": self.discount, "step_weights": weights}
        return {"kind": "goal", "reward": self.reward.to_dict(), **own}

    def show(self, outcome: float) -> Shown:
        """As its reward is shown, with the steps that count; the weight means something beside other goals only."""
        shown = self.reward.show(outcome / self.weight)
        label = shown.label
        if self.over == "end":
            label = f"{label.removeprefix('cumulative ')} at the end"
        elif self.over != "all":
            label = f"{label} over the {self.over}"
        if self.step_weights is not None:
            label = f"step-weighted {label}"
        if self.discount < 1:
            label = f"discounted {label}"
        return Shown(label, shown.value, shown.higher_is_better, shown.feature)


@dataclass(frozen=True)
class Within(Reward):
    """Minus a penalty for every unit that a feature lies below `low` (`below`) or above `high` (`above`).

    One end may be None. It bends downwards, so the Taylor bound leads searches for it.
    """

    feature: str
    low: float | None = None
    high: float | None = None
    below: float = 1.0
    above: float = 1.0

    def __post_init__(self) -> None:
        _check_range(self, "keep")
        for name in ("below", "above"):
            object.__setattr__(self, name, as_number(f"goal: keep {self.feature}: {name}", getattr(self, name)))
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"goal: keep {self.feature}: {name} must be a penalty of zero or more for every unit.")
        if not any(rate for end, rate in ((self.low, self.below), (self.high, self.above)) if end is not None):
            raise InputError(f"goal: keep {self.feature}: penalties of zero ask for nothing; give below or above.")

    def bind(self, schema: Schema, scaler: Scaler, device: torch.device | str = "cpu") -> BoundReward:
        """Two hinges."""
        hinges = []
        if self.low is not None:
            hinges.append(Hinge(-self.below, {self.feature: -1.0}, self.low))
        if self.high is not None:
            hinges.append(Hinge(-self.above, {self.feature: 1.0}, -self.high))
        return PiecewiseLinear(tuple(hinges)).bind(schema, scaler, device)

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        return {"kind": "within", **asdict(self)}

    def show(self, outcome: float) -> Shown:
        """The penalty, lower being better; none is 0, never -0."""
        return Shown(f"cumulative penalty for {self.feature} {_outside(self)}", 0.0 - outcome, False, self.feature)


@dataclass(frozen=True)
class TimeInRange(Reward):
    """1 for every step with a feature from `low` to `high`; beyond, it falls to 0 over `margin` units.

    A count has no slope that could be bounded, so steps close to the range count in part. It bends upwards where it
    reaches 0: Lipschitz anchors or enumeration lead searches for it, never the Taylor bound; `Within` is proven faster.
    """

    feature: str
    low: float | None = None
    high: float | None = None
    margin: float = 1.0

    def __post_init__(self) -> None:
        _check_range(self, "time_in_range")
        object.__setattr__(self, "margin", as_number(f"goal: time in range of {self.feature}: margin", self.margin))
        if not 0 < self.margin < math.inf:
            raise InputError(
                f"goal: time in range of {self.feature}: margin must be positive, in the feature's units: a count that "
                "jumps has no constants that a proof could rest on."
            )

    def bind(self, schema: Schema, scaler: Scaler, device: torch.device | str = "cpu") -> BoundReward:
        """1 less a hinge where each end begins, plus one where nothing is left."""
        slope, hinges = 1 / self.margin, [Hinge(1.0, {self.feature: 0.0}, 1.0)]
        for end, side in ((self.low, -1.0), (self.high, 1.0)):
            if end is not None:
                begins = (-slope, {self.feature: side}, -side * end)
                hinges += [Hinge(*begins), Hinge(slope, {self.feature: side}, -side * end - self.margin)]
        bound = PiecewiseLinear(tuple(hinges)).bind(schema, scaler, device)
        assert isinstance(bound, BoundHinges)
        return replace(bound, most=1.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        return {"kind": "time in range", **asdict(self)}

    def show(self, outcome: float) -> Shown:
        """The number of steps, more being better."""
        return Shown(f"steps with {self.feature} {_inside(self)}", outcome, True, self.feature)


@dataclass(frozen=True)
class DoseCost(Reward):
    """Minus a cost for every unit of dose at every step, by the name of the dose axis; axes not named cost nothing."""

    costs: Mapping[str, float]

    def __post_init__(self) -> None:
        check_finite("costs of doses", self.costs)
        object.__setattr__(self, "costs", {str(axis): float(cost) for axis, cost in self.costs.items()})

    def bind(self, schema: Schema, scaler: Scaler, device: torch.device | str = "cpu") -> BoundReward:
        """A table lookup with constant zero."""
        names = [axis.name for axis in schema.actions.axes]
        for name in self.costs:
            if name not in names:
                known = f"dose axes are {names}" if names else "these actions have none; use costs of actions"
                raise InputError(f"goal: no dose axis {name!r}; {known}.{did_you_mean(name, names)}")
        weights = np.array([self.costs.get(name, 0.0) for name in names] or [0.0] * schema.actions.width)
        with np.errstate(over="ignore", invalid="ignore"):
            table = as_float64(-(np.array(schema.actions.vectors) @ weights), device)
        require_finite(table, "costs of doses, times the doses")
        return BoundTable(table, Decoder.of(scaler.states, device))

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        return {"kind": "dose cost", "costs": dict(self.costs)}


def _period(over: str) -> tuple[str, Period | None]:
    """Whether it is of the first or of the last steps, and how long; None where it is neither."""
    side, _, length = over.partition(" ")
    return side, Period.read(length) if side in ("first", "last") else None


def _check_range(goal: Within | TimeInRange, what: str) -> None:
    if not isinstance(goal.feature, str):
        raise InputError(f"goal: {what} {goal.feature!r} must be the name of a feature.")
    for name in ("low", "high"):
        if (end := getattr(goal, name)) is not None:
            object.__setattr__(goal, name, as_number(f"goal: {what} {goal.feature}: {name}", end))
            check_finite("ends of ranges", {name: getattr(goal, name)})
    if goal.low is None and goal.high is None:
        raise InputError(f"goal: {what} {goal.feature} needs a range, such as between: [65, 90]; one end may be null.")
    if goal.low is not None and goal.high is not None and goal.low > goal.high:
        raise InputError(f"goal: {what} {goal.feature}: low {goal.low:g} must not be above high {goal.high:g}.")


def _inside(goal: Within | TimeInRange) -> str:
    if goal.low is None:
        return f"up to {goal.high:g}"
    return f"from {goal.low:g}" + ("" if goal.high is None else f" to {goal.high:g}")


def _outside(goal: Within) -> str:
    if goal.low is None:
        return f"above {goal.high:g}"
    return f"below {goal.low:g}" if goal.high is None else f"outside {goal.low:g} to {goal.high:g}"
