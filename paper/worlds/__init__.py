"""Worlds in which every answer can be replayed: of many fields, by published equations, and that of sepsis."""

from __future__ import annotations

from paper.worlds.base import PLAIN, Circumstances, Course, DrawnWorld, Recording, Scaling, Variant, World
from paper.worlds.battery import Battery
from paper.worlds.epidemic import Epidemic
from paper.worlds.glucose import Glucose
from paper.worlds.sepsis import Sepsis

WORLDS: dict[str, World] = {world.name: world for world in (Epidemic(), Battery(), Glucose(), Sepsis())}

__all__ = ["PLAIN", "WORLDS", "Circumstances", "Course", "DrawnWorld", "Recording", "Scaling", "Variant", "World"]
