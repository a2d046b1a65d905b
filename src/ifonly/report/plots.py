"""Figures: an episode's observed against its counterfactual course, and a fit's loss.

Figures are plain matplotlib `Figure` objects, without pyplot's global state: show them in a notebook, or save them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator

from ifonly.data.episode import FloatArray
from ifonly.data.schema import Axis, Schema
from ifonly.errors import InputError
from ifonly.files import atomic_file
from ifonly.result import Change, Result

if TYPE_CHECKING:
    from ifonly.models.fit import FitReport

FORMATS = ("png", "pdf", "svg")
OBSERVED = "#333333"
COUNTERFACTUAL = "#0072b2"
QUIET = "#666666"
GUIDE = "#c8c8c8"
AXIS_COLOURS = ("#d55e00", "#007a5a", "#8a5aa8", "#8c6d00")
"""One per dose axis; readable for the colour-blind, and never the only distinction."""

_WIDTH = 7.2
_COURSE_HEIGHT = 3.3
_DOSE_HEIGHT = 0.72
_WORDS_HEIGHT = 0.27
_ON_WHITE: Any = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}


def plot_episode(result: Result, feature: str | None = None) -> Figure:
    """Observed (solid) against counterfactual (dashed) values of one dynamic feature over time, as the paper's fig. 3c.

    Below, one strip per dose axis shows at which steps its dose changes: an arrow from the observed dose to the
    counterfactual one, up for more, down for less. Actions without dose axes are named in words. By default the
    feature is the one that the reward speaks of.
    """
    schema = result.schema
    column = schema.dynamic_index(feature or _rewarded_feature(result))
    heights = [_COURSE_HEIGHT, *_strip_heights(result)]
    figure = Figure(figsize=(_width(len(result.actions)), sum(heights) + 1.2), dpi=150, layout="constrained")
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    _draw_course(panels[0], result, column)
    if len(panels) > 1 and schema.actions.axes:
        for panel, (axis, letter, colour) in zip(panels[1:], _axis_styles(schema.actions.axes), strict=True):
            _draw_doses(panel, result, axis, letter, colour)
    elif len(panels) > 1:
        _draw_words(panels[1], result)
    for panel in panels:
        for change in result.changes:
            panel.axvline(change.step * schema.step_length, color=GUIDE, linewidth=0.8, linestyle=":", zorder=0)
    _label_time(panels[-1], schema, len(result.actions))
    return figure


def plot_fit(report: FitReport) -> Figure:
    """Training and validation loss per epoch, with the epoch marked whose weights were kept."""
    figure = Figure(figsize=(_WIDTH, 3.6), dpi=150, layout="constrained")
    panel = figure.subplots()
    epochs = np.arange(1, len(report.training_loss) + 1)
    marker = "o" if len(epochs) == 1 else None
    panel.plot(epochs, report.training_loss, color=OBSERVED, label="training", marker=marker)
    kept = report.kept_epoch
    if report.validation_loss:
        panel.plot(epochs, report.validation_loss, "--", color=COUNTERFACTUAL, label="validation", marker=marker)
        panel.plot(
            kept,
            report.validation_loss[kept - 1],
            "o",
            color=COUNTERFACTUAL,
            label=f"kept: epoch {kept}, loss {report.validation_loss[kept - 1]:.4g}",
        )
        panel.axvline(kept, color=GUIDE, linewidth=0.8, linestyle=":", zorder=0)
    panel.set_xlabel("epoch")
    panel.set_ylabel("negative log-likelihood\nper transition")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.legend(frameon=False)
    _tidy(panel)
    return figure


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG, PDF or SVG, by the name's ending; the file appears only when it is complete."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InputError(f"figure {path}: the name must end in one of {['.' + name for name in FORMATS]}.")
    # No date and no random names: the same figure is the same file.
    metadata: dict[str, Any] = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}[kind]
    with mpl.rc_context({"svg.hashsalt": "ifonly"}), atomic_file(path) as scratch:
        figure.savefig(scratch, format=kind, metadata=metadata)


def _draw_course(panel: Axes, result: Result, column: int) -> None:
    feature = result.schema.dynamic[column]
    times = _times(result)
    observed, found = result.observed_states[:, column], result.states[:, column]
    panel.fill_between(times, observed, found, color=COUNTERFACTUAL, alpha=0.08, linewidth=0)
    panel.plot(times, observed, "-o", color=OBSERVED, markersize=3.5, linewidth=1.6, label="observed")
    panel.plot(
        times,
        found,
        "--o",
        color=COUNTERFACTUAL,
        markersize=3.5,
        markerfacecolor="white",
        linewidth=1.6,
        label="counterfactual",
    )
    changed = [change.step for change in result.changes]
    if changed:
        panel.plot(
            times[changed],
            found[changed],
            "D",
            color=COUNTERFACTUAL,
            markersize=6.5,
            label="action changed",
        )
    panel.set_ylabel(feature.label, parse_math=False)
    panel.margins(y=0.1)
    panel.legend(frameon=False, fontsize=9, ncols=3, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2)
    panel.annotate(
        result.statement,
        xy=(0, 1),
        xycoords="axes fraction",
        xytext=(0, 23),
        textcoords="offset points",
        fontsize=9,
        color=QUIET,
    )
    panel.set_title(_headline(result), loc="left", fontsize=11, fontweight="bold", pad=40, parse_math=False)
    _tidy(panel)


def _draw_doses(panel: Axes, result: Result, axis: Axis, letter: str, colour: str) -> None:
    """Arrows from the observed to the counterfactual dose; the doses stand at the arrow's two ends."""
    position = result.schema.actions.axes.index(axis)
    panel.set_ylim(-1, 1)
    for change, before, after in _dose_changes(result, position):
        time = change.step * result.schema.step_length
        up = 1 if after > before else -1
        panel.annotate(
            "",
            xy=(time, 0.45 * up),
            xytext=(time, -0.45 * up),
            arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2.2, "mutation_scale": 13, "shrinkA": 0},
        )
        for dose, end, shade in ((after, up, "black"), (before, -up, QUIET)):
            panel.text(
                time,
                0.55 * end,
                f"{dose:g}",
                ha="center",
                va="bottom" if end > 0 else "top",
                fontsize=8,
                color=shade,
                bbox=_ON_WHITE,
            )
        panel.annotate(
            letter,
            xy=(time, 0),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            fontweight="bold",
            color=colour,
        )
    unit = f"\n({axis.unit})" if axis.unit else ""
    _label_strip(panel, f"{letter}: {axis.name}{unit}", colour)


