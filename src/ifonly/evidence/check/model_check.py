"""What a check of a model found: a verdict, findings as codes with numbers, and the figures behind them; as a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ifonly.data.plain import read_plain
from ifonly.errors import StoreError
from ifonly.evidence.check.figures import CheckFigures
from ifonly.evidence.check.thresholds import CheckThresholds, default_thresholds
from ifonly.files import write_text_atomically
from ifonly.markup import html_text
from ifonly.models.checkpoint import CHECK, read_metadata
from ifonly.models.standing import HiddenSigns, Standing
from ifonly.records import KnownNumber, from_plain, to_plain
from ifonly.text.checks import check_details, check_lines, headline
from ifonly.version import __version__

FORMAT, VERSION = "ifonly.model-check", 4
READABLE = (2, 3, VERSION)
"""Version 2 said nothing about causes and remedies, nor about what was measured; version 3 did not look at the past."""


class Level(StrEnum):
    """How bad a finding is, and the verdict as a whole."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"
    UNJUDGED = "not judged"
    """There is too little to say; as a verdict: the model cannot be judged by these episodes."""


SEVERITY = {Level.FAIL: 0, Level.WARN: 1, Level.UNJUDGED: 2, Level.PASS: 3}
"""For sorting, the worst first."""


@dataclass(frozen=True)
class Where:
    """What a judged figure is about; None where that does not apply."""

    feature: str | None = None
    other: str | None = None
    """The other feature of a pair."""
    grouping: str | None = None
    """'action', or what episodes are grouped by."""
    group: str | None = None
    """The action's label, or the group's."""
    steps: int | None = None
    """Steps ahead."""
    interval: str | None = None
    """The predictive interval's level in percent."""


@dataclass(frozen=True)
class Place:
    """A figure beyond its threshold."""

    threshold: str
    """Which threshold, by its name in `CheckThresholds`."""
    level: Level
    value: KnownNumber
    """The figure itself: for coverage the difference from what is promised."""
    excess: KnownNumber
    """How bad it surely is: 0 at the limit of a warning, 1 at that of a failure."""
    where: Where


@dataclass(frozen=True)
class Finding:
    """The answer to one question about the model, and where it is worst."""

    kind: str
    """Which question: the name of its threshold, where there is one."""
    level: Level
    places: tuple[Place, ...] = ()
    """Those that do not pass, the worst first."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Numbers and names that no figure holds, such as how many subjects there were."""
    cause: str | None = None
    """A code for what is likely behind it, where it warns or fails."""
    remedies: tuple[str, ...] = ()
    """Codes for what to try, the most promising first; those that are recipes have their names."""


@dataclass(frozen=True)
class ModelCheck:
    """How well a model explains episodes, and whether its answers may be trusted.

    Prints itself briefly; `details()` tells everything, `to_dict` holds every figure.
    """

    verdict: Level
    findings: tuple[Finding, ...]
    figures: CheckFigures
    model: str
    """Fingerprint of the model."""
    cohort: str
    """Fingerprint of the cohort."""
    episodes: int
    subjects: int
    transitions: int
    seen_in_training: bool
    seed: int
    thresholds: CheckThresholds
    ifonly: str = __version__

    def concerns(self) -> tuple[Finding, ...]:
        """The findings that warn or fail, the worst first."""
        return tuple(finding for finding in self.findings if finding.level in (Level.FAIL, Level.WARN))

    @property
    def standing(self) -> Standing:
        """What models and results carry of the check."""
        levels = [(finding.kind, finding.level.value) for finding in self.findings]
        hidden = HiddenSigns.of_figures(to_plain(self.figures))
        return Standing.of_findings(self.verdict.value, levels, self.episodes, self.cohort, hidden)

    def headline(self) -> str:
        """The verdict in one sentence."""
        return str(headline(self))

    def __str__(self) -> str:
        return "\n".join(check_lines(self))

    def _repr_html_(self) -> str:
        return html_text(str(self))

    def details(self) -> str:
        """Every finding, with all places where it holds."""
        return "\n".join(check_details(self))

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; `from_dict` gives the check back."""
        return {"format": FORMAT, "version": VERSION, **to_plain(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ModelCheck:
        """Read what `to_dict` wrote."""
        found = content.get("format") if isinstance(content, Mapping) else None
        if found != FORMAT:
            raise StoreError(f"not a model check: expected format {FORMAT!r}, found {found!r}.")
        if content.get("version") not in READABLE:
            raise StoreError(f"model check: version {content.get('version')!r}; this ifonly reads version {VERSION}.")
        known = {name: value for name, value in content.items() if name not in ("format", "version")}
        # Limits that a check did not know were never crossed by its figures.
        limits = {**to_plain(default_thresholds()), **known.get("thresholds", {})}
        return from_plain(cls, {**known, "thresholds": limits}, what="model check")

    def save(self, path: str | Path) -> None:
        """Write the check as a JSON file."""
        write_text_atomically(path, json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> ModelCheck:
        """Read what `save` wrote."""
        content = read_plain(Path(path), is_json=True)
        try:
            return cls.from_dict(content)
        except StoreError as error:
            raise StoreError(f"{path}: {error}") from None


def stored_check(model_folder: str | Path) -> ModelCheck | None:
    """The check kept in a model's folder; None where there is none, or only one of other weights."""
    file = Path(model_folder) / CHECK
    if not file.is_file():
        return None
    check = ModelCheck.load(file)
    return check if check.model == read_metadata(model_folder)["fingerprint"] else None
