"""A case: one episode as a reviewer sees it, in plain types."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ifonly.cases import words
from ifonly.cases.answers import Answer, Found, answered
from ifonly.cases.courses import Course, action_levels, courses_of
from ifonly.cases.trust import failure_words, model_words, trust_in_row, trust_of
from ifonly.data.episode import IntArray
from ifonly.data.schema import ActionSpace, unit_of_time
from ifonly.errors import InputError
from ifonly.evidence.examination import Examination
from ifonly.problem import BaseProblem, EnsembleProblem
from ifonly.result import Budget, Result, Status
from ifonly.runs.rows import FAILED
from ifonly.version import __version__

FORMAT = "ifonly.case"
VERSION = 2

Plain = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One episode: what was recorded, what was asked, what was found, and what to be careful with."""

    episode: str
    subject: str
    time: Plain
    facts: Sequence[Plain]
    features: Sequence[Plain]
    treatments: Plain
    question: Plain
    observed: Course
    answer: Answer | None
    trust: Plain
    """How far to trust the answer: `statement`, and what it rests on (`ifonly.cases.trust.trust_of`)."""
    assumptions: tuple[str, ...]
    cautions: tuple[str, ...]
    model: Plain

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON, all numbers finite."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "ifonly": __version__,
            "episode": self.episode,
            "subject": self.subject,
            "time": dict(self.time),
            "facts": [dict(fact) for fact in self.facts],
            "features": [dict(feature) for feature in self.features],
            "treatments": dict(self.treatments),
            "question": dict(self.question),
            "observed": self.observed.to_dict(),
            "answer": None if self.answer is None else self.answer.to_dict(),
            "trust": dict(self.trust),
            "assumptions": list(self.assumptions),
            "cautions": list(self.cautions),
            "model": dict(self.model),
        }


def observed_case(problem: BaseProblem) -> Case:
    """The case as it was recorded, with what is asked about it and no answer."""
    return _case(problem, None)


def case_of(problem: BaseProblem, result: Result) -> Case:
    """The case with the answer that solving `problem` gave."""
    if result.episode_id != problem.episode.id or len(result.actions) != problem.horizon:
        raise InputError(
            f"a case of episode {problem.episode.id!r}: the result is about episode {result.episode_id!r}; pass the "
            "problem that was solved."
        )
    certificate = result.certificate
    found = Found(
        status=result.status,
        actions=result.actions,
        upper_bound=result.upper_bound,
        method=certificate.method if certificate.proven else None,
        frontier=result.frontier,
        nodes=result.stats.nodes_expanded,
        seconds=result.stats.seconds,
        alternatives=[one.actions for one in result.alternatives],
        alternatives_proven=bool(certificate.details.get("alternatives_proven")),
    )
    return _case(problem, found, result.trust)


def case_from_row(
    problem: BaseProblem,
    row: Plain,
    *,
    alternatives: Sequence[IntArray] = (),
    again: Examination | None = None,
    limits: Mapping[str, float] | None = None,
) -> Case:
    """The case with the answer in a row of a run's table; nothing is solved. A failed row's case has no answer.

    `alternatives` [T] each, if a later search gave them, must be proven to be the best ones; the row's own answer is
    put before them where it is not among them, which happens between equals. What the run examined is told as far as
    the row keeps it, or is examined `again`, as far as that says; `limits` are those that the run warned by
    (`Run.warning_limits`), today's if there are none.
    """
    if row["episode"] != problem.episode.id:
        raise InputError(f"a case of episode {problem.episode.id!r}: the row is about episode {row['episode']!r}.")
    if row["status"] == FAILED:
        case = _case(problem, None)
        return replace(case, cautions=("This episode has no answer: solving it failed.", *case.cautions))
    bound, actions = row["upper_bound"], np.array(row["actions"], dtype=np.int64)
    if len(alternatives) and not any(np.array_equal(one, actions) for one in alternatives):
        alternatives = [actions, *alternatives[:-1]]
    found = Found(
        status=Status(row["status"]),
        actions=actions,
        upper_bound=math.inf if bound is None else bound,
        method=row["certificate"],
        frontier=[Budget.from_dict(entry) for entry in row["frontier"] or ()],
        nodes=row["nodes"],
        seconds=row["seconds"],
        alternatives=alternatives,
        alternatives_proven=len(alternatives) > 0,
    )
    return _case(problem, found, trust_in_row(problem, row, again, limits))


def _case(problem: BaseProblem, found: Found | None, trust: Plain | None = None) -> Case:
    episode, schema = problem.episode, problem.episode.schema
    if found is None:
        (observed,), answer, claim = courses_of(problem, [episode.actions]), None, None
    else:
        observed, answer, claim = answered(problem, found)
    cautions = words.cautions(problem, observed, None if answer is None else answer.best, claim)
    if answer is not None and answer.alternatives and not answer.alternatives_proven:
        cautions.append("The alternatives are those found so far; others may be better.")
    return Case(
        episode=episode.id,
        subject=episode.subject,
        time={
            "unit": unit_of_time(schema),
            "step": schema.step_length,
            "at": [step * schema.step_length for step in range(len(episode))],
        },
        facts=[
            {"name": feature.name, "unit": feature.unit, "value": float(values[0])}
            for feature, values in zip(schema.context, episode.context.T, strict=True)
            if feature.kind == "static"
        ],
        features=_features(problem),
        treatments=_treatments(schema.actions),
        question=_question(problem),
        observed=observed,
        answer=answer,
        trust=trust_of(problem, None if answer is None else answer.best, trust),
        assumptions=tuple(words.assumptions(problem)),
        cautions=tuple(cautions),
        model=_model(problem),
    )


def _model(problem: BaseProblem) -> dict[str, Any]:
    first = problem.models[0]
    return {
        "kind": first.kind or type(first).__qualname__,
        "fingerprint": problem.fingerprint(),
        "refits": len(problem.models) if isinstance(problem, EnsembleProblem) else None,
        "check": None if problem.standing is None else problem.standing.to_dict(),
        "said": model_words(problem.standing),
        "caution": failure_words(problem.standing),
    }


def _features(problem: BaseProblem) -> list[dict[str, Any]]:
    episode, schema = problem.episode, problem.episode.schema
    columns = [
        *zip(schema.dynamic, episode.states.T, strict=True),
        *zip(schema.context, episode.context.T, strict=True),
    ]
    return [
        {
            "name": feature.name,
            "unit": feature.unit,
            "label": feature.label,
            "kind": feature.kind,
            "plausible": None if feature.plausible is None else list(feature.plausible),
            "observed": values.tolist(),
        }
        for feature, values in columns
        if feature.kind != "static"
    ]


def _treatments(space: ActionSpace) -> dict[str, Any]:
    return {
        "axes": [
            {
                "name": axis.name,
                "unit": axis.unit,
                "levels": list(axis.levels),
                "shown": [axis.show(level) for level in axis.levels],
            }
            for axis in space.axes
        ],
        "actions": [
            {"number": number, "label": label, "levels": list(levels)}
            for number, (label, levels) in enumerate(zip(space.labels, action_levels(space), strict=True))
        ],
    }


def _question(problem: BaseProblem) -> dict[str, Any]:
    shown = problem.reward.show(0.0)
    return {
        "max_changes": problem.max_changes,
        "objective": shown.label,
        "lower_is_better": not shown.higher_is_better,
        "rules": words.rules(problem),
        "constraints": problem.constraints.to_dict(),
        "change_cost": problem.change_cost,
        "judged_by": words.refits_together(problem) if isinstance(problem, EnsembleProblem) else None,
    }
