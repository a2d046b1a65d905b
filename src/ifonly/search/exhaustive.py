"""Exhaustive enumeration with shared prefixes, in batches: exact without any bound, and the oracle of all tests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ifonly.automaton import BROKEN, START
from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.plain import check_whole
from ifonly.errors import InputError
from ifonly.problem import BaseProblem
from ifonly.problem.batch import ROWS
from ifonly.progress import clock, look_at_clock
from ifonly.result import Certificate, Stats, Status
from ifonly.search.base import LimitReached, Monitor, Solution, Solver


@dataclass(frozen=True)
class Exhaustive(Solver):
    """Try every admissible sequence; prefixes are shared, memory stays bounded by `batch`.

    Outcomes that differ by no more than the tolerance count as equal. Among equals the fewest changes win, then the
    lexicographically smallest sequence, so that the answer does not depend on `batch`.
    """

    batch: int = ROWS
    """Largest number of states advanced together; speed and memory depend on it, the answer does not."""

    name: ClassVar[str] = "exhaustive"
    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_whole("exhaustive: batch", self.batch, least=1)

    def search(self, problem: BaseProblem, monitor: Monitor) -> Solution:
        """Enumerate until done; a limit or Ctrl-C returns the best sequence so far, without a bound."""
        best = _Best(problem, monitor.tolerance)
        status = self._enumerate(problem, monitor, best)
        total = problem.sequence_count()
        # A limit that is reached with the last sequence stops nothing; how many are supported is not known beforehand.
        complete = status is Status.OPTIMAL or best.seen == total
        return Solution(
            actions=best.sequence(),
            status=Status.OPTIMAL if complete else status,
            upper_bound=best.outcome if complete else math.inf,
            certificate=Certificate(
                method="exhaustive enumeration",
                proven=complete,
                tolerance=monitor.tolerance,
                details={"sequences": total, "sequences_seen": best.seen},
            ),
            is_admissible=best.is_admissible,
        )

    def _enumerate(self, problem: BaseProblem, monitor: Monitor, best: _Best) -> Status:
        """Offer every sequence to `best`, until all are seen or something says stop."""
        blocks = _Enumeration(problem, self.batch, monitor.stats).continuations(0, _root(problem))
        try:
            with clock(monitor.stop_at_seconds):
                while (status := monitor.stop(best.outcome, math.inf)) is None:
                    leaves = next(blocks, None)
                    if leaves is None:
                        return Status.OPTIMAL
                    best.offer(leaves)
        except LimitReached as limit:
            return limit.status
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        return status


@torch.no_grad()
def best_values(
    problem: BaseProblem,
    t: int,
    states: Tensor,
    changes_used: Tensor,
    *,
    actions: Tensor | None = None,
    earned: Tensor | None = None,
    batch: int = ROWS,
) -> Tensor:
    """V(s, l, t) of eq:substructure [N], exactly, for `states` [N, (M,) D] at step t with `changes_used` [N] so far.

    Rewards `earned` [N, (M,)] before step t are counted in: an ensemble's outcome is no sum of what was and what comes.
    Every continuation with at most `max_changes - changes_used` further changes is enumerated: for small problems.
    Where rules look back, `actions` [N, t] are those of the steps before, which keep the rules or have no continuation;
    without them the rules begin at step t. Minus infinity where no admissible continuation exists.
    """
    if not 0 <= t < problem.horizon:
        raise InputError(f"best_values: t={t} must be a step, 0 to {problem.horizon - 1}.")
    if len(states) != len(changes_used):
        raise InputError(f"best_values: {len(states)} states, but {len(changes_used)} numbers of changes.")
    if ((changes_used < 0) | (changes_used > problem.max_changes)).any():
        raise InputError(f"best_values: changes_used must lie between 0 and max_changes={problem.max_changes}.")
    if actions is not None and actions.shape != (len(states), t):
        raise InputError("best_values: actions must be one for each step before t, and each state.")
    values = torch.full((len(states),), -math.inf, dtype=torch.float64, device=problem.device)
    start = _start(states, changes_used)
    if earned is not None:
        start = replace(start, earned=earned)
    if actions is not None:
        rows, rest = torch.zeros_like(start.origins), problem.observed_actions[t:].expand(len(states), -1)
        positions = problem.as_batch.positions(rows, torch.cat([actions, rest], dim=1))[:, t]
        start = replace(start, positions=positions).select(positions > BROKEN)
    for leaves in _Enumeration(problem, batch, Stats()).continuations(t, start):
        values.scatter_reduce_(0, leaves.origins, problem.counted(leaves.earned), "amax")
    return values


@torch.no_grad()
def outcome_frontier(problem: BaseProblem, *, batch: int = ROWS) -> Tensor:
    """The best outcome [max_changes + 1] for every budget of changes from 0 to `max_changes`, by enumeration.

    Minus infinity for budgets that admit no sequence.
    """
    best = torch.full((problem.max_changes + 1,), -math.inf, dtype=torch.float64, device=problem.device)
    for sequences, outcomes in every_sequence(problem, batch=batch):
        best.scatter_reduce_(0, problem.changes(sequences), outcomes, "amax")
    return best.cummax(0).values


@torch.no_grad()
def every_sequence(problem: BaseProblem, *, batch: int = ROWS) -> Iterator[tuple[Tensor, Tensor]]:
    """All admissible sequences [n, T] and their outcomes [n], in blocks."""
    for leaves in _Enumeration(problem, batch, Stats()).continuations(0, _root(problem)):
        yield _whole(problem, leaves), problem.counted(leaves.earned)


@dataclass(frozen=True)
class _Nodes:
    """Prefixes of sequences, or whole ones: after the last of `actions` the observed actions follow."""

    states: Tensor  # [N, (M,) D], the states that the prefixes lead to; for whole sequences the last ones
    earned: Tensor  # [N, (M,)], rewards so far
    changes: Tensor  # [N]
    origins: Tensor  # [N], the starting row that each prefix comes from
    actions: Tensor  # [N, steps taken]
    positions: Tensor  # [N], where these have led the problem's automaton

    def __len__(self) -> int:
        return len(self.earned)

    def select(self, rows: Tensor | slice) -> _Nodes:
        """Some of the rows: a mask, an index or a slice."""
        return _Nodes(*(part[rows] for part in vars(self).values()))

    def split(self, rows: int) -> Iterator[_Nodes]:
        """Parts of nearly equal size, at most `rows` each."""
        count = math.ceil(len(self) / rows)
        edges = [len(self) * part // count for part in range(count + 1)] if count else []
        for start, end in itertools.pairwise(edges):
            yield self.select(slice(start, end))


@dataclass(frozen=True)
class _Enumeration:
    """Depth first over blocks of nodes, so that memory is bounded by `batch` rows per step."""

    problem: BaseProblem
    batch: int
    stats: Stats

    def continuations(self, t: int, nodes: _Nodes) -> Iterator[_Nodes]:
        """Every admissible completion, in blocks, of `nodes` at step t."""
        # A stack of our own: episodes may have more steps than Python allows nested calls.
        unfinished = [self._advance(t, nodes)]
        while unfinished:
            block = next(unfinished[-1], None)
            if block is None:
                unfinished.pop()
                continue
            step, following = block
            if step == self.problem.horizon:
                yield following
            else:
                unfinished.append(self._advance(step, following))

    def _advance(self, t: int, nodes: _Nodes) -> Iterator[tuple[int, _Nodes]]:
        """Blocks that follow `nodes` at step t, each with the step it has reached; whole sequences reach T."""
        spent = nodes.changes >= self.problem.max_changes
        may_stay = self._changes_needed(t, nodes.positions) == 0
        for part in nodes.select(spent & may_stay).split(self.batch):
            yield self.problem.horizon, self._follow_observed(t, part)
        width = len(self.problem.alternatives(t)) + 1
        for part in nodes.select(~spent).split(max(1, self.batch // width)):
            children = self._branch(t, part)
            if len(children):
                yield t + 1, children

    def _changes_needed(self, t: int, positions: Tensor) -> Tensor:
        """The fewest changes that must follow from each position [N] before step t."""
        if not self.problem.is_restricted:
            return torch.zeros_like(positions)
        return self.problem.as_batch.changes_needed(t, torch.zeros_like(positions), positions)

    def _branch(self, t: int, nodes: _Nodes) -> _Nodes:
        """One child per node and admissible action, the observed action first."""
        look_at_clock()
        problem = self.problem
        observed = problem.observed_actions[t : t + 1]
        choices = torch.cat([observed, problem.alternatives(t)])  # [n]
        if problem.must_change[t]:
            choices = choices[1:]
        last = t == problem.horizon - 1
        parents = nodes.states.unsqueeze(1)
        earned = nodes.earned.unsqueeze(1) + problem.rewards(t, parents, choices)  # [N, n, (M,)]
        states = parents.expand(-1, len(choices), *parents.shape[2:]) if last else problem.step(t, parents, choices)
        count = len(nodes) * len(choices)
        self._count(expanded=len(nodes), generated=count, steps=0 if last else count)
        taken = choices.repeat(len(nodes)).unsqueeze(1)
        before = nodes.positions.unsqueeze(1)
        children = _Nodes(
            states=states.flatten(0, 1),
            earned=earned.flatten(0, 1),
            changes=(nodes.changes.unsqueeze(1) + (choices != observed)).flatten(),
            origins=nodes.origins.repeat_interleave(len(choices)),
            actions=torch.cat([nodes.actions.repeat_interleave(len(choices), 0), taken], dim=1),
            positions=problem.as_batch.next_positions(t, torch.zeros_like(before), before, choices).flatten(),
        )
        needed = children.changes + self._changes_needed(t + 1, children.positions)
        fine = needed <= problem.max_changes if problem.is_restricted else None
        if problem.support is not None:
            options = problem.are_supported(t, nodes.states, problem.context[t].expand(len(nodes), -1))
            supported = (options[:, choices] | (choices == observed)).flatten()
            fine = supported if fine is None else fine & supported
        return children if fine is None else children.select(fine)

    def _follow_observed(self, t: int, nodes: _Nodes) -> _Nodes:
        """Nodes without changes left, completed by the observed actions."""
        problem, states, earned = self.problem, nodes.states, nodes.earned
        for step in range(t, problem.horizon):
            look_at_clock()
            action = problem.observed_actions[step]
            earned = earned + problem.rewards(step, states, action)
            if step < problem.horizon - 1:
                states = problem.step(step, states, action)
        count = len(nodes) * (problem.horizon - t)
        self._count(expanded=count, generated=count, steps=count - len(nodes))
        return replace(nodes, states=states, earned=earned)

    def _count(self, *, expanded: int, generated: int, steps: int) -> None:
        self.stats.nodes_expanded += expanded
        self.stats.nodes_generated += generated
        self.stats.model_steps += steps


class _Best:
    """The best outcome so far and the sequences that may still be the answer once all are known.

    Which sequence wins a tie is known only with the final maximum, so a few are kept: those within the tolerance of
    the best that no simpler sequence (fewer changes, then lexicographically smaller) equals or beats.
    """

    def __init__(self, problem: BaseProblem, tolerance: float) -> None:
        self.problem = problem
        self.tolerance = tolerance
        self.seen = 0
        nearest = problem.nearest_actions
        self.is_admissible = bool(problem.admissible(nearest.unsqueeze(0)).all())
        """Whether the best so far is more than the sequence to begin with, which may lack support."""
        self.outcome = problem.outcome(nearest) if self.is_admissible else -math.inf
        problem.require_finite(torch.tensor(self.outcome))
        self._observed: IntArray = problem.observed_actions.cpu().numpy()
        self._sequences: IntArray = nearest.cpu().numpy()[np.newaxis]  # [n, T], simplest first
        self._outcomes: FloatArray = np.array([self.outcome])
        if not self.is_admissible:
            self._sequences, self._outcomes = self._sequences[:0], self._outcomes[:0]

    def sequence(self) -> Tensor:
        """The simplest of the best sequences [T]."""
        if not self.is_admissible:
            return self.problem.nearest_actions
        return torch.as_tensor(self._sequences[0], device=self.problem.device)

    def offer(self, leaves: _Nodes) -> None:
        """Consider whole sequences."""
        values = self.problem.counted(leaves.earned)
        self.problem.require_finite(values)
        self.is_admissible = True
        self.seen += len(leaves)
        self.outcome = max(self.outcome, float(values.max()))
        near = values >= self.outcome - self.tolerance
        if not near.any():
            return
        sequences = np.concatenate([self._sequences, _whole(self.problem, leaves.select(near)).cpu().numpy()])
        outcomes = np.concatenate([self._outcomes, values[near].cpu().numpy()])
        kept = outcomes >= self.outcome - self.tolerance
        self._keep_undominated(sequences[kept], outcomes[kept])

    def _keep_undominated(self, sequences: IntArray, outcomes: FloatArray) -> None:
        changes = (sequences != self._observed).sum(axis=1)
        order = np.lexsort((*sequences.T[::-1], changes))
        best_before = np.maximum.accumulate(np.concatenate([[-math.inf], outcomes[order][:-1]]))
        better = outcomes[order] > best_before
        better[:1] = True  # minus infinity is better than nothing
        self._sequences, self._outcomes = sequences[order[better]], outcomes[order[better]]


def _whole(problem: BaseProblem, leaves: _Nodes) -> Tensor:
    """Whole sequences [N, T]: where changes ran out, the observed actions follow."""
    tail = problem.observed_actions[leaves.actions.shape[1] :]
    return torch.cat([leaves.actions, tail.expand(len(leaves), -1)], dim=1)


def _start(states: Tensor, changes_used: Tensor) -> _Nodes:
    """Prefixes that lead to states [N, (M,) D] with so many changes [N], and of which nothing else is known."""
    return _Nodes(
        states=states,
        earned=torch.zeros(states.shape[:-1], dtype=torch.float64, device=states.device),
        changes=changes_used.to(torch.int64),
        origins=torch.arange(len(states), device=states.device),
        actions=states.new_empty((len(states), 0), dtype=torch.int64),
        positions=torch.full((len(states),), START, device=states.device),
    )


def _root(problem: BaseProblem) -> _Nodes:
    return _start(problem.first_states.unsqueeze(0), torch.zeros(1, device=problem.device))
