"""Commands that learn and check models: `fit`, `crossval`, `check` and `behaviour`."""

from __future__ import annotations

import itertools
import json as json_format
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import ifonly
from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, name_damaged, require_free
from ifonly.cli.options import flag, option
from ifonly.cli.solve import check_plot_name
from ifonly.errors import IfonlyError, InputError, SettingError, StoreError
from ifonly.files import check_writable, write_text_atomically
from ifonly.journal import damaged_lines
from ifonly.text.catalogue import say

if TYPE_CHECKING:
    from ifonly.evidence.check.measure import Groupings
    from ifonly.evidence.check.remedies import TriedRemedy
    from ifonly.models.crossval import CrossValidation
    from ifonly.progress import Progress


class Kind(StrEnum):
    """The trainable model classes, by the names that checkpoints use."""

    LOCATION_SCALE = "location-scale"
    ADDITIVE = "additive"
    POST_NONLINEAR = "post-nonlinear"
    MONOTONE_FLOW = "monotone-flow"


RECIPE_NAMES = ("paper", "plain", "plain-tails", "residual", "residual-tails")

FIT_SETTINGS: dict[str, Callable[[str], Any]] = {
    "prior": str,
    "residual": str,
    "curvature": float,
    "batch_size": int,
    "learning_rate": float,
    "validation": float,
    "subject_effect": options.switch,
    "device": str,
}


def fit(
    episodes: options.Episodes,
    out: options.Out,
    recipe: Annotated[
        str,
        option(
            "NAME",
            "auto: compare all recipes on held-out subjects and use the one that suits the data best. Or one of "
            f"{', '.join(RECIPE_NAMES)}; paper has the paper's Lipschitz limits.",
        ),
    ] = "auto",
    kind: Annotated[Kind, option("KIND", f"Model class: {', '.join(Kind)}.")] = Kind.LOCATION_SCALE,
    lipschitz: Annotated[
        str | None,
        option(
            "LIMITS",
            "Lipschitz limit of each function of the model: location,scale for location-scale; one for additive and "
            "post-nonlinear; location,scale,skewness,tails for monotone-flow. none: no limit.",
            default="that of the recipe",
        ),
    ] = None,
    ensemble: Annotated[
        str | None,
        option(
            "KINDS",
            "Members beside the model. kinds: the best model of every recipe, and some others, fitted to halves of "
            "the subjects; they show how much depends on the kind of model, and cost little. A number, usually 20: "
            "that many fitted to bootstrap samples; they show how much depends on the sample. none: no members.",
            default="kinds if recipes are compared, otherwise none",
        ),
    ] = None,
    hidden: options.Hidden = "200",
    epochs: options.Epochs = 100,
    seed: options.Seed = 0,
    plot: Annotated[Path | None, option("FILE", "Plot the loss curves.")] = None,
    force: options.Force = False,
    settings: Annotated[
        list[str] | None, options.setting_option(*FIT_SETTINGS, example="validation=0.2 or prior=laplace")
    ] = None,
) -> ExitCode:
    """Fit a causal model of transitions to a cohort by maximum likelihood.

    Several recipes are fitted to halves of the subjects and judged on the other half: how well each predicts one step
    and many, and how fast its answers are proven. The best one is fitted to everyone; the others become members beside
    it, which are asked whether they agree. With --kind, --lipschitz or --set prior, residual or curvature you define
    the model yourself and nothing is compared. Effects that last within a subject are learned too, from all of its
    steps, if that improves predictions for held-out subjects; --set subject_effect=true or false decides this for
    recipes that you name. An interrupted comparison resumes when the same command is given again.

    Examples:
    ifonly fit --episodes data/sepsis --out models/sepsis
    ifonly fit --episodes data/sepsis --out models/paper --recipe paper --plot loss.png
    ifonly fit --episodes data/sepsis --out models/smooth --lipschitz none --set residual=diagonal --set curvature=0.1
    ifonly fit --episodes data/sepsis --out models/single --ensemble none
    ifonly fit --episodes data/sepsis --out models/refits --recipe residual --ensemble 20
    ifonly fit --episodes data/sepsis --out models/subjects --set subject_effect=true
    ifonly fit --episodes data/sepsis --out models/additive --kind additive --lipschitz 1.0 --epochs 50 \\
        --set batch_size=128 --set prior=laplace
    """
    widths, more = options.widths(hidden), options.settings(settings, FIT_SETTINGS)
    refits = None if ensemble is None else _members(ensemble)
    limits = None if lipschitz is None else options.limits(lipschitz)
    check_plot_name(plot)
    from ifonly.study.plan import MODELS, FitPlan
    from ifonly.study.stages import forget_finished_fit, recipes_journal, store_model

    forget_finished_fit(out)
    require_free(plot, folder=out, force=force)

    if limits == (None,):
        limits = (None,) * len(MODELS[kind.value][1])
    try:
        chosen = FitPlan(recipe, kind.value, limits, widths, refits=refits, epochs=epochs, seed=seed, **more)
    except InputError as error:
        if isinstance(error, SettingError) and error.setting == "refits":
            raise typer.BadParameter(f"--ensemble {ensemble}: {error.why}") from None
        raise typer.BadParameter(f"--{error}") from None
    name_damaged(recipes_journal(out), damaged_lines(recipes_journal(out)))
    with progress_bars() as bars:
        model = store_model(episodes, out, chosen, overwrite=force, progress=bars)
    report = model.fit_report
    assert report is not None
    if plot is not None:
        from ifonly.report.plots import save_figure

        save_figure(ifonly.plot_fit(report), plot)
    Output().tell(
        {"model": str(out), "fingerprint": model.fingerprint(), "fit_report": model.describe_fit()},
        str(report),
        *member_lines_of(model),
        f"{kind.value} {'ensemble' if isinstance(model, ifonly.Ensemble) else 'model'} stored in {out}",
    )
    return ExitCode.DONE


