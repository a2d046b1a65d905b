"""What a solve returns: the answer, the bracket around the truth, and what the claim rests on."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from ifonly.constraints import Constraints
from ifonly.data.episode import FloatArray, IntArray, as_actions
from ifonly.data.schema import Schema, step_and_moment
from ifonly.errors import InputError, StoreError
from ifonly.files import write_text_atomically
from ifonly.models.standing import Standing
from ifonly.rewards import Shown
from ifonly.search.answers import Alternative, Budget, Members, fewest_changes
from ifonly.version import __version__

FORMAT = "ifonly.result"
VERSION = 4
READABLE = (1, 2, 3, VERSION)
"""Version 1 knew neither constraints, a cost of changes, a frontier nor alternatives; version 2 no panels, no support;
version 3 neither checks of models nor what else speaks for trust.
"""


class Status(Enum):
    """How a search ended; each value has a sentence for people."""

    OPTIMAL = "optimal"
    GAP_REACHED = "gap reached"
    TIME_LIMIT = "time limit"
    NODE_LIMIT = "node limit"
    INTERRUPTED = "interrupted"
    HEURISTIC = "heuristic"

    @property
    def sentence(self) -> str:
        """What the status means."""
        return {
            Status.OPTIMAL: "No admissible sequence does better under this model.",
            Status.GAP_REACHED: "Stopped at the requested gap; the best sequence lies within the bracket.",
            Status.TIME_LIMIT: "Stopped at the time limit; the best sequence lies within the bracket.",
            Status.NODE_LIMIT: "Stopped at the node limit; the best sequence lies within the bracket.",
            Status.INTERRUPTED: "Stopped by hand; the best sequence lies within the bracket.",
            Status.HEURISTIC: "A heuristic's answer: better sequences may exist, nothing is proven.",
        }[self]

    @property
    def at_limit(self) -> bool:
        """Whether a limit or a person ended the search before its goal."""
        return self in (Status.TIME_LIMIT, Status.NODE_LIMIT, Status.INTERRUPTED)


@dataclass(frozen=True)
class Certificate:
    """What the upper bound rests on."""

    method: str
    proven: bool
    """Whether the upper bound is a proven one (false: there is none)."""
    tolerance: float = 0.0
    """Outcomes are compared up to this difference."""
    dtype: str = "float64"
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Stats:
    """The work that a search did."""

    nodes_expanded: int = 0
    """Nodes (for heuristics and enumeration: prefixes or sequences) whose continuations were computed."""
    nodes_generated: int = 0
    nodes_visited: int | None = None
    """Nodes that textbook A* visits with the same bound; known once A* has proven its answer."""
    model_steps: int = 0
    """Transitions computed; those inside branch and bound's bound do not count."""
    seconds_bounds: float = 0.0
    seconds_search: float = 0.0
    effective_branching_factor: float | None = None
    """The paper's measure of efficiency, from the nodes visited."""

    @property
    def seconds(self) -> float:
        """Bounds and search together."""
        return self.seconds_bounds + self.seconds_search

    def finished(self, seconds: float, horizon: int) -> Stats:
        """With the total time and the effective branching factor filled in."""
        return replace(
            self,
            seconds_search=max(0.0, seconds - self.seconds_bounds),
            effective_branching_factor=None
            if self.nodes_visited is None
            else effective_branching_factor(self.nodes_visited, horizon),
        )


def effective_branching_factor(nodes: int, horizon: int) -> float | None:
    """The b >= 1 with nodes = 1 + b + ... + b^horizon, as the paper measures efficiency; fewer nodes give 1, none None.

    >>> effective_branching_factor(13, 12), round(effective_branching_factor(8191, 12), 6)
    (1.0, 2.0)
    """
    if nodes < horizon + 1:
        return None if nodes < 1 else 1.0
    low, high = 1.0, float(nodes)
    for _ in range(200):
        middle = (low + high) / 2
        total = 0.0
        for _ in range(horizon + 1):
            total = total * middle + 1
            if total > nodes:
                break
        low, high = (low, middle) if total > nodes else (middle, high)
    return low


@dataclass(frozen=True)
class Change:
    """One step at which the counterfactual sequence acts differently."""

    step: int
    observed: int
    counterfactual: int
    words: str


