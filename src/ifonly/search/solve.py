"""The one verb: `solve(problem, solver) -> Result`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from ifonly.errors import InputError
from ifonly.files import check_writable
from ifonly.problem import BaseProblem
from ifonly.problem.batch import drop_idle_changes
from ifonly.progress import Progress, silent
from ifonly.query import Limits
from ifonly.result import Result
from ifonly.search.base import Monitor, Solution, Solver
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.build_result import build_result, provenance_of
from ifonly.search.proof import ProofLog
from ifonly.search.solvers import make_solver


def solve(
    problem: BaseProblem,
    solver: Solver | None = None,
    *,
    limits: Limits | None = None,
    progress: Progress = silent,
    proof: str | Path | None = None,
) -> Result:
    """The best action sequence that `solver` finds, with all that is known about how good it is.

    Solver and limits are those of the problem's query unless others are given.

    `problem` is a `Problem`, or a `EnsembleProblem`: then one sequence for all of its members.
    `proof` names a file for a log of the search, from which `ifonly.check_proof` checks the proof by arithmetic of its
    own: of one model that is linear, additive or location-scale, by branch and bound.
    Interrupting (Ctrl-C) a solver that keeps a bracket returns the bracket found so far.
    """
    solver = make_solver(problem.query.solver) if solver is None else solver
    if not isinstance(solver, Solver):
        raise InputError(f"solve: {solver!r} is not a solver; pass one with its settings, such as Exhaustive().")
    with torch.no_grad():
        monitor = Monitor(
            problem.query.limits if limits is None else limits,
            progress,
            problem.tolerance,
            proof=None if proof is None else _proof_log(problem, solver, proof),
        )
        finding = solver.search(problem, monitor)
        result = result_of(problem, solver, finding, monitor)
        if proof is not None and monitor.proof is not None:
            monitor.proof.write(proof, result)
        return result


def _proof_log(problem: BaseProblem, solver: Solver, path: str | Path) -> ProofLog:
    """Where the search tells what it does; what could not be checked or written is refused before it begins."""
    if not isinstance(solver, BranchAndBound):
        raise InputError(f"solve: a log for a check of the proof is kept by branch and bound, not by {solver.name}.")
    check_writable(path)
    return ProofLog(problem)


def result_of(problem: BaseProblem, solver: Solver, finding: Solution, monitor: Monitor) -> Result:
    """What `solver` found for `problem`, as a result; `monitor` watched it."""
    if not finding.frontier:  # a frontier is without idle changes already
        only, whole = finding.actions.new_zeros(1), finding.actions.unsqueeze(0)
        kept, _ = drop_idle_changes(problem.as_batch, only, whole, tolerance=monitor.tolerance)
        finding = replace(finding, actions=kept[0])
    result = build_result(
        problem,
        finding,
        stats=monitor.stats.finished(monitor.elapsed(), problem.horizon),
        provenance=provenance_of(asked(problem, monitor.limits), solver),
    )
    with suppress(KeyboardInterrupt):  # too late: the answer is there
        monitor.close(result.outcome, result.upper_bound)
    return result


def asked(problem: BaseProblem, limits: Limits) -> BaseProblem:
    """The problem with the limits that were in force in its query."""
    return problem if problem.query.limits == limits else problem.with_query(limits=limits)
