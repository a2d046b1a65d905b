"""Answers as figures to look into: courses, budgets, runs, values under the pointer. For notebooks and browsers."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from ifonly.data.episode import IntArray
from ifonly.errors import InputError
from ifonly.report.figure_style import COUNTERFACTUAL, GUIDE, OBSERVED, QUIET
from ifonly.report.plots import axis_styles, rewarded_feature, step_times
from ifonly.report.summary import summarize
from ifonly.report.tables import changes_in_words
from ifonly.result import Budget, Result
from ifonly.runs import Run
from ifonly.text.catalogue import say
from ifonly.text.numbers import outcomes, percent
from ifonly.text.results import figure_title, statement

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COURSE_HEIGHT, STRIP_HEIGHT, AROUND = 330, 130, 170
"""Pixels."""
MOST_WORDS = 12
"""Actions that are no doses stand by their labels beside the strip, if there are no more."""


def interactive_episode(result: Result, feature: str | None = None) -> Figure:
    """Observed (solid) against counterfactual (dashed) values over time, as a figure of plotly.

    A menu chooses among the dynamic features; `feature` is shown first, by default the one that the reward speaks of.
    Below, one strip per dose axis has the doses as recorded and as changed (of actions without doses, the actions);
    dotted lines stand where something changes. A notebook shows what comes back, and
    `figure.write_html(path, include_plotlyjs=True)` makes a page that fetches nothing. It holds the episode's values:
    treat it like the data.
    """
    from plotly.subplots import make_subplots

    schema = result.schema
    shown = schema.dynamic_index(feature or rewarded_feature(result))
    strips = list(_strips(result))
    heights = [COURSE_HEIGHT, *[STRIP_HEIGHT] * len(strips)]
    figure: Figure = make_subplots(
        rows=len(heights), cols=1, shared_xaxes=True, row_heights=heights, vertical_spacing=0.04
    )
    for column in range(len(schema.dynamic)):
        _add_course(figure, result, column, visible=column == shown)
    for row, (name, colour, observed, found, ticks) in enumerate(strips, 2):
        _add_strip(figure, result, row, colour, observed, found)
        figure.update_yaxes(title_text=name, row=row, col=1, **ticks)
    for change in result.changes:
        figure.add_vline(change.step * schema.step_length, line={"color": GUIDE, "dash": "dot", "width": 1})
    figure.update_layout(
        title={"text": f"{escape(figure_title(result))}<br><sub>{escape(statement(result))}</sub>"},
        template="plotly_white",
        height=sum(heights) + AROUND,
        hovermode="x unified",
        legend={"orientation": "h", "y": -0.12},
        updatemenus=[_menu(result, shown, len(strips))],
        yaxis={"title": {"text": escape(schema.dynamic[shown].label)}},
    )
    only_steps = schema.step_unit == "step" and schema.step_length == 1
    name = "figure.time.step" if only_steps else "figure.time"
    figure.update_xaxes(title_text=escape(say(name, unit=schema.step_unit)), row=len(heights), col=1)
    return figure


def interactive_budgets(result: Result) -> Figure:
    """The best outcome for every number of changes allowed, as a figure of plotly; what changes is under the pointer.

    A grey bar goes up to the upper bound where nothing is proven. It holds the episode's outcomes and treatments.
    """
    from plotly.graph_objects import Figure

    if not result.frontier:
        raise InputError("this result has no frontier: its solver answers one budget only; use BranchAndBound.")
    observed = result.shown[0]
    points = [
        (budget, result.query.reward.show(budget.clipped_outcome).value, _room(result, budget))
        for budget in result.frontier
        if budget.outcome is not None and budget.clipped_outcome is not None
    ]
    rooms = [room for _, _, room in points]
    figure = Figure()
    figure.add_scatter(
        x=[budget.max_changes for budget, _, _ in points], y=[value for _, value, _ in points],
        mode="lines+markers", name=say("figure.counterfactual"), line={"color": COUNTERFACTUAL},
        customdata=[_budget_words(result, budget, value) for budget, value, _ in points],
        hovertemplate="%{customdata}<extra></extra>",
        error_y=_bars(*([rooms, None] if observed.higher_is_better else [None, rooms])),
    )  # fmt: skip
    figure.add_hline(observed.value, line={"color": OBSERVED, "dash": "dot"})
    figure.update_layout(
        title={"text": f"{escape(figure_title(result))}<br><sub>{escape(statement(result))}</sub>"},
        template="plotly_white",
        xaxis={"title": {"text": say("figure.most changes")}, "dtick": 1},
        yaxis={"title": {"text": escape(observed.label)}},
    )
    return figure


def interactive_run(run: Run) -> Figure:
    """By how much each episode of a run could have been better, best first, as a figure of plotly.

    Who, from which outcome to which, with how many changes and how far to trust it are under the pointer; a grey bar
    goes up to the upper bound where an answer is not proven. Improvements are relative to the observed outcome, as in
    the run's summary. It names episodes: treat it like the data.
    """
    from plotly.graph_objects import Figure

    summary = summarize(run.table(), run.query, schema=run.provenance.schema)
    rows = (
        summary.episodes.drop_nulls("improvement").sort("improvement", descending=True, maintain_order=True).to_dicts()
    )
    figure = Figure()
    for verdict in dict.fromkeys(row["verdict"] for row in rows):
        chosen = [(place, row) for place, row in enumerate(rows, 1) if row["verdict"] == verdict]
        figure.add_scatter(
            x=[place for place, _ in chosen], y=[100 * row["improvement"] for _, row in chosen], mode="markers",
            name=verdict, customdata=[_episode_words(row) for _, row in chosen],
            hovertemplate="%{customdata}<extra></extra>",
            error_y=_bars(
                [100 * max(0.0, (row["upper_improvement"] or 0.0) - row["improvement"]) for _, row in chosen], None
            ),
        )  # fmt: skip
    said = "<br>".join(escape(line) for line in textwrap.wrap(summary.statement, 110))
    figure.update_layout(
        title={"text": f"{escape(summary.outcomes.label)}<br><sub>{said}</sub>"},
        template="plotly_white",
        legend={"title": {"text": say("figure.verdict")}},
        xaxis={"title": {"text": say("figure.episodes best first")}},
        yaxis={"title": {"text": say("figure.improvement")}},
    )
    return figure


def _bars(up: list[float] | None, down: list[float] | None) -> dict[str, Any]:
    """Grey bars from points, upwards or downwards."""
    none = [0.0] * len(up or down or ())
    return {"type": "data", "symmetric": False, "array": up or none, "arrayminus": down or none, "color": QUIET}


def _room(result: Result, budget: Budget) -> float:
    """How much better a budget's outcome could be; nothing where it is proven, or no bound is known."""
    assert budget.outcome is not None
    room = budget.upper_bound - budget.outcome
    return room if result.certificate.tolerance < room < math.inf else 0.0


