"""If only we had acted differently: exact counterfactual optima of recorded episodes, with proof.

Names are imported when they are first used, so that `import ifonly` and `ifonly --help` do not wait for torch.
"""

from typing import TYPE_CHECKING

from ifonly.version import __version__

if TYPE_CHECKING:
    from ifonly import accuracy, errors, rewards, simulate
    from ifonly.bounds import FacilityLocation, MonteCarlo
    from ifonly.constraints import Constraints
    from ifonly.episodes import (
        ActionSpace,
        Axis,
        Cohort,
        Episode,
        Feature,
        Scaler,
        Schema,
    )
    from ifonly.episodes.store import load, load_schema, read_table, save_cohort, save_schema
    from ifonly.models import (
        Additive,
        LinearModel,
        LocationScale,
        MonotoneFlow,
        PostNonlinear,
        TransitionModel,
        load_model,
        save_model,
    )
    from ifonly.models.crossval import cross_validate
    from ifonly.models.fit import FitSettings, fit
    from ifonly.problem import Problem
    from ifonly.report.plots import plot_episode, plot_fit
    from ifonly.rewards import minus
    from ifonly.runs import Run, RunSettings, load_run, solve_cohort
    from ifonly.search.astar import AnchorAStar
    from ifonly.search.base import Limits
    from ifonly.search.baselines import Beam, Greedy, RandomSearch, TopSingleChanges
    from ifonly.search.batch import solve_batch
    from ifonly.search.branch import BranchAndBound
    from ifonly.search.contributions import contributions
    from ifonly.search.exhaustive import Exhaustive
    from ifonly.search.log import search_log
    from ifonly.search.result import Result, Status
    from ifonly.search.session import Session
    from ifonly.search.solve import solve
    from ifonly.search.verify import verify
else:
    _HOMES = {
        "ifonly": ("accuracy", "errors", "rewards", "simulate"),
        "ifonly.bounds": ("FacilityLocation", "MonteCarlo"),
        "ifonly.constraints": ("Constraints",),
        "ifonly.episodes": ("ActionSpace", "Axis", "Cohort", "Episode", "Feature", "Scaler", "Schema"),
        "ifonly.episodes.store": ("load", "load_schema", "read_table", "save_cohort", "save_schema"),
        "ifonly.models": (
            "Additive",
            "LinearModel",
            "LocationScale",
            "MonotoneFlow",
            "PostNonlinear",
            "TransitionModel",
            "load_model",
            "save_model",
        ),
        "ifonly.models.crossval": ("cross_validate",),
        "ifonly.models.fit": ("FitSettings", "fit"),
        "ifonly.problem": ("Problem",),
        "ifonly.report.plots": ("plot_episode", "plot_fit"),
        "ifonly.rewards": ("minus",),
        "ifonly.runs": ("Run", "RunSettings", "load_run", "solve_cohort"),
        "ifonly.search.astar": ("AnchorAStar",),
        "ifonly.search.base": ("Limits",),
        "ifonly.search.batch": ("solve_batch",),
        "ifonly.search.baselines": ("Beam", "Greedy", "RandomSearch", "TopSingleChanges"),
        "ifonly.search.branch": ("BranchAndBound",),
        "ifonly.search.contributions": ("contributions",),
        "ifonly.search.exhaustive": ("Exhaustive",),
        "ifonly.search.log": ("search_log",),
        "ifonly.search.result": ("Result", "Status"),
        "ifonly.search.session": ("Session",),
        "ifonly.search.solve": ("solve",),
        "ifonly.search.verify": ("verify",),
    }

    def __getattr__(name):
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names:
                value = import_module(f"ifonly.{name}") if home == "ifonly" else getattr(import_module(home), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module 'ifonly' has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "ActionSpace",
    "Additive",
    "AnchorAStar",
    "Axis",
    "Beam",
    "BranchAndBound",
    "Cohort",
    "Constraints",
    "Episode",
    "Exhaustive",
    "FacilityLocation",
    "Feature",
    "FitSettings",
    "Greedy",
    "Limits",
    "LinearModel",
    "LocationScale",
    "MonotoneFlow",
    "MonteCarlo",
    "PostNonlinear",
    "Problem",
    "RandomSearch",
    "Result",
    "Run",
    "RunSettings",
    "Scaler",
    "Schema",
    "Session",
    "Status",
    "TopSingleChanges",
    "TransitionModel",
    "__version__",
    "accuracy",
    "contributions",
    "cross_validate",
    "errors",
    "fit",
    "load",
    "load_model",
    "load_run",
    "load_schema",
    "minus",
    "plot_episode",
    "plot_fit",
    "read_table",
    "rewards",
    "save_cohort",
    "save_model",
    "save_schema",
    "search_log",
    "simulate",
    "solve",
    "solve_batch",
    "solve_cohort",
    "verify",
]
