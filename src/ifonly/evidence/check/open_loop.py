"""How far off, and how sure of itself, the model is when it runs several steps ahead on its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ifonly.data.episode import FloatArray, IntArray
from ifonly.evidence.check.estimates import Estimate, ratios
from ifonly.evidence.check.sample import Sample
from ifonly.evidence.check.shape import LEVELS, inside

HORIZONS = (1, 2, 4, 8)
"""Steps ahead at which the model is compared with the record."""

STARTS = 1000
COURSES = 100
"""Simulated courses from each start."""

STARTS_AT_ONCE = 100


@dataclass(frozen=True)
class Ahead:
    """The model so many steps ahead of recorded states, with the recorded actions and context; lists are [D]."""

    steps: int
    starts: int
    subjects: int
    error: FloatArray
    """Mean absolute error of the median course, in original units."""
    persistence: FloatArray
    """The same for the state at the start."""
    skill: list[Estimate]
    """Share of persistence's error, in scaled units, that the model removes."""
    coverage: dict[str, list[Estimate]]
    """Share of recorded values inside the central intervals of the courses, by level."""
    diverged: float
    """Share of starts from which some course is no longer finite."""


@torch.no_grad()
def run_ahead(sample: Sample, *, seed: int) -> list[Ahead]:
    """Simulate courses from up to `STARTS` random recorded states, for all horizons that fit into episodes."""
    generator = torch.Generator().manual_seed(seed)
    starts = np.sort(np.random.default_rng(seed).permutation(len(sample))[:STARTS])
    left = _steps_left(sample)
    found = []
    medians, ranks = _forecast(sample, starts, left, generator)
    for number, steps in enumerate(HORIZONS):
        fits = left[starts] >= steps
        if fits.any():
            found.append(_compare(sample, starts[fits], steps, (medians[number, fits], ranks[number, fits])))
    return found


def _steps_left(sample: Sample) -> IntArray:
    """How many transitions of the same episode, without a gap, follow each one, itself included [N]."""
    left = np.ones(len(sample), dtype=np.int64)
    for row in sample.successive[::-1]:
        left[row] = left[row + 1] + 1
    return left


def _forecast(sample: Sample, starts: IntArray, left: IntArray, generator: torch.Generator) -> tuple[FloatArray, ...]:
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
            courses = sample.model.step(courses, sample.rows.context[at], sample.rows.actions[at], noise)
            if step in HORIZONS:
                number = HORIZONS.index(step)
                medians[number, part] = courses.quantile(0.5, dim=0).numpy()
                ranks[number, part] = _ranks(courses, sample.rows.next_states[at], generator)
    return medians, ranks


def _ranks(courses: Tensor, recorded: Tensor, generator: torch.Generator) -> FloatArray:
    """Where the record [n, D] stands among the courses [COURSES, n, D]; a random place between two neighbours."""
    below = (courses < recorded).double().sum(0)
    between = torch.rand(below.shape, generator=generator, dtype=torch.float64)
    ranks = (below + between) / (len(courses) + 1)
    return np.asarray(ranks.masked_fill(~torch.isfinite(courses).all(0), torch.nan).numpy())


def _compare(sample: Sample, starts: IntArray, steps: int, forecast: tuple[FloatArray, FloatArray]) -> Ahead:
    medians, ranks = forecast
    finite = np.isfinite(ranks).all(axis=1)
    rows = starts[finite]
    medians, ranks = medians[finite], ranks[finite]
    before = sample.rows.states.numpy()[rows]
    after = sample.rows.next_states.numpy()[rows + steps - 1]
    decode = sample.model.scaler.states.decode
    in_units = [np.abs(decode(guess) - decode(after)) for guess in (medians, before)]
    ours, theirs = np.abs(medians - after), np.abs(before - after)
    subjects, one = sample.subject[rows], np.ones(len(rows))
    return Ahead(
        steps=steps,
        starts=len(starts),
        subjects=len(np.unique(subjects)),
        error=in_units[0].mean(axis=0) if len(rows) else np.full(medians.shape[1], np.nan),
        persistence=in_units[1].mean(axis=0) if len(rows) else np.full(medians.shape[1], np.nan),
        skill=ratios(theirs - ours, theirs, subjects),
        coverage={level: ratios(inside(ranks, share), one, subjects) for level, share in LEVELS.items()},
        diverged=1.0 - len(rows) / len(starts),
    )
