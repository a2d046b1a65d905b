"""The paper's search: A* (alg:astar) over nodes (state, changes, step), led by Lipschitz anchors (eq:heuristic)."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.automaton import BROKEN, START
from ifonly.bounds.anchors import AnchorStrategy, MonteCarlo, observed_anchors
from ifonly.bounds.base import unknown_as_infinite
from ifonly.bounds.lipschitz import AnchorBound, value_constants
from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.plain import check_whole
from ifonly.errors import InputError
from ifonly.problem import BaseProblem, Problem
from ifonly.progress import clock
from ifonly.result import Certificate, Status
from ifonly.rewards import declared_constants
from ifonly.search.base import LimitReached, Monitor, Solution, Solver, if_useful
from ifonly.search.heuristics import greedy_actions

NodeRows = npt.NDArray[np.void]
"""Nodes as rows of one table: see `no_nodes`."""


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
        check_whole(f"{self.name}: batch", self.batch, least=1)

    def search(self, problem: BaseProblem, monitor: Monitor) -> Solution:
        """Build the bound, then search best-first until the bound meets the incumbent."""
        if not isinstance(problem, Problem):
            raise InputError(
                f"episode {problem.episode.id!r}: {self.name} answers for one model, not for an ensemble; "
                "BranchAndBound and Exhaustive can, with proof, and the heuristics can, without."
            )
        monitor.observed = problem.observed_outcome
        nearest = problem.nearest_actions
        outcome = problem.outcome(nearest) if bool(problem.admissible(nearest.unsqueeze(0))) else -math.inf
        run = _Run(problem, monitor, NodeQueue(problem.noise.shape[1]), nearest, outcome)
        try:
            with clock(monitor.stop_at_seconds):
                status = _search(run, self)
        except LimitReached as limit:
            status = limit.status
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        if status is Status.OPTIMAL and run.bound is not None:
            monitor.stats.nodes_visited = _count_visits(run, run.bound)
        run.upper_bound = _useful_bound(run)
        found = run.incumbent > -math.inf
        return Solution(run.actions, status, run.upper_bound, _certificate(run, status), is_admissible=found)


def no_nodes(count: int, state_size: int) -> NodeRows:
    """Room for `count` nodes with states of so many numbers."""
    fields = [
        ("step", np.int64),
        ("changes", np.int64),  # used on the way
        ("state", np.float64, (state_size,)),
        ("position", np.int64),  # of the automaton that reads the actions so far
        ("earned", np.float64),  # rewards before the step
        ("key", np.float64),  # upper bound on the outcome through the node
        ("parent", np.int64),  # -1 for the root
        ("action", np.int64),  # that led here, -1 for the root
    ]
    return np.empty(count, dtype=fields)


class NodeQueue:
    """The queue Q of alg:astar and its explored set: nodes by index, a heap of the open ones, the states reached.

    Two nodes are the same when step, changes used and state are equal, and what rules know of the actions before; then
    only the one that earned more is kept.
    (alg:astar keeps the first one found, whatever it earned, and can lose the optimum when actions have costs. States
    that are merely close stay apart: how much merging them could cost depends on slopes that may be huge.)
    """

    def __init__(self, state_size: int) -> None:
        self.nodes = no_nodes(1024, state_size)
        self.size = 0
        self.heap: list[tuple[float, int]] = []
        self.best: dict[bytes, int] = {}
        self.replaced: set[int] = set()

    def add(self, nodes: NodeRows) -> None:
        """Open nodes, each unless an equal one earned at least as much."""
        # Adding zero turns -0.0 into 0.0.
        labels = np.column_stack([nodes["step"], nodes["changes"], nodes["position"], nodes["state"] + 0.0])
        for node, label in zip(nodes, labels, strict=True):
            identity = label.tobytes()
            known = self.best.get(identity)
            if known is not None:
                if node["earned"] <= self.nodes[known]["earned"]:
                    continue
                self.replaced.add(known)
            if self.size == len(self.nodes):
                self.nodes = np.concatenate([self.nodes, np.empty_like(self.nodes)])
            self.best[identity] = self.size
            self.nodes[self.size] = node
            heapq.heappush(self.heap, (-float(node["key"]), self.size))
            self.size += 1

    def top(self) -> float:
        """The largest key of an open node, or -inf when none is open."""
        while self.heap and self.heap[0][1] in self.replaced:
            heapq.heappop(self.heap)
        return -self.heap[0][0] if self.heap else -np.inf

    def pop(self, count: int, above: float) -> IntArray:
        """Close and return up to `count` open nodes with the largest keys above `above`."""
        indices: list[int] = []
        while len(indices) < count and self.top() > above:
            indices.append(heapq.heappop(self.heap)[1])
        return np.array(indices, dtype=np.int64)

    def path(self, index: int) -> list[int]:
        """The actions from the root to a node."""
        actions = []
        while (node := self.nodes[index])["parent"] >= 0:
            actions.append(int(node["action"]))
            index = int(node["parent"])
        return actions[::-1]


@dataclass
class _Run:
    """One search: the incumbent, the proven upper bound, and the open nodes; a valid bracket at every moment."""

    problem: Problem
    monitor: Monitor
    queue: NodeQueue
    actions: Tensor  # [T], the incumbent
    incumbent: float
    """Its outcome."""
    upper_bound: float = math.inf
    bound: AnchorBound | None = None
    """The latest bound, for the certificate."""
    expanded_bounds: list[FloatArray] = field(default_factory=list)
    """Earned reward plus heuristic of the nodes that were expanded."""


def _search(run: _Run, settings: AnchorAStar) -> Status:
    """alg:astar; it ends as soon as no open node promises more than the incumbent."""
    constants = _first_bracket(run)
    _stop_at_limit(run)
    bound = run.bound = _make_bound(run, settings, constants)
    root = no_nodes(1, run.problem.noise.shape[1])
    state = run.problem.observed_states[0].cpu().numpy()
    root[0] = (0, 0, state, START, 0.0, _evaluate_root(run.problem, bound), -1, -1)
    run.queue.add(root)
    while True:
        run.upper_bound = min(run.upper_bound, max(run.queue.top(), run.incumbent))
        status = run.monitor.stop(run.incumbent, run.upper_bound)
        if status is not None or run.upper_bound == -math.inf:  # changes are required, and none is supported
            return status or Status.OPTIMAL
        cutoff = run.incumbent + run.monitor.tolerance
        _expand(run, bound, run.queue.pop(_batch_size(run, settings), cutoff))


def _batch_size(run: _Run, settings: AnchorAStar) -> int:
    """Nodes to expand at a time, no more than a limit leaves."""
    limit = run.monitor.limits.nodes
    left = math.inf if limit is None else limit - run.monitor.stats.nodes_expanded
    return int(min(settings.batch, left))


def _first_bracket(run: _Run) -> Tensor:
    """Something to return at once: a bound from the observed states alone, and greedy's sequence."""
    with _timed_as_bounds(run), clock(lambda: None):  # whatever the limit: this much is always known
        constants = value_constants(run.problem)
        bound = run.bound = AnchorBound(run.problem, observed_anchors(run.problem), constants)
        run.upper_bound = max(_evaluate_root(run.problem, bound), run.incumbent)
    limit = run.monitor.limits.seconds
    seconds = None if limit is None else max(0.0, limit - run.monitor.elapsed())
    run.actions, run.incumbent = greedy_actions(run.problem, seconds=seconds)
    run.upper_bound = max(run.upper_bound, run.incumbent)
    return constants


