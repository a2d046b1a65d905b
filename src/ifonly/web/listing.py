"""The list of cases: one row per episode, in memory; search, filters, order and pages are done here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import polars as pl
import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.data.scaling import within_ranges
from ifonly.models.base import TransitionModel
from ifonly.query import Query
from ifonly.records import finite
from ifonly.report.cases.badge import with_badges
from ifonly.report.patterns import patterns_by_episode
from ifonly.result import Status
from ifonly.result.improvement import improvement_between
from ifonly.result.table import COLUMNS, FAILED
from ifonly.rewards import Reward
from ifonly.web.agreement import verdicts_of
from ifonly.web.notes import VERDICTS, Judgement, Note, Notes

UNSOLVED = "unsolved"
"""The status of an episode that the run has no answer for, or of every one where there is no run."""
STATUSES = (*(status.value for status in Status), FAILED, UNSOLVED)
WITHOUT_VERDICT = "none"
WITHOUT_WARNINGS, WITH_WARNINGS = "none", "some"
REVIEWERS_WANTED = 2
"""Of a case, so that it is known how far they agree."""
OPEN, DONE, DIFFER = "open", "done", "differ"
LONGEST_ID = 500
ORDERS = (
    *("episode", "steps", "observed", "best", "improvement", "changes", "status", "badge"),
    *("refits_agree", "warnings", "verdict"),
    "queue",
)
"""The columns to sort by."""


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


class ListQuery(BaseModel):
    """Which rows of the list, and in which order; what is left out leaves out nothing."""

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
    reviews: Annotated[
        str | None,
        *_one_of((OPEN, DONE, DIFFER)),
        Field(
            description="Cases that wait for reviewers (an answer that improves and is not disbelieved, with fewer "
            "than two verdicts); those with two verdicts or more; those of which verdicts differ."
        ),
    ] = None
    reviewer: Annotated[
        str | None,
        Field(max_length=LONGEST_ID, description="With `reviews=open`: a reviewer, for cases not judged by them."),
    ] = None
    pattern: Annotated[
        str,
        Field(max_length=LONGEST_ID, description="A pattern of /api/patterns: cases whose answer makes the change."),
    ] = ""
    order: Annotated[
        str | None,
        *_one_of(ORDERS),
        Field(
            description="What to sort by; unless it is given, the largest improvement comes first. `queue`: cases with "
            "one verdict first, then the largest improvement."
        ),
    ] = None
    descending: bool = False
    page: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    size: Annotated[int, Field(ge=1, le=200)] = 50


@dataclass(frozen=True)
class ListRow:
    """One episode in the list; outcomes are as people read them, and the improvement, more being better, follows."""

    episode: str
    subject: str
    steps: int
    observed: float | None
    best: float | None
    improvement: float | None
    changes: int | None
    status: str
    proven: bool
    badge: str | None
    """How sure the answer is: good, reserved or bad, as the badge of its case; None: there is no answer."""
    doubts: list[str] | None
    """Codes of what keeps the badge from being good."""
    patterns: list[str] | None
    """The patterns that the answer's changes belong to."""
    refits_agree: float | None
    refits: int | None
    warnings: int | None
    """How many there are; None: not examined."""
    verdict: Judgement | None
    """The latest one."""
    noted: bool
    reviewers: int
    """How many have given a verdict."""
    differ: bool
    """Whether their verdicts do."""


_OF_ANSWERS = (
    *("episode", "observed_clipped_outcome", "clipped_outcome", "changes", "status", "proven"),
    *("badge", "doubts", "patterns", "refits_agree", "refits", "warnings", "examined", "evidence"),
)
_OF_REVIEWS = ("verdict", "noted", "reviewers", "differ")
_COLUMNS = tuple(name for name in ListRow.__dataclass_fields__ if name not in _OF_REVIEWS)
_EXPORTED = (
    *("episode", "status", "observed", "best", "improvement", "changes", "badge", "doubts", "evidence"),
    *("refits_agree", "refits", "warnings"),
)
"""What of an answer stands beside verdicts about it in a table."""


