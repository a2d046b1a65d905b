"""The command that learns what clinicians do, `behaviour`, and what `solve` asks of what it learned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, require_free

if TYPE_CHECKING:
    from ifonly.episodes.schema import Schema
    from ifonly.models.base import TransitionModel
    from ifonly.problem import Problem, Support
    from ifonly.search.result import Result
    from ifonly.support import BehaviourModel
    from ifonly.trust import Sensitivity, SupportReport

BEHAVIOUR_EXAMPLES = (
    "ifonly behaviour --episodes data/sepsis --out behaviour/sepsis",
    "ifonly behaviour --episodes data/sepsis --out behaviour/shared --no-states",
)

HEADINGS = {"support_by_step": "what the data supports", "sensitivity": "what would undo the gain"}
"""What is told about a result's trustworthiness, by its name in JSON."""


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

    `ifonly solve --behaviour` then tells how usual each change would have been where it is made, and keeps out with
    --min-support what hardly anybody does.
    """
    widths = () if hidden.strip().lower() == "none" else options.whole_numbers(hidden, "--hidden")
    require_free(folder=out, force=force)
    from ifonly.episodes.store import load_cohort, load_metadata
    from ifonly.support import BehaviourSettings, fit_behaviour, save_behaviour

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


@dataclass(frozen=True)
class TrustChoice:
    """What a command line asks about an answer's trustworthiness, and of the actions it may use."""

    behaviour: Path | None = None
    min_support: float | None = None
    sensitivity: bool = False

    def __post_init__(self) -> None:
        if self.min_support is not None and self.behaviour is None:
            raise typer.BadParameter("--min-support needs --behaviour, which says how likely actions are.")
        if self.min_support is not None and not 0 < self.min_support <= 1:
            raise typer.BadParameter(f"--min-support {self.min_support:g}: give a probability, above 0 and up to 1.")

    def build(self, schema: Schema, model: TransitionModel) -> Trust:
        """Load what is needed; `model` is the copy that is searched."""
        from ifonly.support import load_behaviour

        learned = None if self.behaviour is None else load_behaviour(self.behaviour, schema=schema)
        support = None
        if learned is not None and self.min_support is not None:
            support = learned.with_threshold(self.min_support, model)
        return Trust(learned, support, self.sensitivity)


@dataclass(frozen=True, eq=False)
class Trust:
    """What to tell about every answer, and what its actions must have behind them."""

    behaviour: BehaviourModel | None
    support: Support | None
    sensitivity: bool

    def about(self, problem: Problem, result: Result) -> dict[str, SupportReport | Sensitivity]:
        """What was asked for, by its name in JSON."""
        from ifonly.trust import sensitivity, support_of

        found: dict[str, SupportReport | Sensitivity] = {}
        if self.behaviour is not None:
            found["support_by_step"] = support_of(problem, result.actions, self.behaviour)
        if self.sensitivity:
            found["sensitivity"] = sensitivity(problem, result.actions)
        return found


def support_for(result: Result, behaviour: Path | None, model: TransitionModel) -> Support | None:
    """The support that a stored result speaks of, from the behaviour model that is said to be behind it."""
    asked: Any = result.support
    if behaviour is None or asked is None or asked.get("kind") != "behaviour":
        return None
    from ifonly.support import load_behaviour

    return load_behaviour(behaviour, schema=model.schema).with_threshold(asked["min_support"], model)
