"""Figures of a cohort run: improvement by budget, its distribution, by horizon, by group, and the evidence."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ifonly.data.episode import FloatArray
from ifonly.errors import InputError
from ifonly.report.figure_style import (
    COLUMN_WIDTH,
    COUNTERFACTUAL,
    FILL,
    GUIDE,
    OBSERVED,
    QUIET,
    SERIF,
    column_figure,
    panels,
)
from ifonly.report.improvements import Examination, round_up
from ifonly.report.summary import ALL, RunSummary
from ifonly.text.catalogue import say
from ifonly.text.numbers import counted, percent, shortened

_NOTE_SIZE = 7.5
_POINTS: Any = {"color": COUNTERFACTUAL, "ecolor": OBSERVED, "capsize": 2.5}
_INSET = (0.56, 0.46, 0.42, 0.42)
"""Left, bottom, width and height of the tail's inset, as shares of the panel."""

_BELOW_INSET = _INSET[1] - 0.14
"""Up to here there is nothing of the inset, its tick labels included."""

_TAIL_BINS = 16
"""Bins of the inset, at most about."""

_VISIBLE = 0.05
"""Brackets narrower than this, in percent, are not drawn, nor is it said that so little of an interval is cut."""


def plot_improvement_by_budget(summary: RunSummary) -> Figure:
    """Average improvement against the number of changes allowed, with 95 % intervals, as the paper's fig. 3a."""
    frame = summary.by_budget
    _require_improvements(summary.by_horizon, "by budget")
    if frame.is_empty():
        raise InputError(
            "improvement by budget: no episode has an answer for every budget; solve with branch and bound, which "
            "gives all budgets at once."
        )
    with column_figure() as (figure, panel):
        room = _draw_means(panel, frame, "max_changes", joined=True)
        panel.set_xlabel(say("figure.changes allowed"))
        _note(panel, summary, counted(frame["episodes"][0], "episode"), room)
    return figure


def plot_improvement_by_horizon(summary: RunSummary) -> Figure:
    """Average improvement against the number of steps, with 95 % intervals."""
    frame = summary.by_horizon.filter(pl.col("episodes") > 0)
    _require_improvements(frame, "by horizon")
    with column_figure() as (figure, panel):
        room = _draw_means(panel, frame, "horizon", joined=False)
        panel.set_xlabel(say("figure.horizon"))
        _note(panel, summary, counted(summary.improvement.episodes, "episode"), room, _cut_note(frame))
    return figure


def plot_improvement_distribution(summary: RunSummary) -> Figure:
    """Histogram of the improvement with its median dashed, and the tail of interesting cases as an inset (fig. 3b)."""
    frame = summary.histogram
    _require_improvements(frame, "distribution")
    edges = 100 * np.append(frame["low"].to_numpy(), frame["high"][-1])
    median, threshold = summary.improvement.median, 100 * summary.threshold
    assert median is not None, "there are improvements"
    cases = 100 * summary.cases["improvement"].to_numpy()
    # Where most episodes are cases, they are no tail to be shown apart.
    has_tail = len(cases) > 0 and 100 * median < threshold
    with column_figure(height=2.5) as (figure, panel):
        _draw_bars(panel, edges, frame["episodes"].to_numpy())
        top = _draw_tail(panel, cases, threshold) if has_tail else lambda _: 1.0
        panel.axvline(100 * median, ymax=top(100 * median), color="black", linestyle="--", linewidth=1.1)
        if len(cases):
            panel.axvline(threshold, ymax=top(threshold), color=OBSERVED, linestyle=":", linewidth=1.0)
        panel.set_xlabel(say("figure.improvement"))
        panel.set_ylabel(say("figure.number of episodes"))
        count = counted(summary.improvement.episodes, "episode")
        _note(panel, summary, count, say("note.median", median=percent(median)))
    return figure


