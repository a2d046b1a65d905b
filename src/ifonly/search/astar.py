"""The paper's search: A* (alg:astar) led by the Lipschitz anchor bound."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ifonly.bounds.anchors import AnchorStrategy, MonteCarlo, observed_anchors
from ifonly.bounds.base import unknown_as_infinite
from ifonly.bounds.lipschitz import AnchorBound, value_constants
from ifonly.data.episode import FloatArray, IntArray
from ifonly.errors import InputError
from ifonly.problem import BaseProblem, Problem
from ifonly.rewards import declared_constants
from ifonly.search.base import Monitor, Solution, Solver
from ifonly.search.baselines import greedy_actions
from ifonly.search.frontier import Batch, Frontier
from ifonly.search.result import Certificate, Status


@dataclass(frozen=True)
class AnchorAStar(Solver):
    """A* with the paper's heuristic; exact, with a certificate.

    `anchors` chooses the anchor set, one per step; `shared` puts all of them at every step, as the paper does
    (much slower, hardly tighter). `batch` nodes are expanded at a time; it does not change the answer.

    A child enters the queue with the bound that its parent's heuristic was computed from, and gets its own, tighter
    heuristic only when it comes up. That visits the same nodes as evaluating every child at once, for a fraction of
    the work. `nodes_expanded` counts the nodes that came up; `nodes_visited` those that textbook A* visits.
    """

    anchors: AnchorStrategy = field(default_factory=MonteCarlo)
    shared: bool = False
    seed: int = 0
    batch: int = 1024

    name: ClassVar[str] = "anchor-astar"
    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InputError(f"batch={self.batch}: at least one node at a time.")

    def search(self, problem: BaseProblem, monitor: Monitor) -> Solution:
        """Build the bound, then search best-first until the bound meets the incumbent."""
        if not isinstance(problem, Problem):
            raise InputError(
                f"episode {problem.episode.id!r}: {self.name} answers for one model, not for a panel of them; "
                "BranchAndBound and Exhaustive can, with proof, and the heuristics can, without."
            )
        if problem.is_restricted:
            raise InputError(
                f"episode {problem.episode.id!r}: {self.name} cannot keep rules about consecutive doses (max_jump) or "
                "required changes; BranchAndBound and Exhaustive can, with proof, and the heuristics can, without."
            )
        return _Search(self, problem, monitor).run()


class _Stop(Exception):  # noqa: N818 - not an error: carries a limit out of nested loops
    def __init__(self, status: Status) -> None:
        self.status = status


class _Search:
    """One run: the incumbent, the proven upper bound, and the open nodes."""

    def __init__(self, settings: AnchorAStar, problem: Problem, monitor: Monitor) -> None:
        self.settings = settings
        self.problem = problem
        self.monitor = monitor
        self.actions = problem.observed_actions
        self.incumbent = problem.observed_outcome
        self.upper_bound = math.inf
        self.bound: AnchorBound | None = None
        self.frontier = Frontier(problem.noise.shape[1])
        self.expanded_bounds: list[FloatArray] = []

    def run(self) -> Solution:
        """Search; a limit or Ctrl-C at any moment leaves a valid bracket."""
        try:
            status = self._search()
        except _Stop as stop:
            status = stop.status
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        details = {} if status is Status.OPTIMAL else {"visited_at_least": self._count_certain_visits()}
        return Solution(self.actions, status, self.upper_bound, self._certificate(details))

    def _search(self) -> Status:
        constants = self._first_bracket()
        self._stop_at_limit()
        self.bound = self._make_bound(constants)
        key = np.array([self._evaluate_root(self.bound)])
        nothing, zero = np.array([-1]), np.array([0])
        root = self.problem.observed_states[:1].cpu().numpy()
        self.frontier.add(0, Batch(root, np.array([0.0]), zero, key, parents=nothing, actions=nothing))
        while True:
            self.upper_bound = min(self.upper_bound, max(self.frontier.top(), self.incumbent))
            status = self.monitor.stop(self.incumbent, self.upper_bound)
            if status is Status.OPTIMAL:
                self.monitor.stats.nodes_visited = self._count_visits(self.bound)
            if status is not None:
                return status
            self._expand(self.frontier.pop(self._batch(), self.incumbent + self.monitor.tolerance))

    def _batch(self) -> int:
        """Nodes to expand at a time, no more than a limit leaves."""
        limit = self.monitor.limits.nodes
        left = math.inf if limit is None else limit - self.monitor.stats.nodes_expanded
        return int(min(self.settings.batch, left))

    def _first_bracket(self) -> Tensor:
        """Something to return at once: a bound from the observed states alone, and greedy's sequence."""
        with self._timed_as_bounds():
            constants = value_constants(self.problem)
            self.bound = AnchorBound(self.problem, observed_anchors(self.problem), constants)
            self.upper_bound = max(self._evaluate_root(self.bound), self.incumbent)
        limit = self.monitor.limits.seconds
        seconds = None if limit is None else max(0.0, limit - self.monitor.elapsed())
        self.actions, self.incumbent = greedy_actions(self.problem, seconds=seconds)
        self.upper_bound = max(self.upper_bound, self.incumbent)
        return constants

    def _make_bound(self, constants: Tensor) -> AnchorBound:
        problem, settings = self.problem, self.settings
        with self._timed_as_bounds():
            generator = torch.Generator().manual_seed(settings.seed)
            anchors = settings.anchors.choose(problem, constants, generator)
            anchors = anchors.shared() if settings.shared else anchors
            self.monitor.stats.model_steps += anchors.total * problem.action_count
            return AnchorBound(
                problem, anchors, constants, progress=self.monitor.progress, on_block=self._stop_at_limit
            )

    @contextmanager
    def _timed_as_bounds(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.monitor.stats.seconds_bounds += time.perf_counter() - start

    def _evaluate_root(self, bound: AnchorBound) -> float:
        zero = torch.zeros(1, dtype=torch.int64, device=self.problem.device)
        return float(bound(0, self.problem.observed_states[:1], zero))

    def _stop_at_limit(self) -> None:
        status = self.monitor.limit_reached()
        if status is not None:
            raise _Stop(status)

    def _expand(self, indices: IntArray) -> None:
        """Generate the children of closed nodes, group by group: one step, one number of changes used."""
        groups = self.frontier.columns[indices, :2]
        for step, used in np.unique(groups, axis=0):
            self._expand_group(int(step), int(used), indices[(groups == (step, used)).all(1)])
        self.monitor.stats.nodes_expanded += len(indices)

    def _expand_group(self, step: int, used: int, group: IntArray) -> None:
        problem = self.problem
        assert self.bound is not None
        states = torch.as_tensor(self.frontier.states[group], device=problem.device)
        earned = torch.as_tensor(self.frontier.rewards[group], device=problem.device).unsqueeze(1)
        children = self.bound.children(step, states, used)
        keys = unknown_as_infinite(earned + children.bounds)
        self.expanded_bounds.append(keys.amax(1).cpu().numpy())
        self.monitor.stats.model_steps += keys.numel()
        self.monitor.stats.nodes_generated += keys.numel()
        if problem.support is not None and len(children.actions) > 1:
            context = problem.context[step].expand(len(states), -1)
            supported = problem.are_supported(step, states, context)[:, children.actions]
            supported[:, 0] = True  # the observed action comes first
            keys = keys.masked_fill(~supported, -torch.inf)
        rows, columns = (keys > self.incumbent + self.monitor.tolerance).nonzero(as_tuple=True)
        if not len(rows):
            return
        batch = Batch(
            states=children.states[rows, columns].cpu().numpy(),
            rewards=(earned + children.rewards)[rows, columns].cpu().numpy(),
            changes=used + (columns > 0).long().cpu().numpy(),
            keys=keys[rows, columns].cpu().numpy(),
            parents=group[rows.cpu().numpy()],
            actions=children.actions[columns].cpu().numpy(),
        )
        if step + 1 == problem.horizon - 1:
            self._complete(batch)
        else:
            self.frontier.add(step + 1, batch)

    def _complete(self, batch: Batch) -> None:
        """Children at the last step need no heuristic: their best last action is known, and may be a new incumbent."""
        problem = self.problem
        states = torch.as_tensor(batch.states, device=problem.device)
        used = torch.as_tensor(batch.changes, device=problem.device)
        rewards = _last_rewards(problem, states, used)
        outcomes = torch.as_tensor(batch.rewards) + rewards.amax(1).cpu()
        problem.require_finite(outcomes)
        best = int(outcomes.argmax())
        if outcomes[best] <= self.incumbent:
            return
        observed = int(problem.observed_actions[-1])
        last = observed if rewards[best, observed] >= rewards[best].max() else int(rewards[best].argmax())
        path = [*self.frontier.path(int(batch.parents[best])), int(batch.actions[best]), last]
        self.actions = torch.tensor(path, device=problem.device)
        self.incumbent = float(outcomes[best])

    def _count_visits(self, bound: AnchorBound) -> int:
        """How many nodes textbook A* visits: those whose heuristic value exceeds the optimum, and the optimal path.

        It evaluates nodes before they are queued, so those found out to be hopeless when they came up do not count.
        """
        problem = self.problem
        threshold = self.incumbent + self.monitor.tolerance
        visited = sum(int((values > threshold).sum()) for values in self.expanded_bounds)
        states, _ = problem.rollout(self.actions.unsqueeze(0))
        changed = (self.actions != problem.observed_actions).long()
        used = changed.cumsum(0) - changed
        earned, on_path = 0.0, 2  # the node at the last step, and the goal
        for t in range(problem.horizon - 1):
            value = earned + float(bound(t, states[0, t : t + 1], used[t : t + 1]))
            on_path += value <= threshold
            earned += float(problem.rewards(t, states[0, t], self.actions[t]))
        return visited + on_path

    def _count_certain_visits(self) -> int:
        """How many nodes textbook A* visits at least: whatever the optimum is, these exceed it."""
        return sum(int((values > self.upper_bound).sum()) for values in self.expanded_bounds)

    def _certificate(self, further: Mapping[str, Any]) -> Certificate:
        details: dict[str, Any] = {**({} if self.bound is None else self.bound.details()), **further}
        declared = declared_constants(self.problem.reward)
        if declared:
            details["relies_on_declared_constants_of"] = declared
        return Certificate(
            method=AnchorBound.method,
            proven=math.isfinite(self.upper_bound),
            tolerance=self.monitor.tolerance,
            details=details,
        )


def _last_rewards(problem: Problem, states: Tensor, used: Tensor) -> Tensor:
    """Rewards [N, A] of the last step's actions after `used` [N] changes; minus infinity where one may not be taken."""
    t = problem.horizon - 1
    options = problem.allowed[t] & (used < problem.max_changes).unsqueeze(1)
    if problem.support is not None:
        options &= problem.are_supported(t, states, problem.context[t].expand(len(states), -1))
    options[:, problem.observed_actions[t]] = True
    return problem.rewards_all(t, states).masked_fill(~options, -torch.inf)
