"""Random rules about sequences, of every kind that there is."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import numpy as np

from ifonly.constraints import ABOUT_CHANGES, Constraints
from ifonly.data.episode import Episode


def random_constraints(episode: Episode, rng: np.random.Generator, *, share: float = 0.5) -> Constraints:
    """Each kind of rule with probability `share`; together they may contradict each other.

    Rules about doses are drawn only where the actions have axes.
    """
    horizon, count, axes = len(episode), len(episode.schema.actions), episode.schema.actions.axes
    steps, own = [int(step) for step in rng.permutation(horizon)], rng.spawn(1)[0]

    def drawn() -> bool:
        return bool(rng.random() < share)

    def limit() -> int | dict[str, int] | None:
        if not axes or not drawn():
            return None
        axis = axes[int(rng.integers(len(axes)))]
        most = max(1, len(axis.levels) - 2)  # the largest that excludes anything
        return {axis.name: int(rng.integers(most + 1))} if drawn() else int(rng.integers(1, most + 1))

    forbidden: dict[int | None, list[int]] = {}
    for step in (None, steps[0]):
        choices = [a for a in range(count) if step is None or a != episode.actions[step]]
        if choices and drawn():
            forbidden[step] = [int(rng.choice(choices))]
    required = {step: int(rng.integers(count)) for step in steps[1:2] if drawn()}
    required |= {step: int(rng.integers(count)) for step in steps[2:3] if drawn() and drawn()}
    return Constraints(
        locked=[step for step in steps[3:4] if drawn()],
        forbidden=forbidden,
        required=required,
        max_shift=limit(),
        max_jump=limit(),
        last_action_fixed=drawn() and drawn(),
        window=_window(rng, horizon) if drawn() and drawn() else None,
        **{name: _about_changes(name, own, horizon) for name in ABOUT_CHANGES if own.random() < share},
    )


def _window(rng: np.random.Generator, horizon: int) -> tuple[int, int]:
    first, last = sorted(int(step) for step in rng.integers(horizon, size=2))
    return first, last


def _about_changes(name: str, rng: np.random.Generator, horizon: int) -> Any:
    """A rule of the kind that `Constraints` has under that name, made of what its type says, so that nothing need be
    told here of any single one."""
    kind, _ = get_args(get_type_hints(Constraints)[name])  # or None
    return _drawn(kind, rng, horizon)


def _drawn(kind: type, rng: np.random.Generator, horizon: int) -> Any:
    """One or two of something, a period of steps, or what is made of these."""
    if kind is int:
        return int(rng.integers(1, 3))
    if kind is str:
        return f"{int(rng.integers(2, horizon + 1))} steps"
    return kind(*(_drawn(part, rng, horizon) for part in get_type_hints(kind).values()))
