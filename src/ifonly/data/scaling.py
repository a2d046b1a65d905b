"""From original units to the coordinates in which models work and distances are measured, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.data.margins import learn_margins
from ifonly.data.schema import MARGIN, Feature, Schema
from ifonly.errors import InputError

BoolArray = npt.NDArray[np.bool_]


def within_ranges(features: Sequence[Feature], values: FloatArray) -> FloatArray:
    """Values [..., n] of n features brought back into their plausible ranges: those in which outcomes are shown."""
    ends = np.array([feature.plausible or (-math.inf, math.inf) for feature in features]).reshape(-1, 2)
    return np.clip(values, ends[:, 0], ends[:, 1])


@dataclass(frozen=True, eq=False)
class Link:
    """What a group of columns passes through before it is centred and scaled: nothing, a logarithm, or log-odds.

    A bounded column lives on (low, high), its plausible range widened a little at either end, so that recorded extremes
    have finite log-odds. Values between a widened end and the range's own are shown, and rewarded, as the range's end.
    So are values of a logarithmic column between minus its offset and zero.
    """

    log: BoolArray  # [n]
    log_offset: FloatArray  # [n], added before the logarithm
    bounded: BoolArray  # [n]
    floor: FloatArray  # [n], the lowest possible value; -inf where there is none
    ceiling: FloatArray  # [n], the highest possible value; inf where there is none
    low: FloatArray  # [n], the widened lower end; -inf where the column is not bounded
    high: FloatArray  # [n], the widened upper end; inf where the column is not bounded

    @classmethod
    def of(cls, features: tuple[Feature, ...], margins: FloatArray | None = None) -> Link:
        """As the features' `scaling` says; bounded ones are widened by `margins` [n, 2], shares of their range.

        A feature's own margin comes first; where neither says (NaN), it is `MARGIN`.
        """
        floor, ceiling = np.array([feature.possible for feature in features], dtype=np.float64).reshape(-1, 2).T
        bounded = np.array([feature.hard_range is not None for feature in features], dtype=bool)
        own = np.array([[feature.margin or math.nan] * 2 for feature in features], dtype=np.float64).reshape(-1, 2)
        learned = own if margins is None else np.where(np.isnan(own), margins, own)
        shares = np.where(np.isnan(learned), MARGIN, learned)
        wider = np.where(bounded, np.where(bounded, ceiling - floor, 0.0) * shares.T, 0.0)
        return cls(
            log=np.array([feature.scaling == "log" for feature in features], dtype=bool),
            log_offset=np.array([feature.log_offset for feature in features], dtype=np.float64),
            bounded=bounded,
            floor=floor,
            ceiling=ceiling,
            low=np.where(bounded, floor, -math.inf) - wider[0],
            high=np.where(bounded, ceiling, math.inf) + wider[1],
        )

    @classmethod
    def none(cls, width: int) -> Link:
        """The identity of so many columns."""
        no, zero = np.zeros(width, dtype=bool), np.zeros(width)
        return cls(no, zero, no, zero - math.inf, zero + math.inf, zero - math.inf, zero + math.inf)

    def same_as(self, other: Link) -> bool:
        """Whether both links are the same function."""
        return all(np.array_equal(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

    def forward(self, values: npt.ArrayLike) -> FloatArray:
        """Original units [..., n] to linked ones."""
        linked = np.array(values, dtype=np.float64)
        linked[..., self.log] = np.log(linked[..., self.log] + self.log_offset[self.log])
        inside = linked[..., self.bounded]
        linked[..., self.bounded] = np.log(inside - self.low[self.bounded]) - np.log(self.high[self.bounded] - inside)
        return linked

    def inverse(self, linked: FloatArray) -> FloatArray:
        """Linked values [..., n] to original units; never outside what is possible."""
        values = np.array(linked, dtype=np.float64)
        values[..., self.log] = np.maximum(np.exp(values[..., self.log]) - self.log_offset[self.log], 0.0)
        share = (1 + np.tanh(values[..., self.bounded] / 2)) / 2  # the logistic function, without overflow
        low, high = self.low[self.bounded], self.high[self.bounded]
        inside = np.clip(low + (high - low) * share, self.floor[self.bounded], self.ceiling[self.bounded])
        values[..., self.bounded] = inside
        return values

    def log_slopes(self, values: FloatArray) -> FloatArray:
        """The logarithm of each link's slope at values [..., n], in original units."""
        slopes = np.zeros_like(values)
        slopes[..., self.log] = -np.log(values[..., self.log] + self.log_offset[self.log])
        low, high, inside = self.low[self.bounded], self.high[self.bounded], values[..., self.bounded]
        slopes[..., self.bounded] = np.log(high - low) - np.log(inside - low) - np.log(high - inside)
        return slopes