def plot_improvement_by_group(summary: RunSummary, by: str | None = None) -> Figure:
    """Average improvement of each group of one grouping (by default the first), with 95 % intervals and sizes."""
    names = list(summary.group_labels)
    if not names:
        raise InputError("improvement by group: this summary has no groups; name a feature with `by`.")
    by = names[0] if by is None else by
    if by not in names:
        raise InputError(f"improvement by group: there are no groups by {by!r}; choose from {names}.")
    frame = summary.by_group.filter((pl.col("by") == by) & (pl.col("episodes") > 0))
    _require_improvements(frame, f"by {by}")
    with column_figure(height=max(1.8, 0.95 + 0.27 * frame.height)) as (figure, panel):
        rows = np.arange(frame.height, dtype=np.float64)
        panel.errorbar(_percents(frame, "mean"), rows, xerr=_margins(frame), fmt="o", **_POINTS)
        sizes = zip(frame["group"], frame["episodes"], strict=True)
        labels = [f"{shortened(group.replace('>=', '≥'), 22)}  (n = {count:,})" for group, count in sizes]
        panel.set_yticks(rows, labels, parse_math=False)
        panel.set_ylim(frame.height - 0.5, -0.5)
        panel.set_xlim(_limits(frame))
        room = _draw_brackets(panel, frame, rows, upright=False)
        panel.grid(axis="x", color=GUIDE, linewidth=0.5)
        panel.set_axisbelow(True)
        panel.set_xlabel(say("figure.average improvement"))
        panel.set_ylabel(summary.group_labels[by], parse_math=False)
        # Names of groups leave less room than there is elsewhere.
        _note(panel, summary, room, _cut_note(frame), width=32)
    return figure


def plot_change_times(summary: RunSummary) -> Figure:
    """When actions change: for every step, the share of the episodes that reach it in which it is changed."""
    frame = summary.change_times
    with column_figure() as (figure, panel):
        steps = frame["step"].to_numpy()
        panel.bar(steps, _percents(frame, "share"), width=0.8, color=FILL, edgecolor=OBSERVED, linewidth=0.6)
        panel.xaxis.set_major_locator(MaxNLocator(nbins=11, integer=True, min_n_ticks=1))
        panel.set_xlim(-0.7, max(steps, default=0) + 0.7)
        panel.set_ylim(bottom=0)
        panel.set_xlabel(say("figure.step"))
        panel.set_ylabel(say("figure.changed here"))
        changes = counted(int(frame["changed"].sum()), "change")
        _note(
            panel, summary, say("note.changes", changes=changes, episodes=counted(summary.counts.answered, "episode"))
        )
    return figure


def plot_evidence(summary: RunSummary) -> Figure:
    """Improvement of all answers and of those without warnings, and how many refits agree, where there are any."""
    if not summary.evidence.examined:
        raise InputError("evidence: nothing to draw, since no answer of this run was examined.")
    count = 2 if summary.agreement.height else 1
    with panels(COLUMN_WIDTH * count, 2.4, 1, count, dpi=300, letters=SERIF) as (figure, found):
        _draw_remaining(found[0], summary)
        if count == 2:
            _draw_agreement(found[1], summary)
    return figure


def _draw_remaining(panel: Axes, summary: RunSummary) -> None:
    """The share of answers that improve by at least so much: dashed where no warning was raised."""
    rows = summary.episodes.filter(pl.col("improvement").is_not_null())
    clean = rows.filter(pl.col("warnings").list.len() == 0)
    for name, part, style, colour in ((ALL, rows, "-", OBSERVED), (Examination.CLEAN, clean, "--", COUNTERFACTUAL)):
        if part.height:
            ordered = np.sort(_percents(part, "improvement"))
            places = np.concatenate([[min(0.0, ordered[0])], ordered])
            shares = 100 * np.arange(len(ordered), -1, -1) / len(ordered)
            panel.step(
                places,
                shares,
                style,
                color=colour,
                where="post",
                label=say("figure.answers", name=name, number=f"{part.height:,}"),
            )
    panel.set_xlabel(say("figure.improvement"))
    panel.set_ylabel(say("figure.reach it"))
    panel.set_ylim(0, 102)
    panel.legend(frameon=False, loc="upper right")
    left_out = summary.by_examination.filter(
        pl.col("examination").is_in([Examination.UNCHANGED.value, Examination.NOT_EXAMINED.value])
    )
    counts = [f"{row['examination']}: {row['episodes']:,}" for row in left_out.to_dicts() if row["episodes"]]
    _title(panel, "; ".join(counts))


