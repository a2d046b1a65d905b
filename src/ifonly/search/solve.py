"""The one verb: `solve(problem, solver) -> Result`."""

from __future__ import annotations

import torch
from torch import Tensor

from ifonly.problem import Problem
from ifonly.progress import Progress, silent
from ifonly.search.astar import AnchorAStar
from ifonly.search.base import Limits, Monitor, Solver, outcome_tolerance
from ifonly.search.result import Result, make_result


def solve(
    problem: Problem,
    solver: Solver | None = None,
    *,
    limits: Limits | None = None,
    progress: Progress = silent,
) -> Result:
    """The best action sequence that `solver` finds, with everything that is known about how good it is.

    Interrupting (Ctrl-C) a solver that keeps a bracket returns the bracket found so far.
    """
    solver = solver or AnchorAStar()
    with torch.no_grad():
        observed_outcome = problem.outcome(problem.observed_actions)
        monitor = Monitor(limits or Limits(), progress, outcome_tolerance(observed_outcome))
        finding = solver.search(problem, monitor)
        actions = without_idle_changes(problem, finding.actions)
        seconds = monitor.elapsed()
        return make_result(
            problem,
            actions=actions,
            status=finding.status,
            upper_bound=finding.upper_bound,
            certificate=finding.certificate,
            stats=monitor.stats.finished(seconds, problem.horizon),
            solver={"name": solver.name, **solver.settings()},
        )


def without_idle_changes(problem: Problem, actions: Tensor) -> Tensor:
    """The sequence [T] with every change undone whose undoing costs nothing: no pointless advice."""
    while True:
        changed = (actions != problem.observed_actions).nonzero().squeeze(-1)
        if not len(changed):
            return actions
        trials = actions.repeat(len(changed) + 1, 1)
        trials[torch.arange(len(changed)), changed] = problem.observed_actions[changed]
        outcomes = problem.rollout(trials)[1]
        best = int(outcomes[:-1].argmax())
        if outcomes[best] < outcomes[-1]:
            return actions
        actions = trials[best]
