"""When a step is, in words."""

from __future__ import annotations

from ifonly.data.schema import Schema

UNITS = {"h": "hour", "hr": "hour", "min": "minute", "d": "day", "s": "second", "w": "week"}
"""Abbreviations of units of time that are written out."""


def unit_of_time(schema: Schema) -> str:
    """The unit of steps as a word: hour for h, step where there is none."""
    return UNITS.get(schema.step_unit, schema.step_unit) or "step"


def moment(schema: Schema, step: int) -> str:
    """The time of a step, such as "hour 8" for step 2 of four hours each; "step 2" where steps have no unit."""
    return f"{unit_of_time(schema)} {step * schema.step_length:g}"


def step_and_moment(schema: Schema, step: int) -> str:
    """Both, such as "step 2 (hour 8)", for lists that programs number and people read; once where they are the same."""
    words = f"step {step}"
    return words if moment(schema, step) == words else f"{words} ({moment(schema, step)})"
