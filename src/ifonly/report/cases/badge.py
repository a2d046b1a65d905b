"""One badge for an answer: what is proven of a model that fails, or of impossible values, is not to be relied on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ifonly.models.standing import Standing
from ifonly.report.cases.courses import Course
from ifonly.result import Result, Verdict
from ifonly.text.catalogue import Message


@dataclass(frozen=True)
class BadgePart:
    """One of the four things that must hold."""

    name: Literal["proof", "model", "evidence", "plausibility"]
    holds: bool
    """Whether it is known to speak for the answer; what was not asked does not."""
    said: Message


@dataclass(frozen=True)
class Badge:
    """Whether an answer may be relied on, as far as anybody has looked."""

    level: Literal["good", "reserved", "bad"]
    """Good only where every part holds; bad where the model failed its check, or the verdict is "not believable"."""
    parts: tuple[BadgePart, ...]


def badge_of(result: Result, best: Course, check: Standing | None, *, proven: bool) -> Badge:
    """The badge of an answer whose best course is `best`, by a model of which a check concluded `check`."""
    parts = (
        BadgePart("proof", proven, Message(f"badge.proof.{'proven' if proven else 'not proven'}")),
        _model(check),
        _evidence(result),
        _plausibility(result, best),
    )
    if (check is not None and check.failed) or result.evidence.verdict is Verdict.NOT_BELIEVABLE:
        return Badge("bad", parts)
    return Badge("good" if all(part.holds for part in parts) else "reserved", parts)


def _model(check: Standing | None) -> BadgePart:
    verdict = "not checked" if check is None else check.verdict
    return BadgePart("model", verdict == "pass", Message(f"badge.model.{verdict}"))


def _evidence(result: Result) -> BadgePart:
    """Of the recorded sequence, which nothing is changed in, there is nothing to examine."""
    verdict = result.evidence.verdict
    said = verdict.value if result.changes else "nothing changed"
    return BadgePart("evidence", verdict is Verdict.SUPPORTED, Message(f"badge.evidence.{said}"))


def _plausibility(result: Result, best: Course) -> BadgePart:
    """Values of the recording count, too: what follows from an impossible one is no more possible."""
    if best.implausible:
        said = "outside"
    elif all(feature.plausible is None for feature in result.schema.dynamic):
        said = "not known"
    else:
        said = "inside"
    return BadgePart("plausibility", said == "inside", Message(f"badge.plausibility.{said}"))