@dataclass(frozen=True, eq=False)
class Result:
    """The best sequence found for one episode, the bracket, and what is needed to check it again.

    States are in original units. `upper_bound` is infinite when nothing is proven. For a panel, outcomes are those of
    its objective; states are the mean of its members' (in scaled coordinates) where the mean counts, else those of the
    member whose outcome counts.
    """

    episode_id: str
    schema: Schema
    status: Status
    max_changes: int
    actions: IntArray  # [T]
    observed_actions: IntArray  # [T]
    states: FloatArray  # [T, D]
    observed_states: FloatArray  # [T, D]
    outcome: float
    observed_outcome: float
    upper_bound: float
    certificate: Certificate
    stats: Stats
    solver: Mapping[str, Any]
    reward: Mapping[str, Any]
    shown: tuple[Shown, Shown]
    """Observed and counterfactual outcome as people read them, without the cost of changes."""
    allowed: tuple[tuple[int, ...], ...] | None
    """The actions allowed at each step, constraints included; None when every action was."""
    model_fingerprint: str
    constraints: Mapping[str, Any] | None = None
    """The rules of the question, as `Constraints.to_dict` writes them."""
    change_cost: float = 0.0
    """Reward lost for every step that differs; part of `outcome` and `upper_bound`."""
    support: Mapping[str, Any] | None = None
    """The settings of what every change must have behind it; None when nothing was asked."""
    members: Members | None = None
    """The members of a panel and their outcomes; None when one model was asked."""
    model_check: Standing | None = None
    """What a check concluded about what answered; None where nothing was checked. One that failed was allowed to be."""
    trust: Mapping[str, Any] | None = None
    """How far to trust the answer, as `ifonly.evidence.Trust.to_dict` writes it; None where nobody asked."""
    limits: Mapping[str, Any] = field(default_factory=dict)
    """The limits that the search was given."""
    frontier: tuple[Budget, ...] = ()
    """The best sequence for every budget from 0 to `max_changes`, if the solver gives them."""
    alternatives: tuple[Alternative, ...] = ()
    """The best sequences, best first, `actions` among them, if the solver was asked for more than one."""
    version: str = __version__

    @property
    def gap(self) -> float:
        """How much better, at most, any sequence could be than the one found."""
        return max(0.0, self.upper_bound - self.outcome)

    @property
    def statement(self) -> str:
        """What is claimed, in a sentence."""
        if self.model_check is not None and self.model_check.failed:
            return f"{self._claim} But the model failed its check: it was asked all the same."
        return self._claim

    @property
    def _claim(self) -> str:
        if self.status.at_limit and math.isinf(self.upper_bound):
            return f"Stopped ({self.status.value}) without an upper bound: better sequences may exist."
        if self.status is Status.OPTIMAL and (self.members is not None or self.support is not None):
            kind = "admissible" if self.support is None else "admissible and supported"
            whom = "under this model" if self.members is None else f"for {self.members.words}"
            return f"No {kind} sequence does better {whom}."
        return self.status.sentence

    @property
    def improvement(self) -> float:
        """Outcome gained over the observed one."""
        return self.outcome - self.observed_outcome

    @property
    def changes(self) -> tuple[Change, ...]:
        """The steps that differ, with the change in words."""
        steps = np.flatnonzero(self.actions != self.observed_actions)
        return tuple(self._change(int(step)) for step in steps)

    def fewest_changes(self, target: float) -> Budget | None:
        """The smallest budget whose best outcome found is at least `target`; None when none is."""
        if not self.frontier:
            raise InputError("this result has no frontier: its solver answers one budget only; use BranchAndBound.")
        return fewest_changes(self.frontier, target)

    def _change(self, step: int) -> Change:
        before, after = int(self.observed_actions[step]), int(self.actions[step])
        return Change(step, before, after, self.schema.actions.describe_change(before, after))

    def __str__(self) -> str:
        observed, found = self.shown
        relative = (found.value - observed.value) / abs(observed.value) if observed.value else 0.0
        count, nodes = len(self.changes), self.stats.nodes_expanded
        if math.isinf(self.upper_bound):
            bound = "no bound"
        else:
            bound = "bound = outcome" if self.status is Status.OPTIMAL else f"gap {self.gap:.4g}"
        head = (
            f"{self.status.value} | {count} change{'' if count == 1 else 's'} (at most {self.max_changes}) | "
            f"{found.label} {observed.value:.1f} -> {found.value:.1f} ({relative:+.1%}) | {bound} | "
            f"{nodes:,} node{'' if nodes == 1 else 's'}, {self.stats.seconds:.2f} s"
        )
        if self.members is not None:
            head += f" | {self.members.words}"
        if self.model_check is not None:
            head += f" | model check: {self.model_check.verdict}"
        return "\n".join([head, *(f"  {self._when(change)}: {change.words}" for change in self.changes)])

    def _when(self, change: Change) -> str:
        return step_and_moment(self.schema, change.step)

    def __repr__(self) -> str:
        return f"Result({self.episode_id!r}, {self.status.value}, outcome {self.outcome:.6g}, gap {self.gap:.3g})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; infinities become null."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "ifonly": self.version,
            "episode": self.episode_id,
            "status": self.status.value,
            "statement": self.statement,
            "max_changes": self.max_changes,
            "outcome": self.outcome,
            "observed_outcome": self.observed_outcome,
            "upper_bound": _finite(self.upper_bound),
            "gap": _finite(self.gap),
            "shown": [asdict(shown) for shown in self.shown],
            "changes": [asdict(change) for change in self.changes],
            "actions": self.actions.tolist(),
            "observed_actions": self.observed_actions.tolist(),
            "states": self.states.tolist(),
            "observed_states": self.observed_states.tolist(),
            "allowed": None if self.allowed is None else [list(step) for step in self.allowed],
            "constraints": None if self.constraints is None else dict(self.constraints),
            "change_cost": self.change_cost,
            "support": None if self.support is None else dict(self.support),
            "members": None if self.members is None else self.members.to_dict(),
            "model_check": None if self.model_check is None else self.model_check.to_dict(),
            "trust": None if self.trust is None else dict(self.trust),
            "frontier": [budget.to_dict() for budget in self.frontier],
            "alternatives": [alternative.to_dict() for alternative in self.alternatives],
            "certificate": {**asdict(self.certificate), "details": dict(self.certificate.details)},
            "stats": asdict(self.stats),
            "solver": dict(self.solver),
            "limits": dict(self.limits),
            "reward": dict(self.reward),
            "model_fingerprint": self.model_fingerprint,
            "schema": self.schema.to_dict(),
        }

    def to_json(self) -> str:
        """One JSON document; `Result.from_json` reads it back."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Result:
        """Read what `to_dict` wrote."""
        if content.get("format") != FORMAT:
            raise StoreError(f"not a result: expected format {FORMAT!r}, found {content.get('format')!r}.")
        if content.get("version") not in READABLE:
            raise StoreError(
                f"result of version {content.get('version')!r}; this ifonly reads versions up to {VERSION}."
            )
        if content["version"] == 1:
            content = {**content, "constraints": None, "change_cost": 0.0, "frontier": [], "alternatives": []}
        if content["version"] < 3:
            content = {**content, "support": None, "members": None}
        if content["version"] < VERSION:
            content = {**content, "model_check": None, "trust": None}
        try:
            result = cls(
                episode_id=content["episode"],
                schema=Schema.from_dict(content["schema"]),
                status=Status(content["status"]),
                max_changes=content["max_changes"],
                actions=_actions_from(content["actions"]),
                observed_actions=_actions_from(content["observed_actions"]),
                states=np.array(content["states"], dtype=np.float64),
                observed_states=np.array(content["observed_states"], dtype=np.float64),
                outcome=float(content["outcome"]),
                observed_outcome=float(content["observed_outcome"]),
                upper_bound=math.inf if content["upper_bound"] is None else float(content["upper_bound"]),
                certificate=Certificate(**content["certificate"]),
                stats=Stats(**content["stats"]),
                solver=dict(content["solver"]),
                limits=dict(content["limits"]),
                reward=dict(content["reward"]),
                shown=(Shown(**content["shown"][0]), Shown(**content["shown"][1])),
                allowed=None if content["allowed"] is None else _allowed_from(content["allowed"]),
                model_fingerprint=content["model_fingerprint"],
                constraints=_constraints_from(content["constraints"]),
                change_cost=float(content["change_cost"]),
                support=None if content["support"] is None else dict(content["support"]),
                members=None if content["members"] is None else Members.from_dict(content["members"]),
                model_check=None if content["model_check"] is None else Standing.from_dict(content["model_check"]),
                trust=None if content["trust"] is None else dict(content["trust"]),
                frontier=tuple(Budget.from_dict(budget) for budget in content["frontier"]),
                alternatives=tuple(Alternative.from_dict(one) for one in content["alternatives"]),
                version=content["ifonly"],
            )
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise StoreError(f"result: broken or incomplete ({type(error).__name__}: {error}).") from None
        result._check_shapes()
        for key, derived in (("gap", _finite(result.gap)), ("statement", result.statement)):
            if content.get(key, derived) != derived:
                raise StoreError(
                    f"result: its {key} does not follow from the rest ({content[key]!r}, not {derived!r})."
                )
        if result.trust is not None and result.trust.get("model_check") != content["model_check"]:
            raise StoreError("result: what its trust says of the model's check is not what it says itself.")
        changes = [asdict(change) for change in result.changes]
        if content.get("changes", changes) != changes:
            raise StoreError("result: its changes do not follow from its actions.")
        return result

    def _check_shapes(self) -> None:
        """Refuse a stored result whose parts do not belong together."""
        steps, features, actions = len(self.actions), len(self.schema.dynamic), len(self.schema.actions)
        for name in ("actions", "observed_actions"):
            array = getattr(self, name)
            if not _are_actions(array, steps, actions):
                raise StoreError(f"result: {name} must be {steps} of the schema's {actions} actions.")
        lists = [budget.actions for budget in self.frontier] + [one.actions for one in self.alternatives]
        if not all(_are_actions(array, steps, actions) for array in lists if array is not None):
            raise StoreError(f"result: frontier and alternatives must hold {steps} of the schema's {actions} actions.")
        if self.frontier and [one.max_changes for one in self.frontier] != list(range(self.max_changes + 1)):
            raise StoreError(f"result: frontier must have one entry for each budget from 0 to {self.max_changes}.")
        if self.allowed is not None and (
            len(self.allowed) != steps or any(not 0 <= action < actions for step in self.allowed for action in step)
        ):
            raise StoreError(f"result: allowed must list, for each of {steps} steps, some of the {actions} actions.")
        asked = 0 if self.members is None else len(self.members.fingerprints)
        for one in (self.members, *self.frontier, *self.alternatives):
            if one is not None and not one.has_outcomes_of(asked):
                raise StoreError(f"result: member outcomes must be one for each of {asked} members.")
        for name in ("states", "observed_states"):
            if getattr(self, name).shape != (steps, features):
                raise StoreError(f"result: {name} must hold {steps} steps of {features} features.")

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Read what `to_json` wrote."""
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            raise StoreError(f"result: not valid JSON ({error}); the file may be cut off.") from None
        if not isinstance(content, dict):
            raise StoreError("result: expected a JSON object.")
        return cls.from_dict(content)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the result as JSON, atomically; an existing file is replaced only on request."""
        if Path(path).exists() and not overwrite:
            raise StoreError(f"{path} exists already; pass overwrite=True or choose another name.")
        write_text_atomically(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read a result that `save` wrote."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"result {path}: cannot be read ({error}).") from None
        try:
            return cls.from_json(text)
        except StoreError as error:
            raise StoreError(f"{path}: {error}") from None


def _are_actions(array: IntArray, steps: int, actions: int) -> bool:
    return array.shape == (steps,) and bool(((array >= 0) & (array < actions)).all())


def _allowed_from(content: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(_actions_from(step).tolist()) for step in content)


def _constraints_from(content: Any) -> dict[str, Any] | None:
    """The same rules in the same words; broken ones are refused."""
    try:
        return None if content is None else Constraints.from_dict(content).to_dict()
    except InputError as error:
        raise StoreError(f"result: {error}") from None


def _actions_from(content: Any) -> IntArray:
    return as_actions("result", content, locate=lambda row: f"result, entry {row}")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
