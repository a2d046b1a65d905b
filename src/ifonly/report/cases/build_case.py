"""Cases from problems and results: nothing is solved here, sequences are only replayed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from ifonly.data.episode import Origin
from ifonly.data.schema import ActionSpace, Axis, unit_of_time
from ifonly.errors import InputError
from ifonly.objective import Objective
from ifonly.problem import BaseProblem, EnsembleProblem
from ifonly.records import finite
from ifonly.report.cases.badge import badge_of, is_closed
from ifonly.report.cases.band import bands_of
from ifonly.report.cases.case import (
    BudgetCourse,
    Case,
    CaseAnswer,
    CaseQuestion,
    CaseTime,
    ChangeContribution,
    Claim,
    CourseSupport,
    DoseAxis,
    EvidencePage,
    Fact,
    MeasuredFeature,
    ModelAbout,
    RefitGains,
    SupportNote,
    Treatment,
    Treatments,
)
from ifonly.report.cases.courses import Course, courses_along, courses_of, replay_of
from ifonly.report.cases.sources import shown_unit, sources_of
from ifonly.result import Result, Status, SupportReport
from ifonly.rewards import Reward, declared_constants
from ifonly.search.contributions import MOST_CHANGES, contributions
from ifonly.text import cases as text
from ifonly.text.catalogue import Message, say
from ifonly.text.evidence import (
    caution_message,
    messages_of,
    model_message,
    step_support_messages,
    support_messages,
)
from ifonly.text.goals import goal_messages, meaning_message
from ifonly.text.results import objective_message

ORIGINS: dict[Origin, Literal["measured", "carried", "assumed"]] = {
    Origin.MEASURED: "measured",
    Origin.CARRIED: "carried",
    Origin.ASSUMED: "assumed",
}
"""What pages call the origins of values."""


def observed_case(problem: BaseProblem, *, failed: bool = False, model: ModelAbout | None = None) -> Case:
    """The case as it was recorded, with what is asked about it and no answer; `failed`: solving it did.

    `model`: what another case says of the same model, so that its weights are not hashed again.
    """
    (observed,) = courses_of(problem, [problem.episode.actions])
    cautions = [Message("case.failed")] if failed else []
    return _case(problem, observed, None, cautions + _cautions(problem, observed, None), model)


def case_of(problem: BaseProblem, result: Result, *, model: ModelAbout | None = None) -> Case:
    """The case with an answer to `problem`: a result of `solve`, or a run's. Its sequences are replayed together.

    `model`: what another case says of the same model, so that its weights are not hashed again.
    """
    if result.episode != problem.episode.id or len(result.actions) != problem.horizon:
        raise InputError(
            f"a case of episode {problem.episode.id!r}: the result is about episode {result.episode!r}; pass the "
            "problem that was solved."
        )
    known = [budget.actions for budget in result.frontier if budget.actions is not None]
    others = [one.actions for one in result.alternatives]
    replay = replay_of(problem, [problem.episode.actions, result.actions, *known, *others])
    observed, best, *courses = courses_along(problem, replay)
    gap, proven = _gap_of(result)
    claim = _claim(problem, result.status, best, gap=gap, proven=proven, max_changes=problem.max_changes)
    answer = CaseAnswer(
        result=result,
        claim=claim,
        best=best,
        badge=badge_of(result, best, problem.standing, proven=claim.proven),
        budgets=_budgets(problem, result, courses[: len(known)]),
        alternatives=tuple(courses[len(known) :]),
        alternatives_proven=bool(result.certificate.details.get("alternatives_proven")) and claim.proven,
        contributions=_contributions(problem, best),
        sources=sources_of(problem, replay.actions[1:3], replay.states[1:3]),
        bands=bands_of(problem, best),
    )
    return _case(problem, observed, answer, _cautions(problem, observed, answer), model)


def _case(
    problem: BaseProblem,
    observed: Course,
    answer: CaseAnswer | None,
    cautions: Sequence[Message],
    model: ModelAbout | None,
) -> Case:
    episode, schema = problem.episode, problem.episode.schema
    return Case(
        episode=episode.id,
        subject=episode.subject,
        time=CaseTime(
            unit_of_time(schema), schema.step_length, tuple(step * schema.step_length for step in range(len(episode)))
        ),
        facts=tuple(
            Fact(feature.name, feature.unit, float(values[0]))
            for feature, values in zip(schema.context, episode.context.T, strict=True)
            if feature.kind == "static"
        ),
        features=_features(problem),
        treatments=_treatments(schema.actions),
        question=_question(problem),
        observed=observed,
        answer=answer,
        evidence=_evidence(problem, answer),
        assumptions=text.assumption_messages(schema, _goal(problem), len(problem.models)),
        cautions=tuple(cautions),
        model=model or _model(problem),
        words=schema.words,
    )


def _features(problem: BaseProblem) -> tuple[MeasuredFeature, ...]:
    episode, schema = problem.episode, problem.episode.schema
    origins = [None] * len(schema.dynamic) if episode.origins is None else list(episode.origins.T)
    columns = [
        *zip(schema.dynamic, episode.states.T, origins, strict=True),
        *zip(schema.context, episode.context.T, [None] * len(schema.context), strict=True),
    ]
    return tuple(
        MeasuredFeature(
            name=feature.name,
            unit=feature.unit,
            label=feature.label,
            kind="dynamic" if feature.kind == "dynamic" else "contextual",
            plausible=feature.plausible,
            observed=tuple(values.tolist()),
            origins=None if sources is None else tuple(ORIGINS[Origin(source)] for source in sources),
        )
        for feature, values, sources in columns
        if feature.kind != "static"
    )


def _treatments(space: ActionSpace) -> Treatments:
    return Treatments(
        axes=tuple(_dose_axis(axis) for axis in space.axes),
        actions=tuple(
            Treatment(number, label, levels)
            for number, (label, levels) in enumerate(zip(space.labels, space.levels, strict=True))
        ),
    )


def _dose_axis(axis: Axis) -> DoseAxis:
    """The doses as people read them: words where the unit says what 1 stands for, as in "1 = given"."""
    one, is_coded, meaning = axis.unit.partition("=")
    if is_coded and one.strip() == "1" and set(axis.levels) <= {0.0, 1.0}:
        words = {0.0: say("page.no"), 1.0: meaning.strip()}
        return DoseAxis(axis.name, "", axis.levels, tuple(words[level] for level in axis.levels))
    return DoseAxis(axis.name, axis.unit, axis.levels, tuple(axis.show(level) for level in axis.levels))


def _question(problem: BaseProblem) -> CaseQuestion:
    query, shown = problem.query, problem.reward.show(0.0)
    return CaseQuestion(
        max_changes=problem.max_changes,
        outcome=shown.label,
        lower_is_better=not shown.higher_is_better,
        change_cost=query.change_cost,
        rules=tuple(
            text.rule_messages(
                query.constraints,
                problem.episode.schema,
                support=problem.support is not None,
                min_support=None if problem.support is None else problem.support.settings().get("min_support"),
            )
        ),
        objective=_objective(problem),
        query=query.to_dict(),
        goals=tuple(goal_messages(query.reward)),
        meaning=meaning_message(query.reward, problem.horizon),
    )


def _goal(problem: BaseProblem) -> Objective | None:
    return problem.objective if isinstance(problem, EnsembleProblem) else None


def _objective(problem: BaseProblem) -> Message | None:
    goal = _goal(problem)
    return None if goal is None else objective_message(goal, len(problem.models), "refits")


def _model(problem: BaseProblem) -> ModelAbout:
    first = problem.models[0]
    return ModelAbout(
        kind=first.kind or type(first).__qualname__,
        fingerprint=problem.fingerprint(),
        refits=len(problem.models) if isinstance(problem, EnsembleProblem) else None,
        check=problem.standing,
        said=model_message(problem.standing),
        caution=caution_message(problem.standing),
    )


# Claims


def _asked(problem: BaseProblem, max_changes: int) -> text.AskedFacts:
    return text.AskedFacts(
        horizon=problem.horizon,
        max_changes=max_changes,
        has_rules=problem.is_restricted or problem.support is not None or not bool(problem.allowed.all()),
        change_cost=problem.change_cost,
        declared=bool(declared_constants(problem.reward)),
        objective=_objective(problem),
    )


def _gap_of(result: Result) -> tuple[float, bool]:
    """How much better, at most, another sequence could be, infinite where that is not known; and whether it is proven
    that none is."""
    gap = result.gap if result.certificate.proven else math.inf
    return gap, result.proven and is_closed(gap, result.outcome)


def _claim(
    problem: BaseProblem, status: Status, course: Course, *, gap: float, proven: bool, max_changes: int
) -> Claim:
    """How sure it is that nothing is better than `course` with at most `max_changes` changes."""
    # Gaps count the cost of changes, outcomes as shown do not.
    room = 0.0 if proven else gap + problem.change_cost * (max_changes - len(course.changes))
    asked, differs = _asked(problem, max_changes), bool(course.changes)
    return Claim(
        proven=proven,
        best_possible=None if course.outcome is None else finite(course.outcome + room * shown_unit(problem.reward)),
        gap=0.0 if proven else finite(gap),
        statement=text.claim_message(asked, status, gap, proven=proven, differs=differs),
    )


def _budgets(problem: BaseProblem, result: Result, courses: Sequence[Course]) -> tuple[BudgetCourse, ...]:
    remaining = iter(courses)
    fewest = int(problem.changes(problem.nearest_actions))
    listed = []
    for budget in result.frontier:
        most = budget.max_changes
        if budget.actions is None or budget.outcome is None:
            said = text.no_sequence_message(_asked(problem, most))
            listed.append(BudgetCourse(most, None, Claim(most < fewest, None, None, said)))
            continue
        course = next(remaining)
        gap = max(0.0, budget.upper_bound - budget.outcome)
        proven = is_closed(gap, budget.outcome)
        if most == problem.max_changes:  # of which no more is said than of the answer itself
            gap, proven = _gap_of(result)
        claim = _claim(problem, result.status, course, gap=gap, proven=proven, max_changes=most)
        listed.append(BudgetCourse(most, course, claim))
    return tuple(listed)


def _contributions(problem: BaseProblem, best: Course) -> tuple[ChangeContribution, ...]:
    """Shared out without the cost of changes, as outcomes are shown."""
    if len(best.changes) > MOST_CHANGES:
        return ()
    try:
        shared = contributions(problem.with_query(change_cost=0.0), best.actions)
    except InputError:  # a part of the changes alone has no finite outcome
        return ()
    if not all(math.isfinite(value) for value in shared.outcomes.values()):
        return ()
    size = abs(shown_unit(problem.reward))
    return tuple(
        ChangeContribution(one.step, size * one.alone, size * one.lost_without, size * one.share)
        for one in shared.changes
    )


# Evidence and cautions


def _evidence(problem: BaseProblem, answer: CaseAnswer | None) -> EvidencePage:
    if answer is None:
        return EvidencePage(model_message(problem.standing))
    result = answer.result
    evidence = result.evidence
    said = messages_of(evidence, result.schema, result.query)
    changed = bool(evidence.changed_steps)
    return EvidencePage(
        statement=said.statement,
        examined=evidence.examined,
        warnings=said.warnings,
        gain=said.gain,
        refits=said.refits,
        gains=_gains(problem.reward, result) if changed else None,
        support=None if evidence.support is None or not changed else course_support(problem, evidence.support),
        sensitivity=said.sensitivity,
        organs=said.organs,
        calibration=said.calibration,
        coupling=said.coupling,
    )


def _gains(reward: Reward, result: Result) -> RefitGains | None:
    refits, size = result.evidence.refits, abs(shown_unit(reward))
    if refits is None:
        return None
    low, high = refits.spread
    return RefitGains(
        improvements=tuple(finite(size * value) for value in refits.improvements.tolist()),
        own=finite(size * result.improvement),
        median=finite(size * refits.median),
        low=finite(size * low),
        high=finite(size * high),
        many=refits.many,
    )


def course_support(problem: BaseProblem, support: SupportReport) -> CourseSupport:
    """What a report on support says of changed and of flagged steps."""
    schema = problem.episode.schema
    return CourseSupport(
        summary=support_messages(support, schema)[0],
        steps=tuple(
            SupportNote(step.step, bool(step.flags), step_support_messages(step, schema))
            for step in support.steps
            if step.flags or step.changed
        ),
    )


def _cautions(problem: BaseProblem, observed: Course, answer: CaseAnswer | None) -> list[Message]:
    """What to be careful with in this case."""
    schema = problem.episode.schema
    found = [] if answer is None or answer.claim.proven else [Message("caution.not proven")]
    if observed.improvement is None:
        found.append(Message("caution.no improvement"))
    recorded = {one.feature: one.steps for one in observed.implausible}
    found += text.range_messages("caution.recorded", schema, recorded)
    best = observed if answer is None else answer.best
    left = {one.feature: one.steps for one in best.implausible}
    found += text.range_messages("caution.counterfactual", schema, left, but=recorded)
    if recorded or left:
        found.append(Message("caution.clipped"))
    found += text.change_cautions(schema, best.changes, problem.horizon)
    if answer is not None and answer.alternatives and not answer.alternatives_proven:
        found.append(Message("caution.alternatives"))
    return found
