"""What the recorded data supports: what clinicians do in which state, and how far a state lies from all of theirs."""

from ifonly.evidence.behaviour.behaviour import BehaviourModel, BehaviourSupport, ChoiceNetwork
from ifonly.evidence.behaviour.fitting import BehaviourSettings, fit_behaviour
from ifonly.evidence.behaviour.report import BehaviourReport
from ifonly.evidence.behaviour.store import load_behaviour, save_behaviour

__all__ = [
    "BehaviourModel",
    "BehaviourReport",
    "BehaviourSettings",
    "BehaviourSupport",
    "ChoiceNetwork",
    "fit_behaviour",
    "load_behaviour",
    "save_behaviour",
]
