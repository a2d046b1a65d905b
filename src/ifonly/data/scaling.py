"""From original units to the coordinates in which models work and distances are measured, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.data.schema import Feature, Schema
from ifonly.errors import InputError


@dataclass(frozen=True, eq=False)
class Columns:
    """The map of a group of columns: scaled = (link(value) - offset) / scale, link = identity or logarithm."""

    offset: FloatArray  # [n]
    scale: FloatArray  # [n], positive
    log: npt.NDArray[np.bool_]  # [n]
    log_offset: FloatArray  # [n]

    def encode(self, values: npt.ArrayLike) -> FloatArray:
        """Original units [..., n] to scaled coordinates."""
        linked = np.array(values, dtype=np.float64)
        linked[..., self.log] = np.log(linked[..., self.log] + self.log_offset[self.log])
        return (linked - self.offset) / self.scale

    def decode(self, scaled: npt.ArrayLike) -> FloatArray:
        """Scaled coordinates [..., n] to original units."""
        linked = np.asarray(scaled, dtype=np.float64) * self.scale + self.offset
        linked[..., self.log] = np.exp(linked[..., self.log]) - self.log_offset[self.log]
        return linked

    @classmethod
    def identity(cls, features: tuple[Feature, ...]) -> Columns:
        """Offset 0 and scale 1; log-scaled features still pass through the logarithm."""
        return cls(
            offset=np.zeros(len(features)),
            scale=np.ones(len(features)),
            log=np.array([f.scaling == "log" for f in features], dtype=bool),
            log_offset=np.array([f.log_offset for f in features], dtype=np.float64),
        )

    @classmethod
    def fit(cls, features: tuple[Feature, ...], values: FloatArray) -> Columns:
        """Zero mean and unit deviation over the rows of `values`, except for features with scaling 'none'."""
        start = cls.identity(features)
        offset, scale = _centre_and_spread(start.encode(values))
        scaled = np.array([f.scaling != "none" for f in features], dtype=bool)
        return cls(
            offset=np.where(scaled, offset, 0.0),
            scale=np.where(scaled, scale, 1.0),
            log=start.log,
            log_offset=start.log_offset,
        )


@dataclass(frozen=True, eq=False)
class Scaler:
    """How a model sees states, context and action vectors.

    The Euclidean distance of the theory is measured in these coordinates. `Scaler.fit` learns it from a cohort;
    `Scaler.identity` leaves original units as they are (log-scaled features: their logarithm).
    """

    states: Columns
    context: Columns
    actions: Columns

    @classmethod
    def identity(cls, schema: Schema) -> Scaler:
        """Models work in original units."""
        return cls(Columns.identity(schema.dynamic), Columns.identity(schema.context), _action_columns(schema))

    @classmethod
    def fit(cls, cohort: Cohort) -> Scaler:
        """Standardise states and context over the cohort's steps, and action vectors over the action space."""
        schema = cohort.schema
        actions = _action_columns(schema)
        # Categories keep their indicator vectors: centring them adds nothing.
        if not schema.actions.is_categorical:
            offset, scale = _centre_and_spread(np.array(schema.actions.vectors))
            actions = Columns(offset, scale, actions.log, actions.log_offset)
        return cls(Columns.fit(schema.dynamic, cohort.states), Columns.fit(schema.context, cohort.context), actions)

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; exact, since JSON keeps every digit of a float."""
        return {
            name: {"offset": columns.offset.tolist(), "scale": columns.scale.tolist()}
            for name, columns in (("states", self.states), ("context", self.context), ("actions", self.actions))
        }

    @classmethod
    def from_dict(cls, schema: Schema, content: Mapping[str, Any]) -> Scaler:
        """Read what `to_dict` wrote, for the schema it was made for."""
        identity = cls.identity(schema)

        def read(name: str, start: Columns) -> Columns:
            try:
                offset = np.array(content[name]["offset"], dtype=np.float64)
                scale = np.array(content[name]["scale"], dtype=np.float64)
            except (KeyError, TypeError, ValueError):
                raise InputError(f"scaling of {name}: needs 'offset' and 'scale', a list of numbers each.") from None
            if offset.shape != start.offset.shape or scale.shape != start.scale.shape:
                raise InputError(f"scaling of {name}: {offset.size} columns; the schema has {start.offset.size}.")
            if not (np.isfinite(offset).all() and np.isfinite(scale).all() and (scale > 0).all()):
                raise InputError(f"scaling of {name}: offsets must be finite and scales positive.")
            return Columns(offset, scale, start.log, start.log_offset)

        return cls(
            read("states", identity.states), read("context", identity.context), read("actions", identity.actions)
        )


def _centre_and_spread(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of each column of `values` [N, n]; a constant column has spread 1.

    Whether a column is constant is decided by its range: rounding can leave the deviation of equal values above zero,
    and small units make true deviations tiny.
    """
    deviation = values.std(axis=0)
    varies = (values.max(axis=0) > values.min(axis=0)) & (deviation > 0)
    return values.mean(axis=0), np.where(varies, deviation, 1.0)


def _action_columns(schema: Schema) -> Columns:
    width = schema.actions.width
    return Columns(np.zeros(width), np.ones(width), np.zeros(width, dtype=bool), np.zeros(width))
