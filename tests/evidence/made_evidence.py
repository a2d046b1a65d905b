"""Parts of evidence with chosen numbers."""

import numpy as np

from ifonly.models.standing import HiddenSigns, Standing
from ifonly.query import Query
from ifonly.result import Agreement, Sensitivity, SupportReport
from ifonly.result.agreement import StepAgreement
from ifonly.result.evidence import OrganGain, ScoreGain, StepSupport, SupportFlag
from ifonly.result.sensitivity import StepSensitivity
from ifonly.rewards import minus
from ifonly.testing.instances import random_problem

SCHEMA = random_problem(0).episode.schema
QUERY = Query(minus("SOFA"))
FINDINGS = {"pass": (), "warn": ("noise_size",), "fail": ("noise_by_action", "coverage"), "not judged": ("too_few",)}
CHECKED = {
    verdict: Standing(verdict, findings, 40, "c0", HiddenSigns(0.0, 0.0, 0.0, 0.0))
    for verdict, findings in FINDINGS.items()
}


def refits(helping: int, of: int, same_steps: list[int] | None = None) -> Agreement:
    """So many of the refits help; of the first steps so many change the same."""
    steps = None if same_steps is None else tuple(StepAgreement(t, 1, n, 0, of) for t, n in enumerate(same_steps))
    return Agreement(np.array([1.0] * helping + [-1.0] * (of - helping)), helping, steps)


def support(flags: int, *, percentile: float | None = 50.0) -> SupportReport:
    """Two changed steps, so many of them flagged."""
    found = [((SupportFlag.UNLIKELY,) if t < flags else ()) for t in range(2)]
    return SupportReport("b0", tuple(StepSupport(t, 1, True, 0.1, percentile, flag) for t, flag in enumerate(found)))


def sensitive(
    undone_by: float | None, *, harmless: float = 0.1, gain: float = 1.0, member: int | None = None
) -> Sensitivity:
    """One step that matters."""
    steps = (StepSensitivity(1, harmless, undone_by, (0.0, 0.0), (0.0, 0.0)),)
    return Sensitivity(gain, 10.0, steps, member=member)


def scored(claimed: float, *gains: float, asked: bool = True, difference: float = 0.0) -> ScoreGain:
    """So many points claimed, so many by each of the first organs."""
    organs = tuple(OrganGain(organ, gain) for organ, gain in zip(("renal", "liver"), gains, strict=False))
    return ScoreGain("SOFA", asked, claimed, sum(gains), organs, ("urine",), difference)
