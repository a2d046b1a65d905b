"""If only we had acted differently: exact counterfactual optima of recorded episodes, with proof."""

from ifonly.episodes import ActionSpace, Axis, Cohort, Episode, Feature, Scaler, Schema
from ifonly.models import LocationScale, TransitionModel
from ifonly.problem import Problem
from ifonly.rewards import minus
from ifonly.version import __version__

__all__ = [
    "ActionSpace",
    "Axis",
    "Cohort",
    "Episode",
    "Feature",
    "LocationScale",
    "Problem",
    "Scaler",
    "Schema",
    "TransitionModel",
    "__version__",
    "minus",
]
