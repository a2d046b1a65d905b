"""Doses as actions: a few levels per axis, learned on training subjects only, and the level of each step."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from ifonly.clinical.grid import DOSE_COLUMNS, FLUIDS, PLAUSIBLE_DOSES, UNITS, VASOPRESSORS
from ifonly.clinical.inclusion import Flow, FlowStep, SelectedStays
from ifonly.data.cohort import split_subjects
from ifonly.data.doses import OTHER_UNIT
from ifonly.data.plain import read_mapping
from ifonly.errors import InputError

FORMAT, VERSION = "ifonly.levels", 1
BINS = 4
"""Of non-zero doses: quartiles."""
DIGITS = 3
"""Significant digits of a learned level, as in the paper's table."""

LEARNED, FROM_PAPER = "learned", "paper"

Doses = npt.NDArray[np.float64]


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


def _increase(numbers: Sequence[float]) -> bool:
    return all(a < b for a, b in itertools.pairwise(numbers))


@dataclass(frozen=True)
class Levels:
    """The levels of one kind of dose: `doses[0]` is zero, `doses[i]` stands for doses in (edges[i-2], edges[i-1]].

    The lowest bin begins above zero, the highest has no end; `edges` has two entries fewer than `doses`.
    """

    doses: tuple[float, ...]
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "doses", tuple(float(dose) for dose in self.doses))
        object.__setattr__(self, "edges", tuple(float(edge) for edge in self.edges))
        if len(self.doses) < 2 or self.doses[0] != 0 or not _increase((*self.doses, np.inf)):
            raise InputError(f"levels {_listed(self.doses)}: must begin with 0 and increase, with at least one more.")
        if len(self.edges) != len(self.doses) - 2 or not _increase((0.0, *self.edges, np.inf)):
            raise InputError(
                f"edges {_listed(self.edges)}: must be positive and increase, one between each two of the "
                f"{len(self.doses) - 1} levels above zero."
            )

    @classmethod
    def of_doses(cls, doses: Sequence[float]) -> Levels:
        """Levels without known edges: the geometric mean of neighbours parts them, as doses are skewed."""
        positive = [float(dose) for dose in doses][1:]
        return cls(tuple(doses), tuple(max(a * b, 0.0) ** 0.5 for a, b in itertools.pairwise(positive)))

    def assign(self, doses: Doses) -> npt.NDArray[np.int64]:
        """The level's number of each dose: 0 for none, else that of its bin."""
        bins = np.searchsorted(np.array(self.edges), doses, side="left") + 1
        return np.where(doses > 0, bins, 0).astype(np.int64)

    def counts(self, doses: Doses) -> list[int]:
        """How many of the doses fall on each level."""
        return [int(count) for count in np.bincount(self.assign(doses), minlength=len(self.doses))]


PAPER = {
    VASOPRESSORS: Levels.of_doses((0, 0.04, 0.113, 0.225, 0.788)),
    FLUIDS: Levels.of_doses((0, 30, 80, 279, 850)),
}
"""The levels of the paper's table; it gives no edges."""


MOST = 0.5
"""If more of the doses above zero are beyond what is plausible, the column is in another unit."""
FEW = 20
"""Up to so many doses say nothing about a column's unit."""


