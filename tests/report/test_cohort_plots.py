"""Figures of cohort runs: that they show the summary's numbers, and stay readable whatever the run."""

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from made_tables import budget, made_row, made_table, realistic_table
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from test_plots import overlaps

from ifonly.errors import InputError
from ifonly.report.cohort_plots import (
    plot_change_times,
    plot_improvement_by_budget,
    plot_improvement_by_group,
    plot_improvement_by_horizon,
    plot_improvement_distribution,
)
from ifonly.report.figure_style import SANS, SERIF, column_figure, one_panel
from ifonly.report.plots import save_figure
from ifonly.report.summary import RunSummary, summarize

PLOTS = [
    plot_improvement_by_budget,
    plot_improvement_distribution,
    plot_improvement_by_horizon,
    plot_improvement_by_group,
    plot_change_times,
]


def values_for(table: pl.DataFrame) -> pl.DataFrame:
    words = ["surgery, costs $5 or $6", "a ward with a name that does not end soon", None]
    random = np.random.default_rng(0)
    return table.select(
        "episode",
        age=pl.Series(random.normal(66, 12, table.height)),
        ward=pl.Series([words[n % 3] for n in range(table.height)]),
    )


def realistic(**settings: object) -> RunSummary:
    table = realistic_table(**settings)  # type: ignore[arg-type]
    return summarize(table, by=["age", "ward"], values=values_for(table))


def skewed(side: int) -> RunSummary:
    """Most improvements at one end: opposite to the inset, or below it."""
    random = np.random.default_rng(1)
    found = [share if side > 0 else 0.2 - share for share in random.gamma(1.5, 0.05, size=300)]
    rows = [made_row(n, clipped_outcome=-100 * (1 - share)) for n, share in enumerate(found)]
    return summarize(made_table(*rows), by="horizon")


def single() -> RunSummary:
    return summarize(
        made_table(made_row(0, frontier=[budget(0, -100.0, -100.0), budget(1, -90.0, -90.0)])), by="status"
    )


SUMMARIES: dict[str, Callable[[], RunSummary]] = {
    "proven": lambda: realistic(limited=0.0),
    "limited": lambda: realistic(limited=0.6, budgets=6),
    "many": lambda: realistic(episodes=3000, limited=0.01),
    "skewed left": lambda: skewed(1),
    "skewed right": lambda: skewed(-1),
    "one episode": single,
}


@cache
def summary_of(kind: str) -> RunSummary:
    return SUMMARIES[kind]()


def line(panel: Axes, number: int = 0) -> tuple[list[float], list[float]]:
    container = panel.containers[number]
    drawn = container.lines[0]  # type: ignore[attr-defined]
    return list(drawn.get_xdata()), list(drawn.get_ydata())


@pytest.mark.parametrize("kind", SUMMARIES)
@pytest.mark.parametrize("plot", PLOTS)
def test_every_figure_of_every_run_is_readable(plot: Callable[[RunSummary], Figure], kind: str) -> None:
    summary = summary_of(kind)
    if plot is plot_improvement_by_budget and summary.by_budget.is_empty():
        return
    figure = plot(summary)
    assert overlaps(figure) == []
    assert figure.axes[0].get_xlabel()
    assert figure.axes[0].get_ylabel()
    assert figure.get_figwidth() < 3.5  # one column


def test_budgets_are_drawn_with_their_intervals() -> None:
    summary = realistic(budgets=4)
    panel = plot_improvement_by_budget(summary).axes[0]
    budgets, means = line(panel)
    assert budgets == [0, 1, 2, 3, 4]
    assert means == pytest.approx([100 * mean for mean in summary.by_budget["mean"]])
    ends = panel.containers[0].lines[2][0].get_segments()  # type: ignore[attr-defined]
    for (low, high), frame in zip([(s[0][1], s[1][1]) for s in ends], summary.by_budget.to_dicts(), strict=True):
        assert (low, high) == pytest.approx((100 * frame["low"], 100 * frame["high"]))


def rooms(panel: Axes) -> list[tuple[float, float]]:
    """The grey bars: where they begin and end."""
    bars = [item for item in panel.collections if isinstance(item, LineCollection) and item.get_linewidth()[0] > 5]
    return [(segment[0][1], segment[1][1]) for bar in bars for segment in bar.get_segments()]


def test_room_up_to_the_bound_is_shown_only_where_there_is_some() -> None:
    proven, limited = realistic(limited=0.0), realistic(limited=0.5)
    assert rooms(plot_improvement_by_budget(proven).axes[0]) == []
    panel = plot_improvement_by_budget(limited).axes[0]
    ends = [(100 * row["mean"], 100 * row["upper_mean"]) for row in limited.by_budget.iter_rows(named=True)]
    assert np.allclose(rooms(panel), ends)
    counts = limited.counts
    assert panel.get_title(loc="left") == (
        f"{counts.answered} episodes; grey: up to the upper bound\n"
        f"{counts.limited} of {counts.answered} answers are lower bounds"
    )


