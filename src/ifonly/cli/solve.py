"""Commands about single episodes: `solve` and `verify`."""

from __future__ import annotations

import json as json_format
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from ifonly.cli import options
from ifonly.cli.details import BESIDE, Details, show_evidence
from ifonly.cli.drawing import Watching, progress_bars, progress_lines
from ifonly.cli.frame import ExitCode, Output, in_options, note, require_free
from ifonly.cli.queries import QueryOptions
from ifonly.errors import IfonlyError, InputError, StoreError, VerificationError
from ifonly.progress import silent

if TYPE_CHECKING:
    from ifonly.data.cohort import Cohort
    from ifonly.data.episode import Episode
    from ifonly.models.base import TransitionModel
    from ifonly.progress import Progress
    from ifonly.result import Result
    from ifonly.runs.task import Task
    from ifonly.search.contributions import Contributions

SOLVE_EXAMPLES = (
    "ifonly solve --episodes data/sepsis --model models/sepsis --only patient-00007",
    "ifonly solve --episodes data/sepsis --model models/sepsis --only patient-00007 -k 2 --plot seven.png",
    "ifonly solve --episodes data/sepsis --model models/sepsis --only patient-00007 --seconds 10 --json",
    "ifonly solve --episodes data/sepsis --model models/sepsis --only patient-00001 --only patient-00002 "
    "--query query.yaml --out results.json",
    "ifonly solve --episodes data/sepsis --model models/sepsis --only patient-00007 --all-budgets --target 60 "
    "--contributions",
    "ifonly solve --episodes data/sepsis --model models/ensemble --only patient-00007 --behaviour behaviour/sepsis",
)


def solve(
    asked: QueryOptions,
    only: options.Only = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write JSON that `ifonly verify` reads.")
    ] = None,
    force: options.Force = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Draw the observed and the counterfactual course; several episodes: one file each, with its id.",
            rich_help_panel=options.MORE,
        ),
    ] = None,
    all_budgets: Annotated[
        bool,
        typer.Option(
            "--all-budgets",
            help="Tell the best with no change, with one, and so on, up to --max-changes.",
            rich_help_panel=options.MORE,
        ),
    ] = False,
    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="X",
            help="The fewest changes that reach this outcome as it is shown, such as a cumulative SOFA of at most 60.",
            rich_help_panel=options.MORE,
        ),
    ] = None,
    contributions: Annotated[
        bool,
        typer.Option(
            "--contributions",
            help="What each change contributes: alone, with the others, and as its fair share.",
            rich_help_panel=options.MORE,
        ),
    ] = False,
    log: Annotated[
        bool,
        typer.Option(
            "--log",
            help="Tell the search line by line on stderr, in place of progress bars.",
            rich_help_panel=options.MORE,
        ),
    ] = False,
    device: options.Device = "cpu",
) -> ExitCode:
    """Find the best action sequence with at most k changes, and prove that nothing better exists.

    With Ctrl-C, or at a limit, the best sequence so far is shown with the bracket that holds the optimum. Rules,
    weights, alternatives, the solver and all else are said in a query file.
    """
    ids = options.chosen_ids(only)
    if ids is None:
        raise typer.BadParameter("--only: say which episode.")
    check_plot_name(plot)
    plots = _plot_names(plot, ids)
    require_free(out, *plots.values(), force=force)
    from ifonly.data.store import load_cohort

    cohort = load_cohort(asked.episodes)
    details = Details(all_budgets=all_budgets, target=target)
    task = _task(asked, cohort, device)
    details.check(task.query)
    wanted = [cohort[id] for id in ids]
    for episode in wanted:  # a wrong step shows before the first search, not after it
        task.query.constraints.allowed(episode)
        task.query.constraints.links(episode)
    with progress_lines() if log else progress_bars() as shown:
        answers = ask(task, wanted, contributions=contributions, shown=shown)
    return _deliver(answers, Delivery(details, len(wanted) == 1, out, plots))


def _task(asked: QueryOptions, cohort: Cohort, device: str) -> Task:
    """The question, with all that would be refused for every episode refused by now."""
    from ifonly.models.checkpoint import load_model
    from ifonly.runs.settings import RunSettings
    from ifonly.runs.task import Task
    from ifonly.search.solvers import make_solver

    RunSettings(device=device)  # refuses a device that is not there
    query = asked.build(cohort.schema)
    task = Task(
        model=load_model(asked.model, schema=cohort.schema).for_search(device),
        query=query,
        solver=make_solver(query.solver, pool=cohort.states),
        device=device,
        behaviour=asked.learned_behaviour(cohort.schema),
    )
    task.check(cohort)
    return task