def _make_bound(run: _Run, settings: AnchorAStar, constants: Tensor) -> AnchorBound:
    problem, monitor = run.problem, run.monitor
    with _timed_as_bounds(run):
        generator = torch.Generator().manual_seed(settings.seed)
        anchors = settings.anchors.choose(problem, constants, generator)
        anchors = anchors.shared() if settings.shared else anchors
        monitor.stats.model_steps += anchors.total * problem.action_count
        return AnchorBound(problem, anchors, constants, progress=monitor.progress)


@contextmanager
def _timed_as_bounds(run: _Run) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        run.monitor.stats.seconds_bounds += time.perf_counter() - start


def _evaluate_root(problem: Problem, bound: AnchorBound) -> float:
    zero = torch.zeros(1, dtype=torch.int64, device=problem.device)
    return float(bound(0, problem.observed_states[:1], zero))


def _stop_at_limit(run: _Run) -> None:
    status = run.monitor.limit_reached()
    if status is not None:
        raise LimitReached(status)


def _expand(run: _Run, bound: AnchorBound, indices: IntArray) -> None:
    """Generate the children of closed nodes, group by group: one step, one number of changes used."""
    nodes = run.queue.nodes[indices]
    groups = np.column_stack([nodes["step"], nodes["changes"]])
    for step, used in np.unique(groups, axis=0):
        _expand_group(run, bound, indices[(groups == (step, used)).all(1)], int(step), int(used))
    run.monitor.stats.nodes_expanded += len(indices)


def _expand_group(run: _Run, bound: AnchorBound, group: IntArray, step: int, used: int) -> None:
    problem, queue = run.problem, run.queue
    states = torch.as_tensor(queue.nodes["state"][group], device=problem.device)
    earned = torch.as_tensor(queue.nodes["earned"][group], device=problem.device).unsqueeze(1)
    children = bound.children(step, states, used)
    keys = unknown_as_infinite(earned + children.bounds)  # NaN bounds are never pruned
    run.expanded_bounds.append(keys.amax(1).cpu().numpy())
    run.monitor.stats.model_steps += keys.numel()
    run.monitor.stats.nodes_generated += keys.numel()
    if problem.support is not None and len(children.actions) > 1:
        context = problem.context[step].expand(len(states), -1)
        supported = problem.are_supported(step, states, context)[:, children.actions]
        supported[:, 0] = True  # the observed action comes first
        keys = keys.masked_fill(~supported, -torch.inf)
    before = torch.as_tensor(queue.nodes["position"][group], device=problem.device).unsqueeze(1)
    positions = problem.as_batch.next_positions(step, torch.zeros_like(before), before, children.actions)
    if problem.is_restricted:
        needed = problem.as_batch.changes_needed(step + 1, torch.zeros_like(before), positions)
        changed = (children.actions != problem.observed_actions[step]).long()
        keys = keys.masked_fill(used + changed + needed > problem.max_changes, -torch.inf)
    rows, columns = (keys > run.incumbent + run.monitor.tolerance).nonzero(as_tuple=True)
    if not len(rows):
        return
    nodes = no_nodes(len(rows), states.shape[1])
    nodes["step"], nodes["changes"] = step + 1, used + (columns > 0).long().cpu().numpy()
    nodes["state"] = children.states[rows, columns].cpu().numpy()
    nodes["position"] = positions[rows, columns].cpu().numpy()
    nodes["earned"] = (earned + children.rewards)[rows, columns].cpu().numpy()
    nodes["key"] = keys[rows, columns].cpu().numpy()
    nodes["parent"], nodes["action"] = group[rows.cpu().numpy()], children.actions[columns].cpu().numpy()
    if step + 1 == problem.horizon - 1:
        _complete(run, nodes)
    else:
        queue.add(nodes)


