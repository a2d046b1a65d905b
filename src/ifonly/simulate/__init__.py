"""A sepsis-like world whose causal model is known, and cohorts recorded in it."""

from ifonly.simulate.clinician import Clinician
from ifonly.simulate.cohort import simulate_cohort
from ifonly.simulate.schema import sepsis_schema
from ifonly.simulate.world import SepsisWorld

__all__ = ["Clinician", "SepsisWorld", "sepsis_schema", "simulate_cohort"]
