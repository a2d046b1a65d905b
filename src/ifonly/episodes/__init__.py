"""Episodes: what was recorded, and what it is made of."""

from ifonly.episodes.cohort import Cohort, Summary, Transitions
from ifonly.episodes.episode import Episode
from ifonly.episodes.scaling import Scaler
from ifonly.episodes.schema import ActionSpace, Axis, Feature, Schema

__all__ = ["ActionSpace", "Axis", "Cohort", "Episode", "Feature", "Scaler", "Schema", "Summary", "Transitions"]