@pytest.mark.parametrize(
    ("bound", "words"),
    [(None, "grey: no upper bound is known"), (1e6, "grey: up to the upper bound, open where higher")],
)
def test_an_unknown_or_far_bound_leaves_the_bracket_open_and_the_means_readable(
    bound: float | None, words: str
) -> None:
    rows = [made_row(n, status="node limit", upper_bound=bound) for n in range(3)]
    panel = plot_improvement_by_horizon(summarize(made_table(*rows))).axes[0]
    assert rooms(panel) == [(pytest.approx(10.0), panel.get_ylim()[1])]
    assert panel.get_ylim()[1] < 20
    assert words in panel.get_title(loc="left").replace("\n", "; ").split("; ")


def test_bars_that_end_nowhere_are_not_said_to_end_at_a_bound() -> None:
    rows = [made_row(n, status="node limit", upper_bound=bound, horizon=5 + n) for n, bound in enumerate((-88.0, None))]
    panel = plot_improvement_by_horizon(summarize(made_table(*rows))).axes[0]
    assert rooms(panel) == [(pytest.approx(10.0), pytest.approx(12.0)), (pytest.approx(10.0), panel.get_ylim()[1])]
    assert "grey: up to the upper bound, open where unknown" in panel.get_title(loc="left")


@pytest.mark.parametrize("plot", PLOTS)
def test_figures_of_unfinished_runs_say_so(plot: Callable[[RunSummary], Figure]) -> None:
    table = realistic_table(60)
    partial, whole = (summarize(table, by="horizon", expected=episodes) for episodes in (1200, 60))
    figure = plot(partial)
    title = figure.axes[0].get_title(loc="left").replace("\n", " ")
    assert title.startswith("unfinished: 60 of 1,200 episodes, longest first ")
    assert overlaps(figure) == []
    assert "finished" not in plot(whole).axes[0].get_title(loc="left")


def test_single_episodes_have_no_interval() -> None:
    summary = summarize(made_table(made_row(0), made_row(1, horizon=7), made_row(2, horizon=7)), by="horizon")
    for plot in (plot_improvement_by_horizon, plot_improvement_by_group):
        panel = plot(summary).axes[0]
        ends = panel.containers[0].lines[2][0].get_segments()  # type: ignore[attr-defined]
        assert [bool(len(segment) and np.isfinite(segment).all()) for segment in ends] == [False, True]


