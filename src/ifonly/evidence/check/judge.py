"""From figures to findings: each question about a model answered with a level, and with the places that do not pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ifonly.evidence.check.baselines import LINEAR
from ifonly.evidence.check.figures import CheckFigures, Estimate, FeatureFigures, PartFigures
from ifonly.evidence.check.measure import ACTION
from ifonly.evidence.check.model_check import SEVERITY, Finding, Level, Place, Where
from ifonly.evidence.check.thresholds import EXPLAINED, GOOD_IS_HIGH, CheckThresholds, Threshold


@dataclass(frozen=True)
class Candidate:
    """A figure that may be a reason for doubt."""

    threshold: str
    figure: Estimate
    where: Where

    def judged(self, among: int, thresholds: CheckThresholds) -> Place:
        """Its level, where it is one of so many that were looked at: each then needs a wider interval."""
        figure, threshold = self.figure.among(among), thresholds.named(self.threshold)
        if self.threshold in GOOD_IS_HIGH:
            size, threshold = -figure.surely_below, Threshold(-threshold.warn, -threshold.fail)
        else:
            size = max(0.0, figure.surely_above) if self.threshold in EXPLAINED else figure.from_zero()
        excess = (size - threshold.warn) / max(threshold.fail - threshold.warn, 1e-9)
        return Place(self.threshold, _level_of(size, threshold), self.figure.value, excess, self.where)


def _level_of(size: float, threshold: Threshold) -> Level:
    """The level of a figure that is bad when it is large, where `size` is what it surely exceeds."""
    if size > threshold.fail:
        return Level.FAIL
    return Level.WARN if size > threshold.warn else Level.PASS


@dataclass(frozen=True)
class Judge:
    """What findings are made from."""

    figures: CheckFigures
    thresholds: CheckThresholds
    size: float
    """Number of dynamic features, D; where not all was measured, of measured entries per transition."""

    def findings(self) -> list[Finding]:
        """Everything that can be said about the figures, the worst first."""
        found = [
            *self.about_likelihood(),
            self.by_feature("distance", lambda item: item.distance),
            self.about_coverage(),
            self.by_feature("noise_by_state", lambda item: item.by_state),
            self.by_feature("noise_by_action", lambda item: item.by_action),
            self.by_feature("noise_size", lambda item: item.varying_size),
            self.by_feature("noise_by_earlier", lambda item: item.by_earlier),
            self.by_feature("noise_lasting", lambda item: item.lasting),
            self.by_feature("noise_between", lambda item: item.between),
            self.about_choices(),
            *self.about_pairs(),
            *self.about_courses(),
            *self.about_parts(),
        ]
        return sorted(found, key=lambda finding: SEVERITY[finding.level])

    def conclude(self, kind: str, candidates: Sequence[Candidate], **values: str) -> Finding:
        """The answer that all candidates together give; of those about the same thing only the worst is told."""
        judged = sorted((one.judged(len(candidates), self.thresholds) for one in candidates), key=_order)
        worst: dict[Where, Place] = {}
        for place in judged:
            if place.level is not Level.PASS:
                worst.setdefault(replace(place.where, steps=None, interval=None), place)
        places = tuple(worst.values())
        return Finding(kind, places[0].level if places else Level.PASS, places, values)

    def about_likelihood(self) -> list[Finding]:
        """The model against each baseline."""
        found = []
        for baseline, gain in self.figures.gains.items():
            kind = f"gain_over_{baseline}"
            per_feature = gain.moved(0.0, 1 / max(self.size, 1e-9))
            found.append(Finding(kind, _gain_level(per_feature, self.thresholds.named(kind))))
        return found or [Finding("gain_over_linear", Level.UNJUDGED)]

    def by_feature(self, kind: str, figure: Callable[[FeatureFigures], Estimate | None]) -> Finding:
        """One figure of every feature's noise."""
        known = [(item.name, value) for item in self.figures.features if (value := figure(item)) is not None]
        if not known:
            return Finding(kind, Level.UNJUDGED)
        return self.conclude(kind, [Candidate(kind, value, Where(feature=name)) for name, value in known])

    def about_choices(self) -> Finding:
        """Whether actions were chosen by what is recorded."""
        kind, share = "choice_by_noise", self.figures.choice_by_noise
        return (
            Finding(kind, Level.UNJUDGED) if share is None else self.conclude(kind, [Candidate(kind, share, Where())])
        )

    def about_coverage(self) -> Finding:
        """Predictive intervals, one step ahead."""
        candidates = [
            Candidate("coverage", share.moved(-int(level) / 100), Where(feature=item.name, interval=level))
            for item in self.figures.features
            for level, share in (item.coverage or {}).items()
        ]
        return self.conclude("coverage", candidates) if candidates else Finding("coverage", Level.UNJUDGED)

    def about_pairs(self) -> list[Finding]:
        """Whether the noise of two features goes together as the prior says; nothing where there is only one."""
        candidates = [
            Candidate("noise_together", pair.excess, Where(feature=pair.features[0], other=pair.features[1]))
            for pair in self.figures.pairs
        ]
        return [self.conclude("noise_together", candidates)] if candidates else []

    def about_courses(self) -> list[Finding]:
        """The model on its own for several steps."""
        skills, covers, centres = [], [], []
        for horizon in self.figures.ahead:
            for item in horizon.features:
                where = Where(feature=item.name, steps=horizon.steps)
                skills.append(Candidate("skill_ahead", item.skill, where))
                if item.centre is not None:
                    centres.append(Candidate("bias_ahead", item.centre, where))
                for level, share in item.coverage.items():
                    off = share.moved(-int(level) / 100)
                    covers.append(Candidate("coverage_ahead", off, replace(where, interval=level)))
        broken = any(horizon.diverged > 0 for horizon in self.figures.ahead)
        found = [Finding("diverges", Level.FAIL)] if broken else []
        if not skills:
            return [*found, Finding("skill_ahead", Level.UNJUDGED)]
        named = {"skill_ahead": skills, "bias_ahead": centres, "coverage_ahead": covers}
        return [*found, *(self.conclude(kind, candidates) for kind, candidates in named.items() if candidates)]

    def about_parts(self) -> list[Finding]:
        """Actions and groups for which the model is biased, unsure in the wrong way, or worse than a linear one."""
        found = []
        for grouping in dict.fromkeys(part.grouping for part in self.figures.parts):
            parts = [part for part in self.figures.parts if part.grouping == grouping]
            judged = [part for part in parts if self._enough(part)]
            if judged:
                kind = "part_by_action" if grouping == ACTION else "part_by_group"
                candidates = [one for part in judged for one in self._candidates_of_part(part)]
                found.append(self.conclude(kind, candidates, grouping=grouping))
            found += self._left_out(grouping, parts)
        return found

    def _enough(self, part: PartFigures) -> bool:
        return self._enough_of(part.transitions or 0, part.subjects or 0)

    def _enough_of(self, entries: int, subjects: int) -> bool:
        return entries >= self.thresholds.transitions_of_part and subjects >= self.thresholds.subjects.judge

    def _candidates_of_part(self, part: PartFigures) -> Iterator[Candidate]:
        where = Where(grouping=part.grouping, group=part.name)
        for item in part.features:
            if item.measured is not None and not self._enough_of(item.measured.entries, item.measured.subjects):
                continue
            here = replace(where, feature=item.name)
            yield Candidate("bias_of_part", item.bias, here)
            yield Candidate("coverage_of_part", item.coverage.moved(-0.8), replace(here, interval="80"))
        whole = self.figures.gains.get(LINEAR)
        if part.gain is not None and whole is not None:
            # A linear model may do better here, but by more than it does as a whole.
            size = self.size if part.entries is None else part.entries
            relative = part.gain.moved(-min(0.0, whole.value), 1 / max(size, 1e-9))
            yield Candidate("gain_over_linear", relative, where)

    def _left_out(self, grouping: str, parts: Sequence[PartFigures]) -> list[Finding]:
        absent = [part.name for part in parts if part.transitions == 0]
        rare = [part.name for part in parts if part.transitions != 0 and not self._enough(part)]
        if not absent and not rare:
            return []
        values = {"grouping": grouping, "parts": len(parts), "absent": absent, "rare": rare}
        return [Finding("parts_left_out", Level.UNJUDGED, values=values)]


def _order(place: Place) -> tuple[int, float]:
    return SEVERITY[place.level], -place.excess


def _gain_level(per_feature: Estimate, threshold: Threshold) -> Level:
    if per_feature.low is None or math.isnan(per_feature.value):
        return Level.UNJUDGED
    if per_feature.surely_below < threshold.fail:
        return Level.FAIL
    return Level.PASS if per_feature.surely_above > threshold.warn else Level.WARN
