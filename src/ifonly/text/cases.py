"""What a case says: the claim, the rules, the assumptions, the cautions, as messages. None says more than is known."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ifonly.constraints import ABOUT_CHANGES, Constraints, Limit
from ifonly.data.schema import Feature, Schema, unit_of_time
from ifonly.records import to_plain
from ifonly.text.catalogue import Message
from ifonly.text.results import objective_message

if TYPE_CHECKING:
    from ifonly.objective import Objective
    from ifonly.result import Change, Status

NOTHING = ""
"""Stands in a message where another message may be left out."""


@dataclass(frozen=True)
class AskedFacts:
    """What a claim must say of the question."""

    horizon: int
    max_changes: int
    has_rules: bool
    """Whether anything but the number of changes decides which sequences may be considered."""
    change_cost: float
    declared: bool
    """Whether a proof may rest on constants that somebody declared."""
    objective: Message | None
    """What counts of the outcomes of several refits, asked together; None: one model was asked."""


def claim_message(asked: AskedFacts, status: Status, gap: float, *, proven: bool, differs: bool) -> Message:
    """The certificate in one sentence, never stronger than it; `gap` is infinite where none is known."""
    which = allowed_message(asked, has_rules=asked.has_rules)
    objective = asked.objective
    parts = {
        "which": which,
        "judged": Message("case.judged.model")
        if objective is None
        else Message("case.judged.refits", {"objective": objective}),
        "relying": Message("case.declared") if asked.declared else NOTHING,
        "costs": Message("case.costs", {"cost": f"{asked.change_cost:g}"}) if asked.change_cost else NOTHING,
    }
    if proven:
        return Message("case.proven", {**parts, "than": NOTHING if differs else Message("case.than recorded")})
    stopped = Message(f"case.stopped.{status.value}")
    if math.isinf(gap):
        claim = Message("case.unknown gap", {"stopped": stopped, "which": which})
    else:
        claim = Message("case.known gap", {**parts, "stopped": stopped, "gap": not_below(gap)})
    return Message("case.not proven", {"claim": claim})


def no_sequence_message(asked: AskedFacts) -> Message:
    """What is said of a budget for which there is no sequence."""
    return Message("case.no sequence", {"which": allowed_message(asked, has_rules=True)})


def allowed_message(asked: AskedFacts, *, has_rules: bool) -> Message:
    """Which sequences are spoken of, such as "with at most 2 changes that keeps the rules"."""
    most = asked.max_changes
    which = Message("case.any number") if most >= asked.horizon else Message("case.at most", {"most": most})
    return Message("case.keeping rules", {"which": which}) if has_rules else which


def not_below(value: float) -> str:
    """A number of three digits, `value` or a little more.

    >>> not_below(0.12345), not_below(12.0), not_below(0.0)
    ('0.124', '12', '0')
    """
    if value <= 0:
        return "0"
    size = 10.0 ** (math.floor(math.log10(value)) - 2)
    for steps in range(math.floor(value / size), math.ceil(value / size) + 3):
        text = f"{steps * size:.4g}"
        if float(text) >= value:
            return text
    return repr(value)


def times_message(schema: Schema, steps: Sequence[int]) -> Message:
    """The times of some steps, such as "hours 0, 8 and 16 to 28"."""
    unit = unit_of_time(schema)

    def time(step: int) -> str:
        return f"{step * schema.step_length:g}"

    shown = [
        time(first) if first == last else Message("times.stretch", {"first": time(first), "last": time(last)})
        for first, last in _stretches(steps)
    ]
    if len(steps) == 1:
        return Message("times.one", {"unit": unit, "times": shown})
    return Message("times.more", {"units": unit if unit.endswith("s") else f"{unit}s", "times": shown})


def _stretches(steps: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of at least four steps in a row; the others one by one."""
    found: list[tuple[int, int]] = []
    for step in steps:
        if found and step == found[-1][1] + 1:
            found[-1] = (found[-1][0], step)
        else:
            found.append((step, step))
    return [
        one
        for first, last in found
        for one in ([(first, last)] if last - first > 2 else [(step, step) for step in range(first, last + 1)])
    ]


def rule_messages(
    given: Constraints, schema: Schema, *, support: bool = False, min_support: float | None = None
) -> list[Message]:
    """The rules of a question, a sentence each; `support`: changes must be supported where they are made."""
    found = [*_rules_about_steps(given, schema), *_rules_about_doses(given)]
    if given.choices:
        found.append(Message("rule.choices"))
    if support:
        share = None if min_support is None else f"{100 * min_support:.3g}"
        least = Message("rule.min support", {"percent": share, "deciders": schema.words.deciders})
        found.append(Message("rule.support") if share is None else least)
    return found


