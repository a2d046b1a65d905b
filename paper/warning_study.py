"""Do the warnings work? Recommendations in simulated worlds whose truth is known, and every signal about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ifonly.data.episode import FloatArray
from paper.bench import Bench
from paper.experiment import Experiment
from paper.laboratory import Settings
from paper.style import BLUE, BROWN, GREEN, GREY, PINK, Line, draw_estimates, paper_panels, put_legend
from paper.warning_tables import (
    FALSE_ALARMS,
    SIGNALS,
    TOGETHER,
    Judged,
    caught_table,
    limits_in_use_table,
    share_over_seeds,
    truth_table,
)
from paper.warning_worlds import (
    RIGHT,
    SCENARIOS,
    BoolArray,
    Scenario,
    WorldCell,
    falls_short,
    is_near_optimal,
    is_wrong,
    recommended,
    study_table,
)

RATES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
"""Shares of right recommendations that may be flagged, at which curves are drawn."""

LINES = {
    "verdict of the check": Line("verdict of the check", GREY, "s", ":"),
    "noise that lasts": Line("noise that lasts", BROWN, "P", "--"),
    "lower end of refits / promise": Line("lower end of refits / promise", BLUE, "v"),
    "least likely change": Line("least likely change", GREEN, "D"),
    "farthest state (percentile)": Line("farthest state", GREEN, "x", ":"),
    "influence that undoes it": Line("influence that undoes it", PINK, "^", "-."),
    TOGETHER: Line(TOGETHER, "black", "o"),
}
"""How signals are drawn; two that tell nearly the same as their neighbours are left out."""

TRUTHS: tuple[tuple[Line, Callable[[pl.DataFrame], BoolArray]], ...] = (
    (Line("truly help", GREEN, "o"), lambda part: ~is_wrong(part)),
    (Line("bring half of the promise", BLUE, "^"), lambda part: ~falls_short(part)),
    (Line("near-optimal", PINK, "s"), is_near_optimal),
)

ANSWERS = (Line("right", GREEN, "o"), Line("wrong", PINK, "s"))


@dataclass(frozen=True)
class StudySettings(Settings):
    """How many worlds, and how much of each."""

    patients: int = 20
    """Episodes of each world that get a recommendation."""
    seeds: int = 6
    enough: int = 8000
    """Training stays where there are plenty."""
    too_few: int = 200
    epochs_for_enough: int = 10
    epochs_for_few: int = 250
    """As many steps of training as with plenty of stays: little data should not mean little training."""
    held_out: int = 300
    steps: int = 10
    max_changes: int = 2
    members: int = 20
    width: int = 128
    device: str = "cpu"

    def cell(self, scenario: Scenario, seed: int) -> WorldCell:
        """One world."""
        return WorldCell(
            scenario=scenario.name,
            seed=seed,
            training=self.too_few if scenario.scarce else self.enough,
            epochs=self.epochs_for_few if scenario.scarce else self.epochs_for_enough,
            held_out=self.held_out,
            episodes=self.patients,
            steps=self.steps,
            max_changes=self.max_changes,
            members=self.members,
            width=self.width,
            device=self.device,
        )


class WarningStudy(Experiment[StudySettings]):
    """Every scenario with every seed is a cell: an ensemble is fitted, checked, asked, and judged by the truth."""

    name = "warnings"
    title = "Do the warnings work?"
    paper = "Not in the paper, which says that its answers are as good as the causal model they rest on."
    full = StudySettings()
    quick = StudySettings(
        patients=4,
        seeds=2,
        enough=400,
        too_few=40,
        epochs_for_enough=4,
        epochs_for_few=30,
        held_out=60,
        members=5,
        width=16,
    )

    def run(self, bench: Bench, settings: StudySettings) -> pl.DataFrame:
        """A row per episode, of those seeds of which all scenarios are finished; limits need two of them."""
        first = bench.laboratory.conditions.seed
        worlds = [
            [settings.cell(scenario, first + number) for scenario in SCENARIOS.values()]
            for number in range(settings.seeds)
        ]
        rows = bench.measure((cell for cells in worlds for cell in cells), self.name)
        complete = [cells for cells in worlds if all(cell in rows for cell in cells)]
        if len(complete) < 2:
            return pl.DataFrame()
        return study_table((cell, rows[cell]) for cells in complete for cell in cells)

    def plot(self, table: pl.DataFrame) -> Figure:
        """How many wrong recommendations are caught, against false alarms."""
        return plot_caught(table)

    def more_figures(self, table: pl.DataFrame) -> Mapping[str, Figure]:
        """What is true in each world, and the signals of right and wrong recommendations."""
        return {"truth": plot_truth(table), "signals": plot_signals(table)}

    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """A line per signal: its limit, how well it separates, and what it catches at the stated rate of alarms."""
        return caught_table(table, is_wrong)

    def findings(self, table: pl.DataFrame) -> Sequence[str]:
        """What is true in every scenario, what the limits in use catch, and what falls short of its promise."""
        in_use = limits_in_use_table(table).to_dicts()[-1]
        short = caught_table(table, falls_short).to_dicts()[-1]
        return [
            *(_truth_in_words(line) for line in truth_table(table).to_dicts()),
            f"Limits are such that {FALSE_ALARMS:.0%} of the right recommendations of all scenarios are flagged; each "
            f"seed is judged by limits from the {table['seed'].n_unique() - 1} others. Intervals are over seeds.",
            f"The limits in use, the verdict included, warn of {in_use['caught %']} % of the wrong recommendations and "
            f"of {in_use['false alarms %']} % of the right ones.",
            f"Of recommendations that bring less than half of their promise, all signals together catch "
            f"{short['caught %']} %, with {short['false alarms %']} % false alarms.",
        ]


def _truth_in_words(line: Mapping[str, str]) -> str:
    return (
        f"{line['scenario'].capitalize()}: {line['truly help %']} % of {line['recommendations']} recommendations truly "
        f"help, {line['near-optimal %']} % are near-optimal; promised {line['promised']} points of SOFA summed over "
        f"the stay, truly {line['true']}, attainable {line['attainable']}. Verdicts: {line['verdicts']}."
    )


def plot_caught(table: pl.DataFrame) -> Figure:
    """The share of wrong recommendations caught against the rate of false alarms: of all, then by scenario."""
    asked = recommended(table)
    judged, scenarios = Judged.of(asked, is_wrong(asked)), asked["scenario"].to_numpy()
    flags = {label: [judged.flags(label, rate) for rate in RATES] for label in LINES}
    parts = {"all scenarios": judged.wrong}
    parts |= {one.label: judged.wrong & (scenarios == one.name) for one in SCENARIOS.values() if one.name != RIGHT}
    with paper_panels(len(parts), 2.1 * len(parts), 2.9) as (figure, panels):
        for panel, (title, wrong) in zip(panels, parts.items(), strict=True):
            panel.axvline(100 * FALSE_ALARMS, color=GREY, linewidth=0.6)
            panel.plot([0, 50], [0, 50], color=GREY, linewidth=0.6)
            for label, line in LINES.items():
                caught = [share_over_seeds(found, wrong, judged.seeds).mean for found in flags[label]]
                panel.plot(
                    [100 * rate for rate in RATES],
                    caught,
                    color=line.colour,
                    marker=line.marker,
                    linestyle=line.dash,
                    markersize=3.5,
                    linewidth=1.0,
                    clip_on=False,
                )
            panel.set_ylim(0, 100)
            panel.set_title(f"{title} ({int(wrong.sum())} wrong)", fontsize=8)
            panel.set_xlabel("False alarms (%)")
        panels[0].set_ylabel("Wrong ones caught (%)")
        handles = [
            mpl.lines.Line2D([], [], color=line.colour, marker=line.marker, linestyle=line.dash, markersize=4)
            for line in LINES.values()
        ]
        names = [line.label for line in LINES.values()]
        figure.legend(handles, names, loc="outside lower center", ncols=len(LINES), frameon=False, columnspacing=1.2)
    return figure


def plot_truth(table: pl.DataFrame) -> Figure:
    """For each scenario the share of recommendations that help, keep half of their promise, and are near-optimal."""
    with paper_panels(1, 5.6, 2.5) as (figure, (panel,)):
        for number, (line, holds) in enumerate(TRUTHS):
            for place, scenario in enumerate(SCENARIOS):
                part = recommended(table.filter(pl.col("scenario") == scenario))
                share = share_over_seeds(holds(part), np.ones(len(part)), part["seed"].to_numpy())
                draw_estimates(panel, line, [place + 0.16 * (number - 1)], [share])
        panel.set_xticks(range(len(SCENARIOS)), [scenario.label for scenario in SCENARIOS.values()])
        panel.set_ylim(0, 100)
        panel.set_ylabel("Recommendations (%)")
        put_legend(panel, [line for line, _ in TRUTHS], hollow=False, columns=3)
    return figure


def plot_signals(table: pl.DataFrame) -> Figure:
    """Every signal where recommendations are right and where they are wrong: median, and the middle 80 %."""
    asked = recommended(table)
    wrong, scenarios = is_wrong(asked), asked["scenario"].to_numpy()
    shown = [signal for signal in SIGNALS if signal.column != "verdict"]
    with paper_panels(len(shown), 1.5 * len(shown) + 1, 2.6) as (figure, panels):
        for panel, signal in zip(panels, shown, strict=True):
            values = asked[signal.column].to_numpy()
            for place, scenario in enumerate(SCENARIOS):
                for line, which, side in zip(ANSWERS, (~wrong, wrong), (-0.15, 0.15), strict=True):
                    _draw_spread(panel, line, place + side, values[which & (scenarios == scenario)])
            panel.set_yticks(range(len(SCENARIOS)), [scenario.label for scenario in SCENARIOS.values()])
            panel.invert_yaxis()
            panel.tick_params(axis="y", labelleft=panel is panels[0])
            panel.set_xlabel(signal.label)
            if signal.column == "least_support":
                panel.set_xscale("log")
        put_legend(panels[0], ANSWERS, hollow=False, columns=2)
    return figure


def _draw_spread(panel: Axes, line: Line, place: float, values: FloatArray) -> None:
    """Of the values that are finite, on a line of its own; nothing where there are none."""
    known = values[np.isfinite(values)]
    if not len(known):
        return
    low, middle, high = np.quantile(known, [0.1, 0.5, 0.9])
    panel.plot([low, high], [place, place], color=line.colour, linewidth=1.5)
    panel.plot(middle, place, line.marker, color=line.colour, markersize=4)
