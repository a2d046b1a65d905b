"""How far an answer may be trusted: what refits say of it, what supports its changes, and what would undo them."""

from ifonly.trust.examination import Examination, examine
from ifonly.trust.refits import Agreement, StepAgreement, agreement
from ifonly.trust.sensitivity import FeatureSensitivity, Sensitivity, StepSensitivity, sensitivity
from ifonly.trust.supported import StepSupport, SupportReport, support_of
from ifonly.trust.trusted import Trust

__all__ = [
    "Agreement",
    "Examination",
    "FeatureSensitivity",
    "Sensitivity",
    "StepAgreement",
    "StepSensitivity",
    "StepSupport",
    "SupportReport",
    "Trust",
    "agreement",
    "examine",
    "sensitivity",
    "support_of",
]
