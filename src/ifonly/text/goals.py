"""Goals in words: what each asks for, at which steps it counts, and how much."""

from __future__ import annotations

from ifonly.rewards import ActionCost, DoseCost, Goal, Linear, Reward, TimeInRange, Total, Within
from ifonly.text.catalogue import Message

SAID = (Goal, Within, TimeInRange, DoseCost, ActionCost, Linear)
"""Rewards that there are words for."""


def goal_messages(reward: Reward) -> list[Message]:
    """A sentence for each goal; none for a reward whose name says it all."""
    parts = reward.parts if isinstance(reward, Total) else (reward,)
    says_it_all = isinstance(reward, Linear) and reward.show(0.0).feature is not None
    if says_it_all or not any(isinstance(part, SAID) for part in parts):
        return []
    return [_goal(part, len(parts) > 1) for part in parts]


def meaning_message(reward: Reward, steps: int) -> Message | None:
    """How the outcome comes about where it is a sum of one feature; None elsewhere."""
    shown = reward.show(0.0)
    if not isinstance(reward, Linear) or shown.feature is None:
        return None
    better = Message(f"list.{'higher' if shown.higher_is_better else 'lower'}")
    return Message("goal.summed", {"outcome": shown.label, "feature": shown.feature, "steps": steps, "better": better})


def _goal(part: Reward, has_others: bool) -> Message:
    if not isinstance(part, Goal):
        return Message("goal.every step", {"what": _what(part)})
    over = {"all": "all", "end": "end"}.get(part.over, "period")
    counts = [Message(f"goal.over.{over}", {"period": part.over})]
    if part.discount < 1:
        counts.append(Message("goal.discount", {"discount": f"{part.discount:g}"}))
    if part.step_weights is not None:
        counts.append(Message("goal.step weights"))
    if has_others and part.weight != 1:
        counts.append(Message("goal.weight", {"weight": f"{part.weight:g}"}))
    return Message("goal.some steps", {"what": _what(part.reward), "counts": counts})


def _what(reward: Reward) -> Message:
    """What a reward asks for."""
    if isinstance(reward, Within):
        penalties = [
            Message(f"goal.{side}", {"end": f"{end:g}", "penalty": f"{penalty:g}"})
            for side, end, penalty in (("below", reward.low, reward.below), ("above", reward.high, reward.above))
            if end is not None
        ]
        return Message("goal.within", {"feature": reward.feature, "penalties": penalties})
    if isinstance(reward, TimeInRange):
        label = reward.show(0.0).label
        return Message("goal.time in range", {"label": label, "margin": f"{reward.margin:g}"})
    if isinstance(reward, DoseCost):
        costs = [Message("goal.dose", {"axis": axis, "cost": f"{cost:g}"}) for axis, cost in reward.costs.items()]
        return Message("goal.dose costs", {"costs": costs})
    if isinstance(reward, ActionCost):
        costs = [
            Message("goal.action", {"action": str(key), "cost": f"{cost:g}"}) for key, cost in reward.costs.items()
        ]
        return Message("goal.action costs", {"costs": costs})
    if isinstance(reward, Linear) and reward.show(0.0).feature is not None:
        ((feature, weight),) = reward.weights.items()
        return Message("goal.large" if weight > 0 else "goal.small", {"feature": feature})
    if isinstance(reward, Linear):
        terms = [Message("goal.term", {"feature": name, "weight": f"{w:g}"}) for name, w in reward.weights.items()]
        return Message("goal.weighted", {"terms": terms})
    return Message("goal.other", {"kind": str(reward.to_dict()["kind"])})
