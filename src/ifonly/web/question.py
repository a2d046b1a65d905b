"""The question that is reviewed: what counts as better, how many changes, under which rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ifonly.constraints import Constraints
from ifonly.episodes.episode import Episode
from ifonly.models.base import TransitionModel
from ifonly.problem import Problem
from ifonly.rewards import Reward, reward_from_dict


@dataclass(frozen=True)
class ReviewQuestion:
    """What is asked about every episode."""

    reward: Reward
    max_changes: int | None = 3
    """None: no limit."""
    constraints: Constraints | None = None
    change_cost: float = 0.0

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> ReviewQuestion:
        """What a run was asked, from its manifest."""
        asked = manifest["question"]
        rules = asked["constraints"]
        return cls(
            reward=reward_from_dict(asked["reward"]),
            max_changes=asked["max_changes"],
            constraints=None if rules is None else Constraints.from_dict(rules),
            change_cost=asked["change_cost"],
        )

    def about(self, episode: Episode, model: TransitionModel) -> Problem:
        """The question, put to one episode; `model` is frozen for search."""
        return Problem.from_episode(
            episode,
            model,
            self.reward,
            self.max_changes,
            constraints=self.constraints,
            change_cost=self.change_cost,
        )


def ruled(problem: Problem, max_changes: int, constraints: Constraints | None) -> Problem:
    """The problem under another budget and other rules; rules that contradict each other are refused."""
    return problem.with_constraints(None).with_max_changes(max_changes).with_constraints(constraints)
