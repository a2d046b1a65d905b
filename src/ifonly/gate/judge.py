"""From figures to findings: each question about a model answered with a level and a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ifonly.episodes.schema import Feature, Schema
from ifonly.gate.baselines import LINEAR, PERSISTENCE
from ifonly.gate.candidates import Candidate, Side, conclude
from ifonly.gate.estimates import Estimate
from ifonly.gate.parts import ACTION
from ifonly.gate.result import (
    SEVERITY,
    FeatureFigures,
    Figures,
    Finding,
    Level,
    PartFigures,
)
from ifonly.gate.thresholds import Limits, Thresholds
from ifonly.gate.words import amount, higher, listed, percent

SHIFTED = 0.1
"""Mean scores beyond this make a distribution one that is shifted."""

RESIZED = 0.1
"""Mean squared scores this far from one make it one that is too large or too small."""


@dataclass(frozen=True)
class Judge:
    """What findings are made from."""

    schema: Schema
    figures: Figures
    thresholds: Thresholds

    def findings(self) -> list[Finding]:
        """Everything that can be said about the figures, the worst first."""
        found = [
            *self.about_likelihood(),
            self.about_distances(),
            self.about_coverage(),
            self.about_state(),
            self.about_action(),
            self.about_size(),
            self.about_time(),
            *self.about_pairs(),
            *self.about_courses(),
            *self.about_parts(),
        ]
        return sorted(found, key=lambda finding: SEVERITY[finding.level])

    def feature(self, name: str) -> Feature:
        """The dynamic feature of this name."""
        return self.schema.dynamic[self.schema.dynamic_index(name)]

    # Likelihood

    def about_likelihood(self) -> list[Finding]:
        """The model against each baseline."""
        words = {
            PERSISTENCE: ("gain_over_persistence", "persistence (the next state is this one, give or take noise)"),
            LINEAR: ("gain_over_linear", "a linear model with Gaussian noise"),
        }
        found = []
        for baseline, gain in self.figures.gains.items():
            kind, meaning = words[baseline]
            limits: Limits = getattr(self.thresholds, kind)
            per_feature = gain.moved(0.0, 1 / len(self.schema.dynamic))
            found.append(Finding(kind, _gain_level(per_feature, limits), _gain_text(gain, meaning)))
        if not found:
            found.append(
                Finding("gain_over_linear", Level.UNJUDGED, "the likelihood is not compared with that of plain models")
            )
        return found

    # Noise, feature by feature

    def about_distances(self) -> Finding:
        """The distribution of each feature's noise."""

        def text(item: FeatureFigures) -> str:
            return (
                f"{item.name}: up to {percent(item.distance.value)} of the noise lies on the wrong side of a quantile "
                f"of the prior; {_shape(item, self.feature(item.name))}"
            )

        return self._by_feature(
            "distance",
            lambda item: item.distance,
            text,
            bad="the noise is not distributed as its prior says",
            good="the noise is distributed as its prior says",
        )

    def about_coverage(self) -> Finding:
        """Predictive intervals, one step ahead."""
        limits = self.thresholds.coverage
        places = []
        for item in self.figures.features:
            for level, share in (item.coverage or {}).items():
                off = share.moved(-int(level) / 100)
                places.append(Candidate(item.name, off, limits, f"{item.name}: {_covered(level, share)}"))
        if not places:
            text = "coverage one step ahead is not judged: features do not each have a noise of their own"
            return Finding("coverage", Level.UNJUDGED, text)
        return conclude(
            "coverage",
            places,
            bad="predictive intervals do not hold what they promise",
            good="predictive intervals of 50, 80 and 95 % hold what they promise, one step ahead",
        )

    def about_state(self) -> Finding:
        """Whether state and context predict the noise."""

        def text(item: FeatureFigures) -> str:
            assert item.by_state is not None
            return (
                f"{item.name}: state and context predict {percent(item.by_state.value)} of what the model takes for "
                f"chance, most along {item.strongest}"
            )

        return self._by_feature(
            "noise_by_state",
            lambda item: item.by_state,
            text,
            bad="the model misses how features depend on state and context",
            good="state and context do not predict the noise",
            bad_side=Side.ABOVE,
        )

    def about_action(self) -> Finding:
        """Whether the action predicts the noise beyond these."""

        def text(item: FeatureFigures) -> str:
            assert item.by_action is not None
            return (
                f"{item.name}: the action predicts another {percent(item.by_action.value)} of what the model takes for "
                "chance"
            )

        return self._by_feature(
            "noise_by_action",
            lambda item: item.by_action,
            text,
            bad="the model misses effects of the actions",
            good="the action does not predict the noise beyond state and context",
            bad_side=Side.ABOVE,
        )

    def about_size(self) -> Finding:
        """Whether the size of the noise can be predicted."""

        def text(item: FeatureFigures) -> str:
            assert item.varying_size is not None
            return (
                f"{item.name}: the size of its noise varies by about {percent(item.varying_size.value)} in a way that "
                "state, context and action predict"
            )

        return self._by_feature(
            "noise_size",
            lambda item: item.varying_size,
            text,
            bad="the model misses when it should be less sure",
            good="the size of the noise cannot be predicted",
            bad_side=Side.ABOVE,
        )

    def about_time(self) -> Finding:
        """Whether the noise lasts."""

        def text(item: FeatureFigures) -> str:
            assert item.lasting is not None
            return f"{item.name}: its noise is correlated with that of the next step ({item.lasting.value:+.2f})"

        return self._by_feature(
            "noise_lasting",
            lambda item: item.lasting,
            text,
            bad="the noise lasts from step to step, as it does where something that matters is not in the state",
            good="the noise of one step says nothing about the next",
        )

    def _by_feature(
        self,
        kind: str,
        figure: Callable[[FeatureFigures], Estimate | None],
        text: Callable[[FeatureFigures], str],
        *,
        bad: str,
        good: str,
        bad_side: Side = Side.BOTH,
    ) -> Finding:
        limits: Limits = getattr(self.thresholds, kind)
        known = [(item, value) for item in self.figures.features if (value := figure(item)) is not None]
        if not known:
            return Finding(kind, Level.UNJUDGED, f"too few data to say whether {good}")
        candidates = [Candidate(item.name, value, limits, text(item), bad_side) for item, value in known]
        return conclude(kind, candidates, bad, good)

    def about_pairs(self) -> list[Finding]:
        """Whether the noise of two features goes together as the prior says; nothing where there is only one."""
        places = [
            Candidate(
                " and ".join(pair.features),
                pair.excess,
                self.thresholds.noise_together,
                f"{' and '.join(pair.features)}: their noise has correlation "
                f"{pair.expected + pair.excess.value:+.2f}, the prior {pair.expected:+.2f}",
            )
            for pair in self.figures.pairs
        ]
        if not places:
            return []
        bad = "features surprise together in another way than the prior says"
        good = "the noise of different features goes together as the prior says"
        return [conclude("noise_together", places, bad, good)]

    # Several steps ahead

    def about_courses(self) -> list[Finding]:
        """The model on its own for several steps."""
        skills, covers, broken = [], [], []
        for horizon in self.figures.ahead:
            steps = f"{horizon.steps} step{'s' if horizon.steps > 1 else ''} ahead"
            if horizon.diverged > 0:
                broken.append(f"{steps} from {percent(horizon.diverged)} of the starts")
            for item in horizon.features:
                feature = self.feature(item.name)
                text = (
                    f"{item.name}, {steps}: off by {amount(item.error, feature)} on average, the state at the start by "
                    f"{amount(item.persistence, feature)}"
                )
                skills.append(Candidate(item.name, item.skill, self.thresholds.skill_ahead, text, bad_side=Side.BELOW))
                for level, share in item.coverage.items():
                    off = share.moved(-int(level) / 100)
                    words = f"{item.name}, {steps}: {_covered(level, share)}"
                    covers.append(Candidate(item.name, off, self.thresholds.coverage_ahead, words))
        found = []
        if broken:
            found.append(Finding("diverges", Level.FAIL, f"simulated courses leave all bounds: {listed(broken)}"))
        if not skills:
            text = "too few data to say how the model does on its own for several steps"
            return [*found, Finding("skill_ahead", Level.UNJUDGED, text)]
        longest = max(horizon.steps for horizon in self.figures.ahead if horizon.features)
        reach = f"{longest} step{'s' if longest > 1 else ''} ahead"
        return [
            *found,
            conclude(
                "skill_ahead",
                skills,
                bad="on its own the model is farther off than if nothing had changed",
                good=f"on its own the model is closer than persistence, up to {reach}",
            ),
            conclude(
                "coverage_ahead",
                covers,
                bad="several steps ahead intervals do not hold what they promise",
                good=f"intervals hold what they promise, up to {reach}",
            ),
        ]

    # Actions and groups

    def about_parts(self) -> list[Finding]:
        """Actions and groups for which the model is biased, unsure in the wrong way, or worse than a linear one."""
        found = []
        for grouping in dict.fromkeys(part.grouping for part in self.figures.parts):
            parts = [part for part in self.figures.parts if part.grouping == grouping]
            judged = [part for part in parts if self._enough(part)]
            where = "actions" if grouping == ACTION else f"groups by {grouping}"
            places = [place for part in judged for place in self._places_of_part(part)]
            if judged:
                found.append(
                    conclude(
                        "part_by_action" if grouping == ACTION else "part_by_group",
                        places,
                        bad=f"the model does worse for some {where}",
                        good=f"the model does equally well for all {where} that can be judged",
                    )
                )
            found += self._left_out(parts, where)
        return found

    def _enough(self, part: PartFigures) -> bool:
        limits = self.thresholds
        return (part.transitions or 0) >= limits.transitions_of_part and (part.subjects or 0) >= limits.subjects.judge

    def _places_of_part(self, part: PartFigures) -> Iterator[Candidate]:
        where = f"after {part.name!r}" if part.grouping == ACTION else f"where {part.grouping} is {part.name}"
        for item in part.features:
            text = (
                f"{item.name} {where}: typically {amount(item.residual, self.feature(item.name))} "
                f"{higher(item.bias.value)} than predicted ({item.bias.value:+.2f} deviations of the noise; "
                f"{part.transitions:,} transitions)"
            )
            yield Candidate(f"{item.name} {where}", item.bias, self.thresholds.bias_of_part, text)
            off = item.coverage.moved(-0.8)
            words = f"{item.name} {where}: {_covered('80', item.coverage)} ({part.transitions:,} transitions)"
            yield Candidate(f"{item.name} {where}", off, self.thresholds.coverage_of_part, words)
        yield from self._likelihood_of_part(part, where)

    def _likelihood_of_part(self, part: PartFigures, where: str) -> Iterator[Candidate]:
        """Whether a linear model does better here, by more than it does as a whole."""
        whole = self.figures.gains.get(LINEAR)
        if part.gain is None or whole is None:
            return
        relative = part.gain.moved(-min(0.0, whole.value), 1 / len(self.schema.dynamic))
        text = f"{where}: a linear model explains what happened better, by {-part.gain.value:.2g} nats a transition"
        yield Candidate(where, relative, self.thresholds.gain_over_linear, text, bad_side=Side.BELOW)

    def _left_out(self, parts: Sequence[PartFigures], where: str) -> list[Finding]:
        never = [part.name for part in parts if part.transitions == 0]
        rare = [part.name for part in parts if part.transitions != 0 and not self._enough(part)]
        texts = []
        if never:
            texts.append(f"{len(never)} absent from these episodes ({listed(never)})")
        if rare:
            texts.append(f"{len(rare)} too rare in them to be judged ({listed(rare)})")
        if not texts:
            return []
        return [Finding("parts_left_out", Level.UNJUDGED, f"of {len(parts)} {where}: {', '.join(texts)}")]


