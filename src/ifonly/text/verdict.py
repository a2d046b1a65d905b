"""The verdict on an answer, and what is left of its promise, in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ifonly.text.catalogue import Message
from ifonly.text.numbers import percent

if TYPE_CHECKING:
    from ifonly.query import Query
    from ifonly.result import Evidence

REASONS = 2
"""How many a sentence names, the heaviest first."""


def verdict_message(evidence: Evidence) -> Message | None:
    """The verdict in a sentence; None where the evidence is not complete, so that there is no rule for it."""
    found = evidence.judgement
    if found is None:
        return None
    verdict = evidence.verdict.value
    if verdict == "supported":
        return Message("judged.supported", {"helped": percent(found.helped, 0)})
    return Message(f"judged.{verdict}", {"reasons": _reasons(evidence)})


def _reasons(evidence: Evidence) -> list[Message]:
    """Why an answer is not supported: what no rule is needed for first."""
    assert evidence.judgement is not None, "it was judged"
    checked = {"fail": "model check", "not judged": "not judged"}
    codes = [checked[evidence.check.verdict]] if evidence.check and evidence.check.verdict in checked else []
    codes += [warning.code.value for warning in evidence.warnings if warning.beyond_the_rule]
    signals = [signal.value for signal in evidence.judgement.reasons]
    if evidence.hidden_clearly:
        codes.append("hidden")
        signals = [signal for signal in signals if signal != "recorded"]
    codes += signals
    return [Message(f"judged.because.{code}") for code in codes[:REASONS]]


def gain_messages(evidence: Evidence, query: Query) -> tuple[Message, ...]:
    """The promise, and what is left of it once what it owes to having been chosen is taken off; or why not told."""
    found = evidence.estimate
    if found is None or evidence.promised is None:
        chosen_together = query.honest and query.objective is not None and bool(evidence.changed_steps)
        return (Message("judged.objective"),) if chosen_together else ()
    moved = moves(query)
    ends = {"low": moved(found.low), "high": moved(found.high)}
    label = query.reward.show(0.0).label
    values = {"label": label, "promised": moved(evidence.promised), "gain": moved(found.gain), **ends}
    anew = (Message("judged.anew"),) if evidence.judged_anew else ()
    return (Message("judged.gain", values), *anew)


def moves(query: Query) -> Callable[[float], Message]:
    """Turns improvements into words, in the outcome's own direction."""
    shown = query.reward.show(0.0)
    size = abs(query.reward.show(1.0).value - shown.value)

    def moved(improvement: float) -> Message:
        if not math.isfinite(improvement):
            return Message("refits.not finite")
        if improvement == 0:
            return Message("refits.unchanged")
        better = (improvement > 0) == shown.higher_is_better
        return Message(f"refits.{'higher' if better else 'lower'}", {"amount": f"{size * abs(improvement):.4g}"})

    return moved
