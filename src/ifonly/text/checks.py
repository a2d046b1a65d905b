"""What a check of a model found, and how good a behaviour model is, in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ifonly.text.catalogue import Message, catalogue, say

if TYPE_CHECKING:
    from ifonly.evidence.behaviour import BehaviourReport
    from ifonly.evidence.check.figures import Estimate, FeatureFigures
    from ifonly.evidence.check.model_check import Finding, ModelCheck, Place, Where
    from ifonly.evidence.check.remedies import TriedRemedy

SHOWN_NAMES = 4

SHIFTED = 0.1
"""Mean scores beyond this make a distribution one that is shifted."""

RESIZED = 0.1
"""Mean squared scores this far from one make it one that is too large or too small."""

ACTION = "action"
OF_FEATURES = (
    "noise_by_state",
    "noise_by_action",
    "noise_size",
    "noise_by_earlier",
    "noise_lasting",
    "noise_between",
    "distance",
)
"""Thresholds of figures of a feature's noise."""
ONLY_BY_VALUES = (
    "not_finite",
    "too_few",
    "constant",
    "hardly_measured",
    "seen_in_training",
    "subjects",
    "parts_left_out",
    "diverges",
)
"""Kinds of findings that have one sentence, whatever their level."""


def concern_message(kind: str) -> Message:
    """What findings of a kind mean where they warn or fail, in a few words; files may hold kinds of other versions."""
    code = f"concern.{kind}"
    return Message(code) if code in catalogue() else Message("check.unknown concern", {"kind": kind})


def concern_messages(kinds: Iterable[str]) -> list[Message]:
    """The same of several findings, each kind once."""
    return [concern_message(kind) for kind in dict.fromkeys(kinds)]


def refusal_message(kinds: Iterable[str], how: str) -> Message:
    """A model that failed its check is refused: why, and how to use it all the same."""
    return Message("model.refused", {"reasons": concern_messages(kinds), "how": how})


# The check as a whole


def headline(check: ModelCheck) -> Message:
    """The verdict in one sentence."""
    levels = [finding.level.value for finding in check.findings]
    if check.verdict == "not judged":
        unjudged = [finding_message(finding, check) for finding in check.findings if finding.level == "not judged"]
        return Message("check.not judged", {"reason": unjudged[0] if unjudged else ""})
    counts = {name: levels.count(level) for name, level in (("failed", "fail"), ("warned", "warn"))}
    if not any(counts.values()):
        return Message("check.pass")
    parts = [Message(f"check.{name}", {"count": count}) for name, count in counts.items() if count]
    return Message("check.concerns", {"verdict": check.verdict.value, "checks": len(levels), "parts": parts})


def check_lines(check: ModelCheck) -> list[str]:
    """The verdict, what it rests on, and what warns, fails or cannot be judged."""
    told = [*check.concerns(), *(finding for finding in check.findings if finding.level == "not judged")]
    return [*_head(check), *(line for finding in told for line in _finding_lines(finding, check))]


def check_details(check: ModelCheck) -> list[str]:
    """Every finding, with all places where it holds."""
    lines = _head(check)
    for finding in check.findings:
        lines += _finding_lines(finding, check)
        for place in finding.places:
            lines.append(say("check.line.place", level=place.level.value, text=place_message(place, check)))
    return lines


def _head(check: ModelCheck) -> list[str]:
    seen = Message("check.seen" if check.seen_in_training else "check.unseen")
    first = say("check.line.verdict", model=check.model, headline=headline(check))
    return [first, say("check.line.about", seen=seen, **vars(check)), *_measured_line(check), *_steps_line(check)]


def _measured_line(check: ModelCheck) -> list[str]:
    """What share of values was measured, where that is known."""
    shares = check.figures.measured
    if not shares:
        return []
    least = min(shares, key=lambda name: shares[name])
    mean = _percent(sum(shares.values()) / len(shares))
    return [say("check.line.measured", share=mean, least=least, lowest=_percent(shares[least]))]


def _steps_line(check: ModelCheck) -> list[str]:
    """Which features are recorded in steps, and in which, where any are."""
    stepped = [
        Message("check.step", {"feature": item.name, "step": f"{item.step:.3g} {item.unit}".rstrip()})
        for item in check.figures.features
        if item.step
    ]
    return [say("check.line.steps", features=stepped)] if stepped else []


