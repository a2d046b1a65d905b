"""Tables by radius: remainders are bounded on balls of the ellipsoidal norm and looked up by the norm of a state."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.bounds.taylor.norms import LARGE

RADII = (1e-6, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.5, 6.0, 12.0, 1000.0)
"""Radii of the balls on which remainders are bounded; the first is for the recorded path itself, the last for models
that hardly bend."""

CELLS_PER_UNIT = 20
"""Every radius but the first is a multiple of 1 / this, so that a norm finds its radius by a table of cells."""


def radii_on(device: torch.device) -> Tensor:
    """RADII [G], float64."""
    return torch.tensor(RADII, dtype=torch.float64, device=device)


@dataclass(frozen=True)
class RadiusIndex:
    """Finds the first radius that covers a norm; what only the last radius covers counts as out of range."""

    cell_index: Tensor  # [cells], the index of the first radius that covers a cell of norms; G for the last cell
    out_of_range: Tensor  # [], float32, a norm in the last cell

    @classmethod
    def on(cls, device: torch.device) -> RadiusIndex:
        """For norms on a device."""
        radii = radii_on(device)
        cells = torch.arange(round(RADII[-2] * CELLS_PER_UNIT) + 2, device=device)
        index = torch.bucketize(cells.to(radii) / CELLS_PER_UNIT, radii[:-1] + 1e-9)
        index[-1] = len(RADII)  # what only the last radius covers is not worth a longer table
        return cls(index, (radii[-2] + 0.5 / CELLS_PER_UNIT).float())

    def cells(self, norms: Tensor) -> Tensor:
        """The cells [...] of norms [...], rounded up."""
        # fmin, not minimum: NaN maps to the out-of-range cell.
        return torch.fmin(norms, self.out_of_range).mul_(CELLS_PER_UNIT).ceil_().long()

    def __call__(self, norms: Tensor) -> Tensor:
        """The index [...] of the first radius that covers each norm [...]; G where none does."""
        return self.cell_index[self.cells(norms)]

    def by_cell(self, table: Tensor) -> Tensor:
        """A table [..., G + 1] spread over the cells [..., cells], to be read with `cells`."""
        return table[..., self.cell_index]


def padded(bounds: Tensor) -> Tensor:
    """Bounds [..., G] with LARGE appended for norms beyond the last radius [..., G + 1]."""
    bounds = bounds.clamp(max=LARGE)
    return torch.cat((bounds, torch.full_like(bounds[..., :1], LARGE)), dim=-1)


def looked_up(table: Tensor, indices: Tensor) -> Tensor:
    """Entries [..., X, M] of tables [..., X, G] at indices [..., M]."""
    return table.gather(-1, indices.unsqueeze(-2).expand(*table.shape[:-1], indices.shape[-1]))
