"""Commands that learn and check models: `fit`, `crossval`, `check` and `behaviour`."""

from __future__ import annotations

import itertools
import json as json_format
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, require_free
from ifonly.cli.solve import check_plot_name, read_json
from ifonly.errors import IfonlyError, InputError, StoreError

if TYPE_CHECKING:
    from ifonly.models.base import TransitionModel
    from ifonly.models.crossval import CrossValidation


class Kind(StrEnum):
    """The trainable model classes, by the names that checkpoints use."""

    LOCATION_SCALE = "location-scale"
    ADDITIVE = "additive"
    POST_NONLINEAR = "post-nonlinear"
    MONOTONE_FLOW = "monotone-flow"


FIT_SETTINGS = {"prior": str, "batch_size": int, "learning_rate": float, "validation": float}

FIT_EXAMPLES = (
    "ifonly fit --episodes data/sepsis --out models/sepsis",
    "ifonly fit --episodes data/sepsis --out models/loose --lipschitz 1.2,0.2 --plot loss.png",
    "ifonly fit --episodes data/sepsis --out models/ensemble --ensemble 20",
    "ifonly fit --episodes data/sepsis --out models/additive --kind additive --lipschitz 1.0 --epochs 50 "
    "--set batch_size=128 --set prior=laplace",
)


def fit(
    episodes: options.Episodes,
    out: options.Out,
    kind: Annotated[
        Kind, typer.Option("--kind", metavar="KIND", help=f"The class of models: {', '.join(Kind)}.")
    ] = Kind.LOCATION_SCALE,
    lipschitz: Annotated[
        str | None,
        typer.Option(
            "--lipschitz",
            metavar="LIMITS",
            help="A limit for each function of the model: location,scale for location-scale; one for additive and "
            "post-nonlinear; location,scale,skewness,tails for monotone-flow. none: no limit at all.",
            show_default="1.0 for the location, 0.1 for the others",
        ),
    ] = None,
    ensemble: Annotated[
        int | None,
        typer.Option(
            "--ensemble",
            metavar="N",
            min=1,
            help="Also fit N members to bootstrap samples of subjects, 20 as a rule: they show what refitting changes.",
            show_default="none",
        ),
    ] = None,
    hidden: options.Hidden = "200",
    epochs: options.Epochs = 100,
    seed: options.Seed = 0,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw the loss curves.")] = None,
    force: options.Force = False,
    device: options.Device = "cpu",
    settings: Annotated[
        list[str] | None, options.setting_option(*FIT_SETTINGS, example="validation=0.2 or prior=laplace")
    ] = None,
) -> ExitCode:
    """Fit a causal model of transitions to a cohort, by maximum likelihood.

    The Lipschitz limits make searches provable and fast; `ifonly crossval` shows what they cost in fit.
    """
    widths, more = options.widths(hidden), options.settings(settings, FIT_SETTINGS)
    limits = None if lipschitz is None else options.limits(lipschitz)
    check_plot_name(plot)
    require_free(plot, folder=out, force=force)
    from ifonly.data.store import load_cohort
    from ifonly.models.checkpoint import save_model
    from ifonly.study.plan import MODELS, FitPlan
    from ifonly.study.stages import fitted, origin_of

    if limits == (None,):
        limits = (None,) * len(MODELS[kind.value][1])
    try:
        chosen = FitPlan(
            kind.value, limits, widths, refits=ensemble or 0, epochs=epochs, device=device, seed=seed, **more
        )
    except InputError as error:
        raise typer.BadParameter(f"--{error}") from None
    cohort = load_cohort(episodes)
    with progress_bars() as bars:
        model = fitted(chosen, cohort, progress=bars)
    report = model.fit_report
    assert report is not None
    save_model(model, out, provenance={"made by": "ifonly fit", "cohort": origin_of(episodes)}, overwrite=force)
    if plot is not None:
        from ifonly.report.plots import plot_fit, save_figure

        save_figure(plot_fit(report), plot)
    output = Output()
    output.document({"model": str(out), "fingerprint": model.fingerprint(), "fit_report": model.describe_fit()})
    output.show(
        str(report),
        *member_lines_of(model),
        f"{kind.value} {'model' if ensemble is None else 'ensemble'} stored in {out}",
    )
    return ExitCode.DONE


