"""Figures of a model check: likelihood, noise, intervals, courses several steps ahead, and where the model is off."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ifonly.evidence.check.figures import FeatureFigures, PartFigures
from ifonly.evidence.check.model_check import ModelCheck
from ifonly.report.figure_style import (
    COUNTERFACTUAL,
    FILL,
    OBSERVED,
    PAGE_WIDTH,
    QUIET,
    SANS,
    TITLE_LENGTH,
    draw_hidden,
    one_panel,
    small_panels,
)
from ifonly.text.catalogue import say
from ifonly.text.numbers import shortened

MOST_PARTS = 40
MARKERS = {"50": "o", "80": "s", "95": "^"}


def check_figures(check: ModelCheck) -> dict[str, Figure]:
    """Every figure that the check has something for, by name."""
    figures = check.figures
    drawings: dict[str, tuple[bool, Callable[[ModelCheck], Figure]]] = {
        "likelihood": (bool(figures.gains), plot_likelihood),
        "noise": (bool(figures.features), plot_noise),
        "coverage": (any(feature.coverage for feature in figures.features), plot_coverage),
        "ahead": (any(horizon.features for horizon in figures.ahead), plot_ahead),
        "parts": (any(part.features for part in figures.parts), plot_parts),
    }
    return {name: draw(check) for name, (present, draw) in drawings.items() if present}


def plot_likelihood(check: ModelCheck) -> Figure:
    """Log-likelihood above that of each baseline, with 95 % intervals by subject."""
    gains = check.figures.gains
    with one_panel(0.62 * PAGE_WIDTH, 0.9 + 0.4 * len(gains)) as (figure, panel):
        for row, gain in enumerate(gains.values()):
            ends = [[0.0], [0.0]]
            if gain.low is not None and gain.high is not None:
                ends = [[gain.value - gain.low], [gain.high - gain.value]]
            panel.errorbar(gain.value, row, xerr=ends, fmt="o", color=COUNTERFACTUAL, ecolor=OBSERVED, capsize=3)
        panel.axvline(0, color=QUIET, linewidth=0.8, linestyle=":")
        panel.set_yticks(range(len(gains)), [say(f"figure.over.{name}") for name in gains])
        panel.set_ylim(len(gains) - 0.4, -0.6)
        panel.set_xlabel(say("figure.log-likelihood"))
    return figure


def plot_noise(check: ModelCheck) -> Figure:
    """For every feature a histogram of its noise's ranks within the prior: flat where the model is right."""
    features = check.figures.features
    with small_panels(len(features), 1.5, air=0.6) as (figure, panels):
        for panel, feature in zip(panels, features, strict=False):
            _draw_ranks(panel, feature)
        figure.supxlabel(say("figure.rank of noise"), fontsize=8, fontfamily=SANS)
    return figure


def plot_coverage(check: ModelCheck) -> Figure:
    """Share of recorded values inside the predictive intervals, one step ahead; dashed: what they promise."""
    features = [feature for feature in check.figures.features if feature.coverage]
    with one_panel(PAGE_WIDTH, 2.8) as (figure, panel):
        for level, marker in MARKERS.items():
            shares = [feature.coverage[level] for feature in features if feature.coverage]
            panel.axhline(int(level), color=QUIET, linewidth=0.8, linestyle="--")
            panel.errorbar(
                range(len(shares)),
                [100 * share.value for share in shares],
                yerr=[100 * (share.value - (share.value if share.low is None else share.low)) for share in shares],
                fmt=marker,
                color=COUNTERFACTUAL,
                ecolor=OBSERVED,
                capsize=2,
                label=f"{level} %",
            )
        panel.set_xticks(range(len(features)), [feature.name for feature in features], parse_math=False, rotation=30)
        panel.set_ylabel(say("figure.values inside"))
        panel.set_ylim(0, 102)
        figure.legend(loc="outside upper center", ncols=len(MARKERS), frameon=False)
    return figure


