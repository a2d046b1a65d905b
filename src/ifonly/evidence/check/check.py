"""`check_model`: how well a model explains episodes, where it fails, and whether to trust it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray
from ifonly.errors import InputError
from ifonly.evidence.check import history, measure
from ifonly.evidence.check.advice import advised
from ifonly.evidence.check.ahead import Ahead, run_ahead
from ifonly.evidence.check.baselines import FOLDS, LINEAR, baseline_log_prob
from ifonly.evidence.check.figures import (
    CheckFigures,
    Estimate,
    FeatureAhead,
    FeatureFigures,
    HorizonFigures,
    PairFigures,
    PartFigures,
    ratio,
)
from ifonly.evidence.check.judge import Judge
from ifonly.evidence.check.measure import Dependence, Groupings
from ifonly.evidence.check.model_check import SEVERITY, Finding, Level, ModelCheck
from ifonly.evidence.check.sample import BoolArray, NoiseSample
from ifonly.evidence.check.thresholds import CheckThresholds, default_thresholds
from ifonly.models.base import TransitionModel
from ifonly.progress import Progress, Tick, silent

STAGE = "check"
STAGES = 7

NO_FIGURES = CheckFigures(None, {}, (), (), (), ())

Found = TypeVar("Found")


def check_model(
    model: TransitionModel,
    cohort: Cohort,
    *,
    thresholds: CheckThresholds | None = None,
    by: Groupings | Sequence[str] | None = None,
    values: pl.DataFrame | None = None,
    seen_in_training: bool = False,
    seed: int = 0,
    progress: Progress = silent,
) -> ModelCheck:
    """Check a model against episodes that it was not fitted to.

    Compares its log-likelihood with that of plain baselines, the noise that it abducts with its prior, its predictive
    intervals with the record, one and several steps ahead, and all that by feature, by action and by the groups that
    `by` names: features, or columns of the table `values` (column `episode`, a row for each), with edges at which
    numbers are cut or None. `seen_in_training` says that the episodes are those of the fit, which a check then warns
    about; nothing in a model tells. Whatever the input, the answer is a `ModelCheck`: what cannot be judged is said.
    The model keeps the verdict (`model.standing`), and whoever asks it anything gets the verdict with the answer.

    >>> from ifonly import simulate
    >>> print(check_model(simulate.SepsisWorld(), simulate.simulate_cohort(100, seed=5)).headline())
    pass: nothing speaks against the model on these episodes
    """
    model.schema.require_same(cohort.schema, here="the model", there="the cohort")
    limits = thresholds or default_thresholds()
    work = _Work(limits, _groupings(by), values, seed, progress)
    figures, found = _evaluate(model, cohort, work)
    if seen_in_training:
        found.append(Finding("seen_in_training", Level.WARN))
    subjects = len(set(cohort.subjects))
    if limits.subjects.judge <= subjects < limits.subjects.enough:
        found.append(Finding("subjects", Level.WARN, values={"subjects": subjects}))
    findings = advised(sorted(found, key=lambda finding: SEVERITY[finding.level]), figures, model)
    check = ModelCheck(
        verdict=_verdict(findings),
        findings=findings,
        figures=figures,
        model=model.fingerprint(),
        cohort=cohort.fingerprint(),
        episodes=len(cohort),
        subjects=subjects,
        transitions=len(cohort.actions) - len(cohort),
        seen_in_training=seen_in_training,
        seed=seed,
        thresholds=limits,
    )
    model.standing = check.standing
    return check


@dataclass(frozen=True)
class _Work:
    """What the parts of a check share."""

    thresholds: CheckThresholds
    by: Groupings
    values: pl.DataFrame | None
    seed: int
    progress: Progress

    def stage(self, number: int, compute: Callable[[], Found]) -> Found:
        """Do a part and report it."""
        found = compute()
        self.progress(Tick(STAGE, number, STAGES))
        return found


def _groupings(by: Groupings | Sequence[str] | None) -> Groupings:
    if by is None:
        return {}
    if isinstance(by, str):
        raise InputError(f"check_model: by={by!r} must be a list of names, or a mapping from names to edges.")
    return dict.fromkeys(by) if isinstance(by, Sequence) else by


def _verdict(findings: tuple[Finding, ...]) -> Level:
    """The worst level; what is not judged only counts where nothing could be."""
    levels = {finding.level for finding in findings}
    if Level.FAIL in levels:
        return Level.FAIL
    if any(finding.kind == "too_few" for finding in findings):
        return Level.UNJUDGED
    return Level.WARN if Level.WARN in levels else Level.PASS


def _evaluate(model: TransitionModel, cohort: Cohort, work: _Work) -> tuple[CheckFigures, list[Finding]]:
    """All figures, and the findings; where the model breaks down or data are too few, only the finding that says so."""
    subjects, needed = len(set(cohort.subjects)), work.thresholds.subjects.judge
    try:
        sample = work.stage(1, lambda: NoiseSample.of(model.for_search(), cohort, seed=work.seed))
    except (RuntimeError, ArithmeticError) as error:  # torch raises these on weights that are not finite
        return NO_FIGURES, [_not_finite("evaluation", error=type(error).__name__)]
    found = []
    if sample.broken:
        found.append(_not_finite("transitions", share=sample.broken / (sample.broken + len(sample))))
    if not np.isfinite(sample.draws).all():
        return NO_FIGURES, [*found, _not_finite("draws")]
    judged = int(sample.subjects_of.max(initial=0)) if len(sample) else 0
    if judged < max(needed, FOLDS):
        values = {"subjects": subjects, "usable": judged, "needed": max(needed, FOLDS)}
        return NO_FIGURES, [*found, Finding("too_few", Level.UNJUDGED, values=values)]
    with np.errstate(all="ignore"):  # what overflows ends in figures that are not finite, and these are judged
        figures = _figures(sample, work)
    found += _about_features(sample, work.thresholds)
    size = len(model.schema.dynamic) if sample.measured is None else float(sample.entries.mean())
    found += Judge(figures, work.thresholds, size).findings()
    work.progress(Tick(STAGE, STAGES, STAGES))
    return figures, found


def _about_features(sample: NoiseSample, thresholds: CheckThresholds) -> Iterator[Finding]:
    """Features about which nothing can be said."""

    def names(which: BoolArray) -> list[str]:
        return [feature.name for feature, one in zip(sample.model.schema.dynamic, which, strict=True) if one]

    if constant := names(sample.constant):
        yield Finding("constant", Level.WARN, values={"features": constant})
    if rare := names(_hardly_measured(sample, thresholds) & ~sample.constant):
        yield Finding("hardly_measured", Level.UNJUDGED, values={"features": rare, "needed": thresholds.subjects.judge})


def _hardly_measured(sample: NoiseSample, thresholds: CheckThresholds) -> BoolArray:
    """Which features too few subjects have measured values of [D]; none where all was measured."""
    least = max(thresholds.subjects.judge, thresholds.smallest_cell)
    return np.asarray((sample.subjects_of < least) & (sample.measured is not None))


def _not_finite(what: str, **values: str | float) -> Finding:
    return Finding("not_finite", Level.FAIL, values={"what": what, **values})


def _figures(sample: NoiseSample, work: _Work) -> CheckFigures:
    baselines = work.stage(2, lambda: baseline_log_prob(sample, seed=work.seed))
    depends = work.stage(3, lambda: measure.dependence(sample, seed=work.seed))
    earlier, choices = work.stage(
        4, lambda: (history.noise_by_earlier(sample, seed=work.seed), history.choice_by_noise(sample, seed=work.seed))
    )
    ahead = work.stage(5, lambda: run_ahead(sample, seed=work.seed))
    errors = measure.prediction_errors(sample)
    parts = work.stage(
        6, lambda: measure.part_figures(sample, baselines[LINEAR], errors, (work.by, work.values), work.thresholds)
    )
    one = np.ones(len(sample))
    shown = ~(sample.constant | _hardly_measured(sample, work.thresholds))
    dynamic = sample.model.schema.dynamic
    return CheckFigures(
        log_likelihood=float(sample.log_prob.mean()),
        gains={}
        if sample.constant.any()
        else {name: ratio(sample.log_prob - density, one, sample.subject) for name, density in baselines.items()},
        features=_feature_figures(sample, (depends, errors, earlier), shown, work.thresholds.smallest_cell),
        pairs=_pairs(sample, shown, work.thresholds),
        ahead=tuple(_horizon(sample, found, shown, work.thresholds) for found in ahead),
        parts=tuple(
            _shown_part(part, {one.name for one, here in zip(dynamic, shown, strict=True) if here}) for part in parts
        ),
        measured=_measured_shares(sample),
        choice_by_noise=choices,
    )


def _measured_shares(sample: NoiseSample) -> dict[str, float] | None:
    if sample.rows.measured is None:
        return None
    shares = sample.rows.measured.double().mean(0).tolist()
    return {feature.name: share for feature, share in zip(sample.model.schema.dynamic, shares, strict=True)}


def _feature_figures(
    sample: NoiseSample, data: tuple[Dependence, FloatArray, list[Estimate | None]], shown: BoolArray, smallest: int
) -> tuple[FeatureFigures, ...]:
    depends, errors, earlier = data
    ranks, distances, tails = measure.histograms(sample, smallest), measure.distances(sample), measure.tails(sample)
    centres, sizes = measure.centre_and_size(sample)
    covered = measure.coverage(sample) if sample.model.elementwise else None
    lasting, between = measure.lasting(sample), measure.between(sample)
    return tuple(
        FeatureFigures(
            name=feature.name,
            unit=feature.unit,
            ranks=ranks[i],
            distance=distances[i],
            centre=centres[i],
            size=sizes[i],
            tails=tails[i],
            residual=float(np.median(errors[sample.rows_of(i), i])),
            coverage=None if covered is None else {level: found[i] for level, found in covered.items()},
            by_state=_known(depends.state[i]),
            strongest=depends.strongest[i],
            by_action=_known(depends.action[i]),
            varying_size=_known(depends.size[i]),
            lasting=None if lasting is None else _known(lasting[i]),
            unchanged=measure.unchanged(sample, i),
            step=float(sample.steps[i]) or None,
            by_earlier=_known(earlier[i]),
            between=_known(between[i]),
        )
        for i, feature in enumerate(sample.model.schema.dynamic)
        if shown[i]
    )


def _known(estimate: Estimate | None) -> Estimate | None:
    return estimate if estimate is not None and np.isfinite(estimate.value) else None


def _pairs(sample: NoiseSample, shown: BoolArray, thresholds: CheckThresholds) -> tuple[PairFigures, ...]:
    """Pairs of features that enough subjects have measured together."""
    return tuple(measure.together(sample, shown, thresholds.subjects.judge))


def _shown_part(part: PartFigures, names: set[str]) -> PartFigures:
    return replace(part, features=tuple(feature for feature in part.features if feature.name in names))


def _horizon(sample: NoiseSample, found: Ahead, shown: BoolArray, thresholds: CheckThresholds) -> HorizonFigures:
    least = max(thresholds.subjects.judge, thresholds.smallest_cell)
    features = tuple(
        FeatureAhead(
            name=feature.name,
            error=float(found.error[i]),
            persistence=float(found.persistence[i]),
            skill=found.skill[i],
            coverage={level: shares[i] for level, shares in found.coverage.items()},
            centre=_known(found.centre[i]),
        )
        for i, feature in enumerate(sample.model.schema.dynamic)
        if shown[i] and found.subjects[i] >= least
    )
    return HorizonFigures(found.steps, found.starts, found.diverged, features)
