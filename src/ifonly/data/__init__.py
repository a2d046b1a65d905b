"""Episodes: what was recorded, what it is made of, and how it is kept on disk."""

from ifonly.data.cohort import Cohort, Transitions
from ifonly.data.episode import Episode
from ifonly.data.scaling import Scaler
from ifonly.data.schema import ActionSpace, Axis, Feature, Schema
from ifonly.data.spaces import schema_from_spaces
from ifonly.data.store import (
    load,
    load_cohort,
    load_metadata,
    load_schema,
    read_table,
    save_cohort,
    save_schema,
)
from ifonly.data.summary import CohortSummary

__all__ = [
    "ActionSpace",
    "Axis",
    "Cohort",
    "CohortSummary",
    "Episode",
    "Feature",
    "Scaler",
    "Schema",
    "Transitions",
    "load",
    "load_cohort",
    "load_metadata",
    "load_schema",
    "read_table",
    "save_cohort",
    "save_schema",
    "schema_from_spaces",
]
