"""The worlds of the warning study: what could be wrong with an answer, one thing at a time."""

from __future__ import annotations

from dataclasses import dataclass

from ifonly.simulate import Clinician
from ifonly.simulate.equations import DROWNING, FRAILTY, PLAIN, VOLUME, Twist
from ifonly.simulate.patients import USUAL

LUNGS_INJURED = 1.0
"""The oxygen debt (world coordinates) above which nobody gives fluids, where treatment is never varied."""


@dataclass(frozen=True)
class Scenario:
    """A world, those who treat in it, and how much of it is recorded."""

    name: str
    label: str
    story: str
    twist: Twist = PLAIN
    clinician: Clinician = USUAL
    scarce: bool = False
    """Whether models learn from few stays."""


RIGHT = "right"

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(RIGHT, "model right", "Plenty of stays, and nothing that matters is missing from the record."),
        Scenario("few", "too little data", "The same world, of which few stays were recorded.", scarce=True),
        Scenario("misspecified", "misspecified", VOLUME.story, twist=VOLUME),
        Scenario("confounded", "hidden confounder", FRAILTY.story, twist=FRAILTY, clinician=Clinician((0.6, 0.6))),
        Scenario(
            "unvaried",
            "never varied",
            "Nobody gives fluids to patients with badly injured lungs, so that no record shows what they would do.",
            twist=DROWNING,
            clinician=Clinician(no_fluids_above=LUNGS_INJURED),
        ),
    )
}
