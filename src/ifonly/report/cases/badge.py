"""One badge for an answer: what is proven of a model that fails, or of impossible values, is not to be relied on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from ifonly.data.schema import Feature
from ifonly.models.standing import Standing
from ifonly.report.cases.courses import Course, plausible_limits
from ifonly.result import Result, Verdict
from ifonly.text.catalogue import Message

LEVELS = pl.Enum(["good", "reserved", "bad"])
"""Of badges, the best first."""
ROUNDING = 1e-7
"""Gaps of at most this size, relative to the outcome, are none."""


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
    return BadgePart("evidence", said == Verdict.SUPPORTED.value, Message(f"badge.evidence.{said}"))


def _plausibility(result: Result, best: Course) -> BadgePart:
    """Values of the recording count, too: what follows from an impossible one is no more possible."""
    if best.implausible:
        said = "outside"
    elif all(feature.plausible is None for feature in result.schema.dynamic):
        said = "not known"
    else:
        said = "inside"
    return BadgePart("plausibility", said == "inside", Message(f"badge.plausibility.{said}"))


def is_closed(gap: float, outcome: float) -> bool:
    """Whether a gap is mere rounding: of the search, of replaying, of leaving out changes that bring nothing."""
    return gap <= ROUNDING * max(1.0, abs(outcome))


# The same of all answers of a run at once


def with_badges(table: pl.DataFrame, features: Sequence[Feature]) -> pl.DataFrame:
    """A run's table with the badge of every answer: `badge`, its level, and `doubts`, codes of what does not hold.

    Both are null where an episode has no answer. `features` are the dynamic ones, in their order.
    """
    parts = {"proof": _proofs(), "model": _checks(), "evidence": _verdicts(), "plausibility": pl.col("_values")}
    wanted = {"proof": "proven", "model": "pass", "evidence": Verdict.SUPPORTED.value, "plausibility": "inside"}
    doubts = [pl.when(said != wanted[name]).then(pl.lit(f"{name}.") + said) for name, said in parts.items()]
    against = (_checks() == "fail") | (pl.col("verdict") == Verdict.NOT_BELIEVABLE.value)
    answered = pl.col("states").is_not_null()
    return (
        table.with_columns(_values=_values(table, features))
        .with_columns(doubts=pl.when(answered).then(pl.concat_list(doubts).list.drop_nulls()))
        .with_columns(
            badge=pl.when(against)
            .then(pl.lit("bad"))
            .when(pl.col("doubts").list.len() == 0)
            .then(pl.lit("good"))
            .when(answered)
            .then(pl.lit("reserved"))
            .cast(LEVELS)
        )
        .drop("_values")
    )


def _proofs() -> pl.Expr:
    scale = pl.max_horizontal(1.0, pl.col("outcome").abs())
    closed = pl.col("proven") & (pl.col("gap") <= ROUNDING * scale).fill_null(False)
    return pl.when(closed).then(pl.lit("proven")).otherwise(pl.lit("not proven"))


def _checks() -> pl.Expr:
    return pl.col("evidence").struct.field("check").struct.field("verdict").fill_null("not checked")


def _verdicts() -> pl.Expr:
    return pl.when(pl.col("changes") > 0).then("verdict").otherwise(pl.lit("nothing changed"))


def _values(table: pl.DataFrame, features: Sequence[Feature]) -> pl.Series:
    """Whether the states of each answer are inside or outside plausible ranges; "not known" where there are none."""
    inside = "inside" if any(feature.plausible is not None for feature in features) else "not known"
    fine = [
        pl.col("states").list.get(place).is_between(*plausible_limits(feature)).fill_null(False)
        for place, feature in enumerate(features)
    ]
    steps = table.select("states", row=pl.int_range(pl.len())).explode("states")
    found = steps.group_by("row").agg(fine=pl.all_horizontal(fine).all()).sort("row")["fine"]
    return found.replace_strict({True: inside, False: "outside"}, return_dtype=pl.String)
