"""The units of work: each says all that its numbers depend on, so that the same one is never measured twice."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar, Literal

from ifonly.bounds.anchors import AnchorStrategy, MonteCarlo
from ifonly.data.scaling import Scaler
from ifonly.models.fit import evaluate, fit
from ifonly.models.location_scale import LocationScale
from ifonly.problem import Problem
from ifonly.runs.rows import clipped_outcomes
from ifonly.search.astar import AnchorAStar
from ifonly.search.base import Limits as SearchLimits
from ifonly.search.base import Solver
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.heuristics import Beam, Greedy, RandomSearch, TopSingleChanges
from ifonly.search.result import Result, Status, effective_branching_factor
from ifonly.search.solve import solve
from ifonly.testing.instances import random_problem
from paper.facility import facility_anchors
from paper.laboratory import Laboratory, Limits

Row = dict[str, Any]
"""Plain types, as JSON has them."""

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
class Cell(ABC):
    """Work that depends on no other; subclasses are frozen settings."""

    kind: ClassVar[str]

    @property
    def key(self) -> str:
        """What tells this cell from any other of the same folder."""
        return json.dumps([self.kind, asdict(self)], sort_keys=True)

    @abstractmethod
    def measure(self, laboratory: Laboratory) -> Row:
        """Do the work."""


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

    def measure(self, laboratory: Laboratory) -> Row:
        """Solve; Ctrl-C ends the whole run, since an answer cut short by it is no measurement."""
        _warm_up(self.device)
        model = laboratory.load_model(self.limits, self.device)
        problem = Problem.from_episode(
            laboratory.cohort()[self.episode], model, laboratory.reward, self.max_changes, device=self.device
        )
        result = solve(problem, self._solver(laboratory), limits=SearchLimits(seconds=self.seconds))
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return _row(problem, result)

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


def _row(problem: Problem, result: Result) -> Row:
    observed, found = clipped_outcomes(problem, [result.observed_actions, result.actions])
    stats, horizon = result.stats, len(result.actions)
    certain = result.certificate.details.get("visited_at_least")
    known = stats.nodes_visited is not None
    at_least = None if certain is None else effective_branching_factor(certain, horizon) or 1.0
    return {
        "status": result.status.value,
        "reason": None,
        "outcome": result.outcome,
        "upper_bound": result.to_dict()["upper_bound"],
        "observed_outcome": result.observed_outcome,
        "clipped_outcome": found,
        "observed_clipped_outcome": observed,
        "changes": len(result.changes),
        "nodes": stats.nodes_expanded,
        "visited": stats.nodes_visited if known else certain,
        "branching_factor": stats.effective_branching_factor if known else at_least,
        "seconds": stats.seconds,
        "seconds_bounds": stats.seconds_bounds,
    }


@cache
def _warm_up(device: str) -> None:
    """What torch loads on first use belongs to no patient's time."""
    drawn = random_problem(
        0,
        model_kind=LocationScale.kind,
        horizon=4,
        max_changes=1,
        constrained=True,
        masked=False,
        rules=False,
        reward_kind="linear",
    )
    problem = Problem.from_episode(drawn.episode, drawn.model, drawn.reward, drawn.max_changes, device=device)
    for solver in (BranchAndBound(), AnchorAStar(anchors=MonteCarlo(samples=20))):
        solve(problem, solver)


@dataclass(frozen=True)
class FoldCell(Cell):
    """The log-likelihood of one fold under a model fitted to the others."""

    limits: Limits | None
    """None: unconstrained."""
    fold: int
    folds: int

    kind: ClassVar[str] = "fold"

    def measure(self, laboratory: Laboratory) -> Row:
        """Fit and evaluate, as `ifonly.cross_validate` does."""
        started = time.perf_counter()
        conditions, cohort = laboratory.conditions, laboratory.cohort()
        train, held_out = cohort.folds(self.folds, seed=conditions.seed)[self.fold]
        model = LocationScale(cohort.schema, hidden=conditions.hidden, lipschitz=self.limits)
        fitted = fit(model, train, settings=laboratory.fit_settings(), seed=conditions.seed + self.fold)
        value = evaluate(fitted, held_out, coordinates=Scaler.fit(cohort))
        return {
            "status": "done",
            "reason": None,
            "log_likelihood": value,
            "seconds": time.perf_counter() - started,
        }
