"""Do the warnings work? Recommendations in simulated worlds whose truth is known, and every signal about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import polars as pl
from matplotlib.figure import Figure

from paper.base import Experiment, Settings
from paper.runner import Bench
from paper.scenarios import SCENARIOS, Scenario
from paper.separation import FALSE_ALARMS
from paper.study_cell import StudyCell
from paper.study_table import falls_short, is_wrong, study_table
from paper.warning_plots import plot_caught, plot_signals, plot_truth
from paper.warning_tables import caught_table, limits_in_use_table, truth_table


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

    def cell(self, scenario: Scenario, seed: int) -> StudyCell:
        """One world."""
        return StudyCell(
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


class WarningStudy(Experiment):
    """Every scenario with every seed is a cell: an ensemble is fitted, checked, asked, and judged by the truth."""

    name: ClassVar[str] = "warnings"
    title: ClassVar[str] = "Do the warnings work?"
    paper: ClassVar[str] = "Not in the paper, which says that its answers are as good as the causal model they rest on."
    settings_class: ClassVar[type[Settings]] = StudySettings

    def settings(self, *, quick: bool) -> Settings:
        """Half an hour of two cores, or a minute of one."""
        if not quick:
            return StudySettings()
        return StudySettings(
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

    def run(self, bench: Bench, settings: Settings) -> pl.DataFrame:
        """A row per episode, of those seeds of which all scenarios are finished; limits need two of them."""
        assert isinstance(settings, StudySettings)
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
