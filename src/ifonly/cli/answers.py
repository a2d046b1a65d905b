"""From a question about episodes to answers, and from answers to files and the screen."""

from __future__ import annotations

import json as json_format
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ifonly.cli.details import Details
from ifonly.cli.drawing import Watching
from ifonly.cli.frame import ExitCode, Output, note
from ifonly.cli.questions import Question
from ifonly.cli.results import draw_course, show_results
from ifonly.errors import IfonlyError
from ifonly.progress import silent

if TYPE_CHECKING:
    from ifonly.data.episode import Episode
    from ifonly.evidence import Trust
    from ifonly.models.base import TransitionModel
    from ifonly.result import Result
    from ifonly.search.base import Solver
    from ifonly.search.contributions import Contributions


@dataclass(frozen=True)
class Answers:
    """The results found, the episodes that failed and why, and whether Ctrl-C ended the work before all were done."""

    results: tuple[Result, ...]
    failed: Mapping[str, str]
    interrupted: bool
    missing: tuple[str, ...] = ()
    """Episodes that were not tried, since the work ended before."""
    contributions: Mapping[str, Contributions] = field(default_factory=dict)
    """What the changes contribute, by episode, where that was asked for."""
    trust: Mapping[str, Trust] = field(default_factory=dict)
    """How far to trust the answers, by episode, where anything is known of that; `results` have it too."""

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
    question: Question,
    episodes: Sequence[Episode],
    model: TransitionModel,
    solver: Solver,
    *,
    shown: Watching,
) -> Answers:
    """Solve episode after episode; an episode that fails costs no other, and Ctrl-C keeps what is known by then."""
    from ifonly.result import Status
    from ifonly.search.solve import solve as solve_problem

    results: list[Result] = []
    failed: dict[str, str] = {}

    def interrupted() -> Answers:
        done = len(results) + len(failed)
        return Answers(tuple(results), failed, True, tuple(episode.id for episode in episodes[done:]))

    def answer(episode: Episode) -> Result:
        problem = question.about(episode, model)
        return solve_problem(problem, solver, limits=question.limits, progress=shown.about(episode.id))

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


def with_contributions(
    answers: Answers, question: Question, episodes: Sequence[Episode], model: TransitionModel
) -> Answers:
    """The same answers and what their changes contribute; where that cannot be said, the result stays."""
    from ifonly.search.contributions import contributions

    by_id = {episode.id: episode for episode in episodes}
    found: dict[str, Contributions] = {}
    failed = dict(answers.failed)
    for result in answers.results:
        try:
            problem = question.about(by_id[result.episode_id], model)
            found[result.episode_id] = contributions(problem, result.actions)
        except IfonlyError as error:
            failed[result.episode_id] = str(error)
    return replace(answers, contributions=found, failed=failed)


def with_trust(
    answers: Answers,
    question: Question,
    episodes: Sequence[Episode],
    model: TransitionModel,
    solver: Solver,
    *,
    shown: Watching,
) -> Answers:
    """The same answers and how far to trust them; where that cannot be said, the result stays, as after Ctrl-C."""
    examination = question.examination
    if examination is None or not examination.has_answers(model) or answers.interrupted:
        return answers
    by_id = {episode.id: episode for episode in episodes}
    found: dict[str, Trust] = {}
    failed = dict(answers.failed)
    interrupted = False
    for result in answers.results:
        id = result.episode_id
        progress = shown.about(id, "refits") if examination.each_refit else silent
        try:
            problem = question.about(by_id[id], model)
            found[id] = examination.of(problem, result, limits=question.limits, solver=solver, progress=progress)
        except IfonlyError as error:
            failed[id] = str(error)
        except KeyboardInterrupt:
            interrupted = True
            break
    told = tuple(
        replace(result, trust=found[result.episode_id].to_dict()) if result.episode_id in found else result
        for result in answers.results
    )
    return replace(answers, results=told, trust=found, failed=failed, interrupted=interrupted)


@dataclass(frozen=True)
class Delivery:
    """Where answers go, and what is told beside the best sequences."""

    details: Details
    single: bool
    """Whether one episode was asked about: then the document is a result, not a list."""
    out: Path | None
    plots: Mapping[str, Path]
    output: Output


def deliver(answers: Answers, delivery: Delivery) -> ExitCode:
    """Write files first, then show: whoever sees a result may rely on its file."""
    from ifonly.files import write_text_atomically

    for message in answers.failed.values():
        note("error", message, style="bold red")
    if not answers.results:
        if answers.interrupted:
            raise KeyboardInterrupt
        return answers.exit_code
    out, plots, output = delivery.out, delivery.plots, delivery.output
    shares = answers.contributions
    documents = [
        result.to_dict() | delivery.details.document(result, shares.get(result.episode_id))
        for result in answers.results
    ]
    content: Any = documents[0] if delivery.single else documents
    if out is not None:
        write_text_atomically(out, json_format.dumps(content, indent=2, allow_nan=False) + "\n")
    for result in answers.results:
        if result.episode_id in plots:
            draw_course(result, plots[result.episode_id])
    output.document(content)
    show_results(answers.results, output)
    for result in answers.results:
        output.show(*delivery.details.shown(result, shares.get(result.episode_id)))
        if trust := answers.trust.get(result.episode_id):
            # Of one answer all details; of several a line each, with the details in their JSON.
            output.show(f"\n{result.episode_id}, how far to trust it: {trust if delivery.single else trust.summary}")
    for path in (out, *(plots[result.episode_id] for result in answers.results if plots)):
        if path is not None:
            output.show(f"written: {path}")
    if answers.missing:
        note("interrupted", f"not solved: {', '.join(answers.missing)}", style="bold red")
    return answers.exit_code
