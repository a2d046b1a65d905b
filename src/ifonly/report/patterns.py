"""Which changes recur over a run's answers, in whom, and how often evidence supports them; small cells are kept back.

Everything is counted in subjects, so that somebody with many episodes counts once. Each count is out of all subjects of
its group: a common denominator, so that no difference of two totals tells of a few subjects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.data.groups import UNKNOWN, cohort_values, make_groups
from ifonly.data.plain import check_whole
from ifonly.data.schema import Schema, unit_of_time
from ifonly.intervals import share_interval
from ifonly.report.improvements import By, source_of_groups
from ifonly.result import Verdict
from ifonly.result.table import FAILED
from ifonly.text.catalogue import say
from ifonly.text.summaries import pattern_message

SMALLEST_CELL = 5
"""Fewer subjects than this are not shown."""
WINDOWS = 4
"""Into at most so many windows of equal length is the longest episode divided."""
SEVERITY = "severity"
"""The grouping that every run has: thirds by the outcome as recorded, per step."""
THIRDS = ("best third", "middle third", "worst third")
ALL = "all"
EXAMINED = [verdict.value for verdict in Verdict if verdict is not Verdict.NOT_EXAMINED]
_KEYS = ["pattern", "axis", "direction", "levels", "since", "until"]
COLUMNS = pl.Schema(
    {
        **{name: pl.String() for name in ("pattern", "axis", "direction")},
        "levels": pl.Int64(),
        **{name: pl.Float64() for name in ("since", "until")},
        **{name: pl.String() for name in ("by", "group")},
        **{name: pl.Int64() for name in ("subjects", "of")},
        **{name: pl.Float64() for name in ("share", "low", "high")},
        "supported": pl.Int64(),
        **{f"supported_{name}": pl.Float64() for name in ("share", "low", "high")},
        "unit": pl.String(),
    }
)
"""Of the table of patterns."""


def changes_of(table: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """Every change of a run's answers: episode, subject, verdict, and the pattern that it belongs to.

    A pattern is an axis, the direction (`raised`, `lowered`), how many levels (1, or 2 for two and more) and a window
    of time, `since` (included) to `until` (not), in the schema's unit of time since the record begins: nothing is known
    here of events in it, such as an onset. Of actions without doses, the axis is the label of the action that is taken,
    and the direction `instead`.
    """
    answers = table.filter(pl.col("status") != FAILED)
    longest = max(answers["horizon"], default=1)
    width = -(-longest // WINDOWS)
    steps = (
        answers.select("episode", "subject", "verdict", "observed_actions", "actions")
        .with_columns(step=pl.int_ranges(pl.col("actions").list.len()))
        .explode("observed_actions", "actions", "step")
        .filter(pl.col("observed_actions") != pl.col("actions"))
    )
    window = pl.col("step") // width
    length = schema.step_length
    changes = _with_direction(steps, schema).with_columns(
        since=window * width * length, until=pl.min_horizontal((window + 1) * width, longest) * length
    )
    named = pl.concat_str("axis", "direction", "levels", window, separator="|")
    return changes.with_columns(pattern=named).select("episode", "subject", "verdict", *_KEYS)


def _with_direction(steps: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """A row for every axis on which a change moves, with the direction and the number of levels."""
    space = schema.actions
    if not space.axes:
        labels = pl.Series(space.labels)
        return steps.with_columns(
            axis=labels.gather(steps["actions"]), direction=pl.lit("instead"), levels=pl.lit(1, pl.Int64)
        )
    places = np.array(space.levels)  # [A, axes]
    before, after = (places[steps[name].to_numpy()] for name in ("observed_actions", "actions"))
    moved = after - before  # [N, axes]
    rows, axes = np.nonzero(moved)
    names = np.array([axis.name for axis in space.axes])
    size = moved[rows, axes]
    return steps[rows].with_columns(
        axis=pl.Series(names[axes], dtype=pl.String),
        direction=pl.Series(np.where(size > 0, "raised", "lowered"), dtype=pl.String),
        levels=pl.Series(np.minimum(np.abs(size), 2), dtype=pl.Int64),
    )


def cohort_patterns(
    table: pl.DataFrame,
    schema: Schema,
    *,
    by: By = (),
    values: Cohort | pl.DataFrame | None = None,
    smallest_cell: int = SMALLEST_CELL,
) -> pl.DataFrame:
    """The changes that recur over a run's answers, most frequent first, for all subjects and for subgroups.

    Columns: the pattern (see `changes_of`); `by` and `group`, both "all" in the first row of each pattern; `subjects`
    with it `of` all subjects of the group, their `share` and its 95 % interval by Wilson's score, `low` to `high`; how
    many of them have it in an answer that the evidence supports, and the same figures of that share. Groups are thirds
    by recorded severity, the outcome per step as it was recorded, and those of `by`, as in `summarize`. What evidence
    supports is null where no answer was examined.

    A count from 1 to `smallest_cell` - 1, of subjects with a pattern or of those in the group without it, is not shown:
    a pattern that has one among all subjects is left out, and where a group has one, no group of that grouping is
    shown for the pattern, so that none follows from the others. Supported counts are null by the same rule.
    """
    check_whole("patterns: smallest cell", smallest_cell, least=1)
    answers = table.filter(pl.col("status") != FAILED)
    members = _members(answers, by, values)
    sizes = members.group_by("by", "group", maintain_order=True).agg(of=pl.col("subject").n_unique().cast(pl.Int64))
    changes = changes_of(answers, schema)
    supported = pl.col("subject").filter(pl.col("verdict") == Verdict.SUPPORTED.value)
    counted = (
        changes.join(members.select("episode", "by", "group"), on="episode")
        .group_by(*_KEYS, "by", "group")
        .agg(subjects=pl.col("subject").n_unique().cast(pl.Int64), supported=supported.n_unique().cast(pl.Int64))
    )
    cells = (
        changes.select(_KEYS)
        .unique()
        .join(sizes.with_row_index("place"), how="cross")
        .join(counted, on=[*_KEYS, "by", "group"], how="left", nulls_equal=True)
        .with_columns(pl.col("subjects", "supported").fill_null(0))
    )
    if not answers["verdict"].is_in(EXAMINED).any():
        cells = cells.with_columns(supported=pl.lit(None, pl.Int64))
    return _with_shares(_ordered(_discreet(cells, smallest_cell))).with_columns(unit=pl.lit(unit_of_time(schema)))


def subgroups_of(cohort: Cohort) -> list[str]:
    """What pages group by without being asked: the static features that tell subjects apart."""
    values, taken = cohort_values(cohort), (ALL, SEVERITY)
    names = [feature.name for feature in cohort.schema.features if feature.kind == "static"]
    return [name for name in names if name not in taken and values[name].n_unique() > 1]


def _answers_of(name: str, values: Cohort | pl.DataFrame | None) -> dict[str, str]:
    """Words for the groups of a feature that is 0 or 1, where its unit says what they mean."""
    features = values.schema.features if isinstance(values, Cohort) else ()
    unit = next((feature.unit for feature in features if feature.name == name), "")
    one, sign, means = unit.partition("=")
    if not sign or one.strip() != "1":
        return {}
    yes = means.strip()
    return {"0": say("page.no") if yes == say("page.yes") else say("pattern.not", answer=yes), "1": yes}


def _members(answers: pl.DataFrame, by: By, values: Cohort | pl.DataFrame | None) -> pl.DataFrame:
    """episode, subject, by, group: the groups that each answer belongs to, in the order of groupings and groups."""
    who = answers.select("episode", "subject")
    thirds = pl.Series(_thirds(answers), dtype=pl.String)
    order = {group: number for number, group in enumerate((*THIRDS, UNKNOWN))}
    parts = [
        who.with_columns(by=pl.lit(ALL), group=pl.lit(ALL)),
        who.with_columns(by=pl.lit(SEVERITY), group=thirds).sort(pl.col("group").replace_strict(order, default=None)),
    ]
    groupings = by if isinstance(by, Mapping) else dict.fromkeys([by] if isinstance(by, str) else by)
    for name, edges in groupings.items():
        found = make_groups(name, who["episode"].to_list(), source_of_groups(name, answers, values), edges)
        words = _answers_of(name, values)
        places = {words.get(group, group): number for number, group in enumerate(found.order)}
        groups = pl.Series([words.get(group, group) for group in found.of_episode], dtype=pl.String)
        grouped = who.with_columns(by=pl.lit(name), group=groups)
        parts.append(grouped.sort(pl.col("group").replace_strict(places, default=None)))
    return pl.concat(parts)


def _thirds(answers: pl.DataFrame) -> list[str]:
    """The third of each answer by its recorded outcome per step, which is a reward: more of it is better."""
    per_step = (answers["observed_clipped_outcome"] / answers["horizon"]).cast(pl.Float64).fill_null(np.nan).to_numpy()
    known = np.isfinite(per_step)
    if not known.any():
        return [UNKNOWN] * len(per_step)
    # From the worst upwards: an outcome that equals an edge belongs to the better third.
    edges = np.quantile(per_step[known], (1 / 3, 2 / 3))
    places = np.searchsorted(edges, np.where(known, per_step, 0.0), "right")
    return [THIRDS[2 - place] if fine else UNKNOWN for place, fine in zip(places.tolist(), known.tolist(), strict=True)]


def _discreet(cells: pl.DataFrame, smallest: int) -> pl.DataFrame:
    """Only cells that may be shown, and supported counts only where these may be."""

    def few(count: pl.Expr) -> pl.Expr:
        return (count > 0) & (count < smallest)

    subjects, supported = pl.col("subjects"), pl.col("supported")
    is_all = pl.col("by") == ALL
    of_pattern, of_grouping = ["pattern"], ["pattern", "by"]
    small = few(subjects) | few(pl.col("of") - subjects) | few(pl.col("of"))
    unsure = few(supported) | few(subjects - supported)
    return (
        cells.filter(~(small & is_all).any().over(of_pattern))
        .filter(~small.any().over(of_grouping))
        .with_columns(
            supported=pl.when(~(unsure & is_all).any().over(of_pattern) & ~unsure.any().over(of_grouping)).then(
                supported
            )
        )
    )


def _ordered(cells: pl.DataFrame) -> pl.DataFrame:
    """The most frequent pattern first, its groups in their order."""
    total = pl.col("subjects").filter(pl.col("by") == ALL).first().over("pattern")
    return cells.with_columns(total=total).sort(
        "total", *_KEYS, "place", descending=[True, *[False] * (len(_KEYS) + 1)]
    )


def _with_shares(cells: pl.DataFrame) -> pl.DataFrame:
    """With the shares of counts, and their intervals."""
    shares = {
        "": cells.select("subjects", "of").iter_rows(),
        "supported_": cells.select("supported", "subjects").iter_rows(),
    }
    columns: dict[str, list[float | None]] = {}
    for prefix, pairs in shares.items():
        found = [
            (None, None, None) if hits is None or not count else (hits / count, *share_interval(hits, count))
            for hits, count in pairs
        ]
        for place, name in enumerate(("share", "low", "high")):
            columns[f"{prefix}{name}"] = [one[place] for one in found]
    made = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Float64))
    return pl.concat([cells, made], how="horizontal").select(
        pl.col(name).cast(kind) for name, kind in COLUMNS.items() if name != "unit"
    )


def patterns_by_episode(table: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """episode, patterns: the patterns that each answer's changes belong to, in the order of time; none for others."""
    found = changes_of(table, schema).group_by("episode", maintain_order=True)
    return table.select("episode").join(
        found.agg(patterns=pl.col("pattern").unique(maintain_order=True)),
        on="episode",
        how="left",
        maintain_order="left",
    )


def pattern_rows(patterns: pl.DataFrame) -> list[dict[str, Any]]:
    """The table of patterns for pages: one entry per pattern, with its words, and its groups within."""
    figures = [name for name in COLUMNS if name not in (*_KEYS, "unit")]
    return [
        {
            "pattern": rows[0]["pattern"],
            "said": pattern_message(rows[0]),
            **{name: rows[0][name] for name in figures if name not in ("by", "group")},
            "groups": [{name: row[name] for name in figures} for row in rows[1:]],
        }
        for rows in (part.to_dicts() for part in patterns.partition_by("pattern", maintain_order=True))
    ]
