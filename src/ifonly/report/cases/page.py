"""Cases as one HTML document that needs no other file and no network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ifonly.records import to_plain
from ifonly.report import pages
from ifonly.report.cases.case import Case

DIGITS = 6
"""Significant digits of numbers in the file: more than anybody reads, in half the space."""
EXACT = ("best_possible", "gap", "result")
"""What is kept as it is: claims, which rounded might say more than was proven, and results, which can be read again."""


def cases_html(cases: Sequence[Case], summary: Any = None) -> str:
    """A page for each case and, where there are several, a `summary` of them all; never two texts of one."""
    shown = None if summary is None else _short(to_plain(summary))
    return pages.render("report.html", summary=shown, cases=[_short(to_plain(case)) for case in cases])


def _short(content: Any) -> Any:
    """Numbers with as many digits as are of use."""
    if isinstance(content, Mapping):
        return {key: value if key in EXACT else _short(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_short(value) for value in content]
    if isinstance(content, float) and math.isfinite(content):
        return float(f"{content:.{DIGITS}g}")
    return content
