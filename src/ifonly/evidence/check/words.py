"""Numbers and lists as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from ifonly.data.schema import Feature

SHOWN_NAMES = 4


def percent(share: float) -> str:
    """A share in percent, with a digit after the point where it is small.

    >>> percent(0.123), percent(0.0123)
    ('12 %', '1.2 %')
    """
    return f"{100 * share:.0f} %" if abs(share) >= 0.0995 else f"{100 * share:.1f} %"


def listed(names: Sequence[str]) -> str:
    """The first few of them, and how many more there are.

    >>> listed(["a", "b"]), listed(["a", "b", "c", "d", "e", "f"])
    ('a, b', 'a, b, c, d and 2 more')
    """
    more = len(names) - SHOWN_NAMES
    between = "; " if any("," in name for name in names) else ", "
    return between.join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def amount(value: float, feature: Feature) -> str:
    """A number without its sign, with the feature's unit."""
    return f"{abs(value):.3g} {feature.unit}".strip()


def higher(value: float) -> str:
    """'higher' or 'lower'."""
    return "higher" if value > 0 else "lower"
