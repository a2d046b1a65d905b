"""The counterfactual question: put to one model (`Problem`), to several at once (`EnsembleProblem`), or in batches."""

from ifonly.problem.base import BaseProblem, checked_standing
from ifonly.problem.batch import ProblemBatch, array_scale
from ifonly.problem.ensemble import EnsembleProblem, HasMembers, build_problem, members_fingerprint, members_of
from ifonly.problem.problem import REPLAY_TOLERANCE, Problem
from ifonly.problem.support import Support, SupportSource, support_for

__all__ = [
    "REPLAY_TOLERANCE",
    "BaseProblem",
    "EnsembleProblem",
    "HasMembers",
    "Problem",
    "ProblemBatch",
    "Support",
    "SupportSource",
    "array_scale",
    "build_problem",
    "checked_standing",
    "members_fingerprint",
    "members_of",
    "support_for",
]
