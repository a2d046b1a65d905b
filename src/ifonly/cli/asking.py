"""Options of the commands that ask about episodes: what is asked, and by which solver it is answered."""

from pathlib import Path
from typing import Annotated

import typer

from ifonly.cli.questions import DEFAULT_FEATURE
from ifonly.cli.solvers import SAMPLES, SolverName, Strategy

RULES_PANEL, SOLVER_PANEL = "Which sequences may be considered", "The solver"
LIMITS_PANEL, TRUST_PANEL = "Limits", "How far to trust it"

MaxChanges = Annotated[
    str, typer.Option("--max-changes", "-k", metavar="N", help="At most this many changes; none: no limit.")
]
Minimize = Annotated[
    str | None,
    typer.Option(
        "--minimize",
        metavar="FEATURE",
        help="Make the sum of this feature small.",
        show_default=f"{DEFAULT_FEATURE}, where there is one",
    ),
]
Maximize = Annotated[
    str | None, typer.Option("--maximize", metavar="FEATURE", help="Make the sum of this feature large.")
]
Weights = Annotated[
    list[str] | None,
    typer.Option(
        "--weight",
        metavar="FEATURE=NUMBER",
        help="Make the sum of features times weights large, in original units; may be repeated.",
    ),
]
Costs = Annotated[
    list[str] | None,
    typer.Option(
        "--cost",
        metavar="ACTION=NUMBER",
        help="Subtract so much for each step with this action, by its number or label; may be repeated.",
    ),
]
ChangeCost = Annotated[
    float, typer.Option("--change-cost", metavar="X", min=0, help="Subtract so much for each changed step.")
]
FixLastAction = Annotated[
    bool,
    typer.Option(
        "--fix-last-action",
        help="Keep the last step's action, such as a discharge.",
        rich_help_panel=RULES_PANEL,
    ),
]
Lock = Annotated[
    list[int] | None,
    typer.Option(
        "--lock",
        metavar="STEP",
        min=0,
        help="Keep the action of this step; may be repeated.",
        rich_help_panel=RULES_PANEL,
    ),
]
Require = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="STEP=ACTION",
        help="Take this action, by its number or label, at this step; may be repeated.",
        rich_help_panel=RULES_PANEL,
    ),
]
Forbid = Annotated[
    list[str] | None,
    typer.Option(
        "--forbid",
        metavar="[STEP:]ACTION",
        help="Never change to this action, at this step or at all; may be repeated.",
        rich_help_panel=RULES_PANEL,
    ),
]
MaxShift = Annotated[
    list[str] | None,
    typer.Option(
        "--max-shift",
        metavar="[AXIS=]N",
        help="At most N levels away from the recorded dose, on every axis or on this one; may be repeated.",
        rich_help_panel=RULES_PANEL,
    ),
]
MaxJump = Annotated[
    list[str] | None,
    typer.Option(
        "--max-jump",
        metavar="[AXIS=]N",
        help="At most N levels away from the dose of the step before, on every axis or on this one; may be repeated.",
        rich_help_panel=RULES_PANEL,
    ),
]
Goal = Annotated[
    str | None,
    typer.Option(
        "--objective",
        metavar="mean|worst|Q",
        help="Of an ensemble, the one sequence that is best for the mean over its refits, for the worst of them, or "
        "for the lower quantile of level Q, such as 0.1.",
        show_default="the ensemble's centre alone is asked",
        rich_help_panel=TRUST_PANEL,
    ),
]
EachRefit = Annotated[
    bool,
    typer.Option(
        "--each-refit",
        help="Of an ensemble, solve the question for each refit, too, and tell how many change the same steps.",
        rich_help_panel=TRUST_PANEL,
    ),
]
Behaviour = Annotated[
    Path | None,
    typer.Option(
        "--behaviour",
        metavar="FOLDER",
        help="What `ifonly behaviour` learned: tell how usual each change would have been where it is made.",
        rich_help_panel=TRUST_PANEL,
    ),
]
MinSupport = Annotated[
    float | None,
    typer.Option(
        "--min-support",
        metavar="P",
        help="Never change to an action less likely than this at the state then reached, such as 0.01.",
        rich_help_panel=TRUST_PANEL,
    ),
]
Sensitive = Annotated[
    bool,
    typer.Option(
        "--sensitivity",
        help="How large an unrecorded influence would have to be to undo the gain.",
        rich_help_panel=TRUST_PANEL,
    ),
]
AllowFailedModel = Annotated[
    bool,
    typer.Option(
        "--allow-failed-model",
        help="Ask a model although it failed its check (`ifonly check`); every answer says so.",
        rich_help_panel=TRUST_PANEL,
    ),
]
SolverOption = Annotated[
    SolverName,
    typer.Option(
        "--solver",
        metavar="NAME",
        help=f"{', '.join(SolverName)}. The first four prove that nothing better exists; auto is branch-and-bound, "
        "or the solver that an option given belongs to.",
        rich_help_panel=SOLVER_PANEL,
    ),
]
Samples = Annotated[
    int | None,
    typer.Option(
        "--samples",
        metavar="N",
        min=1,
        help="Random sequences whose states become anchors; for random, sequences to try.",
        show_default=str(SAMPLES),
        rich_help_panel=SOLVER_PANEL,
    ),
]
Anchors = Annotated[
    int | None,
    typer.Option(
        "--anchors",
        metavar="N",
        min=1,
        help="Number of anchors, instead of --samples.",
        rich_help_panel=SOLVER_PANEL,
    ),
]
AnchorPlaces = Annotated[
    Strategy | None,
    typer.Option(
        "--anchor-strategy",
        metavar="NAME",
        help="lipschitz or uniform: how random changes fall on steps; facility: states of the cohort, spread out.",
        show_default="lipschitz",
        rich_help_panel=SOLVER_PANEL,
    ),
]
SharedAnchors = Annotated[
    bool,
    typer.Option(
        "--shared-anchors",
        help="One anchor set for all steps, as in the paper; slow.",
        rich_help_panel=SOLVER_PANEL,
    ),
]
SolverSeed = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="Of the random sequences.", rich_help_panel=SOLVER_PANEL)
]
SolverDevice = Annotated[
    str,
    typer.Option("--device", metavar="NAME", help="cpu, cuda, cuda:1, ...", rich_help_panel=SOLVER_PANEL),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds", metavar="S", min=0, help="Stop each search after this time.", rich_help_panel=LIMITS_PANEL
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(
        "--nodes", metavar="N", min=0, help="Stop each search after this many nodes.", rich_help_panel=LIMITS_PANEL
    ),
]
Gap = Annotated[
    float,
    typer.Option(
        "--gap",
        metavar="GAP",
        min=0,
        help="Stop once nothing can be better by more than this.",
        rich_help_panel=LIMITS_PANEL,
    ),
]
Memory = Annotated[
    float | None,
    typer.Option(
        "--memory",
        metavar="MIB",
        min=0,
        help="Go depth first once open nodes take more than this; branch-and-bound only.",
        rich_help_panel=LIMITS_PANEL,
    ),
]
