"""How far reviewers agree beyond chance: Cohen's kappa for every two of them, over the cases that both have judged."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ifonly.data.episode import FloatArray
from ifonly.web.notes import VERDICTS, Judgement, Note

Z = 1.959964
"""For 95 % of a normal distribution."""
NOTHING = 1e-12
"""A variance of shares that is zero but for rounding."""


@dataclass(frozen=True)
class PairAgreement:
    """Of two reviewers, over the cases that both have judged."""

    first: str
    second: str
    cases: int
    agreed: int
    kappa: float | None
    """1: always; 0: no more than by chance; None: both have given one and the same verdict only."""
    low: float | None
    """Between this and `high` lies kappa, with 95 % confidence, for many cases like these; None: they do not tell."""
    high: float | None


@dataclass(frozen=True)
class ReviewerAgreement:
    """How far reviewers agree."""

    judged: int
    """Cases with a verdict."""
    twice: int
    """Of these, cases with verdicts of two reviewers or more."""
    differ: int
    """Of these, cases of which not all say the same."""
    pairs: tuple[PairAgreement, ...]


def agreement_of(reviews: Mapping[str, Sequence[Note]]) -> ReviewerAgreement:
    """Over all episodes; notes without a verdict do not count."""
    verdicts = [verdicts_of(notes) for notes in reviews.values()]
    judged = [one for one in verdicts if one]
    twice = [one for one in judged if len(one) > 1]
    who = sorted({name for one in twice for name in one})
    pairs = [_pair(*names, twice) for names in itertools.combinations(who, 2)]
    return ReviewerAgreement(
        judged=len(judged),
        twice=len(twice),
        differ=sum(len(set(one.values())) > 1 for one in twice),
        pairs=tuple(pair for pair in pairs if pair.cases),
    )


def verdicts_of(notes: Iterable[Note]) -> dict[str, Judgement]:
    """The verdict of each reviewer of an episode who has given one."""
    return {note.reviewer: note.verdict for note in notes if note.verdict is not None}


def _pair(first: str, second: str, verdicts: Sequence[Mapping[str, Judgement]]) -> PairAgreement:
    table = np.zeros((len(VERDICTS), len(VERDICTS)))
    for one in verdicts:
        if first in one and second in one:
            table[VERDICTS.index(one[first]), VERDICTS.index(one[second])] += 1
    kappa = kappa_of(table)
    return PairAgreement(first, second, int(table.sum()), int(table.trace()), *(kappa or (None, None, None)))


def kappa_of(table: FloatArray) -> tuple[float, float | None, float | None] | None:
    """Cohen's kappa of counts [C, C] with its 95 % interval; None where chance alone explains everything.

    The interval is that of Fleiss, Cohen and Everitt (1969), for many cases; it is cut off at -1 and 1. Where it would
    have no width there is none: that two have always agreed, perhaps twice, does not say that they always will.
    """
    count = table.sum()
    if not count:
        return None
    shares = table / count
    rows, columns = shares.sum(axis=1), shares.sum(axis=0)
    agreed, by_chance = shares.trace(), float(rows @ columns)
    if by_chance >= 1:
        return None
    kappa = (agreed - by_chance) / (1 - by_chance)
    # By their equation 13: what agrees, what does not, and what is expected of kappa itself.
    diagonal = float((np.diag(shares) * (1 - (rows + columns) * (1 - kappa)) ** 2).sum())
    crossed = (columns[:, None] + rows[None, :]) ** 2  # row i meets column i's share, column j row j's
    off = float((shares * crossed).sum() - (np.diag(shares) * np.diag(crossed)).sum())
    variance = diagonal + (1 - kappa) ** 2 * off - (kappa - by_chance * (1 - kappa)) ** 2
    if variance <= NOTHING:
        return float(kappa), None, None
    half = Z * math.sqrt(variance / count) / (1 - by_chance)
    return float(kappa), max(-1.0, float(kappa) - half), min(1.0, float(kappa) + half)