@dataclass(frozen=True)
class Answers:
    """The results found, the episodes that failed and why, and whether Ctrl-C ended the work before all were done."""

    results: list[Result] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    contributions: dict[str, Contributions] = field(default_factory=dict)
    """What the changes contribute, by episode, where that was asked for."""
    interrupted: bool = False
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


def ask(task: Task, episodes: Sequence[Episode], *, contributions: bool = False, shown: Watching) -> Answers:
    """Solve episode after episode; an episode that fails costs no other, and Ctrl-C keeps what is known by then."""
    from ifonly.result import Status

    answers = Answers()
    for position, episode in enumerate(episodes):
        try:
            _answer(task, episode, answers, contributions=contributions, shown=shown)
        except IfonlyError as error:
            answers.failed[episode.id] = str(error)
        except KeyboardInterrupt:
            known = any(result.episode == episode.id for result in answers.results)
            missing = tuple(one.id for one in episodes[position + known :])
            return replace(answers, interrupted=True, missing=missing)
        if answers.results and answers.results[-1].status is Status.INTERRUPTED:
            return replace(answers, interrupted=True, missing=tuple(one.id for one in episodes[position + 1 :]))
    return answers


def _answer(task: Task, episode: Episode, answers: Answers, *, contributions: bool, shown: Watching) -> None:
    """Solve one episode, examine the answer, and keep what is known: the result counts as soon as it is found."""
    from ifonly.evidence import examine
    from ifonly.problem import build_problem
    from ifonly.result import Status
    from ifonly.search.contributions import contributions as contributions_of
    from ifonly.search.solve import solve as solve_problem

    query = task.query
    problem = build_problem(episode, task.model, query, support=task.behaviour, device=task.device)
    result = solve_problem(problem, task.solver, progress=shown.about(episode.id))
    answers.results.append(result)
    if contributions:
        try:
            answers.contributions[episode.id] = contributions_of(problem, result.actions)
        except InputError as error:
            answers.failed[episode.id] = str(error)
    if result.status is not Status.INTERRUPTED:
        evidence = examine(
            problem,
            result,
            behaviour=task.behaviour,
            solver=task.solver,
            progress=shown.about(episode.id, "refits") if query.each_refit else silent,
        )
        answers.results[-1] = replace(result, evidence=evidence)


@dataclass(frozen=True)
class Delivery:
    """Where answers go, and what is told beside the best sequences."""

    details: Details
    single: bool
    """Whether one episode was asked about: then the document is a result, not a list."""
    out: Path | None
    plots: Mapping[str, Path]


def _deliver(answers: Answers, delivery: Delivery) -> ExitCode:
    """Write files first, then show: whoever sees a result may rely on its file."""
    from ifonly.files import write_text_atomically

    for message in answers.failed.values():
        note("error", in_options(message), style="bold red")
    if not answers.results:
        if answers.interrupted:
            raise KeyboardInterrupt
        return answers.exit_code
    out, plots, output = delivery.out, delivery.plots, Output()
    shares = answers.contributions
    documents = [
        result.to_dict() | delivery.details.document(result, shares.get(result.episode)) for result in answers.results
    ]
    content: Any = documents[0] if delivery.single else documents
    if out is not None:
        write_text_atomically(out, json_format.dumps(content, indent=2, allow_nan=False) + "\n")
    for result in answers.results:
        if result.episode in plots:
            draw_course(result, plots[result.episode])
    output.document(content)
    show_results(answers.results, output)
    for result in answers.results:
        output.show(*delivery.details.shown(result, shares.get(result.episode)))
        # Of one answer all details; of several a line each, with the details in their JSON.
        show_evidence(result, output, full=delivery.single)
    for path in (out, *(plots[result.episode] for result in answers.results if plots)):
        if path is not None:
            output.show(f"written: {path}")
    if answers.missing:
        note("interrupted", f"not solved: {', '.join(answers.missing)}", style="bold red")
    return answers.exit_code


def show_results(results: Sequence[Result], output: Output) -> None:
    """One result in words; several as a table."""
    from ifonly.text.results import statement

    if len(results) == 1:
        output.show(f"{results[0].episode}: {results[0]}", statement(results[0]))
    else:
        from ifonly.report.tables import results_table

        output.show(results_table(results))


