"""Worlds in which every answer can be replayed: of many fields, by published equations, and that of sepsis."""

from __future__ import annotations

from paper.worlds.base import PLAIN, Circumstances, Course, DrawnWorld, Recording, Scaling, Variant, World
from paper.worlds.battery import Battery
from paper.worlds.epidemic import Epidemic
from paper.worlds.fishery import Fishery
from paper.worlds.glucose import Glucose
from paper.worlds.heating import Heating
from paper.worlds.sepsis import Sepsis
from paper.worlds.traffic import Traffic
from paper.worlds.tumour import Tumour

WORLDS: dict[str, World] = {
    world.name: world
    for world in (Epidemic(), Battery(), Glucose(), Sepsis(), Tumour(), Traffic(), Heating(), Fishery())
}

__all__ = ["PLAIN", "WORLDS", "Circumstances", "Course", "DrawnWorld", "Recording", "Scaling", "Variant", "World"]
