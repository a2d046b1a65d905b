"""Which bound leads a branch-and-bound search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ifonly.bounds.children import ChildBound
from ifonly.bounds.fallback import LipschitzChildBound, NoChildBound
from ifonly.errors import InputError
from ifonly.problem import Problem

BoundName = Literal["auto", "lipschitz", "none"]

SMALL = 200_000
"""Sequences that are enumerated faster than anchors are made."""


def make_child_bound(problems: Sequence[Problem], bound: BoundName = "auto") -> ChildBound:
    """The bound asked for; "auto" enumerates small problems, and those whose constants are not finite."""
    if bound == "none" or (bound == "auto" and all(problem.sequence_count() <= SMALL for problem in problems)):
        return NoChildBound(problems)
    try:
        return LipschitzChildBound(problems)
    except InputError:
        if bound == "lipschitz":
            raise
        return NoChildBound(problems)
