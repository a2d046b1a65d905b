"""Which solver a command line asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

import typer

if TYPE_CHECKING:
    from ifonly.bounds.anchors import AnchorStrategy
    from ifonly.data.cohort import Cohort
    from ifonly.search.base import Solver

SAMPLES = 2000
"""Random sequences whose states become anchors, as in the paper's experiments; also the random baseline's."""


class SolverName(StrEnum):
    """The solvers; `auto` is the one that knows the options given, branch and bound for most."""

    AUTO = "auto"
    ANCHOR_ASTAR = "anchor-astar"
    BRANCH_AND_BOUND = "branch-and-bound"
    EXHAUSTIVE = "exhaustive"
    GREEDY = "greedy"
    BEAM = "beam"
    TOP = "top"
    RANDOM = "random"


class Strategy(StrEnum):
    """Where the anchor A* puts its anchors."""

    LIPSCHITZ = "lipschitz"
    UNIFORM = "uniform"
    FACILITY = "facility"


@dataclass(frozen=True)
class SolverChoice:
    """Which solver to use; None stands for the solver's own default."""

    name: SolverName = SolverName.AUTO
    samples: int | None = None
    anchors: int | None = None
    strategy: Strategy | None = None
    shared: bool = False
    seed: int = 0
    alternatives: int | None = None
    within: float | None = None
    all_budgets: bool = False
    target: float | None = None
    memory: float | None = None

    def __post_init__(self) -> None:
        if self.within is not None and not 0 < self.within < math.inf:
            raise typer.BadParameter(f"--within {self.within}: give a positive number.")
        if self.target is not None and not math.isfinite(self.target):
            raise typer.BadParameter(f"--target {self.target}: give a finite number.")
        name = self._decided()
        for option, solvers in self._given().items():
            if name not in solvers:
                reason = ", which another option asks for" if self.name is SolverName.AUTO else ""
                raise typer.BadParameter(f"{option} means nothing to the solver {name.value}{reason}.")
        if self.samples is not None and self.anchors is not None:
            raise typer.BadParameter("--samples and --anchors exclude each other.")
        if self.strategy is Strategy.FACILITY and self.samples is not None:
            raise typer.BadParameter("facility location takes --anchors, not --samples.")

    def _given(self) -> dict[str, tuple[SolverName, ...]]:
        """The options given that not every solver knows, and those that do."""
        astar, branch = (SolverName.ANCHOR_ASTAR,), (SolverName.BRANCH_AND_BOUND,)
        options = {
            "--alternatives": (self.alternatives is not None, branch),
            "--within": (self.within is not None, branch),
            "--all-budgets": (self.all_budgets, branch),
            "--target": (self.target is not None, branch),
            "--memory": (self.memory is not None, branch),
            "--samples": (self.samples is not None, (*astar, SolverName.RANDOM)),
            "--anchors": (self.anchors is not None, astar),
            "--anchor-strategy": (self.strategy is not None, astar),
            "--shared-anchors": (self.shared, astar),
        }
        return {option: solvers for option, (is_given, solvers) in options.items() if is_given}

    def _decided(self) -> SolverName:
        """The solver asked for, or the first one that the first option given means something to."""
        if self.name is not SolverName.AUTO:
            return self.name
        return next((solvers[0] for solvers in self._given().values()), SolverName.BRANCH_AND_BOUND)

    def build(self, cohort: Cohort) -> Solver:
        """The solver; facility location chooses its anchors among the cohort's states."""
        from ifonly.search.astar import AnchorAStar
        from ifonly.search.branch_and_bound import BranchAndBound
        from ifonly.search.exhaustive import Exhaustive
        from ifonly.search.heuristics import Beam, Greedy, RandomSearch, TopSingleChanges

        match self._decided():
            case SolverName.ANCHOR_ASTAR:
                return AnchorAStar(anchors=self._anchors(cohort), shared=self.shared, seed=self.seed)
            case SolverName.EXHAUSTIVE:
                return Exhaustive()
            case SolverName.GREEDY:
                return Greedy()
            case SolverName.BEAM:
                return Beam()
            case SolverName.TOP:
                return TopSingleChanges()
            case SolverName.RANDOM:
                return RandomSearch(samples=self.samples or SAMPLES, seed=self.seed)
            case _:
                return BranchAndBound(alternatives=self.alternatives or 1, within=self.within or 0.0)

    def _anchors(self, cohort: Cohort) -> AnchorStrategy:
        from ifonly.bounds.anchors import FacilityLocation, MonteCarlo

        if self.strategy is Strategy.FACILITY:
            return FacilityLocation(size=self.anchors or SAMPLES, pool=cohort.states)
        weighting: Literal["uniform", "lipschitz"] = "uniform" if self.strategy is Strategy.UNIFORM else "lipschitz"
        if self.anchors is not None:
            return MonteCarlo(samples=None, size=self.anchors, weighting=weighting)
        return MonteCarlo(samples=self.samples or SAMPLES, weighting=weighting)
