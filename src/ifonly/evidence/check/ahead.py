"""The model on its own, several steps ahead of recorded states: courses with the recorded actions against the record.

Where not all was measured, courses hold what the record carries forward, as they take the actions that it has: when
something is measured is no claim of the model. They are compared with values that were measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ifonly.data.episode import FloatArray, IntArray
from ifonly.evidence.check.figures import Estimate, ratios
from ifonly.evidence.check.measure import LEVELS, inside
from ifonly.evidence.check.sample import BoolArray, NoiseSample, normal_scores
from ifonly.models.steps import outside

HORIZONS = (1, 2, 4, 8)
"""Steps ahead at which the model is compared with the record."""

STARTS, MOST_STARTS = 1000, 4000
"""States to start from, and how many where much was carried forward, so that few records are left to compare with."""
STARTS_AT_ONCE = 100
COURSES = 100
"""Simulated courses from each start."""


@dataclass(frozen=True)
class Ahead:
    """The model so many steps ahead of recorded states, with the recorded actions and context; lists are [D]."""

    steps: int
    starts: int
    subjects: IntArray
    """How many have a record to compare with."""
    error: FloatArray
    """Mean absolute error of the median course, in original units; none within the step of a recorded value."""
    persistence: FloatArray
    """The same for the state at the start."""
    skill: list[Estimate]
    """Share of persistence's error, in scaled units, that the model removes."""
    coverage: dict[str, list[Estimate]]
    """Share of recorded values inside the central intervals of the courses, by level."""
    centre: list[Estimate]
    """Mean normal score of the record's rank among the courses: 0 where the model is right."""
    diverged: float
    """Share of starts from which some course is no longer finite."""


@torch.no_grad()
def run_ahead(sample: NoiseSample, *, seed: int) -> list[Ahead]:
    """Simulate courses from up to `STARTS` random recorded states, for all horizons that fit into episodes."""
    generator = torch.Generator().manual_seed(seed)
    starts = np.sort(np.random.default_rng(seed).permutation(len(sample))[: _how_many(sample)])
    left = _steps_left(sample)
    found = []
    medians, ranks = _forecast(sample, starts, left, generator)
    for number, steps in enumerate(HORIZONS):
        fits = left[starts] >= steps
        if fits.any():
            found.append(_compare(sample, starts[fits], steps, (medians[number, fits], ranks[number, fits])))
    return found


def _how_many(sample: NoiseSample) -> int:
    measured = sample.rows.measured
    if measured is None:
        return STARTS
    return min(MOST_STARTS, round(STARTS / max(float(measured.double().mean()), STARTS / MOST_STARTS)))


def _steps_left(sample: NoiseSample) -> IntArray:
    """How many transitions of the same episode, without a gap, follow each one, itself included [N]."""
    left = np.ones(len(sample), dtype=np.int64)
    for row in sample.successive[::-1]:
        left[row] = left[row + 1] + 1
    return left


def _forecast(
    sample: NoiseSample, starts: IntArray, left: IntArray, generator: torch.Generator
) -> tuple[FloatArray, ...]:
    """Medians of the simulated courses and ranks of the record among them, each [horizons, starts, D]; NaN if none."""
    shape = (len(HORIZONS), len(starts), sample.model.state_size)
    medians, ranks = np.full(shape, np.nan), np.full(shape, np.nan)
    for begin in range(0, len(starts), STARTS_AT_ONCE):
        part = np.arange(begin, min(begin + STARTS_AT_ONCE, len(starts)))
        rows = torch.as_tensor(starts[part])
        courses = sample.rows.states[rows].expand(COURSES, -1, -1)
        for step in range(1, min(HORIZONS[-1], int(left[starts[part]].max())) + 1):
            going = left[starts[part]] >= step
            part, rows, courses = part[going], rows[torch.as_tensor(going)], courses[:, torch.as_tensor(going)]
            at = rows + step - 1
            noise = sample.prior.sample(courses.shape[:2], generator=generator)
            moved = sample.model.step(courses, sample.rows.context[at], sample.rows.actions[at], noise)
            fresh = sample.rows.measured
            courses = moved if fresh is None else torch.where(fresh[at], moved, courses)
            if step in HORIZONS:
                number = HORIZONS.index(step)
                medians[number, part] = courses.quantile(0.5, dim=0).numpy()
                low, high = (end[at] for end in sample.cells)
                ranks[number, part] = _ranks(courses, low, high, generator)
    return medians, ranks


def _ranks(courses: Tensor, low: Tensor, high: Tensor, generator: torch.Generator) -> FloatArray:
    """Where the record, between `low` and `high` [n, D], stands among the courses [COURSES, n, D]: a random place
    between neighbours of its cell."""
    below, up_to = ((courses < end).double().sum(0) for end in (low, high))
    between = torch.rand(below.shape, generator=generator, dtype=torch.float64)
    ranks = (below + between * (up_to - below + 1)) / (len(courses) + 1)
    return np.asarray(ranks.masked_fill(~torch.isfinite(courses).all(0), torch.nan).numpy())


def _compare(sample: NoiseSample, starts: IntArray, steps: int, forecast: tuple[FloatArray, FloatArray]) -> Ahead:
    medians, ranks = forecast
    finite = np.isfinite(ranks).all(axis=1)
    rows = starts[finite]
    medians, ranks = medians[finite], ranks[finite]
    before = sample.rows.states.numpy()[rows]
    low, high = (end.numpy()[rows + steps - 1] for end in sample.cells)
    counted = _measured_at(sample, rows + steps - 1)
    decode = sample.model.scaler.states.decode
    in_units = [outside(decode(guess), (decode(low), decode(high))) for guess in (medians, before)]
    ours, theirs = outside(medians, (low, high)), outside(before, (low, high))
    subjects, weights = sample.subject[rows], counted.astype(np.float64)
    return Ahead(
        steps=steps,
        starts=len(starts),
        subjects=np.array([len(np.unique(subjects[column])) for column in counted.T]),
        error=_means(in_units[0], counted),
        persistence=_means(in_units[1], counted),
        skill=ratios((theirs - ours) * weights, theirs * weights, subjects),
        coverage={level: ratios(inside(ranks, share) * weights, weights, subjects) for level, share in LEVELS.items()},
        centre=ratios(normal_scores(ranks) * weights, weights, subjects),
        diverged=1.0 - len(rows) / len(starts),
    )


def _measured_at(sample: NoiseSample, rows: IntArray) -> BoolArray:
    """Which entries of the states that these transitions lead to were measured [n, D]."""
    measured = sample.rows.measured
    if measured is None:
        return np.ones((len(rows), sample.model.state_size), dtype=np.bool_)
    return np.asarray(measured[torch.as_tensor(rows)].numpy())


def _means(values: FloatArray, counted: BoolArray) -> FloatArray:
    """Means of the entries that count, column by column [D]; NaN where there are none."""
    counts = counted.sum(axis=0)
    return np.where(counts > 0, np.where(counted, values, 0.0).sum(axis=0) / np.maximum(counts, 1), np.nan)
