"""Asking for all parts of the evidence at once."""

import copy
import json
import math
import pickle
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from made_evidence import CHECKED, refits, sensitive
from random_behaviour import made_behaviour

from ifonly.data import Schema
from ifonly.errors import InputError
from ifonly.evidence import agreement, check_examination, examination, examine, sensitivity, support_of, unexamined
from ifonly.models.ensemble import Ensemble
from ifonly.models.standing import EnsembleNote
from ifonly.problem import EnsembleProblem, Problem
from ifonly.query import Limits, Query
from ifonly.records import to_plain
from ifonly.result import Evidence, Result, Verdict, WarningCode
from ifonly.result.agreement import StepAgreement
from ifonly.result.evidence import ExaminationFailure, Reason, ReasonCode
from ifonly.result.table import COLUMNS, from_row, to_row, with_check
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import Greedy
from ifonly.search.solve import solve
from ifonly.testing.instances import random_ensemble, random_problem
from ifonly.text.evidence import evidence_line, evidence_lines, messages_of

SMALL = {"horizon": 5, "actions": 3, "max_changes": 2, "rules": False, "masked": False}


def ensemble_problem(seed: int, *, members: int = 3) -> Problem:
    """A problem whose model is an ensemble: its members have other weights, drawn by themselves."""
    problem = random_problem(seed, model_kind="location-scale", constrained=False, **SMALL)
    generator = torch.Generator().manual_seed(seed)
    refitted = [copy.deepcopy(problem.model) for _ in range(members)]
    with torch.no_grad():
        for member in refitted:
            for parameter in member.parameters():
                parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    ensemble = Ensemble(refitted, centre=problem.model, notes=[EnsembleNote("constant", ("state 0",))])
    return Problem.from_episode(problem.episode, ensemble, Query(problem.reward, 2))


def statement(problem: Problem | EnsembleProblem, found: Evidence) -> str:
    return str(messages_of(found, problem.episode.schema, problem.query).statement)


def test_nothing_but_the_check_is_told_of_one_model_alone() -> None:
    problem = random_problem(1, **SMALL)
    result = solve(problem)
    found = examine(problem, result)
    assert (found.refits, found.support, found.sensitivity) == (None, None, None)
    assert (found.verdict, found.warnings) == (Verdict.NOT_EXAMINED, ())
    examined = replace(result, evidence=found)
    assert evidence_line(examined) == "The model was not checked. This answer was not examined any further."
    assert evidence_lines(examined) == [evidence_line(examined)]


def test_every_part_is_what_it_is_alone() -> None:
    seed = 1
    problem = replace(ensemble_problem(seed), standing=CHECKED["warn"])
    result, behaviour = solve(problem), made_behaviour(problem, seed)
    found = examine(problem, result, behaviour=behaviour, each_refit=True, sensitivity=True)
    members = problem.model.members
    alone = agreement(problem, result.actions, members, each_refit=True)
    assert found.check is problem.standing
    assert found.changed_steps == tuple(change.step for change in result.changes)
    assert found.refits is not None
    assert found.refits.steps == alone.steps
    np.testing.assert_array_equal(found.refits.improvements, alone.improvements)
    assert found.support == support_of(problem, result.actions, behaviour)
    assert found.sensitivity == sensitivity(problem, result.actions)
    assert found.sensitivity.member is None
    examined = replace(result, evidence=found)
    told = messages_of(examined.evidence, examined.schema, examined.query)
    assert str(told.statement) == evidence_line(examined)
    assert "\n".join(evidence_lines(examined)).count("\n  ") == sum(
        len(part) - 1 for part in (told.refits, told.support, told.sensitivity)
    )


@pytest.mark.parametrize("seed", [4, 5])
def test_rows_keep_all_of_it_and_agree_with_the_changed_steps(seed: int) -> None:
    problem = ensemble_problem(seed)
    result, behaviour = solve(problem), made_behaviour(problem, seed)
    found = examine(problem, result, behaviour=behaviour, each_refit=True, sensitivity=True)
    table = pl.DataFrame([to_row(replace(result, evidence=found))], schema=COLUMNS)
    kept = from_row(table.row(0, named=True), result.provenance).evidence
    assert to_plain(kept) == to_plain(found)
    assert kept.refits.notes == found.refits.notes == problem.model.notes
    changed = [change.step for change in result.changes]
    assert changed
    report, shaken = support_of(problem, result.actions, behaviour), sensitivity(problem, result.actions)
    members = [problem.put_to(member) for member in problem.model.members]
    own = [solve(member, Exhaustive()) for member in members]
    gains = [member.outcome(result.actions) - member.observed_outcome for member in members]
    np.testing.assert_allclose(kept.refits.improvements, gains, atol=2 * problem.tolerance)
    assert kept.refits.share == np.mean([gain > problem.tolerance for gain in gains])
    assert [step.same_step / step.of for step in kept.refits.steps] == [
        np.mean([one.actions[step] != problem.observed_actions[step] for one in own]) for step in changed
    ]
    assert [step.probability for step in kept.support.changed] == [report.steps[step].probability for step in changed]
    later = [step.percentile for step in report.steps if step.step > changed[0]]
    assert kept.support.farthest == max(later, default=None)
    assert [step.step for step in kept.support.flagged] == [step.step for step in report.steps if step.flags]
    if shaken.steps:
        assert kept.sensitivity.harmless_below == min(step.harmless_below for step in shaken.steps)
        sizes = [step.undone_by for step in shaken.steps if step.undone_by is not None]
        assert (kept.sensitivity.weakest and kept.sensitivity.weakest.undone_by) == min(sizes, default=None)


