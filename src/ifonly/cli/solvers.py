"""Which solver a command line asks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

import typer

if TYPE_CHECKING:
    from ifonly.bounds.anchors import AnchorStrategy
    from ifonly.episodes.cohort import Cohort
    from ifonly.search.base import Solver

SAMPLES = 2000
"""Random sequences whose states become anchors, as in the paper's experiments; also the random baseline's."""


class SolverName(StrEnum):
    """The solvers."""

    ANCHOR_ASTAR = "anchor-astar"
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

    name: SolverName
    samples: int | None
    anchors: int | None
    strategy: Strategy | None
    shared: bool
    seed: int

    def __post_init__(self) -> None:
        given = {
            "--samples": self.samples is not None and self.name is not SolverName.RANDOM,
            "--anchors": self.anchors is not None,
            "--anchor-strategy": self.strategy is not None,
            "--shared-anchors": self.shared,
        }
        for option, is_given in given.items():
            if is_given and self.name is not SolverName.ANCHOR_ASTAR:
                raise typer.BadParameter(f"{option} means nothing to the solver {self.name.value}.")
        if self.samples is not None and self.anchors is not None:
            raise typer.BadParameter("--samples and --anchors exclude each other.")
        if self.strategy is Strategy.FACILITY and self.samples is not None:
            raise typer.BadParameter("facility location takes --anchors, not --samples.")

    def build(self, cohort: Cohort) -> Solver:
        """The solver; facility location chooses its anchors among the cohort's states."""
        from ifonly.search.astar import AnchorAStar
        from ifonly.search.baselines import Beam, Greedy, RandomSearch, TopSingleChanges
        from ifonly.search.exhaustive import Exhaustive

        match self.name:
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

    def _anchors(self, cohort: Cohort) -> AnchorStrategy:
        from ifonly.bounds.anchors import FacilityLocation, MonteCarlo

        if self.strategy is Strategy.FACILITY:
            return FacilityLocation(size=self.anchors or SAMPLES, pool=cohort.states)
        weighting: Literal["uniform", "lipschitz"] = "uniform" if self.strategy is Strategy.UNIFORM else "lipschitz"
        if self.anchors is not None:
            return MonteCarlo(samples=None, size=self.anchors, weighting=weighting)
        return MonteCarlo(samples=self.samples or SAMPLES, weighting=weighting)
