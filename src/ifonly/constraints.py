"""Which action sequences may be considered: rules about steps, actions and doses, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ifonly.automaton import Automaton, at_most_within
from ifonly.data.episode import Episode
from ifonly.data.periods import Period
from ifonly.data.plain import as_list, check_keys, did_you_mean
from ifonly.data.schema import ActionSpace, Schema
from ifonly.errors import InputError
from ifonly.records import to_plain

BoolArray = npt.NDArray[np.bool_]
Limit = int | Mapping[str, int] | None
"""Levels on every axis, or on the axes named; None is no limit."""

BY_STEP = ("forbidden", "required", "choices")
"""The rules that are mappings from steps."""

ABOUT_CHANGES = ("pace", "stretches")
"""The rules about which steps are changed, whatever the actions are: None is no rule."""

EVERY_STEP = "every"
"""How a file spells the step None of `forbidden`."""


@dataclass(frozen=True)
class Pace:
    """At most so many changes within any period, such as 24 hours or 6 steps: a rule that looks back.

    >>> Pace(2, " 24  hours")
    Pace(changes=2, within='24 hours')
    """

    changes: int
    within: str

    def __post_init__(self) -> None:
        if _whole("pace", "changes", self.changes, "a whole number of changes from 1") == 0:
            raise InputError("constraints: pace: changes 0 would allow none at all; allow at least 1, or no change.")
        period = Period.read(self.within) if isinstance(self.within, str) else None
        if period is None:
            raise InputError(
                f"constraints: pace: within {self.within!r} must be a period, such as '24 hours' or '6 steps'."
            )
        object.__setattr__(self, "within", str(period))

    def steps(self, schema: Schema) -> int:
        """Within how many consecutive steps."""
        period = Period.read(self.within)
        assert period is not None, "checked when built"
        return period.steps(f"constraints: pace: within {self.within!r}", schema)


@dataclass(frozen=True)
class Constraints:
    """Rules that every considered sequence obeys; actions are given by number or by label, steps by number.

    The recorded sequence stays admissible - an action forbidden at every step may still be kept where it was recorded,
    and two recorded actions may follow each other - except where `required` pins another action.

    >>> rules = Constraints(locked=[0], forbidden={None: [4]}, required={3: 1}, max_jump={"fluids": 2})
    >>> rules.locking(2).locked, Constraints.from_dict(rules.to_dict()) == rules
    ((0, 2), True)
    """

    locked: Sequence[int] = ()
    """Steps whose recorded action stays."""
    forbidden: Mapping[int | None, Sequence[int | str]] = field(default_factory=dict)
    """Actions that may not be changed to, per step; None stands for every step."""
    required: Mapping[int, int | str] = field(default_factory=dict)
    """Steps at which one action is pinned."""
    choices: Mapping[int, Sequence[int | str]] = field(default_factory=dict)
    """For some steps the only actions that may be taken there; the recorded one always may."""
    max_shift: Limit = None
    """At most so many levels away from the dose recorded at that step, on every axis or on those named."""
    max_jump: Limit = None
    """At most so many levels away from the dose of the step before, on every axis or on those named."""
    last_action_fixed: bool = False
    """Whether the last step's action (a discharge) stays."""
    window: tuple[int, int] | None = None
    """The first and the last step at which anything may be changed; None: every step."""
    pace: Pace | None = None
    """At most so many changes within any period: `Pace(2, "24 hours")`."""
    stretches: int | None = None
    """Changes in at most so many stretches, each of consecutive steps: 1 is one phase that went otherwise."""

    def __post_init__(self) -> None:
        if isinstance(self.locked, str | Mapping) or not isinstance(self.locked, Iterable):
            raise InputError(f"constraints: locked must be a list of steps, not {self.locked!r}.")
        locked = {_checked_step("locked", step) for step in self.locked}
        by_step = {name: _checked_rules(name, getattr(self, name)) for name in BY_STEP}
        if both := sorted(locked & set(by_step["required"])):
            raise InputError(
                f"constraints: step {both[0]} is locked and has a required action; to keep what was recorded, lock it "
                "only; to pin another action, require it only."
            )
        if not isinstance(self.last_action_fixed, bool):
            raise InputError(f"constraints: last_action_fixed must be true or false, not {self.last_action_fixed!r}.")
        values = {
            "window": _checked_window(self.window),
            "pace": _checked_pace(self.pace),
            "stretches": _checked_stretches(self.stretches),
            "locked": tuple(sorted(locked)),
            "max_shift": _checked_limit("max_shift", self.max_shift),
            "max_jump": _checked_limit("max_jump", self.max_jump),
            **by_step,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def locking(self, step: int) -> Constraints:
        """One more rule: the action of `step` stays as recorded."""
        return replace(self, locked=(*self.locked, step))

    def forbidding(self, step: int | None, action: int | str) -> Constraints:
        """One more rule: `action` may not be changed to at `step` (None: at every step)."""
        return replace(self, forbidden={**self.forbidden, step: (*self.forbidden.get(step, ()), action)})

    def requiring(self, step: int, action: int | str) -> Constraints:
        """One more rule: `action` is taken at `step`; an action required there before gives way."""
        return replace(self, required={**self.required, step: action})

    def restricted_to(self, mask: npt.ArrayLike, episode: Episode) -> Constraints:
        """One more rule for every step: only the actions that a table of true and false [T, A] marks, as `choices`."""
        table, shape = np.array(mask), (len(episode), len(episode.schema.actions))
        where = f"episode {episode.id!r}: allowed"
        if table.shape != shape or table.dtype != np.bool_:
            found = f"{table.dtype} {list(table.shape)}"
            raise InputError(f"{where} must be a table of true and false [T, A] = {list(shape)}; found {found}.")
        if self.choices:
            raise InputError(f"{where}: choices are given already; put both into one table.")
        forbidden = np.flatnonzero(~table[np.arange(len(episode)), episode.actions])
        if forbidden.size:
            raise InputError(
                f"{where} forbids the action observed at step {int(forbidden[0])}; the recorded sequence must stay "
                "admissible (it is the answer with zero changes); to demand a change, require another action."
            )
        rows = {step: tuple(np.flatnonzero(row).tolist()) for step, row in enumerate(table) if not row.all()}
        return replace(self, choices=rows)

    def allowed(self, episode: Episode) -> BoolArray:
        """The actions that may be taken at each step [T, A]; rules that do not fit the episode are refused."""
        self._check_steps(episode)
        space, recorded = episode.schema.actions, episode.actions
        steps = np.arange(len(episode))
        mask = np.ones((len(episode), len(space)), dtype=bool)
        if self.max_shift is not None:
            mask &= _near(space, "max_shift", self.max_shift)[recorded]
        for step, names in self.forbidden.items():
            numbers = [_action_number(space, name, "forbidden") for name in names]
            if step is not None and recorded[step] in numbers:
                raise InputError(
                    f"constraints: forbidden[{step}] names the action recorded at step {step} of episode "
                    f"{episode.id!r}, the answer with zero changes; to demand a change, require another action."
                )
            mask[steps if step is None else [step], np.array(numbers, dtype=np.int64)[:, np.newaxis]] = False
        for step, names in self.choices.items():
            numbers = [_action_number(space, name, f"choices[{step}]") for name in names]
            mask[step] &= np.isin(np.arange(len(space)), numbers)
        mask[[*self.locked, *([len(episode) - 1] if self.last_action_fixed else [])]] = False
        if self.window is not None:
            first, last = self.window
            mask[(steps < first) | (steps > last)] = False
        mask[steps, recorded] = True
        for step, name in self.required.items():
            number = _action_number(space, name, f"required[{step}]")
            if not mask[step, number]:
                raise InputError(
                    f"constraints: action {number} ({space.labels[number]}) is required at step {step} of episode "
                    f"{episode.id!r}, but another rule (forbidden, max_shift, last_action_fixed, ...) excludes it; "
                    "drop one of the two."
                )
            mask[step] = False
            mask[step, number] = True
        return mask

    def automaton(self, episode: Episode, max_changes: int) -> Automaton:
        """All rules in the form that searches read; with at most `max_changes` changes, which are counted elsewhere."""
        rules = Automaton.of_mask(self.allowed(episode))
        changed = np.arange(len(episode.schema.actions)) != episode.actions[:, np.newaxis]
        looking_back = (
            self._jumps(episode),
            self._pace(changed, episode.schema, max_changes),
            self._stretches(changed, max_changes),
        )
        for rule in looking_back:
            rules = rules if rule is None else rules & rule
        return rules

    def _jumps(self, episode: Episode) -> Automaton | None:
        """Which action may follow which: a position is the action before, and whether it was the recorded one."""
        if self.max_jump is None:
            return None
        near = _near(episode.schema.actions, "max_jump", self.max_jump)
        if near.all():
            return None
        count = len(near)
        after = np.zeros((2 * count + 2, 2 * count + 1), dtype=np.int64)  # symbols: 1 + action, + A for recorded ones
        after[1, 1:] = np.arange(2, 2 * count + 2)
        follows = np.tile(near, (2, 2))
        follows[count:, count:] = True
        after[2:, 1:] = np.where(follows, after[1, 1:], 0)
        actions = np.arange(count)
        return Automaton(1 + actions + count * (actions == episode.actions[:, np.newaxis]), after)

    def _pace(self, changed: BoolArray, schema: Schema, max_changes: int) -> Automaton | None:
        if self.pace is None:
            return None
        steps = min(self.pace.steps(schema), len(changed))
        if self.pace.changes >= min(max_changes, steps):
            return None
        return at_most_within(changed, self.pace.changes, steps)

    def _stretches(self, changed: BoolArray, max_changes: int) -> Automaton | None:
        """A position is how many stretches have begun, and whether one goes on: 2 n in the n-th, 2 n + 1 after it."""
        if self.stretches is None or self.stretches >= min(max_changes, (len(changed) + 1) // 2):
            return None
        after = np.zeros((2 * self.stretches + 2, 3), dtype=np.int64)  # symbols: 1 a step that is kept, 2 a change
        position = np.arange(1, len(after))
        after[1:, 1], after[1:, 2] = position | 1, position + position % 2
        after[-1, 2] = 0  # one more would begin
        return Automaton(changed + np.int64(1), after)

    def _check_steps(self, episode: Episode) -> None:
        steps = {name: getattr(self, name) for name in ("locked", *BY_STEP)}
        for name, given in steps.items():
            for step in given:
                if step is not None and step >= len(episode):
                    raise InputError(
                        f"constraints: {name}: there is no step {step}; episode {episode.id!r} has {len(episode)} "
                        f"steps, numbered 0 to {len(episode) - 1}."
                    )

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON or YAML; `from_dict` gives equal constraints back."""
        content: dict[str, Any] = {one.name: to_plain(getattr(self, one.name)) for one in fields(self)}
        for name in BY_STEP:
            steps = content[name].items()
            content[name] = {EVERY_STEP if step is None else str(step): actions for step, actions in steps}
        return content

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Constraints:
        """Read what `to_dict` wrote, or what a person wrote in a file; what is left out is no rule."""
        check_keys("constraints", content, required=set(), optional={one.name for one in fields(cls)})
        values = dict(content)
        for name in BY_STEP:
            given = values.get(name, {})
            if not isinstance(given, Mapping):
                raise InputError(f"constraints: {name} must be a mapping from steps, not {given!r}.")
            steps = [_step_from_text(name, text) for text in given]
            if len(set(steps)) < len(steps):
                raise InputError(f"constraints: {name} names a step twice.")
            values[name] = dict(zip(steps, given.values(), strict=True))
        return cls(**values)


def _near(space: ActionSpace, name: str, limit: int | Mapping[str, int]) -> BoolArray:
    """Which actions [A, A] are within the limit of each other."""
    if not space.axes:
        raise InputError(
            f"constraints: {name} counts levels of dose axes, and these actions have none (they are categories or "
            "plain vectors); forbid actions instead."
        )
    names = [axis.name for axis in space.axes]
    if isinstance(limit, Mapping) and (unknown := [axis for axis in limit if axis not in names]):
        raise InputError(
            f"constraints: {name}: there is no axis {unknown[0]!r}; choose from {names}."
            f"{did_you_mean(unknown[0], names)}"
        )
    levels = np.array(space.levels)
    most = np.array(
        [limit.get(axis.name, len(axis.levels)) if isinstance(limit, Mapping) else limit for axis in space.axes]
    )
    near: BoolArray = (np.abs(levels[:, np.newaxis] - levels) <= most).all(-1)
    return near


def _action_number(space: ActionSpace, action: int | str, where: str) -> int:
    if isinstance(action, str) and action in space.labels:
        return space.labels.index(action)
    if isinstance(action, str) or action >= len(space):
        raise InputError(
            f"constraints: {where}: no action {action!r}; give a number from 0 to {len(space) - 1} or a label such as "
            f"{list(space.labels[:3])}.{did_you_mean(action, space.labels)}"
        )
    return action


def _checked_rules(name: str, given: Any) -> dict[int | None, Any]:
    """Rules of one of the kinds `BY_STEP`; every step first, then by number: equal rules are written equally."""
    if not isinstance(given, Mapping):
        raise InputError(f"constraints: {name} must be a mapping from steps, not {given!r}.")

    def place(step: Any) -> int:
        return -1 if step is None and name == "forbidden" else _checked_step(name, step)

    read = _checked_action if name == "required" else _checked_actions
    ordered = sorted(given, key=place)
    return {None if step is None else int(step): read(f"{name}[{step!r}]", given[step]) for step in ordered}


def _checked_actions(where: str, actions: Any) -> tuple[int | str, ...]:
    """Each once, in the order given."""
    return tuple(dict.fromkeys(_checked_action(where, action) for action in as_list("constraints", where, actions)))


def _checked_action(where: str, action: Any) -> int | str:
    return action if isinstance(action, str) else _whole(where, "action", action, "a number from 0 or a label")


def _checked_step(where: str, step: Any) -> int:
    return _whole(where, "step", step, "a whole number from 0")


def _checked_limit(name: str, limit: Any) -> int | dict[str, int] | None:
    wanted = "a whole number of levels from 0, or one per axis"
    if limit is None:
        return None
    if not isinstance(limit, Mapping):
        return _whole(name, "limit", limit, wanted)
    if not limit or not all(isinstance(axis, str) for axis in limit):
        raise InputError(f"constraints: {name} {limit!r}: name at least one axis, each by its name.")
    return {axis: _whole(f"{name}[{axis!r}]", "limit", levels, wanted) for axis, levels in limit.items()}


def _checked_window(window: Any) -> tuple[int, int] | None:
    if window is None:
        return None
    steps = as_list("constraints", "window", window)
    if len(steps) != 2:
        raise InputError(f"constraints: window must be two steps, the first and the last; found {len(steps)}.")
    first, last = (_checked_step("window", step) for step in steps)
    if first > last:
        raise InputError(f"constraints: window: step {first} comes after step {last}; give the first one first.")
    return first, last


def _checked_pace(pace: Any) -> Pace | None:
    if pace is None or isinstance(pace, Pace):
        return pace
    check_keys("constraints: pace", pace, required={"changes", "within"}, optional=set())
    return Pace(**pace)


def _checked_stretches(stretches: Any) -> int | None:
    if stretches is None:
        return None
    if _whole("stretches", "number", stretches, "a whole number of stretches from 1") == 0:
        raise InputError("constraints: stretches 0 would allow no change at all; allow at least 1, or no change.")
    return int(stretches)


def _whole(where: str, what: str, value: Any, wanted: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise InputError(f"constraints: {where}: {what} {value!r} must be {wanted}.")
    return int(value)


def _step_from_text(name: str, text: Any) -> int | None:
    """YAML leaves whole numbers as they are; JSON writes them as text."""
    if text == EVERY_STEP and name == "forbidden":
        return None
    if isinstance(text, str) and not text.isdecimal():
        raise InputError(f"constraints: {name}: step {text!r} must be a whole number from 0.")
    return int(text) if isinstance(text, str) else _checked_step(name, text)