def keep_plausible(selected: SelectedStays) -> SelectedStays:
    """Without stays that have a dose beyond what is plausible, counted; refused where a whole column is so."""
    for name, column in DOSE_COLUMNS.items():
        _require_unit(selected.grid[column].to_numpy(), name)
    beyond = {name: pl.col(column) > PLAUSIBLE_DOSES[name][1] for name, column in DOSE_COLUMNS.items()}
    slips = selected.grid.filter(pl.any_horizontal(beyond.values()))
    if slips.height == 0:
        return selected
    grid = selected.grid.filter(~pl.col("stay").is_in(slips["stay"].unique().implode()))
    limits = " and ".join(f"{PLAUSIBLE_DOSES[name][1]:,.0f} {UNITS[name]} of {name}" for name in beyond)
    before, stays, subjects = selected.flow.steps[-1], grid["stay"].n_unique(), grid["subject"].n_unique()
    step = FlowStep(f"no dose above {limits}", stays, subjects, before.stays - stays, before.subjects - subjects)
    if stays == 0:
        raise InputError(
            f"no stay is left: all have a dose above {limits}. Is the table in these units, and one of intensive care?"
        )
    counts = ", ".join(f"{name} in {slips.filter(wrong).height:,}" for name, wrong in beyond.items())
    remark = (
        f"steps with a dose beyond what is plausible ({limits}): {counts}; their {slips['stay'].n_unique():,} stays "
        "are left out."
    )
    return SelectedStays(grid, Flow((*selected.flow.steps, step)), (*selected.remarks, remark))


def _require_unit(doses: Doses, name: str) -> None:
    """Refuse doses of which most are implausible, or whose usual size is far from the paper's levels."""
    given, usual = doses[doses > 0], float(np.median(PAPER[name].doses[1:]))
    if given.size <= FEW:
        return
    beyond = int((given > PLAUSIBLE_DOSES[name][1]).sum())
    if beyond > MOST * given.size or float(np.median(given)) < usual / OTHER_UNIT:
        size = "large" if beyond > MOST * given.size else "small"
        raise InputError(
            f"{name}: most of the {given.size:,} doses above zero are far too {size} to be in {UNITS[name]}; convert "
            "the column (max_dose_vaso and input_4hourly in the AI Clinician's table), or read the tables as shipped."
        )


def learn_levels(doses: Doses, *, name: str) -> tuple[Levels, tuple[str, ...]]:
    """Levels from the doses of training steps, and remarks: fewer than four bins if doses coincide too often."""
    given = doses[doses > 0]
    if given.size == 0:
        raise InputError(
            f"{name}: no step of the training split has a dose above zero, so that there is nothing to learn levels "
            "from; use --levels paper or a file with levels."
        )
    quartiles = np.unique(np.quantile(given, np.arange(1, BINS) / BINS))
    # Where doses coincide or are few, bins can be empty: of the edges, those below a dose are kept.
    occupied = np.unique(np.searchsorted(quartiles, given, side="left"))
    levels = _with_medians([float(quartiles[number - 1]) for number in occupied[1:]], given)
    found = len(levels.doses) - 1
    if found == BINS:
        return levels, ()
    return levels, (
        f"{name}: the {given.size:,} non-zero doses of the training split coincide so often that their quartiles give "
        f"{found} level{'s' if found > 1 else ''} above zero instead of {BINS}.",
    )


def merge_rare(levels: Levels, doses: Doses, *, least: int, name: str) -> tuple[Levels, tuple[str, ...]]:
    """Neighbouring levels above zero joined until each has `least` of the (training) doses, and remarks."""
    given = doses[doses > 0]
    if given.size < least:
        raise InputError(
            f"{name}: only {given.size:,} steps of the training split have a dose above zero, fewer than the "
            f"{least:,} uses that every level shall have; ask for fewer."
        )
    edges = list(levels.edges)
    while edges and min(counts := _bin_counts(edges, given)) < least:
        rare = int(np.argmin(counts))
        # The neighbour with fewer uses takes it in.
        lower = rare > 0 and (rare == len(counts) - 1 or counts[rare - 1] <= counts[rare + 1])
        del edges[rare - 1 if lower else rare]
    if len(edges) == len(levels.edges):
        return levels, ()
    merged = _unless_merged(levels, _with_medians(edges, given))
    return merged, (
        f"{name}: levels used in fewer than {least:,} training steps were merged: {len(levels.doses) - 1} levels above "
        f"zero became {len(merged.doses) - 1}.",
    )


