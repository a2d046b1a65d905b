"""Commands that learn models: `fit` and `crossval`."""

from __future__ import annotations

import itertools
import json as json_format
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, require_free
from ifonly.cli.results import check_plot_name, read_json
from ifonly.errors import IfonlyError, StoreError

if TYPE_CHECKING:
    from ifonly.data.cohort import Cohort
    from ifonly.data.schema import Schema
    from ifonly.models.base import TrainableModel, TransitionModel
    from ifonly.models.crossval import CrossValidation
    from ifonly.models.fit import FitReport, FitSettings
    from ifonly.progress import Progress


class Kind(StrEnum):
    """The trainable model classes, by the names that checkpoints use."""

    LOCATION_SCALE = "location-scale"
    ADDITIVE = "additive"
    POST_NONLINEAR = "post-nonlinear"
    MONOTONE_FLOW = "monotone-flow"


class Prior(StrEnum):
    """The noise priors, by the names that models know them by."""

    GAUSSIAN = "gaussian"
    INDEPENDENT = "independent"
    LAPLACE = "laplace"


DEFAULT_LIMITS: dict[Kind, tuple[float, ...]] = {
    Kind.LOCATION_SCALE: (1.0, 0.1),
    Kind.ADDITIVE: (1.0,),
    Kind.POST_NONLINEAR: (1.0,),
    Kind.MONOTONE_FLOW: (1.0, 0.1, 0.1, 0.1),
}
"""One Lipschitz limit for each function that a model is made of."""


@dataclass(frozen=True)
class ModelChoice:
    """Which model to fit."""

    kind: Kind
    limits: tuple[float | None, ...] | None
    """None: unconstrained."""
    hidden: tuple[int, ...]
    prior: Prior

    def build(self, schema: Schema) -> TrainableModel:
        """The untrained model."""
        from ifonly.models import Additive, LocationScale, MonotoneFlow, PostNonlinear

        classes: dict[Kind, Any] = {
            Kind.LOCATION_SCALE: LocationScale,
            Kind.ADDITIVE: Additive,
            Kind.POST_NONLINEAR: PostNonlinear,
            Kind.MONOTONE_FLOW: MonotoneFlow,
        }
        single = len(DEFAULT_LIMITS[self.kind]) == 1
        lipschitz = self.limits[0] if self.limits and single else self.limits
        model: TrainableModel = classes[self.kind](
            schema, hidden=self.hidden, prior=self.prior.value, lipschitz=lipschitz
        )
        return model


FIT_EXAMPLES = (
    "ifonly fit --episodes data/sepsis --out models/sepsis",
    "ifonly fit --episodes data/sepsis --out models/loose --lipschitz 1.2,0.2 --plot loss.png",
    "ifonly fit --episodes data/sepsis --out models/ensemble --ensemble 20",
    "ifonly fit --episodes data/sepsis --out models/additive --kind additive --lipschitz 1.0 --epochs 50",
)