def _draw_agreement(panel: Axes, summary: RunSummary) -> None:
    frame = summary.agreement
    _draw_bars(panel, 100 * np.append(frame["low"].to_numpy(), 1.0), frame["episodes"].to_numpy())
    panel.set_xlabel(say("figure.refits agreeing"))
    panel.set_ylabel(say("figure.number of answers"))
    found = summary.evidence
    _title(panel, say("note.agreement", answers=counted(found.refits, "answer"), number=f"{found.all_refits_agree:,}"))


def _draw_means(panel: Axes, frame: pl.DataFrame, column: str, *, joined: bool) -> str:
    """Means with their intervals and brackets; gives back what to say of the brackets."""
    positions, means = frame[column].to_numpy(), _percents(frame, "mean")
    panel.errorbar(positions, means, yerr=_margins(frame), fmt="o-" if joined else "o", elinewidth=1.0, **_POINTS)
    panel.xaxis.set_major_locator(MaxNLocator(nbins=11, integer=True, min_n_ticks=1))
    panel.margins(x=0.06)
    panel.set_ylim(_limits(frame))
    panel.set_ylabel(say("figure.average improvement"))
    return _draw_brackets(panel, frame, positions)


def _draw_brackets(panel: Axes, frame: pl.DataFrame, positions: FloatArray, *, upright: bool = True) -> str:
    """Where limited answers leave room, grey bars up to the average that the best sequences could reach.

    Where that is unknown or far away, the bar goes to the panel's edge, whose limits are set already. Gives back what
    to say of the bars, nothing where there are none.
    """
    means, bounds = _percents(frame, "mean"), _bounds(frame)
    room = bounds - means > _VISIBLE
    draw, edge = (panel.vlines, panel.get_ylim()[1]) if upright else (panel.hlines, panel.get_xlim()[1])
    if not room.any():
        return ""
    draw(positions[room], means[room], np.minimum(bounds, edge)[room], color=GUIDE, linewidth=7, zorder=0)
    unknown, higher = np.isinf(bounds[room]), bounds[room] > edge
    if unknown.all():
        return say("note.room.unknown")
    return say("note.room.partly unknown" if unknown.any() else "note.room.higher" if higher.any() else "note.room")


def _draw_tail(panel: Axes, cases: FloatArray, threshold: float) -> Callable[[float], float]:
    """The cases above the threshold, in the upper right; the bars below make room for it.

    Gives back how far up, as a share of the panel, a line may go at each position without crossing it.
    """
    low, high = panel.get_xlim()
    start = low + (_INSET[0] - 0.08) * (high - low)
    heights = [bar.get_height() for bar in panel.patches if bar.get_x() + bar.get_width() > start]  # type: ignore[attr-defined]
    panel.set_ylim(0, max(panel.get_ylim()[1], max(heights, default=0.0) / _BELOW_INSET))
    panel.set_xlim(low, high)
    inset = panel.inset_axes(_INSET)
    step = round_up(max(float(cases.max()) - threshold, 1.0) / _TAIL_BINS)
    edges = threshold + step * np.arange(np.floor((cases.max() - threshold) / step) + 2)
    _draw_bars(inset, edges, np.histogram(cases, edges)[0])
    inset.set_title(
        say("figure.tail", percent=f"{threshold:g}", cases=counted(len(cases), "case")), fontsize=_NOTE_SIZE, pad=3
    )
    inset.tick_params(labelsize=7, length=2)
    inset.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True, min_n_ticks=1))
    inset.xaxis.set_major_locator(MaxNLocator(nbins=4))
    return lambda position: _BELOW_INSET if position > start else 1.0


