"""What a reviewer sees of one episode, as data: what happened, what could have happened, how sure we are."""

from ifonly.report.cases.build_case import case_of, course_support, observed_case
from ifonly.report.cases.case import Case, TriedCourse
from ifonly.report.cases.courses import Course, course_of
from ifonly.report.cases.opening import OpenedRun, cases_of_run, expected_behaviour, open_run

__all__ = [
    "Case",
    "Course",
    "OpenedRun",
    "TriedCourse",
    "case_of",
    "cases_of_run",
    "course_of",
    "course_support",
    "expected_behaviour",
    "observed_case",
    "open_run",
]
