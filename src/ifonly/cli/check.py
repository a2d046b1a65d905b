"""The command that says whether a model may be trusted: `check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output

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
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="FEATURE[=EDGES]",
            help="Look at groups by a feature's value at the first step, too; numbers are cut at their quartiles or at "
            "these edges, such as age=50,70; may be repeated.",
        ),
    ] = None,
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
    json: options.Json = False,
) -> ExitCode:
    """Check how well a model explains episodes that it has not seen: pass, warn or fail, and why.

    Log-likelihood against plain baselines, the noise against its prior, predictive intervals, courses several steps
    ahead; by feature, action and group. Ends with exit code 6 unless the model passes, perhaps with warnings.
    """
    groupings = options.groupings(by or ())
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
    output = Output(json)
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
