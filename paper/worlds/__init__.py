"""Worlds of other fields than sepsis, by published equations, in which every answer can be replayed."""

from __future__ import annotations

from paper.worlds.base import PLAIN, Circumstances, Course, Recording, Scaling, Variant, World
from paper.worlds.battery import Battery
from paper.worlds.epidemic import Epidemic
from paper.worlds.glucose import Glucose

WORLDS: dict[str, World] = {world.name: world for world in (Epidemic(), Battery(), Glucose())}

__all__ = ["PLAIN", "WORLDS", "Circumstances", "Course", "Recording", "Scaling", "Variant", "World"]
