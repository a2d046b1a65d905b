"""What comparable records say of an answer, in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ifonly.data.schema import moment
from ifonly.text.catalogue import Message

if TYPE_CHECKING:
    from ifonly.data.schema import Schema
    from ifonly.query import Query
    from ifonly.result.calibration import LocalCalibration, StepCalibration

SHOWN_FEATURES = 3
"""Features that a sentence names, those that are off most."""

PLAIN = 2.0
"""Standard errors beyond which a bias is told."""

FAR = 90.0
"""From this percentile on it is told how far off comparable records are."""


def calibration_messages(found: LocalCalibration, schema: Schema, query: Query) -> tuple[Message, ...]:
    """What is left of the gain, then what records say of every changed step."""
    if not found.steps:
        return (Message("calibration.last action"),)
    told = [_step(step, schema) for step in found.steps if step.changed]
    return (adjusted_message(found, query), *told, Message("calibration.sizes"))


def adjusted_message(found: LocalCalibration, query: Query) -> Message:
    """What becomes of the promised gain."""
    whose = "" if found.member is None else Message("sensitivity.whose", {"number": found.member + 1})
    values = {"whose": whose, "gain": amount(found.gain, query)}
    if found.deviation is None or not math.isfinite(found.adjusted):
        return Message("calibration.not finite", values)
    left = {"adjusted": amount(found.adjusted, query), "deviation": amount(found.deviation, query)}
    return Message("calibration.adjusted", {**values, **left})


def amount(gain: float, query: Query) -> str:
    """A gain in the units that outcomes are shown in; positive where it is one."""
    size = abs(query.reward.show(1.0).value - query.reward.show(0.0).value)
    return f"{size * gain:.3g}"


def _step(step: StepCalibration, schema: Schema) -> Message:
    when = moment(schema, step.step)
    if not step.records:
        return Message("calibration.none", {"when": when})
    far: Message | str = ""
    if step.percentile > FAR:
        far = Message("calibration.far", {"percent": f"{math.floor(step.percentile)}"})
    plain = sorted(
        (one for one in zip(step.bias, step.error, schema.dynamic, strict=True) if abs(one[0]) > PLAIN * one[1]),
        key=lambda one: -abs(one[0]),
    )
    named = [
        Message("calibration.feature", {"feature": feature.name, "bias": f"{bias:+.2f}", "error": f"{error:.2f}"})
        for bias, error, feature in plain[:SHOWN_FEATURES]
    ]
    biases = Message("calibration.off", {"features": named}) if named else Message("calibration.right")
    return Message("calibration.step", {"when": when, "records": step.records, "far": far, "biases": biases})
