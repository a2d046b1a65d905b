"""Results as rows of a table, lossless: every field of a result is a column, and a few follow from them."""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import polars as pl

from ifonly.data.episode import Episode
from ifonly.data.parsing import parse_json
from ifonly.errors import StoreError
from ifonly.models.standing import Standing
from ifonly.records import (
    Integers,
    KnownNumber,
    LowerBound,
    MaybeNumber,
    Outcomes,
    Settings,
    States,
    UpperBound,
    finite,
    from_plain,
    to_plain,
)
from ifonly.result.evidence import Evidence, Reason, Verdict
from ifonly.result.result import Provenance, Result
from ifonly.text.catalogue import say

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
        Settings: pl.String(),  # as JSON
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
    assert issubclass(hint, Enum), f"no column for {hint}"
    return pl.String()


def _columns(record: Any) -> dict[str, pl.DataType]:
    hints = get_type_hints(record, include_extras=True)
    return {one.name: _column_type(hints[one.name]) for one in dataclasses.fields(record) if one.name != "provenance"}


OWN = _columns(Result)
"""The columns that are a result's own fields."""

DERIVED: dict[str, pl.DataType] = {
    "horizon": pl.Int64(),
    "reason": _column_type(Reason),
    "gap": pl.Float64(),
    "proven": pl.Boolean(),
    "changes": pl.Int64(),
    "improvement": pl.Float64(),
    "verdict": pl.String(),
    "warnings": pl.List(pl.String()),
}
"""Derived columns, for readers of tables: the number of changes, the relative improvement, and codes of the evidence. A
failed episode has a `reason`; its other columns are null.
"""

COLUMNS = pl.Schema({**OWN, **DERIVED})
"""The columns of a run's table."""


_MAY_BE_NULL = (Outcomes, States, UpperBound, KnownNumber, MaybeNumber, LowerBound)


def first_lacking(table: pl.DataFrame) -> str | None:
    """The first column, or entry of one, that is null in an answer although every result has it; None: all is there."""
    answers = table.filter(pl.col("status") != FAILED)
    hints = get_type_hints(Result, include_extras=True)
    derived = ("horizon", "proven", "changes", "verdict", "warnings")
    lacking = [_lacking(answers[name], hints[name]) for name in OWN] + [
        _lacking(answers[name], str) for name in derived
    ]
    if not (answers["actions"].list.len() == answers["observed_actions"].list.len()).all():
        lacking.append("actions")
    return next((name for name in lacking if name is not None), None)


def _lacking(values: pl.Series, hint: Any) -> str | None:
    """The same of the values of one field, by what the field may be."""
    if any(hint == known for known in _MAY_BE_NULL):
        return None
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (one for one in arguments if one is not type(None))
        return _lacking(values.drop_nulls(), inner)
    if values.null_count():
        return values.name
    if hint == Integers or origin is tuple:
        inside = values.filter(values.list.len() > 0).explode()
        return _lacking(inside, arguments[0] if origin is tuple else int)
    if dataclasses.is_dataclass(hint):
        hints, parts = get_type_hints(hint, include_extras=True), values.struct.unnest()
        found = (_lacking(parts[name], hints[name]) for name in _columns(hint))
        return next((f"{values.name}.{name}" for name in found if name is not None), None)
    return None


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
        **_evidence_columns(result.evidence),
    }


def from_row(row: Mapping[str, Any], provenance: Provenance) -> Result:
    """The result that a row holds."""
    own = {name: row[name] for name in OWN}
    try:
        own["certificate"] = own["certificate"] | {"details": parse_json(own["certificate"]["details"])}
    except (TypeError, KeyError, ValueError) as error:
        raise StoreError(
            f"a row of a run: its certificate is broken or incomplete ({error}); solve it again."
        ) from None
    return Result.from_parts(own, provenance)


def failed_row(episode: Episode, error: Exception) -> dict[str, Any]:
    """The row of an episode that could not be solved."""
    who = {"episode": episode.id, "subject": episode.subject, "horizon": len(episode)}
    return dict.fromkeys(COLUMNS) | who | {"status": FAILED, "reason": to_plain(Reason.of(error))}


def reasons_of(table: pl.DataFrame) -> dict[str, str]:
    """The reasons why episodes of a run failed, in words, by id."""
    failed = table.filter(pl.col("status") == FAILED).select("episode", "reason")
    return {id: say("reason.none") if reason is None else str(Reason(**reason)) for id, reason in failed.iter_rows()}


def believed(table: pl.DataFrame) -> pl.DataFrame:
    """The answers of a run's table whose verdict is not that they are not to be believed; failed ones have none."""
    return table.filter(pl.col("verdict") != Verdict.NOT_BELIEVABLE.value)


def with_check(table: pl.DataFrame, check: Standing | None) -> pl.DataFrame:
    """The table with another check of the model in the evidence of every row; None changes nothing."""
    if check is None:
        return table
    rows = [
        {"evidence": None, "verdict": None, "warnings": None}
        if content is None
        else _evidence_columns(replace(from_plain(Evidence, content, what="evidence"), check=check))
        for content in table["evidence"]
    ]
    schema = {name: COLUMNS[name] for name in ("evidence", "verdict", "warnings")}
    return table.with_columns(pl.DataFrame(rows, schema=schema))


def _evidence_columns(evidence: Evidence) -> dict[str, Any]:
    """The columns that the evidence for an answer fills."""
    return {
        "evidence": to_plain(evidence),
        "verdict": evidence.verdict.value,
        "warnings": [warning.code.value for warning in evidence.warnings],
    }


def with_results(table: pl.DataFrame, results: Iterable[Result]) -> pl.DataFrame:
    """The table with the rows of some episodes replaced by other answers."""
    other = {result.episode: to_row(result) for result in results}
    if not other:
        return table
    return pl.DataFrame([other.get(row["episode"], row) for row in table.iter_rows(named=True)], schema=table.schema)
