"""The verdict on an answer, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ifonly.text.catalogue import Message
from ifonly.text.numbers import percent

if TYPE_CHECKING:
    from ifonly.result import Evidence

REASONS = 2
"""How many a sentence names, the heaviest first."""


def verdict_message(evidence: Evidence) -> Message | None:
    """The verdict in a sentence; None where nothing is known, or nothing is changed that could be judged."""
    verdict, found = evidence.verdict.value, evidence.judgement
    if verdict == "supported" and found is not None:
        return Message("judged.supported", {"helped": percent(found.helped, 0)})
    if verdict == "not examined" or not (evidence.changed_steps or verdict == "not believable"):
        return None
    return Message(f"judged.{verdict}", {"reasons": _reasons(evidence)})


def _reasons(evidence: Evidence) -> list[Message]:
    """Why an answer is not supported: what no rule is needed for first."""
    checked = {"fail": "model check", "not judged": "not judged"}
    codes = [checked[evidence.check.verdict]] if evidence.check and evidence.check.verdict in checked else []
    codes += [warning.code.value for warning in evidence.warnings if warning.beyond_the_rule]
    signals = [] if evidence.judgement is None else [signal.value for signal in evidence.judgement.reasons]
    for is_so, code, said in (
        (evidence.hidden_clearly, "hidden", "recorded"),
        (evidence.rarely_chosen, "support", "support"),
    ):
        if is_so:
            codes.append(code)
            signals = [signal for signal in signals if signal != said]
    codes += signals
    if not codes:  # nothing speaks against it, but no rule can judge it
        codes = ["together" if evidence.honest is not None and evidence.honest.together else "incomplete"]
    return [Message(f"judged.because.{code}") for code in codes[:REASONS]]
