"""What speaks for an answer and against it, in words: messages for pages, lines for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ifonly.data.schema import moment
from ifonly.models.standing import REFIT
from ifonly.text.catalogue import Message, say
from ifonly.text.checks import concern_messages, shown_names
from ifonly.text.gains import adjusted_message, calibration_messages, coupling_messages, gain_messages, moves
from ifonly.text.numbers import percent
from ifonly.text.verdict import verdict_message

if TYPE_CHECKING:
    from ifonly.data.schema import Feature, Schema
    from ifonly.models.ensemble import Ensemble
    from ifonly.models.standing import EnsembleNote, Standing
    from ifonly.query import Query
    from ifonly.result import Agreement, Evidence, EvidenceWarning, Result, Sensitivity, SupportReport
    from ifonly.result.evidence import ExaminationFailure, ScoreGain, StepSupport
    from ifonly.result.sensitivity import FeatureSensitivity, StepSensitivity

SHOWN_EFFECTS = 3
"""Features that a sentence names, those that move most."""

NEGLIGIBLE = 0.01
"""Proven bounds below this, in standard deviations, are not worth telling."""


@dataclass(frozen=True)
class EvidenceMessages:
    """Everything about the evidence for one answer; a part is empty where nobody asked or nothing is changed."""

    statement: Message
    """The one line that stands beside every answer."""
    warnings: tuple[Message, ...]
    """One for each of `Evidence.warnings`, in their order."""
    gain: tuple[Message, ...]
    """What is left of the promise once what it owes to having been chosen is taken off, with its interval."""
    refits: tuple[Message, ...]
    """Of each part the summary first, then the details."""
    support: tuple[Message, ...]
    calibration: tuple[Message, ...]
    sensitivity: tuple[Message, ...]
    coupling: tuple[Message, ...]
    organs: tuple[Message, ...]


def evidence_line(result: Result) -> str:
    """The statement alone, such as "Model check: pass; 18 of 20 refits agree."."""
    return str(_statement(result.evidence, result.schema))


def evidence_lines(result: Result) -> list[str]:
    """The lines of the evidence for a result."""
    return lines_of(result.evidence, result.schema, result.query)


def messages_of(evidence: Evidence, schema: Schema, query: Query) -> EvidenceMessages:
    """All that is to be said about the evidence for an answer."""
    parts = (evidence.refits, evidence.support, evidence.calibration, evidence.sensitivity, evidence.coupling)
    refits, support, calibration, sensitivity, coupling = parts if evidence.changed_steps else (None,) * len(parts)
    return EvidenceMessages(
        statement=_statement(evidence, schema),
        warnings=tuple(warning_message(warning, evidence, schema, query) for warning in evidence.warnings),
        gain=gain_messages(evidence, query),
        refits=() if refits is None else refit_messages(refits, schema, query),
        support=() if support is None else support_messages(support, schema),
        calibration=() if calibration is None else calibration_messages(calibration, schema, query),
        sensitivity=() if sensitivity is None else sensitivity_messages(sensitivity, schema),
        coupling=() if coupling is None else coupling_messages(coupling, query),
        organs=tuple(message for score in evidence.scores for message in organ_messages(score, evidence)),
    )


def lines_of(evidence: Evidence, schema: Schema, query: Query) -> list[str]:
    """Everything for the terminal: the statement, what is left of the gain, the warnings, the parts with details."""
    told = messages_of(evidence, schema, query)
    lines = [told.statement, *(_line("gain", gain) for gain in told.gain)]
    lines += [_line("warning", warning) for warning in told.warnings]
    if evidence.check is not None:
        values = {"episodes": evidence.check.episodes, "verdict": evidence.check.verdict}
        lines.append(Message("evidence.line.check", values))
    for name in ("refits", "support", "calibration", "sensitivity", "coupling", "organs"):
        first, *details = getattr(told, name) or (None,)
        if first is not None:
            head = "kinds" if name == "refits" and evidence.refits is not None and evidence.refits.of_kinds else name
            lines += [_line(head, first), *(_line("detail", detail) for detail in details)]
    return [str(line) for line in lines]


def _line(name: str, text: Message) -> Message:
    return Message(f"evidence.line.{name}", {"text": text})


# The model's check


def model_message(check: Standing | None) -> Message:
    """What a check concluded about the model, in a sentence."""
    return Message("evidence.check alone", {"check": _checked(check)})


def caution_message(check: Standing | None) -> Message | None:
    """That the model failed its check, and why; None where it did not."""
    if check is None or not check.failed:
        return None
    return Message("standing.caution", {"reasons": concern_messages(check.findings)})


def _checked(check: Standing | None) -> Message:
    return Message(f"standing.{'not checked' if check is None else check.verdict}")


# All together


def _statement(evidence: Evidence, schema: Schema) -> Message:
    told, verdict = _told(evidence, schema), verdict_message(evidence)
    return told if verdict is None else Message("evidence.judged", {"verdict": verdict, "told": told})


def _told(evidence: Evidence, schema: Schema) -> Message:
    checked = _checked(evidence.check)
    if not evidence.changed_steps:
        return Message("evidence.nothing changed", {"check": checked})
    said = []
    if evidence.refits is not None:
        said.append(agreeing_message(evidence.refits))
    if evidence.support is not None:
        said.append(_support_summary(evidence.support))
    if evidence.sensitivity is not None:
        said.append(_influence(evidence.sensitivity, schema))
    said += [_failure(failure) for failure in evidence.failures]
    if not said:
        return Message("evidence.not examined", {"check": checked})
    return Message("evidence.statement", {"check": checked, "found": _joined(said)})


def _joined(messages: Sequence[Message]) -> Message:
    return reduce(lambda first, rest: Message("evidence.joined", {"first": first, "rest": rest}), messages)


def warning_message(warning: EvidenceWarning, evidence: Evidence, schema: Schema, query: Query) -> Message:
    """What one of `evidence.warnings` says."""
    code = f"warning.{warning.code.value}"
    if warning.code == "model check":
        assert evidence.check is not None
        return Message(f"{code}.{evidence.check.verdict}", {"reasons": concern_messages(evidence.check.findings)})
    if warning.code == "refits disagree":  # the statement says how many
        return Message(code, {"members": members_message(evidence.refits)})
    if warning.code == "refits change other steps":
        steps = [
            Message(f"{code}.step", {**step, "when": moment(schema, step["step"])}) for step in warning.values["steps"]
        ]
        return Message(code, {"steps": steps, "members": members_message(evidence.refits)})
    if warning.code == "beyond the data":
        return Message("support.beyond", {"steps": len(warning.values["steps"])})
    if warning.code == "leaves plausible ranges":
        return Message(code, {"kept": percent(warning.values["kept"], 0)})
    if warning.code == "not borne out":
        score = next(one for one in evidence.scores if one.score == warning.values["score"])
        return Message(code, {"gain": gain_message(score)})
    if warning.code == "beyond calibration":
        assert evidence.calibration is not None
        return Message(code, {"found": adjusted_message(evidence.calibration, query)})
    if warning.code == "small influence":
        assert evidence.sensitivity is not None
        return _influence(evidence.sensitivity, schema)
    return _joined([_failure(failure) for failure in evidence.failures])


def _failure(failure: ExaminationFailure) -> Message:
    return Message(f"evidence.failed.{failure.part}", {"reason": str(failure.reason).rstrip(".")})


def warned_message(code: str) -> Message:
    """A kind of warning in a few words, for counts and tables."""
    return Message(f"warned.{code}")


# Refits


def agreeing_message(refits: Agreement) -> Message:
    """Under how many refits the changes help."""
    if refits.count == 1:
        return Message(f"refits.the only one {'agrees' if refits.helping else 'disagrees'}")
    values = {"helping": refits.helping, "refits": refits.count, "members": members_message(refits)}
    return Message("refits.agree", values)


def members_message(refits: Agreement | None) -> Message:
    """What its members are called."""
    return Message(f"members.{'kinds' if refits is not None and refits.of_kinds else 'refits'}")


def refit_messages(refits: Agreement, schema: Schema, query: Query) -> tuple[Message, ...]:
    """How much the refits gain, and at which steps they would act alike; the statement says how many agree."""
    told, whose = [_gains(refits, query)], {"members": members_message(refits)}
    if broken := int(np.isinf(refits.improvements).sum()):
        told.append(Message("refits.broken", {"broken": broken, "refits": refits.count, **whose}))
    for step in refits.steps or ():
        if step.of:
            values = {"same_step": step.same_step, "of": step.of, "same_action": step.same_action, **whose}
            told.append(Message("refits.step", {"when": moment(schema, step.step), **values}))
    if refits.unsolved:
        told.append(Message("refits.unsolved", {"unsolved": refits.unsolved, "refits": refits.count, **whose}))
    return (*told, *map(note_message, refits.notes))


def note_message(note: EnsembleNote) -> Message:
    """What limits what the agreement of an ensemble's members can mean."""
    values = {"names": shown_names(note.names), "count": note.count, "of": note.of}
    return Message("ensemble.note", {"note": Message(f"ensemble.{note.kind}", values)})


