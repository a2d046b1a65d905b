"""The command that learns what clinicians do: `behaviour`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, require_free

BEHAVIOUR_EXAMPLES = (
    "ifonly behaviour --episodes data/sepsis --out behaviour/sepsis",
    "ifonly behaviour --episodes data/sepsis --out behaviour/shared --no-states",
)


def behaviour(
    episodes: options.Episodes,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where to store it.", show_default=False)],
    hidden: Annotated[
        str,
        typer.Option(
            "--hidden", metavar="WIDTHS", help="Width of each hidden layer, such as 64; none: logistic regression."
        ),
    ] = "64",
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
    json: options.Json = False,
) -> ExitCode:
    """Learn what this cohort's clinicians do in which state, and how well that is known.

    With --behaviour, `ifonly solve` and `ifonly cohort` then tell how usual each change would have been where it is
    made, and keep out with --min-support what hardly anybody does.
    """
    widths = () if hidden.strip().lower() == "none" else options.whole_numbers(hidden, "--hidden")
    require_free(folder=out, force=force)
    from ifonly.data.store import load_cohort, load_metadata
    from ifonly.evidence.behaviour import BehaviourSettings, fit_behaviour, save_behaviour

    cohort = load_cohort(episodes)
    settings = BehaviourSettings(hidden=widths, epochs=epochs, keep_states=states)
    with progress_bars() as bars:
        learned = fit_behaviour(cohort, settings=settings, seed=seed, progress=bars)
    origin = {"seed": seed, "epochs": epochs, "cohort": {"sha256": load_metadata(episodes)["table"]["sha256"]}}
    save_behaviour(learned, out, provenance=origin, overwrite=force)
    output = Output(json)
    output.document({"out": str(out), "fingerprint": learned.fingerprint, "report": learned.report.to_dict()})
    output.show(str(learned), f"written: {out}")
    return ExitCode.DONE
