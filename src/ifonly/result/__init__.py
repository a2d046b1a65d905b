"""The one answer (`Result`), its parts, and what speaks for it (`Evidence`)."""

from ifonly.result.agreement import Agreement
from ifonly.result.calibration import LocalCalibration
from ifonly.result.coupling import Coupling
from ifonly.result.evidence import (
    Evidence,
    EvidenceWarning,
    SupportReport,
    Thresholds,
    Verdict,
    WarningCode,
)
from ifonly.result.parts import Alternative, Budget, Certificate, Change, ModelReference, Stats, Status
from ifonly.result.result import Provenance, Result
from ifonly.result.sensitivity import Sensitivity

__all__ = [
    "Agreement",
    "Alternative",
    "Budget",
    "Certificate",
    "Change",
    "Coupling",
    "Evidence",
    "EvidenceWarning",
    "LocalCalibration",
    "ModelReference",
    "Provenance",
    "Result",
    "Sensitivity",
    "Stats",
    "Status",
    "SupportReport",
    "Thresholds",
    "Verdict",
    "WarningCode",
]