def _finding_lines(finding: Finding, check: ModelCheck) -> list[str]:
    """The finding, and what to do about it."""
    first = say("check.line.finding", level=finding.level.value, text=finding_message(finding, check))
    advice = advice_message(finding)
    return [first] if advice is None else [first, say("check.line.advice", advice=advice)]


def cause_message(finding: Finding) -> Message | None:
    """What is likely behind a finding."""
    return None if finding.cause is None else Message(f"cause.{finding.cause}")


def remedy_messages(finding: Finding) -> list[Message]:
    """What to try, the most promising first."""
    return [Message(f"remedy.{code}") for code in finding.remedies]


def advice_message(finding: Finding) -> Message | None:
    """The likely cause and the remedies in a sentence; None where there is nothing to do."""
    cause, remedies = cause_message(finding), remedy_messages(finding)
    if cause is None:
        return None
    return Message("check.advice", {"cause": cause, "remedies": "; ".join(map(str, remedies))})


def trial_rows(check: ModelCheck, trials: Sequence[TriedRemedy]) -> list[dict[str, str]]:
    """The model that was checked and what was tried instead, side by side."""
    known = [(say("try.as checked"), check, check.figures.log_likelihood)]
    known += [(trial.recipe, trial.check, trial.log_likelihood) for trial in trials]
    return [
        {
            "recipe": name,
            "verdict": found.verdict.value,
            "failed": str(sum(one.level == "fail" for one in found.findings)),
            "warned": str(sum(one.level == "warn" for one in found.findings)),
            "likelihood": "-" if likelihood is None else f"{likelihood:.2f}",
            "gain": f"{found.figures.gains['linear'].value:+.2f}" if "linear" in found.figures.gains else "-",
        }
        for name, found, likelihood in known
    ]


def trial_lines(check: ModelCheck, trials: Sequence[TriedRemedy]) -> list[str]:
    """What was tried, as a table for the terminal."""
    if not trials:
        return [say("try.nothing")]
    names = ("recipe", "verdict", "failed", "warned", "likelihood", "gain")
    rows = [{name: say(f"try.column.{name}") for name in names}, *trial_rows(check, trials)]
    widths = {name: max(len(row[name]) for row in rows) for name in names}
    aligned = ["  ".join(_aligned(name, row[name], widths[name]) for name in names).rstrip() for row in rows]
    return [say("try.head"), *(f"  {line}" for line in aligned)]


def _aligned(name: str, text: str, width: int) -> str:
    return text.ljust(width) if name in ("recipe", "verdict") else text.rjust(width)


# One finding


def finding_message(finding: Finding, check: ModelCheck) -> Message:
    """The answer to one question about the model."""
    kind, baseline = finding.kind, finding.kind.removeprefix("gain_over_")
    if baseline in check.figures.gains:
        return _gain(baseline, check.figures.gains[baseline])
    if kind in ONLY_BY_VALUES:
        return _by_values(finding, check)
    if finding.level == "not judged":
        return Message(f"unjudged.{kind}")
    if finding.level == "pass":
        return Message(f"passed.{kind}", _passed_values(finding, check))
    first, *others = finding.places
    values: dict[str, Any] = {"concern": concern_message(kind), "place": place_message(first, check)}
    if not others:
        return Message("finding.one place", values)
    return Message("finding.places", {**values, "others": shown_names([_where(place.where) for place in others])})


def _gain(baseline: str, gain: Estimate) -> Message:
    interval = "" if gain.low is None else Message("gain.interval", vars(gain))
    values = {"baseline": Message(f"baseline.{baseline}"), "value": gain.value, "interval": interval}
    return Message(f"gain.{'better' if gain.value > 0 else 'worse'}", values)


