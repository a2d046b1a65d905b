"""The question that a run puts to every episode, and its answers as lines of the run's journal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch

from ifonly.constraints import Constraints
from ifonly.data.cohort import Cohort
from ifonly.data.episode import Episode
from ifonly.data.records import as_number
from ifonly.errors import InputError
from ifonly.evidence.examination import Examination, unexamined
from ifonly.models.base import TransitionModel
from ifonly.problem import EnsembleProblem, Objective, Problem, Support, checked_standing, members_of, put_question
from ifonly.rewards import Reward
from ifonly.runs.manifest import MODEL_CHECK
from ifonly.runs.rows import failed_row, reason_of, row_of
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
    objective: str | float | None = None
    """What counts of the outcomes under an ensemble's refits; None: one model is asked."""
    min_support: float | None = None
    """How likely every change must be, by the examination's behaviour model."""
    examination: Examination = field(default_factory=Examination)
    allow_failed_model: bool = False

    def describe(self) -> dict[str, Any]:
        """What tells this task from others, in plain types."""
        return {
            "question": {
                "reward": self.reward.to_dict(),
                "max_changes": self.max_changes,
                "change_cost": self.change_cost,
                "constraints": None if self.constraints is None else self.constraints.to_dict(),
                "objective": self.objective,
                "support": None if self._support is None else dict(self._support.settings()),
                "examination": self.examination.to_dict(),
            },
            "solver": {"name": self.solver.name, **self.solver.settings()},
            "limits": asdict(self.limits),
            "model": {
                "kind": self.model.kind or type(self.model).__qualname__,
                "fingerprint": self.model.fingerprint(),
            },
            MODEL_CHECK: None if self.model.standing is None else self.model.standing.to_dict(),
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
        checked_standing(self.model.standing, allow_failed_model=self.allow_failed_model)
        if self.objective is not None:
            Objective(self.objective)
            members_of(self.model)
        self.examination.check(self.model, self.solver)

    def answer(self, episodes: Sequence[Placed]) -> list[Answer]:
        """One answer per episode; an episode that fails is answered by the reason, and costs no other one.

        They are searched together, unless on a processor something limits the search of each: then they are solved
        one by one, so that no bracket depends on which others are there. (Optima do not: they are replayed alone.)
        Ctrl-C is passed on: what was begun is no answer.
        """
        if self._is_here and self.limits != Limits():
            return [self._alone(*placed) for placed in episodes]
        return list(self._together(episodes))

    def _problem(self, episode: Episode) -> Problem | EnsembleProblem:
        return put_question(
            episode,
            self.model,
            self.reward,
            self.max_changes,
            objective=self.objective,
            constraints=self.constraints,
            change_cost=self.change_cost,
            support=self._support,
            allow_failed_model=self.allow_failed_model,
        )

    @cached_property
    def _support(self) -> Support | None:
        return self._support_for(self.model)

    @cached_property
    def _model_there(self) -> TransitionModel:
        """The model on `device`."""
        return self.model.for_search(self.device)

    @cached_property
    def _support_there(self) -> Support | None:
        return self._support_for(self._model_there)

    def _support_for(self, model: TransitionModel) -> Support | None:
        """What changes must have behind them, where this copy of the model is; one for all episodes."""
        behaviour = self.examination.behaviour
        if behaviour is None or self.min_support is None:
            return None
        return behaviour.with_threshold(self.min_support, model)

    def _moved(self, problem: Problem | EnsembleProblem) -> Problem | EnsembleProblem:
        if self._is_here:
            return problem
        return problem.on(self.device, self._model_there, support=self._support_there)

    @property
    def _is_here(self) -> bool:
        return torch.device(self.device).type == "cpu"

    def _alone(self, position: int, episode: Episode) -> Answer:
        try:
            problem = self._problem(episode)
            row = self._row(problem, solve(self._moved(problem), self.solver, limits=self.limits))
        except Exception as error:  # whatever a model or a reward of somebody else raises
            row = failed_row(episode, error)
        return answer_of(position, row)

    def _together(self, episodes: Sequence[Placed]) -> Iterator[Answer]:
        problems: dict[int, Problem | EnsembleProblem] = {}
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
                row = self._row(problem, result)
            except Exception as error:
                row = failed_row(problem.episode, error)
            yield answer_of(position, row)

    def _row(self, problem: Problem | EnsembleProblem, result: Result | Exception) -> dict[str, Any]:
        if isinstance(result, Exception):
            raise result
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return row_of(problem, result) | self._trust(problem, result)

    def _trust(self, problem: Problem | EnsembleProblem, result: Result) -> dict[str, Any]:
        """How far to trust an answer; an answer that cannot be examined is still one, and says so."""
        if not self.examination.has_answers(self.model):
            return {}
        # Replaying is quicker on a processor; only to solve the question again for every refit pays elsewhere.
        asked = self._moved(problem) if self.examination.each_refit else problem
        try:
            return self.examination.of(asked, result, limits=self.limits, solver=self.solver).to_row()
        except Exception as error:
            return unexamined(problem, result, reason_of(error)).to_row()


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
