"""The stages of a study: what each reads, what it writes, and how it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ifonly.data.cohort import Cohort
from ifonly.data.groups import make_groups
from ifonly.data.scaling import Scaler
from ifonly.data.store import (
    load_cohort,
    load_metadata,
    load_schema_and_columns,
    read_frame,
    read_table_and_remarks,
    save_cohort,
)
from ifonly.errors import InputError, StoreError
from ifonly.evidence.behaviour import BehaviourModel, fit_behaviour, load_behaviour, save_behaviour
from ifonly.evidence.check.check import check_model
from ifonly.evidence.check.model_check import stored_check
from ifonly.evidence.check.thresholds import load_thresholds
from ifonly.evidence.recipe_journal import forget_recipes, training_beside
from ifonly.evidence.recipes import fit_recipe
from ifonly.files import atomic_folder, none_is_younger, sha256_of
from ifonly.models import load_model, save_model
from ifonly.models.base import TrainableModel
from ifonly.models.checkpoint import CHECK, METADATA
from ifonly.models.effect_choice import fit_as_chosen
from ifonly.progress import Progress, silent
from ifonly.runs import Run, RunSettings, load_run, solve_cohort
from ifonly.simulate import simulate_cohort
from ifonly.study.plan import (
    OWN_RECIPE,
    BehaviourPlan,
    ClinicalData,
    FitPlan,
    SimulatedData,
    SplitPlan,
    StoredData,
    Study,
    TableData,
)
from ifonly.version import __version__

if TYPE_CHECKING:
    from ifonly.report.summary import RunSummary

REPORT_FILE = "report.html"
GRID_FILE = "grid.parquet"


@dataclass(frozen=True)
class Stage:
    """One step from the table to the report."""

    name: str
    """Also that of its folder."""
    needs: tuple[str, ...]
    """The stages whose products it reads."""
    settings: Callable[[Study], Any]
    """What of the study it depends on, in plain types."""
    work: Callable[[Study, Progress], None]
    """Writes its folder, in place of what stands there."""
    wanted: Callable[[Study], bool] = lambda study: True
    files: Callable[[Study], Mapping[str, str]] = lambda study: {}
    """Fingerprints of what it reads from outside the study."""
    beside: tuple[str, ...] = ()
    """What it writes elsewhere, relative to the study's folder."""
    share: float = 1.0
    """Roughly how much of a study's time it takes."""

    def folder(self, study: Study) -> Path:
        """Where its products are."""
        return study.folder / self.name


def store_cohort(
    data: SimulatedData | TableData | StoredData, out: Path, *, overwrite: bool = False, progress: Progress = silent
) -> tuple[Cohort, dict[str, Any]]:
    """Simulate a cohort, read it from a table or take it over, and store it; it, and where it comes from."""
    origin: dict[str, Any]
    if isinstance(data, SimulatedData):
        cohort = simulate_cohort(data.patients, seed=data.seed, horizon=data.horizon, progress=progress)
        origin = {"made by": "ifonly simulate", **asdict(data)}
    elif isinstance(data, TableData):
        cohort, remarks = read_table_and_remarks(data.table, data.schema)
        origin = {"made by": "ifonly import", "table": data.table.name, "sha256": sha256_of(data.table), **remarks}
    else:
        cohort, origin = load_cohort(data.folder), load_metadata(data.folder)["provenance"]
    save_cohort(cohort, out, provenance=origin, overwrite=overwrite)
    return cohort, origin


def _joined(data: TableData) -> list[Path]:
    """Further tables that the schema file names; none where it cannot be read, which is said where it is used."""
    try:
        columns = load_schema_and_columns(data.schema)[1]
    except (InputError, StoreError):
        return []
    return [data.schema.parent / join.file for join in columns.join]


def store_split(source: Path, out: Path, chosen: SplitPlan, *, overwrite: bool = False) -> None:
    """Store a stored cohort as two, OUT/train and OUT/test, by subject; both or none."""
    provenance = {"made by": "split by subject", **asdict(chosen), "cohort": origin_of(source)}
    parts = load_cohort(source).split(test=chosen.test, seed=chosen.seed)
    with atomic_folder(out, overwrite=overwrite) as folder:
        for name, part in zip(("train", "test"), parts, strict=True):
            save_cohort(part, folder / name, provenance={**provenance, "part": name})


