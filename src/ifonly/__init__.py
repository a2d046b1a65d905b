"""If only we had acted differently: exact counterfactual optima of recorded episodes, with proof.

Names are imported when they are first used, so that `import ifonly` and `ifonly --help` do not wait for torch.
"""

from typing import TYPE_CHECKING

from ifonly.version import __version__

if TYPE_CHECKING:
    from ifonly import errors, rewards, simulate
    from ifonly.bounds import FacilityLocation, MonteCarlo
    from ifonly.constraints import Constraints
    from ifonly.data import (
        ActionSpace,
        Axis,
        Cohort,
        Episode,
        Feature,
        Scaler,
        Schema,
    )
    from ifonly.data.store import load, load_schema, read_table, save_cohort, save_schema
    from ifonly.evidence import agreement, examine, sensitivity, support_of
    from ifonly.evidence.behaviour import BehaviourSettings, fit_behaviour, load_behaviour, save_behaviour
    from ifonly.evidence.check.check import check_model
    from ifonly.evidence.check.model_check import ModelCheck, stored_check
    from ifonly.evidence.recipes import fit_recipe
    from ifonly.models import (
        Additive,
        Ensemble,
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
    from ifonly.models.fit_ensemble import fit_ensemble
    from ifonly.problem import EnsembleProblem, Problem
    from ifonly.query import Limits, Query
    from ifonly.report.case_report import ReportSettings, write_report
    from ifonly.report.plots import plot_episode, plot_fit
    from ifonly.result import Evidence, Result, Status, Verdict
    from ifonly.rewards import minus
    from ifonly.runs import Run, RunSettings, load_run, solve_cohort
    from ifonly.search.astar import AnchorAStar
    from ifonly.search.batch import solve_batch
    from ifonly.search.branch_and_bound import BranchAndBound
    from ifonly.search.contributions import contributions
    from ifonly.search.exhaustive import Exhaustive
    from ifonly.search.heuristics import Beam, Greedy, RandomSearch, TopSingleChanges
    from ifonly.search.log import search_log
    from ifonly.search.session import Session
    from ifonly.search.solve import solve
    from ifonly.search.verify import verify
else:
    _HOMES = {
        "ifonly": ("errors", "rewards", "simulate"),
        "ifonly.bounds": ("FacilityLocation", "MonteCarlo"),
        "ifonly.constraints": ("Constraints",),
        "ifonly.data": ("ActionSpace", "Axis", "Cohort", "Episode", "Feature", "Scaler", "Schema"),
        "ifonly.data.store": ("load", "load_schema", "read_table", "save_cohort", "save_schema"),
        "ifonly.evidence.check.check": ("check_model",),
        "ifonly.evidence.check.model_check": ("ModelCheck", "stored_check"),
        "ifonly.evidence.recipes": ("fit_recipe",),
        "ifonly.models": (
            "Additive",
            "Ensemble",
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
        "ifonly.models.fit_ensemble": ("fit_ensemble",),
        "ifonly.problem": ("EnsembleProblem", "Problem"),
        "ifonly.report.case_report": ("ReportSettings", "write_report"),
        "ifonly.report.plots": ("plot_episode", "plot_fit"),
        "ifonly.rewards": ("minus",),
        "ifonly.runs": ("Run", "RunSettings", "load_run", "solve_cohort"),
        "ifonly.search.astar": ("AnchorAStar",),
        "ifonly.query": ("Limits", "Query"),
        "ifonly.search.batch": ("solve_batch",),
        "ifonly.search.heuristics": ("Beam", "Greedy", "RandomSearch", "TopSingleChanges"),
        "ifonly.search.branch_and_bound": ("BranchAndBound",),
        "ifonly.search.contributions": ("contributions",),
        "ifonly.search.exhaustive": ("Exhaustive",),
        "ifonly.search.log": ("search_log",),
        "ifonly.result": ("Evidence", "Result", "Status", "Verdict"),
        "ifonly.search.session": ("Session",),
        "ifonly.search.solve": ("solve",),
        "ifonly.search.verify": ("verify",),
        "ifonly.evidence.behaviour": ("BehaviourSettings", "fit_behaviour", "load_behaviour", "save_behaviour"),
        "ifonly.evidence": ("agreement", "examine", "sensitivity", "support_of"),
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
    "BehaviourSettings",
    "BranchAndBound",
    "Cohort",
    "Constraints",
    "Ensemble",
    "EnsembleProblem",
    "Episode",
    "Evidence",
    "Exhaustive",
    "FacilityLocation",
    "Feature",
    "FitSettings",
    "Greedy",
    "Limits",
    "LinearModel",
    "LocationScale",
    "ModelCheck",
    "MonotoneFlow",
    "MonteCarlo",
    "PostNonlinear",
    "Problem",
    "Query",
    "RandomSearch",
    "ReportSettings",
    "Result",
    "Run",
    "RunSettings",
    "Scaler",
    "Schema",
    "Session",
    "Status",
    "TopSingleChanges",
    "TransitionModel",
    "Verdict",
    "__version__",
    "agreement",
    "check_model",
    "contributions",
    "cross_validate",
    "errors",
    "examine",
    "fit",
    "fit_behaviour",
    "fit_ensemble",
    "fit_recipe",
    "load",
    "load_behaviour",
    "load_model",
    "load_run",
    "load_schema",
    "minus",
    "plot_episode",
    "plot_fit",
    "read_table",
    "rewards",
    "save_behaviour",
    "save_cohort",
    "save_model",
    "save_schema",
    "search_log",
    "sensitivity",
    "simulate",
    "solve",
    "solve_batch",
    "solve_cohort",
    "stored_check",
    "support_of",
    "verify",
    "write_report",
]
