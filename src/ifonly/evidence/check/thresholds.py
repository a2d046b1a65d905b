"""The limits at which a check warns and fails, as a documented file that users can override."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from ifonly.data.plain import as_number, check_keys, read_plain
from ifonly.errors import InputError


@dataclass(frozen=True)
class Threshold:
    """Where a figure begins to be a warning, and where a failure."""

    warn: float
    fail: float


@dataclass(frozen=True)
class SubjectCounts:
    """How many subjects a judgement needs, and how many it takes to be sure."""

    judge: int
    enough: int


@dataclass(frozen=True)
class CheckThresholds:
    """Every limit of a check; `thresholds.yaml` in this folder says what each is about.

    >>> default_thresholds().changed({"distance": {"warn": 0.1, "fail": 0.2}}).distance
    Threshold(warn=0.1, fail=0.2)
    """

    gain_over_persistence: Threshold
    gain_over_linear: Threshold
    distance: Threshold
    coverage: Threshold
    noise_by_state: Threshold
    noise_by_action: Threshold
    noise_size: Threshold
    noise_by_earlier: Threshold
    noise_lasting: Threshold
    noise_between: Threshold
    choice_by_noise: Threshold
    noise_together: Threshold
    skill_ahead: Threshold
    bias_ahead: Threshold
    coverage_ahead: Threshold
    bias_of_part: Threshold
    coverage_of_part: Threshold
    subjects: SubjectCounts
    transitions_of_part: int
    smallest_cell: int

    def __post_init__(self) -> None:
        for name, value in ((field.name, getattr(self, field.name)) for field in fields(self)):
            if isinstance(value, Threshold):
                downwards = name in GOOD_IS_HIGH
                if (value.fail > value.warn) if downwards else not 0 <= value.warn <= value.fail:
                    order = "fail at or below warn" if downwards else "0 <= warn <= fail"
                    raise InputError(f"thresholds: {name} needs {order}; found {asdict(value)}.")
        counts = (self.subjects.judge, self.subjects.enough, self.transitions_of_part, self.smallest_cell)
        if min(counts) < 1 or self.subjects.judge < 2:
            raise InputError("thresholds: numbers of subjects and transitions start at 1, and two must judge.")

    def named(self, name: str) -> Threshold:
        """The threshold of this name."""
        found = getattr(self, name)
        assert isinstance(found, Threshold), name
        return found

    def changed(self, content: Mapping[str, Any], *, where: str = "thresholds") -> CheckThresholds:
        """These limits with those in `content` in their place; unknown names are refused."""
        check_keys(where, content, required=set(), optional={field.name for field in fields(self)})
        return replace(self, **{name: _read(f"{where}: {name}", name, value) for name, value in content.items()})


GOOD_IS_HIGH = ("gain_over_persistence", "gain_over_linear", "skill_ahead")
"""Figures that fail when they are low."""

EXPLAINED = (
    "noise_by_state",
    "noise_by_action",
    "noise_size",
    "noise_by_earlier",
    "noise_between",
    "choice_by_noise",
)
"""Explained shares: they fail when they are high. Negative ones show that nothing was explained, and are no evidence.
All other figures fail when they are far from zero.
"""


@cache
def default_thresholds() -> CheckThresholds:
    """What the package's own file says."""
    text = files("ifonly.evidence.check").joinpath("thresholds.yaml").read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    return CheckThresholds(**{name: _read(name, name, value) for name, value in content.items()})


def load_thresholds(path: str | Path) -> CheckThresholds:
    """The default limits with those of a YAML or JSON file in their place."""
    content = read_plain(Path(path))
    return default_thresholds().changed({} if content is None else content, where=str(path))


def _read(where: str, name: str, value: Any) -> Any:
    if name == "subjects":
        check_keys(where, value, required={"judge", "enough"}, optional=set())
        return SubjectCounts(*(_whole(where, value[key]) for key in ("judge", "enough")))
    if name in ("transitions_of_part", "smallest_cell"):
        return _whole(where, value)
    check_keys(where, value, required={"warn", "fail"}, optional=set())
    return Threshold(*(as_number(where, value[key]) for key in ("warn", "fail")))


def _whole(where: str, value: Any) -> int:
    number = as_number(where, value)
    if number != int(number):
        raise InputError(f"{where}: {value!r} is not a whole number.")
    return int(number)
