"""The counterfactual question: put to one model (`Problem`) or to several at once (`Panel`), perhaps with `Support`."""

from ifonly.problem.objective import Objective
from ifonly.problem.panel import HasMembers, Panel, members_of, put_question
from ifonly.problem.problem import REPLAY_TOLERANCE, Problem
from ifonly.problem.question import Question, array_scale, checked_standing
from ifonly.problem.support import Support

__all__ = [
    "REPLAY_TOLERANCE",
    "HasMembers",
    "Objective",
    "Panel",
    "Problem",
    "Question",
    "Support",
    "array_scale",
    "checked_standing",
    "members_of",
    "put_question",
]
