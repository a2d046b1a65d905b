"""Columns of words, such as a ward, as features: one of 0 and 1 for every word but the first.

Models see numbers. What a word is cannot be predicted by models of quantities, so such features are contextual or
static: they keep what was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from ifonly.data.episode import FloatArray
from ifonly.data.plain import as_list, check_mapping, check_name, first_names, repeated
from ifonly.data.schema import Feature
from ifonly.errors import InputError

FEWEST_ROWS = 20
"""A table with fewer rows does not tell switches from quantities."""


@dataclass(frozen=True)
class LabelColumn:
    """A column of words, and all words that it may hold.

    >>> LabelColumn("ward", ("surgical", "medical", "cardiac")).features
    ('ward = medical', 'ward = cardiac')
    """

    column: str
    labels: tuple[str, ...]
    """The first is what the others are compared with: it has no feature of its own."""

    def __post_init__(self) -> None:
        where = f"table: labels of {self.column!r}"
        check_name("table: labels", "column", self.column)
        object.__setattr__(self, "labels", tuple(as_list(where, "labels", self.labels)))
        for label in self.labels:
            check_name(where, "label", label)
        if len(self.labels) < 2 or repeated(self.labels):
            raise InputError(f"{where}: list at least two different words, the usual one first.")

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the features that it stands for."""
        return tuple(f"{self.column} = {label}" for label in self.labels[1:])


def labels_from_dict(content: Any) -> tuple[LabelColumn, ...]:
    """Read `labels:` of a schema file: columns, and the words of each."""
    check_mapping("table: labels", content)
    return tuple(LabelColumn(column, labels) for column, labels in content.items())


def labels_to_dict(columns: tuple[LabelColumn, ...]) -> Mapping[str, list[str]]:
    """Plain types, as a schema file holds them."""
    return {one.column: list(one.labels) for one in columns}


def require_features(columns: tuple[LabelColumn, ...], features: tuple[Feature, ...]) -> None:
    """Refuse words without a feature, which would pass for the first word, and features that models would predict."""
    kinds = {feature.name: feature.kind for feature in features}
    for one in columns:
        for name in one.features:
            if name not in kinds:
                raise InputError(
                    f"table: labels of {one.column!r}: the schema has no feature {name!r}; add it, contextual or "
                    "static: each word but the first has one."
                )
            if kinds[name] == "dynamic":
                raise InputError(
                    f"feature {name!r}: is dynamic, while models predict quantities and not words; make it contextual, "
                    "if no action changes it, or leave the column out."
                )


def with_indicators(frame: pl.DataFrame, columns: tuple[LabelColumn, ...]) -> pl.DataFrame:
    """The table with a column of 0 and 1 for each feature; words that were not listed are refused by row."""
    for one in columns:
        if one.column not in frame.columns:
            raise InputError(
                f"table: no column {one.column!r}, whose labels are listed; found {first_names(frame.columns)}."
            )
        if taken := [name for name in one.features if name in frame.columns]:
            raise InputError(f"table: has a column {taken[0]!r} already, as labels of {one.column!r} make; rename it.")
        words = frame[one.column].cast(pl.String).str.strip_chars()
        unknown = ~words.is_in(list(one.labels)).fill_null(False)
        if unknown.any():
            row = int(unknown.arg_true()[0])
            raise InputError(
                f"column {one.column!r}, row {row + 1}: is empty or none of its labels; add the word to `labels` in "
                "the schema, with a feature, or correct it."
            )
        frame = frame.with_columns(
            (words == label).cast(pl.Float64).alias(name)
            for name, label in zip(one.features, one.labels[1:], strict=True)
        )
    return frame


def refuse_switches(features: tuple[Feature, ...], values: FloatArray) -> None:
    """Refuse dynamic features [D] whose values [N, D] are only ever two: models predict quantities, not switches."""
    if len(values) < FEWEST_ROWS:
        return
    for number, feature in enumerate(features):
        if feature.scaling != "bounded" and len(np.unique(values[:, number])) == 2:
            raise InputError(
                f"feature {feature.name!r}: is dynamic and has only two values, while models predict quantities and "
                "not switches: a counterfactual value would lie somewhere between. If no action changes it, say `kind: "
                "contextual`, and it keeps what was recorded; if it follows from other features, leave it out; to have "
                "it modelled as a share nevertheless, say `scaling: bounded` with its two values as `plausible`."
            )
