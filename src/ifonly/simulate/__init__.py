"""A sepsis-like world whose causal model is known, and cohorts recorded in it."""

from ifonly.simulate.patients import Clinician, simulate_cohort
from ifonly.simulate.world import SepsisWorld, sepsis_schema

__all__ = ["Clinician", "SepsisWorld", "sepsis_schema", "simulate_cohort"]
