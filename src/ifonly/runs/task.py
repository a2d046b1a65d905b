"""The question that a run puts to every episode, and its answers as lines of the run's journal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch

from ifonly.constraints import Constraints
from ifonly.episodes.cohort import Cohort
from ifonly.episodes.episode import Episode
from ifonly.episodes.plain import as_number
from ifonly.errors import InputError
from ifonly.models.base import TransitionModel
from ifonly.problem import Problem
from ifonly.rewards import Reward
from ifonly.runs.rows import failed_row, row_of
from ifonly.search.base import Limits, Solver
from ifonly.search.batch import solve_batch
from ifonly.search.result import Result, Status
from ifonly.search.solve import solve

Placed = tuple[int, Episode]
"""An episode and its position in the run's cohort."""


class Answer(NamedTuple):
    """What is known of one episode: its position, how it ended, and its line of the journal."""

    position: int
    status: str
    line: str


@dataclass(frozen=True)
class Task:
    """One question for many episodes; `model` is frozen for search on the processor."""

    model: TransitionModel
    reward: Reward
    max_changes: int | None
    constraints: Constraints | None
    change_cost: float
    solver: Solver
    limits: Limits
    device: str

    def describe(self) -> dict[str, Any]:
        """What tells this task from others, in plain types."""
        return {
            "question": {
                "reward": self.reward.to_dict(),
                "max_changes": self.max_changes,
                "change_cost": self.change_cost,
                "constraints": None if self.constraints is None else self.constraints.to_dict(),
            },
            "solver": {"name": self.solver.name, **self.solver.settings()},
            "limits": asdict(self.limits),
            "model": {
                "kind": self.model.kind or type(self.model).__qualname__,
                "fingerprint": self.model.fingerprint(),
            },
            "device": torch.device(self.device).type,
        }

    def check(self, cohort: Cohort) -> None:
        """Refuse, before anything is solved, what would fail for every episode."""
        changes = self.max_changes
        if changes is not None and (isinstance(changes, bool) or not isinstance(changes, int) or changes < 0):
            raise InputError(f"max_changes={changes!r}: must be a whole number of at least 0, or None for no limit.")
        if not 0 <= as_number("change_cost", self.change_cost) < math.inf:
            raise InputError(f"change_cost={self.change_cost!r}: must be zero or positive.")
        self.model.schema.require_same(cohort.schema, here="the model", there="the cohort")
        self.reward.bind(cohort.schema, self.model.scaler)

    def answer(self, episodes: Sequence[Placed]) -> list[Answer]:
        """One answer per episode; an episode that fails is answered by the reason, and costs no other one.

        On a processor they are solved one by one: what is found for one then never depends, not even in the last bit,
        on which others are there, and searching them together would save little. Ctrl-C is passed on: what was begun
        is no answer.
        """
        if self._is_here:
            return [self._alone(*placed) for placed in episodes]
        return list(self._together(episodes))

    def _problem(self, episode: Episode) -> Problem:
        return Problem.from_episode(
            episode,
            self.model,
            self.reward,
            self.max_changes,
            constraints=self.constraints,
            change_cost=self.change_cost,
        )

    @cached_property
    def _model_there(self) -> TransitionModel:
        """The model on `device`."""
        return self.model.for_search(self.device)

    def _moved(self, problem: Problem) -> Problem:
        return problem if self._is_here else problem.on(self.device, self._model_there)

    @property
    def _is_here(self) -> bool:
        return torch.device(self.device).type == "cpu"

    def _alone(self, position: int, episode: Episode) -> Answer:
        try:
            problem = self._problem(episode)
            row = _finished_row(problem, solve(self._moved(problem), self.solver, limits=self.limits))
        except Exception as error:  # whatever a model or a reward of somebody else raises
            row = failed_row(episode, error)
        return answer_of(position, row)

    def _together(self, episodes: Sequence[Placed]) -> Iterator[Answer]:
        problems: dict[int, Problem] = {}
        for position, episode in episodes:
            try:
                problems[position] = self._problem(episode)
            except Exception as error:
                yield answer_of(position, failed_row(episode, error))
        try:
            moved = [self._moved(problem) for problem in problems.values()]
            results = solve_batch(moved, self.solver, limits=self.limits, on_error="return")
        except Exception:  # which one is to blame shows one by one
            yield from (self._alone(position, problem.episode) for position, problem in problems.items())
            return
        for (position, problem), result in zip(problems.items(), results, strict=True):
            try:
                row = _finished_row(problem, result)
            except Exception as error:
                row = failed_row(problem.episode, error)
            yield answer_of(position, row)


def _finished_row(problem: Problem, result: Result | Exception) -> dict[str, Any]:
    if isinstance(result, Exception):
        raise result
    if result.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return row_of(problem, result)


def answer_of(position: int, row: dict[str, Any]) -> Answer:
    """A row as an answer; numbers that JSON does not know are unknown."""
    content = {"position": position, **row}
    try:
        line = json.dumps(content, allow_nan=False)
    except ValueError:
        line = json.dumps(_finite(content))
    return Answer(position, row["status"], line)


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with a single thread: each core has its own episode, and sums are taken in the same order everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