def _gain_level(per_feature: Estimate, limits: Limits) -> Level:
    if per_feature.low is None or math.isnan(per_feature.value):
        return Level.UNJUDGED
    if per_feature.surely_below < limits.fail:
        return Level.FAIL
    return Level.PASS if per_feature.surely_above > limits.warn else Level.WARN


def _gain_text(gain: Estimate, meaning: str) -> str:
    interval = "" if gain.low is None or gain.high is None else f" (95 % interval {gain.low:+.3g} to {gain.high:+.3g})"
    better = "better" if gain.value > 0 else "worse"
    return f"explains the episodes {better} than {meaning}: {gain.value:+.3g} nats a transition{interval}"


def _shape(item: FeatureFigures, feature: Feature) -> str:
    """In which way the noise is not as the prior says."""
    words = []
    if item.centre.from_zero() > SHIFTED:
        words.append(f"values are typically {amount(item.residual, feature)} {higher(item.residual)} than predicted")
    middle = item.coverage["50"] if item.coverage else Estimate(0.5)
    if middle.surely_above > 0.5 and item.tails.value >= 0.01:
        words.append("its tails are heavier: many small surprises and some very large ones")
    elif middle.surely_below < 0.5 and item.tails.value <= 0.01:
        words.append("its tails are lighter: few small surprises and none that are very large")
    elif item.size.surely_above > 1 + RESIZED:
        words.append("it is larger, so that the model is too sure of itself")
    elif item.size.surely_below < 1 - RESIZED:
        words.append("it is smaller, so that the model is less sure than it could be")
    return "; ".join(words) or "its shape differs, as that of skewed, whole or held values does"


def _covered(level: str, share: Estimate) -> str:
    side = "too narrow" if share.value < int(level) / 100 else "too wide"
    return f"{level} % intervals hold {percent(share.value)} of the values, they are {side}"
