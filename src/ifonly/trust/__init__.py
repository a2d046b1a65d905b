"""How far an answer may be trusted: what supports its changes, and what would undo them."""

from ifonly.trust.sensitivity import FeatureSensitivity, Sensitivity, StepSensitivity, sensitivity
from ifonly.trust.supported import StepSupport, SupportReport, support_of

__all__ = [
    "FeatureSensitivity",
    "Sensitivity",
    "StepSensitivity",
    "StepSupport",
    "SupportReport",
    "sensitivity",
    "support_of",
]
