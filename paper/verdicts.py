"""The rule that turns signals into a verdict: fitted on known worlds, judged on worlds that it was not fitted to.

The rule is a logistic regression on the signals of `ifonly.result.verdict`. Its weights must not be negative, so that
no signal can speak for what it warns of, and every world counts the same. It is fitted on all worlds but one and judged
on that one, for each in turn; the same is done with the interval of the gain. The package's own rule is fitted on all
worlds, and judged on seeds that it was not fitted to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import yaml

from ifonly.data.episode import FloatArray, IntArray
from ifonly.errors import InputError
from ifonly.files import write_text_atomically
from ifonly.result.verdict import SIGNALS, estimate_of, signals_of
from paper.evidence_study import Answer, Cell

BoolArray = npt.NDArray[np.bool_]
TextArray = npt.NDArray[np.str_]

RIDGE = 0.02
"""Penalty on half the squared weight of a signal, in its deviations, against the mean loss of an answer."""
STEPS = 4000
"""Of the accelerated projected gradient: more change nothing in the third digit."""
SUPPORTED, BELIEVABLE = 0.9, 0.6
"""Probabilities at which a verdict changes."""
CLEAR = {"choice": 0.002, "earlier": 0.01}
"""Signs of something hidden that keep an answer from being supported: those of which a model's check warns, too. They
were not fitted: other signals are about the model's errors, and say nothing about what all records share."""
INTERVAL = (0.05, 0.95)
RULE_SEEDS = (0,)
"""Seeds of the cells that the package's rule is fitted to; cells of others are fresh to it."""
ENOUGH_HARMFUL = 10
"""Harmful answers that a world must have for a share of them to be told."""
WORLDS_WITH_HARM = 3
"""Worlds that must have so many for rules to be fitted."""
HEADER = """\
# How signals of evidence become a verdict (ifonly.result.verdict), as `python -m paper evidence --rule` writes it.
# All is of known worlds: offset, weights, usual, low and high are fitted to cells of seed 0; held and helped are how
# often this rule was right in cells of other seeds, which it was not fitted to (docs/evidence-study.md).
"""
"""Of the file of a rule."""


@dataclass(frozen=True, eq=False)
class Judged:
    """N answers with their S signals and the truth."""

    signals: FloatArray  # [N, S]
    helps: BoolArray  # [N]
    world: TextArray  # [N]
    variant: TextArray  # [N]
    seed: IntArray  # [N]
    surplus: FloatArray  # [N], the true gain less the debiased one, in units of its scale
    failed: BoolArray  # [N], whether the model failed its check
    contradicted: BoolArray  # [N], whether something keeps them from being supported, whatever a rule says

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> Judged:
        """The answers of all cells, as far as they were examined in full."""
        rows = [(cell.settings, one, signals_of(one.evidence)) for cell in cells for one in cell.answers]
        full = [(settings, one, found) for settings, one, found in rows if found is not None]
        return cls(
            np.array([[found[name] for name in SIGNALS] for _, _, found in full]),
            np.array([one.helps for _, one, _ in full]),
            np.array([settings.world for settings, _, _ in full]),
            np.array([settings.variant for settings, _, _ in full]),
            np.array([settings.seed for settings, _, _ in full], dtype=np.int64),
            np.array([_surplus(one) for _, one, _ in full]),
            np.array([bool(one.evidence.check and one.evidence.check.failed) for _, one, _ in full]),
            np.array([one.evidence.contradicted for _, one, _ in full]),
        )

    def take(self, rows: BoolArray) -> Judged:
        """Some of them."""
        return Judged(*(values[rows] for values in vars(self).values()))


def _surplus(answer: Answer) -> float:
    estimate = estimate_of(answer.evidence)
    assert estimate is not None, "it has signals"
    return (answer.true - estimate.gain) / estimate.scale


def fit_rule(judged: Judged) -> FloatArray:
    """Offset and weights [1 + S] of the logistic regression; weights are not negative."""
    centre, deviation = judged.signals.mean(0), np.maximum(judged.signals.std(0), 1e-9)
    inputs = np.column_stack([np.ones(len(judged.helps)), (judged.signals - centre) / deviation])
    shares = _world_shares(judged.world)
    penalty = np.r_[0.0, np.full(inputs.shape[1] - 1, RIDGE)]
    rate = 1 / (0.25 * float(np.linalg.eigvalsh((inputs * shares[:, None]).T @ inputs)[-1]) + RIDGE)
    found = ahead = np.zeros(inputs.shape[1])
    for step in range(STEPS):
        errors = 1 / (1 + np.exp(-inputs @ ahead)) - judged.helps
        moved = ahead - rate * (inputs.T @ (shares * errors) + penalty * ahead)
        moved[1:] = moved[1:].clip(min=0)
        found, ahead = moved, moved + step / (step + 3) * (moved - found)
    weights = found[1:] / deviation
    return np.asarray(np.r_[found[0] - weights @ centre, weights])


