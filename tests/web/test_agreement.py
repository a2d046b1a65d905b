"""Kappa against plain reckonings, and its interval against what resampling finds."""

import numpy as np
import pytest

from ifonly.web.agreement import Z, agreement_of, kappa_of
from ifonly.web.notes import VERDICTS, Judgement, Note


def plain_kappa(table: np.ndarray) -> float:
    shares = table / table.sum()
    chance = sum(shares[i, :].sum() * shares[:, i].sum() for i in range(len(shares)))
    return float((np.trace(shares) - chance) / (1 - chance))


def test_a_textbook_example() -> None:
    found = kappa_of(np.array([[20.0, 5.0], [10.0, 15.0]]))
    assert found is not None
    assert found[0] == pytest.approx(0.4)


def test_an_interval_by_hand() -> None:
    """For two verdicts, given as often by both: a = 0.8 agreed, chance 0.5, variance a (1 - a) / N / 0.25."""
    found = kappa_of(np.array([[40.0, 10.0], [10.0, 40.0]]))
    half = Z * np.sqrt(0.8 * 0.2 / 100) / 0.5
    assert found == pytest.approx((0.6, 0.6 - half, 0.6 + half))


@pytest.mark.parametrize("seed", range(3))
def test_the_interval_is_that_of_the_delta_method(seed: int) -> None:
    table = np.random.default_rng(seed).integers(1, 30, (3, 3)).astype(float)
    found = kappa_of(table)
    assert found is not None
    count, shares = table.sum(), (table / table.sum()).ravel()
    step = 1e-6
    slopes = np.array(
        [
            plain_kappa((shares + step * one).reshape(3, 3)) - plain_kappa((shares - step * one).reshape(3, 3))
            for one in np.eye(9)
        ]
    ) / (2 * step)
    # plain_kappa divides by the sum, so that these are slopes along the simplex.
    variance = slopes @ (np.diag(shares) - np.outer(shares, shares)) @ slopes / count
    kappa, low, high = found
    assert low is not None
    assert high is not None
    assert kappa == pytest.approx(plain_kappa(table))
    assert high - kappa == pytest.approx(Z * np.sqrt(variance), rel=1e-5)
    assert kappa - low == pytest.approx(high - kappa)


def test_extremes() -> None:
    assert kappa_of(np.zeros((3, 3))) is None
    assert kappa_of(np.diag([7.0, 0.0, 0.0])) is None, "of one verdict only, chance explains everything"
    never_else = np.diag([7.0, 2.0, 0.0]), np.array([[0.0, 5.0], [5.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 0.0]])
    for table, kappa in zip(never_else, (1, -1, 0), strict=True):
        found = kappa_of(table)
        assert found is not None
        assert found[0] == pytest.approx(kappa)
        assert found[1:] == (None, None), "a few that are alike give no interval"


def test_every_two_reviewers_over_the_cases_of_both() -> None:
    def said(*pairs: tuple[str, Judgement | None]) -> tuple[Note, ...]:
        return tuple(Note("e", verdict, reviewer=name) for name, verdict in pairs)

    reviews = {
        "a": said(("Ann", "plausible"), ("Bo", "plausible"), ("Cy", None)),
        "b": said(("Ann", "plausible"), ("Bo", "unsure")),
        "c": said(("Bo", "implausible"), ("Ann", "implausible"), ("Cy", "implausible")),
        "d": said(("Cy", "unsure")),
        "e": said(("Ann", None)),
    }
    found = agreement_of(reviews)
    assert (found.judged, found.twice, found.differ) == (4, 3, 1)
    assert [(one.first, one.second, one.cases, one.agreed) for one in found.pairs] == [
        ("Ann", "Bo", 3, 2),
        ("Ann", "Cy", 1, 1),
        ("Bo", "Cy", 1, 1),
    ]
    table = np.zeros((3, 3))
    for one, two in (("plausible", "plausible"), ("plausible", "unsure"), ("implausible", "implausible")):
        table[VERDICTS.index(one), VERDICTS.index(two)] += 1
    assert found.pairs[0].kappa == pytest.approx(plain_kappa(table))
    assert found.pairs[1].kappa is None
