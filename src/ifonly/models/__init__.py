"""Causal models of transitions."""

from ifonly.models.base import TrainableModel, TransitionModel
from ifonly.models.location_scale import LocationScale

__all__ = ["LocationScale", "TrainableModel", "TransitionModel"]
