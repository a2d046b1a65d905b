"""Shares and numbers as people and files read them."""

from __future__ import annotations

import math


def one_of(probability: float) -> str:
    """A probability as a share of situations.

    >>> one_of(0.0049), one_of(0.31), one_of(1e-7), one_of(0.97)
    ('about 1 of 200', 'about 1 of 3', 'fewer than 1 of 10,000', 'nearly all')
    """
    if probability < 1e-4:
        return "fewer than 1 of 10,000"
    if probability > 0.95:
        return "nearly all"
    if probability > 0.4:
        return f"about {round(10 * probability)} of 10"
    count = 1 / probability
    digits = max(0, math.floor(math.log10(count)) - 1)
    return f"about 1 of {int(round(count, -digits)):,}"


def rounded_down(value: float) -> str:
    """A positive number with two digits after the point, never above it.

    >>> rounded_down(0.4391), rounded_down(0.003)
    ('0.43', '0.00')
    """
    return f"{math.floor(value * 100) / 100:.2f}"


def rounded_up(value: float) -> str:
    """The same, never below it.

    >>> rounded_up(1.2001)
    '1.21'
    """
    return f"{math.ceil(value * 100) / 100:.2f}"


def finite(number: float) -> float | None:
    """A number that JSON knows; None for others.

    >>> finite(1.5), finite(math.inf)
    (1.5, None)
    """
    return number if math.isfinite(number) else None
