"""The command that answers questions about episodes: `solve`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ifonly.cli import asking, options
from ifonly.cli.answers import Delivery, ask, deliver, with_contributions, with_trust
from ifonly.cli.asking import RULES_PANEL
from ifonly.cli.details import Details
from ifonly.cli.drawing import progress_bars, progress_lines
from ifonly.cli.frame import ExitCode, Output, require_free
from ifonly.cli.questions import Question, RewardChoice, RuleChoice, changes_limit, read_choices
from ifonly.cli.results import check_plot_name, file_name
from ifonly.cli.solvers import SolverChoice, SolverName
from ifonly.cli.trust import TrustChoice
from ifonly.errors import InputError

MORE_PANEL, OUTPUT_PANEL = "Beside the best sequence", "Output"

SOLVE_EXAMPLES = (
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00007",
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00007 -k 2 --plot seven.png",
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00007 --seconds 10 --json",
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00007 --weight SOFA=-1 "
    "--weight MAP=0.02 --cost 24=0.5 --allowed allowed.json",
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00001 --episode patient-00002 "
    "--solver greedy --out results.json",
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00007 -k none --change-cost 0.5 "
    "--forbid 24 --require 3=7 --max-jump 1 --max-shift fluids=2 --solver greedy",
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00007 --all-budgets --target 60",
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00007 --alternatives 5 --within 0.5 "
    "--contributions --log",
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00007 --behaviour behaviour/sepsis "
    "--min-support 0.01 --sensitivity",
    "ifonly solve --episodes data/sepsis --model models/ensemble --episode patient-00007 --objective worst "
    "--each-refit",
)


def solve(
    episodes: options.Episodes,
    model: options.ModelFolder,
    episode: Annotated[
        list[str], typer.Option("--episode", metavar="ID", help="Which episode; may be repeated.", show_default=False)
    ],
    max_changes: asking.MaxChanges = "3",
    minimize: asking.Minimize = None,
    maximize: asking.Maximize = None,
    weight: asking.Weights = None,
    cost: asking.Costs = None,
    change_cost: asking.ChangeCost = 0.0,
    fix_last_action: asking.FixLastAction = False,
    lock: asking.Lock = None,
    require: asking.Require = None,
    forbid: asking.Forbid = None,
    max_shift: asking.MaxShift = None,
    max_jump: asking.MaxJump = None,
    allowed: Annotated[
        Path | None,
        typer.Option(
            "--allowed",
            metavar="FILE",
            help="JSON that lists, for some steps of one episode, the actions allowed besides the recorded one, by "
            'number or label: {"3": [0, 5], "4": []}.',
            rich_help_panel=RULES_PANEL,
        ),
    ] = None,
    alternatives: Annotated[
        int | None,
        typer.Option(
            "--alternatives",
            metavar="N",
            min=1,
            help="The N best sequences, not only one.",
            rich_help_panel=MORE_PANEL,
        ),
    ] = None,
    within: Annotated[
        float | None,
        typer.Option(
            "--within",
            metavar="X",
            help="All sequences whose outcome is worse than the best by at most this; as many as --alternatives says, "
            "or 1000.",
            rich_help_panel=MORE_PANEL,
        ),
    ] = None,
    all_budgets: Annotated[
        bool,
        typer.Option(
            "--all-budgets",
            help="The best with no change, with one, and so on, up to --max-changes.",
            rich_help_panel=MORE_PANEL,
        ),
    ] = False,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="X",
            help="The fewest changes that reach this outcome as it is shown, such as a cumulative SOFA of at most 60.",
            rich_help_panel=MORE_PANEL,
        ),
    ] = None,
    contributions: Annotated[
        bool,
        typer.Option(
            "--contributions",
            help="What each change contributes: alone, with the others, and as its fair share.",
            rich_help_panel=MORE_PANEL,
        ),
    ] = False,
    objective: asking.Goal = None,
    each_refit: asking.EachRefit = False,
    behaviour: asking.Behaviour = None,
    min_support: asking.MinSupport = None,
    sensitivity: asking.Sensitive = False,
    allow_failed_model: asking.AllowFailedModel = False,
    solver: asking.SolverOption = SolverName.AUTO,
    samples: asking.Samples = None,
    anchors: asking.Anchors = None,
    anchor_strategy: asking.AnchorPlaces = None,
    shared_anchors: asking.SharedAnchors = False,
    seed: asking.SolverSeed = 0,
    device: asking.SolverDevice = "cpu",
    seconds: asking.Seconds = None,
    nodes: asking.Nodes = None,
    gap: asking.Gap = 0.0,
    memory: asking.Memory = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="Write JSON that `ifonly verify` reads.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Draw the observed and the counterfactual course; several episodes: one file each, with its id.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace what exists already.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
    log: Annotated[
        bool,
        typer.Option(
            "--log",
            help="Tell the search line by line on stderr, in place of progress bars.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON document on stdout, and nothing else there.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = False,
) -> ExitCode:
    """Find the best action sequence with at most k changes, and prove that nothing better exists.

    With Ctrl-C, or at a limit, the best sequence so far is shown with the bracket that holds the optimum.
    """
    choice = SolverChoice(
        name=solver,
        samples=samples,
        anchors=anchors,
        strategy=anchor_strategy,
        shared=shared_anchors,
        seed=seed,
        alternatives=alternatives,
        within=within,
        all_budgets=all_budgets,
        target=target,
        memory=memory,
    )
    details = Details(all_budgets=all_budgets, target=target)
    if target is not None and change_cost:
        raise typer.BadParameter("--target counts changes itself; leave --change-cost out.")
    better = RewardChoice(minimize, maximize, weight or (), cost or ())
    rules = RuleChoice(lock or (), require or (), forbid or (), max_shift or (), max_jump or (), fix_last_action)
    trust = TrustChoice(objective, each_refit, behaviour, min_support, sensitivity, allow_failed_model)
    budget = changes_limit(max_changes)
    if allowed is not None and len(set(episode)) > 1:
        raise typer.BadParameter("--allowed is about the steps of one episode; give one --episode.")
    check_plot_name(plot)
    plots = _plot_names(plot, episode)
    require_free(out, *plots.values(), force=force)
    from ifonly.data.store import load_cohort
    from ifonly.models.checkpoint import load_model
    from ifonly.query import Limits

    cohort = load_cohort(episodes)
    device = _checked_device(device)
    learned = load_model(model, schema=cohort.schema).for_search(device)
    chosen, examination = choice.build(cohort), trust.examination(cohort.schema)
    trust.check(learned, chosen, examination)
    question = Question(
        reward=better.build(cohort.schema),
        max_changes=budget,
        constraints=rules.build(cohort.schema),
        limits=Limits(seconds=seconds, nodes=nodes, gap=gap, memory=memory),
        device=device,
        change_cost=change_cost,
        choices={} if allowed is None else read_choices(allowed, cohort.schema),
        objective=trust.goal,
        support=trust.support(learned, examination),
        examination=examination,
        allow_failed_model=allow_failed_model,
    )
    wanted = [cohort[id] for id in dict.fromkeys(episode)]
    for item in wanted:
        question.check(item)  # a wrong step shows before the first search, not after it
    with progress_lines() if log else progress_bars() as shown:
        answers = ask(question, wanted, learned, chosen, shown=shown)
        if contributions:
            answers = with_contributions(answers, question, wanted, learned)
        answers = with_trust(answers, question, wanted, learned, chosen, shown=shown)
    return deliver(answers, Delivery(details, single=len(wanted) == 1, out=out, plots=plots, output=Output(json)))


def _plot_names(plot: Path | None, ids: Sequence[str]) -> dict[str, Path]:
    """The plot's file for each episode; several get their ids, as safe file names, behind the name."""
    if plot is None:
        return {}
    unique = dict.fromkeys(ids)
    if len(unique) == 1:
        return dict.fromkeys(unique, plot)
    return {id: plot.with_stem(f"{plot.stem}-{file_name(id)}") for id in unique}


def _checked_device(name: str) -> str:
    import torch

    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"--device {name}: cannot be used here ({reason}); cpu always can.") from None
    return name
