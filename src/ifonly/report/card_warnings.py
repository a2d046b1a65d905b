"""Where a cohort cannot support an analysis: each rule with its threshold, said in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ifonly.data.cohort import Cohort
from ifonly.report.measured import Measured

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
SHOWN_NAMES = 6


@dataclass(frozen=True)
class CardWarning:
    """One reason for doubt."""

    kind: str
    """A short name for programs."""
    about: tuple[str, ...]
    """Features or actions, where it is about some."""
    text: str


def find_warnings(
    cohort: Cohort, *, measured: Mapping[str, Measured], model_size: int | None
) -> tuple[CardWarning, ...]:
    """All warnings about a cohort, the gravest kinds first."""
    return (
        *_about_size(cohort, model_size),
        *_about_actions(cohort),
        *_about_measurements(measured),
        *_about_features(cohort),
        *_about_subjects(cohort),
    )


def _about_size(cohort: Cohort, model_size: int | None) -> Iterator[CardWarning]:
    subjects = len(set(cohort.subjects))
    if subjects < FEW_SUBJECTS:
        text = (
            f"Only {subjects} subjects (fewer than {FEW_SUBJECTS}): what is held out to test a model is a handful, and "
            "its figures say little."
        )
        yield CardWarning("few subjects", (), text)
    if model_size is None:
        return
    values = (len(cohort.actions) - len(cohort)) * len(cohort.schema.dynamic)
    if values < VALUES_PER_PARAMETER * model_size:
        text = (
            f"Too few data for a model of {model_size:,} parameters: {values:,} recorded next values, "
            f"{values / model_size:.2g} per parameter, fewer than {VALUES_PER_PARAMETER}. Take a smaller model, which "
            f"should have at most {values // VALUES_PER_PARAMETER:,} parameters, or more data."
        )
        yield CardWarning("model too large", (), text)


def _about_actions(cohort: Cohort) -> Iterator[CardWarning]:
    labels = cohort.schema.actions.labels
    uses = np.bincount(cohort.actions, minlength=len(labels))
    never = [label for label, count in zip(labels, uses, strict=True) if count == 0]
    rare = [label for label, count in zip(labels, uses, strict=True) if 0 < count < FEW_USES]
    if never:
        text = (
            f"{len(never)} of {len(labels)} actions were never taken: {_listed(never)}. What they would have done is "
            "extrapolated; forbid them, or merge levels."
        )
        yield CardWarning("actions never taken", tuple(never), text)
    if rare:
        text = (
            f"{len(rare)} of {len(labels)} actions were taken fewer than {FEW_USES} times: {_listed(rare)}. Hardly "
            "anything can be learned about them; forbid them, or merge levels."
        )
        yield CardWarning("actions rarely taken", tuple(rare), text)


def _about_measurements(measured: Mapping[str, Measured]) -> Iterator[CardWarning]:
    hardly = [name for name, shares in measured.items() if shares.measured < HARDLY_MEASURED]
    if hardly:
        shown = [f"{name} ({100 * measured[name].measured:.1f} %)" for name in hardly]
        text = (
            f"Measured in fewer than {100 * HARDLY_MEASURED:g} % of steps: {_listed(shown)}. Most of their values are "
            "held or defaults, and their changes are not those of the subject."
        )
        yield CardWarning("hardly measured", tuple(hardly), text)


def _about_features(cohort: Cohort) -> Iterator[CardWarning]:
    groups = ((cohort.states, cohort.schema.dynamic), (cohort.context, cohort.schema.context))
    constant = [
        feature.name
        for values, features in groups
        for column, feature in enumerate(features)
        if values[:, column].min() == values[:, column].max()
    ]
    if constant:
        text = f"Constant: {_listed(constant)}. Nothing can be learned from them; leave them out of the schema."
        yield CardWarning("constant features", tuple(constant), text)
    shares = {name: count / len(cohort.actions) for name, count in cohort.implausible.items()}
    many = [name for name, share in shares.items() if share > MUCH_IMPLAUSIBLE]
    if many:
        shown = [f"{name} ({100 * shares[name]:.1f} %)" for name in many]
        text = (
            f"More than {100 * MUCH_IMPLAUSIBLE:g} % of the values are outside the plausible range: {_listed(shown)}. "
            "Look for mistakes and codes for missing values, or correct the range."
        )
        yield CardWarning("implausible values", tuple(many), text)


def _about_subjects(cohort: Cohort) -> Iterator[CardWarning]:
    _, numbers = np.unique(np.array(cohort.subjects), return_inverse=True)
    steps = np.bincount(numbers, weights=cohort.lengths)
    share = float(steps.max() / steps.sum())
    if share > DOMINANT_SHARE and share * len(steps) > DOMINANT_RATIO:
        text = (
            f"One of {len(steps)} subjects provides {100 * share:.0f} % of all steps: a model is then mostly about "
            "that one."
        )
        yield CardWarning("dominant subject", (), text)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_NAMES
    return "; ".join(names[:SHOWN_NAMES]) + (f"; and {more} more" if more > 0 else "")