def member_lines_of(model: TransitionModel) -> list[str]:
    """What there is to say about an ensemble's members; nothing about other models."""
    from ifonly.models.ensemble import Ensemble
    from ifonly.text.evidence import member_lines

    return member_lines(model) if isinstance(model, Ensemble) else []


CROSSVAL_SETTINGS = {"batch_size": int, "learning_rate": float, "device": str}

CROSSVAL_EXAMPLES = (
    "ifonly crossval --episodes data/sepsis --out crossval.json",
    "ifonly crossval --episodes data/sepsis --location 0.8,1.0,1.2 --scale 0.05,0.1 --folds 5 --out grid.json",
)


def crossval(
    episodes: options.Episodes,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FILE", help="Where to write the table; progress is kept beside it.", show_default=False
        ),
    ],
    location: Annotated[
        str, typer.Option("--location", metavar="LIMITS", help="Limits of the location network to try.")
    ] = "0.8,1.0,1.2",
    scale: Annotated[
        str, typer.Option("--scale", metavar="LIMITS", help="Limits of the scale network to try.")
    ] = "0.05,0.1",
    folds: Annotated[int, typer.Option("--folds", metavar="N", min=2, help="Number of folds, by subject.")] = 5,
    hidden: options.Hidden = "200",
    epochs: options.Epochs = 100,
    seed: options.Seed = 0,
    force: Annotated[bool, typer.Option("--force", help="Start again; replace the table and its journal.")] = False,
    settings: Annotated[list[str] | None, options.setting_option(*CROSSVAL_SETTINGS, example="device=cuda")] = None,
) -> ExitCode:
    """Cross-validate location-scale models over a grid of Lipschitz limits.

    Shows how much log-likelihood each pair of limits costs, against the unconstrained model. A run that was
    interrupted goes on where it stopped when the same command is given again; a larger grid goes on from a smaller
    one.
    """
    widths, more = options.widths(hidden), options.settings(settings, CROSSVAL_SETTINGS)
    pairs = itertools.product(options.limits(location), options.limits(scale))
    journal = out.with_name(f"{out.name}.journal")
    require_free(out, journal, force=force or journal.exists())
    from ifonly.data.store import load_cohort
    from ifonly.files import write_text_atomically
    from ifonly.models import LocationScale
    from ifonly.models.crossval import FORMAT, VERSION, CrossValidationPlan, cross_validate, goes_on_from
    from ifonly.models.fit import FitSettings

    cohort = load_cohort(episodes)
    plan = CrossValidationPlan(grid=list(pairs), folds=folds, seed=seed, fit=FitSettings(epochs=epochs, **more))
    template = LocationScale(cohort.schema, hidden=widths)
    if force:
        journal.unlink(missing_ok=True)
    elif out.exists():
        earlier = _earlier_table(out)
        if earlier is None or not goes_on_from(earlier, template, cohort, plan):
            raise StoreError(
                f"{out} holds another cross-validation (of other data, settings or limits) or something else; move it "
                "away, choose another name, or replace it with --force."
            )
    with progress_bars() as bars:
        table = cross_validate(template, cohort, plan, journal=journal, progress=bars)
    document = {"format": FORMAT, "version": VERSION, **table.to_dict()}
    write_text_atomically(out, json_format.dumps(document, indent=2, allow_nan=False) + "\n")
    output = Output()
    output.document(document)
    output.show(str(table), f"table written to {out}")
    return ExitCode.DONE


def _earlier_table(path: Path) -> CrossValidation | None:
    """The table that a file holds; None where it holds none."""
    from ifonly.models.crossval import CrossValidation

    try:
        content = read_json(path)
        return CrossValidation.from_dict(content) if isinstance(content, dict) else None
    except IfonlyError:
        return None


CHECK_EXAMPLES = (
    "ifonly check --model models/sepsis --episodes data/others",
    "ifonly check --model models/sepsis --episodes data/others --by age=50,70 --by gender --out checks/sepsis",
)


