"""Commands about single episodes: `solve` and `verify`."""

from __future__ import annotations

import json as json_format
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

import ifonly
from ifonly.cli import options
from ifonly.cli.details import BESIDE, Details, show_evidence
from ifonly.cli.drawing import Lines, Watching, progress_bars
from ifonly.cli.frame import ExitCode, Output, alarm, require_free
from ifonly.cli.options import argument, flag, option
from ifonly.cli.queries import QueryOptions
from ifonly.errors import IfonlyError, InputError, StoreError, VerificationError
from ifonly.files import write_text_atomically
from ifonly.text.catalogue import say

if TYPE_CHECKING:
    from ifonly.evidence.behaviour import BehaviourModel
    from ifonly.problem import BaseProblem
    from ifonly.runs.task import Task
    from ifonly.search.contributions import Contributions


def solve(
    asked: QueryOptions,
    only: options.Only = None,
    out: Annotated[Path | None, option("FILE", "Write JSON that `ifonly verify` reads.")] = None,
    force: options.Force = False,
    plot: Annotated[
        Path | None,
        option(
            "FILE",
            "Plot the observed and the counterfactual course; with several episodes, one file for each, named by id.",
            panel=options.MORE,
        ),
    ] = None,
    all_budgets: Annotated[
        bool,
        flag(
            "--all-budgets",
            "Show the best sequence with no change, with one, and so on up to --max-changes.",
            panel=options.MORE,
        ),
    ] = False,
    target: Annotated[
        float | None,
        option(
            "X",
            "Show the fewest changes that reach this outcome, such as a cumulative SOFA of at most 60.",
            panel=options.MORE,
        ),
    ] = None,
    contributions: Annotated[
        bool,
        flag(
            "--contributions",
            "Show what each change contributes: alone, together with the others, and as a fair share.",
            panel=options.MORE,
        ),
    ] = False,
    proof: Annotated[
        Path | None,
        option(
            "FILE",
            "Write a log of the search for `ifonly verify --proof`; with several episodes, one file for each, named "
            "by id.",
            panel=options.MORE,
        ),
    ] = None,
    log: Annotated[
        bool,
        flag("--log", "Log the search line by line to stderr instead of showing progress bars.", panel=options.MORE),
    ] = False,
    device: options.Device = "cpu",
) -> ExitCode:
    """Find the best action sequence with at most k changes, and prove that nothing better exists.

    At a limit, or with Ctrl-C, the best sequence so far is shown, with a bracket that contains the optimum. Rules,
    weights, alternatives, the solver and everything else are set in a query file.

    Examples:
    ifonly solve --episodes data/sepsis --model models/sepsis --only patient-00007
    ifonly solve --episodes data/sepsis --model models/sepsis --only patient-00007 -k 2 --plot seven.png
    ifonly solve --episodes data/sepsis --model models/sepsis --only patient-00007 --seconds 10 --json
    ifonly solve --episodes data/sepsis --model models/sepsis --only patient-00001 --only patient-00002 \\
        --query query.yaml --out results.json
    ifonly solve --episodes data/sepsis --model models/sepsis --only patient-00007 --all-budgets --target 60 \\
        --contributions
    ifonly solve --episodes data/sepsis --model models/ensemble --only patient-00007 --behaviour behaviour/sepsis
    """
    ids = options.chosen_ids(only)
    if ids is None:
        raise typer.BadParameter(f"--only: say which episode{_for_example(asked.episodes)}.")
    check_plot_name(plot)
    plots, proofs = _names_for(plot, ids), _names_for(proof, ids)
    require_free(out, *plots.values(), *proofs.values(), force=force)

    cohort = ifonly.load(asked.episodes)
    details = Details(all_budgets=all_budgets, target=target)
    task = _task(asked, cohort, device)
    details.check(task.query)
    wanted = [cohort[id] for id in ids]
    for episode in wanted:  # a wrong step shows before the first search, not after it
        task.query.constraints.automaton(episode, task.query.budget(len(episode)))
    with nullcontext(Lines()) if log else progress_bars() as shown:
        answers = ask(task, wanted, contributions=contributions, proofs=proofs, shown=shown)
    return _deliver(answers, Delivery(details, len(wanted) == 1, out, plots, proofs))


def _for_example(episodes: Path) -> str:
    """An id of the cohort to begin with; nothing where it cannot be read, since --only is what is complained about."""
    try:
        cohort = ifonly.load(episodes)
    except IfonlyError:
        return ""
    return f", such as --only {cohort.ids[0]} (the first of {len(cohort):,}; `ifonly info {episodes}` names more)"


