"""What an episode is made of: features, actions, the length of a step."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from ifonly.errors import InputError, SchemaMismatchError

Kind = Literal["static", "contextual", "dynamic"]
Scaling = Literal["linear", "log", "none"]

TABLE_COLUMNS = ("episode", "subject", "step", "action")
"""Column names of a stored table that no feature may take."""


@dataclass(frozen=True)
class Feature:
    """One measured quantity.

    Only dynamic features have counterfactual values; static features (one value per episode) and
    contextual ones (a value per step) keep what was observed in every counterfactual.

    >>> Feature("creatinine", "dynamic", unit="mg/dL", scaling="log", plausible=(0.1, 30))
    Feature(name='creatinine', kind='dynamic', unit='mg/dL', scaling='log', plausible=(0.1, 30), \
log_offset=0.0)
    """

    name: str
    kind: Kind
    unit: str = ""
    scaling: Scaling = "linear"
    plausible: tuple[float, float] | None = None
    log_offset: float = 0.0
    """Added before the logarithm, for log-scaled features that can be zero."""

    def __post_init__(self) -> None:
        where = f"feature {self.name!r}"
        if not isinstance(self.name, str) or not self.name.strip():
            raise InputError(f"{where}: the name must be a non-empty string.")
        if self.name in TABLE_COLUMNS:
            raise InputError(f"{where}: this name is a column of its own in a table; rename it.")
        _check_choice(where, "kind", self.kind, get_args(Kind))
        _check_choice(where, "scaling", self.scaling, get_args(Scaling))
        if self.plausible is not None:
            low, high = self.plausible
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise InputError(f"{where}: plausible range {self.plausible} must be finite, low < high.")
        if not (math.isfinite(self.log_offset) and self.log_offset >= 0):
            raise InputError(f"{where}: log_offset {self.log_offset} must be zero or positive.")

    @property
    def label(self) -> str:
        """The name with its unit, as shown to people."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