def _members(text: str) -> int | Literal["kinds"]:
    """The members that --ensemble asks for."""
    if text == "none":
        return 0
    if text == "kinds":
        return "kinds"
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"--ensemble {text!r}: give kinds, none, or a number of members, at least 1.")
    return int(text)


def member_lines_of(model: ifonly.TransitionModel) -> list[str]:
    """Lines about an ensemble's members; none for other models."""
    from ifonly.text.evidence import member_lines

    return member_lines(model) if isinstance(model, ifonly.Ensemble) else []


CROSSVAL_SETTINGS = {"folds": int, "batch_size": int, "learning_rate": float, "device": str}


def crossval(
    episodes: options.Episodes,
    out: Annotated[Path, option("FILE", "Where to write the table; a journal is kept beside it.", default=False)],
    location: Annotated[str, option("LIMITS", "Limits to try for the location network.")] = "0.8,1.0,1.2",
    scale: Annotated[str, option("LIMITS", "Limits to try for the scale network.")] = "0.05,0.1",
    hidden: options.Hidden = "200",
    epochs: options.Epochs = 100,
    seed: options.Seed = 0,
    force: Annotated[bool, flag("--force", "Start again; replace the table and its journal.")] = False,
    settings: Annotated[
        list[str] | None, options.setting_option(*CROSSVAL_SETTINGS, example="folds=10 or device=cuda")
    ] = None,
) -> ExitCode:
    """Cross-validate location-scale models over a grid of Lipschitz limits, with 5 folds of subjects.

    Shows how much log-likelihood each pair of limits costs compared with the unconstrained model. An interrupted run
    resumes when the same command is given again; a larger grid reuses what a smaller one has finished.

    Examples:
    ifonly crossval --episodes data/sepsis --out crossval.json
    ifonly crossval --episodes data/sepsis --location 0.8,1.0,1.2 --scale 0.05,0.1 --set folds=10 --out grid.json
    """
    widths, more = options.widths(hidden), options.settings(settings, CROSSVAL_SETTINGS)
    pairs = itertools.product(options.limits(location), options.limits(scale))
    journal = out.with_name(f"{out.name}.journal")
    require_free(out, journal, force=force or journal.exists())
    from ifonly.models.crossval import FORMAT, VERSION, CrossValidationPlan, goes_on_from

    cohort = ifonly.load(episodes)
    folds, fit = more.pop("folds", CrossValidationPlan.folds), ifonly.FitSettings(epochs=epochs, **more)
    plan = CrossValidationPlan(grid=list(pairs), folds=folds, seed=seed, fit=fit)
    template = ifonly.LocationScale(cohort.schema, hidden=widths)
    if force:
        journal.unlink(missing_ok=True)
    elif out.exists():
        earlier = _earlier_table(out)
        if earlier is None or not goes_on_from(earlier, template, cohort, plan):
            raise StoreError(
                f"{out} holds another cross-validation (of other data, settings or limits) or something else; move it "
                "away, choose another name, or replace it with --force."
            )
    name_damaged(journal, damaged_lines(journal))
    with progress_bars() as bars:
        table = ifonly.cross_validate(template, cohort, plan, journal=journal, progress=bars)
    document = {"format": FORMAT, "version": VERSION, **table.to_dict()}
    write_text_atomically(out, json_format.dumps(document, indent=2, allow_nan=False) + "\n")
    Output().tell(document, str(table), say("crossval.written", place=out))
    return ExitCode.DONE