@dataclass(frozen=True)
class ListPage:
    """A page of the list."""

    total: int
    page: int
    size: int
    rows: tuple[ListRow, ...]


class Listing:
    """The rows of all episodes; outcomes are as people read them, a positive improvement is better."""

    def __init__(self, rows: pl.DataFrame, *, solved: bool) -> None:
        self._rows = rows.with_columns(key=pl.concat_str("episode", "subject", separator="\n").str.to_lowercase())
        self._solved = solved
        self._noted: tuple[Mapping[str, Sequence[Note]], pl.DataFrame] | None = None

    @property
    def examined(self) -> bool:
        """Whether the run had any answer examined."""
        return bool(self._rows["examined"].any())

    def page(self, query: ListQuery, notes: Notes) -> ListPage:
        """One page of what the query leaves."""
        found = self._filtered(query, self._with_verdicts(notes))
        order, descending = query.order, query.descending
        if order is None and self._solved:
            order, descending = "improvement", True
        if order == "queue":
            waits = pl.col("reviewers").is_between(1, REVIEWERS_WANTED - 1)
            found = found.sort(waits, "improvement", descending=True, nulls_last=True, maintain_order=True)
        elif order is not None:
            found = found.sort(order, descending=descending, nulls_last=True, maintain_order=True)
        shown = found.slice((query.page - 1) * query.size, query.size)
        rows = tuple(ListRow(**row) for row in shown.select(*_COLUMNS, *_OF_REVIEWS).iter_rows(named=True))
        return ListPage(found.height, query.page, query.size, rows)

    def patterns_of(self, episode: str) -> list[str]:
        """The patterns that the changes of an episode's answer belong to."""
        found = self._rows.filter(pl.col("episode") == episode)["patterns"].to_list()
        return found[0] or [] if found else []

    @property
    def answers(self) -> pl.DataFrame:
        """What is known of every answer, a row per episode, for tables."""
        doubts = pl.col("doubts").list.join("; ")
        return self._rows.select(_EXPORTED).with_columns(doubts=doubts, badge=pl.col("badge").cast(pl.String))

    def _with_verdicts(self, notes: Notes) -> pl.DataFrame:
        """The rows with what reviewers say; made again only when they have said something more."""
        reviews, kept = notes.reviews(), self._noted
        if kept is not None and kept[0] is reviews:
            return kept[1]
        found = [reviews.get(episode, ()) for episode in self._rows["episode"]]
        verdicts = [verdicts_of(notes) for notes in found]
        rows = self._rows.with_columns(
            verdict=pl.Series([list(given.values())[-1] if given else None for given in verdicts], dtype=pl.String),
            noted=pl.Series([bool(notes) for notes in found], dtype=pl.Boolean),
            reviewers=pl.Series([len(given) for given in verdicts], dtype=pl.Int64),
            differ=pl.Series([len(set(given.values())) > 1 for given in verdicts], dtype=pl.Boolean),
            by=pl.Series([list(given) for given in verdicts], dtype=pl.List(pl.String)),
        )
        self._noted = (reviews, rows)
        return rows

    @staticmethod
    def _filtered(query: ListQuery, rows: pl.DataFrame) -> pl.DataFrame:
        conditions = []
        if query.search:
            conditions.append(pl.col("key").str.contains(query.search.strip().lower(), literal=True))
        if query.status is not None:
            conditions.append(pl.col("status") == query.status)
        if query.verdict == WITHOUT_VERDICT:
            conditions.append(pl.col("verdict").is_null())
        elif query.verdict is not None:
            conditions.append(pl.col("verdict") == query.verdict)
        if query.warnings is not None:
            conditions.append(pl.col("warnings") == 0 if query.warnings == WITHOUT_WARNINGS else pl.col("warnings") > 0)
        conditions += _of_reviews(query)
        if query.pattern:
            conditions.append(pl.col("patterns").list.contains(query.pattern).fill_null(False))
        if query.at_least is not None:
            conditions.append(pl.col("improvement") >= query.at_least)
        return rows.filter(*conditions) if conditions else rows


