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

    from ifonly.constraints import Constraints
    from ifonly.data.episode import Episode
    from ifonly.data.schema import Schema
    from ifonly.evidence import Examination
    from ifonly.models.base import TransitionModel
    from ifonly.problem import EnsembleProblem, Problem, Support
    from ifonly.query import Limits
    from ifonly.rewards import Reward

DEFAULT_FEATURE = "SOFA"
"""What is minimised unless something else is said: the paper's reward."""


@dataclass(frozen=True)
class Question:
    """What is asked about every episode."""

    reward: Reward
    max_changes: int | None
    constraints: Constraints | None
    limits: Limits
    device: str
    change_cost: float = 0.0
    choices: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """For some steps the actions that may be taken there; the recorded one always may."""
    objective: str | float | None = None
    """What counts of the outcomes under an ensemble's refits; None: one model is asked."""
    support: Support | None = None
    """What changes must have behind them."""
    examination: Examination | None = None
    """What to tell of every answer, beside what is known of the model; None: nothing at all."""
    allow_failed_model: bool = False

    def allowed(self, episode: Episode) -> npt.NDArray[np.bool_]:
        """The actions allowed at each step [T, A]."""
        import numpy as np

        allowed = np.ones((len(episode), len(episode.schema.actions)), dtype=bool)
        for step, actions in self.choices.items():
            if step >= len(episode):
                raise InputError(
                    f"--allowed: there is no step {step}; episode {episode.id!r} has {len(episode)} steps, numbered "
                    f"0 to {len(episode) - 1}."
                )
            allowed[step] = False
            allowed[step, [*actions, episode.actions[step]]] = True
        return allowed

    def check(self, episode: Episode) -> None:
        """Refuse rules that do not fit the episode, before anything is searched."""
        self.allowed(episode)
        if self.constraints is not None:
            self.constraints.allowed(episode)
            self.constraints.links(episode)

    def about(self, episode: Episode, model: TransitionModel) -> Problem | EnsembleProblem:
        """The question, put to one episode."""
        from ifonly.problem import put_question

        return put_question(
            episode,
            model,
            self.reward,
            self.max_changes,
            objective=self.objective,
            constraints=self.constraints,
            allowed=self.allowed(episode),
            change_cost=self.change_cost,
            support=self.support,
            allow_failed_model=self.allow_failed_model,
            device=self.device,
        )


@dataclass(frozen=True)
class RuleChoice:
    """What a command line says about which sequences may be considered."""

    lock: Sequence[int] = ()
    require: Sequence[str] = ()
    """STEP=ACTION each."""
    forbid: Sequence[str] = ()
    """ACTION or STEP:ACTION each."""
    max_shift: Sequence[str] = ()
    """N once, or AXIS=N each."""
    max_jump: Sequence[str] = ()
    """N once, or AXIS=N each."""
    fix_last_action: bool = False

    def build(self, schema: Schema) -> Constraints | None:
        """The constraints; None where nothing was said."""
        from ifonly.constraints import Constraints

        if self == RuleChoice():
            return None
        return Constraints(
            locked=self.lock,
            forbidden=self._forbidden(schema),
            required=self._required(schema),
            max_shift=_levels(self.max_shift, "--max-shift"),
            max_jump=_levels(self.max_jump, "--max-jump"),
            last_action_fixed=self.fix_last_action,
        )

    def _required(self, schema: Schema) -> dict[int, int]:
        found: dict[int, int] = {}
        for text in self.require:
            step, separator, name = (part.strip() for part in text.partition("="))
            if not separator or not step.isdecimal() or not name:
                raise typer.BadParameter(f"--require {text!r}: give STEP=ACTION.")
            if int(step) in found:
                raise typer.BadParameter(f"--require {text!r}: step {int(step)} is given twice.")
            found[int(step)] = action_number(schema, name, "--require")
        return found

    def _forbidden(self, schema: Schema) -> dict[int | None, list[int]]:
        found: dict[int | None, list[int]] = {}
        for text in self.forbid:
            step, separator, name = (part.strip() for part in text.partition(":"))
            # A label may hold a colon itself.
            if separator and step.isdecimal() and text.strip() not in schema.actions.labels:
                found.setdefault(int(step), []).append(action_number(schema, name, "--forbid"))
            else:
                found.setdefault(None, []).append(action_number(schema, text.strip(), "--forbid"))
        return found


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


def changes_limit(text: str) -> int | None:
    """At most how many changes: a whole number, or none for no limit.

    >>> changes_limit("3"), changes_limit("none")
    (3, None)
    """
    if text.strip().lower() == "none":
        return None
    if not text.strip().isdecimal():
        raise typer.BadParameter(f"--max-changes {text!r}: give a whole number from 0, or none for no limit.")
    return int(text)


def _levels(texts: Sequence[str], option: str) -> int | dict[str, int] | None:
    """One number for every axis, or AXIS=NUMBER any number of times.

    >>> _levels(["2"], "--max-jump"), _levels(["fluids=1", "drug=0"], "--max-jump"), _levels([], "--max-jump")
    (2, {'fluids': 1, 'drug': 0}, None)
    """
    found: dict[str, int] = {}
    for text in texts:
        axis, separator, number = (part.strip() for part in text.rpartition("="))
        if not number.isdecimal() or bool(separator) != bool(axis):
            raise typer.BadParameter(f"{option} {text!r}: give N, a whole number of levels, or AXIS=N.")
        if axis in found:
            raise typer.BadParameter(f"{option} {text!r}: {repr(axis) if axis else 'every axis'} is given twice.")
        found[axis] = int(number)
    if "" in found and len(found) > 1:
        raise typer.BadParameter(f"{option}: give one number for every axis, or AXIS=N for some of them, not both.")
    return found.get("", found or None)


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
