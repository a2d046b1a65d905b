"""The figure of how far a run's answers may be trusted, with the paper's look."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ifonly.data.episode import FloatArray
from ifonly.errors import InputError
from ifonly.report.cohort_plots import FILL
from ifonly.report.paper_style import COLUMN_WIDTH, LOOK, SERIF
from ifonly.report.plots import COUNTERFACTUAL, OBSERVED, QUIET
from ifonly.report.summary import Summary
from ifonly.report.summary_text import plural
from ifonly.report.trusting import ALL, CLEAN, NOT_EXAMINED, UNCHANGED

_NOTE_SIZE = 7.5


def plot_trust(summary: Summary) -> Figure:
    """Improvement of all answers and of those without warnings, and how many refits agree, where there are any."""
    if not summary.trust.examined:
        raise InputError("trust: nothing to draw, since no answer of this run was examined.")
    has_refits = summary.agreement.height > 0
    with mpl.rc_context(LOOK):
        figure = Figure(figsize=(COLUMN_WIDTH * (2 if has_refits else 1), 2.4), dpi=300, layout="constrained")
        panels = figure.subplots(1, 2 if has_refits else 1, squeeze=False)[0]
        _draw_improvements(panels[0], summary)
        if has_refits:
            _draw_agreement(panels[1], summary)
        for panel in panels:
            panel.spines[["top", "right"]].set_visible(False)
            # Tick labels are made only when the figure is drawn, by then outside this block.
            panel.tick_params(labelfontfamily=SERIF)
    return figure


def _draw_improvements(panel: Axes, summary: Summary) -> None:
    """The share of answers that improve by at least so much: dashed where no warning was raised."""
    rows = summary.episodes.filter(pl.col("improvement").is_not_null())
    clean = rows.filter((pl.col("warnings").list.len() == 0) & (pl.col("changes") > 0))
    for name, part, style, colour in ((ALL, rows, "-", OBSERVED), (CLEAN, clean, "--", COUNTERFACTUAL)):
        if part.height:
            label = f"{name} ({part.height:,})"
            panel.step(
                *_remaining(100 * part["improvement"].to_numpy()), style, color=colour, where="post", label=label
            )
    panel.set_xlabel("Counterfactual improvement (%)")
    panel.set_ylabel("Answers that reach it (%)")
    panel.set_ylim(0, 102)
    panel.legend(frameon=False, loc="upper right")
    left_out = {
        row["standing"]: row["episodes"]
        for row in summary.by_standing.iter_rows(named=True)
        if row["standing"] in (UNCHANGED, NOT_EXAMINED) and row["episodes"]
    }
    _note(panel, "; ".join(f"{name}: {count:,}" for name, count in left_out.items()))


def _remaining(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Improvements in order, from zero, and the percentage of answers that improve by more than each."""
    ordered = np.sort(values)
    places = np.concatenate([[min(0.0, ordered[0])], ordered])
    return places, 100 * np.arange(len(ordered), -1, -1) / len(ordered)


def _draw_agreement(panel: Axes, summary: Summary) -> None:
    frame = summary.agreement
    low, high = 100 * frame["low"].to_numpy(), 100 * frame["high"].to_numpy()
    panel.bar(
        low, frame["episodes"].to_numpy(), high - low, align="edge", color=FILL, edgecolor=OBSERVED, linewidth=0.5
    )
    panel.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    panel.set_xlabel("Refits that agree that it helps (%)")
    panel.set_ylabel("Number of answers")
    _note(panel, f"{plural(summary.trust.refits, 'answer')}; all agree in {summary.trust.all_refits_agree:,}")


def _note(panel: Axes, text: str) -> None:
    panel.set_title(text, loc="left", fontsize=_NOTE_SIZE, color=QUIET, parse_math=False)