def store_pool(sources: Sequence[tuple[str, Path]], out: Path) -> Cohort:
    """Store several stored cohorts as one; a name that is not empty is put before the ids of its cohort."""
    parts = [load_cohort(folder) for _, folder in sources]
    named = [part.with_prefix(f"{name}-") if name else part for (name, _), part in zip(sources, parts, strict=True)]
    origins = [{"name": name, **origin_of(folder)} for name, folder in sources]
    pooled = Cohort.pool(named)
    save_cohort(pooled, out, provenance={"made by": "ifonly pool", "cohorts": origins})
    return pooled


def store_model(
    source: Path, out: Path, chosen: FitPlan, *, overwrite: bool = False, progress: Progress = silent
) -> TrainableModel:
    """Fit one model, or an ensemble, to a stored cohort, and store it."""
    cohort = load_cohort(source)
    journal = recipes_journal(out)
    made: TrainableModel
    if chosen.recipe != OWN_RECIPE:
        made = fit_recipe(
            cohort,
            recipes=chosen.recipes,
            hidden=chosen.hidden,
            refits=chosen.refits or 0,
            subject_effect=chosen.subject_effect or False,
            settings=chosen.settings(cohort),
            seed=chosen.seed,
            journal=journal,
            progress=progress,
        )
    else:
        made = _own_model(cohort, chosen, training_beside(journal), progress)
    save_model(made, out, provenance={"made by": "ifonly fit", "cohort": origin_of(source)}, overwrite=overwrite)
    forget_recipes(journal)
    return made


def recipes_journal(out: Path) -> Path:
    """Where a comparison of recipes for the model at `out` is written down until the model is stored."""
    return out.with_name(f"{out.name}.recipes")


def forget_finished_fit(out: Path) -> None:
    """Remove what a fit had kept that was killed once its model was stored."""
    journal = recipes_journal(out)
    if none_is_younger((journal, training_beside(journal)), out / METADATA):
        forget_recipes(journal)


def _own_model(cohort: Cohort, chosen: FitPlan, journal: Path, progress: Progress) -> TrainableModel:
    """The model that the plan describes itself, without a recipe."""
    assert isinstance(chosen.refits, int), "there are no kinds of one's own model"
    return fit_as_chosen(
        chosen.untrained(cohort.schema),
        cohort,
        subject_effect=chosen.subject_effect or False,
        members=chosen.refits,
        settings=chosen.settings(cohort),
        seed=chosen.seed,
        journal=journal,
        progress=progress,
    )


def store_behaviour(
    source: Path, out: Path, chosen: BehaviourPlan, *, overwrite: bool = False, progress: Progress = silent
) -> BehaviourModel:
    """Learn what clinicians do in a stored cohort, and store it."""
    learned = fit_behaviour(load_cohort(source), settings=chosen.settings, seed=chosen.seed, progress=progress)
    origin = {"made by": "ifonly behaviour", "seed": chosen.seed, "epochs": chosen.epochs, "cohort": origin_of(source)}
    save_behaviour(learned, out, provenance=origin, overwrite=overwrite)
    return learned


def origin_of(folder: Path) -> dict[str, Any]:
    """Which data a product was made from: the checksum of the table, and what is known about its making."""
    metadata = load_metadata(folder)
    return {"sha256": metadata["table"]["sha256"], "provenance": metadata["provenance"]}


def _data(study: Study, progress: Progress) -> None:
    out, data = study.folder / "data", study.data
    if isinstance(data, ClinicalData):
        from ifonly.study.clinical import build_options, build_with_pictures

        build_with_pictures(data.source, out, build_options(data, overwrite=True), progress=progress)
    else:
        store_cohort(data, out, overwrite=True, progress=progress)


