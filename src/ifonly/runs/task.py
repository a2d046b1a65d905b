"""One query put to many episodes, with answers as results or as lines of a run's journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ifonly.data.cohort import Cohort
from ifonly.data.episode import Episode
from ifonly.evidence import check_examination, examine, examine_all, unexamined
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.models.base import TransitionModel
from ifonly.problem import (
    BaseProblem,
    EnsembleProblem,
    Problem,
    Support,
    all_on,
    build_problem,
    build_problems,
    checked_standing,
    member_weights,
    members_of,
    support_for,
)
from ifonly.progress import Progress, silent
from ifonly.query import Limits, Query
from ifonly.records import to_plain
from ifonly.result import Evidence, ModelReference, Result, Status, Thresholds
from ifonly.result.table import failed_row, to_row
from ifonly.runs.manifest import MODEL_CHECK
from ifonly.search.base import Solver
from ifonly.search.batch import solve_batch
from ifonly.search.build_result import members_reference, model_reference
from ifonly.search.solve import solve

Placed = tuple[int, Episode]
"""The position of an episode in the run's cohort, and the episode."""


class Answer(NamedTuple):
    """The outcome for one episode: its position, its status, and its line of the journal."""

    position: int
    status: str
    line: str


@dataclass(frozen=True)
class Task:
    """One query for many episodes; `model` is frozen for search on the CPU."""

    model: TransitionModel
    query: Query
    solver: Solver
    device: str = "cpu"
    behaviour: BehaviourModel | None = None
    """How likely actions are: judges a `min_support`, and how far the data support each answer."""

    def describe(self) -> dict[str, Any]:
        """Everything that distinguishes this task from others, in plain types."""
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
        if self.query.objective is None:
            return model_reference(self.model)
        return members_reference(members_of(self.model), member_weights(self.model))

    def check(self, cohort: Cohort) -> None:
        """Before anything is solved, refuse a task that would fail for every episode."""
        self.model.schema.require_same(cohort.schema, here="the model", there="the cohort")
        self.query.reward.bind(cohort.schema, self.model.scaler)
        checked_standing(self.model.standing, allow_failed_model=self.query.allow_failed_model)
        if self.query.objective is not None:
            members_of(self.model)
        check_examination(self.query, self.model, self.solver, self.behaviour)

    def result(
        self,
        episode: Episode,
        *,
        watch: Callable[[str], Progress] = lambda stage: silent,
        found: Callable[[BaseProblem, Result], None] = lambda problem, result: None,
        proof: Path | None = None,
    ) -> Result:
        """The examined answer for an episode; one that is interrupted is the bracket so far, not examined.

        `watch` returns the progress callback of a stage, "search" or "refits"; `found` is called with the answer as
        soon as there is one, before it is examined. `proof` is a file for a log of the search.
        """
        problem = self._problem(episode)
        result = solve(self._moved(problem), self.solver, progress=watch("search"), proof=proof)
        found(problem, result)
        return self._examined(problem, result, watch)

    def _after_search(
        self, problem: Problem | EnsembleProblem, result: Result | Exception, evidence: Evidence | None
    ) -> Result:
        if isinstance(result, Exception):
            raise result
        return self._examined(problem, result) if evidence is None else replace(result, evidence=evidence)

    def _examined(
        self,
        problem: Problem | EnsembleProblem,
        result: Result,
        watch: Callable[[str], Progress] = lambda stage: silent,
    ) -> Result:
        """The answer with its evidence; one that cannot be examined is still an answer and says so."""
        if result.status is Status.INTERRUPTED:
            return result
        # Replays are faster on the CPU; only solving the query again for every refit pays on another device.
        asked, progress = (self._moved(problem), watch("refits")) if self.query.each_refit else (problem, silent)
        try:
            evidence = examine(asked, result, behaviour=self.behaviour, solver=self.solver, progress=progress)
        except Exception as error:
            evidence = unexamined(problem, result, error)
        return replace(result, evidence=evidence)

    def answer(self, episodes: Sequence[Placed]) -> list[Answer]:
        """One answer per episode; one that fails gets the reason as its answer and does not affect the others.

        Episodes are searched together, except on the CPU when searches are limited: then they are solved one by one,
        so that no bracket depends on the others. (Optima never do: they are replayed alone.) Ctrl-C is passed on, and
        unfinished episodes have no answer.
        """
        if self._is_here and self.query.limits != Limits():
            return [self._alone(*placed) for placed in episodes]
        return list(self._together(episodes))

    def _alone(self, position: int, episode: Episode) -> Answer:
        return _answered(position, episode, partial(self.result, episode))

    def _together(self, episodes: Sequence[Placed]) -> Iterator[Answer]:
        problems: dict[int, Problem | EnsembleProblem] = {}
        try:
            built = build_problems([episode for _, episode in episodes], self.model, self.query, support=self._support)
            problems = {position: problem for (position, _), problem in zip(episodes, built, strict=True)}
        except Exception:  # build one by one to find the culprit
            for position, episode in episodes:
                try:
                    problems[position] = self._problem(episode)
                except Exception as error:
                    yield answer_of(position, failed_row(episode, error))
        try:
            moved = self._all_moved(list(problems.values()))
            results = solve_batch(moved, self.solver, on_error="return")
        except Exception:  # solve one by one to find the culprit
            yield from (self._alone(position, problem.episode) for position, problem in problems.items())
            return
        told = self._all_examined(list(problems.values()), results)
        rows = zip(problems.items(), results, told, strict=True)
        for (position, problem), result, evidence in rows:
            yield _answered(position, problem.episode, partial(self._after_search, problem, result, evidence))

    def _all_examined(
        self, problems: Sequence[Problem | EnsembleProblem], results: Sequence[Result | Exception]
    ) -> Sequence[Evidence | None]:
        """The evidence for each result, all examined together; None for those that must be examined alone."""
        nothing = [None] * len(results)
        found = [result for result in results if isinstance(result, Result)]
        # The searches for every refit take nearly all the time, and do not run together.
        if self.query.each_refit or any(result.status is Status.INTERRUPTED for result in found):
            return nothing
        pairs = zip(problems, results, strict=True)
        asked = [problem for problem, result in pairs if isinstance(result, Result)]
        settings: dict[str, Any] = {"behaviour": self.behaviour, "solver": self.solver, "device": self.device}
        try:
            told = iter(examine_all(asked, found, **settings))
        except Exception:  # examine one by one to find the culprit
            return nothing
        return [next(told) if isinstance(result, Result) else None for result in results]

    def _problem(self, episode: Episode) -> Problem | EnsembleProblem:
        return build_problem(episode, self.model, self.query, support=self._support)

    @cached_property
    def _support(self) -> Support | None:
        """The support that changes need, shared by all episodes."""
        return support_for(self.query, self.model, self.behaviour)

    @cached_property
    def _there(self) -> tuple[TransitionModel, Support | None]:
        """Model and support on `device`."""
        model = self.model.for_search(self.device)
        return model, support_for(self.query, model, self.behaviour)

    def _moved(self, problem: Problem | EnsembleProblem) -> Problem | EnsembleProblem:
        if self._is_here:
            return problem
        model, support = self._there
        return problem.on(self.device, model, support=support)

    def _all_moved(self, problems: list[Problem | EnsembleProblem]) -> Sequence[Problem | EnsembleProblem]:
        if self._is_here or not problems:
            return problems
        model, support = self._there
        return all_on(problems, self.device, model, support=support)

    @property
    def _is_here(self) -> bool:
        return torch.device(self.device).type == "cpu"


def _answered(position: int, episode: Episode, find: Callable[[], Result]) -> Answer:
    """The answer that `find` gives, or the reason why there is none; Ctrl-C is passed on."""
    try:
        result = find()
        if result.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return answer_of(position, to_row(result))
    except Exception as error:  # whatever a user's model or reward raises
        return answer_of(position, failed_row(episode, error))


def answer_of(position: int, row: dict[str, Any]) -> Answer:
    """A row as an answer."""
    return Answer(position, row["status"], json.dumps({"position": position, **row}, allow_nan=False))
