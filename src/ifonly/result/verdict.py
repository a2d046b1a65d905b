"""One verdict per answer: signals of its evidence, weighed by a rule that was fitted where the truth is known.

The rule, `verdict.yaml`, is a logistic regression made by `python -m paper evidence` on known worlds; its error rates
are those of other recordings of these worlds, which it was not fitted to (docs/evidence-study.md).
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from ifonly.models.standing import HiddenSigns
from ifonly.records import KnownNumber, from_plain, to_plain

if TYPE_CHECKING:
    from ifonly.result.evidence import Evidence

LEAST_PROBABILITY = 1e-4
"""Of a changed action, that counts as such: rarer ones cannot be told apart."""
LEAST_INFLUENCE, LARGEST_INFLUENCE = 0.02, 3.0
"""The same of influences that would undo a gain, in standard deviations."""
HALF = {"choice": 0.001, "earlier": 0.01}
"""Signs of something hidden at which half of the largest weight is reached: a tenth of what such signs are like where
something that matters is hidden, and well above what chance gives."""


class Signal(StrEnum):
    """What a verdict rests on; larger values speak for an answer."""

    CERTAINTY = "certainty"
    """The debiased gain over how far members and comparable records leave it open: tanh of a third of it."""
    INFLUENCE = "influence"
    """The logarithm of the unrecorded influence at one step that would undo the gain."""
    SUPPORT = "support"
    """The logarithm, to the base ten, of how likely the least likely change is."""
    RECORDED = "recorded"
    """0 where nothing speaks for something hidden, down to -1."""


SIGNALS = tuple(Signal)


@dataclass(frozen=True)
class Rule:
    """How signals become a verdict, and how often it is wrong."""

    offset: float
    weights: dict[str, float]
    usual: dict[str, float]
    """The signals of a usual answer that helps: what falls short of them is a reason."""
    supported: float
    """The probability from which on an answer is supported."""
    believable: float
    """Below this one it is not to be believed."""
    clear: dict[str, float]
    """Signs of something hidden (`HiddenSigns`) beyond which no answer is supported, however good its other signals."""
    low: float
    high: float
    """The interval of the true gain around the debiased one, in units of its scale, set for nine of ten answers."""
    held: float
    """The share of true gains that such intervals held in known worlds, on recordings that it was not made of."""
    helped: float
    """The share of supported answers that truly help there."""

    @classmethod
    def of(cls, content: Any) -> Rule:
        """From plain types."""
        return from_plain(cls, content, what="verdict.yaml")

    @property
    def fingerprint(self) -> str:
        """Another one for every other rule."""
        return hashlib.sha256(json.dumps(to_plain(self), sort_keys=True).encode()).hexdigest()[:16]

    def is_hidden_clearly(self, signs: HiddenSigns) -> bool:
        """Whether signs are surely so large that something which matters is not recorded."""
        found = ((getattr(signs, name), limit) for name, limit in self.clear.items())
        return any(size is not None and size > limit for size, limit in found)


@cache
def the_rule() -> Rule:
    """The package's own."""
    return Rule.of(yaml.safe_load(files("ifonly.result").joinpath("verdict.yaml").read_text(encoding="utf-8")))


@dataclass(frozen=True)
class HonestGain:
    """The winner's curse, where one half of the subjects chooses and the other half judges; means over both ways.

    Gains are over the observed outcome, of the best sequences of each half.
    """

    promised: KnownNumber
    """What those who chose them promise."""
    judged: KnownNumber
    """What models of the other half say of the same sequences."""
    together: bool = False
    """Whether all models of a half chose together, by the objective of the query: such answers have no verdict by the
    rule, which was fitted to those of one model."""


@dataclass(frozen=True)
class GainEstimate:
    """What an answer gains, once what it owes to having been chosen is taken off, with an interval."""

    gain: float
    low: float
    high: float
    scale: float
    """How far members and comparable records leave it open."""
    held: float
    """The share of true gains that such intervals held in known worlds, on recordings that it was not made of."""


@dataclass(frozen=True)
class Judgement:
    """What the rule says of an answer."""

    probability: float
    """That it truly helps, by the rule."""
    signals: dict[Signal, float]
    reasons: tuple[Signal, ...]
    """What speaks against it: signals that fall short of those of a usual answer that helps, the heaviest first."""
    helped: float
    """The share of supported answers that truly help in known worlds, on recordings that it was not made of."""


def estimate_of(evidence: Evidence) -> GainEstimate | None:
    """The debiased gain; None where it was not examined by members of both halves and by comparable records, and where
    all members chose together.

    What halves of the subjects promise beyond what the other half says is owed to having been chosen. It is an error of
    models of half as many subjects, and goes with the variance of estimates: half of it is taken off.
    """
    refits, honest, records = evidence.refits, evidence.honest, evidence.calibration
    if evidence.promised is None or refits is None or honest is None or records is None or records.deviation is None:
        return None
    if honest.together:
        return None
    spread = float(np.std(refits.improvements)) if np.isfinite(refits.improvements).all() else math.inf
    scale = math.hypot(spread, records.deviation)
    gain = evidence.promised - (honest.promised - honest.judged) / 2
    if not (math.isfinite(scale) and math.isfinite(gain)):
        return None
    rule = the_rule()
    return GainEstimate(gain, gain + rule.low * scale, gain + rule.high * scale, scale, rule.held)


def signals_of(evidence: Evidence) -> dict[Signal, float] | None:
    """The signals; None where a part that they rest on is missing."""
    estimate, support, influence, check = estimate_of(evidence), evidence.support, evidence.sensitivity, evidence.check
    if estimate is None or support is None or influence is None or check is None or not support.changed:
        return None
    signs = [(getattr(check.hidden, name), half) for name, half in HALF.items()]
    if all(size is None for size, _ in signs):  # an older check, or one of too few subjects: not clean, but unknown
        return None
    rarest = min((one.probability or 0.0) for one in support.changed)
    weakest = influence.weakest
    size = LARGEST_INFLUENCE if weakest is None or weakest.undone_by is None else weakest.undone_by
    return {
        Signal.CERTAINTY: math.tanh(_ratio(estimate.gain, estimate.scale) / 3),
        # Where nothing is gained, no influence at all is needed to undo it.
        Signal.INFLUENCE: math.log((min(size, LARGEST_INFLUENCE) if influence.helps else 0.0) + LEAST_INFLUENCE),
        Signal.SUPPORT: math.log10(max(rarest, LEAST_PROBABILITY)),
        Signal.RECORDED: -max(_share(size, half) for size, half in signs),
    }


def _ratio(gain: float, scale: float) -> float:
    """The gain in units of its scale; what is open by nothing is infinitely certain, unless it is nothing."""
    return gain / scale if scale > 0 else math.copysign(math.inf, gain) if gain else 0.0


def _share(size: float | None, half: float) -> float:
    """From 0 to 1, a half at `half`."""
    return 0.0 if size is None else size / (size + half)


def judge(evidence: Evidence) -> Judgement | None:
    """What the rule says; None where the evidence is not complete."""
    signals = signals_of(evidence)
    if signals is None:
        return None
    rule = the_rule()
    score = rule.offset + sum(rule.weights[name] * value for name, value in signals.items())
    short = {name: rule.weights[name] * (rule.usual[name] - value) for name, value in signals.items()}
    reasons = sorted((name for name in short if short[name] > 0), key=lambda name: -short[name])
    return Judgement(1 / (1 + math.exp(-score)), signals, tuple(reasons), rule.helped)
