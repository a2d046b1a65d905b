"""Which of the levels each step's doses are: from a grid to actions, with levels learned on training subjects only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from ifonly.clinical.levels import PAPER, Levels, learn_levels, merge_rare, read_levels
from ifonly.clinical.schema import DOSE_COLUMNS, FLUIDS, VASOPRESSORS
from ifonly.data.cohort import Cohort
from ifonly.data.schema import ActionSpace, Feature, Schema
from ifonly.errors import InputError

LEARNED, FROM_PAPER = "learned", "paper"


@dataclass(frozen=True)
class LevelChoice:
    """Where levels come from."""

    levels: str = LEARNED
    """"learned", "paper", or the name of a file."""
    min_uses: int = 0
    """Merge levels that fewer training steps use."""
    test: float = 0.2
    seed: int = 0
    """Share and seed of the split by subject, as `Cohort.split` makes it: levels are learned on its training part."""


def check_choice(choice: LevelChoice) -> None:
    """Refuse what could not be learned or read, before any work is done."""
    if not 0 < choice.test < 1:
        raise InputError(f"levels: the test share {choice.test} must lie strictly between 0 and 1.")
    if choice.min_uses < 0:
        raise InputError(f"levels: min_uses {choice.min_uses} must not be negative.")
    _fixed_levels(choice.levels)


def choose_levels(grid: pl.DataFrame, choice: LevelChoice) -> tuple[dict[str, Levels], tuple[str, ...]]:
    """The levels of each dose axis, and remarks."""
    training = grid.filter(pl.col("subject").is_in(training_subjects(grid["subject"], choice).implode()))
    fixed = _fixed_levels(choice.levels)
    chosen: dict[str, Levels] = {}
    remarks: list[str] = []
    for name, column in DOSE_COLUMNS.items():
        doses = training[column].to_numpy()
        levels, said = (fixed[name], ()) if fixed else learn_levels(doses, name=name)
        remarks.extend(said)
        if choice.min_uses:
            levels, said = merge_rare(levels, doses, least=choice.min_uses, name=name)
            remarks.extend(said)
        chosen[name] = levels
    return chosen, tuple(remarks)


def training_subjects(subjects: pl.Series, choice: LevelChoice) -> pl.Series:
    """The subjects on the training side of the cohort's own split; a single subject is its own training split."""
    names = tuple(sorted(set(subjects.to_list())))
    if len(names) < 2:
        return pl.Series(names, dtype=pl.String)
    # A cohort of nothing but subjects: who decides about splits shall decide here too.
    bare = Cohort(
        schema=Schema((Feature("nothing", "dynamic"),), ActionSpace.categories(["none"])),
        ids=names,
        offsets=2 * np.arange(len(names) + 1),
        states=np.zeros((2 * len(names), 1)),
        context=np.zeros((2 * len(names), 0)),
        actions=np.zeros(2 * len(names), dtype=np.int64),
    )
    training, _ = bare.split(test=choice.test, seed=choice.seed)
    return pl.Series(training.subjects, dtype=pl.String)


def assign_actions(grid: pl.DataFrame, levels: Mapping[str, Levels]) -> npt.NDArray[np.int64]:
    """The action's number at each step, in the order of `ActionSpace.product`: fluids vary fastest."""
    vasopressor = levels[VASOPRESSORS].assign(grid[DOSE_COLUMNS[VASOPRESSORS]].to_numpy())
    fluid = levels[FLUIDS].assign(grid[DOSE_COLUMNS[FLUIDS]].to_numpy())
    return vasopressor * len(levels[FLUIDS].doses) + fluid


def _fixed_levels(name: str) -> dict[str, Levels] | None:
    if name == LEARNED:
        return None
    return PAPER if name == FROM_PAPER else read_levels(name)
