"""How far a run's answers may be trusted, over all of them: warnings by kind, and what is left without any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from ifonly.report.breakdowns import statistics_by

ALL = "all answers"
CLEAN, WARNED = "no warnings", "with warnings"
UNCHANGED, NOT_EXAMINED = "nothing changed", "not examined"


@dataclass(frozen=True)
class TrustCounts:
    """How many answers were examined, and what came of it."""

    model_check: Mapping[str, Any] | None
    """What a check concluded about the model; None where it was not checked."""
    examined: int
    """Answers that change something and were examined."""
    without_warnings: int
    unchanged: int
    """Answers that change nothing: there is nothing to examine."""
    not_examined: int
    refits: int
    """Answers of which the refits of an ensemble were asked."""
    all_refits_agree: int
    """Of those, the ones that help under every refit."""
    median_agreement: float | None
    """The median share of refits under which an answer helps."""

    @property
    def model_failed(self) -> bool:
        """Whether the model failed its check, and was asked all the same."""
        return self.model_check is not None and self.model_check["verdict"] == "fail"


def with_standing(answers: pl.DataFrame) -> pl.DataFrame:
    """The answers with a column `standing`: no warnings, with warnings, nothing changed, or not examined."""
    standing = (
        pl.when(pl.col("changes") == 0)
        .then(pl.lit(UNCHANGED))
        .when(pl.col("warnings").is_null())
        .then(pl.lit(NOT_EXAMINED))
        .when(pl.col("warnings").list.len() == 0)
        .then(pl.lit(CLEAN))
        .otherwise(pl.lit(WARNED))
    )
    return answers.with_columns(standing=standing)


def trust_counts(answers: pl.DataFrame, model_check: Mapping[str, Any] | None) -> TrustCounts:
    """The counts of answers `with_standing`."""
    standings = answers["standing"].to_list()
    agreement = _agreement_of(answers)
    return TrustCounts(
        model_check=model_check,
        examined=standings.count(CLEAN) + standings.count(WARNED),
        without_warnings=standings.count(CLEAN),
        unchanged=standings.count(UNCHANGED),
        not_examined=standings.count(NOT_EXAMINED),
        refits=len(agreement),
        all_refits_agree=int((agreement == 1).sum()),
        median_agreement=float(np.median(agreement)) if len(agreement) else None,
    )


def by_standing(answers: pl.DataFrame, threshold: float) -> pl.DataFrame:
    """`Statistics` and the number of cases of all answers, and of those of every standing that there is."""
    found = set(answers["standing"])
    kinds = [kind for kind in (CLEAN, WARNED, UNCHANGED, NOT_EXAMINED) if kind in found]
    everyone = answers.with_columns(standing=pl.lit(ALL))
    parts = [
        statistics_by(everyone, "standing", [ALL], threshold),
        statistics_by(answers, "standing", kinds, threshold),
    ]
    return pl.concat(parts)


def warning_kinds(answers: pl.DataFrame) -> pl.DataFrame:
    """warning (its kind), episodes, share (of the examined ones); the most frequent first."""
    examined = answers.filter(pl.col("standing").is_in([CLEAN, WARNED]))
    found = Counter(examined["warning_kinds"].explode().drop_nulls().to_list())
    lines = [
        {"warning": kind, "episodes": count, "share": count / examined.height} for kind, count in found.most_common()
    ]
    return pl.DataFrame(lines, schema={"warning": pl.String, "episodes": pl.Int64, "share": pl.Float64})


def agreement_histogram(answers: pl.DataFrame) -> pl.DataFrame:
    """low, high, episodes: bins [low, high) of the share of refits under which an answer helps; the last includes 1."""
    values = _agreement_of(answers)
    edges = np.round(np.linspace(0, 1, 11), 12)
    counts = np.histogram(values, edges)[0] if len(values) else np.zeros(0, dtype=np.int64)
    shown = len(counts)
    return pl.DataFrame({"low": edges[:shown], "high": edges[1 : shown + 1], "episodes": counts})


def _agreement_of(answers: pl.DataFrame) -> np.ndarray[Any, np.dtype[np.float64]]:
    return answers["refits_agree"].drop_nulls().to_numpy()
