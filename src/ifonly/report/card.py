"""The numbers of a data card: what a cohort holds, and whether it can support an analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.data.groups import make_groups
from ifonly.data.schema import Axis, Feature
from ifonly.errors import InputError
from ifonly.intervals import mean_interval
from ifonly.report.improvements import round_up
from ifonly.report.overview import SMALLEST_CELL, BoolArray, Discretion, values_of
from ifonly.report.recorded import Measured, Outcome, measured_shares, shares_of_origins
from ifonly.version import __version__

FORMAT, VERSION = "ifonly.data-card", 2

SHARES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
NUMBERS_OF_BINS = (24, 12, 6, 3)
"""Of a histogram, at most about; the first is taken that hides little."""

MOST_HIDDEN = 0.1
"""Share of values that may stand in bars hidden for the sake of few subjects, if wider bars would hide fewer."""

WHOLE_BINS = 30
"""Whole numbers within so many values have a bar each."""

SEVERITY = "SOFA"
"""The feature by which severity is judged, where there is one and no other is named."""

LARGEST = 1e100
"""Of a value: squares of it, summed, are numbers still."""
FEW_USES = 10
"""Actions taken less often are rare."""

HARDLY_MEASURED = 0.05
"""Features measured in a smaller share of steps are mostly filled in."""

FEW_SUBJECTS = 50
"""Below this, a tenth held out for testing is a handful."""

VALUES_PER_PARAMETER = 10
"""Recorded next values (transitions x dynamic features) that a model should have for each of its parameters."""

DOMINANT_SHARE, DOMINANT_RATIO = 0.1, 5
"""A subject dominates with more than this share of all steps, if that is more than so many times its even share."""

MUCH_IMPLAUSIBLE = 0.01


class CardWarningCode(StrEnum):
    """Why a cohort may not support an analysis."""

    FEW_SUBJECTS = "few subjects"
    MODEL_TOO_LARGE = "model too large"
    NEVER_TAKEN = "actions never taken"
    RARELY_TAKEN = "actions rarely taken"
    HARDLY_MEASURED = "hardly measured"
    CONSTANT = "constant features"
    IMPLAUSIBLE = "implausible values"
    DOMINANT = "dominant subject"


class Masks(StrEnum):
    """What is known about what was measured."""

    NO_GRID = "no grid"
    NO_MASKS = "no masks"
    SOME = "masks"
    """Some features have a record of the steps in which they were measured."""
    ORIGINS = "origins"
    """The cohort itself says of dynamic features which values were measured, carried forward or assumed."""


@dataclass(frozen=True)
class CardWarning:
    """One reason for doubt, with the numbers behind it."""

    code: CardWarningCode
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Histogram:
    """Counts between edges, the lower one included; None where too few subjects have such values."""

    edges: tuple[float, ...]
    counts: tuple[int | None, ...]
    outside: float
    """Share of values beyond the edges: the tails, which are not shown."""


@dataclass(frozen=True)
class FeatureCard:
    """Distribution of one feature: over steps, or over episodes where it is static."""

    name: str
    label: str
    kind: str
    scaling: str
    mean: float | None
    deviation: float | None
    quantiles: Mapping[str, float | None]
    """By percent; None where too few subjects lie there."""
    histogram: Histogram
    constant: bool
    plausible: tuple[float, float] | None
    implausible: float
    """Share of steps outside the plausible range."""
    measured: Measured | None


@dataclass(frozen=True)
class ActionsCard:
    """How often each action was taken, over all steps."""

    labels: tuple[str, ...]
    axes: tuple[Axis, ...]
    counts: tuple[int | None, ...]
    """None: taken, but by too few subjects to say how often."""
    never: int
    rare: int
    """Taken, but fewer than ten times."""


@dataclass(frozen=True)
class HorizonsCard:
    """Numbers of steps per episode."""

    mean: float | None
    quantiles: Mapping[str, float | None]
    histogram: Histogram


@dataclass(frozen=True)
class SeverityGroup:
    """Episodes that began alike; figures are None where they are too few."""

    label: str
    episodes: int | None
    first: float | None
    last: float | None
    change: float | None
    half_interval: float | None
    """Of the mean change, at 95 %."""
    outcome: float | None
    """Share of episodes with the outcome; None also where those with or without it are too few."""


@dataclass(frozen=True)
class SeverityCard:
    """How episodes went on, by how they began."""

    feature: str
    label: str
    outcome: str | None
    groups: tuple[SeverityGroup, ...]


@dataclass(frozen=True)
class Card:
    """Everything that a data card says."""

    episodes: int
    subjects: int
    steps: int
    transitions: int
    step: str
    schema_fingerprint: str
    smallest_cell: int
    model_size: int | None
    features: tuple[FeatureCard, ...]
    actions: ActionsCard
    horizons: HorizonsCard
    severity: SeverityCard | None
    masks: Masks
    warnings: tuple[CardWarning, ...]
    values_per_parameter: int = VALUES_PER_PARAMETER
    """What the check of the model's size asks for."""

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return {"format": FORMAT, "version": VERSION, "ifonly": __version__, **asdict(self)}


