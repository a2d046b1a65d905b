"""Numbers as people read them: the same in tables, figures and sentences."""

from __future__ import annotations

from ifonly.text.catalogue import say

NOT_SHOWN = "-"
"""Stands for a number that is unknown, or rests on too few subjects."""


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
