"""How far an answer may be believed: what refits say of it, what supports its changes, and what would undo them."""

from ifonly.evidence.calibration import calibration
from ifonly.evidence.coupling import coupling
from ifonly.evidence.examination import check_examination, examine, examine_all, unexamined
from ifonly.evidence.refits import agreement
from ifonly.evidence.sensitivity import sensitivity
from ifonly.evidence.support import support_of

__all__ = [
    "agreement",
    "calibration",
    "check_examination",
    "coupling",
    "examine",
    "examine_all",
    "sensitivity",
    "support_of",
    "unexamined",
]
