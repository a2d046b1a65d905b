"""The command that answers questions about episodes: `solve`."""

from __future__ import annotations

import json as json_format
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ifonly.cli import options
from ifonly.cli.drawing import Bars, progress_bars
from ifonly.cli.frame import ExitCode, Output, note, require_free
from ifonly.cli.questions import DEFAULT_FEATURE, Question, RewardChoice, read_choices
from ifonly.cli.results import check_plot_name, draw_course, file_name, show_results
from ifonly.cli.solvers import SAMPLES, SolverChoice, SolverName, Strategy
from ifonly.errors import IfonlyError, InputError

if TYPE_CHECKING:
    from ifonly.episodes.episode import Episode
    from ifonly.models.base import TransitionModel
    from ifonly.search.base import Solver
    from ifonly.search.result import Result

SOLVER_PANEL, LIMITS_PANEL, OUTPUT_PANEL = "The solver", "Limits", "Output"


SOLVE_EXAMPLES = (
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00007",
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00007 -k 2 --plot seven.png",
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00007 --seconds 10 --json",
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00007 --weight SOFA=-1 "
    "--weight MAP=0.02 --cost 24=0.5 --allowed allowed.json",
    "ifonly solve --episodes data/sepsis --model models/sepsis --episode patient-00001 --episode patient-00002 "
    "--solver greedy --out results.json",
)


def solve(
    episodes: options.Episodes,
    model: options.ModelFolder,
    episode: Annotated[
        list[str], typer.Option("--episode", metavar="ID", help="Which episode; may be repeated.", show_default=False)
    ],
    max_changes: Annotated[
        int, typer.Option("--max-changes", "-k", metavar="N", min=0, help="At most this many changes.")
    ] = 3,
    minimize: Annotated[
        str | None,
        typer.Option(
            "--minimize",
            metavar="FEATURE",
            help="Make the sum of this feature small.",
            show_default=f"{DEFAULT_FEATURE}, where there is one",
        ),
    ] = None,
    maximize: Annotated[
        str | None, typer.Option("--maximize", metavar="FEATURE", help="Make the sum of this feature large.")
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(
            "--weight",
            metavar="FEATURE=NUMBER",
            help="Make the sum of features times weights large, in original units; may be repeated.",
        ),
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            "--cost",
            metavar="ACTION=NUMBER",
            help="Subtract so much for each step with this action, by its number or label; may be repeated.",
        ),
    ] = None,
    fix_last_action: Annotated[
        bool, typer.Option("--fix-last-action", help="Keep the last step's action, such as a discharge.")
    ] = False,
    lock: Annotated[
        list[int] | None,
        typer.Option("--lock", metavar="STEP", min=0, help="Keep the action of this step; may be repeated."),
    ] = None,
    allowed: Annotated[
        Path | None,
        typer.Option(
            "--allowed",
            metavar="FILE",
            help="JSON that lists, for some steps of one episode, the actions allowed besides the recorded one, by "
            'number or label: {"3": [0, 5], "4": []}.',
        ),
    ] = None,
    solver: Annotated[
        SolverName,
        typer.Option(
            "--solver",
            metavar="NAME",
            help=f"{', '.join(SolverName)}; the first two prove that nothing better exists.",
            rich_help_panel=SOLVER_PANEL,
        ),
    ] = SolverName.ANCHOR_ASTAR,
    samples: Annotated[
        int | None,
        typer.Option(
            "--samples",
            metavar="N",
            min=1,
            help="Random sequences whose states become anchors; for random, sequences to try.",
            show_default=str(SAMPLES),
            rich_help_panel=SOLVER_PANEL,
        ),
    ] = None,
    anchors: Annotated[
        int | None,
        typer.Option(
            "--anchors",
            metavar="N",
            min=1,
            help="Number of anchors, instead of --samples.",
            rich_help_panel=SOLVER_PANEL,
        ),
    ] = None,
    anchor_strategy: Annotated[
        Strategy | None,
        typer.Option(
            "--anchor-strategy",
            metavar="NAME",
            help="lipschitz or uniform: how random changes fall on steps; facility: states of the cohort, spread out.",
            show_default="lipschitz",
            rich_help_panel=SOLVER_PANEL,
        ),
    ] = None,
    shared_anchors: Annotated[
        bool,
        typer.Option(
            "--shared-anchors",
            help="One anchor set for all steps, as in the paper; slow.",
            rich_help_panel=SOLVER_PANEL,
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Of the random sequences.", rich_help_panel=SOLVER_PANEL)
    ] = 0,
    device: Annotated[
        str,
        typer.Option("--device", metavar="NAME", help="cpu, cuda, cuda:1, ...", rich_help_panel=SOLVER_PANEL),
    ] = "cpu",
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", metavar="S", min=0, help="Stop each search after this time.", rich_help_panel=LIMITS_PANEL
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(
            "--nodes", metavar="N", min=0, help="Stop each search after this many nodes.", rich_help_panel=LIMITS_PANEL
        ),
    ] = None,
    gap: Annotated[
        float,
        typer.Option(
            "--gap",
            metavar="GAP",
            min=0,
            help="Stop once nothing can be better by more than this.",
            rich_help_panel=LIMITS_PANEL,
        ),
    ] = 0.0,
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
    choice = SolverChoice(solver, samples, anchors, anchor_strategy, shared_anchors, seed)
    better = RewardChoice(minimize, maximize, weight or (), cost or ())
    if allowed is not None and len(set(episode)) > 1:
        raise typer.BadParameter("--allowed is about the steps of one episode; give one --episode.")
    check_plot_name(plot)
    plots = _plot_names(plot, episode)
    require_free(out, *plots.values(), force=force)
    from ifonly.episodes.store import load_cohort
    from ifonly.models.checkpoint import load_model
    from ifonly.search.base import Limits

    cohort = load_cohort(episodes)
    question = Question(
        reward=better.build(cohort.schema),
        max_changes=max_changes,
        locked=tuple(lock or ()),
        last_action_fixed=fix_last_action,
        limits=Limits(seconds=seconds, nodes=nodes, gap=gap),
        device=_checked_device(device),
        choices={} if allowed is None else read_choices(allowed, cohort.schema),
    )
    wanted = [cohort[id] for id in dict.fromkeys(episode)]
    for item in wanted:
        question.allowed(item)  # a wrong step shows before the first search, not after it
    learned = load_model(model, schema=cohort.schema).for_search(device)
    with progress_bars() as bars:
        answers = ask(question, wanted, learned, choice.build(cohort), bars=bars)
    return _deliver(answers, single=len(wanted) == 1, out=out, plots=plots, output=Output(json))


