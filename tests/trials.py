"""Random small problems of every kind, each solved and compared with enumeration; a seed says all about its problem."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ifonly.bounds.taylor import can_expand
from ifonly.errors import IfonlyError, InputError
from ifonly.models.recipes import RECIPES
from ifonly.problem import BaseProblem, Problem
from ifonly.proofs import check_proof
from ifonly.result import Result, Status
from ifonly.search.astar import AnchorAStar
from ifonly.search.base import Solver
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import outcome_frontier
from ifonly.search.solve import solve
from ifonly.testing.instances import MODEL_KINDS, REWARD_KINDS, random_ensemble, random_problem

SLACK = 10
"""Outcomes computed twice may differ by this many tolerances."""
RELATIVE = 1e-12
"""And by this share of themselves: on logarithmic scales outcomes reach sizes beyond anything recorded (R4)."""


def drawn_settings(rng: np.random.Generator) -> dict[str, Any]:
    """Settings of a random problem: every kind of model, recipe, reward, scaling, rule and budget comes up."""

    def pick(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    return {
        "model_kind": pick(*MODEL_KINDS),
        "recipe": pick(*[None] * len(RECIPES), *RECIPES),
        "reward_kind": pick(*REWARD_KINDS),
        "horizon": int(rng.integers(2, 6)),
        "actions": int(rng.integers(1, 5)),
        "state_size": int(rng.integers(1, 4)),
        "context_size": int(rng.integers(3)),
        "max_changes": pick(0, 1, 2, 3, 4, None),
        "rules": pick(None, True),
        "constrained": pick(None, True, False),
        "strength": pick(0.5, 1.0, 2.0, 4.0),
        "hidden": pick((6,), (3,), (5, 4)),
        "scaling": pick("linear", "bounded", "log", "mixed"),
        "residual": pick("none", "identity", "diagonal", None),
    }


@dataclass(frozen=True)
class Trial:
    """What became of one seed: what was drawn, whether its log was checked, and what was wrong, one sentence each."""

    seed: int
    drawn: dict[str, str]
    """What the problem was made of: kind of model or recipe, reward, budget, rules, scaling."""
    logged: bool
    findings: tuple[str, ...]


def trial(seed: int) -> Trial:
    """Draw the problem of a seed, solve it in every exact way, and compare with enumeration; a crash is a finding."""
    problem = None
    try:
        problem = drawn_problem(seed)
        found = [] if problem is None else disagreements(problem, seed)
        logged, refused = (False, []) if problem is None else _log_refused(problem, seed)
        found += refused
    except Exception as error:
        logged, found = False, [f"{type(error).__name__}: {error}"]
    return Trial(seed, {} if problem is None else _described(seed, problem), logged, tuple(found))


def _described(seed: int, problem: BaseProblem) -> dict[str, str]:
    settings = drawn_settings(np.random.default_rng([seed, 2]))
    ruled = problem.is_restricted or not bool(problem.allowed.all())
    return {
        "model": "ensemble" if len(problem.models) > 1 else str(problem.models[0].kind),
        "recipe": str(settings["recipe"] or "none"),
        "reward": settings["reward_kind"],
        "budget": "any" if settings["max_changes"] is None else str(settings["max_changes"]),
        "rules": "some" if ruled else "none",
        "scaling": settings["scaling"],
    }


def drawn_problem(seed: int) -> BaseProblem | None:
    """The problem of a seed, an ensemble's now and then; None where no such model leads to finite outcomes."""
    rng = np.random.default_rng([seed, 2])
    settings = drawn_settings(rng)
    try:
        if rng.random() < 0.1:
            goal = (0.5, "mean", "worst")[int(rng.integers(3))]
            return random_ensemble(seed, members=2, objective=goal, **settings)
        return random_problem(seed, **settings)
    except InputError:
        return None


def _log_refused(problem: BaseProblem, seed: int) -> tuple[bool, list[str]]:
    """Whether a log of the search could be written, and why its checker refused it."""
    solver = solvers_for(problem, seed)[seed % 2]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.npz"
        try:
            solve(problem, solver, proof=path)
        except InputError:  # no log can hold such a problem, and the refusal says why
            return False, []
        try:
            found = check_proof(path)
        except IfonlyError as error:
            return True, [f"{solver!r}: its log is refused: {error}"]
    return True, [] if found.complete else [f"{solver!r}: cuts of its log rest on the search's word"]


def solvers_for(problem: BaseProblem, seed: int) -> list[Solver]:
    """Exact solvers that this problem admits, with settings that the seed chooses."""
    rng = np.random.default_rng([seed, 3])
    batch, more = int(rng.integers(1, 9)), int(rng.integers(1, 4))
    found: list[Solver] = [BranchAndBound(batch=batch, alternatives=more), BranchAndBound(batch=batch, bound="none")]
    if isinstance(problem, Problem):
        if can_expand(problem):
            found.append(BranchAndBound(batch=batch, bound="taylor"))
        if np.isfinite(problem.bound_reward.lipschitz.numpy()).all():
            found.append(BranchAndBound(batch=batch, bound="lipschitz"))
            found.append(AnchorAStar())
    return found


def disagreements(problem: BaseProblem, seed: int) -> list[str]:
    """What solvers say of a problem that enumeration does not, one sentence each."""
    truth = outcome_frontier(problem).tolist()
    overflows = not truth[-1] < math.inf  # then every solver is to refuse the problem
    found = []
    for solver in solvers_for(problem, seed):
        try:
            result = solve(problem, solver)
        except InputError:
            if overflows:
                continue
            raise
        wrong = ["an infinite outcome is passed over"] if overflows else _differences(problem, result, truth)
        found += [f"{solver!r}: {text}" for text in wrong]
    return found


def _differences(problem: BaseProblem, result: Result, truth: list[float]) -> list[str]:
    found = []

    def apart(value: float, best: float) -> bool:
        return value != best and not abs(value - best) <= SLACK * problem.tolerance + RELATIVE * abs(best)

    if result.status is not Status.OPTIMAL:
        found.append(f"status {result.status.value!r}")
    if apart(result.outcome, truth[-1]):
        found.append(f"outcome {result.outcome:.12g}; the optimum is {truth[-1]:.12g}")
    if not bool(problem.admissible(torch.as_tensor(result.actions).unsqueeze(0)).all()):
        found.append("its sequence breaks the rules")
    for budget, best in zip(result.frontier, truth, strict=bool(result.frontier)):
        outcome = -math.inf if budget.outcome is None else budget.outcome
        for name, value in (("outcome", outcome), ("bound", budget.upper_bound)):
            if apart(value, best):
                found.append(f"{name} of budget {budget.max_changes} is {value:.12g}; the best is {best:.12g}")
    return found
