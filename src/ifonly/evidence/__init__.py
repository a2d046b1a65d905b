"""How far an answer may be trusted: what refits say of it, what supports its changes, and what would undo them."""

from ifonly.evidence.examination import Examination, examine
from ifonly.evidence.refits import Agreement, StepAgreement, agreement
from ifonly.evidence.sensitivity import FeatureSensitivity, Sensitivity, StepSensitivity, sensitivity
from ifonly.evidence.supported import StepSupport, SupportReport, support_of
from ifonly.evidence.trusted import Trust

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