def test_what_is_infinite_or_unknown_is_null() -> None:
    shaken = to_plain(Evidence((0, 1), sensitivity=sensitive(None, harmless=math.inf)))["sensitivity"]
    assert (shaken["steps"][0]["harmless_below"], shaken["steps"][0]["undone_by"]) == (None, None)
    unsolved = replace(refits(1, 2), steps=(StepAgreement(0, 1, 0, 0, 0),), unsolved=2)
    content = to_plain(Evidence((0,), refits=replace(unsolved, improvements=np.array([1.0, -np.inf]))))["refits"]
    assert (content["unsolved"], content["improvements"]) == (2, [1.0, None])
    problem = random_problem(1, **SMALL)
    found = examine(problem, solve(problem), behaviour=made_behaviour(problem, 1, with_states=False))
    assert found.support.farthest is None
    assert found.support.changed


def test_nothing_changed_is_said_once() -> None:
    ensemble = random_ensemble(2, members=2, **SMALL)
    found = examine(
        ensemble, ensemble.observed_actions, behaviour=made_behaviour(ensemble, 1), each_refit=True, sensitivity=True
    )
    told = messages_of(found, ensemble.episode.schema, ensemble.query)
    assert str(told.statement) == "The model was not checked. Nothing is changed, so there is nothing to examine."
    assert (told.warnings, told.refits, told.support, told.sensitivity) == ((), (), (), ())
    assert (found.warnings, found.examined) == ((), False)


@pytest.mark.parametrize("seed", [1, 2])
def test_of_an_ensemble_the_weakest_member_that_gains_is_shaken(seed: int) -> None:
    ensemble = random_ensemble(seed, members=4, objective="mean", **SMALL)
    actions = solve(ensemble).actions
    found = examine(ensemble, actions, sensitivity=True)
    gains = [member.outcome(actions) - member.observed_outcome for member in ensemble.members]
    gaining = [number for number, gain in enumerate(gains) if gain > ensemble.tolerance]
    member = min(gaining, key=lambda number: gains[number])
    assert found.sensitivity == replace(sensitivity(ensemble.members[member], actions), member=member)
    assert f"under refit {member + 1}, which gains least" in statement(ensemble, found)
    assert to_plain(found)["sensitivity"]["member"] == member


def test_an_ensemble_of_which_no_member_gains() -> None:
    ensemble = random_ensemble(1, members=2, objective="worst", **SMALL)
    every = torch.cartesian_prod(*[torch.arange(3)] * 5)
    totals = ensemble.replay(every)[1]
    worst = every[totals.amax(1).argmin()]
    found = examine(ensemble, worst, sensitivity=True)
    assert found.refits is not None
    assert found.refits.helping == 0
    told = statement(ensemble, found)
    assert told.endswith("0 of 2 refits agree; the changes help under no refit, so there is no gain to undo.")


def test_refits_may_be_given_for_any_question() -> None:
    ensemble = random_ensemble(3, members=3, **SMALL)
    problem, result = ensemble.members[0], solve(ensemble.members[0])
    found = examine(problem, result, refits=ensemble.models[1:])
    assert found.refits is not None
    assert found.refits.count == 2
    on_ensemble = examine(
        EnsembleProblem.from_problem(problem, ensemble.models[:1]), result.actions, refits=ensemble.models[1:]
    )
    assert on_ensemble.refits is not None
    np.testing.assert_array_equal(on_ensemble.refits.improvements, found.refits.improvements)


def test_a_single_member_of_an_ensemble() -> None:
    problem = ensemble_problem(1, members=1)
    assert "the only refit" in statement(problem, examine(problem, solve(problem), each_refit=True))