def _earlier_table(path: Path) -> CrossValidation | None:
    """The table that a file holds; None where it holds none."""
    from ifonly.data.plain import read_plain
    from ifonly.models.crossval import CrossValidation

    try:
        content = read_plain(path, is_json=True)
        return CrossValidation.from_dict(content) if isinstance(content, dict) else None
    except IfonlyError:
        return None


def check(
    model: options.ModelFolder,
    episodes: Annotated[Path, option("FOLDER", "A cohort that the model was not fitted to.", default=False)],
    thresholds: Annotated[
        Path | None,
        option("FILE", "Thresholds for warnings and failures (YAML), in place of the package's.", default=False),
    ] = None,
    by: options.By = None,
    out: Annotated[
        Path | None,
        option("FOLDER", "Write check.json, check.txt, check.html and figures; replaces an earlier check."),
    ] = None,
    report: Annotated[
        Path | None,
        option("FILE.html", "Write findings, advice and figures as one page; replaces an earlier one."),
    ] = None,
    fit_on: Annotated[
        Path | None,
        option(
            "FOLDER",
            "Fit the two most promising remedies to this cohort (of other subjects), and check them the same way.",
            "--try",
        ),
    ] = None,
    epochs: Annotated[int, option("N", "With --try: passes over the training data.", min=1)] = 100,
    save: Annotated[
        bool, flag("--save/--no-save", "Store the check with the model, where later commands find it.")
    ] = True,
    details: Annotated[bool, flag("--details", "List every place where something was found.")] = False,
    seed: options.Seed = 0,
) -> ExitCode:
    """Check how well a model explains episodes that it has not seen: pass, warn or fail, and why.

    Compares log-likelihoods with simple baselines, the noise with its prior, and observed values with predictive
    intervals and with predictions several steps ahead; by feature, action and group. Each finding comes with its likely
    cause and with what to try. The exit code is 6 if the model fails. With --try, the remedies are kept only if --out
    is given; if interrupted, they resume when the same command is given again.

    Examples:
    ifonly check --model models/sepsis --episodes data/others
    ifonly check --model models/sepsis --episodes data/others --by age=50,70 --by gender --out checks/sepsis
    ifonly check --model models/sepsis --episodes data/others --try data/sepsis --report check.html
    """
    groupings = options.groupings(by)
    from ifonly.evidence.check.model_check import Level
    from ifonly.evidence.check.remedies import forget_trials
    from ifonly.evidence.check.thresholds import load_thresholds
    from ifonly.models.checkpoint import CHECK
    from ifonly.report.check_page import require_page, write_check_page
    from ifonly.report.folders import CHECK_FOLDER, write_check
    from ifonly.text.checks import trial_lines

    limits = None if thresholds is None else load_thresholds(thresholds)
    cohort = ifonly.load(episodes)
    checked = ifonly.load_model(model, schema=cohort.schema)
    if out is not None:
        CHECK_FOLDER.check(out)
        check_writable(out, folder=True)
    if save:
        check_writable(model / CHECK)
    if report is not None:
        require_page(report)
        check_writable(report)
    training = None if fit_on is None else ifonly.load(fit_on)
    with progress_bars() as bars:
        found = ifonly.check_model(
            checked,
            cohort,
            thresholds=limits,
            by=groupings,
            seen_in_training=_fitted_to(model, episodes),
            seed=seed,
            progress=bars,
        )
        how = (groupings, epochs, bars, _trials_journal(model))
        trials = () if training is None else _tried(checked, training, cohort, found, how)
    output = Output()
    tried = {} if training is None else {"tried": [trial.to_dict() for trial in trials]}
    output.tell(found.to_dict() | tried, found.details() if details else str(found))
    if training is not None:
        output.show(*trial_lines(found, trials))
    if save:
        found.save(model / CHECK)
        output.show(say("check.kept", place=model / CHECK))
        if found.verdict is Level.FAIL:
            output.show(say("check.refused"))
    if out is not None:
        files = ", ".join(write_check(found, out, trials=trials).files)
        output.show(say("written.files", place=out, files=files))
    if report is not None:
        write_check_page(found, report, trials=trials)
        output.show(say("written", place=report))
    if training is not None:
        forget_trials(_trials_journal(model))
    return ExitCode.DONE if found.verdict in (Level.PASS, Level.WARN) else ExitCode.NOT_PASSED


