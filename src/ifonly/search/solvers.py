"""Solvers by name, with the settings that a query, a file or a command line gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ifonly.bounds.anchors import AnchorStrategy, FacilityLocation, MonteCarlo
from ifonly.data.episode import FloatArray
from ifonly.errors import InputError
from ifonly.search.astar import AnchorAStar
from ifonly.search.base import Solver
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import Beam, Greedy, RandomSearch, TopSingleChanges

SAMPLES = 2000
"""Random sequences whose states become anchors, as in the paper's experiments; also the random baseline's."""

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "branch-and-bound": ("alternatives", "within", "bound"),
    "anchor-astar": ("samples", "anchors", "strategy", "shared", "seed"),
    "exhaustive": (),
    "greedy": (),
    "beam": ("width",),
    "top": (),
    "random": ("samples", "seed"),
}
"""The solvers' names and the settings that each knows."""

STRATEGIES = ("lipschitz", "uniform", "facility")


def make_solver(content: Mapping[str, Any], *, pool: FloatArray | None = None) -> Solver:
    """The solver that `content` names, with its settings; what is left out has its default.

    `pool` [N, D] are the states among which facility location chooses its anchors.

    >>> make_solver({"name": "branch-and-bound", "alternatives": 3}).alternatives
    3
    """
    name, settings = content["name"], {key: value for key, value in content.items() if key != "name"}
    if name not in SETTINGS:
        raise InputError(f"solver {name!r} is unknown; choose from {', '.join(SETTINGS)}.")
    if unknown := sorted(set(settings) - set(SETTINGS[name])):
        known = ", ".join(SETTINGS[name]) or "none"
        raise InputError(f"solver {name}: unknown setting {unknown[0]!r}; it knows: {known}.")
    try:
        return _made(name, settings, pool)
    except TypeError as error:
        raise InputError(f"solver {name}: a setting is of the wrong kind ({error}).") from None


def _made(name: str, settings: dict[str, Any], pool: FloatArray | None) -> Solver:
    match name:
        case "anchor-astar":
            anchors = _anchors(settings, pool)
            return AnchorAStar(anchors=anchors, shared=settings.get("shared", False), seed=settings.get("seed", 0))
        case "exhaustive":
            return Exhaustive()
        case "greedy":
            return Greedy()
        case "beam":
            return Beam(**settings)
        case "top":
            return TopSingleChanges()
        case "random":
            return RandomSearch(samples=settings.get("samples", SAMPLES), seed=settings.get("seed", 0))
        case _:
            return BranchAndBound(**settings)


def _anchors(settings: Mapping[str, Any], pool: FloatArray | None) -> AnchorStrategy:
    strategy, size, samples = (settings.get(name) for name in ("strategy", "anchors", "samples"))
    if strategy is not None and strategy not in STRATEGIES:
        raise InputError(f"solver anchor-astar: strategy {strategy!r}; choose from {', '.join(STRATEGIES)}.")
    if size is not None and samples is not None:
        raise InputError("solver anchor-astar: samples and anchors exclude each other.")
    if strategy == "facility":
        if samples is not None:
            raise InputError("solver anchor-astar: facility location takes anchors, not samples.")
        if pool is None:
            raise InputError("solver anchor-astar: facility location needs a cohort whose states it chooses among.")
        return FacilityLocation(size=size or SAMPLES, pool=pool)
    weighting: Literal["uniform", "lipschitz"] = "uniform" if strategy == "uniform" else "lipschitz"
    if size is not None:
        return MonteCarlo(samples=None, size=size, weighting=weighting)
    return MonteCarlo(samples=samples or SAMPLES, weighting=weighting)
