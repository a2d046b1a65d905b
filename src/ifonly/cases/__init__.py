"""What a reviewer sees of one episode, as plain data: what happened, what could have happened, how sure we are."""

from ifonly.cases.answers import Answer
from ifonly.cases.case import Case, case_from_row, case_of, observed_case
from ifonly.cases.courses import Change, Course, course_of

__all__ = ["Answer", "Case", "Change", "Course", "case_from_row", "case_of", "course_of", "observed_case"]
