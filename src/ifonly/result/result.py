"""The one answer: the best sequence found, the bracket around the truth, and what the claim rests on.

The same in memory, in a run's table, over the API and in reports: numbers, codes and references, never a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from ifonly.data.episode import IntArray
from ifonly.data.parsing import parse_json
from ifonly.data.plain import check_keys, read_plain
from ifonly.data.schema import Schema
from ifonly.errors import InputError, StoreError
from ifonly.files import require_absent, write_text_atomically
from ifonly.markup import html_text
from ifonly.query import Query
from ifonly.records import Integers, KnownNumber, Outcomes, Settings, States, UpperBound, from_plain, to_plain
from ifonly.result.evidence import Evidence
from ifonly.result.improvement import Improvement, improvement_between
from ifonly.result.parts import Alternative, Budget, Certificate, Change, ModelReference, Stats, Status
from ifonly.rewards import Shown
from ifonly.text.results import result_lines
from ifonly.version import __version__

FORMAT = "ifonly.result"
VERSION = 7

_OBJECT: dict[str, Any] = {"type": "object"}

AnyQuery = Annotated[
    Query,
    PlainValidator(lambda content: content if isinstance(content, Query) else Query.from_dict(content)),
    PlainSerializer(Query.to_dict),
    WithJsonSchema(_OBJECT),
]
AnySchema = Annotated[
    Schema,
    PlainValidator(lambda content: content if isinstance(content, Schema) else Schema.from_dict(content)),
    PlainSerializer(Schema.to_dict),
    WithJsonSchema(_OBJECT),
]


@dataclass(frozen=True, eq=False)
class Provenance:
    """What an answer rests on; the same for all answers of a run, which stores it once."""

    query: AnyQuery
    schema: AnySchema
    model: ModelReference
    solver: Settings
    """The solver's name and all of its settings."""
    support: Settings | None = None
    """The settings of the support that changes needed; None if none was asked for."""
    version: str = __version__
    """Of ifonly."""


