"""Solvers by name, with the settings that a query, a file or a command line gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ifonly.bounds.anchors import AnchorStrategy, FacilityLocation, MonteCarlo
from ifonly.data.episode import FloatArray
from ifonly.data.plain import did_you_mean
from ifonly.errors import InputError
from ifonly.search.astar import AnchorAStar
from ifonly.search.base import Solver
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import Beam, Greedy, RandomSearch, TopSingleChanges

SAMPLES = 2000
"""Random sequences whose states become anchors, as in the paper's experiments; also the random baseline's."""

SOLVERS: Mapping[str, tuple[type[Solver], tuple[str, ...]]] = {
    "branch-and-bound": (BranchAndBound, ("alternatives", "within", "apart", "bound")),
    "anchor-astar": (AnchorAStar, ("samples", "anchors", "strategy", "shared", "seed")),
    "exhaustive": (Exhaustive, ()),
    "greedy": (Greedy, ()),
    "beam": (Beam, ("width",)),
    "top": (TopSingleChanges, ()),
    "random": (RandomSearch, ("samples", "seed")),
}
"""The solvers by name, and the settings that each knows."""

STRATEGIES = ("lipschitz", "uniform", "facility")


def make_solver(content: Mapping[str, Any], *, pool: FloatArray | None = None) -> Solver:
    """The solver that `content` names, with its settings; what is left out has its default.

    `pool` [N, D] are the states among which facility location chooses its anchors.

    >>> make_solver({"name": "branch-and-bound", "alternatives": 3}).alternatives
    3
    """
    name, settings = content["name"], {key: value for key, value in content.items() if key != "name"}
    if name not in SOLVERS:
        raise InputError(f"solver {name!r} is unknown; choose from {', '.join(SOLVERS)}.{did_you_mean(name, SOLVERS)}")
    kind, known = SOLVERS[name]
    if unknown := sorted(set(settings) - set(known)):
        hint = did_you_mean(unknown[0], known)
        raise InputError(
            f"solver {name}: unknown setting {unknown[0]!r}; it knows: {', '.join(known) or 'none'}.{hint}"
        )
    try:
        if kind is AnchorAStar:
            given = {key: settings.pop(key, None) for key in ("strategy", "anchors", "samples")}
            settings["anchors"] = _anchors(**given, pool=pool)
        elif kind is RandomSearch:
            settings = {"samples": SAMPLES, **settings}
        return kind(**settings)
    except TypeError as error:
        raise InputError(f"solver {name}: a setting is of the wrong kind ({error}).") from None


def _anchors(
    *, strategy: str | None, anchors: int | None, samples: int | None, pool: FloatArray | None
) -> AnchorStrategy:
    if strategy is not None and strategy not in STRATEGIES:
        raise InputError(f"solver anchor-astar: strategy {strategy!r}; choose from {', '.join(STRATEGIES)}.")
    if anchors is not None and samples is not None:
        raise InputError("solver anchor-astar: samples and anchors exclude each other.")
    if strategy == "facility":
        if samples is not None:
            raise InputError("solver anchor-astar: facility location takes anchors, not samples.")
        if pool is None:
            raise InputError("solver anchor-astar: facility location needs a cohort whose states it chooses among.")
        return FacilityLocation(size=anchors or SAMPLES, pool=pool)
    weighting: Literal["uniform", "lipschitz"] = "uniform" if strategy == "uniform" else "lipschitz"
    if anchors is not None:
        return MonteCarlo(samples=None, size=anchors, weighting=weighting)
    return MonteCarlo(samples=samples or SAMPLES, weighting=weighting)
