"""What is reviewed: the cohort, the model, the query and the run's answers, all in memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

import torch

from ifonly.constraints import Constraints
from ifonly.data.cohort import Cohort
from ifonly.data.store import load_cohort
from ifonly.errors import IfonlyError, StoreError
from ifonly.evidence import support_of
from ifonly.evidence.behaviour import BehaviourModel, load_behaviour
from ifonly.models.base import TransitionModel
from ifonly.models.checkpoint import load_model
from ifonly.problem import BaseProblem, build_problem, checked_standing, members_of
from ifonly.query import Query
from ifonly.report.cases import (
    Case,
    OpenedRun,
    TriedCourse,
    case_of,
    course_of,
    course_support,
    expected_behaviour,
    observed_case,
    open_run,
)
from ifonly.result.table import FAILED
from ifonly.runs import load_run
from ifonly.text.catalogue import say
from ifonly.web.guard import RefusalError
from ifonly.web.listing import Listing, list_rows
from ifonly.web.recurring import Patterns
from ifonly.web.settings import ReviewSettings

PROBLEMS_KEPT, CASES_KEPT = 512, 128
"""Of the episodes looked at last, so that to try another dose costs one rollout."""
EXAMPLES = 20
"""Episodes to try, at most, before a model is said not to fit the cohort."""


class Review:
    """Cases and courses of a cohort under one query; safe to use from many threads."""

    def __init__(
        self,
        cohort: Cohort,
        model: TransitionModel,
        query: Query,
        opened: OpenedRun | None = None,
        *,
        behaviour: BehaviourModel | None = None,
    ) -> None:
        """`model` is frozen for search; the run, if there is one, is about episodes of this cohort and this model.

        `behaviour` says what the data supports.
        """
        self.cohort, self.model, self.behaviour, self.opened = cohort, model, behaviour, opened
        self.query = replace(query, allow_failed_model=True)  # permission was given, and every page says so
        self._quick_behaviour = behaviour
        if behaviour is not None and query.objective is not None:
            # Distances of every refit's states would take longer than somebody who tries a dose will wait.
            self._quick_behaviour = replace(behaviour, neighbours=None)
        self.fingerprint = cohort.fingerprint()
        table = None if opened is None else opened.table
        self._statuses = {} if table is None else dict(table.select("episode", "status").iter_rows())
        self.listing = Listing(list_rows(cohort, model, query, table=table), solved=table is not None)
        self.patterns = Patterns.of(table, cohort)
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
        if settings.query is not None:
            checked_standing(model.standing, allow_failed_model=settings.allow_failed_model)
            if settings.query.objective is not None:
                members_of(model)  # refuses a model that has none
            return cls(cohort, model, settings.query, behaviour=behaviour)
        assert settings.run is not None, "checked by the settings"
        run = load_run(settings.run)
        own = None if expected_behaviour(run) is None else behaviour
        opened = open_run(run, episodes=cohort, model=model, behaviour=own)
        checked_standing(opened.model.standing, allow_failed_model=settings.allow_failed_model)
        return cls(cohort, opened.model, opened.query, opened, behaviour=opened.behaviour or behaviour)

    def warm_up(self) -> None:
        """Do what is done once, when the first answer is looked at, so that nobody waits for it."""
        answered = [id for id, status in self._statuses.items() if status != FAILED]
        with suppress(RefusalError):  # an episode that cannot be replayed is told of when somebody asks for it
            self.case(answered[0] if answered else self.cohort.ids[0])

    def require(self, episode: str) -> None:
        """Refuse an episode that is not in the cohort; its name is not repeated."""
        if episode not in self.cohort:
            raise RefusalError(404, "unknown episode")

    def case(self, episode: str) -> Case:
        """The case with the run's answer, if it has one."""
        self.require(episode)
        return self._case(episode)

    def course(self, episode: str, actions: Sequence[int]) -> TriedCourse:
        """How the episode would have gone under other actions [T], and whether the data supports its changes."""
        problem = self.problem(episode)
        known = range(problem.action_count)
        if len(actions) != problem.horizon or any(action not in known for action in actions):
            raise RefusalError(422, "no course", steps=problem.horizon, last=len(known) - 1)
        course = course_of(problem, actions)
        support = None
        if self._quick_behaviour is not None and course.changes:
            support = course_support(problem, support_of(problem, actions, self._quick_behaviour))
        return TriedCourse(**vars(course), support=support)

    def problem(self, episode: str) -> BaseProblem:
        """The query, put to one episode."""
        self.require(episode)
        return self._problem(episode)

    def ruled(self, episode: str, max_changes: int, constraints: Constraints) -> Query:
        """The query under other rules; refused where they do not fit the episode, or contradict each other."""
        problem = self.problem(episode)
        try:
            roomy = problem.with_query(max_changes=problem.horizon, constraints=constraints)
            fewest = int(roomy.changes(roomy.nearest_actions))
            if fewest > max_changes:
                code = f"refusal.changes allowed.{'some' if max_changes else 'none'}"
                raise RefusalError(422, "too few changes", fewest=fewest, allowed=say(code, changes=max_changes))
            return roomy.with_query(max_changes=max_changes).query
        except RefusalError:
            raise
        except IfonlyError as error:
            raise RefusalError(422, "unusable rules", reason=error) from None

    def _new_problem(self, episode: str) -> BaseProblem:
        """Without its rules where they do not fit the episode: its record can be looked at all the same.

        A run has no answer for such an episode, and a search for one is refused.
        """
        try:
            with torch.no_grad():
                unruled = build_problem(
                    self.cohort[episode],
                    self.model,
                    replace(self.query, constraints=Constraints()),
                    support=self.behaviour,
                )
        except IfonlyError as error:
            raise RefusalError(422, "not replayed", reason=error) from None
        try:
            return unruled.with_query(constraints=self.query.constraints)
        except IfonlyError:
            return unruled

    def _new_case(self, episode: str) -> Case:
        problem, status, model = self._problem(episode), self._statuses.get(episode), self.example.model
        if status is None or self.opened is None:
            return observed_case(problem, model=model)
        if status == FAILED:
            return observed_case(problem, failed=True, model=model)
        return case_of(problem, self.opened.result(episode), model=model)

    def _first_example(self) -> Case:
        """The first episode that the model explains; if none of the first does, none will."""
        problem: RefusalError | None = None
        for episode in self.cohort.ids[:EXAMPLES]:
            try:
                return observed_case(self._problem(episode))
            except RefusalError as refusal:
                problem = problem or refusal
        raise StoreError(f"the model fits none of the first {EXAMPLES} episodes: {problem}")
