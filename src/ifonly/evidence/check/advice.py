"""Why a finding is likely there and what to try: codes, with sentences in the catalogue (`cause.*`, `remedy.*`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ifonly.evidence.check.figures import CheckFigures
from ifonly.evidence.check.model_check import Finding, Level
from ifonly.models.base import TrainableModel, TransitionModel
from ifonly.models.effects import SubjectEffectModel
from ifonly.models.ensemble import Ensemble
from ifonly.models.location_scale import LocationScale
from ifonly.models.recipes import RECIPES

PLAIN, PLAIN_TAILS, RESIDUAL, RESIDUAL_TAILS = "plain", "plain-tails", "residual", "residual-tails"
"""Remedies that are recipes, by their names."""

SUBJECT_EFFECT = "subject effect"
"""The remedy that gives each subject an effect of its own."""
MORE_SUBJECTS = "more subjects"
"""What is left where every recipe was tried: what chance does to a fit, more data undo."""

assert {PLAIN, PLAIN_TAILS, RESIDUAL, RESIDUAL_TAILS} <= set(RECIPES)


@dataclass(frozen=True)
class Advice:
    """A likely cause and what addresses it, the most promising first."""

    cause: str
    remedies: tuple[str, ...]


CONTEXTUAL = "make contextual"
"""What no action changes need not be predicted."""

RIGID = Advice("rigid", (PLAIN, "less penalty", "more hidden"))
WIDTH = Advice("width", (PLAIN_TAILS, RESIDUAL_TAILS))
TAILS = Advice("tails", (PLAIN_TAILS, RESIDUAL_TAILS))
FLUCTUATES = Advice("fluctuates", ("record the level", CONTEXTUAL))
"""Noise whose sign turns: a state that is measured with error, or goes up and down about a level that is no feature."""

USUAL: Mapping[str, Advice] = {
    "gain_over_persistence": Advice("persists", (RESIDUAL, RESIDUAL_TAILS)),
    "gain_over_linear": Advice("plainer is better", (RESIDUAL, PLAIN, MORE_SUBJECTS)),
    "distance": Advice("shape", (PLAIN_TAILS, RESIDUAL_TAILS)),
    "coverage": WIDTH,
    "noise_by_state": RIGID,
    "noise_by_action": Advice("effects missed", (PLAIN, "less penalty", "more hidden")),
    "noise_size": Advice("size varies", (PLAIN_TAILS, RESIDUAL_TAILS)),
    "noise_by_earlier": Advice("behind actions", ("record what was seen", "record what lingers", SUBJECT_EFFECT)),
    "noise_lasting": Advice("something lasts", (SUBJECT_EFFECT, "record it", CONTEXTUAL)),
    "noise_between": Advice("subjects differ", (SUBJECT_EFFECT, "record it")),
    "choice_by_noise": Advice("seen and not recorded", ("record what was seen", SUBJECT_EFFECT)),
    "noise_together": Advice("apart", (PLAIN, PLAIN_TAILS)),
    "skill_ahead": Advice("drift", (RESIDUAL, RESIDUAL_TAILS)),
    "bias_ahead": Advice("drift", (RESIDUAL, PLAIN)),
    "coverage_ahead": Advice("errors add up", (RESIDUAL, RESIDUAL_TAILS)),
    "diverges": Advice("unstable", (RESIDUAL, "more penalty")),
    "part_by_action": Advice("actions differ", (PLAIN, "more hidden", "merge actions")),
    "part_by_group": Advice("groups differ", ("record groups", PLAIN)),
    "not_finite": Advice("broken", ("fit again",)),
    "constant": Advice("constant", ("leave out",)),
    "hardly_measured": Advice("hardly measured", ("leave out", MORE_SUBJECTS)),
    "seen_in_training": Advice("seen", ("other episodes",)),
    "subjects": Advice("few subjects", (MORE_SUBJECTS,)),
    "too_few": Advice("few subjects", (MORE_SUBJECTS,)),
}
"""What is said of each kind of finding, where nothing more special is known."""


BY_REPEATED_VALUES = ("gain_over_persistence", "gain_over_linear", "distance", "coverage")
"""Findings that are likely due to values carried forward, where there are many and nothing says which."""


def advised(findings: Sequence[Finding], figures: CheckFigures, model: TransitionModel) -> tuple[Finding, ...]:
    """The findings, with a likely cause and remedies where they are a reason for doubt.

    What the model was made by is no remedy: every list has another entry. Recipes that its fit has compared, and not
    taken, come last.
    """
    used, compared = used_by(model), compared_for(model)
    doubted = {finding.kind for finding in findings if finding.level in (Level.FAIL, Level.WARN)}
    return tuple(
        _with(finding, _advice(finding, doubted, figures), used, compared) if _needs_advice(finding) else finding
        for finding in findings
    )


def _needs_advice(finding: Finding) -> bool:
    unjudged = finding.kind in ("too_few", "hardly_measured")
    return finding.kind in USUAL and (unjudged or finding.level in (Level.FAIL, Level.WARN))


def _with(finding: Finding, advice: Advice, used: set[str], compared: set[str]) -> Finding:
    left = [one for one in advice.remedies if one not in used]
    new = [one for one in left if one not in compared] or [MORE_SUBJECTS]
    return replace(finding, cause=advice.cause, remedies=(*new, *(one for one in left if one in compared)))


def used_by(model: TransitionModel) -> set[str]:
    """The remedies that a model is already made by: its recipe, and effects of subjects."""
    centre = model.centre if isinstance(model, Ensemble) else model
    effects = {SUBJECT_EFFECT} if isinstance(centre, SubjectEffectModel) else set()
    own = recipe_of(model)
    return effects if own is None else {own, *effects}


def compared_for(model: TransitionModel) -> set[str]:
    """The recipes that the fit of a model has compared on subjects held out."""
    centre = model.centre if isinstance(model, Ensemble) else model
    report = centre.fit_report if isinstance(centre, TrainableModel) else None
    names = {row.recipe for row in report.recipes} if report is not None else set()
    return names if len(names) > 1 else set()


def recipe_of(model: TransitionModel) -> str | None:
    """The recipe that a model is of, whatever its penalty was; None where it is of none."""
    centre = network_model(model)
    if not isinstance(centre, LocationScale):
        return None
    settings = centre.settings()
    for recipe in RECIPES.values():
        like = recipe.untrained(centre.schema, settings["hidden"]).settings()
        if like == settings:
            return recipe.name
    return None


def network_model(model: TransitionModel) -> TransitionModel:
    """The model of networks inside an ensemble or one with subject effects."""
    centre = model.centre if isinstance(model, Ensemble) else model
    return centre.second if isinstance(centre, SubjectEffectModel) else centre


def _advice(finding: Finding, doubted: set[str], figures: CheckFigures) -> Advice:
    kind = finding.kind
    # What a model misses at one step it misses at the next; but no more than it misses.
    if kind in ("noise_lasting", "noise_between") and doubted & {"noise_by_state", "noise_by_action"}:
        missed = _missed(finding, figures) >= MOST_OF_IT * abs(finding.places[0].value)
        return RIGID if missed else USUAL[kind]
    if kind == "noise_lasting" and finding.places[0].value < 0:
        return FLUCTUATES
    if kind in BY_REPEATED_VALUES and figures.measured is None and _held(finding, figures):
        return Advice("held", ("tell what was measured", PLAIN_TAILS, RESIDUAL_TAILS))
    if kind == "distance":
        return _about_shape(finding, figures)
    if kind == "coverage_ahead" and "coverage" in doubted:
        return WIDTH
    if kind == "coverage_ahead" and "noise_together" in doubted:
        return USUAL["noise_together"]  # features that surprise together drive courses apart, or hold them together
    return USUAL[kind]


def _missed(finding: Finding, figures: CheckFigures) -> float:
    """The share of the noise of a finding's worst feature that state, context and action predict."""
    worst = next(item for item in figures.features if item.name == finding.places[0].where.feature)
    return sum(max(0.0, share.value) for share in (worst.by_state, worst.by_action) if share is not None)


def _about_shape(finding: Finding, figures: CheckFigures) -> Advice:
    """What the worst feature's noise is like: shifted, heavy-tailed, or something else."""
    worst = next(item for item in figures.features if item.name == finding.places[0].where.feature)
    if worst.centre.from_zero() > SHIFTED:
        return RIGID
    middle = worst.coverage["50"] if worst.coverage else None
    heavy = middle is not None and middle.surely_above > 0.5 and worst.tails.value >= 0.01
    return TAILS if heavy else USUAL["distance"]


MOST_OF_IT = 0.5
"""Noise lasts because the model is too stiff where what it misses is at least this share of what lasts."""

SHIFTED = 0.1
"""Mean scores beyond this make a distribution one that is shifted."""

HELD = 0.5
"""A feature that repeats its value exactly in a larger share of transitions is taken to be carried forward."""


def _held(finding: Finding, figures: CheckFigures) -> bool:
    """Whether the values of a feature that the finding is about are mostly the same as a step before."""
    named = {place.where.feature for place in finding.places}
    return any((item.unchanged or 0.0) > HELD for item in figures.features if not named or item.name in named)
