"""What an episode is made of: features, actions, the length of a step."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from ifonly.data.differences import differences
from ifonly.data.field_words import NEUTRAL, FieldWords
from ifonly.data.plain import (
    as_list,
    as_number,
    as_numbers,
    check_choice,
    check_keys,
    check_name,
    check_size,
    check_text,
    did_you_mean,
    repeated,
)
from ifonly.data.scores import Score
from ifonly.errors import InputError, SchemaMismatchError
from ifonly.markup import html_table
from ifonly.records import to_plain

Kind = Literal["static", "contextual", "dynamic"]
Scaling = Literal["linear", "log", "bounded", "none"]

TABLE_COLUMNS = ("episode", "subject", "step", "action")
"""Column names of a stored table that no feature may take."""

HOW_TO_MATCH = "Use a model that was made for the schema of these episodes, or episodes of the model's schema."
"""What to do about different schemas, as a rule."""

MARGIN = 0.01
"""Share of its range by which a bounded scale is widened at either end where nobody says how much, and no data do."""

SHOWN_DIFFERENCES = 8
"""How many differences between two schemas an error lists."""


@dataclass(frozen=True)
class Feature:
    """One measured quantity.

    Only dynamic features have counterfactual values; static features (one value per episode) and
    contextual ones (a value per step) keep what was observed in every counterfactual.

    >>> Feature("creatinine", "dynamic", unit="mg/dL", scaling="log", plausible=(0.1, 30))
    Feature(name='creatinine', kind='dynamic', unit='mg/dL', scaling='log', plausible=(0.1, 30.0), \
log_offset=0.0, margin=None)
    """

    name: str
    kind: Kind
    unit: str = ""
    scaling: Scaling = "linear"
    plausible: tuple[float, float] | None = None
    log_offset: float = 0.0
    """Added before the logarithm, for log-scaled features that can be zero."""
    margin: float | None = None
    """Share of the plausible range by which a bounded scale is widened at either end; None: a fit learns it, if the
    feature is dynamic."""

    def __post_init__(self) -> None:
        where = f"feature {self.name!r}"
        check_name(where, "name", self.name)
        if self.name in TABLE_COLUMNS:
            raise InputError(f"{where}: this name is a column of its own in a table; rename it.")
        check_choice(where, "kind", self.kind, get_args(Kind))
        check_choice(where, "scaling", self.scaling, get_args(Scaling))
        check_text(where, "unit", self.unit)
        # Numbers become floats, so that 30 and 30.0 are the same schema with the same fingerprint.
        if self.plausible is not None:
            object.__setattr__(self, "plausible", _checked_range(f"{where}: plausible", self.plausible))
        object.__setattr__(self, "log_offset", as_number(f"{where}: log_offset", self.log_offset))
        if self.log_offset < 0 or (self.log_offset and self.scaling != "log"):
            raise InputError(
                f"{where}: log_offset {self.log_offset} must be zero or positive, and zero unless scaling is 'log'."
            )
        if self.margin is not None:
            object.__setattr__(self, "margin", as_number(f"{where}: margin", self.margin))
            if not 0 < self.margin <= 1 or self.scaling != "bounded":
                raise InputError(
                    f"{where}: margin {self.margin} must be above 0 and at most 1, and only with scaling 'bounded'."
                )
        if self.scaling == "bounded" and self.plausible is None:
            raise InputError(
                f"{where}: scaling 'bounded' needs the range of possible values, `plausible: [low, high]`."
            )

    @property
    def hard_range(self) -> tuple[float, float] | None:
        """The range that no value can leave; None for features that are not on a bounded scale."""
        return self.plausible if self.scaling == "bounded" else None

    @property
    def possible(self) -> tuple[float, float]:
        """The lowest and highest possible value: a logarithmic scale ends at zero, a bounded one at its range."""
        return self.hard_range or (0.0 if self.scaling == "log" else -math.inf, math.inf)

    @property
    def label(self) -> str:
        """The name with its unit, as shown to people; once, where the name ends with it already."""
        told = not self.unit or self.name.endswith((f"({self.unit})", f"[{self.unit}]"))
        return self.name if told else f"{self.name} ({self.unit})"


@dataclass(frozen=True)
class Axis:
    """One dose axis: a name, a unit and its levels in that unit, increasing.

    >>> Axis("fluids", "mL/4 h", (0, 80, 850), plausible=(0, 10_000)).plausible
    (0.0, 10000.0)
    """

    name: str
    unit: str
    levels: tuple[float, ...]
    plausible: tuple[float, float] | None = None
    """Doses outside are mistakes, such as another unit, and refused where a table is read; no model depends on it."""

    def __post_init__(self) -> None:
        where = f"axis {self.name!r}"
        check_name(where, "name", self.name)
        check_text(where, "unit", self.unit)
        object.__setattr__(self, "levels", as_numbers(f"{where}: levels", self.levels))
        if not self.levels or any(b <= a for a, b in itertools.pairwise(self.levels)):
            raise InputError(f"{where}: levels {reprlib.repr(self.levels)} must be at least one, and increase.")
        if self.plausible is not None:
            low, high = _checked_range(f"{where}: plausible", self.plausible)
            object.__setattr__(self, "plausible", (low, high))
            if strangers := [level for level in self.levels if not low <= level <= high]:
                raise InputError(f"{where}: level(s) {strangers} lie outside its plausible doses, {low:g} to {high:g}.")

    @property
    def label(self) -> str:
        """The name with its unit, as shown to people."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def show(self, level: float) -> str:
        """A level as people read it, with as many digits as it takes to tell all levels apart."""
        return f"{level:.{self._digits}g}"

    @cached_property
    def _digits(self) -> int:
        return next(d for d in range(6, 18) if len({f"{v:.{d}g}" for v in self.levels}) == len(self.levels))