def _gains(refits: Agreement, query: Query) -> Message:
    """The improvements in the outcome's own direction; of a few refits all of them, of one no interval."""
    shown, moved = query.reward.show(0.0), moves(query)
    counted = Message("refits.counted", {"cost": f"{query.change_cost:g}"}) if query.change_cost else ""
    values: dict[str, Any] = {"label": shown.label, "median": moved(refits.median), "counted": counted}
    values["members"] = members_message(refits)
    if refits.count == 1:
        return Message("refits.one", values)
    low, high = refits.spread
    which = "nine of ten" if refits.many else "all"
    return Message(f"refits.{which}", {**values, "low": moved(low), "high": moved(high)})


# Support


def _support_summary(support: SupportReport) -> Message:
    if support.flagged:
        return Message("support.beyond", {"steps": len(support.flagged)})
    known = all(step.percentile is not None for step in support.steps)
    return Message("support.usual and near" if known else "support.usual")


def support_messages(support: SupportReport, schema: Schema) -> tuple[Message, ...]:
    """Whether the data supports the course, and what is unusual, or how usual each change is."""
    details = [message for step in support.steps for message in step_support_messages(step, schema)]
    return (_support_summary(support), *details)


def step_support_messages(step: StepSupport, schema: Schema) -> tuple[Message, ...]:
    """What is unusual about a step; of a change where nothing is, how usual it is; of other steps nothing."""
    if step.flags:
        return tuple(_flag(flag, step, schema) for flag in step.flags)
    return (_flag("unlikely", step, schema),) if step.changed else ()