def _data_files(study: Study) -> dict[str, str]:
    data = study.data
    if isinstance(data, TableData):
        return {path.name: sha256_of(path) for path in (data.table, data.schema, *_joined(data)) if path.is_file()}
    if isinstance(data, StoredData):
        return {"cohort": str(load_metadata(data.folder)["table"]["sha256"])} if data.folder.is_dir() else {}
    if not isinstance(data, ClinicalData):
        return {}
    chosen = [path for path in (Path(data.levels), data.codes) if path is not None and path.is_file()]
    read = {path.name: sha256_of(path) for path in chosen}
    if data.source.is_file():
        return {**read, data.source.name: sha256_of(data.source)}
    # To read a hundred gigabytes only to see that they are the same would take hours.
    found = [*data.source.rglob("*.csv*"), *data.source.rglob("*.parquet")]
    tables = sorted(path for path in found if path.is_file())
    marks = {path: path.stat() for path in tables}
    return read | {
        str(path.relative_to(data.source)): f"{mark.st_size} bytes, {mark.st_mtime_ns}" for path, mark in marks.items()
    }


def _card(study: Study, progress: Progress) -> None:
    from ifonly.report.card import data_card
    from ifonly.report.folders import write_card

    cohort, grid = load_cohort(study.folder / "data"), study.folder / "data" / GRID_FILE
    card = data_card(
        cohort,
        grid=read_frame(grid) if grid.is_file() else None,
        model_size=study.fit.size(cohort.schema),
        severity=study.outputs.severity,
        smallest_cell=study.outputs.smallest_cell,
    )
    write_card(card, study.folder / "card", title=study.folder.resolve().name)


def _split(study: Study, progress: Progress) -> None:
    store_split(study.folder / "data", study.folder / "split", study.split, overwrite=True)


def refuse_unanswerable(study: Study) -> None:
    """Refuse what the cohort and the summary would refuse, before a model is fitted for them for hours."""
    cohort, asked = load_cohort(study.folder / "data"), study.cohort.episodes
    named = cohort if isinstance(asked, str) else [cohort[id] for id in asked]
    longest = max(named, key=len)
    try:
        study.query.reward.bind(cohort.schema, Scaler.fit(cohort))
        study.query.constraints.automaton(longest, study.query.budget(len(longest)))
        for name, edges in {**study.check.by, **study.outputs.by}.items():
            make_groups(name, cohort.ids, cohort, edges)
    except InputError as error:
        raise InputError(f"study: {error}") from None


def _fit(study: Study, progress: Progress) -> None:
    source, out = study.folder / "split" / "train", study.folder / "fit"
    store_model(source, out, study.fit, overwrite=True, progress=progress)


def _check(study: Study, progress: Progress) -> None:
    from ifonly.report.folders import write_check

    cohort, chosen = load_cohort(study.folder / "split" / "test"), study.check
    try:
        stored_check(study.folder / "fit")
    except StoreError:  # damaged, so that it says nothing, and the model could not be read
        (study.folder / "fit" / CHECK).unlink()
    found = check_model(
        load_model(study.folder / "fit", schema=cohort.schema),
        cohort,
        thresholds=None if chosen.thresholds is None else load_thresholds(chosen.thresholds),
        by=dict(chosen.by),
        seed=chosen.seed,
        progress=progress,
    )
    write_check(found, study.folder / "check")
    found.save(study.folder / "fit" / CHECK)


def _check_files(study: Study) -> dict[str, str]:
    file = study.check.thresholds
    return {} if file is None or not file.is_file() else {file.name: sha256_of(file)}


def _behaviour(study: Study, progress: Progress) -> None:
    chosen, source = study.evidence.behaviour, study.folder / "split" / "train"
    assert chosen is not None
    store_behaviour(source, study.folder / "behaviour", chosen, overwrite=True, progress=progress)


def _cohort(study: Study, progress: Progress) -> None:
    """Go on with a run that was interrupted; drop one that is about something else, or was damaged."""
    asked, out, behaviour = study.cohort, study.folder / "cohort", None
    episodes = study.folder / ("split/test" if asked.episodes == "test" else "data")
    sources = {"episodes": episodes, "model": study.folder / "fit"}
    cohort = load_cohort(episodes)
    model = load_model(study.folder / "fit", schema=cohort.schema)
    if study.evidence.behaviour is not None:
        sources["behaviour"] = study.folder / "behaviour"
        behaviour = load_behaviour(sources["behaviour"], schema=cohort.schema)
    ids = list(cohort.ids if isinstance(asked.episodes, str) else asked.episodes)[: asked.first]
    settings = RunSettings(episodes=ids, workers=asked.workers, device=asked.device, sources=sources)
    wanted = {
        "query": study.asked.to_dict(),
        "model_fingerprint": model.fingerprint(),
        "behaviour": None if behaviour is None else behaviour.fingerprint,
        "cohort": settings.select(cohort).fingerprint(),
        "ifonly": __version__,
    }
    solve_cohort(
        cohort,
        model,
        study.asked,
        out=out,
        behaviour=behaviour,
        settings=settings,
        force=out.exists() and _asked_there(out) != wanted,
        progress=progress,
    )