def data_card(
    cohort: Cohort,
    *,
    grid: pl.DataFrame | None = None,
    model_size: int | None = None,
    severity: str | None = None,
    outcome: Outcome | None = None,
    smallest_cell: int = SMALLEST_CELL,
) -> Card:
    """The data card of a cohort.

    `grid` is a table with a row per `stay` (or `episode`) and `step` and a mask `measured_<feature>` for each feature
    that was measured at times (and `known_<feature>` where a value was measured or held): what a clinical build keeps
    as grid.parquet. `model_size` is the number of parameters of the model to be fitted. `severity` names the dynamic
    feature by whose first value episodes are compared, by default SOFA, where there is one. Figures that rest on fewer
    than `smallest_cell` subjects are None. Without a grid, what was measured is told by the cohort's `origins`.
    """
    if smallest_cell < 1:
        raise InputError(f"data card: smallest_cell={smallest_cell} must be at least 1.")
    per_episode, per_step = Discretion.of(cohort, smallest_cell)
    measured = shares_of_origins(cohort) if grid is None else measured_shares(grid, cohort)
    features = tuple(
        _feature_card(
            feature, cohort, per_episode if feature.kind == "static" else per_step, measured.get(feature.name)
        )
        for feature in cohort.schema.features
    )
    return Card(
        episodes=len(cohort),
        subjects=len(set(cohort.subjects)),
        steps=len(cohort.actions),
        transitions=len(cohort.actions) - len(cohort),
        step=f"{cohort.schema.step_length:g} {cohort.schema.step_unit}",
        schema_fingerprint=cohort.schema.fingerprint,
        smallest_cell=smallest_cell,
        model_size=model_size,
        features=features,
        actions=_actions_card(cohort, per_step),
        horizons=_horizons_card(cohort, per_episode),
        severity=_severity_card(cohort, per_episode, severity, outcome),
        masks=_masks(grid is not None, bool(measured)),
        warnings=tuple(_find_warnings(cohort, measured, model_size)),
    )


def _masks(has_grid: bool, known: bool) -> Masks:
    if has_grid:
        return Masks.SOME if known else Masks.NO_MASKS
    return Masks.ORIGINS if known else Masks.NO_GRID


def _feature_card(feature: Feature, cohort: Cohort, discretion: Discretion, measured: Measured | None) -> FeatureCard:
    values = values_of(cohort, feature)
    if np.abs(values).max() > LARGEST:
        raise InputError(
            f"data card: {feature.name}: values beyond {LARGEST:g} have no deviation; correct or drop them."
        )
    quantiles = _quantiles(values, discretion)
    return FeatureCard(
        name=feature.name,
        label=feature.label,
        kind=feature.kind,
        scaling=feature.scaling,
        mean=discretion.mean(values),
        deviation=discretion.deviation(values),
        quantiles=quantiles,
        histogram=_histogram(values, discretion, quantiles),
        constant=bool(values.min() == values.max()),
        plausible=feature.plausible,
        implausible=cohort.implausible.get(feature.name, 0) / len(cohort.actions),
        measured=measured,
    )