def _world_shares(world: TextArray) -> FloatArray:
    """What each answer counts [N]; their sum is 1, and that of every world is the same."""
    names, place, counts = np.unique(world, return_inverse=True, return_counts=True)
    return np.asarray(1 / (len(names) * counts[place]))


def probabilities(rule: FloatArray, signals: FloatArray) -> FloatArray:
    """How likely an answer is to help [N], by its signals [N, S]."""
    return np.asarray(1 / (1 + np.exp(-(rule[0] + signals @ rule[1:]))))


def left_out(judged: Judged) -> tuple[FloatArray, IntArray]:
    """By a rule that was fitted to other worlds: probabilities [N], and where the truth lies [N]: -1 below the
    interval, 1 above it, 0 within."""
    found, place = np.empty(len(judged.helps)), np.empty(len(judged.helps), dtype=np.int64)
    for name in np.unique(judged.world):
        own = judged.world == name
        others = judged.take(~own)
        found[own] = probabilities(fit_rule(others), judged.signals[own])
        low, high = np.quantile(others.surplus, INTERVAL)
        place[own] = np.greater(judged.surplus[own], high) - np.less(judged.surplus[own], low).astype(np.int64)
    return found, place


def enough_harm(world: npt.ArrayLike, helps: npt.ArrayLike) -> bool:
    """Whether rules mean anything: several worlds [N] have harm to learn from, whichever is left out."""
    _, counts = np.unique(np.asarray(world)[~np.asarray(helps, dtype=bool)], return_counts=True)
    return int((counts >= ENOUGH_HARMFUL).sum()) >= WORLDS_WITH_HARM


def final_rule(judged: Judged) -> dict[str, Any]:
    """The rule of all worlds, as `verdict.yaml` has it: fitted to `RULE_SEEDS`, its error rates those of other seeds.

    Raises `InputError` where the answers give none, or do not tell how often it is wrong.
    """
    own = np.isin(judged.seed, RULE_SEEDS)
    fitted, fresh = judged.take(own), judged.take(~own)
    if not enough_harm(fitted.world, fitted.helps):
        raise InputError(
            f"evidence: no rule can be fitted to these cells: of seed {RULE_SEEDS[0]}, which rules are fitted to, "
            f"fewer than {WORLDS_WITH_HARM} worlds have {ENOUGH_HARMFUL} harmful answers or more."
        )
    rule = fit_rule(fitted)
    low, high = np.quantile(fitted.surplus, INTERVAL).tolist()
    usual = np.median(fitted.signals[fitted.helps], axis=0)
    supported = (probabilities(rule, fresh.signals) >= SUPPORTED) & ~fresh.failed & ~fresh.contradicted
    if not supported.any():
        raise InputError(
            f"evidence: how often a rule of these cells is wrong is not known: it supports no answer of other seeds "
            f"than {RULE_SEEDS[0]}, of which there are {len(fresh.helps)}; measure cells of another seed."
        )
    return {
        "offset": _short(rule[0]),
        "weights": {name.value: _short(weight) for name, weight in zip(SIGNALS, rule[1:], strict=True)},
        "usual": {name.value: _short(value) for name, value in zip(SIGNALS, usual, strict=True)},
        "supported": SUPPORTED,
        "believable": BELIEVABLE,
        "clear": CLEAR,
        "low": _short(low),
        "high": _short(high),
        "held": _short(float(((fresh.surplus >= low) & (fresh.surplus <= high)).mean())),
        "helped": _short(float(fresh.helps[supported].mean())),
    }


def _short(value: float) -> float:
    return round(float(value), 3)


def write_rule(path: Path, judged: Judged) -> None:
    """The rule of all worlds as a file such as `verdict.yaml`."""
    write_text_atomically(path, HEADER + yaml.safe_dump(final_rule(judged), sort_keys=False))