def _flag(flag: str, step: StepSupport, schema: Schema) -> Message:
    when = moment(schema, step.step)
    if flag == "unlikely":
        assert step.probability is not None, "otherwise not finite"
        return Message("support.chosen", {"when": when, "share": share_message(step.probability)})
    if flag == "far":
        assert step.percentile is not None
        known = Message("support.percent", {"percent": f"{step.percentile:.4g}"})
        return Message(
            "support.far", {"when": when, "share": Message("support.any") if step.percentile == 100 else known}
        )
    return Message(f"support.{flag}", {"when": when})


def share_message(probability: float) -> Message:
    """A probability as a share of situations.

    >>> [str(share_message(share)) for share in (0.0049, 0.31, 1e-7, 0.97)]
    ['about 1 of 200', 'about 1 of 3', 'fewer than 1 of 10,000', 'nearly all']
    """
    if probability < 1e-4:
        return Message("share.hardly any")
    if probability > 0.95:
        return Message("share.nearly all")
    if probability > 0.4:
        return Message("share.of ten", {"count": round(10 * probability)})
    count = 1 / probability
    digits = max(0, math.floor(math.log10(count)) - 1)
    return Message("share.one of", {"count": f"{int(round(count, -digits)):,}"})


# Organs


def gain_message(score: ScoreGain) -> Message:
    """How a score moves by the model, how by its organs, and which organs drive it."""
    leading = score.leading
    values = {"score": score.score, "claimed": _points(score.claimed), "recomputed": _points(score.recomputed)}
    named = {"organs": [Message(f"organ.{one.organ}") for one in leading]}
    driven = Message("organs.alone" if leading == score.driving else "organs.leading", named) if leading else ""
    return Message("organs.gain", {**values, "leading": driven})


def organ_messages(score: ScoreGain, evidence: Evidence) -> tuple[Message, ...]:
    """The same, then every organ that moves, what is not recorded, and why the gain is not judged."""
    moved = [
        Message("organs.organ", {"organ": Message(f"organ.{one.organ}"), "points": f"{-one.gain:+.0f}"})
        for one in sorted(score.organs, key=lambda one: -one.gain)
        if one.gain
    ]
    told = [gain_message(score)]
    if moved:
        told.append(Message("organs.each", {"organs": moved}))
    if score.left_out:
        told.append(Message("organs.left out", {"score": score.score, "inputs": list(score.left_out)}))
    if score.recorded_difference > evidence.thresholds.same_score:
        difference = f"{score.recorded_difference:.1f}"
        told.append(Message("organs.not judged", {"score": score.score, "difference": difference}))
    return tuple(told)


def _points(gain: float) -> Message:
    """By how much a score moves; a gain is a fall."""
    if not math.isfinite(gain):
        return Message("organs.unknown")
    size = f"{abs(gain):.1f}".removesuffix(".0")
    if size == "0":
        return Message("organs.unchanged")
    return Message(f"organs.{'falls' if gain > 0 else 'rises'}", {"size": size, "count": float(size)})


# Sensitivity


def sensitivity_messages(found: Sensitivity, schema: Schema) -> tuple[Message, ...]:
    """What would undo the gain: in a sentence, at each step, and by a steady push of each feature."""
    told = [_influence(found, schema, proven=True)]
    told += [_step_influence(step, found.largest, schema) for step in found.steps]
    pushes = [item for item in found.features if item.undone_by is not None]
    told += [_push(item, schema) for item in sorted(pushes, key=lambda item: abs(item.undone_by or 0.0))]
    if found.features and not pushes:
        told.append(Message("sensitivity.feature.none found", {"largest": f"{found.largest:g}"}))
    if found.steps:
        told.append(Message("sensitivity.sizes"))
    return tuple(told)