@dataclass(frozen=True)
class Axis:
    """One dose axis: a name, a unit and its levels in that unit, increasing."""

    name: str
    unit: str
    levels: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", tuple(float(level) for level in self.levels))
        if not self.levels or not all(math.isfinite(level) for level in self.levels):
            raise InputError(f"axis {self.name!r}: needs at least one level, all finite.")
        if any(b <= a for a, b in itertools.pairwise(self.levels)):
            raise InputError(f"axis {self.name!r}: levels {self.levels} must increase.")


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
        if not self.vectors or len(self.vectors) != len(self.labels):
            raise InputError(
                f"action space: {len(self.vectors)} vectors and {len(self.labels)} labels; "
                "there must be one of each per action, and at least one action."
            )
        width = len(self.vectors[0])
        for index, vector in enumerate(self.vectors):
            if len(vector) != width or width == 0 or not all(math.isfinite(v) for v in vector):
                raise InputError(
                    f"action {index} ({self.labels[index]!r}): its vector must have {width or 'some'} "
                    "finite entries like the others."
                )
        if len(set(self.labels)) != len(self.labels):
            raise InputError("action space: labels must differ from each other.")

    @classmethod
    def product(cls, *axes: Axis) -> ActionSpace:
        """Every combination of the axes' levels; the last axis varies fastest."""
        if not axes:
            raise InputError("action space: a product needs at least one axis.")
        vectors = tuple(itertools.product(*(axis.levels for axis in axes)))
        labels = tuple(
            ", ".join(_dose(axis, dose) for axis, dose in zip(axes, vector, strict=True)) for vector in vectors
        )
        return cls(vectors, labels, axes)

    @classmethod
    def categories(cls, labels: Iterable[str]) -> ActionSpace:
        """Unordered actions, each with an indicator vector."""
        names = tuple(labels)
        vectors = tuple(tuple(float(i == j) for j in range(len(names))) for i in range(len(names)))
        return cls(vectors, names)

    @classmethod
    def from_vectors(cls, vectors: Sequence[Sequence[float]], labels: Sequence[str] | None = None) -> ActionSpace:
        """Any finite set, with a vector per action."""
        rows = tuple(tuple(float(value) for value in row) for row in vectors)
        names = tuple(labels) if labels is not None else tuple(f"action {i}" for i in range(len(rows)))
        return cls(rows, names)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def width(self) -> int:
        """Length of each action's vector."""
        return len(self.vectors[0])

    def describe_change(self, before: int, after: int) -> str:
        """A change of action in words, naming only the doses that differ."""
        if not self.axes:
            return f"{self.labels[before]} -> {self.labels[after]}"
        parts = [
            f"{axis.name} {old:g} -> {new:g} {axis.unit}".rstrip()
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        names = [feature.name for feature in self.features]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise InputError(f"schema: features {twice} are listed more than once.")
        if not self.dynamic:
            raise InputError("schema: at least one feature must be dynamic.")
        if not (math.isfinite(self.step_length) and self.step_length > 0):
            raise InputError(f"schema: step_length {self.step_length} must be positive.")

    @property
    def dynamic(self) -> tuple[Feature, ...]:
        """Features whose counterfactual values the model gives: the columns of `states`."""
        return tuple(f for f in self.features if f.kind == "dynamic")

    @property
    def context(self) -> tuple[Feature, ...]:
        """Features that keep their observed values: the columns of `context`."""
        return tuple(f for f in self.features if f.kind != "dynamic")

    def dynamic_index(self, name: str) -> int:
        """Column of a dynamic feature in `states`; an error names the choices."""
        names = [feature.name for feature in self.dynamic]
        if name not in names:
            raise InputError(f"{name!r} is not a dynamic feature of this schema; choose from {names}.")
        return names.index(name)

    @property
    def fingerprint(self) -> str:
        """A hash of everything a model depends on: all but the plausible ranges."""
        content = self.to_dict()
        for feature in content["features"]:
            feature.pop("plausible", None)
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON or YAML; `from_dict` gives the same schema back."""
        return {
            "features": [_feature_to_dict(feature) for feature in self.features],
            "actions": _actions_to_dict(self.actions),
            "step": {"length": self.step_length, "unit": self.step_unit},
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Schema:
        """Read what `to_dict` wrote, or what a person wrote in a schema file."""
        _check_keys("schema", content, required={"features", "actions"}, optional={"step"})
        step = content.get("step", {})
        _check_keys("schema: step", step, required=set(), optional={"length", "unit"})
        if not isinstance(content["features"], list):
            raise InputError("schema: 'features' must be a list of features, each with name and kind.")
        return cls(
            features=tuple(_feature_from_dict(item) for item in content["features"]),
            actions=_actions_from_dict(content["actions"]),
            step_length=float(step.get("length", 1.0)),
            step_unit=str(step.get("unit", "step")),
        )

    def require_same(self, other: Schema, *, here: str, there: str) -> None:
        """Raise `SchemaMismatchError`, showing both sides, unless a model may serve both schemas."""
        if self.fingerprint == other.fingerprint:
            return
        lines = [f"{here} and {there} have different schemas ({self.fingerprint} and {other.fingerprint}):"]
        for name, mine, yours in _differences(self, other):
            lines += [f"  {name}", f"    {here}: {mine}", f"    {there}: {yours}"]
        lines.append(f"Use {there} made for the schema of {here}, or the other way round.")
        raise SchemaMismatchError("\n".join(lines))


def _differences(one: Schema, two: Schema) -> Iterable[tuple[str, str, str]]:
    def parts(schema: Schema) -> dict[str, str]:
        def show(feature: Feature) -> str:
            fields = {
                key: value for key, value in _feature_to_dict(feature).items() if key not in ("name", "plausible")
            }
            return ", ".join(f"{key} {value}" for key, value in fields.items())

        table = {f"feature {f.name!r}": show(f) for f in schema.features}
        table["feature order"] = ", ".join(f.name for f in schema.features)
        table["actions"] = f"{len(schema.actions)} actions: {'; '.join(schema.actions.labels[:6])} ..."
        table["action vectors"] = f"{hash(schema.actions.vectors) & 0xFFFF:04x}"
        table["step"] = f"{schema.step_length:g} {schema.step_unit}"
        return table

    left, right = parts(one), parts(two)
    for name in [*left, *(n for n in right if n not in left)]:
        mine, yours = left.get(name, "absent"), right.get(name, "absent")
        if mine != yours:
            yield name, mine, yours


def _dose(axis: Axis, dose: float) -> str:
    return f"{axis.name} {dose:g} {axis.unit}".rstrip()


def _feature_to_dict(feature: Feature) -> dict[str, Any]:
    content: dict[str, Any] = {
        "name": feature.name,
        "kind": feature.kind,
        "unit": feature.unit,
        "scaling": feature.scaling,
    }
    if feature.plausible is not None:
        content["plausible"] = list(feature.plausible)
    if feature.log_offset:
        content["log_offset"] = feature.log_offset
    return content


def _feature_from_dict(content: Mapping[str, Any]) -> Feature:
    name = content.get("name", "?") if isinstance(content, Mapping) else "?"
    where = f"schema: feature {name!r}"
    _check_keys(where, content, required={"name", "kind"}, optional={"unit", "scaling", "plausible", "log_offset"})
    plausible = content.get("plausible")
    if plausible is not None and (not isinstance(plausible, Sequence) or len(plausible) != 2):
        raise InputError(f"{where}: 'plausible' must be a pair [low, high].")
    return Feature(
        name=content["name"],
        kind=content["kind"],
        unit=content.get("unit", ""),
        scaling=content.get("scaling", "linear"),
        plausible=None if plausible is None else (float(plausible[0]), float(plausible[1])),
        log_offset=float(content.get("log_offset", 0.0)),
    )


def _actions_to_dict(actions: ActionSpace) -> dict[str, Any]:
    if actions.axes:
        return {"axes": [{"name": a.name, "unit": a.unit, "levels": list(a.levels)} for a in actions.axes]}
    if actions == ActionSpace.categories(actions.labels):
        return {"categories": list(actions.labels)}
    return {"vectors": [list(vector) for vector in actions.vectors], "labels": list(actions.labels)}


def _actions_from_dict(content: Mapping[str, Any]) -> ActionSpace:
    _check_keys("schema: actions", content, required=set(), optional={"axes", "categories", "vectors", "labels"})
    if "axes" in content:
        axes = []
        for item in content["axes"]:
            _check_keys("schema: action axis", item, required={"name", "levels"}, optional={"unit"})
            axes.append(Axis(item["name"], item.get("unit", ""), tuple(item["levels"])))
        return ActionSpace.product(*axes)
    if "categories" in content:
        return ActionSpace.categories(content["categories"])
    if "vectors" in content:
        return ActionSpace.from_vectors(content["vectors"], content.get("labels"))
    raise InputError("schema: 'actions' needs one of axes, categories or vectors.")


def _check_choice(where: str, what: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InputError(f"{where}: {what} {value!r} is unknown; choose from {list(choices)}.")


def _check_keys(where: str, content: object, *, required: set[str], optional: set[str]) -> None:
    if not isinstance(content, Mapping):
        raise InputError(f"{where}: expected a mapping, found {type(content).__name__}.")
    missing, unknown = required - set(content), set(content) - required - optional
    if missing:
        raise InputError(f"{where}: missing {sorted(missing)}.")
    if unknown:
        raise InputError(
            f"{where}: unknown {sorted(cast('set[str]', unknown))}; known are {sorted(required | optional)}."
        )