def _budget_words(result: Result, budget: Budget, value: float) -> str:
    assert budget.actions is not None
    pair = " → ".join(outcomes(result.shown[0].value, value))
    changes = [f"step {step}: {words}" for step, words in changes_in_words(result, budget.actions)]
    return "<br>".join([pair, *map(escape, changes or [say("table.no change")])])


def _episode_words(row: dict[str, Any]) -> str:
    pair = f"{' → '.join(outcomes(row['observed'], row['counterfactual']))} ({percent(row['improvement'])})"
    count = row["changes"]
    changes = say("count.change", count=count, number=count)
    return "<br>".join([escape(row["episode"]), pair, changes, row["status"]])


def _add_course(figure: Figure, result: Result, column: int, *, visible: bool) -> None:
    """The two courses of a feature; those of others wait until the menu asks for them."""
    courses = (
        ("figure.observed", OBSERVED, "solid", result.observed_states),
        ("figure.counterfactual", COUNTERFACTUAL, "dash", result.states),
    )
    for name, colour, dash, states in courses:
        figure.add_scatter(
            x=step_times(result), y=states[:, column], name=say(name), mode="lines+markers", visible=visible,
            line={"color": colour, "dash": dash}, row=1, col=1,
        )  # fmt: skip


def _strips(result: Result) -> Iterator[tuple[str, str, Any, Any, dict[str, Any]]]:
    """Name (escaped), colour, values as recorded and as changed, and ticks: of each dose axis, or of the actions."""
    space = result.schema.actions
    for place, (axis, _, colour) in enumerate(axis_styles(space.axes)):
        doses = np.array(space.vectors)[:, place]
        name = f"{escape(axis.name)}<br>({escape(axis.unit)})" if axis.unit else escape(axis.name)
        yield name, colour, doses[result.observed_actions], doses[result.actions], {}
    if not space.axes:
        numbers = np.arange(len(space))
        labels = [escape(label) for label in space.labels]
        ticks = {"tickvals": numbers, "ticktext": labels} if len(space) <= MOST_WORDS else {}
        yield say("figure.action"), COUNTERFACTUAL, result.observed_actions, result.actions, ticks


def _add_strip(figure: Figure, result: Result, row: int, colour: str, observed: IntArray, found: IntArray) -> None:
    for name, values, shade, dash in (
        ("figure.observed", observed, OBSERVED, "solid"),
        ("figure.counterfactual", found, colour, "dash"),
    ):
        figure.add_scatter(
            x=step_times(result), y=values, name=say(name), mode="lines", showlegend=False,
            line={"color": shade, "dash": dash, "shape": "hv"}, row=row, col=1,
        )  # fmt: skip


def _menu(result: Result, shown: int, strips: int) -> dict[str, Any]:
    """Buttons that show one feature's two courses and hide the others'; the strips below always stay."""
    features = result.schema.dynamic
    buttons = [
        {
            "label": escape(feature.name),
            "method": "update",
            "args": [
                {"visible": [one == column for one in range(len(features)) for _ in range(2)] + [True] * 2 * strips},
                {"yaxis.title.text": escape(feature.label)},
            ],
        }
        for column, feature in enumerate(features)
    ]
    return {"buttons": buttons, "active": shown, "x": 1.0, "xanchor": "right", "y": 1.08, "yanchor": "bottom"}