def _draw_bars(panel: Axes, edges: FloatArray, counts: FloatArray) -> None:
    panel.bar(edges[:-1], counts, np.diff(edges), align="edge", color=FILL, edgecolor=OBSERVED, linewidth=0.5)
    panel.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))


def _note(panel: Axes, summary: RunSummary, *parts: str, width: int = 60) -> None:
    """Quiet lines above the panel: how far an unfinished run is, what there is to know, and what is not proven."""
    counts = summary.counts
    lines = ["; ".join(part for part in parts if part)]
    if counts.left:
        expected = counted(counts.expected or 0, "episode")
        lines.insert(0, say("note.unfinished", done=f"{counts.episodes:,}", episodes=expected))
    if counts.limited:
        lines.append(say("note.lower bounds", limited=f"{counts.limited:,}", answered=f"{counts.answered:,}"))
    _title(panel, "\n".join(textwrap.fill(line, width) for line in lines if line))


def _title(panel: Axes, text: str) -> None:
    panel.set_title(text, loc="left", fontsize=_NOTE_SIZE, color=QUIET, parse_math=False)


def _percents(frame: pl.DataFrame, column: str) -> FloatArray:
    return 100 * frame[column].cast(pl.Float64).to_numpy()


def _bounds(frame: pl.DataFrame) -> FloatArray:
    """Upper ends of the means' brackets, infinite where they are unknown."""
    return 100 * frame["upper_mean"].fill_null(np.inf).to_numpy()


def _margins(frame: pl.DataFrame) -> FloatArray:
    """The 95 % interval of each mean [2, N], below and above it; NaN, which is not drawn, for single episodes.

    Student's t makes intervals of two or three episodes that no improvement can reach, such as 180 %: they are drawn
    no farther than the smallest and the largest improvement of any episode.
    """
    low, high = (frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy() for name in ("low", "high"))
    ends = np.maximum(low, _edge(frame, "smallest")), np.minimum(high, _edge(frame, "largest"))
    means = frame["mean"].cast(pl.Float64).to_numpy()
    margins: FloatArray = 100 * np.stack([means - ends[0], ends[1] - means])
    return margins.clip(min=0.0)  # rounding must not turn one over


def _edge(frame: pl.DataFrame, name: str) -> float:
    """The smallest or the largest improvement of any episode."""
    values = frame[name].cast(pl.Float64).to_numpy()
    return float(np.nanmin(values) if name == "smallest" else np.nanmax(values))


def _cut_note(frame: pl.DataFrame) -> str:
    """What to say where an interval is not drawn to its end; nothing where all are."""
    low, high = _edge(frame, "smallest") - _VISIBLE / 100, _edge(frame, "largest") + _VISIBLE / 100
    beyond = (frame["low"] < low) | (frame["high"] > high)
    return say("note.intervals cut") if beyond.fill_null(value=False).any() else ""


def _limits(frame: pl.DataFrame) -> tuple[float, float]:
    """From zero, since improvements are compared with none at all, or from what lies below it; with some air."""
    means, (below, above) = _percents(frame, "mean"), np.nan_to_num(_margins(frame))
    low = min(0.0, float(np.min(means - below)))
    high = max(0.0, float(np.max(means + above)))
    # Bounds that are far away must not flatten what was found.
    high = max(high, min(1.5 * high, float(_bounds(frame).max())))
    air = 0.07 * (high - low) or 1.0
    return (low - air if low < 0 else 0.0), high + air


def _require_improvements(frame: pl.DataFrame, what: str) -> None:
    if frame.is_empty():
        raise InputError(f"improvement {what}: nothing to draw, since no episode has a relative improvement.")
