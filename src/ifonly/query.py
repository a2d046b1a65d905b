"""The query: what is asked about an episode, from the library, the command line, runs, reports and the server."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ifonly.constraints import Constraints
from ifonly.data.parsing import yaml_text
from ifonly.data.plain import as_number, check_keys, check_mapping, read_plain
from ifonly.errors import InputError, SettingError, StoreError
from ifonly.files import write_text_atomically
from ifonly.objective import Objective
from ifonly.rewards import Reward
from ifonly.rewards.stated import COSTS, REWARDS, refuse_misplaced, reward_stated, with_costs

BRANCH_AND_BOUND = "branch-and-bound"


@dataclass(frozen=True)
class Limits:
    """When a search stops early. Reaching a limit is not an error: the result is then a valid bracket.

    `gap` is how much better another sequence may still be: in the outcome's units, or as a share of the improvement
    found, such as "1%". `nodes` are counted between batches, so exhaustive search and the heuristics may exceed them
    by one batch. `memory` (MiB) stops nothing: a search whose open list outgrows it continues depth first, which needs
    hardly any more.
    """

    seconds: float | None = None
    nodes: int | None = None
    gap: float | str = 0.0
    memory: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.gap, str) and self.gap.rstrip().endswith("%"):
            share = as_number("limit gap", self.gap.rstrip().removesuffix("%"))
            if not 0 <= share < math.inf:
                raise SettingError("gap", self.gap, "must be a share of zero or more, such as 1%.")
            object.__setattr__(self, "gap", f"{share:.12g}%" if share else 0.0)
        for name in ("seconds", "nodes", "memory", *(() if self.gap_is_share else ("gap",))):
            value = getattr(self, name)
            if isinstance(value, str | np.generic):  # YAML takes 1e-3 for text
                value = as_number(f"limit {name}", value)
                object.__setattr__(self, name, int(value) if name == "nodes" and value.is_integer() else value)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if (value is not None or name == "gap") and not (is_number and 0 <= value < math.inf):
                raise SettingError(name, value, "must be zero or positive, and finite; leave it out for none.")
        if self.nodes is not None and self.nodes != int(self.nodes):
            raise SettingError("nodes", self.nodes, "must be a whole number.")

    @property
    def gap_is_share(self) -> bool:
        """Whether the gap is a share of the improvement."""
        return isinstance(self.gap, str) and self.gap.endswith("%")

    @property
    def is_exact(self) -> bool:
        """Whether no gap is allowed."""
        return self.gap == 0

    def allowed_gap(self, improvement: Tensor) -> Tensor:
        """The allowed gap [...] in the outcome's units, given the improvements found [...]."""
        if isinstance(self.gap, str):
            share = float(self.gap.removesuffix("%")) / 100
            return torch.where(improvement > 0, share * improvement, 0.0).nan_to_num(nan=0.0, posinf=0.0)
        return torch.full_like(improvement, self.gap)


