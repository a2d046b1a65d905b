"""The one answer (`Result`), its parts, and what speaks for it (`Evidence`)."""

from ifonly.result.evidence import (
    Agreement,
    Evidence,
    EvidenceWarning,
    Sensitivity,
    SupportReport,
    Thresholds,
    Verdict,
    WarningCode,
)
from ifonly.result.parts import Alternative, Budget, Certificate, Change, ModelReference, Stats, Status
from ifonly.result.result import Provenance, Result

__all__ = [
    "Agreement",
    "Alternative",
    "Budget",
    "Certificate",
    "Change",
    "Evidence",
    "EvidenceWarning",
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
