"""Heuristics without proof: random sequences, the best single changes together, greedy search, beam search.

All of them start from the observed sequence (where rules exclude it, from the admissible one with the fewest changes)
and never return a worse one, consider sequences that obey the rules only, skip those whose changes are not supported,
and give the same answer every time.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ifonly.automaton import START, completions
from ifonly.data.plain import check_whole
from ifonly.problem import BaseProblem
from ifonly.problem.batch import ROWS, Branches, changed
from ifonly.progress import clock, silent
from ifonly.query import Limits
from ifonly.result import Certificate, Stats, Status
from ifonly.search.base import LimitReached, Monitor, Solution, Solver


class Heuristic(Solver):
    """A solver that improves on its first sequence and proves nothing; a limit or Ctrl-C ends it with its best."""

    exact: ClassVar[bool] = False

    def search(self, problem: BaseProblem, monitor: Monitor) -> Solution:
        """The best sequence found, without a bound."""
        best = self.found(problem, monitor)
        certificate = Certificate(f"{self.name} heuristic", proven=False, tolerance=best.tolerance)
        status = best.status or Status.HEURISTIC
        return Solution(best.actions, status, math.inf, certificate, is_admissible=best.is_admissible)

    def found(self, problem: BaseProblem, monitor: Monitor) -> Incumbent:
        """The best sequence found, and what ended the search."""
        best = Incumbent(problem, monitor)
        try:
            with clock(monitor.stop_at_seconds):
                self.improve(best)
        except LimitReached as limit:
            best.status = limit.status
        except KeyboardInterrupt:
            best.status = Status.INTERRUPTED
        return best

    @abstractmethod
    def improve(self, best: Incumbent) -> None:
        """Offer better sequences to `best`, until none is found or `best.stopped()`."""


@dataclass(frozen=True)
class RandomSearch(Heuristic):
    """The best of `samples` random sequences.

    Each changes as many steps as it may, chosen uniformly among those that have an alternative, and draws each new
    action uniformly from the step's alternatives. Under rules about consecutive doses or required changes each is
    drawn uniformly from all sequences that obey them. Support is asked for afterwards.
    """

    samples: int = 1000
    seed: int = 0

    name: ClassVar[str] = "random"

    def __post_init__(self) -> None:
        check_whole("random search: samples", self.samples, least=1)

    def improve(self, best: Incumbent) -> None:
        """Draw and evaluate batch after batch."""
        generator = torch.Generator().manual_seed(self.seed)
        left = self.samples
        while left and not best.stopped():
            sequences = random_sequences(best.problem, min(left, ROWS), generator=generator)
            best.evaluate(sequences)
            left -= len(sequences)


@dataclass(frozen=True)
class TopSingleChanges(Heuristic):
    """The steps whose best single change, made alone, gains most - changed together.

    Each step counts with its best action. Gains do not add up, and together the changes may even do harm: of the first
    1, 2, ..., k of them the best number is taken.
    """

    name: ClassVar[str] = "top-single-changes"

    def improve(self, best: Incumbent) -> None:
        """One batch of single changes, one batch of their combinations."""
        problem = best.problem
        start = problem.nearest_actions.unsqueeze(0)
        sequences, outcomes = single_changes(best, start, torch.ones_like(start, dtype=torch.bool))
        steps = (sequences != start).int().argmax(1)
        order = outcomes.sort(descending=True, stable=True).indices
        chosen: dict[int, int] = {}
        for row in order[outcomes[order] > best.outcome + best.tolerance].tolist():
            if len(chosen) < problem.max_changes:
                chosen.setdefault(int(steps[row]), int(sequences[row, steps[row]]))
        together = start.repeat(len(chosen), 1)
        for number, (step, action) in enumerate(chosen.items()):
            together[number:, step] = action
        best.evaluate(together[problem.admissible(together)])


@dataclass(frozen=True)
class Greedy(Heuristic):
    """Again and again the one change that helps most, until none does.

    A round looks at every admissible sequence that differs from the current one in one step: a further change while
    the budget lasts, but also another action at a step changed before, or its return to the observed action. The
    answer therefore cannot be improved at any single step.
    """

    name: ClassVar[str] = "greedy"

    def improve(self, best: Incumbent) -> None:
        """Rounds of single changes, one batch each."""
        while not best.stopped():
            sequence = best.actions.unsqueeze(0)
            changed_before = sequence != best.problem.observed_actions
            has_budget = int(changed_before.sum()) < best.problem.max_changes
            changeable = torch.ones_like(changed_before) if has_budget else changed_before
            if not best.offer(*single_changes(best, sequence, changeable)):
                break


def greedy_actions(problem: BaseProblem, *, seconds: float | None = None) -> tuple[Tensor, float]:
    """What `Greedy` finds within `seconds`, actions [T] and outcome: a good first incumbent for an exact search."""
    with torch.no_grad():
        best = Greedy().found(problem, Monitor(Limits(seconds=seconds), silent, problem.tolerance))
    return best.actions, best.outcome


@dataclass(frozen=True)
class Beam(Heuristic):
    """The `width` best sequences with 1, 2, ..., k changes, each level made from the one before by one more change.

    Sequences are compared by their outcome when nothing further is changed. A beam as wide as there are sequences is
    an exhaustive search, unless rules about consecutive doses leave sequences that no chain of single changes reaches.
    """

    width: int = 50

    name: ClassVar[str] = "beam"

    def __post_init__(self) -> None:
        check_whole("beam search: width", self.width, least=1)

    def improve(self, best: Incumbent) -> None:
        """One level per number of changes."""
        beam = best.problem.nearest_actions.unsqueeze(0)
        for _ in range(best.problem.max_changes - int(best.problem.changes(beam))):
            beam = self._next_level(beam, best)
            if best.status is not None or not len(beam):
                break

    def _next_level(self, beam: Tensor, best: Incumbent) -> Tensor:
        """The best sequences [n, T] with one change more than those of `beam`."""
        problem = best.problem
        sequences = np.empty((0, problem.horizon), dtype=np.int64)
        outcomes = np.empty(0)
        for parents in beam.split(max(1, ROWS // (problem.horizon * problem.action_count))):
            if best.stopped():
                break
            children, found = single_changes(best, parents, parents == problem.observed_actions)
            best.offer(children, found)
            # Two orders of the same changes give the same sequence: each is kept once.
            merged, first = np.unique(np.concatenate([sequences, children.cpu().numpy()]), axis=0, return_index=True)
            values = np.concatenate([outcomes, found.cpu().numpy()])[first]
            kept = np.argsort(-values, kind="stable")[: self.width]
            sequences, outcomes = merged[kept], values[kept]
        return torch.as_tensor(sequences, device=problem.device)


def random_sequences(problem: BaseProblem, count: int, *, generator: torch.Generator) -> Tensor:
    """Random sequences [count, T] that obey the rules, supported or not, drawn as `RandomSearch` does."""
    if problem.is_restricted:
        return _uniform_sequences(problem, count, generator)
    alternatives = problem.allowed.cpu().clone()  # drawn on the CPU: the same sequences on every device
    observed = problem.observed_actions.cpu()
    alternatives[torch.arange(problem.horizon), observed] = False
    changeable = alternatives.any(dim=1)
    sequences = observed.repeat(count, 1)
    number = min(problem.max_changes, int(changeable.sum()))
    if number:
        order = torch.rand(count, problem.horizon, generator=generator).masked_fill(~changeable, -1.0)
        steps = order.topk(number, dim=1).indices  # [count, number]
        weights = alternatives[steps.flatten()].to(torch.float64)
        drawn = torch.multinomial(weights, 1, generator=generator).reshape(count, number)
        sequences.scatter_(1, steps, drawn)
    return sequences.to(problem.device)


def _uniform_sequences(problem: BaseProblem, count: int, generator: torch.Generator) -> Tensor:
    """Each sequence under the rules is equally likely: an action's chance is the share of completions that begin so."""
    rules, observed, most = problem.automaton, problem.episode.actions, problem.max_changes
    ways = completions(rules, observed, most)
    sequences = torch.empty(count, problem.horizon, dtype=torch.int64)
    left, positions = np.full(count, most), np.full(count, START)
    for t in range(problem.horizon):
        changed = np.arange(problem.action_count) != observed[t]
        following = rules.after[positions[:, np.newaxis], rules.symbols[t]]  # [count, A]
        after = left[:, np.newaxis] - changed
        # Relative to the largest, so that none overflows; without changes left none may be made.
        open_ = np.where(after >= 0, ways[t + 1][following, after], 0)
        weights = torch.as_tensor((open_ / ways[t + 1].max()).astype(np.float64))
        drawn = torch.multinomial(weights, 1, generator=generator)
        sequences[:, t] = drawn.squeeze(1)
        left = np.take_along_axis(after, drawn.numpy(), axis=1)[:, 0]
        positions = np.take_along_axis(following, drawn.numpy(), axis=1)[:, 0]
    return sequences.to(problem.device)


