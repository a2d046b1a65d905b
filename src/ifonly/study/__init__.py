"""Studies: one file that says how a table becomes a report, and folders that know what was done already."""

from ifonly.study.plan import Study, load_study
from ifonly.study.run import Planned, StudyRun, StudyTick, plan, run_study

__all__ = ["Planned", "Study", "StudyRun", "StudyTick", "load_study", "plan", "run_study"]
