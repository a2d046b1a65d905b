"""The paper's search: A* (alg:astar) led by the Lipschitz anchor bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ifonly.bounds.anchors import AnchorStrategy, MonteCarlo, observed_anchors
from ifonly.bounds.lipschitz import AnchorBound, last_step_values, unknown_as_infinite, value_constants
from ifonly.episodes.episode import FloatArray, IntArray
from ifonly.errors import InputError
from ifonly.problem import Problem
from ifonly.search.base import Finding, Monitor, Solver
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
    the work. `nodes_expanded` counts what textbook A* visits: nodes whose heuristic value exceeds the optimum, and
    those of the optimal path.
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

    def search(self, problem: Problem, monitor: Monitor) -> Finding:
        """Build the bound, then search best-first until the bound meets the incumbent."""
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
        self.actions, self.incumbent = greedy_actions(problem)
        self.upper_bound = math.inf
        self.constants = value_constants(problem)
        resolution = monitor.tolerance / (problem.horizon * (1 + float(self.constants[0])) * problem.noise.shape[1])
        self.frontier = Frontier(problem.noise.shape[1], resolution)
        self.expanded_bounds: list[FloatArray] = []
        self.expanded_children: list[IntArray] = []
        self.bound: AnchorBound | None = None

    def run(self) -> Finding:
        """Search; a limit or Ctrl-C at any moment leaves a valid bracket."""
        try:
            status = self._search()
        except _Stop as stop:
            status = stop.status
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        return Finding(self.actions, status, self.upper_bound, self._certificate())

    def _search(self) -> Status:
        self.bound = self._make_bound()
        root = self.problem.observed_states[:1]
        key = self._evaluate_root(self.bound)
        self.upper_bound = min(self.upper_bound, max(key, self.incumbent))
        nothing = np.array([-1])
        zero = np.array([0])
        self.frontier.add(
            0, Batch(root.cpu().numpy(), np.array([0.0]), zero, np.array([key]), parents=nothing, actions=nothing)
        )
        while True:
            self.upper_bound = min(self.upper_bound, max(self.frontier.top(), self.incumbent))
            status = self.monitor.stop(self.incumbent, self.upper_bound)
            if status is Status.OPTIMAL:
                self._count_visits()
            if status is not None:
                return status
            self._expand(self.frontier.pop(self.settings.batch, self.incumbent + self.monitor.tolerance))

    def _make_bound(self) -> AnchorBound:
        """First a bound from the observed states alone, to have a bracket at once; then the full table."""
        problem, settings = self.problem, self.settings
        quick = AnchorBound(problem, observed_anchors(problem), self.constants)
        self.upper_bound = max(self._evaluate_root(quick), self.incumbent)
        self.bound = quick
        generator = torch.Generator().manual_seed(settings.seed)
        anchors = settings.anchors.choose(problem, self.constants, generator)
        anchors = anchors.shared() if settings.shared else anchors
        bound = AnchorBound(
            problem, anchors, self.constants, progress=self.monitor.progress, on_block=self._stop_at_limit
        )
        self.monitor.stats.model_steps += anchors.total * problem.action_count
        self.monitor.stats.seconds_bounds = self.monitor.elapsed()
        return bound

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
        self.expanded_children.append(np.full(len(group), len(children.actions)))
        self.monitor.stats.model_steps += keys.numel()
        self.monitor.stats.nodes_generated += keys.numel()
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
        values = last_step_values(problem, states).gather(0, used.unsqueeze(0)).squeeze(0)
        outcomes = torch.as_tensor(batch.rewards) + values.cpu()
        problem.require_finite(outcomes)
        best = int(outcomes.argmax())
        if outcomes[best] <= self.incumbent:
            return
        last = _best_last_action(problem, states[best], int(used[best]))
        path = [*self.frontier.path(int(batch.parents[best])), int(batch.actions[best]), last]
        self.actions = torch.tensor(path, device=problem.device)
        self.incumbent = float(outcomes[best])

    def _count_visits(self) -> None:
        """Replace the count of evaluated nodes by that of textbook A*, which evaluates before it queues."""
        stats, problem = self.monitor.stats, self.problem
        assert self.bound is not None
        threshold = self.incumbent + self.monitor.tolerance
        bounds = np.concatenate([*self.expanded_bounds, np.empty(0)])
        children = np.concatenate([*self.expanded_children, np.empty(0, dtype=np.int64)])
        visited = bounds > threshold
        states, _ = problem.rollout(self.actions.unsqueeze(0))
        used = (
            torch.cumsum(self.actions != problem.observed_actions, 0) - (self.actions != problem.observed_actions).int()
        )
        earned, on_path = 0.0, 2  # the node at the last step, and the goal
        for t in range(problem.horizon - 1):
            value = earned + float(self.bound(t, states[0, t : t + 1], used[t : t + 1]))
            on_path += value <= threshold
            earned += float(problem.rewards(t, states[0, t], self.actions[t]))
        stats.nodes_expanded = int(visited.sum()) + on_path
        stats.nodes_generated = int(children[visited].sum()) + on_path

    def _certificate(self) -> Certificate:
        details: dict[str, Any] = {"constant_first_step": float(self.constants[0])}
        if self.bound is not None:
            details = dict(self.bound.details())
        details["evaluated"] = int(sum(len(values) for values in self.expanded_bounds))
        return Certificate(
            method=AnchorBound.method,
            proven=math.isfinite(self.upper_bound),
            tolerance=self.monitor.tolerance,
            details=details,
        )


def _best_last_action(problem: Problem, state: Tensor, used: int) -> int:
    t = problem.horizon - 1
    observed = int(problem.observed_actions[t])
    if used == problem.max_changes:
        return observed
    rewards = problem.rewards_all(t, state.unsqueeze(0))[0].masked_fill(~problem.allowed[t], -torch.inf)
    best = int(rewards.argmax())
    return observed if rewards[observed] >= rewards[best] else best