class Incumbent:
    """The best sequence so far, starting with the admissible one nearest to the observed; the first of equals stays."""

    def __init__(self, problem: BaseProblem, monitor: Monitor) -> None:
        self.problem = problem
        self.monitor = monitor
        self.tolerance = monitor.tolerance
        self.stats = monitor.stats
        self.actions = problem.nearest_actions
        self.is_admissible = bool(problem.admissible(self.actions.unsqueeze(0)).all())
        """Whether the best so far is more than the sequence to begin with, which may lack support."""
        self.outcome = -math.inf
        if self.is_admissible:
            self.outcome = float(_finite(problem.rollout(self.actions.unsqueeze(0))[1]))
        self.status: Status | None = None

    def offer(self, sequences: Tensor, outcomes: Tensor) -> bool:
        """Take the best of `sequences` [n, T] if it is better by more than rounding; say whether it was."""
        if not len(outcomes):
            return False
        row = int(outcomes.argmax())
        if not outcomes[row] > self.outcome + self.tolerance:
            return False
        self.actions, self.outcome, self.is_admissible = sequences[row], float(outcomes[row]), True
        return True

    def evaluate(self, sequences: Tensor) -> None:
        """Roll out whole sequences [n, T] and offer them."""
        if not len(sequences):
            return
        _count(self.stats, sequences=len(sequences), model_steps=len(sequences) * (self.problem.horizon - 1))
        states, outcomes = self.problem.rollout(sequences)
        fine = self.problem.have_support(sequences, states)
        self.offer(sequences, _finite(outcomes).masked_fill(~fine, -math.inf))

    def stopped(self) -> bool:
        """Whether a limit is reached; also reports progress."""
        self.status = self.monitor.stop(self.outcome, math.inf)
        return self.status is not None


