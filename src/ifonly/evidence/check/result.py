"""What a check of a model found: a verdict, findings in words, and the figures behind them; JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ifonly.data.records import check_version, from_plain, json_text, read_document, to_plain
from ifonly.errors import InputError, StoreError
from ifonly.evidence.check.estimates import Estimate
from ifonly.evidence.check.thresholds import Thresholds
from ifonly.files import write_text_atomically
from ifonly.models.standing import Standing
from ifonly.version import __version__

FORMAT, VERSION = "ifonly.model-check", 1


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
class Place:
    """Where a finding holds: a feature, an action, a group."""

    about: str
    level: Level
    value: float | None
    excess: float
    """How bad it surely is: 0 at the limit of a warning, 1 at that of a failure."""
    text: str


@dataclass(frozen=True)
class Finding:
    """The answer to one question about the model, in a sentence, and where it is worst."""

    kind: str
    """A short name for programs: that of the threshold, where there is one."""
    level: Level
    text: str
    places: tuple[Place, ...] = ()
    """Those that do not pass, the worst first."""


@dataclass(frozen=True)
class FeatureFigures:
    """The noise of one dynamic feature against its prior, one step ahead."""

    name: str
    label: str
    ranks: tuple[float | None, ...]
    """Histogram of the noise's ranks within the prior, as shares; None where too few subjects are counted."""
    distance: Estimate
    centre: Estimate
    """Mean normal score: 0 where the model is right."""
    size: Estimate
    """Mean squared score: 1 where the model is right."""
    tails: Estimate
    """Share of the noise outside the central 99 % of its prior."""
    residual: float
    """Median of recorded minus predicted median value, in original units."""
    coverage: Mapping[str, Estimate] | None
    """By level in percent; None for models whose features do not each have a noise of their own."""
    by_state: Estimate | None
    strongest: str | None
    """The input along which the part that state and context predict varies most."""
    by_action: Estimate | None
    varying_size: Estimate | None
    lasting: Estimate | None


@dataclass(frozen=True)
class FeatureAhead:
    """One feature, several steps ahead."""

    name: str
    error: float
    """Mean absolute error of the median course, in original units."""
    persistence: float
    skill: Estimate
    coverage: Mapping[str, Estimate]


@dataclass(frozen=True)
class HorizonFigures:
    """The model on its own, so many steps ahead of recorded states."""

    steps: int
    starts: int
    diverged: float
    """Share of starts from which courses are no longer finite."""
    features: tuple[FeatureAhead, ...]
    """Empty where too few subjects have episodes that long."""


@dataclass(frozen=True)
class FeatureOfPart:
    """One feature after one action, or in one group."""

    name: str
    bias: Estimate
    """Mean normal score."""
    residual: float
    """Median of recorded minus predicted median value, in original units."""
    coverage: Estimate
    """Of the 80 % interval."""


@dataclass(frozen=True)
class PartFigures:
    """The transitions after one action, or of one group of episodes; figures are None where too few subjects count."""

    grouping: str
    """'action', or what episodes are grouped by."""
    name: str
    transitions: int | None
    subjects: int | None
    gain: Estimate | None
    """Log-likelihood over the linear baseline, in nats per transition."""
    features: tuple[FeatureOfPart, ...]


@dataclass(frozen=True)
class PairFigures:
    """Two features and how much more their noise is correlated than the prior says."""

    features: tuple[str, str]
    expected: float
    excess: Estimate


@dataclass(frozen=True)
class Figures:
    """All numbers of a check. Aggregates only: nothing here belongs to fewer subjects than the smallest cell."""

    log_likelihood: float | None
    """Mean per transition, in nats, in the model's scaled coordinates."""
    gains: Mapping[str, Estimate]
    """Over each baseline, in nats per transition."""
    features: tuple[FeatureFigures, ...]
    pairs: tuple[PairFigures, ...]
    ahead: tuple[HorizonFigures, ...]
    parts: tuple[PartFigures, ...]


