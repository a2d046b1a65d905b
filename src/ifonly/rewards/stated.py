"""Rewards as people write them in query files: `minimize: SOFA`, or a list of goals with ranges, steps and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ifonly.data.plain import as_number, check_keys, did_you_mean
from ifonly.errors import InputError
from ifonly.rewards import ActionCost, DoseCost, Goal, Linear, Reward, TimeInRange, Within, minus, reward_from_dict

REWARDS = ("reward", "minimize", "maximize", "weights", "goals")
"""The entries of a query file that say what counts as better: one of them."""
COSTS = ("costs", "dose_costs")
"""The entries that charge actions and doses, beside them."""
KINDS = (*REWARDS[:-1], "keep", "time_in_range", *COSTS)
"""What a goal of a list may be about: one of them."""
STEPS = ("weight", "over", "discount", "step_weights")
"""How much a goal of a list counts, and at which steps."""
RANGES = {"keep": ("between", "below", "above"), "time_in_range": ("between", "margin")}
"""What says more about a range."""


def refuse_misplaced(content: Mapping[str, Any]) -> None:
    """Refuse what only a goal of a list can say, where a query says it for itself."""
    about = [name for name in KINDS if name not in (*REWARDS, *COSTS)]
    misplaced = [
        name for name in (*about, *STEPS, *(end for ends in RANGES.values() for end in ends)) if name in content
    ]
    if misplaced:
        raise InputError(
            f"query: {misplaced[0]!r} belongs to a goal of a list; write `goals:`, and below it `- minimize: FEATURE` "
            f"with `over: end`, or whatever the goal is about."
        )


def reward_stated(content: Mapping[str, Any]) -> Reward:
    """What a query file says counts as better, without costs."""
    given = [name for name in REWARDS if content.get(name) is not None]
    if len(given) != 1:
        raise InputError(
            "query: say what counts as better, once: `minimize: FEATURE`, `maximize: FEATURE`, `weights:` of features, "
            "`goals:` with a list of them, or `reward:` with its kind and numbers."
        )
    return _goals(content["goals"]) if given[0] == "goals" else _single(given[0], content, "query")


def with_costs(reward: Reward, content: Mapping[str, Any]) -> Reward:
    """A reward and the costs that a query file names beside it."""
    for name in COSTS:
        if content.get(name) is not None:
            reward = reward + _single(name, content, "query")
    return reward


def _goals(listed: Any) -> Reward:
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise InputError("query: goals must be a list, such as `- minimize: SOFA` with `over: end` below it.")
    goals = [_goal(number, content) for number, content in enumerate(listed, start=1)]
    return goals[0] if len(goals) == 1 else sum(goals[1:], goals[0])


def _goal(number: int, content: Any) -> Reward:
    where = f"query: goal {number}"
    if not isinstance(content, Mapping):
        raise InputError(f"{where}: {content!r} must be a mapping, such as `minimize: SOFA`.")
    given = [name for name in KINDS if content.get(name) is not None]
    if len(given) != 1:
        others = [name for name in content if name not in (*KINDS, *STEPS, *sum(RANGES.values(), ()))]
        also = did_you_mean(others[0], KINDS) if others else ""
        raise InputError(f"{where}: say once what it is about: one of {', '.join(KINDS)}.{also}")
    check_keys(where, content, required=set(), optional={given[0], *STEPS, *RANGES.get(given[0], ())})
    try:
        reward = _single(given[0], content, where)
        steps = {name: content[name] for name in STEPS if content.get(name) is not None}
        return Goal(reward, **steps) if steps else reward
    except InputError as error:
        raise InputError(f"{where}: {str(error).removeprefix('goal: ').removeprefix(f'{where}: ')}") from None


def _single(name: str, content: Mapping[str, Any], where: str) -> Reward:
    value = content[name]
    if name == "reward":
        if not isinstance(value, Mapping):
            raise InputError(f"{where}: reward {value!r} must be a mapping with a kind; or use `minimize: FEATURE`.")
        return reward_from_dict(value)
    if name in ("weights", *COSTS):
        return _by_name(name, value, where)
    if not isinstance(value, str):
        raise InputError(f"{where}: {name} {value!r} must be the name of a feature.")
    if name in RANGES:
        low, high = _ends(content.get("between"), f"{where}: {name} {value}")
        more = {key: content[key] for key in RANGES[name][1:] if content.get(key) is not None}
        for side, end in (("below", low), ("above", high)):
            if side in more and end is None:
                raise InputError(f"{where}: {name} {value}: {side} counts from an end of `between` that is null.")
        return Within(value, low, high, **more) if name == "keep" else TimeInRange(value, low, high, **more)
    return minus(value) if name == "minimize" else Linear({value: 1.0})


def _by_name(name: str, value: Any, where: str) -> Reward:
    """Numbers by the names of features, actions or dose axes."""
    of = {"weights": "features", "costs": "actions, by number or label,", "dose_costs": "dose axes"}[name]
    if not isinstance(value, Mapping) or (name != "costs" and not all(isinstance(key, str) for key in value)):
        raise InputError(f"{where}: {name} {value!r} must be a mapping from {of} to numbers.")
    one = "weight" if name == "weights" else name
    numbers = {key: as_number(f"{where}: {one} of {key!r}", number) for key, number in value.items()}
    if name == "weights":
        return Linear(numbers)
    return ActionCost(numbers) if name == "costs" else DoseCost(numbers)


def _ends(between: Any, where: str) -> tuple[Any, Any]:
    if not isinstance(between, Sequence) or isinstance(between, str) or len(between) != 2:
        raise InputError(f"{where}: needs `between: [LOW, HIGH]`; one of them may be null.")
    return between[0], between[1]
