"""Cohorts of steep dynamics, which small Lipschitz constants cannot follow."""

import numpy as np

from ifonly import ActionSpace, Cohort, Feature, Schema

SCHEMA = Schema(
    (Feature("x", "dynamic"), Feature("y", "dynamic"), Feature("age", "static")), ActionSpace.categories(["off", "on"])
)


def wavy_cohort(*, subjects: int, seed: int, steps: int = 10) -> Cohort:
    """Two episodes per subject of steep nonlinear dynamics, which small Lipschitz constants cannot follow."""
    rng = np.random.default_rng(seed)
    count = 2 * subjects
    states = np.empty((count, steps, 2))
    states[:, 0] = rng.normal(size=(count, 2))
    actions = rng.integers(2, size=(count, steps))
    for t in range(steps - 1):
        states[:, t + 1] = 2 * np.sin(2 * states[:, t]) + actions[:, t, None] + 0.3 * rng.normal(size=(count, 2))
    return Cohort(
        schema=SCHEMA,
        ids=tuple(f"episode {i}" for i in range(count)),
        subjects=tuple(f"subject {i // 2}" for i in range(count)),
        offsets=np.arange(count + 1) * steps,
        states=states.reshape(-1, 2),
        context=np.repeat(rng.normal(size=count), steps).reshape(-1, 1),
        actions=actions.reshape(-1),
    )
