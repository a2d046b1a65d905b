"""The question that a run puts to every episode, and its answers as lines of the run's journal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch

from ifonly.data.cohort import Cohort
from ifonly.data.episode import Episode
from ifonly.evidence import check_examination, examine, unexamined
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.models.base import TransitionModel
from ifonly.problem import (
    EnsembleProblem,
    Problem,
    Support,
    build_problem,
    checked_standing,
    members_of,
    support_for,
)
from ifonly.query import Limits, Query
from ifonly.records import to_plain
from ifonly.result import Evidence, ModelReference, Result, Status, Thresholds
from ifonly.result.table import failed_row, reason_of, to_row
from ifonly.runs.manifest import MODEL_CHECK
from ifonly.search.base import Solver
from ifonly.search.batch import solve_batch
from ifonly.search.build_result import model_reference
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
    """One query for many episodes; `model` is frozen for search on the processor."""

    model: TransitionModel
    query: Query
    solver: Solver
    device: str = "cpu"
    behaviour: BehaviourModel | None = None
    """What clinicians do: what a `min_support` is judged by, and what the data support of each answer."""

    def describe(self) -> dict[str, Any]:
        """What tells this task from others, in plain types."""
        support = None if self._support is None else dict(self._support.settings())
        behaviour = self.behaviour
        return {
            "query": self.query.to_dict(),
            "solver": {"name": self.solver.name, **self.solver.settings()},
            "support": support,
            "model": to_plain(self._reference),
            "model_fingerprint": self.model.fingerprint(),
            "examination": {
                "behaviour": None if behaviour is None else behaviour.fingerprint,
                "distances": behaviour is not None and behaviour.neighbours is not None,
                "thresholds": to_plain(Thresholds()),
            },
            MODEL_CHECK: None if self.model.standing is None else to_plain(self.model.standing),
            "schema": self.model.schema.to_dict(),
            "device": torch.device(self.device).type,
        }

    @property
    def _reference(self) -> ModelReference:
        together = self.query.objective is not None
        return model_reference(members_of(self.model) if together else (self.model,), together=together)

    def check(self, cohort: Cohort) -> None:
        """Refuse, before anything is solved, what would fail for every episode."""
        self.model.schema.require_same(cohort.schema, here="the model", there="the cohort")
        self.query.reward.bind(cohort.schema, self.model.scaler)
        checked_standing(self.model.standing, allow_failed_model=self.query.allow_failed_model)
        if self.query.objective is not None:
            members_of(self.model)
        check_examination(self.query, self.model, self.solver, self.behaviour)

    def answer(self, episodes: Sequence[Placed]) -> list[Answer]:
        """One answer per episode; an episode that fails is answered by the reason, and costs no other one.

        They are searched together, unless on a processor something limits the search of each: then they are solved
        one by one, so that no bracket depends on which others are there. (Optima do not: they are replayed alone.)
        Ctrl-C is passed on: what was begun is no answer.
        """
        if self._is_here and self.query.limits != Limits():
            return [self._alone(*placed) for placed in episodes]
        return list(self._together(episodes))

    def _problem(self, episode: Episode) -> Problem | EnsembleProblem:
        return build_problem(episode, self.model, self.query, support=self._support)

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
        return support_for(self.query, model, self.behaviour)

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
            return answer_of(position, self._row(problem, solve(self._moved(problem), self.solver)))
        except Exception as error:  # whatever a model or a reward of somebody else raises
            return answer_of(position, failed_row(episode, error))

    def _together(self, episodes: Sequence[Placed]) -> Iterator[Answer]:
        problems: dict[int, Problem | EnsembleProblem] = {}
        for position, episode in episodes:
            try:
                problems[position] = self._problem(episode)
            except Exception as error:
                yield answer_of(position, failed_row(episode, error))
        try:
            moved = [self._moved(problem) for problem in problems.values()]
            results = solve_batch(moved, self.solver, on_error="return")
        except Exception:  # which one is to blame shows one by one
            yield from (self._alone(position, problem.episode) for position, problem in problems.items())
            return
        for (position, problem), result in zip(problems.items(), results, strict=True):
            try:
                answer = answer_of(position, self._row(problem, result))
            except Exception as error:
                answer = answer_of(position, failed_row(problem.episode, error))
            yield answer

    def _row(self, problem: Problem | EnsembleProblem, result: Result | Exception) -> dict[str, Any]:
        if isinstance(result, Exception):
            raise result
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return to_row(replace(result, evidence=self._evidence(problem, result)))

    def _evidence(self, problem: Problem | EnsembleProblem, result: Result) -> Evidence:
        """What speaks for an answer; one that cannot be examined is still an answer, and says so."""
        # Replaying is quicker on a processor; only to solve the question again for every refit pays elsewhere.
        asked = self._moved(problem) if self.query.each_refit else problem
        try:
            return examine(
                asked,
                result,
                behaviour=self.behaviour,
                solver=self.solver,
            )
        except Exception as error:
            return unexamined(problem, result, reason_of(error))


def answer_of(position: int, row: dict[str, Any]) -> Answer:
    """A row as an answer."""
    return Answer(position, row["status"], json.dumps({"position": position, **row}, allow_nan=False))


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with a single thread: each core has its own episode, and sums are taken in the same order everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
