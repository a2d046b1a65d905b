"""What models carry so that every answer can say it: what a check concluded, who refits are, what they cannot show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ifonly.errors import InputError

FAILED = "fail"
VERDICTS = ("pass", "warn", FAILED, "not judged")


@dataclass(frozen=True)
class HiddenSigns:
    """What speaks for something that matters and is not recorded: how large each sign surely is, at least.

    The lower ends of the check's intervals, of the feature that shows most of it; 0 where it may be chance, None where
    it was not measured.
    """

    lasting: float | None = None
    """Correlation of the noise with that of the next step."""
    earlier: float | None = None
    """Share of the noise's variance that actions of earlier steps predict."""
    between: float | None = None
    """Share of the noise's variance that lies between subjects."""
    choice: float | None = None
    """Share of what is open about actions that the noise of earlier steps explains."""

    @classmethod
    def of_figures(cls, figures: Mapping[str, Any]) -> HiddenSigns:
        """What the figures of a check show, as plain types."""

        def most(name: str, *, either_way: bool = False) -> float | None:
            found = (_surely(feature.get(name), either_way=either_way) for feature in figures["features"])
            return max((size for size in found if size is not None), default=None)

        lasting = most("lasting", either_way=True)
        choice = _surely(figures.get("choice_by_noise"))
        return cls(lasting, most("by_earlier"), most("between"), choice)


def _surely(estimate: Mapping[str, Any] | None, *, either_way: bool = False) -> float | None:
    """How large a figure is, at least, by its interval; None where it has none.

    A share that is below zero explains nothing, and is no sign; a correlation may be one `either_way`.
    """
    low, high = (None, None) if estimate is None else (estimate["low"], estimate["high"])
    if low is None or high is None:
        return None
    return float(max(0.0, low, -high if either_way else 0.0))


@dataclass(frozen=True)
class Standing:
    """The verdict of `ifonly.check_model`, and what it rests on."""

    verdict: str
    """"pass", "warn", "fail" or "not judged"."""
    findings: tuple[str, ...]
    """The kinds of the findings that led to the verdict, the worst first; empty where it passed."""
    episodes: int
    """How many the model was checked on."""
    cohort: str
    """Their fingerprint."""
    hidden: HiddenSigns = HiddenSigns()

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise InputError(f"verdict {self.verdict!r} of a model's check: must be one of {', '.join(VERDICTS)}.")
        if not all(isinstance(kind, str) for kind in self.findings):
            raise InputError("findings of a model's check: must be names of kinds.")

    @classmethod
    def of_findings(
        cls,
        verdict: str,
        findings: Iterable[tuple[str, str]],
        episodes: int,
        cohort: str,
        hidden: HiddenSigns = HiddenSigns(),  # noqa: B008  # frozen
    ) -> Standing:
        """The standing of a check with these findings, each a kind and its level."""
        kinds = tuple(kind for kind, level in findings if level == verdict != "pass")
        return cls(verdict, kinds, episodes, cohort, hidden)

    @property
    def failed(self) -> bool:
        """Whether answers of the model need permission."""
        return self.verdict == FAILED


def worst_of(standings: list[Standing | None]) -> Standing | None:
    """The worst standing of several models: fail, warn, not judged, pass; None where none was checked."""
    order = (FAILED, "warn", "not judged", "pass")
    known = [standing for standing in standings if standing is not None]
    return min(known, key=lambda standing: order.index(standing.verdict), default=None)


@dataclass(frozen=True)
class EnsembleNote:
    """What limits what the agreement of an ensemble's members can mean."""

    kind: str
    """"one member", "few subjects", "never taken", "missing in samples" or "constant"."""
    names: tuple[str, ...] = ()
    """The actions or features that it is about."""
    count: int | None = None
    """How many subjects or members it is about."""
    of: int | None = None
    """Of how many members, or below how many subjects."""


REFIT = "refit"
"""The kind of a member that is the centre's model, fitted again."""


@dataclass(frozen=True)
class MemberLabel:
    """Who a member of an ensemble is."""

    kind: str = REFIT
    """"refit": like the centre, fitted to a bootstrap sample; else the name of its recipe, or of what differs in it."""
    half: int | None = None
    """The half of the subjects that it was fitted to, 0 or 1; None: a sample of all."""
    weight: float = 1.0
    """What it counts in a mean or a quantile over members, in relation to the others."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise InputError(f"ensemble: the weight {self.weight} of a member must be positive and finite.")
