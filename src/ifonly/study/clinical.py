"""Building a cohort of clinical tables, with its flow and its data card drawn into its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ifonly.clinical.build import Build, BuildOptions, build_cohort
from ifonly.clinical.inclusion import Selection, Window
from ifonly.clinical.levels import LevelChoice
from ifonly.progress import Progress, silent
from ifonly.study.plan import ClinicalData, FitPlan

if TYPE_CHECKING:
    from ifonly.report.card import Card

OUTCOME = "died_in_hospital"


def build_options(data: ClinicalData, *, overwrite: bool = False) -> BuildOptions:
    """What a study says about clinical tables, as a build takes it."""
    shortest, longest = data.horizon
    split = {} if data.test is None else {"test": data.test}
    return BuildOptions(
        selection=Selection(cohort=data.cohort, window=Window(shortest=shortest, longest=longest)),  # type: ignore[arg-type]
        levels=LevelChoice(levels=data.levels, min_uses=data.min_uses, seed=data.seed, **split),
        codes=data.codes,
        memory=data.memory,
        threads=data.threads,
        work=data.work,
        overwrite=overwrite,
    )


def build_with_pictures(
    source: Path, out: Path, options: BuildOptions, *, progress: Progress = silent
) -> tuple[Build, Card]:
    """Build a cohort; its folder also has the flow as a picture, and the data card."""
    from ifonly.report.card import data_card
    from ifonly.report.flow_picture import write_flow
    from ifonly.report.folders import write_card
    from ifonly.report.recorded import Outcome

    cards: list[Card] = []

    def add(made: Build, folder: Path) -> None:
        write_flow(made.flow, folder / "flow.png")
        known = OUTCOME in made.grid.columns and made.grid[OUTCOME].count() > 0
        card = data_card(
            made.cohort,
            grid=made.grid,
            model_size=FitPlan().size(made.cohort.schema),
            outcome=Outcome.from_table(made.grid, OUTCOME) if known else None,
        )
        write_card(card, folder / "card", title=out.name)
        cards.append(card)

    made = build_cohort(source, out, options, progress=progress, finish=add)
    return made, cards[0]
