"""What is reviewed: the cohort, the model, the question and the run's answers, all in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch

from ifonly.cases import case_from_row, course_of, observed_case
from ifonly.cases.opening import expected_behaviour, open_run
from ifonly.cases.question import CaseQuestion, ruled
from ifonly.cases.trust import support_words
from ifonly.constraints import Constraints
from ifonly.data.cohort import Cohort
from ifonly.data.episode import Episode
from ifonly.data.store import load_cohort
from ifonly.errors import IfonlyError, StoreError
from ifonly.evidence import support_of
from ifonly.evidence.behaviour import BehaviourModel, load_behaviour
from ifonly.models.base import TransitionModel
from ifonly.models.checkpoint import load_model
from ifonly.problem import BaseProblem, checked_standing, members_of
from ifonly.runs import Run, load_run
from ifonly.web.listing import Listing, list_rows
from ifonly.web.refusals import RefusalError, unknown_episode, unusable_rules
from ifonly.web.settings import ReviewSettings

PROBLEMS_KEPT, CASES_KEPT = 512, 128
"""Of the episodes looked at last, so that to try another dose costs one rollout."""
EXAMPLES = 20
"""Episodes to try, at most, before a model is said not to fit the cohort."""

Plain = dict[str, Any]


class Review:
    """Cases and courses of a cohort under one question; safe to use from many threads."""

    def __init__(
        self,
        cohort: Cohort,
        model: TransitionModel,
        question: CaseQuestion,
        run: Run | None = None,
        *,
        behaviour: BehaviourModel | None = None,
    ) -> None:
        """`model` is frozen for search; the run, if there is one, is about episodes of this cohort and this model.

        `behaviour` says what the data supports.
        """
        self.cohort, self.model, self.question, self.run = cohort, model, question, run
        self.behaviour = behaviour
        self._quick_behaviour = behaviour
        if behaviour is not None and question.objective is not None:
            # Distances of every refit's states would take longer than somebody who tries a dose will wait.
            self._quick_behaviour = replace(behaviour, neighbours=None)
        self.fingerprint = cohort.fingerprint()
        self._table = None if run is None else run.table()
        self._places = {} if self._table is None else {id: row for row, id in enumerate(self._table["episode"])}
        self.listing = Listing(list_rows(cohort, model, question, table=self._table), solved=run is not None)
        self._problem = lru_cache(PROBLEMS_KEPT)(self._new_problem)
        self._case = lru_cache(CASES_KEPT)(self._new_case)
        self.example = self._first_example()
        """A case without an answer: what all cases have in common."""

    @classmethod
    def load(cls, settings: ReviewSettings) -> Review:
        """Read everything, and check that it belongs together; a model that failed its check needs permission."""
        cohort = load_cohort(settings.episodes)
        model = load_model(settings.model, schema=cohort.schema).for_search()
        behaviour = None if settings.behaviour is None else load_behaviour(settings.behaviour, schema=cohort.schema)
        if settings.question is not None:
            checked_standing(model.standing, allow_failed_model=settings.allow_failed_model)
            if settings.question.objective is not None:
                members_of(model)  # refuses a model that has none
            return cls(cohort, model, settings.question, behaviour=behaviour)
        assert settings.run is not None, "checked by the settings"
        run = load_run(settings.run)
        own = None if expected_behaviour(run) is None else behaviour
        opened = open_run(run, episodes=cohort, model=model, behaviour=own)
        checked_standing(opened.model.standing, allow_failed_model=settings.allow_failed_model)
        return cls(cohort, opened.model, opened.question, run, behaviour=opened.behaviour or behaviour)

    def require(self, episode: str) -> None:
        """Refuse an episode that is not in the cohort."""
        if episode not in self.cohort:
            raise unknown_episode()

    def case(self, episode: str) -> Plain:
        """The case with the run's answer, if it has one; not to be changed."""
        self.require(episode)
        return self._case(episode)

    def course(self, episode: str, actions: Sequence[int]) -> Plain:
        """How the episode would have gone under other actions [T], and whether the data supports its changes."""
        problem = self.problem(episode)
        known = range(problem.action_count)
        if len(actions) != problem.horizon or any(action not in known for action in actions):
            raise RefusalError(
                422,
                f"A course of this episode needs {problem.horizon} treatments, numbered 0 to {len(known) - 1}.",
                "Reload the page, and try again.",
            )
        found: Plain = course_of(problem, actions).to_dict() | {"support": None}
        if self._quick_behaviour is not None and found["changes"]:
            report = support_of(problem, actions, self._quick_behaviour).to_dict()
            found["support"] = support_words(problem, report)
        return found

    def problem(self, episode: str) -> BaseProblem:
        """The question, put to one episode."""
        self.require(episode)
        return self._problem(episode)

    def check_rules(self, episode: str, max_changes: int, constraints: Constraints | None) -> None:
        """Refuse rules that do not fit the episode, or contradict each other."""
        problem = self.problem(episode)
        try:
            ruled(problem, max_changes, constraints)
        except IfonlyError as error:
            raise unusable_rules(error, max_changes) from None

    def _new_problem(self, episode: str) -> BaseProblem:
        try:
            with torch.no_grad():
                return self._asked(self.cohort[episode])
        except IfonlyError as error:
            raise RefusalError(
                422, str(error), "Choose another case; this one cannot be replayed under the model."
            ) from None

    def _asked(self, episode: Episode) -> BaseProblem:
        """The question; without its rules where they do not fit the episode: its record can be looked at all the same.

        A run has no answer for such an episode, and a search for one is refused.
        """
        try:
            return self.question.about(episode, self.model, self.behaviour)
        except IfonlyError:
            if self.question.constraints is None:
                raise
            return replace(self.question, constraints=None).about(episode, self.model, self.behaviour)

    def _new_case(self, episode: str) -> Plain:
        problem = self._problem(episode)
        place = self._places.get(episode)
        if place is None or self._table is None or self.run is None:
            return observed_case(problem).to_dict()
        row = self._table.row(place, named=True)
        return case_from_row(problem, row, limits=self.run.warning_limits).to_dict()

    def _first_example(self) -> Plain:
        """The first episode that the model explains; if none of the first does, none will."""
        problem: RefusalError | None = None
        for episode in self.cohort.ids[:EXAMPLES]:
            try:
                return observed_case(self._problem(episode)).to_dict()
            except RefusalError as refusal:
                problem = problem or refusal
        raise StoreError(f"the model fits none of the first {EXAMPLES} episodes: {problem}")
