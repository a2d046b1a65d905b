"""For those who extend the package: contracts that models, bounds and solvers must satisfy, and problems to order."""

from ifonly.testing.contracts import check_bound, check_child_bound, check_solver, check_transition_model

__all__ = ["check_bound", "check_child_bound", "check_solver", "check_transition_model"]
