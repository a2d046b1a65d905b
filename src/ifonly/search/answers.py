"""What an exact search knows beside its one answer: the best for every budget, and the next best sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ifonly.episodes.episode import IntArray, as_actions
from ifonly.errors import StoreError


@dataclass(frozen=True, eq=False)
class Budget:
    """The best sequence with at most `max_changes` changes.

    Where no admissible sequence has so few, `actions` and `outcome` are None and `upper_bound` is minus infinity.
    """

    max_changes: int
    outcome: float | None
    actions: IntArray | None  # [T]
    upper_bound: float

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; infinities become null."""
        return {
            "max_changes": self.max_changes,
            "outcome": self.outcome,
            "actions": None if self.actions is None else self.actions.tolist(),
            "upper_bound": self.upper_bound if math.isfinite(self.upper_bound) else None,
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
        )


@dataclass(frozen=True, eq=False)
class Alternative:
    """One of the best sequences."""

    actions: IntArray  # [T]
    outcome: float

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return {"outcome": self.outcome, "actions": self.actions.tolist()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Alternative:
        """Read what `to_dict` wrote."""
        return cls(_actions(content["actions"]), float(content["outcome"]))


def fewest_changes(frontier: tuple[Budget, ...], target: float) -> Budget | None:
    """The smallest budget whose best outcome is at least `target`; None when no budget reaches it."""
    return next((budget for budget in frontier if budget.outcome is not None and budget.outcome >= target), None)


def _actions(content: Any) -> IntArray:
    return as_actions("result", content, locate=lambda row: f"result, entry {row}")
