"""How far an answer may be trusted: the model's check, refits, support and sensitivity together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ifonly.data.schema import moment
from ifonly.evidence.limits import AGREEING, INFLUENCE, SAME_STEP
from ifonly.evidence.refits import Agreement
from ifonly.evidence.sensitivity import Sensitivity
from ifonly.evidence.supported import SupportReport
from ifonly.evidence.words import finite, rounded_up
from ifonly.models.standing import Standing

COLUMNS = (
    "trust",
    "warnings",
    "warning_kinds",
    "refits_agree",
    "refit_improvements",
    "step_agreement",
    "refits_unsolved",
    "change_support",
    "farthest",
    "unsupported_steps",
    "harmless_below",
    "undone_by",
)
"""What `Trust.to_row` tells."""

CHECKED = {
    "pass": "the model passed its check",
    "warn": "the model's check warns",
    "fail": "the model failed its check",
    "not judged": "the model could not be judged",
    "not checked": "the model was not checked",
}
"""What is said of a model, by the verdict about it."""

CHECK_KIND = "the model's check"
REFITS_KIND, STEPS_KIND = "refits disagree", "refits would change other steps"
SUPPORT_KIND = "beyond what the data supports"
INFLUENCE_KIND = "a small unrecorded influence would undo the gain"
FAILURE_KIND = "could not be examined"
"""Kinds of warnings, for counting them: numbers and moments differ from answer to answer."""


@dataclass(frozen=True, eq=False)
class Trust:
    """What speaks for an answer, and what against it; None where nobody asked."""

    changed_steps: tuple[int, ...]
    model_check: Standing | None = None
    refits: Agreement | None = None
    support: SupportReport | None = None
    sensitivity: Sensitivity | None = None
    sensitive_member: int | None = None
    """Of a panel, the member whose sensitivity it is: the one that gains least."""
    failure: str | None = None
    """What could not be examined, and why; None where all could that was asked."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """In plain words, one for each signal beyond its limit (`ifonly.evidence.limits`)."""
        return tuple(self._warnings.values())

    @property
    def warning_kinds(self) -> tuple[str, ...]:
        """Of what kind each of `warnings` is; no two are of one kind."""
        return tuple(self._warnings)

    @property
    def _warnings(self) -> dict[str, str]:
        found = {
            CHECK_KIND: self._check_warning,
            REFITS_KIND: self._refits_warning,
            STEPS_KIND: self._steps_warning,
            SUPPORT_KIND: self._support_warning,
            INFLUENCE_KIND: self._sensitivity_warning,
            FAILURE_KIND: self._not_examined,
        }
        return {kind: warning for kind, warning in found.items() if warning}

    @property
    def _not_examined(self) -> str:
        if self.failure is None or not self.changed_steps:
            return ""
        return f"could not be examined: {self.failure.rstrip('.')}"

    @property
    def _check_warning(self) -> str:
        if self.model_check is None or self.model_check.verdict == "pass":
            return ""
        return f"{CHECKED[self.model_check.verdict]} ({self.model_check.summary})"

    @property
    def _refits_warning(self) -> str:
        refits = self.refits
        if refits is None or not self.changed_steps or refits.share >= AGREEING:
            return ""
        return f"{'only ' if refits.count > 1 and refits.helping else ''}{refits.summary} that the changes help"

    @property
    def _steps_warning(self) -> str:
        refits = self.refits
        if refits is None:
            return ""
        rare = [step for step in refits.steps or () if step.of and step.same_step / step.of < SAME_STEP]
        when = (f"{moment(refits.schema, step.step)}: {step.same_step} of {step.of}" for step in rare)
        return f"few refits change the same step in their own best sequence ({', '.join(when)})" if rare else ""

    @property
    def _support_warning(self) -> str:
        return self.support.summary if self.support is not None and self.support.flags else ""

    @property
    def _sensitivity_warning(self) -> str:
        weakest = None if self.sensitivity is None else self.sensitivity.weakest
        if weakest is None or weakest.undone_by is None or weakest.undone_by >= INFLUENCE:
            return ""
        return self._influence

    @property
    def summary(self) -> str:
        """In a few words, such as "18 of 20 refits agree; one step goes beyond what the data supports"."""
        checked = CHECKED["not checked" if self.model_check is None else self.model_check.verdict]
        said = [] if checked == CHECKED["pass"] else [checked]
        if self.changed_steps:
            said += [part.summary for part in (self.refits, self.support) if part is not None]
            said += [self._influence] if self.sensitivity is not None else []
            said += [self._not_examined] if self._not_examined else []
        else:
            said.append("nothing is changed")
        return "; ".join(said or [checked])

    @property
    def _influence(self) -> str:
        """What would undo the gain, in a few words."""
        assert self.sensitivity is not None, "asked before"
        weakest, whose = self.sensitivity.weakest, self._whose_gain
        if not self.sensitivity.helps:
            return "the changes do not help" if self.sensitive_member is None else "the changes help under no refit"
        if not self.sensitivity.steps:
            return f"no later influence can undo the gain{whose}"
        if weakest is None or weakest.undone_by is None:
            return f"no unrecorded influence at one step was found to undo the gain{whose}"
        return (
            f"an unrecorded influence of {rounded_up(weakest.undone_by)} standard deviations at "
            f"{moment(self.sensitivity.schema, weakest.step)} would undo the gain{whose}"
        )

    @property
    def _whose_gain(self) -> str:
        return "" if self.sensitive_member is None else f" under refit {self.sensitive_member + 1}, which gains least"

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        found = None if self.sensitivity is None else {**self.sensitivity.to_dict(), "member": self.sensitive_member}
        return {
            "summary": self.summary,
            "warnings": list(self.warnings),
            "model_check": None if self.model_check is None else self.model_check.to_dict(),
            "refits": None if self.refits is None else self.refits.to_dict(),
            "support": None if self.support is None else self.support.to_dict(),
            "sensitivity": found,
        }

    def to_row(self) -> dict[str, Any]:
        """The columns of a run's table; beside the words, None where nobody asked, nothing is changed or is infinite.

        Lists about steps are in the order of `changed_steps`.
        """
        said = {"trust": self.summary, "warnings": list(self.warnings), "warning_kinds": list(self.warning_kinds)}
        row = dict.fromkeys(COLUMNS) | said
        if not self.changed_steps:
            return row
        for part in (_refits_in_row(self.refits), _support_in_row(self.support), _sensitivity_in_row(self.sensitivity)):
            row |= part
        return row

    def __str__(self) -> str:
        lines = [self.summary, *(f"warning: {warning}" for warning in self.warnings)]
        if self.model_check is not None:
            lines.append(f"model check, {self.model_check.episodes} episodes: {self.model_check.summary}")
        whose = self._whose_gain.strip()
        parts = {
            "refits": self.refits,
            "what the data supports": self.support,
            f"what would undo the gain{f' {whose}' if whose else ''}": self.sensitivity,
        }
        return "\n".join([*lines, *(f"{name}: {part}" for name, part in parts.items() if part is not None)])


def _refits_in_row(refits: Agreement | None) -> dict[str, Any]:
    if refits is None:
        return {}
    steps = refits.steps
    return {
        "refits_agree": refits.share,
        "refit_improvements": [finite(value) for value in refits.improvements.tolist()],
        "step_agreement": [step.same_step / step.of for step in steps] if steps and steps[0].of else None,
        "refits_unsolved": None if steps is None else refits.unsolved,
    }


def _support_in_row(support: SupportReport | None) -> dict[str, Any]:
    if support is None:
        return {}
    first = next(step.step for step in support.steps if step.changed)
    distances = [step.percentile for step in support.steps[first + 1 :] if step.percentile is not None]
    return {
        "change_support": [step.probability for step in support.steps if step.changed],
        "farthest": max(distances, default=None),
        "unsupported_steps": [step.step for step in support.steps if step.flags],
    }


def _sensitivity_in_row(found: Sensitivity | None) -> dict[str, Any]:
    if found is None or not found.steps:
        return {}
    return {
        "harmless_below": finite(min(step.harmless_below for step in found.steps)),
        "undone_by": None if found.weakest is None else found.weakest.undone_by,
    }
