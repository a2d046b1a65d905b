"""A junction whose signals share out the green between three queues."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ifonly import ActionSpace, Axis
from ifonly.data.episode import FloatArray
from paper.worlds.base import DrawnWorld, Quantity, Variant, autoregressive, shaken

MAIN_SHARES, TURNING_GREENS = (0.4, 0.55, 0.7), (0.12, 0.2, 0.28)
CYCLES, CYCLE = 3, 100.0
"""Cycles of a step, and the seconds of one."""
LOST = 0.1
"""Share of a cycle in which nobody has green."""
TURNING_FLOW = 1500.0
"""Vehicles per hour of green that leave the turning lane."""
ROOM = 120.0
"""Vehicles for which there is room in a queue."""
HOUR = 3600.0


class Traffic(DrawnWorld):
    """Junctions in the course of two hours; every five minutes somebody sets how the green is shared out.

    Queues follow the store-and-forward equation of Gazis and Potts (2nd International Symposium on the Theory of
    Traffic Flow, 1963): what was there, plus arrivals, minus what the green lets through, cycle by cycle. What leaves
    is a concave function of what is there, as the exit functions of Merchant and Nemhauser (Transportation Science 12,
    1978), at most saturation flow times green. Delay is that of waiting in these queues plus the uniform delay of
    Webster's formula (Road Research Technical Paper 39, 1958), C (1 - g)^2 / (2 (1 - g x)) for each vehicle, with cycle
    C, share of green g and degree of saturation x. Flows are of a usual size. Made up: arrivals that drift and that
    turn away from queues for which there is no room, and noise with heavy tails, which moves the log-odds of how full a
    lane is, so that none is ever more than full, nor quite empty.
    """

    name: ClassVar[str] = "traffic"
    title: ClassVar[str] = "Traffic: shares of green against the delay of three queues"
    steps: ClassVar[int] = 24
    step: ClassVar[tuple[float, str]] = (5.0, "minute")
    quantities: ClassVar[tuple[Quantity, ...]] = (
        Quantity("saturation main", "static", "vehicles/h", (500.0, 10000.0)),
        Quantity("saturation side", "static", "vehicles/h", (500.0, 10000.0)),
        Quantity("arrivals main", "contextual", "vehicles/h", (0.0, 10000.0)),
        Quantity("arrivals side", "contextual", "vehicles/h", (0.0, 10000.0)),
        Quantity("arrivals turning", "contextual", "vehicles/h", (0.0, 5000.0)),
        Quantity("queue main", "dynamic", "vehicles", (0.0, ROOM), hard=True),
        Quantity("queue side", "dynamic", "vehicles", (0.0, ROOM), hard=True),
        Quantity("queue turning", "dynamic", "vehicles", (0.0, ROOM), hard=True),
        Quantity("delay", "dynamic", "vehicle hours", (0.0, 200.0), hard=True),
    )
    actions: ClassVar[ActionSpace] = ActionSpace.product(
        Axis("main share", "of green", MAIN_SHARES), Axis("turning green", "of cycle", TURNING_GREENS)
    )
    penalties: ClassVar[dict[str, float]] = {"delay": 1.0}
    variants: ClassVar[tuple[Variant, ...]] = (
        Variant("column", ("queue turning",), "the queue that turns is not recorded, and signals go by it"),
        Variant("constant", ("saturation main", "saturation side"), "how wide the roads are is not recorded"),
        Variant(
            "drift",
            ("arrivals main", "arrivals side", "arrivals turning"),
            "who arrives is not recorded, and signals go by it",
        ),
    )
    noises: ClassVar[int] = 4

    def draw_subjects(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Junctions on some day, at some hour."""
        static = np.array([3400.0, 2600.0]) * np.exp(0.12 * rng.standard_normal((count, 2)).clip(-2.5, 2.5))
        # Main and side road have their rush at different times.
        phase = rng.uniform(0, 2 * np.pi, size=(count, 1))
        rush = np.sin(phase + np.arange(self.steps) * np.pi / 12)
        shape = (count, self.steps)
        drifts = [autoregressive(rng, shape, memory=0.75, deviation=0.22).clip(-0.7, 0.7) for _ in range(3)]
        arrivals = (
            1050 * np.exp(0.25 * rush + drifts[0]),
            700 * np.exp(-0.25 * rush + drifts[1]),
            180 * np.exp(0.15 * rush + drifts[2]),
        )
        queues = np.array([8.0, 7.0, 3.0]) * np.exp(0.6 * rng.standard_normal((count, 3)).clip(-2, 2))
        delay = 1.5 * np.exp(0.5 * rng.standard_normal((count, 1)).clip(-2, 2))
        return static, np.stack(arrivals, axis=2), np.concatenate([queues, delay], axis=1)

    def advance(
        self, states: FloatArray, static: FloatArray, context: FloatArray, doses: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """Five minutes, cycle by cycle."""
        queues, greens = states[:, :3], _greens(doses)
        capacity = _saturation(static) * greens
        most, arriving = capacity * CYCLE / HOUR, context * CYCLE / HOUR
        waiting = np.zeros(len(states))
        for _ in range(CYCLES):
            present = queues + arriving * (1 - queues / ROOM)
            left = present - most * (1 - np.exp(-present / most))
            waiting = waiting + ((queues + left) / 2).sum(axis=1) * CYCLE / HOUR
            queues = left
        saturation = (context / capacity).clip(0, 1)
        uniform = CYCLE * (1 - greens) ** 2 / (2 * (1 - greens * saturation))
        delay = waiting + (uniform * arriving).sum(axis=1) * CYCLES / HOUR
        # The hyperbolic sine gives heavier tails than the normal distribution's.
        heavy = np.sinh(0.7 * noise[:, :3]) / 0.7
        return np.column_stack([shaken(queues / ROOM, 0.22 * heavy) * ROOM, delay * np.exp(0.1 * noise[:, 3])])

    def preferences(self, states: FloatArray, static: FloatArray, context: FloatArray) -> FloatArray:
        """Roughly Webster's rule: green in proportion to need, that of queues included; the main road is favoured."""
        need = (context + 25 * states[:, :3]) / _saturation(static)
        share = need[:, 0] / (need[:, 0] + need[:, 1])
        turning = (1 - LOST) * need[:, 2] / need.sum(axis=1)
        main = (np.array(MAIN_SHARES) - share[:, None] - 0.04) / 0.18
        other = (np.array(TURNING_GREENS) - turning[:, None]) / 0.11
        return np.asarray(-0.5 * (main[:, :, None] ** 2 + other[:, None] ** 2).reshape(len(states), -1))


def _greens(doses: FloatArray) -> FloatArray:
    """Shares of a cycle [N, 3] in which main, side and turning lane have green."""
    share, turning = doses.T
    rest = 1 - LOST - turning
    return np.stack([rest * share, rest * (1 - share), turning], axis=1)


def _saturation(static: FloatArray) -> FloatArray:
    """Vehicles per hour of green [N, 3]."""
    return np.column_stack([static, np.full(len(static), TURNING_FLOW)])