def _of_reviews(query: ListQuery) -> list[pl.Expr]:
    """What the question about reviews leaves."""
    if query.reviews == DIFFER:
        return [pl.col("differ")]
    if query.reviews == DONE:
        return [pl.col("reviewers") >= REVIEWERS_WANTED]
    if query.reviews is None:
        return []
    interesting = [pl.col("improvement") > 0, pl.col("badge") != "bad", pl.col("reviewers") < REVIEWERS_WANTED]
    return interesting + ([] if query.reviewer is None else [~pl.col("by").list.contains(query.reviewer)])


def list_rows(cohort: Cohort, model: TransitionModel, query: Query, *, table: pl.DataFrame | None) -> pl.DataFrame:
    """A row per episode of the cohort, in its order; `table` is the run's, if there is one."""
    everyone = pl.DataFrame(
        {
            "episode": pl.Series(cohort.ids, dtype=pl.String),
            "subject": pl.Series(cohort.subjects, dtype=pl.String),
            "steps": cohort.lengths,
            "recorded": _recorded_outcomes(cohort, model, query.reward),
        }
    )
    solved = pl.DataFrame(schema=COLUMNS) if table is None else table
    judged = with_badges(solved, cohort.schema.dynamic)
    answers = _answers(judged.with_columns(patterns_by_episode(solved, cohort.schema)["patterns"]))
    rows = everyone.join(answers, on="episode", how="left", maintain_order="left")
    known = rows.select(pl.coalesce("observed_clipped_outcome", "recorded"), "clipped_outcome").fill_null(math.nan)
    found = [improvement_between(query.reward.show, *pair) for pair in known.iter_rows()]
    return rows.with_columns(
        observed=_numbers(finite(one.observed.value) for one in found),
        best=_numbers(finite(one.counterfactual.value) for one in found),
        improvement=_numbers(one.relative for one in found),
        status=pl.col("status").fill_null(UNSOLVED),
        proven=pl.col("proven").fill_null(False),
        examined=pl.col("examined").fill_null(False),
    ).select(*_COLUMNS, "examined", "evidence")


def _answers(table: pl.DataFrame) -> pl.DataFrame:
    evidence = pl.col("evidence").struct
    refits = evidence.field("refits").struct
    asked = [evidence.field(name).is_not_null() for name in ("refits", "support", "sensitivity")]
    examined = pl.any_horizontal(*asked, evidence.field("failures").list.len() > 0).fill_null(False)
    count, warned = refits.field("improvements").list.len().cast(pl.Int64), pl.col("warnings").list.len().cast(pl.Int64)
    return table.with_columns(
        refits=count,
        refits_agree=refits.field("helping") / count,
        warnings=pl.when(examined | (warned > 0)).then(warned),
        examined=examined,
        evidence=pl.col("verdict"),
    ).select(*_OF_ANSWERS)


def _recorded_outcomes(cohort: Cohort, model: TransitionModel, reward: Reward) -> FloatArray:
    """The outcome of every episode as it was recorded [E], values within their plausible ranges as in answers."""
    within = within_ranges(cohort.schema.dynamic, cohort.states)
    states = torch.as_tensor(model.scaler.states.encode(within))
    bound, lengths = reward.bind(cohort.schema, model.scaler), np.diff(cohort.offsets)
    actions, rewards = torch.as_tensor(np.array(cohort.actions)), np.empty(len(states))
    steps = np.arange(len(states)) - np.repeat(cohort.offsets[:-1], lengths)
    with torch.no_grad():
        for horizon in np.unique(lengths).tolist():  # goals count steps from the end, too
            rows = np.repeat(lengths == horizon, lengths)
            rewards[rows] = bound.over(horizon)(states[rows], actions[rows], torch.as_tensor(steps[rows])).numpy()
    totals: FloatArray = np.add.reduceat(rewards, cohort.offsets[:-1])
    return totals


def _numbers(values: Iterable[float | None]) -> pl.Series:
    return pl.Series(list(values), dtype=pl.Float64)
