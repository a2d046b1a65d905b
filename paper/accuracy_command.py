"""The command that compares learned models with the simulated truth: `accuracy`."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ifonly.cli import options
from ifonly.cli.drawing import Bars, progress_bars
from ifonly.cli.frame import ExitCode, Output, require_free

if TYPE_CHECKING:
    from paper.accuracy import StudySettings

ACCURACY_EXAMPLES = (
    "ifonly accuracy --sizes 250,1000 --solve 10 --out accuracy.json",
    "ifonly accuracy --model models/sepsis --patients 100 --horizon 10 -k 2",
)


def accuracy(
    model: Annotated[
        Path | None,
        typer.Option("--model", metavar="FOLDER", help="Judge this stored model, instead of fitting new ones."),
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            metavar="NUMBERS",
            help="Fit to cohorts of so many simulated patients.",
            show_default="250,1000,4000",
        ),
    ] = None,
    patients: Annotated[int, typer.Option("--patients", metavar="N", min=1, help="Other patients to test on.")] = 200,
    solved: Annotated[
        int, typer.Option("--solve", metavar="N", min=0, help="How many of them get a recommendation.")
    ] = 30,
    horizon: Annotated[int, typer.Option("--horizon", metavar="N", min=2, help="Steps of the test patients.")] = 12,
    max_changes: Annotated[
        int, typer.Option("--max-changes", "-k", metavar="N", min=1, help="Changes per question, at most.")
    ] = 3,
    sequences: Annotated[
        int, typer.Option("--sequences", metavar="N", min=1, help="Random questions per test patient.")
    ] = 20,
    epochs: options.Epochs = 100,
    seed: options.Seed = 0,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write everything as JSON.")] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> ExitCode:
    """Compare counterfactuals of learned models with the truth of the simulated world.

    How far off are the states that a learned model says would have followed other treatment? And how much of the
    improvement that was truly possible does its recommendation bring about? By default for models fitted to cohorts of
    growing size.
    """
    if model is not None and sizes is not None:
        raise typer.BadParameter("--model and --sizes exclude each other.")
    chosen = options.whole_numbers(sizes or "250,1000,4000", "--sizes")
    require_free(out, force=force)
    from ifonly.files import write_text_atomically
    from paper.accuracy import StudySettings, accuracy_by_cohort_size

    settings = StudySettings(
        patients=patients,
        solved=min(solved, patients),
        horizon=horizon,
        max_changes=max_changes,
        sequences=sequences,
        epochs=epochs,
        seed=seed,
    )
    with progress_bars() as bars:
        if model is None:
            study = accuracy_by_cohort_size(chosen, settings, progress=bars)
            document, text = study.to_dict(), str(study)
        else:
            document, text = _judge(model, settings, bars)
    if out is not None:
        write_text_atomically(out, json_format.dumps(document, indent=2, allow_nan=False) + "\n")
    output = Output(json)
    output.document(document)
    output.show(text)
    return ExitCode.DONE


def _judge(folder: Path, settings: StudySettings, bars: Bars) -> tuple[dict[str, Any], str]:
    """Compare one stored model with the truth: as a document and as text."""
    from ifonly.models.checkpoint import load_model
    from ifonly.simulate import SepsisWorld, sepsis_schema, simulate_cohort
    from paper.accuracy import counterfactual_accuracy, recommendation_quality
    from paper.accuracy.study import TEST_SEED

    learned = load_model(folder, schema=sepsis_schema())
    world = SepsisWorld()
    test = simulate_cohort(settings.patients, seed=settings.seed + TEST_SEED, horizon=settings.horizon, progress=bars)
    states = counterfactual_accuracy(
        world,
        learned,
        test,
        changes=settings.max_changes,
        sequences=settings.sequences,
        seed=settings.seed,
        progress=bars,
    )
    document: dict[str, Any] = {"model": learned.fingerprint(), "states": states.to_dict(), "recommendations": None}
    if not settings.solved:
        return document, str(states)
    asked = [test[position] for position in range(settings.solved)]
    advice = recommendation_quality(world, learned, asked, max_changes=settings.max_changes, progress=bars)
    return document | {"recommendations": advice.to_dict()}, f"{states}\n\n{advice}"