@dataclass(frozen=True)
class ActionSpace:
    """A finite set of actions: a vector and a label for each, dose axes where there are any.

    Build it with `product`, `categories` or `from_vectors`; actions are numbered from 0.

    >>> space = ActionSpace.product(
    ...     Axis("vasopressors", "mcg/kg/min", (0, 0.04)), Axis("fluids", "mL/4 h", (0, 80, 850)))
    >>> len(space), space.vectors[4], space.describe_change(1, 2)
    (6, (0.04, 80.0), 'fluids 80 -> 850 mL/4 h')
    """

    vectors: tuple[tuple[float, ...], ...]
    labels: tuple[str, ...]
    axes: tuple[Axis, ...] = ()

    def __post_init__(self) -> None:
        vectors = tuple(as_numbers(f"action {index}: vector", row) for index, row in enumerate(self.vectors))
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "axes", tuple(self.axes))
        if not self.vectors or len(self.vectors) != len(self.labels):
            raise InputError(
                f"action space: {len(self.vectors)} vectors and {len(self.labels)} labels; "
                "there must be one of each per action, and at least one action."
            )
        width = len(self.vectors[0])
        for index, vector in enumerate(self.vectors):
            check_name(f"action {index}", "label", self.labels[index])
            if len(vector) != width or width == 0:
                raise InputError(
                    f"action {index} ({self.labels[index]!r}): its vector has {len(vector)} entries; all actions need "
                    f"the same number, at least one (action 0 has {width})."
                )
        if twice := repeated(self.labels):
            raise InputError(f"action space: labels must differ from each other; {twice} occur more than once.")
        if twice := repeated([axis.name for axis in self.axes]):
            raise InputError(f"action space: axes must differ from each other; {twice} occur more than once.")
        if self.axes and (self.vectors, self.labels) != _combinations(self.axes):
            raise InputError("action space: vectors and labels do not fit the axes; use ActionSpace.product(*axes).")

    @classmethod
    def product(cls, *axes: Axis) -> ActionSpace:
        """Every combination of the axes' levels; the last axis varies fastest."""
        if not axes:
            raise InputError("action space: a product needs at least one axis.")
        return cls(*_combinations(axes), axes)

    @classmethod
    def categories(cls, labels: Iterable[str]) -> ActionSpace:
        """Unordered actions, each with an indicator vector."""
        names = tuple(labels)
        check_size("action space: categories", len(names), len(names))
        return cls(tuple(tuple(float(i == j) for j in range(len(names))) for i in range(len(names))), names)

    @classmethod
    def from_vectors(cls, vectors: Sequence[Sequence[float]], labels: Sequence[str] | None = None) -> ActionSpace:
        """Any finite set, with a vector per action."""
        names = tuple(labels) if labels is not None else tuple(f"action {i}" for i in range(len(vectors)))
        return cls(tuple(tuple(row) for row in vectors), names)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def width(self) -> int:
        """Length of each action's vector."""
        return len(self.vectors[0])

    @property
    def is_categorical(self) -> bool:
        """Whether the vectors are indicators, as those of `categories` are."""
        square = not self.axes and self.width == len(self)
        return square and all(row[i] == 1.0 == sum(map(abs, row)) for i, row in enumerate(self.vectors))

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """For every action the number of its level on each axis; empty where there are no axes."""
        if not self.axes:
            return ((),) * len(self)
        return tuple(itertools.product(*(range(len(axis.levels)) for axis in self.axes)))

    def describe_change(self, before: int, after: int) -> str:
        """A change of action in words, naming only the doses that differ."""
        if not self.axes:
            return f"{self.labels[before]} -> {self.labels[after]}"
        parts = [
            f"{axis.name} {axis.show(old)} -> {axis.show(new)} {axis.unit}".rstrip()
            for axis, old, new in zip(self.axes, self.vectors[before], self.vectors[after], strict=True)
            if old != new
        ]
        return ", ".join(parts) or "no change"