def _asked_there(folder: Path) -> dict[str, Any] | None:
    """What a run in this folder is about; None where it cannot be read."""
    try:
        manifest = load_run(folder).manifest
        names = ("query", "model_fingerprint", "ifonly")
        found = {name: manifest[name] for name in names}
        return found | {"behaviour": manifest["examination"]["behaviour"], "cohort": manifest["cohort"]["fingerprint"]}
    except (StoreError, KeyError):
        return None


def _summary(study: Study, progress: Progress) -> None:
    from ifonly.report.folders import write_summary

    cohort = load_cohort(study.folder / "data") if study.outputs.by else None
    run, outputs = load_run(study.folder / "cohort"), study.outputs
    write_summary(summarized(run, threshold=outputs.threshold, by=outputs.by, values=cohort), study.folder / "summary")


def summarized(
    run: Run, *, threshold: float, by: Mapping[str, Any], values: Cohort | None, abstain: bool = True
) -> RunSummary:
    """What a run says as a whole."""
    from ifonly.report.summary import summarize

    settings: dict[str, Any] = {"threshold": threshold, "by": dict(by), "values": values, "abstain": abstain}
    try:
        return summarize(
            run.table(),
            run.query,
            schema=run.provenance.schema,
            expected=run.manifest["cohort"]["episodes"],
            **settings,
        )
    except InputError as error:
        raise InputError(f"{run.folder}: {error}") from None


def _report(study: Study, progress: Progress) -> None:
    from ifonly.report.case_report import ReportSettings, write_report

    settings = ReportSettings(cases=study.outputs.cases, threshold=study.outputs.threshold)
    write_report(
        study.folder / "cohort", study.folder / "report" / REPORT_FILE, settings, overwrite=True, progress=progress
    )


def _settings(part: Any, *names: str) -> dict[str, Any]:
    """A part of a study, or some entries of it: without places, which may move, and without who computes, how fast."""
    found = {key: value for key, value in asdict(part).items() if not names or key in names}
    return {
        key: value
        for key, value in found.items()
        if not isinstance(value, Path) and key not in ("device", "memory", "threads")
    }


STAGES = (
    Stage(
        "data",
        (),
        lambda study: {"source": type(study.data).__name__, **_settings(study.data)},
        _data,
        files=_data_files,
        share=4,
    ),
    Stage(
        "card",
        ("data",),
        lambda study: _settings(study.outputs, "severity", "smallest_cell") | _settings(study.fit, "kind", "hidden"),
        _card,
        share=3,
    ),
    Stage("split", ("data",), lambda study: _settings(study.split), _split, share=0.5),
    Stage("fit", ("split",), lambda study: _settings(study.fit), _fit, share=40),
    Stage(
        "check",
        ("split", "fit"),
        lambda study: _settings(study.check),
        _check,
        files=_check_files,
        beside=(f"fit/{CHECK}",),
        share=6,
    ),
    Stage(
        "behaviour",
        ("split",),
        lambda study: _settings(study.evidence.behaviour),
        _behaviour,
        wanted=lambda study: study.evidence.behaviour is not None,
        share=10,
    ),
    Stage(
        "cohort",
        ("split", "behaviour", "fit", "check"),
        lambda study: {"query": study.asked.to_dict(), **_settings(study.cohort, "episodes", "first")},
        _cohort,
        share=30,
    ),
    Stage("summary", ("cohort",), lambda study: _settings(study.outputs, "threshold", "by"), _summary, share=3),
    Stage("report", ("cohort",), lambda study: _settings(study.outputs, "threshold", "cases"), _report, share=3),
)
"""In the order in which they are done."""

NAMES = tuple(stage.name for stage in STAGES)