def _rules_about_steps(given: Constraints, schema: Schema) -> Iterator[Message]:
    def named(actions: Sequence[int | str]) -> str:
        return "; ".join(action if isinstance(action, str) else schema.actions.labels[action] for action in actions)

    if given.locked:
        yield Message("rule.locked", {"times": times_message(schema, given.locked)})
    if given.last_action_fixed:
        yield Message("rule.last action")
    if given.window is not None:
        first, last = given.window
        yield Message("rule.window", {"times": times_message(schema, range(first, last + 1))})
    for name in ABOUT_CHANGES:
        rule = to_plain(getattr(given, name))
        if rule is not None:  # its sentence names its entries, or itself where it has none
            yield Message(f"rule.{name}", rule if isinstance(rule, Mapping) else {name: rule})
    for step, actions in given.forbidden.items():
        if step is None:
            yield Message("rule.forbidden", {"actions": named(actions)})
        else:
            yield Message("rule.forbidden there", {"times": times_message(schema, [step]), "actions": named(actions)})
    for step, action in given.required.items():
        yield Message("rule.required", {"times": times_message(schema, [step]), "action": named([action])})


def _rules_about_doses(given: Constraints) -> Iterator[Message]:
    for limit, code in ((given.max_shift, "rule.max shift"), (given.max_jump, "rule.max jump")):
        for axis, levels in _limits(limit).items():
            yield Message(code, {"axis": axis or Message("rule.every dose"), "levels": levels})


def _limits(limit: Limit) -> Mapping[str, int]:
    """Levels by the name of an axis; an empty name stands for every axis."""
    if limit is None:
        return {}
    return limit if isinstance(limit, Mapping) else {"": limit}


def assumption_messages(schema: Schema, objective: Objective | None, refits: int) -> tuple[Message, ...]:
    """What every counterfactual course takes for granted; `objective` is None where one model is asked."""
    together: Message | str = NOTHING
    if objective is not None:
        code = "assumption.refits.mean" if objective.goal == "mean" else "assumption.refits.one"
        together = Message(code, {"refits": refits, "objective": objective_message(objective, refits, "refits")})
    kept = [feature.name for feature in schema.context if feature.kind == "contextual"]
    subject, deciders = {"subject": schema.words.subject}, {"deciders": schema.words.deciders}
    return (
        Message("assumption.model", {"refits": together, **subject}),
        Message("assumption.unrecorded"),
        *([Message("assumption.kept", {"features": kept})] if kept else []),
        Message("assumption.causes", subject),
        Message("assumption.hindsight"),
        Message("assumption.review", deciders),
    )


def range_messages(
    code: str, schema: Schema, left: Mapping[str, Sequence[int]], *, but: Mapping[str, Sequence[int]] | None = None
) -> list[Message]:
    """The features that leave their plausible ranges, and when; steps that `but` has, too, are left out."""
    features = {feature.name: feature for feature in schema.dynamic}
    found = []
    for name, steps in left.items():
        new = [step for step in steps if step not in (but or {}).get(name, ())]
        if new:
            values = {"feature": name, "left": _left_range(features[name]), "times": times_message(schema, new)}
            found.append(Message(code, values))
    return found


def _left_range(feature: Feature) -> Message:
    if feature.plausible is None:
        return Message("caution.not finite")
    low, high = feature.plausible
    unit = f" {feature.unit}" if feature.unit else ""
    return Message("caution.left range", {"low": f"{low:g}", "high": f"{high:g}", "unit": unit})


def change_cautions(schema: Schema, changes: Sequence[Change], horizon: int) -> list[Message]:
    """What to be careful with in changes of treatment: large ones, and those at the ends of the record."""
    levels = schema.actions.levels
    found = []
    for number, axis in enumerate(schema.actions.axes):
        far = [
            change.step
            for change in changes
            if abs(levels[change.counterfactual][number] - levels[change.observed][number]) * 2
            > max(2, len(axis.levels) - 1)
        ]
        if far:
            found.append(Message("caution.large jump", {"axis": axis.name, "times": times_message(schema, far)}))
    steps = [change.step for change in changes]
    if 0 in steps:
        found.append(Message("caution.first step"))
    if horizon - 1 in steps:
        found.append(Message("caution.last step", {"subject": schema.words.subject}))
    return found