@pytest.mark.parametrize("plot", [plot_improvement_by_horizon, plot_improvement_by_group])
def test_intervals_of_a_few_end_where_improvements_do(plot: Callable[[RunSummary], Figure]) -> None:
    outcomes = (-20.0, -90.0, -60.0, -70.0)  # of 100: improvements of 80, 10, 40 and 30 %
    rows = [made_row(n, clipped_outcome=outcome, horizon=5 + n // 2) for n, outcome in enumerate(outcomes)]
    summary = summarize(made_table(*rows), by="horizon")
    assert summary.by_horizon["high"][0] > 1, "two episodes tell little of a mean"
    panel = plot(summary).axes[0]
    sideways = plot is plot_improvement_by_group
    drawn = panel.containers[0].lines[2][0].get_segments()  # type: ignore[attr-defined]
    ends = [segment[:, 0 if sideways else 1].tolist() for segment in drawn]
    assert ends[0] == pytest.approx([10.0, 80.0])
    assert max(panel.get_xlim() if sideways else panel.get_ylim()) < 90
    assert "intervals end at the smallest" in panel.get_title(loc="left").replace("\n", " ")


def test_horizons_are_drawn() -> None:
    summary = realistic()
    horizons, means = line(plot_improvement_by_horizon(summary).axes[0])
    assert horizons == summary.by_horizon["horizon"].to_list()
    assert means == pytest.approx([100 * mean for mean in summary.by_horizon["mean"]])


def test_the_distribution_has_its_median_and_its_tail() -> None:
    summary = realistic(episodes=600)
    panel = plot_improvement_distribution(summary).axes[0]
    heights = [bar.get_height() for bar in panel.patches]  # type: ignore[attr-defined]
    assert heights == summary.histogram["episodes"].to_list()
    median, threshold = panel.lines[:2]
    assert median.get_xdata()[0] == pytest.approx(100 * (summary.improvement.median or math.nan))
    assert (median.get_linestyle(), threshold.get_xdata()[0]) == ("--", 15.0)
    (inset,) = panel.child_axes
    assert sum(bar.get_height() for bar in inset.patches) == summary.cases.height > 0  # type: ignore[attr-defined]
    assert inset.get_title() == f"$\\geq$ 15 %: {summary.cases.height} cases"


@pytest.mark.parametrize("kind", ["proven", "skewed left", "skewed right"])
def test_the_inset_covers_no_bar(kind: str) -> None:
    figure = plot_improvement_distribution(summary_of(kind))
    figure.draw_without_rendering()
    panel = figure.axes[0]
    box = panel.child_axes[0].get_tightbbox()
    assert box is not None
    assert not [bar for bar in panel.patches if bar.get_window_extent().overlaps(box)]
    assert not [line for line in panel.lines if line.get_window_extent().overlaps(box)]


@pytest.mark.parametrize("outcome", [-90.0, -80.0])
def test_without_a_tail_there_is_no_inset(outcome: float) -> None:
    """None above the threshold, or most."""
    table = made_table(made_row(0), made_row(1, clipped_outcome=outcome), made_row(2, clipped_outcome=outcome))
    assert plot_improvement_distribution(summarize(table)).axes[0].child_axes == []


def test_groups_are_named_with_their_sizes() -> None:
    summary = realistic()
    panel = plot_improvement_by_group(summary, "ward").axes[0]
    frame = summary.by_group.filter(pl.col("by") == "ward")
    labels = [label.get_text() for label in panel.get_yticklabels()]
    assert [label.split("(n = ")[1] for label in labels] == [f"{count})" for count in frame["episodes"]]
    assert labels[-1].startswith("unknown")
    assert line(panel)[0] == pytest.approx([100 * mean for mean in frame["mean"]])
    assert plot_improvement_by_group(summary).axes[0].get_ylabel() == "age"


def test_times_of_changes_are_shares_of_those_who_reach_them() -> None:
    summary = realistic()
    bars = plot_change_times(summary).axes[0].patches
    shares = [bar.get_height() for bar in bars]  # type: ignore[attr-defined]
    assert shares == pytest.approx([100 * share for share in summary.change_times["share"]])


def test_improvements_below_zero_are_not_cut_off() -> None:
    rows = [made_row(n, clipped_outcome=-100.0 - 5 * n, horizon=5 + n) for n in range(3)]
    summary = summarize(made_table(*rows))
    panel = plot_improvement_by_horizon(summary).axes[0]
    assert panel.get_ylim()[0] < -10


def test_what_cannot_be_drawn_says_why() -> None:
    zero = summarize(made_table(made_row(0, observed_clipped_outcome=0.0)), by="status")
    with pytest.raises(InputError, match="no episode has a relative improvement"):
        plot_improvement_distribution(zero)
    with pytest.raises(InputError, match="no episode has a relative improvement"):
        plot_improvement_by_horizon(zero)
    with pytest.raises(InputError, match="no episode has a relative improvement"):
        plot_improvement_by_group(zero)
    with pytest.raises(InputError, match="branch and bound"):
        plot_improvement_by_budget(zero)
    with pytest.raises(InputError, match=r"no groups by 'age'; choose from \['status'\]"):
        plot_improvement_by_group(zero, "age")
    with pytest.raises(InputError, match="name a feature with `by`"):
        plot_improvement_by_group(summarize(made_table(made_row(0))))


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_files_are_the_same_twice_and_serif(tmp_path: Path, ending: str) -> None:
    for name in ("one", "two"):
        save_figure(plot_improvement_by_budget(realistic(episodes=50)), tmp_path / f"{name}.{ending}")
    assert (tmp_path / f"one.{ending}").read_bytes() == (tmp_path / f"two.{ending}").read_bytes()
    if ending == "pdf":
        content = (tmp_path / "one.pdf").read_bytes()
        assert b"STIXGeneral" in content
        assert b"DejaVuSans" not in content


def test_notes_fit_beside_long_names_of_groups() -> None:
    table = realistic_table(60, limited=0.5).with_columns(
        upper_bound=pl.when(pl.int_range(pl.len()) % 3 == 0).then("upper_bound")
    )
    summary = summarize(table, by="ward", values=values_for(table), expected=16_000)
    figure = plot_improvement_by_group(summary)
    assert "open where unknown" in figure.axes[0].get_title(loc="left").replace("\n", " ")
    assert overlaps(figure) == []


def test_figures_of_pages_have_the_letters_of_pages() -> None:
    with one_panel() as (_, on_page):
        of_page = on_page.set_title("x").get_fontfamily()
    with column_figure() as (_, on_paper):
        of_paper = on_paper.set_title("x").get_fontfamily()
    assert (of_page, of_paper) == (SANS, SERIF)
