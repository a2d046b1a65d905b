"""What is asked about episodes: what counts as better, and which actions may change to which."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ifonly.cli.results import read_json
from ifonly.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ifonly.episodes.episode import Episode
    from ifonly.episodes.schema import Schema
    from ifonly.rewards import Reward
    from ifonly.search.base import Limits

DEFAULT_FEATURE = "SOFA"
"""What is minimised unless something else is said: the paper's reward."""


@dataclass(frozen=True)
class Question:
    """What is asked about every episode."""

    reward: Reward
    max_changes: int
    locked: tuple[int, ...]
    """Steps whose action must stay."""
    last_action_fixed: bool
    limits: Limits
    device: str
    choices: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """For some steps the actions that may be taken there; the recorded one always may."""

    def allowed(self, episode: Episode) -> npt.NDArray[np.bool_]:
        """The actions allowed at each step [T, A]."""
        import numpy as np

        allowed = np.ones((len(episode), len(episode.schema.actions)), dtype=bool)
        for option, steps in (("--allowed", self.choices), ("--lock", dict.fromkeys(self.locked, ()))):
            for step, actions in steps.items():
                if step >= len(episode):
                    raise InputError(
                        f"{option}: there is no step {step}; episode {episode.id!r} has {len(episode)} steps, numbered "
                        f"0 to {len(episode) - 1}."
                    )
                allowed[step] = False
                allowed[step, [*actions, episode.actions[step]]] = True
        return allowed


@dataclass(frozen=True)
class RewardChoice:
    """What a command line says about what counts as better."""

    minimize: str | None = None
    maximize: str | None = None
    weights: Sequence[str] = ()
    """FEATURE=NUMBER each."""
    costs: Sequence[str] = ()
    """ACTION=NUMBER each."""

    def __post_init__(self) -> None:
        if (self.minimize is not None) + (self.maximize is not None) + bool(self.weights) > 1:
            raise typer.BadParameter("--minimize, --maximize and --weight exclude each other.")

    def build(self, schema: Schema) -> Reward:
        """The reward; names that the schema does not know are refused, with the choices."""
        from ifonly.rewards import ActionCost, Linear

        weights = self._weights(schema)
        for name in weights:
            schema.dynamic_index(name)
        if not self.costs:
            return Linear(weights)
        costs = _assignments(self.costs, "--cost", "ACTION")
        numbers = {name: action_number(schema, name, "--cost") for name in costs}
        if len(set(numbers.values())) < len(numbers):
            raise typer.BadParameter("--cost: an action is given twice, by its number and by its label.")
        return Linear(weights) + ActionCost({numbers[name]: cost for name, cost in costs.items()})

    def _weights(self, schema: Schema) -> dict[str, float]:
        if self.weights:
            return _assignments(self.weights, "--weight", "FEATURE")
        if self.maximize is not None:
            return {self.maximize: 1.0}
        names = [feature.name for feature in schema.dynamic]
        if self.minimize is None and DEFAULT_FEATURE not in names:
            raise typer.BadParameter(
                f"say what to improve: --minimize, --maximize or --weight one of {', '.join(names)}."
            )
        return {DEFAULT_FEATURE if self.minimize is None else self.minimize: -1.0}


def _assignments(texts: Sequence[str], option: str, name: str) -> dict[str, float]:
    """NAME=NUMBER, any number of times.

    >>> _assignments(["SOFA=-1", "a = b=2"], "--weight", "FEATURE")
    {'SOFA': -1.0, 'a = b': 2.0}
    """
    found: dict[str, float] = {}
    for text in texts:
        key, _, value = text.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not key.strip() or not math.isfinite(number):
            raise typer.BadParameter(f"{option} {text!r}: give {name}=NUMBER.")
        if key.strip() in found:
            raise typer.BadParameter(f"{option} {text!r}: {key.strip()!r} is given twice.")
        found[key.strip()] = number
    return found


def action_number(schema: Schema, name: str | int, where: str) -> int:
    """The action that `name`, a label or a number, stands for; a name that could mean two actions is refused."""
    actions = schema.actions
    by_label = actions.labels.index(name) if name in actions.labels else None
    by_number = int(name) if str(name).isdecimal() and int(name) < len(actions) else None
    meant = {number for number in (by_label, by_number) if number is not None}
    if len(meant) == 1:
        return meant.pop()
    if meant:
        raise InputError(f"{where}: {name!r} is the label of action {by_label} and the number of another one.")
    raise InputError(
        f"{where}: no action {name!r}; give a number from 0 to {len(actions) - 1} or a label such as "
        f"{list(actions.labels[:3])}."
    )


def read_choices(path: Path, schema: Schema) -> dict[int, tuple[int, ...]]:
    """The actions allowed at some steps, from a JSON file: {"3": [0, "fluids 80 mL/4 h"], "4": []}."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f'{path}: expected a mapping from steps to lists of actions, such as {{"3": [0, 1]}}.')
    found: dict[int, tuple[int, ...]] = {}
    for step, names in content.items():
        where = f"{path}, step {step!r}"
        if not step.isdecimal() or int(step) in found:
            raise InputError(f"{where}: steps are whole numbers from 0, each given once.")
        if not isinstance(names, list) or not all(type(name) in (int, str) for name in names):
            raise InputError(f"{where}: expected a list of actions, by number or label, such as [0, 1].")
        found[int(step)] = tuple(action_number(schema, name, where) for name in names)
    return found