def check(
    model: options.ModelFolder,
    episodes: Annotated[
        Path,
        typer.Option(
            "--episodes", metavar="FOLDER", help="A cohort that the model was not fitted to.", show_default=False
        ),
    ],
    thresholds: Annotated[
        Path | None,
        typer.Option(
            "--thresholds",
            metavar="FILE",
            help="Other limits for warnings and failures (YAML); those left out stay.",
            show_default="the package's",
        ),
    ] = None,
    by: options.By = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FOLDER", help="Write check.json, check.txt and figures; an earlier check is replaced."
        ),
    ] = None,
    save: Annotated[
        bool, typer.Option("--save/--no-save", help="Keep the check with the model, where later commands find it.")
    ] = True,
    details: Annotated[bool, typer.Option("--details", help="Tell every place where something was found.")] = False,
    seed: options.Seed = 0,
) -> ExitCode:
    """Check how well a model explains episodes that it has not seen: pass, warn or fail, and why.

    Log-likelihood against plain baselines, the noise against its prior, predictive intervals, courses several steps
    ahead; by feature, action and group. Ends with exit code 6 unless the model passes, perhaps with warnings.
    """
    groupings = options.groupings(by)
    from ifonly.data.store import load_cohort
    from ifonly.evidence.check.check import check_model
    from ifonly.evidence.check.model_check import Level
    from ifonly.evidence.check.thresholds import load_thresholds
    from ifonly.files import check_writable
    from ifonly.models.checkpoint import CHECK, load_model
    from ifonly.report.folders import CHECK_FOLDER, write_check

    limits = None if thresholds is None else load_thresholds(thresholds)
    cohort = load_cohort(episodes)
    checked = load_model(model, schema=cohort.schema)
    if out is not None:
        CHECK_FOLDER.check(out)
        check_writable(out, folder=True)
    if save:
        check_writable(model / CHECK)
    with progress_bars() as bars:
        found = check_model(
            checked,
            cohort,
            thresholds=limits,
            by=groupings,
            seen_in_training=_fitted_to(model, episodes),
            seed=seed,
            progress=bars,
        )
    output = Output()
    output.document(found.to_dict())
    output.show(found.details() if details else str(found))
    if save:
        found.save(model / CHECK)
        output.show(f"kept in {model / CHECK}")
        if found.verdict is Level.FAIL:
            output.show("ifonly solve, cohort and serve now refuse this model, unless --allow-failed-model is given.")
    if out is not None:
        output.show(f"written: {out} ({', '.join(write_check(found, out).files)})")
    return ExitCode.DONE if found.verdict in (Level.PASS, Level.WARN) else ExitCode.NOT_PASSED


def _fitted_to(model: Path, episodes: Path) -> bool:
    """Whether the model's checkpoint names the very table of these episodes as what it was fitted to."""
    from ifonly.data.store import load_metadata
    from ifonly.models.checkpoint import read_metadata

    origin = read_metadata(model)["provenance"].get("cohort")
    return isinstance(origin, dict) and origin.get("sha256") == load_metadata(episodes)["table"]["sha256"]


BEHAVIOUR_EXAMPLES = (
    "ifonly behaviour --episodes data/sepsis --out behaviour/sepsis",
    "ifonly behaviour --episodes data/sepsis --out behaviour/shared --no-states",
)


def behaviour(
    episodes: options.Episodes,
    out: options.Out,
    hidden: options.Hidden = "64",
    epochs: options.Epochs = 40,
    states: Annotated[
        bool,
        typer.Option(
            "--states/--no-states",
            help="Keep recorded states, scaled and without ids, to tell how far others lie from them. They are "
            "patients' data.",
        ),
    ] = True,
    seed: options.Seed = 0,
    force: options.Force = False,
) -> ExitCode:
    """Learn what this cohort's clinicians do in which state, and how well that is known.

    With --behaviour, `ifonly solve` and `ifonly cohort` then tell how usual each change would have been where it is
    made, and a query file's `min_support` keeps out what hardly anybody does. --hidden none is a logistic regression.
    """
    widths = options.widths(hidden)
    require_free(folder=out, force=force)
    from ifonly.data.store import load_cohort
    from ifonly.evidence.behaviour import BehaviourSettings, fit_behaviour, save_behaviour
    from ifonly.records import to_plain
    from ifonly.study.stages import origin_of

    cohort = load_cohort(episodes)
    settings = BehaviourSettings(hidden=widths, epochs=epochs, keep_states=states)
    with progress_bars() as bars:
        learned = fit_behaviour(cohort, settings=settings, seed=seed, progress=bars)
    origin = {"made by": "ifonly behaviour", "seed": seed, "epochs": epochs, "cohort": origin_of(episodes)}
    save_behaviour(learned, out, provenance=origin, overwrite=force)
    output = Output()
    output.document({"out": str(out), "fingerprint": learned.fingerprint, "report": to_plain(learned.report)})
    output.show(str(learned), f"written: {out}")
    return ExitCode.DONE
