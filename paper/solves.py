"""Solves for single patients: the cells, the anchors that lead A*, and tables of answers side by side."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import polars as pl
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ifonly import (
    AnchorAStar,
    Beam,
    BranchAndBound,
    FacilityLocation,
    Greedy,
    MonteCarlo,
    Problem,
    RandomSearch,
    Status,
    TopSingleChanges,
)
from ifonly.bounds import Anchors, AnchorStrategy
from ifonly.errors import VerificationError
from ifonly.files import atomic_file
from ifonly.progress import Progress, Tick
from ifonly.search.base import Solver
from paper import asking
from paper.bench import Cell, Row
from paper.estimates import Estimate
from paper.laboratory import Laboratory, Limits, Settings

OURS, PAPERS = BranchAndBound.name, AnchorAStar.name
HEURISTICS = {
    RandomSearch.name: "random",
    TopSingleChanges.name: "top-k",
    Greedy.name: "greedy",
    Beam.name: "beam",
}
"""Solvers without proof, with the names that the paper's readers know them by."""

Strategy = Literal["lipschitz", "uniform", "facility"]


@dataclass(frozen=True)
class SolveSettings(Settings):
    """Of experiments that solve for single patients; those that vary something add to it."""

    patients: int = 200
    """How many, at most."""
    seconds: float | None = 60.0
    """Limit of every single solve; None: no limit."""
    device: str = "cpu"


@dataclass(frozen=True)
class AnchorPlan:
    """Which anchors lead A*: so many sampled sequences, or so many anchors in all."""

    strategy: Strategy = "lipschitz"
    samples: int | None = None
    size: int | None = None
    of: int | None = None
    """Of how many facility locations these are the first `size`."""

    def build(self, laboratory: Laboratory, limits: Limits | None) -> AnchorStrategy:
        """The strategy as the solver takes it."""
        if self.strategy == "facility":
            assert self.size is not None
            return facility_anchors(laboratory, limits, size=self.size, of=self.of or self.size)
        return MonteCarlo(samples=self.samples, size=self.size, weighting=self.strategy)


@dataclass(frozen=True)
class SolveCell(Cell):
    """One solver's answer about one patient."""

    episode: str
    solver: str
    limits: Limits | None
    """Which model; None: the one that was given."""
    max_changes: int
    anchors: AnchorPlan | None = None
    seconds: float | None = None
    device: str = "cpu"

    kind: ClassVar[str] = "solve"

    @property
    def model_limits(self) -> Limits | None:
        """Of the model that answers."""
        return self.limits

    def prepare(self, laboratory: Laboratory, progress: Progress) -> None:
        """Choose the facility locations, which depend on the cohort alone."""
        if self.anchors is not None and self.anchors.strategy == "facility":
            size = self.anchors.of or self.anchors.size or 0
            if not points_file(laboratory, self.limits, size).exists():
                progress(Tick("choosing anchors", 0, 1, {"anchors": size}))
                choose_points(laboratory, self.limits, size, self.device)

    def measure(self, laboratory: Laboratory) -> Row:
        """Solve, and keep what the answer took."""
        asking.warm_up(self.device)
        model = laboratory.load_model(self.limits, self.device)
        question = asking.Question(self.max_changes, laboratory.reward, self.device, seconds=self.seconds)
        problem = question.problem(laboratory.cohort()[self.episode], model)
        return asking.answer_row(asking.answer(problem, self._solver(laboratory)))

    def _solver(self, laboratory: Laboratory) -> Solver:
        seed = laboratory.conditions.seed
        match self.solver:
            case AnchorAStar.name:
                assert self.anchors is not None
                return AnchorAStar(anchors=self.anchors.build(laboratory, self.limits), seed=seed)
            case RandomSearch.name:
                return RandomSearch(seed=seed)
            case _:
                solvers: tuple[Solver, ...] = (BranchAndBound(), TopSingleChanges(), Greedy(), Beam())
                return next(solver for solver in solvers if solver.name == self.solver)


@dataclass(frozen=True, eq=False)
class FixedPoints(AnchorStrategy):
    """The same points [M, D], in scaled coordinates, at every step, together with the step's observed state."""

    points: Tensor

    def __repr__(self) -> str:
        return f"FixedPoints([{len(self.points)} states])"

    def choose(self, problem: Problem, constants: Tensor, generator: torch.Generator) -> Anchors:
        """Nothing is left to choose."""
        points = self.points.to(problem.device)
        return Anchors(tuple(torch.cat([points, state.unsqueeze(0)]) for state in problem.observed_states))


def points_file(laboratory: Laboratory, limits: Limits | None, size: int) -> Path:
    """Where `size` points are stored, or will be, in the coordinates of the model with these limits."""
    name = "given" if limits is None else laboratory.model_folder(limits).name
    return laboratory.folder / "anchors" / f"{name}-{size}.safetensors"


