"""Results as rows of a table, lossless: every field of a result is a column, and a few follow from them."""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import polars as pl

from ifonly.data.episode import Episode
from ifonly.errors import IfonlyError
from ifonly.models.standing import Standing
from ifonly.records import (
    Integers,
    KnownNumber,
    LowerBound,
    MaybeNumber,
    Outcomes,
    States,
    UpperBound,
    finite,
    to_plain,
)
from ifonly.result.evidence import Verdict, WarningCode
from ifonly.result.result import Provenance, Result

FAILED = "failed"
"""The status of an episode that could not be solved; `reason` says why, and nothing else is known."""


def _column_type(hint: Any) -> pl.DataType:
    """The type of the column that holds a field of a result."""
    simple = {
        int: pl.Int64(),
        float: pl.Float64(),
        str: pl.String(),
        bool: pl.Boolean(),
        Integers: pl.List(pl.Int64()),
        Outcomes: pl.List(pl.Float64()),
        States: pl.List(pl.List(pl.Float64())),
        UpperBound: pl.Float64(),
        KnownNumber: pl.Float64(),
        MaybeNumber: pl.Float64(),
        LowerBound: pl.Float64(),
    }
    for known, kind in simple.items():
        if hint == known:
            return kind
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (one for one in arguments if one is not type(None))
        return _column_type(inner)
    if origin is tuple:
        return pl.List(_column_type(arguments[0]))
    if dataclasses.is_dataclass(hint):
        return pl.Struct(_columns(hint))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return pl.String()
    assert origin is Mapping, f"no column for {hint}"
    return pl.String()  # as JSON


def _columns(record: Any) -> dict[str, pl.DataType]:
    hints = get_type_hints(record, include_extras=True)
    return {one.name: _column_type(hints[one.name]) for one in dataclasses.fields(record) if one.name != "provenance"}


OWN = _columns(Result)
"""The columns that are a result's own fields."""

DERIVED: dict[str, pl.DataType] = {
    "horizon": pl.Int64(),
    "reason": pl.String(),
    "gap": pl.Float64(),
    "proven": pl.Boolean(),
    "changes": pl.Int64(),
    "improvement": pl.Float64(),
    "verdict": pl.String(),
    "warnings": pl.List(pl.String()),
}
"""What follows from these, for those who read tables: how many steps are changed, the relative improvement, and codes
of the evidence. A failed episode has a `reason`; its other columns are null.
"""

COLUMNS = pl.Schema({**OWN, **DERIVED})
"""The columns of a run's table."""


def to_row(result: Result) -> dict[str, Any]:
    """A result as a row of plain types."""
    own = result.own_part()
    own["certificate"]["details"] = json.dumps(own["certificate"]["details"])
    return {
        **own,
        "horizon": len(result.actions),
        "reason": None,
        "gap": finite(result.gap),
        "proven": result.proven,
        "changes": len(result.changes),
        "improvement": result.relative_improvement,
        "verdict": result.evidence.verdict.value,
        "warnings": [warning.code.value for warning in result.evidence.warnings],
    }


def from_row(row: Mapping[str, Any], provenance: Provenance) -> Result:
    """The result that a row holds."""
    own = {name: row[name] for name in OWN}
    own["certificate"] = own["certificate"] | {"details": json.loads(own["certificate"]["details"])}
    return Result.from_parts(own, provenance)


def failed_row(episode: Episode, error: Exception) -> dict[str, Any]:
    """The row of an episode that could not be solved."""
    who = {"episode": episode.id, "subject": episode.subject, "horizon": len(episode)}
    return dict.fromkeys(COLUMNS) | who | {"status": FAILED, "reason": reason_of(error)}


def reason_of(error: Exception) -> str:
    """Why something failed, never with a patient's values."""
    # Our own errors are written for people; of others only the kind is safe to keep.
    return str(error) if isinstance(error, IfonlyError) else f"unexpected {type(error).__name__}"


def with_check(table: pl.DataFrame, check: Standing | None) -> pl.DataFrame:
    """The table with another check of the model in every row's evidence; None leaves it as it is."""
    if check is None or table.is_empty():
        return table
    answered = pl.col("status") != FAILED
    code = WarningCode.MODEL_CHECK.value
    others = pl.col("warnings").list.eval(pl.element().filter(pl.element() != code))
    warned = pl.lit([] if check.verdict == "pass" else [code], dtype=pl.List(pl.String)).list.concat(others)
    parts = [pl.col("evidence").struct.field(name).is_not_null() for name in ("refits", "support", "sensitivity")]
    examined = pl.any_horizontal(parts) & (pl.col("changes") > 0)
    told = pl.when(examined).then(pl.lit(Verdict.SUPPORTED.value)).otherwise(pl.lit(Verdict.NOT_EXAMINED.value))
    verdict = pl.when(warned.list.len() > 0).then(pl.lit(Verdict.UNCERTAIN.value)).otherwise(told)
    if check.failed:
        verdict = pl.lit(Verdict.NOT_BELIEVABLE.value)
    checks = pl.Series("check", [to_plain(check)] * table.height, dtype=OWN["evidence"].to_schema()["check"])  # type: ignore[attr-defined]
    return table.with_columns(
        evidence=pl.when(answered).then(pl.col("evidence").struct.with_fields(check=checks)),
        warnings=pl.when(answered).then(warned),
        verdict=pl.when(answered).then(verdict),
    )
