"""Bounds: numbers that no continuation can exceed."""

from ifonly.bounds.anchors import Anchors, AnchorStrategy, FacilityLocation, MonteCarlo
from ifonly.bounds.base import UpperBound
from ifonly.bounds.lipschitz import AnchorBound, value_constants

__all__ = [
    "AnchorBound",
    "AnchorStrategy",
    "Anchors",
    "FacilityLocation",
    "MonteCarlo",
    "UpperBound",
    "value_constants",
]