def _draw_words(panel: Axes, result: Result) -> None:
    """One line per change: a marker at its step, and its words beside it on the roomier side."""
    count = len(result.changes)
    panel.set_ylim(count - 0.4, -0.6)
    middle = (len(result.actions) - 1) / 2
    for row, change in enumerate(result.changes):
        time = change.step * result.schema.step_length
        panel.plot(time, row, "D", color=AXIS_COLOURS[0], markersize=6)
        right = change.step <= middle
        panel.annotate(
            _shortened(change.words.replace("->", "→"), 56),
            xy=(time, row),
            xytext=(8 if right else -8, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=9,
            bbox=_ON_WHITE,
            parse_math=False,
        )
    _label_strip(panel, "action", OBSERVED)


def _label_strip(panel: Axes, label: str, colour: str) -> None:
    panel.set_yticks([])
    panel.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9, color=colour, parse_math=False)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    panel.spines["bottom"].set_color(GUIDE)
    panel.tick_params(length=0)


def _strip_heights(result: Result) -> list[float]:
    if not result.changes:
        return []
    if result.schema.actions.axes:
        return [_DOSE_HEIGHT] * len(result.schema.actions.axes)
    return [_WORDS_HEIGHT * len(result.changes) + 0.1]


def _dose_changes(result: Result, position: int) -> Iterator[tuple[Change, float, float]]:
    vectors = result.schema.actions.vectors
    for change in result.changes:
        before, after = vectors[change.observed][position], vectors[change.counterfactual][position]
        if before != after:
            yield change, before, after


def _axis_styles(axes: Sequence[Axis]) -> Iterator[tuple[Axis, str, str]]:
    """Each dose axis with its letter - its initial, numbered where two share it - and its colour."""
    initials = [axis.name[:1].upper() for axis in axes]
    for number, (axis, initial) in enumerate(zip(axes, initials, strict=True)):
        letter = initial if initials.count(initial) == 1 else f"{initial}{initials[: number + 1].count(initial)}"
        yield axis, letter, AXIS_COLOURS[number % len(AXIS_COLOURS)]


def _rewarded_feature(result: Result) -> str:
    names = [feature.name for feature in result.schema.dynamic]
    if result.shown[0].feature in names:
        return result.shown[0].feature
    return next((name for name in _features_in(result.reward) if name in names), names[0])


def _features_in(reward: Mapping[str, Any]) -> Iterator[str]:
    """The features that a reward's description names, those of its parts included."""
    yield from reward.get("weights", ())
    for part in [*reward.get("parts", ()), *reward.get("hinges", ())]:
        yield from _features_in(part)


def _headline(result: Result) -> str:
    observed, found = result.shown
    count = len(result.changes)
    name = _shortened(result.episode_id, 30)
    if count == 0:
        return f"{name}: {found.label} {observed.value:.1f}, no change"
    relative = f" ({(found.value - observed.value) / abs(observed.value):+.1%})" if observed.value else ""
    changes = f"{count} change{'' if count == 1 else 's'}"
    return f"{name}: {found.label} {observed.value:.1f} → {found.value:.1f}{relative}, {changes}"


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 8].rstrip()}…{text[-7:].lstrip()}"


def _width(steps: int) -> float:
    """Wide enough that doses changed at neighbouring steps do not touch, within reason."""
    return min(max(_WIDTH, 1.8 + 0.42 * steps), 16.0)


def _times(result: Result) -> FloatArray:
    return np.array([step * result.schema.step_length for step in range(len(result.actions))], dtype=np.float64)


def _label_time(panel: Axes, schema: Schema, steps: int) -> None:
    """Ticks at steps, at most a dozen; in the schema's unit of time."""
    panel.xaxis.set_major_locator(MultipleLocator(schema.step_length * math.ceil(steps / 12)))
    panel.set_xlabel("step" if schema.step_unit == "step" and schema.step_length == 1 else f"time ({schema.step_unit})")
    panel.tick_params(axis="x", length=3)
    panel.margins(x=0.04)


def _tidy(panel: Axes) -> None:
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
