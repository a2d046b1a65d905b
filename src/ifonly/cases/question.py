"""The query of a run or of a review, put to one episode after the other."""

from __future__ import annotations

from ifonly.constraints import Constraints
from ifonly.data.episode import Episode
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.models.base import TransitionModel
from ifonly.problem import BaseProblem, build_problem
from ifonly.query import Query


def case_problem(
    query: Query, episode: Episode, model: TransitionModel, behaviour: BehaviourModel | None = None
) -> BaseProblem:
    """The query put to one episode; `model` is frozen for search, and may have failed its check: cases say so."""
    return build_problem(episode, model, query.with_changes(allow_failed_model=True), support=behaviour)


def ruled(problem: BaseProblem, max_changes: int, constraints: Constraints | None) -> BaseProblem:
    """The problem under another budget and other rules; rules that contradict each other are refused."""
    return problem.with_query(max_changes=max_changes, constraints=constraints or Constraints())