@dataclass(frozen=True)
class Answers:
    """The results found, the episodes that failed and why, and whether Ctrl-C ended the work before all were done."""

    results: tuple[Result, ...]
    failed: Mapping[str, str]
    interrupted: bool
    missing: tuple[str, ...] = ()
    """Episodes that were not tried, since the work ended before."""

    @property
    def exit_code(self) -> ExitCode:
        """What the shell is told."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if self.failed:
            return ExitCode.BAD_INPUT
        at_limit = any(result.status.at_limit for result in self.results)
        return ExitCode.LIMIT_REACHED if at_limit else ExitCode.DONE


def ask(
    question: Question, episodes: Sequence[Episode], model: TransitionModel, solver: Solver, *, bars: Bars
) -> Answers:
    """Solve episode after episode; an episode that fails costs no other, and Ctrl-C keeps what is known by then."""
    from ifonly.problem import Problem
    from ifonly.search.result import Status
    from ifonly.search.solve import solve as solve_problem

    results: list[Result] = []
    failed: dict[str, str] = {}

    def interrupted() -> Answers:
        done = len(results) + len(failed)
        return Answers(tuple(results), failed, True, tuple(episode.id for episode in episodes[done:]))

    def answer(episode: Episode) -> Result:
        problem = Problem.from_episode(
            episode,
            model,
            question.reward,
            question.max_changes,
            allowed=question.allowed(episode),
            last_action_fixed=question.last_action_fixed,
            device=question.device,
        )
        return solve_problem(problem, solver, limits=question.limits, progress=bars.about(episode.id))

    try:
        for episode in episodes:
            try:
                results.append(answer(episode))
            except IfonlyError as error:
                failed[episode.id] = str(error)
            if results and results[-1].status is Status.INTERRUPTED:
                return interrupted()
    except KeyboardInterrupt:
        return interrupted()
    return Answers(tuple(results), failed, interrupted=False)


def _deliver(
    answers: Answers, *, single: bool, out: Path | None, plots: Mapping[str, Path], output: Output
) -> ExitCode:
    """Write files first, then show: whoever sees a result may rely on its file."""
    from ifonly.files import write_text_atomically

    for message in answers.failed.values():
        note("error", message, style="bold red")
    if not answers.results:
        if answers.interrupted:
            raise KeyboardInterrupt
        return answers.exit_code
    documents = [result.to_dict() for result in answers.results]
    content: Any = documents[0] if single else documents
    if out is not None:
        write_text_atomically(out, json_format.dumps(content, indent=2, allow_nan=False) + "\n")
    for result in answers.results:
        if result.episode_id in plots:
            draw_course(result, plots[result.episode_id])
    output.document(content)
    show_results(answers.results, output)
    for path in (out, *(plots[result.episode_id] for result in answers.results if plots)):
        if path is not None:
            output.show(f"written: {path}")
    if answers.missing:
        note("interrupted", f"not solved: {', '.join(answers.missing)}", style="bold red")
    return answers.exit_code


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
