"""Real stays, whose truth nobody knows: whether models explain subjects held out, and what their answers show."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import polars as pl

from ifonly import Cohort, check_model, load
from ifonly.clinical.build import BuildOptions, build_cohort
from ifonly.clinical.inclusion import CohortRule, Selection
from ifonly.data.store import METADATA_NAME
from ifonly.models.base import TrainableModel
from ifonly.progress import Progress, silent
from ifonly.result import Status
from ifonly.study.plan import FitPlan
from paper import asking
from paper.catalogue import fill_between, markdown_table
from paper.cells import CellFolder
from paper.fitting import fit_as_planned
from paper.worlds_study import require_known

FORMAT: dict[str, Any] = {"format": "paper.real", "version": 1}
BEGIN, END = "<!-- table: python -m paper real --page -->", "<!-- end of table -->"
"""Between these lines of a page the command writes its table."""

AUTO = "auto"
RECIPES = {AUTO: FitPlan(refits=0), "paper": FitPlan(recipe="paper")}
"""`ifonly fit` without options, but for the members beside its model, which change no answer; the paper's limits."""


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
    cohort: str = ""
    """The fingerprint of all stays; a folder holds results of one cohort."""

    def __post_init__(self) -> None:
        require_known("recipe", [self.recipe], RECIPES)

    @property
    def file(self) -> str:
        """Where the row is kept, in the folder of the study."""
        return f"{self.recipe}-{self.seed}.json"

    @property
    def plan(self) -> FitPlan:
        """How the model is fitted."""
        return replace(RECIPES[self.recipe], epochs=self.epochs, seed=self.seed)


@dataclass(frozen=True)
class RealRow:
    """One model of real stays."""

    settings: RealSettings
    chosen: str
    """The recipe, and the strength of its penalty."""
    effects: bool
    """Whether the model has subject effects."""
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
        """Plain types for JSON: nothing in them belongs to a single stay."""
        return {**FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Read what `to_dict` wrote."""
        values = {name: value for name, value in content.items() if name not in FORMAT}
        values["settings"] = RealSettings(**content["settings"])
        values["concerns"] = tuple(content["concerns"])
        return cls(**values)


def real_cohort(source: Path, rules: CohortRule) -> Cohort:
    """The cohort of a folder of clinical tables, or of the AI Clinician's table, as `ifonly build` makes it; a stored
    cohort as it stands."""
    if (source / METADATA_NAME).is_file():
        return load(source)
    with TemporaryDirectory() as folder:
        options = BuildOptions(selection=Selection(cohort=rules))
        return build_cohort(source, Path(folder) / "cohort", options).cohort


def carry_out(
    cohort: Cohort,
    rows: Sequence[RealSettings],
    folder: Path,
    *,
    workers: int = 1,
    progress: Progress = silent,
) -> list[RealRow]:
    """Measure every model that the folder does not hold, each kept as soon as it is finished; all of them."""
    known = [replace(settings, cohort=cohort.fingerprint()) for settings in rows]
    return kept_in(folder).carry_out(known, partial(measure_model, cohort), workers=workers, progress=progress)


def kept_in(folder: Path) -> CellFolder[RealRow]:
    """The rows that a folder holds."""
    return CellFolder(folder, RealRow, FORMAT)


def measure_model(cohort: Cohort, settings: RealSettings) -> RealRow:
    """Fit to some subjects, check on the others, and ask about these."""
    training, held_out = cohort.split(test=settings.test, seed=settings.seed)
    model = fit_as_planned(training, settings.plan)
    check = check_model(model, held_out, seed=settings.seed)
    shares = check.figures.measured
    report = model.fit_report
    assert report is not None, "it was just fitted"
    return RealRow(
        settings=settings,
        chosen=next((f"{row.recipe}, {row.curvature:g}" for row in report.recipes if row.chosen), settings.recipe),
        effects=bool(report.effects),
        subjects=len(set(training.subjects)),
        held_out=check.subjects,
        verdict=check.verdict.value,
        concerns=tuple(asking.check_signals(check)["concerns"]),
        measured=None if shares is None else sum(shares.values()) / len(shares),
        log_likelihood=check.figures.log_likelihood,
        **_answers(held_out, model, settings),
    )


def _answers(cohort: Cohort, model: TrainableModel, settings: RealSettings) -> dict[str, Any]:
    question = asking.Question(settings.max_changes, allow_failed_model=True, seconds=settings.seconds)
    with TemporaryDirectory() as folder:
        episodes = tuple(cohort.ids[: settings.asked])
        table = asking.run_cohort(cohort, model, question, Path(folder) / "run", episodes=episodes, workers=1)
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


def fill_page(page: Path, rows: Sequence[RealRow]) -> None:
    """Write the table into a page, between its two marks; the rest of it stays."""
    fill_between(page, BEGIN, END, f"{markdown_table(summary(rows))}\n")


def _words(row: RealRow) -> dict[str, str]:
    failed = [one.removesuffix(": fail") for one in row.concerns if one.endswith(": fail")]
    fails = f" ({', '.join(failed)})" if failed else ""
    return {
        "recipe": f"{row.settings.recipe}, seed {row.settings.seed}",
        "chosen": f"{row.chosen}, subject effects" if row.effects else row.chosen,
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