def single_changes(best: Incumbent, sequences: Tensor, changeable: Tensor) -> tuple[Tensor, Tensor]:
    """Sequences [n, T] with one action of `sequences` [W, T] replaced where `changeable` [W, T], and outcomes [n].

    Outcomes are minus infinity where they are not finite, or a change lacks support. A replacement must keep the rules
    but for the budget, which is the caller's: it decides what is changeable. A replacement is replayed from where it
    branches off.
    """
    problem, batch, only = best.problem, best.problem.as_batch, torch.zeros_like(sequences[:, 0])
    options = problem.allowed & changeable.unsqueeze(-1)
    options = options.scatter(2, sequences.unsqueeze(-1), False)
    parents, steps, actions = options.nonzero(as_tuple=True)
    trials = changed(sequences[parents], steps, actions)
    if problem.automaton.looks_back:
        fine = batch.keep_rules(only[parents], trials)
        parents, steps, trials = parents[fine], steps[fine], trials[fine]
    paths = batch.rollout(only, sequences)
    states, earned = paths.states[parents, steps], paths.earned[parents, steps]
    branches = Branches(only[parents], trials, steps, states, earned)
    paths = batch.continued(paths.select(parents), branches)
    taken = len(sequences) * (problem.horizon - 1) + int(batch.steps_from(branches).sum())
    _count(best.stats, sequences=len(trials), model_steps=taken)
    fine = batch.have_support(branches.problem, trials, paths.states)
    return trials, _finite(paths.outcomes).masked_fill(~fine, -torch.inf)


def _count(stats: Stats, *, sequences: int, model_steps: int) -> None:
    """For heuristics a node is a whole sequence."""
    stats.nodes_expanded += sequences
    stats.nodes_generated += sequences
    stats.model_steps += model_steps


def _finite(outcomes: Tensor) -> Tensor:
    """A sequence whose outcome overflows is no candidate; NaN would win every argmax."""
    return torch.where(outcomes.isfinite(), outcomes, -math.inf)