def _task(asked: QueryOptions, cohort: ifonly.Cohort, device: str) -> Task:
    """The query as a task, checked for everything that would fail for every episode."""
    from ifonly.runs.task import Task
    from ifonly.search.solvers import make_solver

    ifonly.RunSettings(device=device)  # refuses a device that is not there
    query = asked.build(cohort.schema)
    task = Task(
        model=ifonly.load_model(asked.model, schema=cohort.schema).for_search(),
        query=query,
        solver=make_solver(query.solver, pool=cohort.states),
        device=device,
        behaviour=options.learned_behaviour(asked.behaviour, cohort.schema),
    )
    task.check(cohort)
    return task


@dataclass
class Answers:
    """The results, the episodes that failed and why, and whether Ctrl-C ended the work early."""

    results: list[ifonly.Result] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    contributions: dict[str, Contributions] = field(default_factory=dict)
    """The contributions of the changes, by episode, where they were asked for."""
    interrupted: bool = False
    missing: tuple[str, ...] = ()
    """Episodes that the work did not get to."""

    @property
    def exit_code(self) -> ExitCode:
        """The exit code for the shell."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        if self.failed:
            return ExitCode.BAD_INPUT
        at_limit = any(result.status.at_limit for result in self.results)
        return ExitCode.LIMIT_REACHED if at_limit else ExitCode.DONE


def ask(
    task: Task,
    episodes: Sequence[ifonly.Episode],
    *,
    contributions: bool = False,
    proofs: Mapping[str, Path] = MappingProxyType({}),
    shown: Watching,
) -> Answers:
    """Solve one episode after the other; failures are kept apart, and Ctrl-C keeps what has been found."""
    answers = Answers()

    def keep(problem: BaseProblem, result: ifonly.Result) -> None:
        """A result counts from the moment it is found, even if its examination is interrupted."""
        answers.results.append(result)
        if contributions:
            try:
                answers.contributions[result.episode] = ifonly.contributions(problem, result.actions)
            except InputError as error:
                answers.failed[result.episode] = str(error)

    for episode in episodes:
        try:
            watch = partial(shown.about, episode.id)
            result = task.result(episode, watch=watch, found=keep, proof=proofs.get(episode.id))
            answers.results[-1] = result
            answers.interrupted = result.status is ifonly.Status.INTERRUPTED
        except IfonlyError as error:
            answers.failed[episode.id] = str(error)
        except KeyboardInterrupt:
            answers.interrupted = True
        if answers.interrupted:
            known = {*answers.failed, *(result.episode for result in answers.results)}
            answers.missing = tuple(one.id for one in episodes if one.id not in known)
            break
    return answers


@dataclass(frozen=True)
class Delivery:
    """Where answers go, and which details are shown with them."""

    details: Details
    single: bool
    """Whether one episode was asked about: the document is then a result, not a list of them."""
    out: Path | None
    plots: Mapping[str, Path]
    proofs: Mapping[str, Path]


def _deliver(answers: Answers, delivery: Delivery) -> ExitCode:
    """Write files first, then show: a result that is shown has its file."""
    for message in answers.failed.values():
        alarm("error", message)
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
    written = [] if out is None else [out]
    if out is not None:
        write_text_atomically(out, json_format.dumps(content, indent=2, allow_nan=False) + "\n")
    for result in answers.results if plots else ():
        from ifonly.report.plots import save_figure

        save_figure(ifonly.plot_episode(result), plots[result.episode])
        written.append(plots[result.episode])
    written += [path for id, path in delivery.proofs.items() if any(one.episode == id for one in answers.results)]
    output.document(content)
    show_results(answers.results, output)
    for result in answers.results:
        output.show(*delivery.details.shown(result, shares.get(result.episode)))
        # All details of a single answer; one line for each of several, whose details are in the JSON.
        show_evidence(result, output, full=delivery.single)
    output.show(*(say("written", place=path) for path in written))
    if answers.missing:
        alarm("interrupted", say("solve.missing", ids=", ".join(answers.missing)))
    return answers.exit_code


def show_results(results: Sequence[ifonly.Result], output: Output) -> None:
    """One result in words; several as a table."""
    from ifonly.report.tables import results_table
    from ifonly.text.results import statement

    if len(results) == 1:
        output.show(f"{results[0].episode}: {results[0]}", statement(results[0]))
    else:
        output.show(results_table(results))


def check_plot_name(path: Path | None) -> None:
    """Refuse a file name that no figure can have now, not after hours of work."""
    if path is not None:
        from ifonly.report.plots import FORMATS

        if path.suffix.lower().removeprefix(".") not in FORMATS:
            names = ", ".join("." + kind for kind in FORMATS)
            raise typer.BadParameter(f"--plot {path}: the name must end in {names}.")


def _names_for(path: Path | None, ids: Sequence[str]) -> dict[str, Path]:
    """The file of each episode; if there are several, their quoted ids are appended to the name."""
    if path is None:
        return {}
    if len(ids) == 1:
        return {ids[0]: path}
    return {id: path.with_stem(f"{path.stem}-{quote(id, safe='')}") for id in ids}


def results_from(path: Path, content: Any) -> list[ifonly.Result]:
    """The results in the content of a file: one, or a list of them."""
    items = content if isinstance(content, list) else [content]
    if not items or not all(isinstance(item, dict) for item in items):
        raise StoreError(f"{path}: holds no result; expected what `ifonly solve --out` writes.")
    own = [{name: value for name, value in item.items() if name not in BESIDE} for item in items]
    try:
        return [ifonly.Result.from_dict(item) for item in own]
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from None


def verify(
    result: Annotated[Path | None, argument("[RESULT]", "A file that `ifonly solve --out` wrote.")] = None,
    episodes: Annotated[Path | None, option("FOLDER", "The cohort of the result's episodes.")] = None,
    model: Annotated[Path | None, option("FOLDER", "The model that was used.")] = None,
    behaviour: options.Behaviour = None,
    proof: Annotated[Path | None, option("FILE", "A log that `ifonly solve --proof` wrote.")] = None,
    enumerate_up_to: Annotated[int, option("N", "Enumerate all sequences if there are at most N.", min=0)] = 5_000_000,
) -> ExitCode:
    """Check results from scratch, from the model and the episodes alone.

    Sequences are replayed, and the bounds are attacked by other searches and, where feasible, by enumerating all
    sequences; otherwise the proof is repeated. The answer says which it was. Results with a min_support need the
    --behaviour they were solved with.

    With --proof, a log of the search is checked by a program that shares no code with it: every sequence is covered,
    all outcomes are right, and nothing better was cut away. A log can also be checked on its own.

    Examples:
    ifonly verify result.json --episodes data/sepsis --model models/sepsis
    ifonly verify result.json --episodes data/sepsis --model models/sepsis --proof proof.npz
    ifonly verify --proof proof.npz
    """
    if result is None:
        if proof is None:
            raise typer.BadParameter("say what to verify: RESULT, a file that `ifonly solve --out` wrote, or --proof.")
        return _tell_verified([_check_log(proof)])
    if episodes is None or model is None:
        raise typer.BadParameter("a result is checked against its cohort and its model: give --episodes and --model.")
    from ifonly.data.plain import read_plain

    results = results_from(result, read_plain(result, is_json=True))
    if proof is not None and len(results) > 1:
        raise typer.BadParameter(f"--proof {proof}: is of one episode, and {result} holds {len(results)} results.")
    cohort = ifonly.load(episodes)
    learned = ifonly.load_model(model, schema=cohort.schema).for_search()
    usual = options.learned_behaviour(behaviour, cohort.schema)
    documents: list[dict[str, Any]] = []
    with progress_bars() as bars:
        for one in results:
            try:
                found = ifonly.verify(
                    one,
                    cohort[one.episode],
                    learned,
                    support=_support_of(one, usual),
                    proof=proof,
                    exhaustive_up_to=enumerate_up_to,
                    progress=bars.about(one.episode),
                )
            except VerificationError as error:
                documents.append({"episode": one.episode, "verified": False, "statement": str(error), "checks": []})
            else:
                repeated, checks = found.proof_repeated, [asdict(check) for check in found.checks]
                told = {"verified": True, "proof_repeated": repeated, "statement": str(found), "checks": checks}
                documents.append({"episode": one.episode, **told})
    return _tell_verified(documents)


def _check_log(path: Path) -> dict[str, Any]:
    """The findings about a log checked on its own."""
    try:
        with progress_bars() as bars:
            found = ifonly.check_proof(path, progress=bars.about(path.name))
    except VerificationError as error:
        return {"proof": str(path), "verified": False, "statement": str(error)}
    told = {"verified": True, "proof_repeated": found.complete, "statement": str(found)}
    return {"episode": found.episode, "proof": str(path), **told}


def _tell_verified(documents: list[dict[str, Any]]) -> ExitCode:
    Output().tell(documents, *(document["statement"] for document in documents))
    return ExitCode.DONE if all(document["verified"] for document in documents) else ExitCode.NOT_VERIFIED


def _support_of(result: ifonly.Result, behaviour: BehaviourModel | None) -> BehaviourModel | None:
    """The behaviour model that supports the result's changes, where it has a `min_support`."""
    if result.query.min_support is None:
        return None
    if behaviour is None:
        raise InputError(
            f"the result for episode {result.episode!r} allows only changes with a probability of at least "
            f"{result.query.min_support:g} (min_support); to check it, give the behaviour model it was solved with: "
            "--behaviour FOLDER."
        )
    return behaviour
