"""How far an answer may be trusted, as a case tells it: a sentence first, then what it rests on, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ifonly.cases.courses import Course, finite
from ifonly.data.schema import moment
from ifonly.errors import IfonlyError
from ifonly.evidence.examination import Examination
from ifonly.evidence.limits import in_force
from ifonly.evidence.rechecked import with_check
from ifonly.evidence.refits import INTERVAL, MANY, agreeing
from ifonly.evidence.supported import not_finite
from ifonly.evidence.trusted import CHECKED
from ifonly.evidence.words import one_of, rounded_down, rounded_up
from ifonly.models.standing import Standing
from ifonly.problem import BaseProblem

Plain = Mapping[str, Any]

DETAILS = ("refits", "support", "sensitivity")
DEVIATIONS = "of its usual standard deviations"


def model_words(standing: Standing | None) -> str:
    """What a check concluded about the model, in a sentence."""
    if standing is None:
        return "The model was not checked."
    if standing.verdict == "not judged":
        return "Model check: not judged, for want of data."
    return f"Model check: {standing.verdict}."


def failure_words(standing: Standing | None) -> str | None:
    """What to be careful with above all: that the model has failed; None where it has not."""
    if standing is None or not standing.failed:
        return None
    return (
        f"The model failed its check ({standing.summary}), so what is best under it means little. It was asked all "
        "the same."
    )


def trust_of(problem: BaseProblem, best: Course | None, found: Plain | None) -> dict[str, Any]:
    """What a case says of its answer `best`, from what an examination found (`Trust.to_dict`, or `trust_in_row`).

    Improvements are in units of the outcome as shown; positive is better.
    """
    parts = found if found is not None and best is not None and best.changes else {}
    return {
        "statement": _statement(problem.standing, best, found),
        "examined": any(parts.get(name) is not None for name in DETAILS),
        "warnings": [_sentence(warning) for warning in parts.get("warnings") or ()],
        "refits": _part(parts, "refits", lambda part: _refits(problem, best, part)),
        "support": _part(parts, "support", lambda part: support_words(problem, part)),
        "sensitivity": _part(parts, "sensitivity", lambda part: _sensitivity(problem, part)),
    }


def _part(parts: Plain, name: str, show: Any) -> Any:
    return None if parts.get(name) is None else show(parts[name])


def _statement(standing: Standing | None, best: Course | None, found: Plain | None) -> str:
    known = model_words(standing)
    if best is None:
        return known
    if not best.changes:
        return f"{known} Nothing is changed, so there is nothing to examine."
    if found is None or found["summary"] in CHECKED.values():
        return f"{known} This answer was not examined any further."
    said = _sentence(found["summary"])
    # Of a model that has not passed, an examination tells itself.
    return f"{known} {said}" if standing is not None and standing.verdict == "pass" else said


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _refits(problem: BaseProblem, best: Course | None, part: Plain) -> dict[str, Any]:
    assert best is not None, "examined"
    size = abs(problem.reward.show(1.0).value - problem.reward.show(0.0).value)

    def shown(value: float | None) -> float | None:
        return None if value is None else finite(size * value)

    steps = {step["step"]: step for step in part["steps"] or ()}
    improvements = [shown(value) for value in part["improvements"]]
    return {
        "summary": _sentence(part["summary"]),
        "refits": part["refits"],
        "helping": part["helping"],
        "improvements": improvements,
        "own": shown(problem.outcome(np.array(best.actions)) - problem.observed_outcome),
        "median": shown(part["median"]),
        **_spread({name: shown(part[name]) for name in ("low", "high")}, improvements),
        "steps": None
        if part["steps"] is None
        else [
            {"step": change.step, "at": change.at, "words": change.words, **_step_shares(steps[change.step])}
            for change in best.changes
        ],
        "unsolved": part["unsolved"],
        "notes": list(part["notes"]),
    }


def _spread(interval: Plain, improvements: list[float | None]) -> dict[str, Any]:
    """Between which improvements how many refits lie: of a few all of them, for nine of ten would claim too much."""
    if len(improvements) >= MANY:
        return {**interval, "between": "nine of ten"}
    known = [value for value in improvements if value is not None]
    low = None if len(known) < len(improvements) else min(known)
    return {"low": low, "high": max(known, default=None), "between": "all"}


def _step_shares(step: Plain) -> dict[str, Any]:
    """The share of refits that change the step in their own best sequence, and to the same treatment; None: unknown."""
    of = step["of"]
    return {name: None if not of or step[name] is None else step[name] / of for name in ("same_step", "same_action")}


def support_words(problem: BaseProblem, part: Plain) -> dict[str, Any]:
    """What a report on support (`SupportReport.to_dict`) says of changed and of flagged steps, in sentences."""
    schema = problem.episode.schema
    told = []
    for step in part["steps"]:
        flags = list(step["flags"])
        if not flags and not step["changed"]:
            continue
        usual = [] if flags else [_chosen(problem, step["step"], step["probability"])]
        told.append(
            {
                "step": step["step"],
                "at": step["step"] * schema.step_length,
                "changed": step["changed"],
                "beyond": bool(flags),
                "words": [_sentence(words) for words in (flags or usual)],
            }
        )
    return {"summary": _sentence(part["summary"]), "steps": told}


def _chosen(problem: BaseProblem, step: int, probability: float) -> str:
    when = moment(problem.episode.schema, step)
    return f"at {when} this action was chosen in {one_of(probability)} comparable situations"


def _sensitivity(problem: BaseProblem, part: Plain) -> dict[str, Any]:
    schema = problem.episode.schema
    units = {feature.name: feature.unit for feature in schema.dynamic}
    details = [
        f"At {moment(schema, step['step'])}: {_influence(step, part['largest_tried'])}" for step in part["steps"]
    ]
    for item in part["features"]:
        if item["undone_by"] is not None:
            push = f"{item['effect']:+.3g} {units[item['feature']]}".rstrip()
            details.append(
                f"A steady push of {item['feature']} at every step would be enough with "
                f"{rounded_up(abs(item['undone_by']))} {DEVIATIONS}, about {push} a step."
            )
    if part.get("member") is not None:
        details.insert(0, f"All of this is about refit {part['member'] + 1}, which gains least of those that gain.")
    return {"summary": _sentence(part["summary"]), "details": details}


def _influence(step: Plain, largest: float) -> str:
    bound, undone = step["harmless_below"], step["undone_by"]
    if bound is None:
        return "no influence can undo the gain."
    proven = f"; influences below {rounded_down(bound)} cannot" if bound >= 0.01 else ""
    if undone is None:
        return f"no influence was found to undo the gain, up to {largest:g} {DEVIATIONS}{proven}."
    return f"an influence of {rounded_up(undone)} {DEVIATIONS} would undo the gain{proven}."


def trust_in_row(
    problem: BaseProblem, row: Plain, again: Examination | None = None, limits: Mapping[str, float] | None = None
) -> dict[str, Any] | None:
    """What a row of a run's table tells of its answer, in the shape of `Trust.to_dict`; None where nobody asked.

    A row keeps less than an examination tells: of states that lie far from the data, at which steps; of influences that
    undo the gain, how small one may be. For the rest, what the run had examined is examined `again`, if that is given.
    `limits` are those that the run warned by (`Run.warning_limits`); None: those of today.
    """
    if row.get("trust") is None:
        return None
    told = _told(problem, row, limits or in_force())
    if again is None:
        return told
    try:
        found = again.of(problem, np.array(row["actions"])).to_dict()
    except IfonlyError:  # as in the run, which says why
        return told
    fresh = {name: found[name] for name in DETAILS if found[name] is not None}
    if "refits" in fresh and told["refits"] is not None:  # solving each of them again would take too long
        fresh["refits"] |= {name: told["refits"][name] for name in ("steps", "unsolved")}
    return {**told, **fresh}


def _told(problem: BaseProblem, row: Plain, limits: Mapping[str, float]) -> dict[str, Any]:
    words = with_check(row, problem.standing)  # which may be younger than the row
    return {
        "summary": words["trust"],
        "warnings": words["warnings"] or [],
        "refits": None if row["refit_improvements"] is None else _refits_in_row(row),
        "support": None if row["change_support"] is None else _support_in_row(problem, row, limits),
        "sensitivity": None if row["undone_by"] is None and row["harmless_below"] is None else _sensitivity_in_row(row),
    }


def _refits_in_row(row: Plain) -> dict[str, Any]:
    improvements = row["refit_improvements"]
    values = np.array([-math.inf if value is None else value for value in improvements])
    count = len(values)
    helping = round((row["refits_agree"] or 0.0) * count)
    with np.errstate(invalid="ignore"):  # between infinities
        low, median, high = np.quantile(values, (INTERVAL[0], 0.5, INTERVAL[1])).tolist()
    shares = row["step_agreement"]
    return {
        "summary": agreeing(helping, count),
        "refits": count,
        "helping": helping,
        "improvements": improvements,
        **{name: finite(value) for name, value in (("low", low), ("median", median), ("high", high))},
        "steps": None
        if shares is None
        else [
            {"step": step, "same_step": share, "same_action": None, "of": 1}
            for step, share in zip(row["changed_steps"], shares, strict=True)
        ],
        "unsolved": row["refits_unsolved"] or 0,
        "notes": [],
    }


def _support_in_row(problem: BaseProblem, row: Plain, limits: Mapping[str, float]) -> dict[str, Any]:
    likely = dict(zip(row["changed_steps"], row["change_support"], strict=True))
    beyond = row["unsupported_steps"] or []
    steps = []
    for step in sorted({*likely, *beyond}):
        probability, changed = likely.get(step), step in likely
        flags = []
        if step in beyond:
            broken = changed and probability is None
            schema = problem.episode.schema
            flags = [not_finite(schema, step) if broken else _flag_in_row(problem, step, probability, limits)]
        steps.append({"step": step, "changed": changed, "probability": probability, "flags": flags})
    count = len(beyond)
    summary = f"{'one step goes' if count == 1 else f'{count} steps go'} beyond what the data supports"
    if not count:
        distances = "" if row["farthest"] is None else ", and no state lies far from the data"
        summary = f"every change was made in comparable situations{distances}"
    return {"summary": summary, "steps": steps}


def _flag_in_row(problem: BaseProblem, step: int, probability: float | None, limits: Mapping[str, float]) -> str:
    """Why a step was flagged: its action, or else its state."""
    when = moment(problem.episode.schema, step)
    if probability == 0:
        return f"at {when} this action is one that nobody in the data ever chose"
    if probability is not None and probability < limits["unlikely"]:
        return _chosen(problem, step, probability)
    return f"the state at {when} lies farther from the data than {limits['far']:g} % of recorded states"


def _sensitivity_in_row(row: Plain) -> dict[str, Any]:
    bound, undone = row["harmless_below"], row["undone_by"]
    proven = f"; influences below {rounded_down(bound)} cannot" if bound is not None and bound >= 0.01 else ""
    summary = (
        f"no unrecorded influence at a single step was found to undo the gain{proven}"
        if undone is None
        else f"an unrecorded influence at one step as large as {rounded_up(undone)} {DEVIATIONS} would be enough to "
        f"undo the gain{proven}"
    )
    return {"summary": summary, "largest_tried": None, "steps": [], "features": []}