@dataclass(frozen=True, eq=False)
class Result:
    """The best sequence found for one episode, the bracket, and what is needed to check it again.

    States are in original units, outcomes in the reward's. `upper_bound` is infinite when nothing is proven. Of an
    ensemble problem, outcomes are those of its objective; states are the mean of its members' (in scaled coordinates)
    where the mean counts, else those of the member whose outcome counts.
    """

    episode: str
    subject: str
    status: Status
    actions: Integers  # [T]
    observed_actions: Integers  # [T]
    states: States  # [T, D]
    observed_states: States  # [T, D]
    outcome: float
    observed_outcome: float
    clipped_outcome: KnownNumber
    """The outcome with every state clipped to its feature's plausible range, without the cost of changes."""
    observed_clipped_outcome: KnownNumber
    upper_bound: UpperBound
    certificate: Certificate
    stats: Stats
    provenance: Provenance
    member_outcomes: Outcomes | None = None  # [M], of an ensemble problem
    frontier: tuple[Budget, ...] = ()
    """The best sequence for every budget from 0 to `max_changes`, if the solver gives them."""
    alternatives: tuple[Alternative, ...] = ()
    """The best sequences, best first, `actions` among them, if the solver was asked for more than one."""
    evidence: Evidence = field(default_factory=Evidence)
    """The evidence for and against the answer, as far as it was asked for."""

    @property
    def query(self) -> Query:
        """What was asked."""
        return self.provenance.query

    @property
    def schema(self) -> Schema:
        """The schema of the episode."""
        return self.provenance.schema

    @property
    def max_changes(self) -> int:
        """The most steps that could differ."""
        return self.query.budget(len(self.actions))

    @property
    def gap(self) -> float:
        """How much better than the one found a sequence could at most be."""
        return max(0.0, self.upper_bound - self.outcome)

    @property
    def relative_gap(self) -> float | None:
        """The gap as a share of the improvement; None if there is no improvement or no bound."""
        return self.gap / self.improvement if self.improvement > 0 and self.gap < float("inf") else None

    @property
    def proven(self) -> bool:
        """Whether no admissible sequence does better, up to the certificate's tolerance."""
        return self.status is Status.OPTIMAL and self.certificate.proven

    @property
    def improvement(self) -> float:
        """Outcome gained over the observed one."""
        return self.outcome - self.observed_outcome

    @property
    def shown_improvement(self) -> Improvement:
        """Observed and counterfactual outcome as shown to people, and the improvement."""
        return improvement_between(self.query.reward.show, self.observed_clipped_outcome, self.clipped_outcome)

    @property
    def relative_improvement(self) -> float | None:
        """The gain in clipped outcomes relative to the size of the observed one; None if that is zero or unknown."""
        return self.shown_improvement.relative

    @property
    def changes(self) -> tuple[Change, ...]:
        """The steps that differ."""
        steps = np.flatnonzero(self.actions != self.observed_actions)
        return tuple(Change(int(t), int(self.observed_actions[t]), int(self.actions[t])) for t in steps)

    @property
    def shown(self) -> tuple[Shown, Shown]:
        """Both outcomes as shown to people: states within plausible ranges, no cost of changes."""
        return self.shown_improvement.observed, self.shown_improvement.counterfactual

    def fewest_changes(self, target: float) -> Budget | None:
        """The smallest budget whose best known outcome is at least `target`, or None."""
        if not self.frontier:
            raise InputError("this result has no frontier: its solver answers one budget only; use BranchAndBound.")
        return next((one for one in self.frontier if one.outcome is not None and one.outcome >= target), None)

    def __repr__(self) -> str:
        return f"Result({self.episode!r}, {self.status.value}, outcome {self.outcome:.6g}, gap {self.gap:.3g})"

    def __str__(self) -> str:
        return result_lines(self)

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; infinities become null."""
        return {"format": FORMAT, "version": VERSION, **to_plain(self)}

    def own_part(self) -> dict[str, Any]:
        """The same without `provenance`, which all answers of a run share."""
        return {name: value for name, value in to_plain(self).items() if name != "provenance"}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Result:
        """Read what `to_dict` wrote."""
        if not isinstance(content, Mapping):
            raise StoreError("result: expected a JSON object.")
        if content.get("format") != FORMAT:
            raise StoreError(f"not a result: expected format {FORMAT!r}, found {content.get('format')!r}.")
        if content.get("version") != VERSION:
            raise StoreError(f"result of version {content.get('version')!r}; this ifonly reads version {VERSION}.")
        try:
            known = {name: value for name, value in content.items() if name not in ("format", "version")}
            check_keys("result", known, required={one.name for one in fields(cls)}, optional=set())
            result = from_plain(cls, known, what="result")
        except InputError as error:
            raise StoreError(f"result: broken or incomplete ({error})") from None
        result._check_shapes()
        return result

    @classmethod
    def from_parts(cls, own: Mapping[str, Any], provenance: Provenance) -> Result:
        """Read what `own_part` wrote."""
        result = from_plain(cls, dict(own), what="result", provenance=provenance)
        result._check_shapes()
        return result

    def _check_shapes(self) -> None:
        """Refuse a stored result whose parts do not belong together."""
        steps, features, actions = len(self.actions), len(self.schema.dynamic), len(self.schema.actions)
        others: list[Budget | Alternative] = [*self.frontier, *self.alternatives]
        known = [one for one in others if one.actions is not None]
        listed = [self.actions, self.observed_actions, *(one.actions for one in known)]
        if not all(array is not None and _are_actions(array, steps, actions) for array in listed):
            raise StoreError(f"result: every sequence must hold {steps} of the schema's {actions} actions.")
        if self.frontier and [one.max_changes for one in self.frontier] != list(range(self.max_changes + 1)):
            raise StoreError(f"result: frontier must have one entry for each budget from 0 to {self.max_changes}.")
        if any((one.actions is None) != (one.outcome is None) for one in self.frontier):
            raise StoreError("result: a budget of the frontier has an outcome without actions, or the reverse.")
        asked = (len(self.provenance.model.members),) if self.provenance.model.members else None
        if self.provenance.model.weights and (len(self.provenance.model.weights),) != asked:
            raise StoreError("result: there must be one weight for each member of the ensemble problem, or none.")
        for outcomes in (self.member_outcomes, *(one.member_outcomes for one in known)):
            if (None if outcomes is None else outcomes.shape) != asked:
                raise StoreError("result: there must be one outcome for each member of the ensemble problem.")
        for name in ("states", "observed_states"):
            if getattr(self, name).shape != (steps, features):
                raise StoreError(f"result: {name} must hold {steps} steps of {features} features.")
        if self.evidence.changed_steps != tuple(change.step for change in self.changes):
            raise StoreError("result: the evidence is about other changes than those of its actions.")

    def to_json(self) -> str:
        """One JSON document; `Result.from_json` reads it back."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Read what `to_json` wrote."""
        try:
            content = parse_json(text)
        except ValueError as error:
            raise StoreError(f"result: not valid JSON ({error}); the file may be cut off.") from None
        return cls.from_dict(content)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the result as JSON, atomically; an existing file is replaced only on request."""
        require_absent(Path(path), unless=overwrite)
        write_text_atomically(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read a result that `save` wrote."""
        content = read_plain(Path(path), is_json=True)
        try:
            return cls.from_dict(content)
        except StoreError as error:
            raise StoreError(f"{path}: {error}") from None


def _are_actions(array: IntArray, steps: int, actions: int) -> bool:
    return array.shape == (steps,) and bool(((array >= 0) & (array < actions)).all())
