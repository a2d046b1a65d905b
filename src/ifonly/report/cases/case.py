"""A case: one episode as a reviewer sees it. Numbers, codes and messages, the same in a report and over the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ifonly.data.field_words import NEUTRAL, FieldWords
from ifonly.models.standing import Standing
from ifonly.report.cases.badge import Badge
from ifonly.report.cases.band import RefitBand
from ifonly.report.cases.courses import Course
from ifonly.result import Result
from ifonly.text.catalogue import Message
from ifonly.version import __version__

VERSION = 6


@dataclass(frozen=True)
class CaseTime:
    """When the steps are."""

    unit: str
    """As a word: hour, or step where there is none."""
    step: float
    """The length of a step."""
    at: tuple[float, ...]  # [T]


@dataclass(frozen=True)
class Fact:
    """Something that does not change."""

    name: str
    unit: str
    value: float


@dataclass(frozen=True)
class FeatureKind:
    """Something measured at every step, without its values."""

    name: str
    unit: str
    label: str
    kind: Literal["dynamic", "contextual"]
    plausible: tuple[float, float] | None


@dataclass(frozen=True)
class MeasuredFeature(FeatureKind):
    """Something measured at every step."""

    observed: tuple[float, ...]  # [T]
    origins: tuple[Literal["measured", "carried", "assumed"], ...] | None = None  # [T]
    """Where each value comes from; None: all were measured, as far as anybody knows."""


@dataclass(frozen=True)
class DoseAxis:
    """The doses of one treatment."""

    name: str
    unit: str
    levels: tuple[float, ...]
    shown: tuple[str, ...]
    """The same as people read them."""


@dataclass(frozen=True)
class Treatment:
    """One combination of doses, or one unordered treatment."""

    number: int
    label: str
    levels: tuple[int, ...]
    """The number of its level on each axis."""


@dataclass(frozen=True)
class Treatments:
    """Everything that could have been done at a step."""

    axes: tuple[DoseAxis, ...]
    actions: tuple[Treatment, ...]


@dataclass(frozen=True)
class CaseQuestion:
    """What is asked, as a page needs it."""

    max_changes: int | None
    """At most so many changes; None: any number, where no episode says how many there can be."""
    outcome: str
    """What the shown outcome is called, such as "cumulative SOFA"."""
    lower_is_better: bool
    change_cost: float
    rules: tuple[Message, ...]
    objective: Message | None
    """What counts of the outcomes of several refits, asked together; None: one model is asked."""
    query: Mapping[str, Any]
    """The query itself (`Query.to_dict`)."""
    goals: tuple[Message, ...] = ()
    """What is asked for, goal by goal, where the name of the outcome does not say it."""
    meaning: Message | None = None
    """How the outcome comes about, where that is told in a sentence."""


@dataclass(frozen=True)
class ModelAbout:
    """The model that every course comes from; or its refits, where they are asked together."""

    kind: str
    fingerprint: str
    refits: int | None
    check: Standing | None
    said: Message
    """What a check concluded about it."""
    caution: Message | None
    """What everybody must see of a model that failed; None where it has not."""


@dataclass(frozen=True)
class Claim:
    """How sure an answer is."""

    proven: bool
    """Whether nothing admissible is better, up to rounding."""
    best_possible: float | None
    """No sequence does better than this outcome, as shown; None where that is not known."""
    gap: float | None
    """How much better another sequence could be, at most; None where that is not known."""
    statement: Message


@dataclass(frozen=True)
class BudgetCourse:
    """The best found with at most `max_changes` changes."""

    max_changes: int
    course: Course | None
    """None where no sequence with so few changes keeps the rules."""
    claim: Claim


@dataclass(frozen=True)
class ChangeContribution:
    """What one change of the best course contributes, in units of the outcome as shown; positive is better."""

    step: int
    alone: float
    lost_without: float
    share: float


@dataclass(frozen=True)
class GainSource:
    """What one measurement, or all doses, bring to the gain of the best course, in units of the outcome as shown.

    `kind` is "feature", with its `name`; "treatment": what doses count themselves; or "together": what several of them
    bring that none brings alone.
    """

    kind: Literal["feature", "treatment", "together"]
    name: str
    gain: float


@dataclass(frozen=True)
class RefitGains:
    """What the best course gains under every refit, in units of the outcome as shown; positive is better."""

    improvements: tuple[float | None, ...]  # [M]
    """None where a refit gives no finite outcome."""
    own: float | None
    """The improvement that counts for the answer."""
    median: float | None
    low: float | None
    """Between this and `high` lie nine of ten refits where they are `many`, all of them where they are few."""
    high: float | None
    many: bool


@dataclass(frozen=True)
class SupportNote:
    """What the data says of a step that is changed, or that is unusual."""

    step: int
    beyond: bool
    """Whether it goes beyond what the data supports."""
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class CourseSupport:
    """Whether anything like a course was ever seen."""

    summary: Message
    steps: tuple[SupportNote, ...]


@dataclass(frozen=True)
class EvidencePage:
    """How far to trust the answer, in messages; a part is empty where nobody asked. The numbers are the result's."""

    statement: Message
    examined: bool = False
    warnings: tuple[Message, ...] = ()
    refits: tuple[Message, ...] = ()
    """The summary first, then the details, as in all parts."""
    gains: RefitGains | None = None
    support: CourseSupport | None = None
    sensitivity: tuple[Message, ...] = ()
    organs: tuple[Message, ...] = ()
    """Whether the organs of a score bear its gain out, and which of them drives it."""
    calibration: tuple[Message, ...] = ()
    """What comparable records do to the promise."""
    coupling: tuple[Message, ...] = ()
    """What is left of the gain under other luck."""
    gain: tuple[Message, ...] = ()
    """What is left of the promise without what it owes to having been chosen."""


