"""A query put to an episode: under one model (`Problem`), several at once (`EnsembleProblem`), or in batches."""

from ifonly.problem.base import BaseProblem, all_on, checked_standing
from ifonly.problem.batch import ProblemBatch, array_scale
from ifonly.problem.ensemble import (
    EnsembleProblem,
    HasMembers,
    build_problem,
    build_problems,
    member_weights,
    members_fingerprint,
    members_of,
)
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
    "all_on",
    "array_scale",
    "build_problem",
    "build_problems",
    "checked_standing",
    "member_weights",
    "members_fingerprint",
    "members_of",
    "support_for",
]
