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
from ifonly.report.figure_style import AXIS_COLOURS, COUNTERFACTUAL, GUIDE, OBSERVED, QUIET
from ifonly.result import Change, Result
from ifonly.text.catalogue import say
from ifonly.text.numbers import shortened_middle
from ifonly.text.results import figure_title, statement

if TYPE_CHECKING:
    from ifonly.models.fit import FitReport

FORMATS = ("png", "pdf", "svg")
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
    column = schema.dynamic_index(feature or rewarded_feature(result))
    heights = [_COURSE_HEIGHT, *_strip_heights(result)]
    figure = Figure(figsize=(_width(len(result.actions)), sum(heights) + 1.2), dpi=150, layout="constrained")
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    _draw_course(panels[0], result, column)
    if len(panels) > 1 and schema.actions.axes:
        for panel, (axis, letter, colour) in zip(panels[1:], axis_styles(schema.actions.axes), strict=True):
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
    panel.plot(epochs, report.training_loss, color=OBSERVED, label=say("figure.training"), marker=marker)
    kept = report.kept_epoch
    if report.validation_loss:
        panel.plot(
            epochs, report.validation_loss, "--", color=COUNTERFACTUAL, label=say("figure.validation"), marker=marker
        )
        loss = report.validation_loss[kept - 1]
        panel.plot(kept, loss, "o", color=COUNTERFACTUAL, label=say("figure.kept", epoch=kept, loss=f"{loss:.4g}"))
        panel.axvline(kept, color=GUIDE, linewidth=0.8, linestyle=":", zorder=0)
    panel.set_xlabel(say("figure.epoch"))
    panel.set_ylabel(say("figure.loss"))
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.legend(frameon=False)
    panel.spines[["top", "right"]].set_visible(False)
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
    times = step_times(result)
    observed, found = result.observed_states[:, column], result.states[:, column]
    panel.fill_between(times, observed, found, color=COUNTERFACTUAL, alpha=0.08, linewidth=0)
    style: Any = {"markersize": 3.5, "linewidth": 1.6}
    panel.plot(times, observed, "-o", color=OBSERVED, label=say("figure.observed"), **style)
    panel.plot(
        times, found, "--o", color=COUNTERFACTUAL, markerfacecolor="white", label=say("figure.counterfactual"), **style
    )
    changed = [change.step for change in result.changes]
    if changed:
        panel.plot(
            times[changed],
            found[changed],
            "D",
            color=COUNTERFACTUAL,
            markersize=6.5,
            label=say("figure.action changed"),
        )
    panel.set_ylabel(feature.label, parse_math=False)
    panel.margins(y=0.1)
    panel.legend(frameon=False, fontsize=9, ncols=3, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2)
    above: Any = {"xycoords": "axes fraction", "xytext": (0, 23), "textcoords": "offset points"}
    panel.annotate(statement(result), xy=(0, 1), fontsize=9, color=QUIET, **above)
    panel.set_title(figure_title(result), loc="left", fontsize=11, fontweight="bold", pad=40, parse_math=False)
    panel.spines[["top", "right"]].set_visible(False)


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
            side: Any = {"ha": "center", "va": "bottom" if end > 0 else "top"}
            panel.text(time, 0.55 * end, f"{dose:g}", fontsize=8, color=shade, bbox=_ON_WHITE, **side)
        beside: Any = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
        panel.annotate(letter, xy=(time, 0), fontsize=9, fontweight="bold", color=colour, **beside)
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
        words = result.schema.actions.describe_change(change.observed, change.counterfactual)
        beside: Any = {"xytext": (8 if right else -8, 0), "textcoords": "offset points", "va": "center"}
        side: Any = {"ha": "left" if right else "right", "fontsize": 9, "bbox": _ON_WHITE, "parse_math": False}
        panel.annotate(shortened_middle(words.replace("->", "→"), 56), xy=(time, row), **beside, **side)
    _label_strip(panel, say("figure.action"), OBSERVED)


def _label_strip(panel: Axes, label: str, colour: str) -> None:
    panel.set_yticks([])
    panel.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9, color=colour, parse_math=False)
    panel.spines[["top", "right", "left"]].set_visible(False)
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


def axis_styles(axes: Sequence[Axis]) -> Iterator[tuple[Axis, str, str]]:
    """Each dose axis with its letter - its initial, numbered where two share it - and its colour."""
    initials = [axis.name[:1].upper() for axis in axes]
    for number, (axis, initial) in enumerate(zip(axes, initials, strict=True)):
        letter = initial if initials.count(initial) == 1 else f"{initial}{initials[: number + 1].count(initial)}"
        yield axis, letter, AXIS_COLOURS[number % len(AXIS_COLOURS)]


def rewarded_feature(result: Result) -> str:
    """The dynamic feature that a result is mostly about."""
    names = [feature.name for feature in result.schema.dynamic]
    if result.shown[0].feature in names:
        return result.shown[0].feature
    return next((name for name in _features_in(result.query.reward.to_dict()) if name in names), names[0])


def _features_in(reward: Mapping[str, Any]) -> Iterator[str]:
    """The features that a reward's description names, those of its parts included."""
    yield from reward.get("weights", ())
    if "feature" in reward:
        yield reward["feature"]
    for part in [
        *reward.get("parts", ()),
        *reward.get("hinges", ()),
        *([reward["reward"]] if "reward" in reward else []),
    ]:
        yield from _features_in(part)


def _width(steps: int) -> float:
    """Wide enough that doses changed at neighbouring steps do not touch, within reason."""
    return min(max(_WIDTH, 1.8 + 0.42 * steps), 16.0)


def step_times(result: Result) -> FloatArray:
    """When the steps are `[T]`, in the schema's unit of time."""
    return result.schema.step_length * np.arange(len(result.actions), dtype=np.float64)


def _label_time(panel: Axes, schema: Schema, steps: int) -> None:
    """Ticks at steps, at most a dozen; in the schema's unit of time."""
    panel.xaxis.set_major_locator(MultipleLocator(schema.step_length * math.ceil(steps / 12)))
    only_steps = schema.step_unit == "step" and schema.step_length == 1
    panel.set_xlabel(say("figure.time.step" if only_steps else "figure.time", unit=schema.step_unit))
    panel.tick_params(axis="x", length=3)
    panel.margins(x=0.04)