def _by_values(finding: Finding, check: ModelCheck) -> Message:
    kind, values = finding.kind, dict(finding.values)
    if kind == "not_finite":
        share = {"share": _percent(values["share"])} if "share" in values else {}
        return Message(f"finding.not_finite.{values['what']}", {**values, **share})
    if kind == "too_few":
        lost = values["usable"] < values["subjects"]
        return Message(f"finding.too_few{'.of' if lost else ''}", values)
    if kind in ("constant", "hardly_measured"):
        names = {"features": shown_names(values["features"]), "count": len(values["features"])}
        return Message(f"finding.{kind}", {**values, **names})
    if kind == "parts_left_out":
        lists = [
            Message(f"finding.parts_left_out.{name}", {"count": len(values[name]), "names": shown_names(values[name])})
            for name in ("absent", "rare")
            if values[name]
        ]
        return Message(
            "finding.parts_left_out", {"parts": values["parts"], "kind": _groups(values["grouping"]), "lists": lists}
        )
    if kind == "diverges":
        broken = [
            Message("finding.diverges.steps", {"steps": horizon.steps, "share": _percent(horizon.diverged)})
            for horizon in check.figures.ahead
            if horizon.diverged > 0
        ]
        return Message("finding.diverges", {"steps": shown_names(broken)})
    return Message(f"finding.{kind}", values)


def _passed_values(finding: Finding, check: ModelCheck) -> dict[str, Any]:
    if finding.kind in ("skill_ahead", "bias_ahead", "coverage_ahead"):
        return {"steps": max(horizon.steps for horizon in check.figures.ahead if horizon.features)}
    if finding.kind in ("part_by_action", "part_by_group"):
        return {"kind": _groups(finding.values["grouping"])}
    return {}


def _groups(grouping: str) -> Message:
    return Message("groups.action") if grouping == ACTION else Message("groups.by", {"grouping": grouping})


def shown_names(names: Sequence[str | Message]) -> list[str | Message]:
    """The first few of them, and how many more there are; in quotes where commas would mislead."""
    quoted = any("," in str(name) and not str(name).startswith("'") for name in names)
    shown: list[str | Message] = [Message("name.quoted", {"name": name}) if quoted else name for name in names]
    more = len(shown) - SHOWN_NAMES
    return [*shown[:SHOWN_NAMES], Message("name.more", {"more": more})] if more > 0 else shown


# One place


def _where(where: Where) -> Message:
    """What a place is about, without numbers."""
    if where.grouping is None:
        return Message(
            "where.pair" if where.other else "where.feature", {"feature": where.feature, "other": where.other}
        )
    part = "action" if where.grouping == ACTION else "group"
    about = Message(f"where.{part}", {"grouping": where.grouping, "group": where.group})
    return (
        about if where.feature is None else Message("where.feature of part", {"feature": where.feature, "part": about})
    )


def place_message(place: Place, check: ModelCheck) -> Message:
    """One figure beyond its threshold, in the units of its feature."""
    where = place.where
    values: dict[str, Any] = {"where": _where(where)}
    if place.threshold == "choice_by_noise":
        values = {"share": _percent(place.value)}
    elif place.threshold in OF_FEATURES:
        values |= _feature_values(place, check)
    elif place.threshold == "noise_together":
        pair = next(pair for pair in check.figures.pairs if pair.features == (where.feature, where.other))
        values |= {"found": pair.expected + pair.excess.value, "expected": pair.expected}
    elif place.threshold == "coverage":
        values |= _covered(place)
    elif place.threshold in ("skill_ahead", "bias_ahead", "coverage_ahead"):
        values |= _ahead_values(place, check)
    else:
        values |= _part_values(place, check)
    return Message(f"place.{place.threshold}", values)


def _feature(name: str | None, check: ModelCheck) -> FeatureFigures:
    return next(item for item in check.figures.features if item.name == name)


def _feature_values(place: Place, check: ModelCheck) -> dict[str, Any]:
    item = _feature(place.where.feature, check)
    if place.threshold == "noise_lasting":
        return {"correlation": place.value}
    if place.threshold == "noise_by_state":
        return {"share": _percent(place.value), "strongest": item.strongest}
    if place.threshold == "distance":
        return {"share": _percent(place.value), "shape": _shape(item)}
    return {"share": _percent(place.value)}


def _shape(item: FeatureFigures) -> list[Message]:
    """In which way the noise is not as the prior says."""
    found = []
    if item.centre.from_zero() > SHIFTED:
        found.append(Message(f"shape.{_side(item.residual)}", {"amount": _amount(item.residual, item.unit)}))
    middle = item.coverage["50"] if item.coverage else None
    if middle is not None and middle.surely_above > 0.5 and item.tails.value >= 0.01:
        found.append(Message("shape.heavy"))
    elif middle is not None and middle.surely_below < 0.5 and item.tails.value <= 0.01:
        found.append(Message("shape.light"))
    elif item.size.surely_above > 1 + RESIZED:
        found.append(Message("shape.large"))
    elif item.size.surely_below < 1 - RESIZED:
        found.append(Message("shape.small"))
    return found or [Message("shape.other")]


