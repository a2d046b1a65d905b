"""The list of cases: one row per episode, in memory; search, filters, order and pages are done here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch

from ifonly.cases.question import CaseQuestion
from ifonly.data.cohort import Cohort
from ifonly.models.base import TransitionModel
from ifonly.report.improvements import improvements
from ifonly.result import Status
from ifonly.rewards import Reward
from ifonly.runs.rows import FAILED
from ifonly.web.notes import Note, Notes

UNSOLVED = "unsolved"
"""The status of an episode that the run has no answer for, or of every one where there is no run."""
STATUSES = (*(status.value for status in Status), FAILED, UNSOLVED)
WITHOUT_VERDICT = "none"
WITHOUT_WARNINGS, WITH_WARNINGS = "none", "some"

_COLUMNS = (
    *("episode", "subject", "steps", "observed", "best", "improvement", "changes", "status", "proven"),
    *("refits_agree", "refits", "warnings"),
)
ORDERS = (
    *("episode", "steps", "observed", "best", "improvement", "changes", "status"),
    *("refits_agree", "warnings", "verdict"),
)
"""The columns to sort by."""


@dataclass(frozen=True)
class ListQuery:
    """Which rows of the list, and in which order; None leaves out nothing."""

    search: str | None = None
    """Part of an episode's or a subject's id, in capitals or not."""
    status: str | None = None
    verdict: str | None = None
    at_least: float | None = None
    """The smallest relative improvement."""
    warnings: str | None = None
    """"none": answers that were examined and raise no warning; "some": those that raise one."""
    order: str | None = None
    """None: the largest improvement first, where there is a run; otherwise the cohort's order."""
    descending: bool = False
    page: int = 1
    size: int = 50


class Listing:
    """The rows of all episodes; outcomes are as people read them, a positive improvement is better."""

    def __init__(self, rows: pl.DataFrame, *, solved: bool) -> None:
        self._rows = rows.with_columns(key=pl.concat_str("episode", "subject", separator="\n").str.to_lowercase())
        self._solved = solved
        self._noted: tuple[Mapping[str, Note], pl.DataFrame] | None = None

    @property
    def examined(self) -> bool:
        """Whether the run had any answer examined."""
        return bool(self._rows["warnings"].is_not_null().any())

    def page(self, query: ListQuery, notes: Notes) -> dict[str, Any]:
        """One page of what the query leaves, in plain types."""
        found = self._filtered(query, self._with_verdicts(notes))
        order, descending = query.order, query.descending
        if order is None and self._solved:
            order, descending = "improvement", True
        if order is not None:
            found = found.sort(order, descending=descending, nulls_last=True, maintain_order=True)
        shown = found.slice((query.page - 1) * query.size, query.size)
        return {
            "total": found.height,
            "page": query.page,
            "size": query.size,
            "rows": shown.select(*_COLUMNS, "verdict", "noted").to_dicts(),
        }

    def _with_verdicts(self, notes: Notes) -> pl.DataFrame:
        """The rows with what reviewers say; made again only when they have said something more."""
        latest, kept = notes.latest(), self._noted
        if kept is not None and kept[0] is latest:
            return kept[1]
        found = [latest.get(episode) for episode in self._rows["episode"]]
        rows = self._rows.with_columns(
            verdict=pl.Series([None if note is None else note.verdict for note in found], dtype=pl.String),
            noted=pl.Series([note is not None for note in found], dtype=pl.Boolean),
        )
        self._noted = (latest, rows)
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
        if query.at_least is not None:
            conditions.append(pl.col("improvement") >= query.at_least)
        return rows.filter(*conditions) if conditions else rows


def list_rows(
    cohort: Cohort, model: TransitionModel, question: CaseQuestion, *, table: pl.DataFrame | None
) -> pl.DataFrame:
    """A row per episode of the cohort, in its order; `table` is the run's, if there is one."""
    everyone = pl.DataFrame(
        {
            "episode": pl.Series(cohort.ids, dtype=pl.String),
            "subject": pl.Series(cohort.subjects, dtype=pl.String),
            "steps": cohort.lengths,
            "recorded": _observed_outcomes(cohort, model, question.reward),
        }
    )
    answers = pl.DataFrame(schema=_ANSWER) if table is None else _answers(table, question.change_cost)
    rows = everyone.join(answers, on="episode", how="left", maintain_order="left")
    return rows.with_columns(
        observed=_shown(rows["recorded"], question.reward),
        best=_shown(rows["outcome"], question.reward),
        status=pl.col("status").fill_null(UNSOLVED),
        proven=pl.col("proven").fill_null(False),
    ).select(_COLUMNS)


_ANSWER = pl.Schema(
    {
        "episode": pl.String(),
        "outcome": pl.Float64(),
        "improvement": pl.Float64(),
        "changes": pl.Int64(),
        "status": pl.String(),
        "proven": pl.Boolean(),
        "refits_agree": pl.Float64(),
        "refits": pl.Int64(),
        "warnings": pl.Int64(),
    }
)


def _answers(table: pl.DataFrame, change_cost: float) -> pl.DataFrame:
    answered = improvements(table).with_columns(
        # As outcomes are shown, without the cost of changes.
        outcome=pl.col("outcome") + change_cost * pl.col("changes"),
        proven=pl.col("proven") & pl.col("certificate").is_not_null(),
        refits=pl.col("refit_improvements").list.len().cast(pl.Int64),
        warnings=pl.col("warnings").list.len().cast(pl.Int64),
    )
    failed = table.filter(pl.col("status") == FAILED).select("episode", "status")
    return pl.concat([answered.select(_ANSWER.names()), failed], how="diagonal")


def _observed_outcomes(cohort: Cohort, model: TransitionModel, reward: Reward) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The outcome of every episode as it was recorded [E]."""
    states = torch.as_tensor(model.scaler.states.encode(cohort.states))
    bound = reward.bind(cohort.schema, model.scaler)
    with torch.no_grad():
        rewards = bound(states, torch.as_tensor(np.array(cohort.actions))).numpy()
    return np.add.reduceat(rewards, cohort.offsets[:-1])


def _shown(outcomes: pl.Series, reward: Reward) -> pl.Series:
    """Outcomes as people read them; what is not finite is null."""
    finite = outcomes.is_finite()
    values = [reward.show(value).value if fine else None for value, fine in zip(outcomes, finite, strict=True)]
    return pl.Series(values, dtype=pl.Float64)