def _influence(found: Sensitivity, schema: Schema, *, proven: bool = False) -> Message:
    """The smallest influence that undoes the gain; with what is `proven` to be harmless."""
    if not found.helps:
        return Message(f"sensitivity.{'nothing gained' if found.member is None else 'no refit gains'}")
    if not found.steps:
        return Message("sensitivity.last action")
    whose = "" if found.member is None else Message("sensitivity.whose", {"number": found.member + 1})
    weakest = found.weakest
    if weakest is None or weakest.undone_by is None:
        return Message("sensitivity.none found", {"whose": whose, "largest": f"{found.largest:g}"})
    values = {"size": rounded_up(weakest.undone_by), "when": moment(schema, weakest.step), "whose": whose}
    bound = found.harmless_below
    harmless = _harmless(bound) if proven and bound is not None else ""
    return Message("sensitivity.weakest", {**values, "harmless": harmless})


def _step_influence(step: StepSensitivity, largest: float, schema: Schema) -> Message:
    when = moment(schema, step.step)
    if math.isinf(step.harmless_below):
        return Message("sensitivity.step.never", {"when": when})
    values: dict[str, Any] = {"when": when, "harmless": _harmless(step.harmless_below)}
    if step.undone_by is None:
        return Message("sensitivity.step.none found", {**values, "largest": f"{largest:g}"})
    moves = sorted(zip(step.scaled_effect, step.effect, schema.dynamic, strict=True), key=lambda move: -abs(move[0]))
    effects = [
        Message("sensitivity.step.effect", {"feature": feature.name, "amount": _signed(value, feature)})
        for _, value, feature in moves[:SHOWN_EFFECTS]
        if value
    ]
    values |= {"size": rounded_up(step.undone_by), "effects": effects, "next": moment(schema, step.step + 1)}
    return Message("sensitivity.step.undone", values)


def _push(item: FeatureSensitivity, schema: Schema) -> Message:
    assert item.undone_by is not None
    feature = schema.dynamic[schema.dynamic_index(item.feature)]
    values = {"size": rounded_up(abs(item.undone_by)), "amount": _signed(item.effect, feature)}
    return Message(
        "sensitivity.feature.undone", {"feature": item.feature, **values, "harmless": _harmless(item.harmless_below)}
    )


def _signed(value: float, feature: Feature) -> str:
    return f"{value:+.3g} {feature.unit}".rstrip()


def _harmless(bound: float) -> Message | str:
    """What is proven not to undo the gain, if that is anything."""
    if bound < NEGLIGIBLE or math.isinf(bound):
        return ""
    return Message("sensitivity.harmless", {"bound": rounded_down(bound)})


def rounded_down(value: float) -> str:
    """A positive number with two digits after the point, never above it.

    >>> rounded_down(0.4391), rounded_down(0.003)
    ('0.43', '0.00')
    """
    return f"{math.floor(value * 100) / 100:.2f}"


def rounded_up(value: float) -> str:
    """The same, never below it.

    >>> rounded_up(1.2001)
    '1.21'
    """
    return f"{math.ceil(value * 100) / 100:.2f}"


def member_lines(ensemble: Ensemble) -> list[str]:
    """Who an ensemble's members are, how their training went, and what limits what their agreement can mean."""
    alike = all(label.kind == REFIT for label in ensemble.labels)
    head = _refits_line(ensemble) if alike else _kinds_line(ensemble)
    return [head, *(str(note_message(note)) for note in ensemble.notes)]


def _refits_line(ensemble: Ensemble) -> str:
    reports = [member.fit_report for member in ensemble.members if member.fit_report is not None]
    held_out = [report.validation_loss[report.kept_epoch - 1] for report in reports if report.validation_loss]
    line = say("ensemble.members", count=len(ensemble), kind=ensemble.centre.kind)
    if not held_out:
        return line
    kept = [report.kept_epoch for report in reports]
    ends = {"low": f"{min(held_out):.4f}", "high": f"{max(held_out):.4f}", "first": min(kept), "last": max(kept)}
    return line + say("ensemble.losses", **ends)


def _kinds_line(ensemble: Ensemble) -> str:
    """What each kind of member counts, the largest first."""
    kinds: dict[str, float] = {}
    for label, weight in zip(ensemble.labels, ensemble.weights, strict=True):
        kinds[label.kind] = kinds.get(label.kind, 0.0) + weight
    ranked = sorted(kinds.items(), key=lambda pair: -pair[1])
    listed = [say("ensemble.kind", kind=kind, weight=percent(weight, 0)) for kind, weight in ranked]
    return say("ensemble.kinds", count=len(ensemble), kinds=len(kinds), weights=", ".join(listed))
