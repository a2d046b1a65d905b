"""Asking what speaks for an answer and what against it: of one answer, or the same of many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.episode import FloatArray, IntArray
from ifonly.errors import IfonlyError, InputError
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.evidence.calibration import calibration
from ifonly.evidence.coupling import coupling as coupling_of
from ifonly.evidence.honest import honest_gain, honest_gains
from ifonly.evidence.organs import score_gains
from ifonly.evidence.refits import agreement, own_refits, require_exact
from ifonly.evidence.sensitivity import sensitivities
from ifonly.evidence.sensitivity import sensitivity as sensitivity_of
from ifonly.evidence.support import support_of
from ifonly.models.base import TransitionModel
from ifonly.models.ensemble import Ensemble
from ifonly.problem import BaseProblem, EnsembleProblem, HasMembers, Problem, all_on, members_of
from ifonly.progress import Progress, clock, silent
from ifonly.query import Limits, Query
from ifonly.records import finite
from ifonly.result import Coupling, Evidence, LocalCalibration, Result, Sensitivity
from ifonly.result.evidence import ExaminationFailure, Reason
from ifonly.result.verdict import the_rule
from ifonly.search.base import Solver
from ifonly.search.build_result import clipped_outcomes

Found = TypeVar("Found", Coupling, LocalCalibration, Sensitivity)

LEAST_SECONDS = 10.0
"""What a part of an examination may take, however little time a search has."""
_TIMED = ("sensitivity", "coupling")
"""Parts that replay more courses than a search may, and do not search: those that do have limits of their own."""


def examine(
    problem: BaseProblem,
    answer: Result | npt.ArrayLike | Tensor,
    *,
    behaviour: BehaviourModel | None = None,
    refits: Sequence[TransitionModel] | HasMembers | None = None,
    each_refit: bool | None = None,
    honest: bool | None = None,
    sensitivity: bool | None = None,
    coupling: bool | None = None,
    solver: Solver | None = None,
    limits: Limits | None = None,
    progress: Progress = silent,
) -> Evidence:
    """What speaks for an answer to `problem`, a result or its actions [T], and what against it.

    Told is what a check concluded about the model; what the changes gain under each of `refits`, by default the members
    of the ensemble that is asked, and with `each_refit` what these would do themselves (see `agreement` for `solver`
    and `limits`); with `honest`, where the ensemble has members of both halves of the subjects, what a promise owes to
    having been chosen (`honest_gain`); how usual they are, by `behaviour`, and how well the model explains the recorded
    courses that it has kept where they are like this one; whether the organs of a score bear its gain out; with
    `sensitivity` what would undo the gain; and with `coupling` what is left of it where the same noise need not apply
    under another action. Of an ensemble problem, these two and the courses are asked of the member that gains least of
    those that gain anything. What cannot be told of this answer is kept in `Evidence.failures`, and costs nothing else.
    `each_refit`, `honest`, `sensitivity` and `coupling` are as the query says, unless they are given.
    States and outcomes of a result of this very problem are taken from it, and not replayed again. Where a search has a
    limit of seconds, `sensitivity` and `coupling` may take as long each, or `LEAST_SECONDS`, and fail beyond that.
    """
    each_refit = problem.query.each_refit if each_refit is None else each_refit
    honest = problem.query.honest if honest is None else honest
    sensitivity = problem.query.sensitivity if sensitivity is None else sensitivity
    coupling = problem.query.coupling if coupling is None else coupling
    asked = _Asked(behaviour, refits, each_refit, honest, sensitivity, coupling, solver, limits, progress)
    return _examined(problem, answer, asked, {})


def examine_all(
    problems: Sequence[BaseProblem],
    results: Sequence[Result],
    *,
    behaviour: BehaviourModel | None = None,
    solver: Solver | None = None,
    progress: Progress = silent,
    device: torch.device | str | None = None,
) -> list[Evidence]:
    """What `examine` gives for each of some problems with one model and query, and their results; much faster for many.

    What takes longest is done for all together, and on `device` where that is another one than the problems': the
    searches of both halves of the subjects (`solve_batch`), and shifts that would undo gains. On a processor evidence
    is the same to the last digit as that of each alone; elsewhere it differs by rounding. Limits of a search are shared
    as `solve_batch` shares them.
    """
    if not problems:
        return []
    query = problems[0].query
    parts = (query.each_refit, query.honest, query.sensitivity, query.coupling)
    asked = _Asked(behaviour, None, *parts, solver, None, progress)
    known: list[dict[str, Any]] = [{} for _ in problems]
    for part, find in _together(problems, results, asked, device).items():
        for one, found in zip(known, _each(find, range(len(problems))), strict=True):
            one[part] = found
    rows = zip(problems, results, known, strict=True)
    return [_examined(problem, result, asked, one) for problem, result, one in rows]


FindAll = Callable[[Sequence[int]], Sequence[Any]]
"""What a part finds for the problems of these numbers."""


def _together(
    problems: Sequence[BaseProblem], results: Sequence[Result], asked: _Asked, device: torch.device | str | None
) -> dict[str, FindAll]:
    """The parts that are asked of many problems at once."""
    found: dict[str, FindAll] = {}
    halves = _with_halves(own_refits(problems[0]), problems[0]) if asked.honest else None
    if halves is not None:
        found["honest"] = lambda numbers: honest_gains(
            [problems[number] for number in numbers], halves, solver=asked.solver, device=device
        )
    if asked.sensitivity and not isinstance(problems[0], EnsembleProblem):
        there = _all_there(problems, device)
        found["sensitivity"] = lambda numbers: sensitivities(
            [there[number] for number in numbers],
            [there[number].checked_sequence(results[number].actions) for number in numbers],
        )
    return found


def _all_there(problems: Sequence[BaseProblem], device: torch.device | str | None) -> list[Problem]:
    """The problems on the device."""
    own = [problem for problem in problems if isinstance(problem, Problem)]
    if device is None or torch.device(device).type == own[0].device.type:
        return own
    return all_on(own, device, own[0].model.for_search(device))


def _each(find: FindAll, numbers: Sequence[int]) -> list[Any]:
    """What is found for each of these problems together; if one fails, alone, so that it fails for no other one."""
    try:
        return list(find(numbers))
    except IfonlyError as error:
        return [error] if len(numbers) == 1 else [found for number in numbers for found in _each(find, [number])]


@dataclass(frozen=True)
class _Asked:
    """What is asked of an answer; see `examine`."""

    behaviour: BehaviourModel | None
    refits: Sequence[TransitionModel] | HasMembers | None
    each_refit: bool
    honest: bool
    sensitivity: bool
    coupling: bool
    solver: Solver | None
    limits: Limits | None
    progress: Progress


def _examined(
    problem: BaseProblem, answer: Result | npt.ArrayLike | Tensor, asked: _Asked, known: Mapping[str, Any]
) -> Evidence:
    """The evidence, of which some parts are `known`: found before, or the error that came instead."""
    solved, behaviour, solver, limits = None, asked.behaviour, asked.solver, asked.limits
    if isinstance(answer, Result):
        _check_same_episode(problem, answer)
        solved, answer = answer if _is_of(problem, answer) else None, answer.actions
    sequence = problem.checked_sequence(answer)
    members = asked.refits if asked.refits is not None else own_refits(problem)
    if members is None and asked.each_refit:
        raise InputError(
            "examine: there are no refits to solve; ask an ensemble (fit_ensemble, `ifonly fit --ensemble 20`), or "
            "pass refits=..."
        )
    model = problem.models[0]
    if behaviour is not None:
        behaviour.schema.require_same(model.schema, here="the behaviour model", there="the model")
    if asked.refits is not None:
        members_of([model, *members_of(asked.refits)])
    if asked.each_refit and solver is not None:
        require_exact(solver)
    parts: dict[str, Callable[[], Any]] = {}
    if members is not None:
        options: dict[str, Any] = {"solver": solver, "limits": limits, "progress": asked.progress}
        parts["refits"] = lambda: agreement(problem, sequence, members, each_refit=asked.each_refit, **options)
    halves = _with_halves(members, problem) if asked.honest else None
    if halves is not None:
        parts["honest"] = lambda: honest_gain(problem, halves, solver=solver, limits=limits)
    if behaviour is not None:
        parts["support"] = lambda: support_of(problem, sequence, behaviour)
        if behaviour.recordings is not None:
            parts["calibration"] = lambda: _of_one(problem, sequence, lambda one: calibration(one, sequence, behaviour))
    if asked.sensitivity:
        parts["sensitivity"] = lambda: _of_one(problem, sequence, lambda one: sensitivity_of(one, sequence))
    if asked.coupling:
        parts["coupling"] = lambda: _of_one(problem, sequence, lambda one: coupling_of(one, sequence))
    found: dict[str, Any] = {}
    failures = []
    for part, find in parts.items():
        try:
            with _in_time((limits or problem.query.limits).seconds if part in _TIMED else None):
                found[part] = _known(known[part]) if part in known else find()
        except IfonlyError as error:
            failures.append(ExaminationFailure(part, Reason.of(error)))
    changed = (sequence != problem.observed_actions).nonzero().flatten().tolist()
    return Evidence(
        changed_steps=tuple(changed),
        check=problem.standing,
        failures=tuple(failures),
        rule=the_rule().fingerprint,
        **(_about_states(problem, _courses(problem, sequence, solved)) if changed else {}),
        **found,
    )


@contextmanager
def _in_time(seconds: float | None) -> Iterator[None]:
    """What is done inside ends with an error after as many seconds, or the least; None: whenever it ends."""
    if seconds is None:
        yield
        return
    most = max(seconds, LEAST_SECONDS)
    end = time.perf_counter() + most

    def look() -> None:
        if time.perf_counter() > end:
            raise IfonlyError(f"takes longer than the limit of {most:g} seconds; allow more.")

    with clock(look):
        yield


def _known(found: Any) -> Any:
    """What was found before; the error, if that is what came of it."""
    if isinstance(found, IfonlyError):
        raise found
    return found


def _with_halves(members: object, problem: BaseProblem) -> Ensemble | None:
    """The ensemble that is asked, if its members were fitted to two halves of the subjects; None otherwise."""
    model = problem.models[0]
    for found in (members, model):
        if isinstance(found, Ensemble) and {label.half for label in found.labels} == {0, 1}:
            return found
    if members is problem.models and {label.half for label in getattr(problem, "labels", ())} == {0, 1}:
        assert isinstance(problem, EnsembleProblem), "others have no labels"
        return Ensemble(cast(Any, problem.models), labels=problem.labels)
    return None


@dataclass(frozen=True)
class _Courses:
    """What is compared: the recorded course, and that of the answer."""

    actions: IntArray  # [2, T]
    states: FloatArray  # [2, T, D], in original units
    outcomes: tuple[float, float]
    clipped: tuple[float, float]
    """Outcomes with values cut at plausible ranges, without the cost of changes."""


def _courses(problem: BaseProblem, sequence: Tensor, solved: Result | None) -> _Courses:
    """From the result of this very problem, or replayed."""
    if solved is not None:
        return _Courses(
            actions=np.stack([solved.observed_actions, solved.actions]),
            states=np.stack([solved.observed_states, solved.states]),
            outcomes=(solved.observed_outcome, solved.outcome),
            clipped=(solved.observed_clipped_outcome, solved.clipped_outcome),
        )
    both = torch.stack([problem.observed_actions, sequence])
    states, totals = problem.replay(both)
    observed, promised = problem.counted(totals).tolist()
    clipped = clipped_outcomes(problem, states, both)
    shown = problem.decode(problem.shown_states(states, totals))
    return _Courses(both.cpu().numpy(), shown, (observed, promised), (clipped[0], clipped[1]))


def _is_of(problem: BaseProblem, result: Result) -> bool:
    """Whether replays of this problem are those that the result holds: one model, reward and recording."""
    here, there = problem.query, result.query
    return (
        (here.reward, here.change_cost, here.objective) == (there.reward, there.change_cost, there.objective)
        and result.provenance.model.fingerprint == problem.fingerprint()
        and np.allclose(result.observed_states, problem.episode.states, rtol=1e-6, atol=1e-6, equal_nan=True)
    )


def _about_states(problem: BaseProblem, courses: _Courses) -> dict[str, Any]:
    """What the states along a sequence say of its gain."""
    observed, promised = courses.outcomes
    return {
        "promised": finite(promised - observed),
        "kept_within_ranges": _kept_within_ranges(problem, courses),
        "scores": score_gains(problem.episode, problem.reward, courses.states, courses.actions),
    }


def _kept_within_ranges(problem: BaseProblem, courses: _Courses) -> float | None:
    """The share of the gain that is left when values are cut at plausible ranges; None where none leaves them."""
    changes = int((courses.actions[0] != courses.actions[1]).sum())
    observed, promised = courses.outcomes[0], courses.outcomes[1] + problem.change_cost * changes
    gain, within = promised - observed, courses.clipped[1] - courses.clipped[0]
    if not gain > problem.tolerance or abs(within - gain) <= 1e-6 * gain:
        return None
    return finite(within / gain)


def _check_same_episode(problem: BaseProblem, result: Result) -> None:
    recorded = problem.observed_actions.cpu().numpy()
    if result.episode != problem.episode.id or not np.array_equal(result.observed_actions, recorded):
        raise InputError(
            f"examine: the result is about episode {result.episode!r} and the problem about {problem.episode.id!r}, "
            "or what was done there differs; give the problem that was solved."
        )


def _of_one(problem: BaseProblem, sequence: Tensor, find: Callable[[Problem], Found]) -> Found:
    """What `find` says of a problem; of an ensemble problem, of its weakest member, with its number."""
    if isinstance(problem, EnsembleProblem):
        member = _weakest_member(problem, sequence)
        return replace(find(problem.members[member]), member=member)
    assert isinstance(problem, Problem)
    return find(problem)


def _weakest_member(ensemble: EnsembleProblem, sequence: Tensor) -> int:
    """The member that gains least of those that gain anything; where none does, the one that loses least."""
    totals = ensemble.replay(torch.stack([ensemble.observed_actions, sequence]))[1]
    gains = (totals[1] - totals[0]).nan_to_num(nan=-torch.inf)
    helps = gains > ensemble.tolerance
    return int(torch.where(helps, gains, torch.inf).argmin() if helps.any() else gains.argmax())


def unexamined(problem: BaseProblem, result: Result, error: Exception) -> Evidence:
    """What is left to say of an answer whose examination failed with `error`."""
    return Evidence(
        changed_steps=tuple(change.step for change in result.changes),
        check=problem.standing,
        failures=(ExaminationFailure("all", Reason.of(error)),),
    )


def check_examination(query: Query, model: TransitionModel, solver: Solver, behaviour: BehaviourModel | None) -> None:
    """Refuse, before anything is solved, what could not be told of any answer of this model."""
    if behaviour is not None:
        behaviour.schema.require_same(model.schema, here="the behaviour model", there="the model")
    if query.each_refit:
        members_of(model)
        require_exact(solver)
