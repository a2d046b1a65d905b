"""The shapes of the API's answers, for its description; answers themselves are built as plain types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ifonly.web.jobs import State
from ifonly.web.notes import Verdict


class ErrorText(BaseModel):
    """What is wrong, and what to do about it."""

    what: str
    do: str


class ErrorAnswer(BaseModel):
    """Every refusal."""

    error: ErrorText


class Change(BaseModel):
    """One step that is treated differently."""

    step: int
    at: float
    before: Annotated[int, Field(alias="from")]
    to: int
    words: str
    directions: dict[str, Literal["up", "down", "same"]]


class Implausible(BaseModel):
    """Steps at which a feature lies outside its plausible range."""

    feature: str
    steps: list[int]


class Course(BaseModel):
    """How an episode went, or would have gone under the model."""

    actions: list[int]
    states: list[list[float | None]]
    outcome: float | None
    improvement: float | None
    changes: list[Change]
    implausible: list[Implausible]
    admissible: bool


class SupportStep(BaseModel):
    """What the data says of a step that is changed, or that is unusual."""

    step: int
    at: float
    changed: bool
    beyond: bool
    words: list[str]


class Support(BaseModel):
    """Whether anything like a course was ever seen."""

    summary: str
    steps: list[SupportStep]


class TriedCourse(Course):
    """A course that a reviewer tried; without a behaviour model, or without changes, nothing is said of support."""

    support: Support | None


class Time(BaseModel):
    """The times of the steps."""

    unit: str
    step: float
    at: list[float]


class Fact(BaseModel):
    """Something that does not change."""

    name: str
    unit: str
    value: float


class Feature(BaseModel):
    """Something measured at every step."""

    name: str
    unit: str
    label: str
    kind: Literal["dynamic", "contextual"]
    plausible: list[float] | None
    observed: list[float]


class Axis(BaseModel):
    """The doses of one treatment."""

    name: str
    unit: str
    levels: list[float]
    shown: list[str]


class Treatment(BaseModel):
    """One combination of doses, or one unordered treatment."""

    number: int
    label: str
    levels: list[int]


class Treatments(BaseModel):
    """Everything that could have been done at a step."""

    axes: list[Axis]
    actions: list[Treatment]


class Asked(BaseModel):
    """The question."""

    max_changes: int | None
    objective: str
    lower_is_better: bool
    rules: list[str]
    constraints: dict[str, Any] | None
    change_cost: float
    judged_by: str | None


class Budget(BaseModel):
    """The best for one number of changes."""

    max_changes: int
    course: Course | None
    best_possible: float | None
    proven: bool
    statement: str


class Contribution(BaseModel):
    """What one change brings."""

    step: int
    at: float
    words: str
    alone: float
    lost_without: float
    share: float


class Work(BaseModel):
    """What the search has done."""

    nodes: int
    seconds: float
    method: str


class Answer(BaseModel):
    """What could have happened, and how sure that is."""

    status: str
    proven: bool
    statement: str
    best: Course
    best_possible: float | None
    gap: float | None
    budgets: list[Budget]
    alternatives: list[Course]
    alternatives_proven: bool
    contributions: list[Contribution]
    work: Work


class Check(BaseModel):
    """What a check of the model concluded."""

    verdict: Literal["pass", "warn", "fail", "not judged"]
    summary: str
    episodes: int
    cohort: str
    used_although_failed: bool


class Model(BaseModel):
    """The model that every course comes from; or its refits, where they are asked together."""

    kind: str
    fingerprint: str
    refits: int | None
    check: Check | None
    said: str
    caution: str | None


class RefitStep(BaseModel):
    """The share of refits that change this step in their own best sequence, and to the same treatment."""

    step: int
    at: float
    words: str
    same_step: float | None
    same_action: float | None


class Refits(BaseModel):
    """The best sequence under every refit; improvements are in units of the outcome as shown."""

    summary: str
    refits: int
    helping: int
    improvements: list[float | None]
    own: float | None
    median: float | None
    low: float | None
    high: float | None
    steps: list[RefitStep] | None
    unsolved: int
    notes: list[str]


class Sensitivity(BaseModel):
    """What would undo the gain, in words."""

    summary: str
    details: list[str]


class Trust(BaseModel):
    """How far to trust the answer; null: not examined."""

    statement: str
    examined: bool
    warnings: list[str]
    refits: Refits | None
    support: Support | None
    sensitivity: Sensitivity | None


class Case(BaseModel):
    """One episode as a reviewer sees it."""

    format: Literal["ifonly.case"]
    version: int
    ifonly: str
    episode: str
    subject: str
    time: Time
    facts: list[Fact]
    features: list[Feature]
    treatments: Treatments
    question: Asked
    observed: Course
    answer: Answer | None
    trust: Trust
    assumptions: list[str]
    cautions: list[str]
    model: Model


class ListRow(BaseModel):
    """One episode in the list."""

    episode: str
    subject: str
    steps: int
    observed: float | None
    best: float | None
    improvement: float | None
    changes: int | None
    status: str
    proven: bool
    refits_agree: float | None
    refits: int | None
    warnings: int | None
    verdict: Verdict | None
    noted: bool


class ListPage(BaseModel):
    """A page of the list."""

    total: int
    page: int
    size: int
    rows: list[ListRow]


class Progress(BaseModel):
    """How far a search is, in units of the outcome as shown."""

    found: float | None
    best_possible: float | None
    gap: float | None
    nodes: int
    seconds: float


class JobAnswer(BaseModel):
    """A search, and its case once it has ended."""

    job: str
    episode: str
    state: State
    progress: Progress | None
    case: Case | None
    error: str | None


class NoteAnswer(BaseModel):
    """The latest note on an episode; revision 0: there is none."""

    episode: str
    verdict: Verdict | None
    note: str
    reviewer: str
    updated: str | None
    revision: int
    model: str


class CohortCounts(BaseModel):
    """The size of the cohort."""

    episodes: int
    subjects: int
    steps: int
    shortest: int
    longest: int
    fingerprint: str


class RunCounts(BaseModel):
    """The run whose answers are shown."""

    episodes: int
    finished: bool
    counts: dict[str, int]
    examined: bool


class Limits(BaseModel):
    """How much may be asked."""

    max_changes: int
    seconds: float
    alternatives: int
    jobs: int
    jobs_per_client: int
    note: int
    reviewer: int


class FeatureKind(BaseModel):
    """A feature, without its values."""

    model_config = ConfigDict(extra="forbid")

    name: str
    unit: str
    label: str
    kind: Literal["dynamic", "contextual"]
    plausible: list[float] | None


class About(BaseModel):
    """What this server shows."""

    ifonly: str
    question: Asked
    model: Model
    cohort: CohortCounts
    features: list[FeatureKind]
    treatments: Treatments
    time_unit: str
    step: float
    run: RunCounts | None
    statuses: list[str]
    limits: Limits
    signs_in: bool
