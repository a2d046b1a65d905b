"""Episodes: what was recorded, what it is made of, and how it is kept on disk."""

from ifonly.episodes.cohort import Cohort, Summary, Transitions
from ifonly.episodes.episode import Episode
from ifonly.episodes.scaling import Scaler
from ifonly.episodes.schema import ActionSpace, Axis, Feature, Schema
from ifonly.episodes.store import (
    load,
    load_cohort,
    load_metadata,
    load_schema,
    read_table,
    save_cohort,
    save_schema,
)

__all__ = [
    "ActionSpace",
    "Axis",
    "Cohort",
    "Episode",
    "Feature",
    "Scaler",
    "Schema",
    "Summary",
    "Transitions",
    "load",
    "load_cohort",
    "load_metadata",
    "load_schema",
    "read_table",
    "save_cohort",
    "save_schema",
]
