"""What speaks for an answer and against it: numbers and codes, the same in memory, in tables and over the API.

Nothing here is a sentence; `ifonly.text.evidence` has the words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from ifonly.errors import IfonlyError, InputError, ReplayError
from ifonly.markup import html_table
from ifonly.models.standing import Standing
from ifonly.records import KnownNumber, MaybeNumber
from ifonly.result.agreement import Agreement
from ifonly.result.calibration import LocalCalibration
from ifonly.result.coupling import Coupling
from ifonly.result.sensitivity import Sensitivity
from ifonly.result.verdict import GainEstimate, HonestGain, Judgement, estimate_of, judge, the_rule
from ifonly.text.catalogue import say


class Verdict(StrEnum):
    """What all evidence together says of an answer."""

    SUPPORTED = "supported"
    """Examined in full, and by the rule likely to help; nothing else speaks against it."""
    UNCERTAIN = "uncertain"
    """Neither of the others: see reasons and warnings; or not examined in full."""
    NOT_BELIEVABLE = "not believable"
    """The model failed its check, or the answer is by the rule unlikely to help."""
    NOT_EXAMINED = "not examined"
    """Nothing is known but, perhaps, that the model passed its check; or nothing is changed, and there is nothing to
    examine."""


class WarningCode(StrEnum):
    """What speaks against an answer."""

    MODEL_CHECK = "model check"
    REFITS_DISAGREE = "refits disagree"
    OTHER_STEPS = "refits change other steps"
    BEYOND_DATA = "beyond the data"
    SMALL_INFLUENCE = "small influence"
    LEAVES_RANGES = "leaves plausible ranges"
    NOT_BORNE_OUT = "not borne out"
    BEYOND_CALIBRATION = "beyond calibration"
    NOT_EXAMINED = "could not be examined"


BEYOND_THE_RULE = (WarningCode.LEAVES_RANGES, WarningCode.NOT_BORNE_OUT, WarningCode.NOT_EXAMINED)
"""Warnings that keep an answer from being supported, whatever the rule says: it was fitted without them."""


class SupportFlag(StrEnum):
    """What is unusual about one step of a counterfactual course."""

    NEVER_CHOSEN = "never chosen"
    UNLIKELY = "unlikely"
    FAR = "far"
    NOT_FINITE = "not finite"


@dataclass(frozen=True)
class Thresholds:
    """Where a signal becomes a warning, and why there; docs/warnings-study.md has what each catches."""

    unlikely: float = 0.01
    """A changed action that is less likely is one that clinicians hardly ever chose."""
    far: float = 99.0
    """A state that lies farther from the data than this share of recorded states, in percent, is far."""
    agreeing: float = 0.9
    """The share of refits that must agree that the changes help."""
    same_step: float = 0.5
    """The share of refits, solved on their own, that must change a step, too."""
    influence: float = 0.33
    """Standard deviations that an influence at one step must have to undo the gain. One of them, which sounds natural,
    would warn of most right answers: a few changes gain little against what chance does in a whole stay.
    """

    kept: float = 0.8
    """The share of the promised gain that must be left when values are cut at their plausible ranges."""
    borne_out: float = 0.5
    """The share of a score's gain that must be left when the score is made anew of its organs' values."""
    calibrated: float = 0.5
    """The share of the gain that must be left when noise is shifted by what the model gets wrong in comparable
    records."""
    same_score: float = 1.0
    """Points, on average over a recording, by which a score may differ from the one made of its organs: one that
    differs more is not that score, and its gain is not judged by them."""

    def __post_init__(self) -> None:
        parts = ("unlikely", "agreeing", "same_step", "kept", "borne_out", "calibrated")
        for name, top in (("far", 100.0), *((part, 1.0) for part in parts)):
            if not 0 <= getattr(self, name) <= top:
                kind = "a percentage" if top == 100 else "a probability or share"
                raise InputError(f"evidence: threshold {name}={getattr(self, name)} must be {kind}, 0 to {top:g}.")
        for name in ("influence", "same_score"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(
                    f"evidence: threshold {name}={getattr(self, name)} must be zero or positive, and finite."
                )


@dataclass(frozen=True)
class EvidenceWarning:
    """One signal beyond its threshold, with the numbers behind it."""

    code: WarningCode
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def beyond_the_rule(self) -> bool:
        """Whether it keeps an answer from being supported, whatever the rule says."""
        return self.code in BEYOND_THE_RULE


@dataclass(frozen=True)
class StepSupport:
    """One step of a counterfactual course."""

    step: int
    action: int
    changed: bool
    probability: float | None
    """How likely the action is at the counterfactual state; None where that is not finite."""
    percentile: MaybeNumber
    """The share of recorded states, in percent, that lie nearer to the data; None where none were kept."""
    flags: tuple[SupportFlag, ...] = ()


@dataclass(frozen=True)
class SupportReport:
    """Every step of a counterfactual course, by a behaviour model."""

    behaviour: str
    """Its fingerprint."""
    steps: tuple[StepSupport, ...]

    @property
    def flagged(self) -> tuple[StepSupport, ...]:
        """The steps beyond what the data supports."""
        return tuple(step for step in self.steps if step.flags)

    @property
    def changed(self) -> tuple[StepSupport, ...]:
        """The steps at which the course acts differently."""
        return tuple(step for step in self.steps if step.changed)

    @property
    def farthest(self) -> float | None:
        """The largest distance percentile of a state after the first change; None where distances are unknown."""
        first = next((step.step for step in self.changed), len(self.steps))
        return max((one.percentile for one in self.steps[first + 1 :] if one.percentile is not None), default=None)


@dataclass(frozen=True)
class OrganGain:
    """What one organ gains: points that it loses, added over all steps."""

    organ: str
    gain: KnownNumber


@dataclass(frozen=True)
class ScoreGain:
    """What one sequence gains by a score as the model gives it, and by the score made anew of its organs' values.

    Gains are points that the score falls by, added over all steps. Both courses are scored anew, so that what a
    recorded score owes to values that the model does not see cancels out.
    """

    score: str
    """The feature."""
    asked: bool
    """Whether the reward counts this score."""
    claimed: KnownNumber
    """By the model."""
    recomputed: KnownNumber
    """By the organs together."""
    organs: tuple[OrganGain, ...]
    left_out: tuple[str, ...]
    """Values that the score is made of, too, and that are not recorded."""
    recorded_difference: KnownNumber
    """By how many points the recorded score differs from the one made of the recorded organs, on average over steps."""

    @property
    def share(self) -> float | None:
        """The share of the claimed gain that the organs bear out; None where nothing is claimed."""
        return self.recomputed / self.claimed if self.claimed > 0 else None

    @property
    def leading(self) -> tuple[OrganGain, ...]:
        """The fewest organs that together make more than half of what organs gain where all together gain, and of what
        they lose where they lose, largest first; one that does as much as the last of them is among them, too."""
        ranked = self.driving
        most, told = sum(abs(one.gain) for one in ranked) / 2, 0.0
        for place, one in enumerate(ranked):
            if told > most and one.gain != ranked[place - 1].gain:
                return ranked[:place]
            told += abs(one.gain)
        return ranked

    @property
    def driving(self) -> tuple[OrganGain, ...]:
        """The organs that move the way all together move, those that do most first; none where that is neither way."""
        sign = (self.recomputed > 0) - (self.recomputed < 0)
        return tuple(sorted((one for one in self.organs if sign * one.gain > 0), key=lambda one: -abs(one.gain)))

    def is_judged(self, limits: Thresholds) -> bool:
        """Whether a gain is claimed, and the recorded score is one that its organs make."""
        return self.asked and self.claimed > 0 and self.recorded_difference <= limits.same_score

    def is_borne_out(self, limits: Thresholds) -> bool | None:
        """Whether the organs bear the claimed gain out; None where that cannot be judged."""
        return self.recomputed >= limits.borne_out * self.claimed if self.is_judged(limits) else None


class ReasonCode(StrEnum):
    """Why there is no answer, or no examination of one."""

    REFUSED = "refused"
    """Something about the episode, or about what is asked of it, is wrong."""
    NOT_REPLAYED = "not replayed"
    """The model does not give the recorded course back."""
    BROKEN = "broken"
    """Something else that ifonly knows of went wrong."""
    UNEXPECTED = "unexpected"
    """An error that ifonly does not know, such as one of somebody else's model."""


