"""How far a search is, as people read it."""

from __future__ import annotations

import math
from typing import Any

from ifonly.problem import BaseProblem
from ifonly.progress import Tick


def shown_progress(problem: BaseProblem, tick: Tick, *, seconds: float) -> dict[str, Any]:
    """The best found, the best possible and the gap between them, in units of the outcome as shown.

    What is not known is None. The cost of changes, where there is one, counts in all three: how many changes the best
    will need is not known yet.
    """
    found, bound = tick.figures["incumbent"], tick.figures["bound"]
    return {
        "found": _shown(problem, found),
        "best_possible": _shown(problem, bound),
        "gap": max(0.0, bound - found) if math.isfinite(bound - found) else None,
        "nodes": tick.done,
        "seconds": seconds,
    }


def _shown(problem: BaseProblem, outcome: float) -> float | None:
    return problem.reward.show(outcome).value if math.isfinite(outcome) else None
