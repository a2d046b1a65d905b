"""Numbers as people read them: the same in tables, figures and sentences."""

from __future__ import annotations

import math

from ifonly.text.catalogue import say

NOT_SHOWN = "-"
"""Stands for a number that is unknown, or rests on too few subjects."""

TELLING = 0.0005
"""Outcomes that differ by a smaller share of the larger are the same in a percentage to one decimal."""

MOST_DECIMALS = 9
"""Outcomes that need more are written with a power of ten."""


def outcomes(*values: float | None) -> tuple[str, ...]:
    """Outcomes that stand beside each other, to as many decimals as tell the others from the first.

    One decimal at usual sizes; two digits of the largest where all are below one, and of differences below a tenth.
    Scripts of pages (words.js) follow the same rule.

    >>> outcomes(59.21, 57.66, None), outcomes(59.21, 59.15), outcomes(0.0529, 0.0379), outcomes(3e-12, 2e-12)
    (('59.2', '57.7', 'not known'), ('59.210', '59.150'), ('0.053', '0.038'), ('3.0e-12', '2.0e-12'))
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    largest = max((abs(value) for value in finite), default=0.0)
    differences = [abs(value - finite[0]) for value in finite]
    small = [size for size in differences if 0 < size < 0.1 and size >= TELLING * largest]
    small += [largest] if 0 < largest < 1 else []
    decimals = 1 - math.floor(math.log10(min(small))) if small else 1
    if decimals > MOST_DECIMALS:
        digits = max(1, decimals + math.floor(math.log10(largest)))
        return tuple(say("picture.unknown") if value is None else f"{value:.{digits}e}" for value in values)
    return tuple(
        say("picture.unknown") if value is None else f"{round(value, decimals) + 0.0:.{decimals}f}"  # -0.0 is 0.0
        for value in values
    )


def percent(share: float | None, digits: int = 1, *, unknown: str = "unknown") -> str:
    """A share in percent.

    >>> percent(0.0523), percent(None)
    ('5.2 %', 'unknown')
    """
    return unknown if share is None else f"{100 * share:.{digits}f} %"


def counted(count: int, noun: str) -> str:
    """A count with its noun, one of those of sentences/summaries.yaml.

    >>> counted(1, "episode"), counted(1200, "episode")
    ('1 episode', '1,200 episodes')
    """
    return say(f"count.{noun}", number=f"{count:,}", count=count)


def number(value: float | None) -> str:
    """Three digits, more before the point.

    >>> number(1234.5), number(0.12345), number(None)
    ('1,234', '0.123', '-')
    """
    if value is None:
        return NOT_SHOWN
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def shortened(text: str, length: int) -> str:
    """The text, its end left out where it is longer than this.

    >>> shortened("vasopressors", 6)
    'vasop…'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


def shortened_middle(text: str, length: int) -> str:
    """The text, its middle left out where it is longer than this: ends of ids and units tell things apart.

    >>> shortened_middle("a very long name of an episode, ward 3", 20)
    'a very long…ward 3'
    """
    return text if len(text) <= length else f"{text[: length - 8].rstrip()}…{text[-7:].lstrip()}"
