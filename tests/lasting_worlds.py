"""Cohorts of a small linear world in which something that nobody records lasts in every subject, or does not."""

import numpy as np
import numpy.typing as npt

from ifonly import ActionSpace, Cohort, Feature, Schema

SCHEMA = Schema(
    (Feature("pulled", "dynamic"), Feature("free", "dynamic"), Feature("age", "static")),
    ActionSpace.categories(["wait", "treat"]),
)
STEPS = 13
TREATED = np.array([-1.0, 0.5])
"""What treatment does to each feature."""


def lasting_cohort(
    subjects: int, *, pull: float, seed: int = 0, insight: float = 0.0
) -> tuple[Cohort, npt.NDArray[np.float64]]:
    """A cohort, and the hidden constant [subjects] that adds `pull` times itself to the first feature at every step.

    Every third subject has a second episode. Noise has unit variance. With `insight` subjects are treated by it, too.
    """
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal(subjects)
    owners = np.array([number for number in range(subjects) for _ in range(2 if number % 3 == 0 else 1)])
    states, actions = np.empty((len(owners), STEPS, 2)), np.empty((len(owners), STEPS), dtype=np.int64)
    current = rng.standard_normal((len(owners), 2))
    age = rng.normal(60, 10, size=subjects)[owners]
    for step in range(STEPS):
        states[:, step] = current
        actions[:, step] = rng.random(len(owners)) < 1 / (1 + np.exp(-insight * hidden[owners]))
        pushed = np.stack([pull * hidden[owners], 0.02 * (age - 60)], axis=1)
        noise = rng.standard_normal(current.shape)
        current = 0.5 * current + actions[:, step, None] * TREATED + pushed + noise
    count = len(owners)
    cohort = Cohort(
        SCHEMA,
        tuple(f"episode {number}" for number in range(count)),
        np.arange(count + 1) * STEPS,
        states.reshape(-1, 2),
        np.repeat(age, STEPS)[:, None],
        actions.reshape(-1),
        tuple(f"subject {owner:04d}" for owner in owners),
    )
    return cohort, hidden