@dataclass(frozen=True)
class Reason:
    """Why something has no answer."""

    code: ReasonCode
    detail: str
    """What the error says; of one that is unexpected its kind alone, since it may tell a patient's values."""

    @classmethod
    def of(cls, error: Exception) -> Reason:
        """The reason that an error gives."""
        if not isinstance(error, IfonlyError):
            return cls(ReasonCode.UNEXPECTED, type(error).__name__)
        kinds = {InputError: ReasonCode.REFUSED, ReplayError: ReasonCode.NOT_REPLAYED}
        code = next((code for kind, code in kinds.items() if isinstance(error, kind)), ReasonCode.BROKEN)
        return cls(code, str(error))

    def __str__(self) -> str:
        return say(f"reason.{self.code}", detail=self.detail)


@dataclass(frozen=True)
class ExaminationFailure:
    """A part of an examination that failed; the others stand."""

    part: str
    """"refits", "honest", "support", "calibration", "sensitivity", "coupling" or "all"."""
    reason: Reason


@dataclass(frozen=True, eq=False)
class Evidence:
    """What speaks for an answer, and what against it; a part is None where nobody asked."""

    changed_steps: tuple[int, ...] = ()
    check: Standing | None = None
    """What a check concluded about the model."""
    refits: Agreement | None = None
    support: SupportReport | None = None
    sensitivity: Sensitivity | None = None
    failures: tuple[ExaminationFailure, ...] = ()
    kept_within_ranges: MaybeNumber = None
    """The share of the promised gain that is left when values are cut at their plausible ranges; None where no value
    leaves them, or nothing is gained."""
    scores: tuple[ScoreGain, ...] = ()
    """The gain by every score of the schema that is made of other features; none where nothing is changed."""
    calibration: LocalCalibration | None = None
    """What recorded transitions of others, from such states under such actions, do to the promise."""
    coupling: Coupling | None = None
    """What is left of the gain where the same noise need not apply under another action."""
    promised: MaybeNumber = None
    """What the answer gains over the observed outcome under the model that gave it; None where nothing is changed."""
    honest: HonestGain | None = None
    thresholds: Thresholds = Thresholds()
    """Those in force when the answer was examined."""
    rule: str | None = None
    """The fingerprint of the rule that was in force then; verdicts are by the rule of the package that reads them."""

    def _repr_html_(self) -> str:
        rows = [
            ("verdict", self.verdict.value),
            ("model check", "not known" if self.check is None else self.check.verdict),
            ("warnings", ", ".join(warning.code.value for warning in self.warnings) or "none"),
            ("parts that failed", ", ".join(failure.part for failure in self.failures) or "none"),
        ]
        return html_table("evidence", ("part", "what it says"), rows)

    @property
    def examined(self) -> bool:
        """Whether anything is known beside the model's check."""
        parts = (self.refits, self.support, self.sensitivity, self.calibration, self.coupling, self.honest)
        return bool(self.changed_steps) and any(part is not None for part in parts)

    @cached_property
    def judgement(self) -> Judgement | None:
        """What the rule says of the answer; None where nothing is changed, or where the evidence is not complete."""
        return judge(self) if self.changed_steps else None

    @property
    def judged_anew(self) -> bool:
        """Whether the verdict is by another rule than that of the package that examined the answer."""
        return self.judgement is not None and self.rule is not None and self.rule != the_rule().fingerprint

    @property
    def estimate(self) -> GainEstimate | None:
        """The gain without what it owes to having been chosen, and its interval; None where that was not examined."""
        return estimate_of(self) if self.changed_steps else None

    @property
    def verdict(self) -> Verdict:
        """All of it in one word."""
        return self.verdict_at(None if self.judgement is None else self.judgement.probability)

    def verdict_at(self, probability: float | None) -> Verdict:
        """The same where a rule gives the answer this probability of helping; None: none can."""
        rule = the_rule()
        failed = self.check is not None and self.check.failed
        if failed or (probability is not None and probability < rule.believable):
            return Verdict.NOT_BELIEVABLE
        if probability is not None and probability >= rule.supported and not self.contradicted:
            return Verdict.SUPPORTED
        doubted = bool(self.changed_steps and self.warnings)
        return Verdict.UNCERTAIN if self.examined or doubted else Verdict.NOT_EXAMINED

    @property
    def contradicted(self) -> bool:
        """Whether something keeps the answer from being supported, whatever the rule says: a warning that the rule does
        not know of, a debiased gain that is none, clear signs of something hidden, a change that was hardly ever made
        in such a state, or a model that could not be judged."""
        found = self.estimate
        nothing_left = found is not None and found.gain <= 0
        unjudged = self.check is not None and self.check.verdict == "not judged"
        beyond = any(warning.beyond_the_rule for warning in self.warnings)
        return nothing_left or unjudged or beyond or self.hidden_clearly or self.rarely_chosen

    @property
    def hidden_clearly(self) -> bool:
        """Whether the model's check shows clear signs of something that matters and is not recorded."""
        return self.check is not None and the_rule().is_hidden_clearly(self.check.hidden)

    @property
    def rarely_chosen(self) -> bool:
        """Whether a change is less likely, where it is made, than records can tell of: what follows is made up."""
        changed = self.support.changed if self.support else ()
        return any((one.probability or 0.0) < self.thresholds.unlikely for one in changed)

    @property
    def warnings(self) -> tuple[EvidenceWarning, ...]:
        """One for each signal beyond its threshold; no two of one code."""
        return tuple(EvidenceWarning(code, values) for code, values in self._signals())

    def _signals(self) -> Iterator[tuple[WarningCode, dict[str, Any]]]:
        check, refits, support, limits = self.check, self.refits, self.support, self.thresholds
        if check is not None and check.verdict != "pass":
            yield WarningCode.MODEL_CHECK, {"verdict": check.verdict}
        if refits is not None and self.changed_steps and refits.share < limits.agreeing:
            yield WarningCode.REFITS_DISAGREE, {"helping": refits.helping, "refits": refits.count}
        steps = (refits and refits.steps) or ()
        if rare := [one for one in steps if one.of and one.same_step / one.of < limits.same_step]:
            listed = [{"step": one.step, "same_step": one.same_step, "of": one.of} for one in rare]
            yield WarningCode.OTHER_STEPS, {"steps": listed}
        if support is not None and support.flagged:
            yield WarningCode.BEYOND_DATA, {"steps": [one.step for one in support.flagged]}
        found = self.sensitivity
        weakest = None if found is None else found.weakest
        if found and weakest and weakest.undone_by is not None and weakest.undone_by < limits.influence:
            values = {"step": weakest.step, "undone_by": weakest.undone_by, "member": found.member}
            yield WarningCode.SMALL_INFLUENCE, values
        kept = self.kept_within_ranges
        if kept is not None and kept < limits.kept:
            yield WarningCode.LEAVES_RANGES, {"kept": kept}
        if unproven := [one for one in self.scores if one.is_borne_out(limits) is False]:
            worst = min(unproven, key=lambda one: one.recomputed / one.claimed)
            gains = {"claimed": worst.claimed, "recomputed": worst.recomputed}
            yield WarningCode.NOT_BORNE_OUT, {"score": worst.score, **gains}
        told = self.calibration
        if told is not None and told.share is not None and told.share < limits.calibrated:
            yield WarningCode.BEYOND_CALIBRATION, {"gain": told.gain, "adjusted": told.adjusted}
        if self.failures and self.changed_steps:
            yield WarningCode.NOT_EXAMINED, {"parts": [one.part for one in self.failures]}