@dataclass(frozen=True)
class Query:
    """One question about an episode: which admissible sequence would have been best, and what to report about it.

    Checked when built; `from_dict`, `load` and `save` read and write it as JSON or YAML.

    >>> from ifonly.rewards import minus
    >>> query = Query(minus("SOFA"), max_changes=2, constraints=Constraints(locked=[0]))
    >>> Query.from_dict(query.to_dict()) == query
    True
    """

    reward: Reward
    """What counts as better, in original units."""
    max_changes: int | None = 3
    """At most so many steps may differ from the recording (k); None: any number."""
    constraints: Constraints = field(default_factory=Constraints)
    """Which sequences may be considered."""
    change_cost: float = 0.0
    """Reward lost for every step that differs from the recording."""
    objective: str | float | None = None
    """How the outcomes of an ensemble's members are combined (see `Objective`); None: only its centre is used."""
    min_support: float | None = None
    """The least probability of a changed action at the state then reached; None: any change is admissible."""
    support_share: float = 1.0
    """With an objective: the share of members at whose own states a change must be supported."""
    each_refit: bool = False
    """Evidence: whether to solve the query for every member of an ensemble, to see which change the same steps."""
    honest: bool = False
    """Evidence: whether to estimate how much of the promised gain is selection bias (`ifonly.evidence.honest`)."""
    sensitivity: bool = False
    """Evidence: whether to find how large an unrecorded influence would have to be to undo the gain."""
    coupling: bool = False
    """Evidence: whether to find what is left of the gain if other actions need not come with the same noise."""
    limits: Limits = field(default_factory=Limits)
    """When a search stops early, for each episode."""
    solver: Mapping[str, Any] = field(default_factory=lambda: {"name": BRANCH_AND_BOUND})
    """The solver's `name` and those of its settings that differ from its defaults (`ifonly.search.solvers`)."""
    allow_failed_model: bool = False
    """Whether to use a model that failed its check; every result then says so."""

    def __post_init__(self) -> None:
        _require(self.reward, Reward, "reward", 'minus("SOFA")')
        _require(self.constraints, Constraints, "constraints", "Constraints(...)")
        _require(self.limits, Limits, "limits", "Limits(...)")
        for name in ("each_refit", "honest", "sensitivity", "coupling", "allow_failed_model"):
            _require(getattr(self, name), bool, name, "True or False")
        object.__setattr__(self, "max_changes", _checked_changes(self.max_changes))
        object.__setattr__(self, "change_cost", _checked_cost(self.change_cost))
        if self.objective is not None:
            object.__setattr__(self, "objective", Objective(self.objective).goal)
        if self.min_support is not None:
            object.__setattr__(self, "min_support", _share("min_support", self.min_support, "a probability"))
        object.__setattr__(self, "support_share", _share("support_share", self.support_share, "a share of the members"))
        object.__setattr__(self, "solver", _checked_solver(self.solver))

    def budget(self, horizon: int) -> int:
        """How many of `horizon` steps may be changed."""
        return horizon if self.max_changes is None else min(self.max_changes, horizon)

    def with_changes(self, **changes: Any) -> Query:
        """The same question with some entries changed."""
        return replace(self, **changes)

    @property
    def fingerprint(self) -> str:
        """A short hash of the whole query."""
        content = json.dumps(self.to_dict(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON or YAML; of a reward that is code only the name is kept."""
        content = {one.name: getattr(self, one.name) for one in fields(self)}
        parts = {"reward": self.reward.to_dict(), "constraints": self.constraints.to_dict()}
        return content | parts | {"limits": asdict(self.limits), "solver": dict(self.solver)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], *, reward: Reward | None = None) -> Query:
        """Read what `to_dict` or a person wrote; entries left out have their defaults.

        The reward may be written as `minimize: FEATURE`, `maximize: FEATURE`, `weights:` of features or a list of
        `goals:`, with or without `costs:` of actions and `dose_costs:`. A reward that is code is not stored: without
        passing it as `reward`, the query can be read but not evaluated. A `reward` that is passed replaces the one
        written; costs that are written stay.
        """
        known = {one.name for one in fields(cls)}
        check_mapping("query", content)
        refuse_misplaced(content)
        _refuse_misplaced_rules(content)
        check_keys("query", content, required=set(), optional=known | set(REWARDS) | set(COSTS))
        values = {name: value for name, value in content.items() if name in known}
        values["reward"] = with_costs(reward_stated(content) if reward is None else reward, content)
        if "constraints" in values:
            values["constraints"] = Constraints.from_dict(values["constraints"] or {})
        if "limits" in values:
            given = values["limits"] or {}
            check_keys("query: limits", given, required=set(), optional={one.name for one in fields(Limits)})
            values["limits"] = Limits(**given)
        if isinstance(values.get("max_changes"), str) and values["max_changes"].lower() == "none":
            values["max_changes"] = None
        return cls(**values)

    @classmethod
    def load(cls, path: str | Path, *, reward: Reward | None = None) -> Query:
        """Read a query file, YAML or JSON; a `reward` that is passed replaces the one written there."""
        try:
            return cls.from_dict(read_query_file(path), reward=reward)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write a query file: JSON where the name ends in .json, otherwise YAML."""
        content = self.to_dict()
        if Path(path).suffix == ".json":
            text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        else:
            text = yaml_text(content)
        write_text_atomically(path, text)


def read_query_file(path: str | Path) -> dict[str, Any]:
    """The content of a query file, unchecked."""
    content = read_plain(Path(path))
    if not isinstance(content, dict):
        raise StoreError(f"{path}: a query is a mapping, such as `minimize: SOFA` and `max_changes: 3`.")
    return content


def _refuse_misplaced_rules(content: Mapping[str, Any]) -> None:
    """Refuse rules that do not stand below the entry for them."""
    rules = ("rules", *(one.name for one in fields(Constraints)))
    if misplaced := [name for name in rules if name in content]:
        raise InputError(
            f"query: {misplaced[0]!r}: rules stand below `constraints:`, such as `constraints: {{locked: [0]}}`."
        )


def _require(value: Any, kind: type, name: str, example: str) -> None:
    if not isinstance(value, kind):
        raise InputError(f"query: {name}={value!r}: pass {example}.")


def _checked_changes(max_changes: Any) -> int | None:
    if max_changes is None:
        return None
    if isinstance(max_changes, bool) or not isinstance(max_changes, int | np.integer) or max_changes < 0:
        raise SettingError("max_changes", max_changes, "must be a whole number of at least 0, or none for no limit.")
    return int(max_changes)


def _share(name: str, value: Any, kind: str) -> float:
    share = as_number(f"query: {name}", value)
    if not 0 < share <= 1:
        raise InputError(f"query: {name}={value!r} must be {kind}, above 0 and up to 1.")
    return share


def _checked_cost(change_cost: Any) -> float:
    cost = as_number("change_cost", change_cost)
    if not 0 <= cost < math.inf:
        raise SettingError("change_cost", change_cost, "must not be negative; it is the reward lost for every change.")
    return float(cost)


def _checked_solver(given: Any) -> dict[str, Any]:
    """The solver's name and settings as plain types; a name alone is enough."""
    content = {"name": given} if isinstance(given, str) else dict(given) if isinstance(given, Mapping) else {}
    if not isinstance(content.get("name"), str):
        raise InputError(f"query: solver {given!r} must be a solver's name, or a mapping with its name and settings.")
    plain = (int, float, str, bool, type(None))
    if wrong := [name for name, value in content.items() if not isinstance(value, plain)]:
        raise InputError(f"query: solver setting {wrong[0]!r} must be a number, text, true or false.")
    return content
