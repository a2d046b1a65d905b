"""Where a model does badly: transitions after each action, and of each group of episodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl
import torch

from ifonly.data.episode import FloatArray
from ifonly.data.groups import make_groups
from ifonly.evidence.check.estimates import ratio, ratios
from ifonly.evidence.check.result import FeatureOfPart, PartFigures
from ifonly.evidence.check.sample import BoolArray, Sample
from ifonly.evidence.check.shape import inside
from ifonly.evidence.check.thresholds import Thresholds

ACTION = "action"
"""The grouping of transitions by what was done."""

Groupings = Mapping[str, Sequence[float] | None]
"""Features or columns to group episodes by, with the edges at which numbers are cut (None: their quartiles)."""


@torch.no_grad()
def residuals(sample: Sample) -> FloatArray:
    """Recorded next values minus the medians that the model predicts [N, D], in original units."""
    middle = torch.as_tensor(np.median(sample.draws, axis=0))
    decode = sample.model.scaler.states.decode
    found = []
    for states, context, actions, following in sample.rows.batches():
        predicted = sample.model.step(states, context, actions, middle.expand(states.shape))
        found.append(decode(following.numpy()) - decode(predicted.numpy()))
    return np.concatenate(found)


def part_figures(
    sample: Sample,
    baseline: FloatArray,
    errors: FloatArray,
    groupings: tuple[Groupings, pl.DataFrame | None],
    thresholds: Thresholds,
) -> tuple[PartFigures, ...]:
    """Figures for every action and every group; `baseline` [N] is the linear one's density, `errors` are residuals."""
    parts = (*_by_action(sample), *_by_group(sample, *groupings))
    return tuple(_figures(names, rows, (sample, baseline, errors), thresholds.smallest_cell) for names, rows in parts)


def _by_action(sample: Sample) -> Iterator[tuple[tuple[str, str], BoolArray]]:
    actions = sample.rows.actions.numpy()
    for number, label in enumerate(sample.model.schema.actions.labels):
        yield (ACTION, label), actions == number


def _by_group(
    sample: Sample, by: Groupings, values: pl.DataFrame | None
) -> Iterator[tuple[tuple[str, str], BoolArray]]:
    cohort = sample.cohort
    for name, edges in by.items():
        groups = make_groups(name, cohort.ids, cohort if values is None else values, edges)
        of_row = np.array(groups.of_episode)[sample.episode]
        for group in groups.order:
            yield (groups.label, group), of_row == group


def _figures(
    names: tuple[str, str], rows: BoolArray, data: tuple[Sample, FloatArray, FloatArray], smallest: int
) -> PartFigures:
    sample, baseline, errors = data
    subjects, count = sample.subject[rows], int(rows.sum())
    people = len(np.unique(subjects))
    if 0 < people < smallest:
        return PartFigures(*names, transitions=None, subjects=None, gain=None, features=())
    if count == 0:
        return PartFigures(*names, transitions=0, subjects=0, gain=None, features=())
    one = np.ones(count)
    biases = ratios(sample.scores[rows], one, subjects)
    covered = ratios(inside(sample.ranks[rows], 0.8), one, subjects)
    features = tuple(
        FeatureOfPart(feature.name, biases[i], float(np.median(errors[rows, i])), covered[i])
        for i, feature in enumerate(sample.model.schema.dynamic)
        if not sample.constant[i]
    )
    gain = ratio((sample.log_prob - baseline)[rows], one, subjects)
    return PartFigures(*names, transitions=count, subjects=people, gain=gain, features=features)
