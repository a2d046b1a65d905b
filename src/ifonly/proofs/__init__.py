"""Logs of searches, and a checker of them that shares nothing with the search: NumPy alone, and its own arithmetic."""

from ifonly.proofs.checker import Checked, check_proof
from ifonly.proofs.question import FORMAT, VERSION

__all__ = ["FORMAT", "VERSION", "Checked", "check_proof"]
