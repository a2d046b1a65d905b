"""Recorded courses that a behaviour model keeps, so that a model can be asked how well it explains them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from ifonly.data.cohort import Cohort
from ifonly.data.episode import Origin
from ifonly.data.scaling import Scaler
from ifonly.data.schema import Schema
from ifonly.errors import InputError

PREFIX = "recorded."
"""Begins the names of the columns in a file that holds others, too."""


@dataclass(frozen=True, eq=False)
class Recordings:
    """Whole episodes below each other, R steps of E episodes, in scaled coordinates; without ids, in random order.

    Each step but the last of an episode begins a transition: state, context, action, and the state of the next row.
    """

    states: Tensor  # [R, D], float64
    context: Tensor  # [R, C], float64
    actions: Tensor  # [R]
    measured: Tensor  # [R, D], whether an entry of the state was measured rather than carried forward or assumed
    offsets: Tensor  # [E + 1]: episode e has the rows offsets[e]:offsets[e+1]
    subjects: Tensor  # [E], numbers that say which episodes are of one person

    @classmethod
    def of(cls, cohort: Cohort, scaler: Scaler, *, most: int, seed: int) -> Recordings:
        """Episodes of the cohort, drawn at random until they have `most` transitions, or all of them."""
        order = np.random.default_rng(seed).permutation(len(cohort))
        enough = int(np.searchsorted(np.cumsum(cohort.lengths[order] - 1), most)) + 1
        kept = order[:enough]
        _, subjects = np.unique(np.array(cohort.subjects)[kept], return_inverse=True)
        rows = np.concatenate([np.arange(cohort.offsets[e], cohort.offsets[e + 1]) for e in kept])
        origins = cohort.origins
        measured = np.ones((len(rows), cohort.states.shape[1]), dtype=bool)
        return cls(
            states=torch.as_tensor(scaler.states.encode(cohort.states[rows])),
            context=torch.as_tensor(scaler.context.encode(cohort.context[rows])),
            actions=torch.as_tensor(cohort.actions[rows]),
            measured=torch.as_tensor(measured if origins is None else origins[rows] == Origin.MEASURED),
            offsets=torch.as_tensor(np.concatenate([[0], np.cumsum(cohort.lengths[kept])])),
            subjects=torch.as_tensor(subjects),
        )

    def __len__(self) -> int:
        """How many transitions there are, N."""
        return len(self.actions) - len(self.subjects)

    @property
    def begins(self) -> Tensor:
        """Which rows [R] begin a transition: all but the last of each episode."""
        rows = torch.ones(len(self.actions), dtype=torch.bool)
        rows[self.offsets[1:] - 1] = False
        return rows

    @property
    def episodes(self) -> Tensor:
        """The number of each transition's episode [N]."""
        return torch.repeat_interleave(torch.arange(len(self.subjects)), self.offsets.diff() - 1)

    def cohort(self, schema: Schema, scaler: Scaler) -> Cohort:
        """The same episodes in original units, each as a subject of its own; `scaler` is the one they were kept in."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # implausible values were told when the data were read
            return Cohort(
                schema=schema,
                ids=tuple(str(number) for number in range(len(self.subjects))),
                offsets=self.offsets.numpy(),
                states=scaler.states.decode(self.states.numpy()),
                context=scaler.context.decode(self.context.numpy()),
                actions=self.actions.numpy(),
                origins=np.where(self.measured.numpy(), Origin.MEASURED, Origin.CARRIED),
            )

    def columns(self) -> dict[str, Tensor]:
        """What a file holds of them, by name."""
        return {PREFIX + one.name: getattr(self, one.name).contiguous() for one in fields(self)}

    @classmethod
    def from_columns(cls, columns: Mapping[str, Tensor], sizes: tuple[int, int, int]) -> Recordings:
        """What `columns` gave; `sizes` are the numbers of features, context columns and actions."""
        found = cls(**{one.name: columns[PREFIX + one.name] for one in fields(cls)})
        rows, (states, context, actions) = len(found.actions), sizes
        shapes = [tuple(column.shape) for column in (found.states, found.context, found.measured)]
        lengths = found.offsets.diff()
        if (
            shapes != [(rows, states), (rows, context), (rows, states)]
            or len(found.offsets) != len(found.subjects) + 1
            or [int(found.offsets[0]), int(found.offsets[-1])] != [0, rows]
            or not (lengths > 0).all()
            or not ((found.actions >= 0) & (found.actions < actions)).all()
        ):
            raise InputError("recorded courses: columns that do not belong together")
        return found
