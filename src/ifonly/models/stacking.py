"""Stacking: what each of several models should count, by the density of what none of them has seen."""

from __future__ import annotations

import numpy as np

from ifonly.data.episode import FloatArray
from ifonly.errors import InputError

LEAST = 0.1
"""The least weight, as a share of an equal one."""
ENOUGH = 1e-7
"""Weights are good enough when no others have a mean log density larger by more than this, in nats."""
ROUNDS = 5000


def stacking_weights(log_densities: FloatArray, *, least: float = LEAST) -> FloatArray:
    """The weights [K] of a mixture of K models with the largest sum over N rows of its log density.

    `log_densities` [N, K] are those of each model, of data that it has not seen. No weight is below `least` / K: a
    model of weight zero would be a silent member, and stacking, which looks at densities one step ahead, cannot tell
    that a model has nothing to say about courses under other actions. Among such weights these are the best: the
    problem is concave, and expectation maximisation ends when the largest possible gain is below `ENOUGH`.

    >>> logs = np.log([[0.9, 0.1], [0.2, 0.8], [0.6, 0.3]])
    >>> stacking_weights(logs).round(2).tolist()
    [0.75, 0.25]
    """
    found = np.asarray(log_densities, dtype=np.float64)
    if found.ndim != 2 or 0 in found.shape:
        raise InputError(f"stacking: densities [rows, models] are needed, not an array of shape {list(found.shape)}.")
    if not 0 <= least <= 1:
        raise InputError(f"stacking: least={least} must lie between 0 and 1.")
    found = np.where(np.isnan(found), -np.inf, found)  # a model that says nothing deserves nothing
    found = found[np.isfinite(found.max(axis=1))]
    count, floor = found.shape[1], least / found.shape[1]
    densities = np.exp(found - found.max(axis=1, keepdims=True))
    # With w = floor + (1 - least) v the mixture of weights w is a mixture of other densities with free weights v.
    densities = (1 - least) * densities + floor * densities.sum(axis=1, keepdims=True)
    free = np.full(count, 1 / count)
    for _ in range(ROUNDS if len(densities) else 0):
        gains = (densities / (densities @ free)[:, np.newaxis]).mean(axis=0)
        # The log density is concave in v and has these derivatives: no v gains more than their largest, less 1.
        if gains.max() - 1 < ENOUGH:
            break
        free = free * gains
    free = free / free.sum()
    return np.asarray(floor + (1 - least) * free)
