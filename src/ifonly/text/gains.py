"""What is left of a promised gain, in words: by those who did not choose it, by records like it, under other luck."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ifonly.data.schema import moment
from ifonly.text.catalogue import Message
from ifonly.text.numbers import percent

if TYPE_CHECKING:
    from ifonly.data.schema import Schema
    from ifonly.query import Query
    from ifonly.result import Evidence
    from ifonly.result.calibration import LocalCalibration, StepCalibration
    from ifonly.result.coupling import Coupling, CouplingGain

SHOWN_FEATURES = 3
"""Features that a sentence names, those that are off most."""

PLAIN = 2.0
"""Standard errors beyond which a bias is told."""

FAR = 90.0
"""From this percentile on it is told how far off comparable records are."""


# Chosen by some, judged by others


def gain_messages(evidence: Evidence, query: Query) -> tuple[Message, ...]:
    """The promise, and what is left of it once what it owes to having been chosen is taken off; or why not told."""
    found, moved = evidence.estimate, moves(query)
    if found is None or evidence.promised is None:
        return _chosen_together(evidence, query)
    ends = {"low": moved(found.low), "high": moved(found.high)}
    label = query.reward.show(0.0).label
    values = {"label": label, "promised": moved(evidence.promised), "gain": moved(found.gain), **ends}
    values["held"] = percent(found.held, 0)
    anew = (Message("judged.anew"),) if evidence.judged_anew else ()
    believed = evidence.verdict.value != "not believable"
    return (Message("judged.gain" if believed else "judged.gain alone", values), *anew)


def _chosen_together(evidence: Evidence, query: Query) -> tuple[Message, ...]:
    """What either half of the members promises and the other half says of it, where all of a half chose together."""
    told = evidence.honest
    if told is None or not told.together or evidence.promised is None:
        return ()
    gains = {name: moves(query)(getattr(told, name)) for name in ("promised", "judged")}
    values = {"label": query.reward.show(0.0).label, "gain": moves(query)(evidence.promised), **gains}
    return (Message("judged.together", values),)


def moves(query: Query) -> Callable[[float], Message]:
    """Turns improvements into words, in the outcome's own direction."""
    shown = query.reward.show(0.0)
    size = abs(query.reward.show(1.0).value - shown.value)

    def moved(improvement: float) -> Message:
        if not math.isfinite(improvement):
            return Message("refits.not finite")
        if improvement == 0:
            return Message("refits.unchanged")
        better = (improvement > 0) == shown.higher_is_better
        return Message(f"refits.{'higher' if better else 'lower'}", {"amount": f"{size * abs(improvement):.4g}"})

    return moved


# Comparable records


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


# Other luck


def coupling_messages(found: Coupling, query: Query) -> tuple[Message, ...]:
    """Down to which correlation the changes help on average, then the gain for each that was asked."""
    if not found.helps:
        return (Message("coupling.nothing gained"),)
    if all(one.low == one.high for one in found.gains):
        return (Message("coupling.last action"),)
    whose = "" if found.member is None else Message("sensitivity.whose", {"number": found.member + 1})
    head = Message("coupling.always", {"whose": whose})
    if found.smallest is not None:
        rounded = math.ceil(found.smallest * 100) / 100
        head = Message("coupling.smallest", {"whose": whose, "smallest": f"{rounded:.2f}"})
    return (head, *(_gain(one, query) for one in found.gains))


def _gain(one: CouplingGain, query: Query) -> Message:
    values = {"correlation": f"{one.correlation:g}"}
    if not math.isfinite(one.expected):
        return Message("coupling.not finite", values)
    values |= {"expected": amount(abs(one.expected), query)}
    if one.correlation == 1:
        return Message("coupling.same", values)
    ends = {name: amount(getattr(one, name), query) for name in ("low", "high")}
    return Message(f"coupling.{'gain' if one.expected >= 0 else 'loss'}", values | ends)