@dataclass(frozen=True, eq=False)
class CaseAnswer:
    """What could have happened, and how sure that is: the result, and its sequences as courses."""

    result: Result
    claim: Claim
    best: Course
    badge: Badge
    """Whether proof, model, evidence and values all speak for it."""
    budgets: tuple[BudgetCourse, ...]
    """For 0, 1, ... changes; empty where the solver answers one budget only."""
    alternatives: tuple[Course, ...]
    """Best first, the best one among them."""
    alternatives_proven: bool
    """Whether they are the best ones, or merely those found."""
    contributions: tuple[ChangeContribution, ...]
    """In the order of steps; their shares add up to the gain. Empty for more than twelve changes."""
    sources: tuple[GainSource, ...] = ()
    """They add up to the gain, the largest first; empty where that cannot be told."""
    bands: tuple[RefitBand, ...] = ()
    """Of the outcome's measurements along the best course; empty without refits, or without changes."""


@dataclass(frozen=True)
class TriedCourse(Course):
    """A course that a reviewer tried."""

    support: CourseSupport | None = None
    """None without a behaviour model, or without changes."""


@dataclass(frozen=True, eq=False)
class Case:
    """One episode: what was recorded, what was asked, what was found, and what to be careful with."""

    episode: str
    subject: str
    time: CaseTime
    facts: tuple[Fact, ...]
    features: tuple[MeasuredFeature, ...]
    treatments: Treatments
    question: CaseQuestion
    observed: Course
    answer: CaseAnswer | None
    evidence: EvidencePage
    assumptions: tuple[Message, ...]
    cautions: tuple[Message, ...]
    model: ModelAbout
    words: FieldWords = NEUTRAL
    """What the field calls those it is about, and those who decide."""
    edited: TriedCourse | None = None
    """In an exported file, the course that a reviewer tried."""
    format: Literal["ifonly.case"] = "ifonly.case"
    version: int = VERSION
    ifonly: str = __version__