def fit(
    episodes: options.Episodes,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where to store the model.", show_default=False)],
    kind: Annotated[
        Kind, typer.Option("--kind", metavar="KIND", help=f"The class of models: {', '.join(Kind)}.")
    ] = Kind.LOCATION_SCALE,
    lipschitz: Annotated[
        str | None,
        typer.Option(
            "--lipschitz",
            metavar="LIMITS",
            help="A limit for each function of the model, or none: location,scale for location-scale; one for "
            "additive and post-nonlinear; location,scale,skewness,tails for monotone-flow.",
            show_default="1.0 for the location, 0.1 for the others",
        ),
    ] = None,
    unconstrained: Annotated[bool, typer.Option("--unconstrained", help="Set no Lipschitz limit.")] = False,
    hidden: options.Hidden = "200",
    prior: Annotated[
        Prior, typer.Option("--prior", metavar="PRIOR", help=f"Of the noise: {', '.join(Prior)}.")
    ] = Prior.GAUSSIAN,
    epochs: options.Epochs = 100,
    batch_size: options.BatchSize = 256,
    learning_rate: options.LearningRate = 0.001,
    validation: Annotated[
        float,
        typer.Option(
            "--validation", metavar="SHARE", help="Share of subjects held out to choose the best epoch; 0: none."
        ),
    ] = 0.1,
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
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw the loss curves.")] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> ExitCode:
    """Fit a causal model of transitions to a cohort, by maximum likelihood.

    The Lipschitz limits make searches provable and fast; `ifonly crossval` shows what they cost in fit.
    """
    choice = ModelChoice(
        kind, _chosen_limits(kind, lipschitz, unconstrained), options.whole_numbers(hidden, "--hidden"), prior
    )
    check_plot_name(plot)
    require_free(plot, folder=out, force=force)
    from ifonly.data.store import load_cohort
    from ifonly.models.checkpoint import save_model
    from ifonly.models.fit import FitSettings

    settings = FitSettings(
        epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, validation=validation, device=device
    )
    cohort = load_cohort(episodes)
    with progress_bars() as bars:
        model = _fitted(choice.build(cohort.schema), cohort, settings, ensemble, seed=seed, progress=bars)
    report = model.fit_report
    assert report is not None
    save_model(model, out, provenance={"made by": "ifonly fit", "cohort": cohort_origin(episodes)}, overwrite=force)
    if plot is not None:
        draw_losses(report, plot)
    output = Output(json)
    output.document({"model": str(out), "fingerprint": model.fingerprint(), "fit_report": model.describe_fit()})
    output.show(
        str(report), *members_of(model), f"{kind.value} {'model' if ensemble is None else 'ensemble'} stored in {out}"
    )
    return ExitCode.DONE


def _fitted(
    model: TrainableModel,
    cohort: Cohort,
    settings: FitSettings,
    members: int | None,
    *,
    seed: int,
    progress: Progress,
) -> TrainableModel:
    """One model, or an ensemble."""
    from ifonly.files import available_cores
    from ifonly.models.fit import fit as fit_model
    from ifonly.models.fit_ensemble import fit_ensemble

    if members is None:
        return fit_model(model, cohort, settings=settings, seed=seed, progress=progress)
    together = replace(settings, threads=available_cores())
    return fit_ensemble(model, cohort, members=members, settings=together, seed=seed, progress=progress)


def members_of(model: TransitionModel) -> list[str]:
    """What there is to say about an ensemble's members; nothing about other models."""
    from ifonly.models.ensemble import Ensemble

    return [model.describe_members()] if isinstance(model, Ensemble) else []


def _chosen_limits(kind: Kind, text: str | None, unconstrained: bool) -> tuple[float | None, ...] | None:
    if unconstrained:
        if text is not None:
            raise typer.BadParameter("--lipschitz and --unconstrained exclude each other.")
        return None
    if text is None:
        return DEFAULT_LIMITS[kind]
    chosen, wanted = options.limits(text, "--lipschitz"), len(DEFAULT_LIMITS[kind])
    if len(chosen) != wanted:
        raise typer.BadParameter(
            f"--lipschitz {text!r}: a {kind.value} model takes {wanted} limit{'s' if wanted > 1 else ''}."
        )
    return chosen


def cohort_origin(folder: Path) -> dict[str, Any]:
    """Which data a model was made from: the checksum of the table, and what is known about its making."""
    from ifonly.data.store import load_metadata

    metadata = load_metadata(folder)
    return {"sha256": metadata["table"]["sha256"], "provenance": metadata["provenance"]}


def draw_losses(report: FitReport, path: Path) -> None:
    """Plot how a fit went."""
    from ifonly.report.plots import plot_fit, save_figure

    save_figure(plot_fit(report), path)


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
    batch_size: options.BatchSize = 256,
    learning_rate: options.LearningRate = 0.001,
    seed: options.Seed = 0,
    device: options.Device = "cpu",
    force: Annotated[bool, typer.Option("--force", help="Start again; replace the table and its journal.")] = False,
    json: options.Json = False,
) -> ExitCode:
    """Cross-validate location-scale models over a grid of Lipschitz limits.

    Shows how much log-likelihood each pair of limits costs, against the unconstrained model. A run that was
    interrupted goes on where it stopped when the same command is given again; a larger grid goes on from a smaller
    one.
    """
    widths = options.whole_numbers(hidden, "--hidden")
    pairs = itertools.product(options.limits(location, "--location"), options.limits(scale, "--scale"))
    journal = out.with_name(f"{out.name}.journal")
    require_free(out, journal, force=force or journal.exists())
    from ifonly.data.store import load_cohort
    from ifonly.files import write_text_atomically
    from ifonly.models import LocationScale
    from ifonly.models.crossval import FORMAT, VERSION, CrossValidationPlan, cross_validate, goes_on_from
    from ifonly.models.fit import FitSettings

    cohort = load_cohort(episodes)
    settings = FitSettings(epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, device=device)
    plan = CrossValidationPlan(grid=list(pairs), folds=folds, seed=seed, fit=settings)
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
    output = Output(json)
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
