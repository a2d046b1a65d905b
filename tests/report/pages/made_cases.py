"""Cases without a model: records of the shape that pages are given, with numbers that tests know."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ifonly.data.schema import ActionSpace, Axis, Feature, Schema
from ifonly.models.standing import EnsembleNote, Standing
from ifonly.query import Query
from ifonly.records import to_plain
from ifonly.report.cases import Case, Course
from ifonly.report.cases.badge import badge_of
from ifonly.report.cases.case import (
    BudgetCourse,
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
from ifonly.report.cases.courses import ScoreCourse
from ifonly.result import (
    Agreement,
    Budget,
    Certificate,
    Change,
    Evidence,
    ModelReference,
    Provenance,
    Result,
    Stats,
    Status,
    SupportReport,
)
from ifonly.result.agreement import StepAgreement
from ifonly.result.evidence import StepSupport, SupportFlag
from ifonly.rewards import minus
from ifonly.text.cases import AskedFacts, assumption_messages, claim_message
from ifonly.text.catalogue import Message
from ifonly.text.evidence import (
    caution_message,
    messages_of,
    model_message,
    step_support_messages,
    support_messages,
)

DOSES = ActionSpace.product(Axis("vasopressors", "mcg/kg/min", (0, 0.04, 0.8)), Axis("fluids", "mL/4 h", (0, 500)))
NAMES = ActionSpace.categories(["watch", "operate", "transfer to <another> ward", "discharge"])
FAILED_CHECK = Standing("fail", ("noise_by_action",), 400, "0123456789abcdef")


def schema_of(*, ordered: bool) -> Schema:
    return Schema(
        (
            Feature("age", "static", unit="years"),
            Feature("gender", "static", unit="1 = female"),
            Feature("SOFA", "dynamic", unit="points", plausible=(0, 24)),
            Feature("MAP", "dynamic", unit="mmHg", plausible=(25, 170)),
            Feature("ventilation", "contextual", unit="1 = yes", plausible=(0, 1)),
        ),
        DOSES if ordered else NAMES,
        step_length=4.0,
        step_unit="h",
    )


def course(actions: list[int], recorded: list[int], outcome: float, shift: float = 0.0) -> Course:
    changes = [
        Change(step, old, new) for step, (new, old) in enumerate(zip(actions, recorded, strict=True)) if new != old
    ]
    return Course(
        actions=tuple(actions),
        states=tuple((8.0 + step % 3 - shift, 70.0 + step + shift) for step in range(len(actions))),
        outcome=outcome,
        improvement=(40.0 - outcome) / 40.0,
        changes=tuple(changes),
        implausible=(),
        admissible=True,
    )


def made_result(schema: Schema, courses: tuple[Course, Course, Course], *, proven: bool, examined: bool) -> Result:
    """An answer with two changes; one that is examined has a failed model."""
    observed, _, best = courses
    evidence = Evidence(changed_steps=tuple(change.step for change in best.changes))
    if examined:
        evidence = Evidence(
            changed_steps=evidence.changed_steps,
            check=FAILED_CHECK,
            refits=Agreement(
                np.array([6.0, 5.5, -1.0, 7.25, 6.0]),
                helping=4,
                steps=tuple(StepAgreement(change.step, change.counterfactual, 4, 3, 5) for change in best.changes),
                unsolved=1,
                notes=(EnsembleNote("few subjects", count=7, of=20),),
            ),
            support=SupportReport(
                "behaviour",
                tuple(
                    StepSupport(
                        step=step,
                        action=action,
                        changed=step in (1, 2),
                        probability=0.0 if step == 2 else 0.33,
                        percentile=50.0,
                        flags=(SupportFlag.NEVER_CHOSEN,) if step == 2 else (),
                    )
                    for step, action in enumerate(best.actions)
                ),
            ),
        )
    return Result(
        episode="",
        subject="somebody",
        status=Status.OPTIMAL if proven else Status.INTERRUPTED,
        actions=np.array(best.actions),
        observed_actions=np.array(observed.actions),
        states=np.array(best.states),
        observed_states=np.array(observed.states),
        outcome=-34.0,
        observed_outcome=-40.0,
        clipped_outcome=-34.0,
        observed_clipped_outcome=-40.0,
        upper_bound=-34.0 if proven else -30.0,
        certificate=Certificate("taylor", proven=True),
        stats=Stats(nodes_expanded=12, seconds_search=0.1),
        provenance=Provenance(
            query=Query(minus("SOFA"), 2),
            schema=schema,
            model=ModelReference("location-scale", "0123456789abcdef"),
            solver={"name": "branch-and-bound"},
        ),
        frontier=tuple(
            Budget(k, -one.outcome, -one.outcome, np.array(one.actions), -one.outcome)  # type: ignore[operator]
            for k, one in enumerate(courses)
        ),
        evidence=evidence,
    )


def made_evidence(result: Result) -> EvidencePage:
    evidence = result.evidence
    said = messages_of(evidence, result.schema, result.query)
    if evidence.refits is None or evidence.support is None:
        return EvidencePage(said.statement)
    gains = RefitGains(
        tuple(evidence.refits.improvements.tolist()), own=6.0, median=6.0, low=-1.0, high=7.25, many=False
    )
    support = CourseSupport(
        support_messages(evidence.support, result.schema)[0],
        tuple(
            SupportNote(step.step, bool(step.flags), step_support_messages(step, result.schema))
            for step in evidence.support.steps
            if step.changed
        ),
    )
    push = {"feature": "platelets", "size": "6.15", "amount": "-341 10^9/L", "harmless": ""}
    sensitivity = (
        Message("sensitivity.weakest", {"size": "0.40", "when": "hour 8", "whose": "", "harmless": ""}),
        Message("sensitivity.feature.undone", push),
    )
    return EvidencePage(said.statement, True, said.warnings, said.refits, gains, support, sensitivity)


def made_answer(result: Result, courses: tuple[Course, Course, Course], *, proven: bool) -> CaseAnswer:
    def claim(k: int, known: bool, gap: float) -> Claim:
        asked = AskedFacts(len(result.actions), k, False, 0.0, False, None)
        statement = claim_message(asked, result.status, gap, proven=known, differs=k > 0)
        outcome = courses[k].outcome
        assert outcome is not None
        return Claim(known, outcome - gap, gap, statement)

    gap = 0.0 if proven else 4.0
    claims = [claim(0, True, 0.0), claim(1, True, 0.0), claim(2, proven, gap)]
    return CaseAnswer(
        result=result,
        claim=claims[-1],
        best=courses[-1],
        badge=badge_of(result, courses[-1], result.evidence.check, proven=proven),
        budgets=tuple(BudgetCourse(k, courses[k], claims[k]) for k in range(3)),
        alternatives=(courses[2], courses[1]),
        alternatives_proven=proven,
        contributions=tuple(ChangeContribution(step, 3.0, -0.5, 3.0) for step in (1, 2)),
    )


def made_case(
    episode: str = "stay-1",
    *,
    steps: int = 6,
    ordered: bool = True,
    answered: bool = True,
    proven: bool = True,
    examined: bool = False,
) -> Case:
    """A case of `steps` steps with answers for up to two changes, or none; one that is examined has a failed model."""
    schema = schema_of(ordered=ordered)
    recorded = [step % 2 for step in range(steps)]
    one, two = list(recorded), list(recorded)
    one[1] = two[1] = 3
    two[2] = 2
    courses = (course(recorded, recorded, 40.0), course(one, recorded, 36.0, 0.5), course(two, recorded, 34.0, 1))
    result = made_result(schema, courses, proven=proven, examined=examined)
    check = result.evidence.check
    observed = (*([row[column] for row in courses[0].states] for column in (0, 1)), [0.0] * steps)
    return Case(
        episode=episode,
        subject="somebody",
        time=CaseTime("hour", 4.0, tuple(4.0 * step for step in range(steps))),
        facts=(Fact("age", "years", 63.0), Fact("gender", "1 = female", 1.0)),
        features=tuple(
            MeasuredFeature(
                feature.name,
                feature.unit,
                feature.label,
                "dynamic" if feature.kind == "dynamic" else "contextual",
                feature.plausible,
                tuple(values),  # type: ignore[arg-type]
            )
            for feature, values in zip(schema.features[2:], observed, strict=True)
        ),
        treatments=Treatments(
            tuple(
                DoseAxis(axis.name, axis.unit, axis.levels, tuple(axis.show(level) for level in axis.levels))
                for axis in schema.actions.axes
            ),
            tuple(
                Treatment(number, label, levels)
                for number, (label, levels) in enumerate(zip(schema.actions.labels, schema.actions.levels, strict=True))
            ),
        ),
        question=CaseQuestion(2, "cumulative SOFA", True, 0.0, (), None, result.query.to_dict()),
        observed=courses[0],
        answer=made_answer(result, courses, proven=proven) if answered else None,
        evidence=made_evidence(result) if answered else EvidencePage(model_message(check)),
        assumptions=assumption_messages(schema, None, 1),
        cautions=() if proven else (Message("caution.not proven"),),
        model=ModelAbout(
            "location-scale", "0123456789abcdef", None, check, model_message(check), caution_message(check)
        ),
    )


def with_organs(case: Case) -> Case:
    """With a severity score that its organs make, too, a sentence about it, and values of every origin."""
    origins: list[Literal["measured", "carried", "assumed"]] = ["assumed", "measured", "carried"]
    taken = [origins[min(step, 2)] for step in range(len(case.time.at))]

    def scored(course: Course) -> Course:
        return replace(course, scores=(ScoreCourse("SOFA", tuple(6 + step for step in range(len(taken)))),))

    values = {"score": "SOFA", "leading": Message("organs.leading", {"organs": [Message("organ.renal")]})}
    moved = {
        "claimed": Message("organs.falls", {"size": "6", "count": 6}),
        "recomputed": Message("organs.falls", {"size": "5", "count": 5}),
    }
    organs = (Message("organs.gain", {**values, **moved}),)
    answer = case.answer
    if answer is not None:
        budgets = tuple(
            replace(one, course=None if one.course is None else scored(one.course)) for one in answer.budgets
        )
        courses = tuple(scored(course) for course in answer.alternatives)
        answer = replace(answer, best=scored(answer.best), budgets=budgets, alternatives=courses)
    return replace(
        case,
        features=tuple(
            replace(feature, origins=tuple(taken)) if feature.kind == "dynamic" else feature
            for feature in case.features
        ),
        observed=scored(case.observed),
        answer=answer,
        evidence=replace(case.evidence, organs=organs),
    )


def plain_case(*arguments: Any, **more: Any) -> dict[str, Any]:
    return to_plain(made_case(*arguments, **more))


def message(code: str, **values: Any) -> dict[str, Any]:
    return {"code": code, "values": values}


WHEN = {"unit": "hour", "since": "0", "until": "8"}
PATTERN = {
    **{"subjects": 12, "of": 30, "share": 0.4, "low": 0.25, "high": 0.58},
    **{"supported": 6, "supported_share": 0.5, "supported_low": 0.25, "supported_high": 0.75},
}


def made_summary(cases: list[Case], others: int = 3) -> dict[str, Any]:
    """The summary of a report, in plain types."""
    rows = [
        {
            "episode": id,
            "steps": 6,
            "observed": 40.0,
            "best": 34.0,
            "improvement": 0.15 - 0.01 * place,
            "changes": 2,
            "status": "optimal" if place % 2 == 0 else "time limit",
            "proven": place % 2 == 0,
            "badge": ("good", "reserved", "bad")[place % 3],
            "doubts": [] if place % 3 == 0 else ["evidence.uncertain"],
            "patterns": ["fluids|lowered|2|0"] if place % 2 == 0 else None,
            "refits_agree": 0.8 if place < 4 else None,
            "refits": 5 if place < 4 else None,
            "warnings": place % 2 if place < 4 else None,
        }
        for place, id in enumerate([*(case.episode for case in cases), *(f"other-{n}" for n in range(others))])
    ]
    first = to_plain(cases[0])
    return {
        "threshold": 0.1,
        "question": first["question"],
        "counts": [{"label": message("report.count.episodes"), "value": len(rows), "note": None}],
        "improvements": [row["improvement"] for row in rows],
        "by_changes": [
            {"max_changes": k, "mean": 0.05 * k, "low": None, "high": None, "median": 0.04 * k} for k in range(3)
        ],
        "rows": rows,
        "patterns": [
            {
                "pattern": "fluids|lowered|2|0",
                "said": message("pattern.lowered.2", axis="fluids", when=message("pattern.when", **WHEN)),
                **PATTERN,
                "groups": [{"by": "severity", "group": "worst third", **PATTERN}],
            }
        ],
        "smallest_cell": 5,
        "notes": [message("assumption.review", deciders="clinicians")],
        "model": first["model"],
        "evidence": {
            "examined": 4,
            "without_warnings": 2,
            "median_agreement": 0.8,
            "groups": [
                {
                    "answers": message("list.answer"),
                    "episodes": len(rows),
                    "median": 0.1,
                    "lower_quartile": 0.05,
                    "upper_quartile": None,
                    "cases": 3,
                }
            ],
            "warnings": [{"warning": message("warned.refits disagree"), "episodes": 2, "share": 0.5}],
        },
    }
