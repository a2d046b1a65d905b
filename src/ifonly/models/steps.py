"""Values are recorded in steps: a score in whole points, a setting in fives. A recorded value then stands for all that
is nearer to it than to its neighbours.

A density has no such steps. Held against recorded values as they are, intervals that are right hold too much: a score
that stays the same in two of three steps lies in every interval around it. So where values repeat exactly, the model is
asked how much of its density lies in the cell of a recorded value, and a random place in the cell stands for its rank
(randomised quantile residuals: Dunn and Smyth, Journal of Computational and Graphical Statistics 5, 1996). Where the
model is right these ranks are uniform.

Densities at recorded values would grow without limit, and the model that bets most on values that repeat would seem the
best. So what is maximised, and compared, are densities at random places of cells (as Uria, Murray and Larochelle do,
Neural Information Processing Systems 26, 2013), but of their middle half: noise narrower than a step stays in its cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ifonly.data.episode import FloatArray
from ifonly.models.base import TransitionModel

if TYPE_CHECKING:
    from ifonly.models.fit import EncodedTransitions

REPEATED = 0.1
"""A feature of which a larger share of the values that count repeat the one before exactly is recorded in steps."""

USUAL = 0.05
"""The quantile of changes other than none that is taken for a feature's step: the smallest that is usual."""

SPREAD = 0.25
"""How far from a recorded value, in steps, densities are taken at most."""


def recorded_steps(model: TransitionModel, rows: EncodedTransitions) -> FloatArray:
    """The step in which each feature is recorded [D], in original units; 0 where values hardly ever repeat.

    Only for models whose features each have a noise of their own.
    """
    decode = model.scaler.states.decode
    now, then = decode(rows.states.cpu()), decode(rows.next_states.cpu())
    same = (rows.states == rows.next_states).cpu().numpy()
    counted = np.ones(same.shape, dtype=np.bool_) if rows.measured is None else rows.measured.cpu().numpy()
    found = np.zeros(same.shape[1])
    for column in range(same.shape[1] if model.elementwise else 0):
        repeats, counts = same[counted[:, column], column], np.abs(then - now)[counted[:, column], column]
        if repeats.size and repeats.mean() > REPEATED and not repeats.all():
            found[column] = np.quantile(counts[~repeats], USUAL)
    return found


def cells(model: TransitionModel, rows: EncodedTransitions, steps: FloatArray) -> tuple[Tensor, Tensor]:
    """The ends [N, D] of the cells of recorded next values, in scaled coordinates: the value itself where there are no
    steps, infinite beyond what is possible."""
    columns, stepped = model.scaler.states, steps > 0
    values = columns.decode(rows.next_states.numpy())
    possible = np.array([feature.possible for feature in model.schema.dynamic])
    ends = []
    for side, beyond in ((-0.5, -np.inf), (0.5, np.inf)):
        moved = values + side * steps
        inside = np.clip(moved, possible[:, 0], possible[:, 1])
        encoded = torch.as_tensor(columns.encode(inside))
        encoded[torch.as_tensor((inside != moved) & stepped)] = beyond
        ends.append(torch.where(torch.as_tensor(stepped), encoded, rows.next_states))
    return ends[0], ends[1]


def spread_over_cells(model: TransitionModel, rows: EncodedTransitions) -> EncodedTransitions:
    """With next states at random places about the recorded values, where these are recorded in steps; the same places
    for the same rows, and within what the scale of a feature has room for."""
    steps, columns = recorded_steps(model, rows), model.scaler.states
    if not steps.any():
        return rows
    values, link = columns.decode(rows.next_states.cpu()), columns.link
    ends = (np.where(link.log, -link.log_offset, link.low), link.high)
    low, high = (values + side * SPREAD * steps for side in (-1, 1))
    low, high = np.maximum(low, (values + ends[0]) / 2), np.minimum(high, (values + ends[1]) / 2)
    places = low + np.random.default_rng(0).random(values.shape) * (high - low)
    spread = torch.as_tensor(columns.encode(places)).to(rows.next_states)
    stepped = torch.as_tensor(steps > 0, device=spread.device)
    return rows._replace(next_states=torch.where(stepped, spread, rows.next_states))


def outside(guesses: FloatArray, ends: tuple[FloatArray, FloatArray]) -> FloatArray:
    """How far guesses [..., D] lie outside of cells with these ends: 0 within them."""
    low, high = ends
    return np.maximum(low - guesses, 0.0) + np.maximum(guesses - high, 0.0)
