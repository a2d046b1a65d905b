"""First files for people to fill in: a query, a study. Every entry with what it means; most of them are comments.

Their text stands in files beside this module, with places in braces for what is known.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from ifonly.data.schema import Schema

DEFAULT_FEATURE = "SOFA"
"""What is minimised unless something else is said: the paper's reward."""


@dataclass(frozen=True)
class Sizes:
    """How large a first study is."""

    test: float = 0.2
    recipe: str = "auto"
    refits: int | str = "kinds"
    epochs: int = 100
    changes: int = 3
    seconds: int = 60
    first: int | None = None
    cases: int = 20


def study_text(
    data: str, *, name: str = "study.yaml", feature: str = DEFAULT_FEATURE, sizes: Sizes | None = None
) -> str:
    """A first study file about these data (`simulated_text` and the like)."""
    chosen = sizes or Sizes()
    first = "# first: 50                   # only so many of them" if chosen.first is None else f"first: {chosen.first}"
    values = asdict(chosen) | {"first": first}
    return _text("first_study.yaml").format(data=data, name=name, feature=_plain(feature), **values)


def share_to_set_aside(subjects: int, *, least: int, usual: float = 0.2) -> float:
    """The share of so many subjects by which a model can be judged: the usual one, or as much as holds `least` of them,
    but no more than half.

    >>> [share_to_set_aside(subjects, least=10) for subjects in (400, 50, 40, 24, 20, 12)]
    [0.2, 0.2, 0.25, 0.42, 0.5, 0.2]
    """
    needed = math.ceil(100 * least / subjects) / 100
    return usual if needed <= usual or needed > 0.5 else needed


def simulated_text(patients: int, horizon: str) -> str:
    """The section of simulated data."""
    return _data("simulate", patients=patients, horizon=horizon)


def source_text(
    source: Path, folder: Path, *, schema: str | None = None, clinical: str | None = None, codes: str | None = None
) -> str:
    """The section of data of a table (with its schema's file), of clinical tables of a kind (with the file of their
    codes), or of a stored cohort."""
    place = _plain(relative_place(source, folder))
    if schema is not None:
        return _data("table", table=place, schema=_plain(schema))
    if clinical is None:
        return _data("cohort", source=place)
    named = "# codes: codes.yaml         # what else to read" if codes is None else f"codes: {_plain(codes)}"
    return _data("clinical", source=place, database=clinical, codes=named)


def relative_place(path: Path, folder: Path) -> str:
    """How a file in `folder` names a path: so that both may be moved together."""
    try:
        return os.path.relpath(path.resolve(), folder.resolve())
    except ValueError:  # another drive
        return str(path.resolve())


def query_text(schema: Schema | None = None) -> str:
    """A first query file; with a schema, its features and actions are named, and one of them is minimized."""
    text = _text("first_query.yaml")
    if schema is None:
        return text.format(goal="# minimize: FEATURE", feature="FEATURE", about="", action=24, dose="fluids")
    features = [feature.name for feature in schema.dynamic]
    feature = _plain(DEFAULT_FEATURE if DEFAULT_FEATURE in features else features[0])
    about = f"\n# Features: {', '.join(features)}.\n# Actions: {_listed(schema.actions.labels)}."
    dose = _plain(schema.actions.axes[0].name) if schema.actions.axes else "DOSE"
    return text.format(
        goal=f"minimize: {feature}", feature=feature, about=about, action=len(schema.actions) - 1, dose=dose
    )


def _listed(labels: Iterable[str]) -> str:
    named = [f"{number} {label}" for number, label in enumerate(labels)]
    shown = named if len(named) <= 6 else [*named[:3], "...", named[-1]]
    return "; ".join(shown).replace("\n", " ")


def _text(file: str) -> str:
    return (Path(__file__).parent / file).read_text(encoding="utf-8")


def _data(kind: str, **values: object) -> str:
    sections: dict[str, str] = yaml.safe_load(_text("first_data.yaml"))
    return sections[kind].format(**values)


def _plain(text: str | Path) -> str:
    """Text as YAML writes it on one line."""
    return yaml.safe_dump(str(text), default_flow_style=True, width=10_000, allow_unicode=True).split("\n")[0]