def choose_points(laboratory: Laboratory, limits: Limits | None, size: int, device: str) -> None:
    """Choose `size` points by farthest-point clustering of all states of the cohort, and store them in their order."""
    patient = laboratory.cohort()[laboratory.patients(1)[0]]
    model = laboratory.load_model(limits, device)
    problem = asking.Question(1, laboratory.reward, device).problem(patient, model)
    generator = torch.Generator().manual_seed(laboratory.conditions.seed)
    strategy = FacilityLocation(size=size, pool=laboratory.cohort().states)
    first = strategy.choose(problem, torch.empty(0), generator).points[0]
    with atomic_file(points_file(laboratory, limits, size)) as scratch:
        save_file({"points": first[:-1].cpu().contiguous()}, scratch)  # the last one is the patient's own state


@lru_cache(maxsize=2)
def _read_points(file: Path) -> Tensor:
    points: Tensor = load_file(file)["points"]
    return points


def facility_anchors(laboratory: Laboratory, limits: Limits | None, *, size: int, of: int) -> FixedPoints:
    """The first `size` of the `of` points that were chosen.

    Farthest-point clustering adds point after point, so these are what it gives for `size`.
    """
    return FixedPoints(_read_points(points_file(laboratory, limits, of))[:size])


EQUAL = 1e-9
"""Two solvers' outcomes of one sequence differ by rounding only: relative to their size, no more than this."""

COLUMNS = {
    "episode": pl.String,
    "solver": pl.String,
    "max_changes": pl.Int64,
    "status": pl.String,
    "outcome": pl.Float64,
    "upper_bound": pl.Float64,
    "observed_outcome": pl.Float64,
    "clipped_outcome": pl.Float64,
    "observed_clipped_outcome": pl.Float64,
    "changes": pl.Int64,
    "nodes": pl.Int64,
    "visited": pl.Int64,
    "branching_factor": pl.Float64,
    "seconds": pl.Float64,
    "seconds_bounds": pl.Float64,
}
"""What every table of solves has; `visited` and `branching_factor` are lower bounds where a search is not proven."""

PROVEN = pl.col("status") == Status.OPTIMAL.value


def solve_row(cell: SolveCell, row: Mapping[str, Any], **further: Any) -> Row:
    """One row of a table; `further` are the columns that only this experiment has."""
    own = {"episode": cell.episode, "solver": cell.solver, "max_changes": cell.max_changes}
    return further | own | {name: row[name] for name in COLUMNS if name not in own}


def solve_table(rows: Iterable[Row], **further: Any) -> pl.DataFrame:
    """The table of rows; `further` columns with their types come first."""
    return pl.DataFrame(list(rows), schema={**further, **COLUMNS}, orient="row")


def require_agreement(rows: Mapping[Cell, Row]) -> None:
    """Refuse answers that contradict each other: what a solver found must not exceed what another proved impossible.

    Two proven answers to one question are therefore equal, up to rounding.
    """
    questions: dict[tuple[Any, ...], list[tuple[SolveCell, Row]]] = {}
    for cell, row in rows.items():
        if isinstance(cell, SolveCell):
            questions.setdefault((cell.episode, cell.limits, cell.max_changes), []).append((cell, row))
    for answers in questions.values():
        best_cell, best = max(answers, key=lambda answer: float(answer[1]["outcome"]))
        for cell, row in answers:
            bound = math.inf if row["upper_bound"] is None else row["upper_bound"]
            if best["outcome"] > bound + EQUAL * max(1.0, abs(bound)):
                raise VerificationError(
                    f"episode {cell.episode!r}, at most {cell.max_changes} changes: {best_cell.solver} found an "
                    f"outcome that is {best['outcome'] - bound:.3g} above the bound that {cell.solver} "
                    "proved. One of them is wrong; no table is written."
                )


def by_value(table: pl.DataFrame, **where: str) -> list[tuple[float, pl.DataFrame]]:
    """The rows of each value on the horizontal axis, in its order; of these those whose columns are as in `where`."""
    return [
        (value, table.filter(pl.col("value") == value).filter(**where))
        for value in sorted(table["value"].unique().to_list())
    ]


def parts_of(table: pl.DataFrame, **where: str) -> list[pl.DataFrame]:
    """The same without the values."""
    return [part for _, part in by_value(table, **where)]


def estimate(table: pl.DataFrame, column: str) -> Estimate:
    """The mean of a column over solves; a lower bound where one of them is not proven."""
    return Estimate.of(table[column].to_list(), at_least=table.filter(~PROVEN).height > 0)


def proven_of(table: pl.DataFrame) -> str:
    """How many solves were proven, in words.

    >>> proven_of(pl.DataFrame({"status": ["optimal", "time limit"]}))
    '1 of 2'
    """
    return f"{table.filter(PROVEN).height} of {table.height}"