def _tried(
    model: ifonly.TransitionModel,
    training: ifonly.Cohort,
    cohort: ifonly.Cohort,
    found: ifonly.ModelCheck,
    how: tuple[Groupings, int, Progress, Path],
) -> tuple[TriedRemedy, ...]:
    """What the check advises, tried: groups to look at, epochs, progress and journal are `how`."""
    from ifonly.evidence.check.remedies import try_remedies

    groupings, epochs, progress, journal = how
    settings = ifonly.FitSettings(epochs=epochs)
    return try_remedies(
        model, training, cohort, found, by=groupings, settings=settings, journal=journal, progress=progress
    )


def _trials_journal(model: Path) -> Path:
    """Where remedies that are tried are kept until all that was asked for is written: beside the model."""
    return model.with_name(f"{model.name}.tried")


def _fitted_to(model: Path, episodes: Path) -> bool:
    """Whether the model's checkpoint names the very table of these episodes as what it was fitted to."""
    from ifonly.data.store import load_metadata
    from ifonly.models.checkpoint import read_metadata

    origin = read_metadata(model)["provenance"].get("cohort")
    return isinstance(origin, dict) and origin.get("sha256") == load_metadata(episodes)["table"]["sha256"]


def behaviour(
    episodes: options.Episodes,
    out: options.Out,
    hidden: options.Hidden = "64",
    epochs: options.Epochs = 40,
    states: Annotated[
        bool,
        flag(
            "--states/--no-states",
            "Store recorded states, scaled and without ids, to measure how far other states lie from them. They are "
            "patients' data.",
        ),
    ] = True,
    seed: options.Seed = 0,
    force: options.Force = False,
) -> ExitCode:
    """Learn how likely this cohort's decision makers are to choose each action in a given state.

    With --behaviour, `ifonly solve` and `ifonly cohort` then say how usual each change would have been where it is
    made, and `min_support` in a query file rules out what hardly anybody does. --hidden none is a logistic regression.

    Examples:
    ifonly behaviour --episodes data/sepsis --out behaviour/sepsis
    ifonly behaviour --episodes data/sepsis --out behaviour/shared --no-states
    """
    widths = options.widths(hidden)
    require_free(folder=out, force=force)
    from ifonly.records import to_plain
    from ifonly.study.plan import BehaviourPlan
    from ifonly.study.stages import store_behaviour

    chosen = BehaviourPlan(widths, epochs, keep_states=states, seed=seed)
    with progress_bars() as bars:
        learned = store_behaviour(episodes, out, chosen, overwrite=force, progress=bars)
    document = {"out": str(out), "fingerprint": learned.fingerprint, "report": to_plain(learned.report)}
    Output().tell(document, str(learned), say("written", place=out))
    return ExitCode.DONE
