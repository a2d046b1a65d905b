"""Real stays, whose truth nobody knows: whether models explain subjects held out, and what their answers show."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from ifonly import Cohort, check_model, fit_recipe
from ifonly.clinical.build import BuildOptions, build_cohort
from ifonly.clinical.inclusion import CohortRule, Selection
from ifonly.errors import InputError
from ifonly.models.base import TrainableModel
from ifonly.models.fit_report import FitSettings
from ifonly.models.recipes import find_recipe
from ifonly.progress import Progress, silent
from ifonly.result import Status
from paper import asking

AUTO = "auto"
"""What `ifonly fit` chooses without options."""
RECIPES = (AUTO, "paper")


@dataclass(frozen=True)
class RealSettings:
    """What is fitted, checked and asked."""

    recipe: str = AUTO
    seed: int = 0
    """Of the split and of the fit."""
    test: float = 0.4
    """Share of subjects held out: a check needs many of them."""
    asked: int | None = None
    """Of the stays held out, how many are asked about, the first; None: all."""
    max_changes: int = 3
    seconds: float = 20.0
    """Limit of a single search."""
    epochs: int = 100


@dataclass(frozen=True)
class RealRow:
    """One model of real stays."""

    settings: RealSettings
    chosen: str
    """The recipe, and the strength of its penalty."""
    subjects: int
    """That the model learned from."""
    held_out: int
    """Subjects that it is checked on."""
    verdict: str
    concerns: tuple[str, ...]
    """Findings that fail or warn, with their level."""
    measured: float | None
    """The share of values that were measured, and count; None where nobody knows."""
    log_likelihood: float | None
    """Of subjects held out, in nats per transition, of measured entries."""
    answers: int
    proven: int
    impossible: int
    """Answers with any value outside a hard range, or below zero where nothing can be."""
    implausible: int
    """Answers with any value outside its plausible range."""
    median_seconds: float
    median_steps: float
    improvement: float | None
    """The median promised, relative to the recorded outcome."""
    judged_by_organs: int
    not_borne_out: int

    def to_dict(self) -> dict[str, Any]:
        """Plain types."""
        return asdict(self)


def real_cohort(source: Path, rules: CohortRule) -> Cohort:
    """The cohort of a folder of clinical tables, or of the AI Clinician's table, as `ifonly build` makes it."""
    with TemporaryDirectory() as folder:
        options = BuildOptions(selection=Selection(cohort=rules))
        return build_cohort(source, Path(folder) / "cohort", options).cohort


def measure_model(cohort: Cohort, settings: RealSettings, *, progress: Progress = silent) -> RealRow:
    """Fit to some subjects, check on the others, and ask about these."""
    training, held_out = cohort.split(test=settings.test, seed=settings.seed)
    if settings.recipe not in RECIPES:
        raise InputError(f"real stays: no recipe {settings.recipe!r}; choose from {', '.join(RECIPES)}.")
    recipes = None if settings.recipe == AUTO else [find_recipe(settings.recipe)]
    fitting = FitSettings(epochs=settings.epochs)
    model = fit_recipe(training, recipes=recipes, settings=fitting, seed=settings.seed, progress=progress)
    check = check_model(model, held_out, seed=settings.seed, progress=progress)
    shares = check.figures.measured
    return RealRow(
        settings=settings,
        chosen=_chosen(model, settings),
        subjects=len(set(training.subjects)),
        held_out=check.subjects,
        **{name: value for name, value in asking.check_signals(check).items() if name in ("verdict", "concerns")},
        measured=None if shares is None else sum(shares.values()) / len(shares),
        log_likelihood=check.figures.log_likelihood,
        **_answers(held_out, model, settings, progress),
    )


def _chosen(model: TrainableModel, settings: RealSettings) -> str:
    rows = model.fit_report.recipes if model.fit_report is not None else ()
    best = next((row for row in rows if row.chosen), None)
    return settings.recipe if best is None else f"{best.recipe}, {best.curvature:g}"


def _answers(cohort: Cohort, model: TrainableModel, settings: RealSettings, progress: Progress) -> dict[str, Any]:
    question = asking.Question(settings.max_changes, allow_failed_model=True, seconds=settings.seconds)
    with TemporaryDirectory() as folder:
        episodes = tuple(cohort.ids[: settings.asked])
        table = asking.run_cohort(
            cohort, model, question, Path(folder) / "run", episodes=episodes, workers=1, progress=progress
        )
    answered = table.filter(pl.col("states").is_not_null())
    stats = answered["stats"].struct
    seconds = stats.field("seconds_bounds") + stats.field("seconds_search")
    judged, missing = asking.borne_out(answered)
    features = cohort.schema.dynamic
    return {
        "answers": answered.height,
        "proven": int((answered["status"] == Status.OPTIMAL.value).sum()),
        "impossible": sum(asking.leaves_ranges(answered, asking.possible_ranges(features))),
        "implausible": sum(asking.leaves_ranges(answered, asking.plausible_ranges(features))),
        "median_seconds": statistics.median(seconds),
        "median_steps": statistics.median(answered["horizon"]),
        "improvement": answered["improvement"].median(),
        "judged_by_organs": judged,
        "not_borne_out": missing,
    }


def summary(rows: Sequence[RealRow]) -> pl.DataFrame:
    """One row per model, as text."""
    return pl.DataFrame([_words(row) for row in rows])


def _words(row: RealRow) -> dict[str, str]:
    failed = [one.removesuffix(": fail") for one in row.concerns if one.endswith(": fail")]
    fails = f" ({', '.join(failed)})" if failed else ""
    return {
        "recipe": f"{row.settings.recipe}, seed {row.settings.seed}",
        "chosen": row.chosen,
        "subjects": f"{row.subjects} + {row.held_out}",
        "check": f"{row.verdict}{fails}",
        "log-likelihood": "-" if row.log_likelihood is None else f"{row.log_likelihood:.2f}",
        "impossible": f"{row.impossible} of {row.answers}",
        "implausible": f"{row.implausible}",
        "proven": f"{row.proven} of {row.answers}",
        "median seconds": f"{row.median_seconds:.1f} (T = {row.median_steps:g})",
        "promised": "-" if row.improvement is None else f"{row.improvement:.0%}",
        "not borne out": f"{row.not_borne_out} of {row.judged_by_organs}",
    }
