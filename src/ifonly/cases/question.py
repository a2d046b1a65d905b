"""The question of a run or of a review, to be put to one episode after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ifonly.constraints import Constraints
from ifonly.data.episode import Episode
from ifonly.errors import InputError
from ifonly.evidence.behaviour import BehaviourModel, BehaviourSupport
from ifonly.models.base import TransitionModel
from ifonly.problem import BaseProblem, put_question
from ifonly.rewards import Reward, reward_from_dict


@dataclass(frozen=True)
class CaseQuestion:
    """What is asked about every episode."""

    reward: Reward
    max_changes: int | None = 3
    """None: no limit."""
    constraints: Constraints | None = None
    change_cost: float = 0.0
    objective: str | float | None = None
    """What counts of the outcomes under an ensemble's refits; None: the model alone is asked."""
    min_support: float | None = None
    """How likely clinicians must have been to make a change; None: that is not asked."""

    @classmethod
    def of(cls, manifest: Mapping[str, Any], reward: Reward | None = None) -> CaseQuestion:
        """What a run was asked, from its manifest; `reward`, where it is code, which is not stored."""
        asked = manifest["question"]
        rules, support = asked["constraints"], asked.get("support")
        return cls(
            reward=reward_from_dict(asked["reward"]) if reward is None else reward,
            max_changes=asked["max_changes"],
            constraints=None if rules is None else Constraints.from_dict(rules),
            change_cost=asked["change_cost"],
            objective=asked.get("objective"),
            min_support=None if support is None else support["min_support"],
        )

    def about(self, episode: Episode, model: TransitionModel, behaviour: BehaviourModel | None = None) -> BaseProblem:
        """The question, put to one episode; `model` is frozen for search, and may have failed its check.

        `behaviour` is needed where support is asked for.
        """
        return put_question(
            episode,
            model,
            self.reward,
            self.max_changes,
            objective=self.objective,
            constraints=self.constraints,
            change_cost=self.change_cost,
            support=self._support(model, behaviour),
            allow_failed_model=True,
        )

    def _support(self, model: TransitionModel, behaviour: BehaviourModel | None) -> BehaviourSupport | None:
        if self.min_support is None:
            return None
        if behaviour is None:
            raise InputError(
                f"only changes with a support of {self.min_support} are asked for, which takes the behaviour model."
            )
        return behaviour.with_threshold(self.min_support, model)


def ruled(problem: BaseProblem, max_changes: int, constraints: Constraints | None) -> BaseProblem:
    """The problem under another budget and other rules; rules that contradict each other are refused."""
    return problem.with_constraints(None).with_max_changes(max_changes).with_constraints(constraints)