@dataclass(frozen=True)
class ModelCheck:
    """How well a model explains episodes, and whether its answers may be trusted.

    Prints itself briefly; `details()` tells everything, `to_dict` holds every figure.
    """

    verdict: Level
    findings: tuple[Finding, ...]
    figures: Figures
    model: str
    """Fingerprint of the model."""
    cohort: str
    """Fingerprint of the cohort."""
    episodes: int
    subjects: int
    transitions: int
    seen_in_training: bool
    seed: int
    thresholds: Thresholds
    version: str = __version__

    def concerns(self) -> tuple[Finding, ...]:
        """The findings that warn or fail, the worst first."""
        return tuple(finding for finding in self.findings if finding.level in (Level.FAIL, Level.WARN))

    def headline(self) -> str:
        """The verdict in one sentence."""
        failed, warned = (sum(f.level is level for f in self.findings) for level in (Level.FAIL, Level.WARN))
        if self.verdict is Level.UNJUDGED:
            reason = next((f.text for f in self.findings if f.level is Level.UNJUDGED), "")
            return f"cannot be judged: {reason}"
        if not failed and not warned:
            return "pass: nothing speaks against the model on these episodes"
        parts = [f"{count} {word}" for count, word in ((failed, "failed"), (warned, "warn")) if count]
        return f"{self.verdict.value}: of {len(self.findings)} checks {', '.join(parts)}"

    @property
    def standing(self) -> Standing:
        """What models and results carry of the check."""
        return Standing(self.verdict.value, self.headline(), self.episodes, self.cohort)

    def __str__(self) -> str:
        lines = [f"model {self.model}: {self.headline()}", f"  {self._about()}"]
        lines += [f"  {finding.level.value:<10}  {finding.text}" for finding in self.concerns()]
        unjudged = [finding for finding in self.findings if finding.level is Level.UNJUDGED]
        lines += [f"  {finding.level.value:<10}  {finding.text}" for finding in unjudged]
        return "\n".join(lines)

    def details(self) -> str:
        """Every finding, with all places where it holds."""
        lines = [f"model {self.model}: {self.headline()}", f"  {self._about()}"]
        for finding in self.findings:
            lines.append(f"  {finding.level.value:<10}  {finding.text}")
            lines += [f"    {place.level.value:<8}  {place.text}" for place in finding.places]
        return "\n".join(lines)

    def _about(self) -> str:
        seen = "that the model was fitted to" if self.seen_in_training else "taken as not seen in training"
        return (
            f"{self.episodes:,} episodes of {self.subjects:,} subjects, {self.transitions:,} transitions, {seen}; "
            f"cohort {self.cohort}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON; `from_dict` gives the check back."""
        content = to_plain(self)
        head = {"format": FORMAT, "version": VERSION, "ifonly": content.pop("version"), "summary": self.headline()}
        return {**head, **content}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> ModelCheck:
        """Read what `to_dict` wrote."""
        check_version("model check", content, FORMAT, VERSION, kind="model check")
        fields = {key: value for key, value in content.items() if key not in ("format", "ifonly", "summary")}
        try:
            return from_plain(cls, {**fields, "version": content["ifonly"]}, "model check")
        except (InputError, KeyError) as error:
            raise StoreError(f"model check: broken or incomplete ({error}).") from None

    def save(self, path: str | Path) -> None:
        """Write the check as a JSON file."""
        write_text_atomically(path, json_text(self.to_dict(), what="model check"))

    @classmethod
    def load(cls, path: str | Path) -> ModelCheck:
        """Read what `save` wrote."""
        content = read_document(Path(path), FORMAT, VERSION, kind="model check", expected="expected what `save` wrote")
        try:
            return cls.from_dict(content)
        except StoreError as error:
            raise StoreError(f"{path}: {error}") from None