def _covered(place: Place) -> dict[str, Any]:
    level = int(place.where.interval or 0)
    side = Message("interval.narrow" if place.value < 0 else "interval.wide")
    return {"interval": level, "share": _percent(place.value + level / 100), "side": side}


def _ahead_values(place: Place, check: ModelCheck) -> dict[str, Any]:
    horizon = next(one for one in check.figures.ahead if one.steps == place.where.steps)
    if place.threshold == "coverage_ahead":
        return {"steps": horizon.steps, **_covered(place)}
    if place.threshold == "bias_ahead":
        side = Message(f"side.{_side(place.value)}")
        return {"steps": horizon.steps, "bias": f"{abs(place.value):.2f}", "side": side}
    item = next(one for one in horizon.features if one.name == place.where.feature)
    unit = _feature(item.name, check).unit
    amounts = {"error": _amount(item.error, unit), "persistence": _amount(item.persistence, unit)}
    return {"steps": horizon.steps, **amounts}


def _part_values(place: Place, check: ModelCheck) -> dict[str, Any]:
    where = place.where
    part = next(one for one in check.figures.parts if (one.grouping, one.name) == (where.grouping, where.group))
    transitions = {"transitions": part.transitions or 0}
    if place.threshold == "coverage_of_part":
        return {**_covered(place), **transitions}
    if place.threshold == "gain_over_linear":
        assert part.gain is not None
        return {"nats": -part.gain.value}
    item = next(one for one in part.features if one.name == where.feature)
    unit = _feature(item.name, check).unit
    side = Message(f"side.{_side(item.bias.value)}")
    return {"amount": _amount(item.residual, unit), "side": side, "bias": item.bias.value, **transitions}


def _side(value: float) -> str:
    return "higher" if value > 0 else "lower"


def _amount(value: float, unit: str) -> str:
    """A number without its sign, with its unit."""
    return f"{abs(value):.3g} {unit}".strip()


def _percent(share: float) -> str:
    """A share in percent, with a digit after the point where it is small.

    >>> _percent(0.123), _percent(0.0123)
    ('12 %', '1.2 %')
    """
    return f"{100 * share:.0f} %" if abs(share) >= 0.0995 else f"{100 * share:.1f} %"


# Behaviour models


def behaviour_notes(report: BehaviourReport) -> list[Message]:
    """What a reader must know about the cohort that a behaviour model was learned from."""
    notes = []
    if report.never_chosen:
        notes.append(
            Message("behaviour.never chosen", {"names": shown_names([f"'{one}'" for one in report.never_chosen])})
        )
    if report.constant:
        values = {"names": shown_names(report.constant), "count": len(report.constant)}
        notes.append(Message("behaviour.constant", values))
    if report.rough:
        notes.append(Message("behaviour.few held out", {"subjects": report.held_out.subjects}))
    if report.worse_than_frequencies:
        notes.append(Message("behaviour.worse than frequencies"))
    return notes


def behaviour_lines(report: BehaviourReport) -> list[str]:
    """How good a behaviour model is on subjects that it has not seen."""
    parts = {
        name: Message("behaviour.part", vars(getattr(report, name))) for name in ("training", "calibration", "held_out")
    }
    lines = [
        Message("behaviour.line.parts", parts),
        Message("behaviour.line.likelihood", vars(report)),
        Message("behaviour.line.calibration", vars(report)),
        Message("behaviour.line.groups"),
    ]
    for group in report.by_probability:
        shares = {"given": _two_digits(group.given), "happened": _two_digits(group.happened)}
        ends = {"low": 100 * group.low, "high": 100 * group.high}
        lines.append(Message("behaviour.line.group", {**ends, **shares, "count": group.count}))
    lines += [Message("behaviour.line.note", {"note": note}) for note in behaviour_notes(report)]
    return [str(line) for line in lines]


def _two_digits(share: float) -> str:
    """A share in percent with two digits; whole from 10 % on.

    >>> _two_digits(0.00843), _two_digits(0.131), _two_digits(1.0)
    ('0.84 %', '13 %', '100 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"