def _quantiles(values: FloatArray, discretion: Discretion) -> dict[str, float | None]:
    return {f"{100 * share:g}": discretion.quantile(values, share) for share in SHARES}


def _histogram(values: FloatArray, discretion: Discretion, quantiles: Mapping[str, float | None]) -> Histogram:
    """Bars between the outermost quantiles that may be shown; none where there are none.

    As many as can be without hiding much: few subjects need wide bars.
    """
    shown = [value for value in quantiles.values() if value is not None]
    if not shown:
        return Histogram((), (), 1.0)
    for edges in _choices_of_edges(values, min(shown), max(shown)):
        cells = np.searchsorted(edges, values, side="right") - 1
        cells[cells >= len(edges) - 1] = -1
        counts = discretion.counts(cells, len(edges) - 1)
        inside = int((cells >= 0).sum())
        hidden = inside - sum(count for count in counts if count is not None)
        if hidden <= MOST_HIDDEN * inside:
            break
    return Histogram(tuple(float(edge) for edge in edges), counts, outside=1.0 - inside / len(values))


def _choices_of_edges(values: FloatArray, low: float, high: float) -> Iterator[FloatArray]:
    """Edges of bars, narrow ones first; whole numbers have one each where they are not too many."""
    whole = bool((values == np.floor(values)).all())
    if whole and high - low < WHOLE_BINS:
        yield np.arange(np.floor(low), np.floor(high) + 2) - 0.5
    for bins in NUMBERS_OF_BINS:
        width = round_up((high - low or 1.0) / bins)
        yield np.round(np.arange(np.floor(low / width), np.floor(high / width) + 2) * width, 12)


def _actions_card(cohort: Cohort, discretion: Discretion) -> ActionsCard:
    space = cohort.schema.actions
    uses = np.bincount(cohort.actions, minlength=len(space))
    return ActionsCard(
        labels=space.labels,
        axes=space.axes,
        counts=discretion.counts(np.array(cohort.actions), len(space)),
        never=int((uses == 0).sum()),
        rare=int(((uses > 0) & (uses < FEW_USES)).sum()),
    )


def _horizons_card(cohort: Cohort, discretion: Discretion) -> HorizonsCard:
    lengths = cohort.lengths.astype(np.float64)
    quantiles = _quantiles(lengths, discretion)
    return HorizonsCard(discretion.mean(lengths), quantiles, _histogram(lengths, discretion, quantiles))


def _severity_card(
    cohort: Cohort, discretion: Discretion, severity: str | None, outcome: Outcome | None
) -> SeverityCard | None:
    names = [feature.name for feature in cohort.schema.dynamic]
    if severity is None and SEVERITY not in names:
        return None
    name = severity or SEVERITY
    values = cohort.states[:, cohort.schema.dynamic_index(name)]
    first, last = values[cohort.offsets[:-1]], values[cohort.offsets[1:] - 1]
    groups = make_groups(name, cohort.ids, cohort)
    of_episode = np.array(groups.of_episode)
    happened = _happened(cohort, outcome)
    return SeverityCard(
        feature=name,
        label=groups.label,
        outcome=outcome.name if outcome else None,
        groups=tuple(
            _severity_group(label, of_episode == label, (first, last), happened, discretion) for label in groups.order
        ),
    )


def _happened(cohort: Cohort, outcome: Outcome | None) -> FloatArray:
    """1 with the outcome, 0 without, NaN where it is unknown [E]."""
    known = outcome.of_episode if outcome else {}
    found = np.array([float(known[id]) if id in known else np.nan for id in cohort.ids])
    if outcome and np.isnan(found).all():
        raise InputError(f"outcome {outcome.name!r}: is known of none of the cohort's episodes; are the ids the same?")
    return found