@dataclass(frozen=True)
class Schema:
    """The features, the actions and the length of a step that a cohort's episodes share.

    Arrays follow the order given here: `dynamic` features are the columns of an episode's states,
    `context` (static and contextual) features those of its context.
    """

    features: tuple[Feature, ...]
    actions: ActionSpace
    step_length: float = 1.0
    step_unit: str = "step"
    scores: tuple[Score, ...] = ()
    """Which dynamic features are scores made of others; no model depends on it."""
    words: FieldWords = NEUTRAL
    """What pages call subjects and those who decide; nothing depends on it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        object.__setattr__(self, "scores", tuple(self.scores))
        if twice := repeated([feature.name for feature in self.features]):
            raise InputError(f"schema: features {twice} are listed more than once.")
        if not self.dynamic:
            raise InputError("schema: at least one feature must be dynamic.")
        check_text("schema: step", "unit", self.step_unit)
        object.__setattr__(self, "step_length", as_number("schema: step_length", self.step_length))
        if self.step_length <= 0:
            raise InputError(f"schema: step_length {self.step_length} must be positive.")
        if twice := repeated([score.feature for score in self.scores]):
            raise InputError(f"schema: scores {twice} are listed more than once.")
        for score in self.scores:
            score.require_fit(self)

    @cached_property
    def dynamic(self) -> tuple[Feature, ...]:
        """Features whose counterfactual values the model gives: the columns of `states`."""
        return tuple(f for f in self.features if f.kind == "dynamic")

    @cached_property
    def context(self) -> tuple[Feature, ...]:
        """Features that keep their observed values: the columns of `context`."""
        return tuple(f for f in self.features if f.kind != "dynamic")

    def dynamic_index(self, name: str) -> int:
        """Column of a dynamic feature in `states`; an error names the choices."""
        names = [feature.name for feature in self.dynamic]
        if name not in names:
            raise InputError(
                f"{name!r} is not a dynamic feature of this schema; choose from {names}.{did_you_mean(name, names)}"
            )
        return names.index(name)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything a model depends on: all but scores, words, and ranges that nothing is scaled by."""
        content = self.to_dict()
        content.pop("scores", None)
        content.pop("words", None)
        for feature in content["features"]:
            if feature["scaling"] != "bounded":
                feature.pop("plausible", None)
        for axis in content["actions"].get("axes", []):
            axis.pop("plausible", None)
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON or YAML; `from_dict` gives the same schema back."""
        content: dict[str, Any] = {
            "features": [_feature_to_dict(feature) for feature in self.features],
            "actions": _actions_to_dict(self.actions),
            "step": {"length": self.step_length, "unit": self.step_unit},
        }
        if self.scores:
            content["scores"] = [score.to_dict() for score in self.scores]
        return content if self.words == NEUTRAL else {**content, "words": self.words.to_dict()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """Read what `to_dict` wrote, or what a person wrote in a schema file."""
        check_keys("schema", content, required={"features", "actions"}, optional={"step", "scores", "words"})
        step = content.get("step", {})
        check_keys("schema: step", step, required=set(), optional={"length", "unit"})
        if not isinstance(content["features"], list):
            raise InputError("schema: 'features' must be a list of features, each with name and kind.")
        return cls(
            features=tuple(_feature_from_dict(item) for item in content["features"]),
            actions=_actions_from_dict(content["actions"]),
            step_length=step.get("length", 1.0),
            step_unit=step.get("unit", "step"),
            scores=tuple(Score.from_dict(item) for item in as_list("schema", "scores", content.get("scores", []))),
            words=FieldWords.from_dict(content.get("words", {})),
        )

    def require_same(self, other: Schema, *, here: str, there: str, advice: str = HOW_TO_MATCH) -> None:
        """Raise `SchemaMismatchError`, showing both sides, unless a model may serve both schemas."""
        if self.fingerprint == other.fingerprint:
            return
        lines = [f"{here} and {there} have different schemas ({self.fingerprint} and {other.fingerprint}):"]
        found = differences(self, other)
        for name, mine, yours in found[:SHOWN_DIFFERENCES]:
            lines += [f"  {name}", f"    {here}: {mine}", f"    {there}: {yours}"]
        if len(found) > SHOWN_DIFFERENCES:
            lines.append(f"  and {len(found) - SHOWN_DIFFERENCES} more differences")
        lines.append(advice)
        raise SchemaMismatchError("\n".join(lines))

    def _repr_html_(self) -> str:
        title = f"{len(self.actions)} actions; a step is {self.step_length:g} {self.step_unit}".rstrip()
        features = [(one.name, one.kind, one.unit, one.scaling, _shown(one.plausible)) for one in self.features]
        axes = [(one.name, "action", one.unit, "", ", ".join(map(one.show, one.levels))) for one in self.actions.axes]
        return html_table(title, ("name", "kind", "unit", "scaling", "range or levels"), [*features, *axes])


def _shown(limits: tuple[float, float] | None) -> str:
    return "" if limits is None else f"{limits[0]:g} to {limits[1]:g}"


def _combinations(axes: Sequence[Axis]) -> tuple[tuple[tuple[float, ...], ...], tuple[str, ...]]:
    """Vectors and labels of every combination of the axes' levels."""
    check_size("action space: combinations of levels", math.prod(len(axis.levels) for axis in axes), len(axes))
    words = [[f"{axis.name} {axis.show(level)} {axis.unit}".rstrip() for level in axis.levels] for axis in axes]
    labels = tuple(", ".join(combination) for combination in itertools.product(*words))
    return tuple(itertools.product(*(axis.levels for axis in axes))), labels


