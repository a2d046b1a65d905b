"""Cohort runs: one query for many episodes, on all cores or a cluster, kept in a folder that can be resumed."""

from ifonly.runs.run import Run, load_run
from ifonly.runs.settings import RunSettings
from ifonly.runs.solving import solve_cohort

__all__ = ["Run", "RunSettings", "load_run", "solve_cohort"]
