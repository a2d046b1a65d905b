"""The same problem again and again, under changing rules: what was computed once is kept."""

from __future__ import annotations

import torch
from torch import Tensor

from ifonly.bounds.base import ChildBound
from ifonly.constraints import Constraints
from ifonly.errors import InputError
from ifonly.problem import BaseProblem
from ifonly.progress import Progress, silent
from ifonly.query import Limits
from ifonly.result import Result
from ifonly.search.base import Monitor, Solver
from ifonly.search.branch_and_bound import BranchAndBound, branch_and_bound
from ifonly.search.solve import result_of
from ifonly.search.solvers import make_solver


class Session:
    """One problem (or ensemble), solved under one set of rules after another, as in a conversation with an expert.

    The bound is built once, without rules: it stays valid since rules only remove sequences. Every good sequence found
    is remembered, and those that the current rules admit are where a search starts. The answers are those of `solve`.

    >>> from ifonly.testing.instances import random_problem
    >>> session = Session(random_problem(7, model_kind="linear", horizon=4))
    >>> first = session.solve()
    >>> second = session.lock(first.changes[0].step)
    >>> second.actions[first.changes[0].step] == first.observed_actions[first.changes[0].step]
    np.True_
    >>> second.outcome <= first.outcome
    True
    """

    def __init__(self, problem: BaseProblem, solver: Solver | None = None) -> None:
        """The solver is the query's unless another is given; only branch and bound keeps what it computed."""
        solver = make_solver(problem.query.solver) if solver is None else solver
        if not isinstance(solver, BranchAndBound):
            raise InputError(f"session: {solver!r} keeps nothing for the next question; pass BranchAndBound(...).")
        self.solver = solver
        self.problem = problem
        """The problem under its current rules."""
        self._unruled = problem.with_constraints(Constraints())
        self._bound: ChildBound | None = None
        self._known: Tensor | None = None

    @property
    def constraints(self) -> Constraints:
        """The current rules."""
        return self.problem.constraints

    def solve(
        self,
        constraints: Constraints | None = None,
        *,
        limits: Limits | None = None,
        progress: Progress = silent,
    ) -> Result:
        """The answer under `constraints`, which become the current rules; None keeps those there are.

        Rules that leave no sequence, or none with a finite outcome, are refused and change nothing.
        """
        problem = self.problem if constraints is None else self.problem.with_constraints(constraints)
        with torch.no_grad():
            monitor = Monitor(problem.query.limits if limits is None else limits, progress, problem.tolerance)
            (solution,), tree = branch_and_bound(
                self.solver, [problem], monitor, bound=self._bound, bounded=[self._unruled], known=self._known
            )
            result = result_of(problem, self.solver, solution, monitor)
            self._bound = tree.bound
        self.problem = problem
        self._remember(result)
        return result

    def lock(self, step: int) -> Result:
        """The answer when the recorded action of `step` must stay, too."""
        return self.solve(self.constraints.locking(step))

    def forbid(self, step: int | None, action: int | str) -> Result:
        """The answer when `action` may not be changed to at `step` (None: at every step), too."""
        return self.solve(self.constraints.forbidding(step, action))

    def require(self, step: int, action: int | str) -> Result:
        """The answer when `action` is taken at `step`, too."""
        return self.solve(self.constraints.requiring(step, action))

    def reset(self) -> Result:
        """The answer without rules."""
        return self.solve(Constraints())

    def _remember(self, result: Result) -> None:
        found = [budget.actions for budget in result.frontier if budget.actions is not None]
        found += [alternative.actions for alternative in result.alternatives]
        if not found:
            return
        rows = torch.stack([torch.tensor(actions, device=self.problem.device) for actions in found])
        whole = rows if self._known is None else torch.cat([self._known, rows])
        self._known = whole.unique(dim=0)
