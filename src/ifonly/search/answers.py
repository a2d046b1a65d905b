"""What an exact search knows beside its one answer: the best for every budget, and the next best sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ifonly.data.episode import FloatArray, IntArray, as_actions
from ifonly.errors import InputError, StoreError
from ifonly.problem import Objective


@dataclass(frozen=True, eq=False)
class Budget:
    """The best sequence with at most `max_changes` changes.

    Where no admissible sequence has so few, `actions` and `outcome` are None and `upper_bound` is minus infinity.
    """

    max_changes: int
    outcome: float | None
    actions: IntArray | None  # [T]
    upper_bound: float
    member_outcomes: FloatArray | None = None  # [M], of a panel

    def has_outcomes_of(self, members: int) -> bool:
        """Whether there is one outcome for each of so many members; none where nothing was found."""
        return _are_outcomes(self.member_outcomes, 0 if self.actions is None else members)

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; infinities become null."""
        return {
            "max_changes": self.max_changes,
            "outcome": self.outcome,
            "actions": None if self.actions is None else self.actions.tolist(),
            "upper_bound": self.upper_bound if math.isfinite(self.upper_bound) else None,
            **_outcomes_to_dict(self.member_outcomes),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Budget:
        """Read what `to_dict` wrote."""
        nothing = content["outcome"] is None
        if nothing != (content["actions"] is None):
            raise StoreError("result: a budget of the frontier has an outcome without actions, or the reverse.")
        unknown = -math.inf if nothing else math.inf
        return cls(
            max_changes=int(content["max_changes"]),
            outcome=None if nothing else float(content["outcome"]),
            actions=None if nothing else _actions(content["actions"]),
            upper_bound=unknown if content["upper_bound"] is None else float(content["upper_bound"]),
            member_outcomes=_outcomes_from_dict(content),
        )


@dataclass(frozen=True, eq=False)
class Alternative:
    """One of the best sequences."""

    actions: IntArray  # [T]
    outcome: float
    member_outcomes: FloatArray | None = None  # [M], of a panel

    def has_outcomes_of(self, members: int) -> bool:
        """Whether there is one outcome for each of so many members."""
        return _are_outcomes(self.member_outcomes, members)

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return {
            "outcome": self.outcome,
            "actions": self.actions.tolist(),
            **_outcomes_to_dict(self.member_outcomes),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Alternative:
        """Read what `to_dict` wrote."""
        return cls(_actions(content["actions"]), float(content["outcome"]), _outcomes_from_dict(content))


@dataclass(frozen=True, eq=False)
class Members:
    """The models of a panel, what counts of their outcomes, and the outcome of the answer under each."""

    objective: str | float
    """"mean", "worst", or the level of a lower quantile."""
    fingerprints: tuple[str, ...]
    outcomes: FloatArray  # [M]
    support_share: float = 1.0
    """The share of members at whose states a change had to be supported, where support was asked for."""

    @property
    def words(self) -> str:
        """Such as "the mean over 20 members"."""
        return Objective(self.objective).words(len(self.fingerprints))

    def has_outcomes_of(self, members: int) -> bool:
        """Whether there is one outcome for each of so many members."""
        return _are_outcomes(self.outcomes, members)

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; minus infinity becomes null."""
        return {
            "objective": self.objective,
            "fingerprints": list(self.fingerprints),
            "outcomes": _plain_outcomes(self.outcomes),
            "support_share": self.support_share,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Members:
        """Read what `to_dict` wrote."""
        try:
            objective = Objective(content["objective"]).goal
        except InputError as error:
            raise StoreError(f"result: {error}") from None
        return cls(
            objective=objective,
            fingerprints=tuple(str(one) for one in content["fingerprints"]),
            outcomes=_outcomes(content["outcomes"]),
            support_share=float(content["support_share"]),
        )


def fewest_changes(frontier: tuple[Budget, ...], target: float) -> Budget | None:
    """The smallest budget whose best outcome is at least `target`; None when no budget reaches it."""
    return next((budget for budget in frontier if budget.outcome is not None and budget.outcome >= target), None)


def _are_outcomes(outcomes: FloatArray | None, members: int) -> bool:
    return members == 0 if outcomes is None else outcomes.shape == (members,)


def _outcomes_to_dict(outcomes: FloatArray | None) -> dict[str, Any]:
    return {} if outcomes is None else {"member_outcomes": _plain_outcomes(outcomes)}


def _outcomes_from_dict(content: Mapping[str, Any]) -> FloatArray | None:
    return _outcomes(content["member_outcomes"]) if "member_outcomes" in content else None


def _plain_outcomes(outcomes: FloatArray) -> list[float | None]:
    """One member's outcome may be minus infinity where the objective's is not; JSON knows no infinities."""
    return [value if math.isfinite(value) else None for value in outcomes.tolist()]


def _outcomes(content: Any) -> FloatArray:
    return np.array([-math.inf if value is None else float(value) for value in content], dtype=np.float64)


def _actions(content: Any) -> IntArray:
    return as_actions("result", content, locate=lambda row: f"result, entry {row}")