def plot_ahead(check: ModelCheck) -> Figure:
    """For every feature the error of the model's median course (solid) and of persistence (dashed), by steps ahead."""
    horizons = [horizon for horizon in check.figures.ahead if horizon.features]
    labels = {feature.name: feature.label for feature in check.figures.features}
    with small_panels(len(labels), 1.6, air=0.6) as (figure, panels):
        for panel, (name, label) in zip(panels, labels.items(), strict=False):
            known = [(one.steps, item) for one in horizons for item in one.features if item.name == name]
            steps = [ahead for ahead, _ in known]
            ours, theirs = [item.error for _, item in known], [item.persistence for _, item in known]
            panel.plot(steps, theirs, "s--", color=OBSERVED, label=say("figure.persistence"))
            panel.plot(steps, ours, "o-", color=COUNTERFACTUAL, label=say("figure.model"))
            panel.set_title(shortened(label, TITLE_LENGTH), fontsize=8.5, parse_math=False)
            panel.set_ylim(bottom=0)
            panel.set_xticks(steps)
            panel.yaxis.set_major_locator(MaxNLocator(nbins=4))
        figure.supxlabel(say("figure.steps ahead"), fontsize=8, fontfamily=SANS)
        figure.supylabel(say("figure.error"), fontsize=8, fontfamily=SANS)
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=2, frameon=False)
    return figure


def plot_parts(check: ModelCheck) -> Figure:
    """Mean noise of every feature after each action and in each group, in hundredths of the prior's deviation."""
    parts = sorted((part for part in check.figures.parts if part.features), key=_worst_bias, reverse=True)[:MOST_PARTS]
    names = [item.name for item in check.figures.features]
    table = np.full((len(parts), len(names)), np.nan)
    for row, part in enumerate(parts):
        for feature in part.features:
            table[row, names.index(feature.name)] = feature.bias.value
    with one_panel(PAGE_WIDTH, 1.2 + 0.22 * len(parts)) as (figure, panel):
        panel.imshow(table, cmap="PuOr", vmin=-1, vmax=1, aspect="auto")
        for (row, column), bias in np.ndenumerate(table):
            if np.isnan(bias):
                continue  # hardly measured here
            colour = "white" if abs(bias) > 0.6 else "black"
            panel.text(column, row, f"{100 * bias:+.0f}", ha="center", va="center", fontsize=6.5, color=colour)
        panel.set_xticks(range(len(names)), names, parse_math=False)
        panel.tick_params(axis="x", labelrotation=30)
        panel.set_yticks(
            range(len(parts)), [shortened(_name(part), 52) for part in parts], parse_math=False, fontsize=6.5
        )
        panel.tick_params(length=0)
        panel.set_xlabel(say("figure.mean noise"))
    return figure


def _worst_bias(part: PartFigures) -> float:
    return max(feature.bias.from_zero() for feature in part.features)


def _name(part: PartFigures) -> str:
    return part.name if part.grouping == "action" else f"{part.grouping} {part.name}"


def _draw_ranks(panel: Axes, feature: FeatureFigures) -> None:
    """Bars relative to what a right model shows; a cross where too few subjects are counted."""
    count = len(feature.ranks)
    places = (np.arange(count) + 0.5) / count
    heights = np.array([0.0 if share is None else share * count for share in feature.ranks])
    panel.bar(places, heights, 1 / count, color=FILL, edgecolor=OBSERVED, linewidth=0.4)
    draw_hidden(panel, places, feature.ranks)
    panel.axhline(1, color="black", linewidth=0.9, linestyle="--")
    panel.set_title(shortened(feature.label, TITLE_LENGTH), fontsize=8.5, parse_math=False)
    panel.set_xlim(0, 1)
    panel.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    panel.set_yticks([])
    panel.set_ylim(0, max(2.0, 1.05 * heights.max()))