def _complete(run: _Run, nodes: NodeRows) -> None:
    """Children at the last step need no heuristic: their best last action is known, and may be a new incumbent."""
    problem = run.problem
    states = torch.as_tensor(nodes["state"].copy(), device=problem.device)
    used = torch.as_tensor(nodes["changes"].copy(), device=problem.device)
    positions = torch.as_tensor(nodes["position"].copy(), device=problem.device)
    rewards = _last_rewards(problem, states, used, positions)
    outcomes = torch.as_tensor(nodes["earned"].copy()) + rewards.amax(1).cpu()
    problem.require_finite(outcomes)
    best = int(outcomes.argmax())
    if outcomes[best] <= run.incumbent:
        return
    observed = int(problem.observed_actions[-1])
    last = observed if rewards[best, observed] >= rewards[best].max() else int(rewards[best].argmax())
    path = [*run.queue.path(int(nodes["parent"][best])), int(nodes["action"][best]), last]
    run.actions = torch.tensor(path, device=problem.device)
    run.incumbent = float(outcomes[best])


def _last_rewards(problem: Problem, states: Tensor, used: Tensor, positions: Tensor) -> Tensor:
    """Rewards [N, A] of the last step's actions after `used` [N] changes, which led rules to positions [N].

    Minus infinity where one may not be taken.
    """
    t = problem.horizon - 1
    options = problem.allowed[t] & (used < problem.max_changes).unsqueeze(1)
    if problem.support is not None:
        options &= problem.are_supported(t, states, problem.context[t].expand(len(states), -1))
    options[:, problem.observed_actions[t]] = True
    rows, every = torch.zeros_like(used).unsqueeze(1), torch.arange(problem.action_count, device=problem.device)
    options &= problem.as_batch.next_positions(t, rows, positions.unsqueeze(1), every) > BROKEN
    return problem.rewards_all(t, states).masked_fill(~options, -torch.inf)


def _count_visits(run: _Run, bound: AnchorBound) -> int:
    """How many nodes textbook A* visits: those whose heuristic value exceeds the optimum, and the optimal path.

    It evaluates nodes before they are queued, so those pruned when they came up do not count.
    """
    problem, actions = run.problem, run.actions
    cutoff = run.incumbent + run.monitor.tolerance
    visited = sum(int((values > cutoff).sum()) for values in run.expanded_bounds)
    states, _ = problem.rollout(actions.unsqueeze(0))
    changed = (actions != problem.observed_actions).long()
    used = changed.cumsum(0) - changed
    earned, on_path = 0.0, 2  # the node at the last step, and the goal
    for t in range(problem.horizon - 1):
        value = earned + float(bound(t, states[0, t : t + 1], used[t : t + 1]))
        on_path += value <= cutoff
        earned += float(problem.rewards(t, states[0, t], actions[t]))
    return visited + on_path


def _useful_bound(run: _Run) -> float:
    """What no sequence can exceed; infinite where that says nothing."""
    problem, gap = run.problem, max(run.problem.tolerance, run.monitor.granted_gap(run.incumbent))
    gained = max(run.incumbent - problem.observed_outcome, gap)
    known = torch.tensor([run.upper_bound, run.incumbent, problem.plausible_outcome, gained], dtype=torch.float64)
    return float(if_useful(*known))


def _certificate(run: _Run, status: Status) -> Certificate:
    details: dict[str, Any] = {} if run.bound is None else dict(run.bound.details())
    if status is not Status.OPTIMAL:
        # Whatever the optimum is, textbook A* visits the nodes whose heuristic value exceeds its upper bound.
        details["visited_at_least"] = sum(int((values > run.upper_bound).sum()) for values in run.expanded_bounds)
    declared = declared_constants(run.problem.reward)
    if declared:
        details["relies_on_declared_constants_of"] = declared
    return Certificate(
        method=AnchorBound.method,
        proven=math.isfinite(run.upper_bound),
        tolerance=run.monitor.tolerance,
        details=details,
    )