def _feature_to_dict(feature: Feature) -> dict[str, Any]:
    """The feature without entries that say nothing: no range, no offset, no margin."""
    content: dict[str, Any] = to_plain(feature)
    silent = {"plausible": None, "log_offset": 0.0, "margin": None}
    return {key: value for key, value in content.items() if key not in silent or value != silent[key]}


def _feature_from_dict(content: Mapping[str, Any]) -> Feature:
    name = content.get("name", "?") if isinstance(content, Mapping) else "?"
    optional = {"unit", "scaling", "plausible", "log_offset", "margin"}
    check_keys(f"schema: feature {name!r}", content, required={"name", "kind"}, optional=optional)
    return Feature(**content)


def _actions_to_dict(actions: ActionSpace) -> dict[str, Any]:
    if actions.axes:
        axes: list[dict[str, Any]] = to_plain(actions.axes)
        return {"axes": [{key: value for key, value in axis.items() if value is not None} for axis in axes]}
    if actions.is_categorical:
        return {"categories": list(actions.labels)}
    return {"vectors": to_plain(actions.vectors), "labels": list(actions.labels)}


def _actions_from_dict(content: Mapping[str, Any]) -> ActionSpace:
    where = "schema: actions"
    check_keys(where, content, required=set(), optional={"axes", "categories", "vectors", "labels"})
    given = sorted(set(content) - {"labels"})
    if len(given) != 1 or ("labels" in content and given != ["vectors"]):
        raise InputError(f"{where}: needs exactly one of axes, categories or vectors (with labels); found {given}.")
    if "axes" in content:
        return ActionSpace.product(*(_axis_from_dict(item) for item in as_list(where, "axes", content["axes"])))
    if "categories" in content:
        return ActionSpace.categories(as_list(where, "categories", content["categories"]))
    labels = as_list(where, "labels", content["labels"]) if "labels" in content else None
    vectors = [as_list(where, "each vector", row) for row in as_list(where, "vectors", content["vectors"])]
    return ActionSpace.from_vectors(vectors, labels)


def _axis_from_dict(content: Mapping[str, Any]) -> Axis:
    where = "schema: action axis"
    check_keys(where, content, required={"name", "levels"}, optional={"unit", "plausible"})
    levels = tuple(as_list(where, "levels", content["levels"]))
    return Axis(content["name"], content.get("unit", ""), levels, content.get("plausible"))


def _checked_range(where: str, value: object) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InputError(f"{where}: {value!r} must be a pair (low, high).")
    low, high = as_numbers(where, value)
    if low >= high:
        raise InputError(f"{where}: low {low} must be below high {high}.")
    return low, high


UNITS_OF_TIME = {"h": "hour", "hr": "hour", "min": "minute", "d": "day", "s": "second", "w": "week"}
"""Abbreviations of units of time that are written out."""


def unit_of_time(schema: Schema) -> str:
    """The unit of steps as a word: hour for h and for hours, step where there is none."""
    unit, one = schema.step_unit, schema.step_unit.removesuffix("s")
    return UNITS_OF_TIME.get(unit) or (one if one in UNITS_OF_TIME.values() else unit) or "step"


def moment(schema: Schema, step: int) -> str:
    """The time of a step, such as "hour 8" for step 2 of four hours each; "step 2" where steps have no unit."""
    return f"{unit_of_time(schema)} {step * schema.step_length:g}"


def step_and_moment(schema: Schema, step: int) -> str:
    """Both, such as "step 2 (hour 8)", for lists that programs number and people read; once where they are the same."""
    words = f"step {step}"
    return words if moment(schema, step) == words else f"{words} ({moment(schema, step)})"