def test_wrong_questions_are_refused() -> None:
    problem, other = random_problem(1, **SMALL), random_problem(2, **SMALL)
    result = solve(problem)
    with pytest.raises(InputError, match="no refits to solve"):
        examine(problem, result, each_refit=True)
    with pytest.raises(InputError, match="'random 1' and the problem about 'random 2'"):
        examine(other, result)
    with pytest.raises(InputError, match="whole numbers"):
        examine(problem, [0.5] * 5)
    stranger = random_problem(1, **{**SMALL, "actions": 4})
    with pytest.raises(InputError, match="different schemas"):
        examine(problem, result, behaviour=made_behaviour(stranger, 1))
    with pytest.raises(InputError, match="different schemas"):
        examine(problem, result, refits=[stranger.model])
    with pytest.raises(InputError, match="proves nothing"):
        examine(problem, result, refits=[problem.model], each_refit=True, solver=Greedy())


@pytest.mark.parametrize(
    ("broken", "part", "words"),
    [
        ("agreement", "refits", "what refits say"),
        ("support_of", "support", "what the data supports"),
        ("sensitivity_of", "sensitivity", "what would undo the gain"),
    ],
)
def test_a_part_that_fails_costs_no_other(broken: str, part: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ensemble_problem(1)
    result, asked = solve(problem), {"behaviour": made_behaviour(problem, 1), "sensitivity": True}
    whole = to_plain(examine(problem, result, **asked))

    def fail(*_: object, **__: object) -> None:
        raise InputError("it overflows.")

    monkeypatch.setattr(examination, broken, fail)
    found = examine(problem, result, **asked)
    told = to_plain(found)
    for name in ("refits", "support", "sensitivity"):
        assert told[name] == (None if name == part else whole[name])
    assert found.failures == (ExaminationFailure(part, Reason(ReasonCode.REFUSED, "it overflows.")),)
    said = f"could not be examined: {words} (it overflows)"
    assert statement(problem, found).endswith(f"; {said}.")
    assert found.warnings[-1].code is WarningCode.NOT_EXAMINED
    assert str(messages_of(found, problem.episode.schema, problem.query).warnings[-1]) == said


def test_an_examination_that_fails_as_a_whole_leaves_the_check() -> None:
    problem = replace(random_problem(1, **SMALL), standing=CHECKED["pass"])
    found = unexamined(problem, solve(problem), InputError("out of memory"))
    assert (found.check, found.verdict) == (CHECKED["pass"], Verdict.UNCERTAIN)
    said = "Uncertain: a part of it could not be examined. Model check: pass; could not be examined: out of memory."
    assert statement(problem, found) == said


def test_a_younger_check_replaces_the_warning_of_its_kind_alone() -> None:
    problem = replace(ensemble_problem(1), standing=CHECKED["warn"])
    result = solve(problem)
    found = replace(examine(problem, result), refits=refits(1, 3))
    rows = pl.DataFrame([to_row(replace(result, evidence=found))], schema=COLUMNS)
    assert rows["warnings"].to_list() == [["model check", "refits disagree"]]

    def again(check: str) -> tuple[Result, dict[str, object]]:
        row = with_check(rows, CHECKED[check]).row(0, named=True)
        return from_row(row, result.provenance), row

    younger, row = again("fail")
    assert younger.evidence.check == CHECKED["fail"]
    assert (row["verdict"], row["warnings"]) == ("not believable", ["model check", "refits disagree"])
    younger, row = again("pass")
    assert (row["verdict"], row["warnings"]) == ("uncertain", ["refits disagree"])
    assert [warning.code for warning in younger.evidence.warnings] == row["warnings"]
    assert younger.evidence.verdict == row["verdict"]
    assert to_plain(younger.evidence.refits) == to_plain(found.refits)
    assert with_check(rows, None).equals(rows)


def test_what_cannot_be_told_is_refused_before_anything_is_solved() -> None:
    single, problem = random_problem(1, **SMALL), ensemble_problem(2)
    behaviour, each = made_behaviour(problem, 1), Query(problem.reward, each_refit=True)
    check_examination(each, problem.model, Exhaustive(), behaviour)
    with pytest.raises(InputError, match="no refits"):
        check_examination(each, single.model, Exhaustive(), None)
    with pytest.raises(InputError, match="proves nothing"):
        check_examination(each, problem.model, Greedy(), behaviour)
    check_examination(Query(problem.reward), single.model, Greedy(), None)
    with pytest.raises(InputError, match="different schemas"):
        check_examination(each, random_problem(1, **{**SMALL, "actions": 4}).model, Exhaustive(), behaviour)


def test_limits_reach_the_refits() -> None:
    problem = ensemble_problem(2)
    result = solve(problem)
    found = examine(problem, result, each_refit=True, solver=Exhaustive(), limits=Limits(seconds=0.0))
    assert found.refits is not None
    assert found.refits.unsolved == 3


def test_limits_reach_what_is_replayed_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would undo a gain takes minutes where courses are long, which nobody expects who allows seconds."""
    problem = ensemble_problem(1)
    result, behaviour = solve(problem), made_behaviour(problem, 1)
    parts = {"behaviour": behaviour, "sensitivity": True, "coupling": True}
    whole, hurried = examine(problem, result, **parts), Limits(seconds=0.0)
    assert examine(problem, result, limits=hurried, **parts).failures == (), "the least is enough"
    monkeypatch.setattr(examination, "LEAST_SECONDS", 0.0)
    found = examine(problem, result, limits=hurried, **parts)
    own = examine(problem.with_query(limits=hurried), result, **parts)
    for one in (found, own):
        assert {failure.part for failure in one.failures} == {"sensitivity", "coupling"}
        assert "the limit of 0 seconds" in str(one.failures[0].reason)
        assert to_plain(one.refits) == to_plain(whole.refits)
        assert to_plain(one.support) == to_plain(whole.support)
    assert to_plain(examine(problem, result, **parts)) == to_plain(whole)


def test_what_is_asked_and_what_was_found_travel_to_other_processes() -> None:
    problem = ensemble_problem(2)
    behaviour, result = made_behaviour(problem, 3), solve(problem)
    received = pickle.loads(pickle.dumps(behaviour))
    assert received.fingerprint == behaviour.fingerprint
    there = examine(problem, result, behaviour=received, each_refit=True)
    here = examine(problem, result, behaviour=behaviour, each_refit=True)
    assert to_plain(there) == to_plain(here) == to_plain(pickle.loads(pickle.dumps(here)))
    json.dumps(to_plain(here), allow_nan=False)


def test_without_recorded_states_nothing_is_said_of_distances() -> None:
    problem = random_problem(1, **SMALL)
    sequence = solve(problem).actions
    near = made_behaviour(problem, 1)
    lenient = examination.support_of(problem, sequence, near)
    calm = replace(lenient, steps=tuple(replace(step, flags=()) for step in lenient.steps))
    unknown = replace(calm, steps=tuple(replace(step, percentile=None) for step in calm.steps))
    changed = tuple(step.step for step in calm.changed)
    assert "far from the data" in statement(problem, Evidence(changed, support=calm))
    assert statement(problem, Evidence(changed, support=unknown)).endswith(
        "; every change was made in comparable situations."
    )


def test_what_is_examined_is_what_the_query_says_unless_told_otherwise() -> None:
    problem = ensemble_problem(1).with_query(sensitivity=True, each_refit=True)
    result = solve(problem)
    found = examine(problem, result)
    assert found.sensitivity is not None
    assert found.refits is not None
    assert found.refits.steps is not None
    less = examine(problem, result, sensitivity=False, each_refit=False)
    assert less.sensitivity is None
    assert less.refits is not None
    assert less.refits.steps is None


def test_gains_that_rest_on_impossible_values_are_warned_of() -> None:
    """The share of the gain that is left when values are cut, by hand; on a bounded scale there is nothing to cut."""
    problem = next(
        one
        for one in (random_problem(seed, model_kind="linear", reward_kind="linear", horizon=6) for seed in range(50))
        if solve(one).improvement > 1
    )
    result = solve(problem)
    narrow = Schema(
        tuple(
            replace(feature, plausible=(float(values.min()), float(values.max()) + 1e-9))
            for feature, values in zip(problem.episode.schema.dynamic, problem.episode.states.T, strict=True)
        )
        + problem.episode.schema.context,
        problem.episode.schema.actions,
    )
    within = replace(problem, episode=replace(problem.episode, schema=narrow))
    evidence = examine(within, result.actions)
    low, high = problem.episode.states.min(0), problem.episode.states.max(0)
    sequences = np.stack([problem.episode.actions, result.actions])
    states = problem.decode(problem.rollout(torch.as_tensor(sequences))[0])
    reward = problem.reward
    weights = np.array([reward.weights[feature.name] for feature in problem.episode.schema.dynamic])
    gains = [float((part[1] - part[0]).sum()) for part in (np.clip(states, low, high) @ weights, states @ weights)]
    if abs(gains[0] - gains[1]) <= 1e-6 * gains[1]:
        assert evidence.kept_within_ranges is None
    else:
        assert evidence.kept_within_ranges == pytest.approx(gains[0] / gains[1], rel=1e-6)
        warned = WarningCode.LEAVES_RANGES in {warning.code for warning in evidence.warnings}
        assert warned == (gains[0] / gains[1] < 0.8)
    assert examine(problem, result.actions).kept_within_ranges is None, "no ranges, nothing to leave"
