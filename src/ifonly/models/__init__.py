"""Causal models of transitions."""

from ifonly.models.additive import Additive
from ifonly.models.analytic import LinearModel, PartitionModel
from ifonly.models.base import TrainableModel, TransitionModel
from ifonly.models.checkpoint import load_model, register, save_model
from ifonly.models.ensemble import Ensemble
from ifonly.models.flow import FlowRanges, MonotoneFlow
from ifonly.models.location_scale import LocationScale
from ifonly.models.post_nonlinear import PostNonlinear, Spline

__all__ = [
    "Additive",
    "Ensemble",
    "FlowRanges",
    "LinearModel",
    "LocationScale",
    "MonotoneFlow",
    "PartitionModel",
    "PostNonlinear",
    "Spline",
    "TrainableModel",
    "TransitionModel",
    "load_model",
    "register",
    "save_model",
]
