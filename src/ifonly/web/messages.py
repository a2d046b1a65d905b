"""What requests may hold; it is checked before anything is done with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, WithJsonSchema

from ifonly.web.listing import ORDERS, STATUSES, WITH_WARNINGS, WITHOUT_VERDICT, WITHOUT_WARNINGS, ListQuery
from ifonly.web.notes import LONGEST_NOTE, LONGEST_REVIEWER, VERDICTS, Verdict

MOST_ALTERNATIVES = 20
MOST_STEPS = 10_000
LONGEST_ID = 500
TEXT = r"^[^\x00-\x08\x0B\x0C\x0E-\x1F\x7F]*$"
"""Without signs that nobody can see; lines may end."""

EpisodeId = Annotated[str, Field(min_length=1, max_length=LONGEST_ID, description="The id of an episode.")]
Action = Annotated[int, Field(strict=True, ge=0, le=100_000, description="The number of a treatment.")]
Step = Annotated[int, Field(strict=True, ge=0, lt=MOST_STEPS)]
Named = Annotated[int, Field(strict=True, ge=0, le=100_000)] | Annotated[str, Field(max_length=LONGEST_ID)]
StepKey = Annotated[str, Field(pattern=r"^[0-9]{1,4}$")]
StepOrEvery = Annotated[str, Field(pattern=r"^([0-9]{1,4}|every)$")]
Levels = Annotated[int, Field(strict=True, ge=0, le=1000)]


def _nothing_said(value: Any) -> Any:
    """Forms send empty text for what was not filled in."""
    return None if value == "" else value


def _one_of(words: Sequence[str]) -> tuple[BeforeValidator, WithJsonSchema]:
    """One of some words, or nothing."""

    def check(value: Any) -> Any:
        if value not in (None, "", *words):
            raise ValueError(f"should be one of: {', '.join(words)}")
        return value or None

    return BeforeValidator(check), WithJsonSchema({"type": "string", "enum": ["", *words]})


class ListParameters(BaseModel):
    """Which cases the list shows."""

    model_config = ConfigDict(extra="ignore")

    search: Annotated[str, Field(max_length=LONGEST_ID, description="Part of an episode's or a subject's id.")] = ""
    status: Annotated[str | None, *_one_of(STATUSES), Field(description="How the search of the run ended.")] = None
    verdict: Annotated[
        str | None,
        *_one_of((*VERDICTS, WITHOUT_VERDICT)),
        Field(description="The reviewer's verdict; none: there is none."),
    ] = None
    at_least: Annotated[
        Annotated[float, Field(allow_inf_nan=False)] | None,
        BeforeValidator(_nothing_said),
        WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string", "enum": [""]}]}),
        Field(description="The smallest relative improvement, such as 0.15."),
    ] = None
    warnings: Annotated[
        str | None,
        *_one_of((WITHOUT_WARNINGS, WITH_WARNINGS)),
        Field(description="Of the answers that were examined, those with no warning, or with some."),
    ] = None
    order: Annotated[
        str | None,
        *_one_of(ORDERS),
        Field(description="What to sort by; unless it is given, the largest improvement comes first."),
    ] = None
    descending: bool = False
    page: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    size: Annotated[int, Field(ge=1, le=200)] = 50

    def query(self) -> ListQuery:
        """As the list takes it."""
        return ListQuery(**self.model_dump())


class Body(BaseModel):
    """Nothing that is not known is taken: a misspelt rule would silently be none."""

    model_config = ConfigDict(extra="forbid")


class CourseRequest(Body):
    """Try a sequence of treatments."""

    episode: EpisodeId
    actions: Annotated[list[Action], Field(min_length=1, max_length=MOST_STEPS, description="One per step.")]


class RuleSet(Body):
    """Which sequences may be considered; actions by number or label, steps by number, as text where they are keys."""

    locked: Annotated[list[Step], Field(max_length=MOST_STEPS)] = []
    forbidden: dict[StepOrEvery, Annotated[list[Named], Field(max_length=1000)]] = {}
    required: dict[StepKey, Named] = {}
    max_shift: Levels | dict[str, Levels] | None = None
    max_jump: Levels | dict[str, Levels] | None = None
    last_action_fixed: Annotated[bool, Field(strict=True)] = False


class JobRequest(Body):
    """Find the best under these rules."""

    episode: EpisodeId
    max_changes: Annotated[int, Field(strict=True, ge=0, le=MOST_STEPS)]
    constraints: Annotated[RuleSet | None, Field(description="Null: the rules of the question itself.")] = None
    alternatives: Annotated[int, Field(strict=True, ge=1, le=MOST_ALTERNATIVES)] = 5
    seconds: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] = 60.0


class NoteRequest(Body):
    """A reviewer's note; `revision` is that of the note that was read before."""

    episode: EpisodeId
    verdict: Verdict | None = None
    note: Annotated[str, Field(max_length=LONGEST_NOTE, pattern=TEXT)] = ""
    reviewer: Annotated[str, Field(max_length=LONGEST_REVIEWER, pattern=TEXT)] = ""
    revision: Annotated[StrictInt, Field(ge=0, le=1_000_000_000)]