def check_plot_name(path: Path | None) -> None:
    """Refuse a name that no figure can have before hours of work end in it."""
    if path is not None:
        from ifonly.report.plots import FORMATS

        if path.suffix.lower().removeprefix(".") not in FORMATS:
            names = ", ".join("." + kind for kind in FORMATS)
            raise typer.BadParameter(f"--plot {path}: the name must end in {names}.")


def draw_course(result: Result, path: Path) -> None:
    """Plot one result."""
    from ifonly.report.plots import plot_episode, save_figure

    save_figure(plot_episode(result), path)


def file_name(id: str) -> str:
    """An episode's id as part of a file name.

    >>> file_name("ward 3/bed 1")
    'ward%203%2Fbed%201'
    """
    return quote(id, safe="")


def _plot_names(plot: Path | None, ids: Sequence[str]) -> dict[str, Path]:
    """The plot's file for each episode; several get their ids, as safe file names, behind the name."""
    if plot is None:
        return {}
    if len(ids) == 1:
        return {ids[0]: plot}
    return {id: plot.with_stem(f"{plot.stem}-{file_name(id)}") for id in ids}


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    try:
        return json_format.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{path}: cannot be read ({error}).") from None
    except json_format.JSONDecodeError as error:
        raise StoreError(f"{path}: not valid JSON ({error}); the file may be cut off.") from None


def results_from(path: Path, content: Any) -> list[Result]:
    """The results that the content of a file describes: one, or a list of them."""
    from ifonly.result import Result

    items = content if isinstance(content, list) else [content]
    if not items or not all(isinstance(item, dict) for item in items):
        raise StoreError(f"{path}: holds no result; expected what `ifonly solve --out` writes.")
    own = [{name: value for name, value in item.items() if name not in BESIDE} for item in items]
    try:
        return [Result.from_dict(item) for item in own]
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from None


VERIFY_EXAMPLES = ("ifonly verify result.json --episodes data/sepsis --model models/sepsis",)


def verify(
    result: Annotated[Path, typer.Argument(metavar="RESULT", help="A file that `ifonly solve --out` wrote.")],
    episodes: options.Episodes,
    model: options.ModelFolder,
    behaviour: options.Behaviour = None,
    enumerate_up_to: Annotated[
        int,
        typer.Option(
            "--enumerate-up-to", metavar="N", min=0, help="Try every sequence where there are at most this many."
        ),
    ] = 5_000_000,
) -> ExitCode:
    """Check results again, from the model and the episodes alone.

    Sequences are replayed and bounds attacked by other searches, by enumerating every sequence where that is feasible;
    only then is the proof repeated, and the answer says which it was. Results with a min_support need the same
    --behaviour as was solved with.
    """
    from ifonly.data.store import load_cohort
    from ifonly.models.checkpoint import load_model

    results = results_from(result, read_json(result))
    cohort = load_cohort(episodes)
    learned = load_model(model, schema=cohort.schema).for_search()
    with progress_bars() as bars:
        documents = [
            _verified(one, cohort[one.episode], learned, behaviour, enumerate_up_to, bars.about(one.episode))
            for one in results
        ]
    output = Output()
    output.document(documents)
    for document in documents:
        output.show(document["statement"])
    return ExitCode.DONE if all(document["verified"] for document in documents) else ExitCode.NOT_VERIFIED


def _verified(
    result: Result,
    episode: Episode,
    model: TransitionModel,
    behaviour: Path | None,
    enumerate_up_to: int,
    progress: Progress,
) -> dict[str, Any]:
    """What came of verifying one result."""
    from ifonly.evidence.behaviour import load_behaviour
    from ifonly.search.verify import verify as verify_result

    support = None
    if result.query.min_support is not None:
        if behaviour is None:
            raise InputError(
                f"the result for episode {result.episode!r} has only changes with a probability of at least "
                f"{result.query.min_support:g} (min_support); to check it, name the behaviour model that says so: "
                "--behaviour FOLDER."
            )
        support = load_behaviour(behaviour, schema=model.schema)
    try:
        found = verify_result(
            result, episode, model, support=support, exhaustive_up_to=enumerate_up_to, progress=progress
        )
    except VerificationError as error:
        return {"episode": result.episode, "verified": False, "statement": in_options(str(error)), "checks": []}
    return {
        "episode": result.episode,
        "verified": True,
        "proof_repeated": found.proof_repeated,
        "statement": str(found),
        "checks": [asdict(check) for check in found.checks],
    }
