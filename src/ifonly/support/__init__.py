"""What the recorded data supports: what clinicians do in which state, and how far a state lies from all of theirs."""

from ifonly.support.behaviour import BehaviourModel, BehaviourSupport, ChoiceNetwork
from ifonly.support.fitting import BehaviourSettings, fit_behaviour
from ifonly.support.report import BehaviourReport
from ifonly.support.store import load_behaviour, save_behaviour

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