@dataclass(frozen=True, eq=False)
class Columns:
    """The map of a group of columns: scaled = (link(value) - offset) / scale."""

    offset: FloatArray  # [n]
    scale: FloatArray  # [n], positive
    link: Link

    def encode(self, values: npt.ArrayLike) -> FloatArray:
        """Original units [..., n] to scaled coordinates."""
        return (self.link.forward(values) - self.offset) / self.scale

    def decode(self, scaled: npt.ArrayLike) -> FloatArray:
        """Scaled coordinates [..., n] to original units."""
        return self.link.inverse(np.asarray(scaled, dtype=np.float64) * self.scale + self.offset)

    @classmethod
    def identity(cls, features: tuple[Feature, ...]) -> Columns:
        """Offset 0 and scale 1; features on a logarithmic or bounded scale still pass through it."""
        return cls(np.zeros(len(features)), np.ones(len(features)), Link.of(features))

    @classmethod
    def fit(cls, features: tuple[Feature, ...], values: FloatArray, margins: FloatArray | None = None) -> Columns:
        """Zero mean and unit deviation over the rows of `values`, except for features with scaling 'none'."""
        link = Link.of(features, margins)
        offset, scale = _centre_and_spread(link.forward(values))
        scaled = np.array([f.scaling != "none" for f in features], dtype=bool)
        return cls(np.where(scaled, offset, 0.0), np.where(scaled, scale, 1.0), link)


@dataclass(frozen=True, eq=False)
class Scaler:
    """How a model sees states, context and action vectors.

    The Euclidean distance of the theory is measured in these coordinates. `Scaler.fit` learns it from a cohort;
    `Scaler.identity` leaves original units as they are (log-scaled features: their logarithm, bounded ones: log-odds).
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
        """Standardise states and context over the cohort's steps, and action vectors over the action space.

        How far the ends of bounded scales lie beyond their ranges is learned too (`learn_margins`).
        """
        schema, actions = cohort.schema, _action_columns(cohort.schema)
        vectors = np.array(schema.actions.vectors)
        margins = learn_margins(schema.dynamic, cohort.transitions(), vectors)
        # Categories keep their indicator vectors: centring them adds nothing.
        if not schema.actions.is_categorical:
            offset, scale = _centre_and_spread(vectors)
            actions = Columns(offset, scale, actions.link)
        states = Columns.fit(schema.dynamic, cohort.states, margins)
        return cls(states, Columns.fit(schema.context, cohort.context), actions)

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; exact, since JSON keeps every digit of a float."""
        return {
            "states": {**_plain(self.states), **_plain_margins(self.states.link)},
            "context": _plain(self.context),
            "actions": _plain(self.actions),
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
            return Columns(offset, scale, start.link)

        states = replace(read("states", identity.states), link=_read_link(schema.dynamic, content["states"]))
        return cls(states, read("context", identity.context), read("actions", identity.actions))


def _plain(columns: Columns) -> dict[str, Any]:
    return {"offset": columns.offset.tolist(), "scale": columns.scale.tolist()}


def _plain_margins(link: Link) -> dict[str, Any]:
    """The ends of bounded columns; nothing where there are none."""
    if not link.bounded.any():
        return {}
    ends = zip(link.bounded, link.low.tolist(), link.high.tolist(), strict=True)
    return {"ends": [[low, high] if bounded else None for bounded, low, high in ends]}


def _read_link(features: tuple[Feature, ...], content: Mapping[str, Any]) -> Link:
    """The features' link, with the ends of bounded columns that `_plain_margins` wrote."""
    link = Link.of(features)
    if "ends" not in content:
        return link
    try:
        ends = np.array([pair or (-math.inf, math.inf) for pair in content["ends"]], dtype=np.float64)
        low, high = ends.reshape(len(features), 2).T
    except (TypeError, ValueError):
        raise InputError("scaling of states: 'ends' must be [low, high] or null for each feature.") from None
    beyond = (low < link.floor) & (high > link.ceiling) & np.isfinite(low) & np.isfinite(high)
    if not (beyond == link.bounded).all():
        raise InputError("scaling of states: 'ends' must lie beyond the range of bounded features, null for others.")
    return replace(link, low=low, high=high)


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
    return Columns(np.zeros(width), np.ones(width), Link.none(width))