def _severity_group(
    label: str,
    rows: BoolArray,
    courses: tuple[FloatArray, FloatArray],
    happened: FloatArray,
    discretion: Discretion,
) -> SeverityGroup:
    if not discretion.enough(rows):
        return SeverityGroup(label, None, None, None, None, None, None)
    first, last = (course[rows] for course in courses)
    change = last - first
    interval = mean_interval(change)
    yes, no = rows & (happened == 1), rows & (happened == 0)
    everything = discretion.smallest == 1 and bool((yes | no).any())
    told = everything or (discretion.enough(yes) and discretion.enough(no))
    return SeverityGroup(
        label=label,
        episodes=int(rows.sum()),
        first=float(first.mean()),
        last=float(last.mean()),
        change=float(change.mean()),
        half_interval=None if interval is None else (interval.high - interval.low) / 2,
        outcome=float(yes.sum() / (yes.sum() + no.sum())) if told else None,
    )


def _find_warnings(cohort: Cohort, measured: Mapping[str, Measured], model_size: int | None) -> Iterator[CardWarning]:
    """All warnings about a cohort, the gravest kinds first."""
    yield from _about_size(cohort, model_size)
    yield from _about_actions(cohort)
    hardly = {name: shares.measured for name, shares in measured.items() if shares.measured < HARDLY_MEASURED}
    if hardly:
        yield CardWarning(CardWarningCode.HARDLY_MEASURED, {"features": hardly, "limit": HARDLY_MEASURED})
    yield from _about_features(cohort)
    _, numbers = np.unique(np.array(cohort.subjects), return_inverse=True)
    steps = np.bincount(numbers, weights=cohort.lengths)
    share = float(steps.max() / steps.sum())
    if share > DOMINANT_SHARE and share * len(steps) > DOMINANT_RATIO:
        yield CardWarning(CardWarningCode.DOMINANT, {"subjects": len(steps), "share": round(share, 2)})


def _about_size(cohort: Cohort, model_size: int | None) -> Iterator[CardWarning]:
    subjects = len(set(cohort.subjects))
    if subjects < FEW_SUBJECTS:
        yield CardWarning(CardWarningCode.FEW_SUBJECTS, {"subjects": subjects, "limit": FEW_SUBJECTS})
    values = (len(cohort.actions) - len(cohort)) * len(cohort.schema.dynamic)
    if model_size is not None and values < VALUES_PER_PARAMETER * model_size:
        sizes = {"parameters": model_size, "values": values, "limit": VALUES_PER_PARAMETER}
        yield CardWarning(CardWarningCode.MODEL_TOO_LARGE, sizes)


def _about_actions(cohort: Cohort) -> Iterator[CardWarning]:
    labels = cohort.schema.actions.labels
    uses = dict(zip(labels, np.bincount(cohort.actions, minlength=len(labels)), strict=True))
    never = [label for label, count in uses.items() if count == 0]
    rare = [label for label, count in uses.items() if 0 < count < FEW_USES]
    if never:
        yield CardWarning(CardWarningCode.NEVER_TAKEN, {"actions": never, "of": len(labels)})
    if rare:
        yield CardWarning(CardWarningCode.RARELY_TAKEN, {"actions": rare, "of": len(labels), "limit": FEW_USES})


def _about_features(cohort: Cohort) -> Iterator[CardWarning]:
    constant = []
    for values, features in ((cohort.states, cohort.schema.dynamic), (cohort.context, cohort.schema.context)):
        same = values.min(0) == values.max(0)
        constant += [feature.name for feature, is_constant in zip(features, same, strict=True) if is_constant]
    if constant:
        yield CardWarning(CardWarningCode.CONSTANT, {"features": constant})
    shares = {name: count / len(cohort.actions) for name, count in cohort.implausible.items()}
    many = {name: share for name, share in shares.items() if share > MUCH_IMPLAUSIBLE}
    if many:
        yield CardWarning(CardWarningCode.IMPLAUSIBLE, {"features": many, "limit": MUCH_IMPLAUSIBLE})
