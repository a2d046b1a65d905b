"""The counterfactual question: put to one model (`Problem`), to several at once (`EnsembleProblem`), or in batches."""

from ifonly.problem.base import BaseProblem, array_scale, checked_standing
from ifonly.problem.ensemble import EnsembleProblem, HasMembers, members_of, put_question
from ifonly.problem.objective import Objective
from ifonly.problem.problem import REPLAY_TOLERANCE, Problem
from ifonly.problem.support import Support

__all__ = [
    "REPLAY_TOLERANCE",
    "BaseProblem",
    "EnsembleProblem",
    "HasMembers",
    "Objective",
    "Problem",
    "Support",
    "array_scale",
    "checked_standing",
    "members_of",
    "put_question",
]