def _with_medians(edges: Sequence[float], given: Doses) -> Levels:
    """Levels at the median of each bin; every bin holds a dose."""
    bins = np.searchsorted(np.array(edges), given, side="left")
    medians = [float(np.median(given[bins == number])) for number in range(len(edges) + 1)]
    short = [float(f"{median:.{DIGITS}g}") for median in medians]
    return Levels((0.0, *(short if _increase((0.0, *short)) else medians)), tuple(edges))


def _unless_merged(before: Levels, after: Levels) -> Levels:
    """The levels after merging, with the old dose where a bin is the old one."""
    old = dict(zip(_bins(before), before.doses[1:], strict=True))
    doses = [old.get(span, dose) for span, dose in zip(_bins(after), after.doses[1:], strict=True)]
    return Levels((0.0, *doses), after.edges)


def _bins(levels: Levels) -> list[tuple[float, float]]:
    return list(itertools.pairwise((0.0, *levels.edges, np.inf)))


def _bin_counts(edges: Sequence[float], given: Doses) -> list[int]:
    bins = np.searchsorted(np.array(edges), given, side="left")
    return [int(count) for count in np.bincount(bins, minlength=len(edges) + 1)]


def levels_to_dict(levels: Mapping[str, Levels]) -> dict[str, Any]:
    """Plain types for JSON; `read_levels` reads them."""
    axes = {name: {"unit": UNITS[name], **asdict(item)} for name, item in levels.items()}
    return {"format": FORMAT, "version": VERSION, **axes}


def read_levels(path: str | Path) -> dict[str, Levels]:
    """Levels from a YAML or JSON file: for vasopressors and fluids a list of doses, or doses and edges."""
    source = Path(path)
    content = read_mapping(source)
    if not {VASOPRESSORS, FLUIDS} <= set(content):
        raise InputError(
            f"{source}: needs the keys {VASOPRESSORS!r} and {FLUIDS!r}, each with a list of doses that begins with 0."
        )
    return {name: _read_axis(f"{source}: {name}", content[name]) for name in (VASOPRESSORS, FLUIDS)}


def _read_axis(where: str, content: object) -> Levels:
    doses = content.get("doses") if isinstance(content, dict) else content
    edges = content.get("edges") if isinstance(content, dict) else None
    if not _numbers(doses) or not (edges is None or _numbers(edges)):
        raise InputError(f"{where}: needs a list of numbers, or 'doses' and 'edges' with one each.")
    try:
        return Levels.of_doses(doses) if edges is None else Levels(tuple(doses), tuple(edges))  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _numbers(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(item, int | float) and not isinstance(item, bool) and np.isfinite(item) for item in value
    )


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

    def check(self) -> None:
        """Refuse what could not be learned or read, before any work is done."""
        if not 0 < self.test < 1:
            raise InputError(f"levels: the test share {self.test} must lie strictly between 0 and 1.")
        if self.min_uses < 0:
            raise InputError(f"levels: min_uses {self.min_uses} must not be negative.")
        _fixed_levels(self.levels)


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
    training, _ = split_subjects(names, test=choice.test, seed=choice.seed)
    return pl.Series(training, dtype=pl.String)


def assign_actions(grid: pl.DataFrame, levels: Mapping[str, Levels]) -> npt.NDArray[np.int64]:
    """The action's number at each step, in the order of `ActionSpace.product`: fluids vary fastest."""
    vasopressor = levels[VASOPRESSORS].assign(grid[DOSE_COLUMNS[VASOPRESSORS]].to_numpy())
    fluid = levels[FLUIDS].assign(grid[DOSE_COLUMNS[FLUIDS]].to_numpy())
    return vasopressor * len(levels[FLUIDS].doses) + fluid


def _fixed_levels(name: str) -> dict[str, Levels] | None:
    if name == LEARNED:
        return None
    return PAPER if name == FROM_PAPER else read_levels(name)
