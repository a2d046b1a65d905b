"""Scores that are made of other features, such as SOFA of organ values: what a schema says of them, and their points.

A model gives a score like any other feature. What its table makes of the organ values beside it shows whether they
agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ifonly.data.organs import DIGITS, TABLES, FloatArray, IntArray, OrganInput, OrganTable
from ifonly.data.plain import check_choice, check_keys, check_mapping, check_text, did_you_mean
from ifonly.errors import InputError

if TYPE_CHECKING:
    from ifonly.data.schema import Schema

HOURS = {"h": 1.0, "hr": 1.0, "hour": 1.0, "hours": 1.0, "min": 1 / 60, "minute": 1 / 60, "d": 24.0, "day": 24.0}
"""Units of steps whose length in hours is known."""


@dataclass(frozen=True)
class Score:
    """A dynamic feature that is a score, and the features and doses that its table makes it of.

    >>> Score("SOFA", {"MAP": "MAP", "vasopressors": "norepinephrine"}).left_out
    ('PaO2', 'FiO2', 'ventilation', 'platelets', 'bilirubin', 'GCS', 'creatinine', 'urine')
    """

    feature: str
    inputs: Mapping[str, str] = field(hash=False)
    """For each input of the table (`ifonly.data.organs`) the feature or the dose axis that holds it."""
    table: str = "SOFA"

    def __post_init__(self) -> None:
        where = f"score {self.feature!r}"
        check_text(where, "feature", self.feature)
        check_choice(where, "table", self.table, tuple(TABLES))
        check_mapping(f"{where}: inputs", self.inputs)
        object.__setattr__(self, "inputs", dict(self.inputs))
        known = list(self.rules.inputs)
        for role, name in self.inputs.items():
            check_text(where, f"input {role!r}", name)
            if role not in known:
                raise InputError(f"{where}: unknown input {role!r}; known are {known}.{did_you_mean(role, known)}")
        if not self.organs:
            raise InputError(f"{where}: no organ can be scored with inputs {list(self.inputs)}; known are {known}.")

    @property
    def rules(self) -> OrganTable:
        """The table itself."""
        return TABLES[self.table]

    @property
    def organs(self) -> tuple[str, ...]:
        """The organs whose points can be told."""
        given = set(self.inputs)
        return tuple(one.name for one in self.rules.organs if any(group <= given for group in one.any_of))

    @property
    def left_out(self) -> tuple[str, ...]:
        """Inputs of the table that are not recorded."""
        return tuple(role for role in self.rules.inputs if role not in self.inputs)

    def require_fit(self, schema: Schema) -> None:
        """Refuse a schema without the score or an input of it, or with one in a unit that the table does not know."""
        schema.dynamic_index(self.feature)
        features = [feature.name for feature in schema.features]
        axes = [axis.name for axis in schema.actions.axes]
        for role, name in self.inputs.items():
            where = f"score {self.feature!r}: input {role!r}"
            if (name in features) == (name in axes):
                both = "both a feature and a dose axis; rename one" if name in axes else "no feature and no dose axis"
                raise InputError(f"{where}: {name!r} is {both}.{did_you_mean(name, [*features, *axes])}")
            _factor(where, self.rules.inputs[role], _unit(schema, name), schema)

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        return {"feature": self.feature, "table": self.table, "inputs": dict(self.inputs)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Score:
        """Read what `to_dict` or a person wrote."""
        check_keys("schema: score", content, required={"feature", "inputs"}, optional={"table"})
        return cls(**content)


@dataclass(frozen=True)
class ScoredCourse:
    """What a score is made from."""

    states: FloatArray  # [..., T, D]
    context: FloatArray  # [T, C]
    actions: IntArray  # [..., T]
    unknown: npt.NDArray[np.bool_] | None = None  # [T, D]
    """Entries of the states that nobody measured: they score nothing, as where the score was recorded."""


def organ_points(score: Score, schema: Schema, course: ScoredCourse) -> IntArray:
    """The points [..., T, P] of the P organs of `score`, those of vasopressors by the doses of the course itself."""
    absent = np.full(np.broadcast_shapes(course.states.shape[:-1], course.actions.shape), np.nan)
    inputs = dict.fromkeys(score.rules.inputs, absent)
    hours = HOURS.get(schema.step_unit, np.nan) * schema.step_length
    with np.errstate(all="ignore"):  # what is not finite scores as it compares: NaN not at all
        for role, name in score.inputs.items():
            kind = score.rules.inputs[role]
            values = _values(schema, name, course) * _factor(role, kind, _unit(schema, name), schema)
            inputs[role] = np.broadcast_to(np.floor(values + 0.5) if kind.whole else values, absent.shape)
        told = {name: values.round(DIGITS) for name, values in score.rules.derive(inputs, hours).items()}
    organs = [organ for organ in score.rules.organs if organ.name in score.organs]
    return np.stack([organ.points(*(told[name] for name in organ.takes)) for organ in organs], axis=-1)


def _values(schema: Schema, name: str, course: ScoredCourse) -> FloatArray:
    """A feature or dose [..., T], NaN where it is not known."""
    for position, feature in enumerate(schema.dynamic):
        if feature.name == name:
            values: FloatArray = course.states[..., position]
            return values if course.unknown is None else np.where(course.unknown[:, position], np.nan, values)
    for position, feature in enumerate(schema.context):
        if feature.name == name:
            return course.context[:, position]
    axis = [axis.name for axis in schema.actions.axes].index(name)
    doses: FloatArray = np.array(schema.actions.vectors)[:, axis]
    return doses[course.actions]


def _unit(schema: Schema, name: str) -> str:
    units = {feature.name: feature.unit for feature in schema.features}
    return {**units, **{axis.name: axis.unit for axis in schema.actions.axes}}[name]


def _factor(where: str, kind: OrganInput, unit: str, schema: Schema) -> float:
    """From a unit to the table's."""
    plain = unit.removesuffix(f"/{schema.step_length:g} {schema.step_unit}") if kind.per_step else unit
    if not kind.units:
        return 1.0
    if plain not in kind.units:
        raise InputError(f"{where}: unit {unit!r} is unknown; known are {list(kind.units)}.")
    return kind.units[plain]
