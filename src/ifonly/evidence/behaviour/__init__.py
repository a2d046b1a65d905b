"""What the recorded data supports: what clinicians do in which state, and how far a state lies from all of theirs."""

from ifonly.evidence.behaviour.behaviour import (
    BehaviourModel,
    BehaviourSupport,
    ChoiceNetwork,
    Neighbours,
    load_behaviour,
    save_behaviour,
)
from ifonly.evidence.behaviour.fitting import BehaviourSettings, fit_behaviour
from ifonly.evidence.behaviour.recordings import Recordings
from ifonly.evidence.behaviour.report import BehaviourReport

__all__ = [
    "BehaviourModel",
    "BehaviourReport",
    "BehaviourSettings",
    "BehaviourSupport",
    "ChoiceNetwork",
    "Neighbours",
    "Recordings",
    "fit_behaviour",
    "load_behaviour",
    "save_behaviour",
]
