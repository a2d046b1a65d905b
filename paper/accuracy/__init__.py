"""How well a learned model answers counterfactual questions in a world whose truth is known."""

from paper.accuracy.recommendations import Recommendation, RecommendationReport, recommendation_quality, true_optima
from paper.accuracy.states import AccuracyReport, counterfactual_accuracy
from paper.accuracy.study import AccuracyStudy, StudyRow, StudySettings, accuracy_by_cohort_size

__all__ = [
    "AccuracyReport",
    "AccuracyStudy",
    "Recommendation",
    "RecommendationReport",
    "StudyRow",
    "StudySettings",
    "accuracy_by_cohort_size",
    "counterfactual_accuracy",
    "recommendation_quality",
    "true_optima",
]
