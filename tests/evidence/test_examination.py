import copy
import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from ifonly.evidence.limits import in_force
from ifonly.evidence.rechecked import with_check
from ifonly.evidence.trusted import COLUMNS
from random_behaviour import made_behaviour

from ifonly.errors import InputError
from ifonly.evidence import (
    Agreement,
    Examination,
    Sensitivity,
    StepAgreement,
    StepSensitivity,
    StepSupport,
    SupportReport,
    Trust,
    agreement,
    examination,
    examine,
    limits,
    sensitivity,
    support_of,
)
from ifonly.models.ensemble import Ensemble
from ifonly.models.standing import Standing
from ifonly.problem import EnsembleProblem, Problem
from ifonly.query import Limits, Query
from ifonly.rewards import Shown
from ifonly.search.baselines import Greedy
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.solve import solve
from ifonly.testing.instances import random_panel, random_problem

SMALL = {"horizon": 5, "actions": 3, "max_changes": 2, "rules": False, "masked": False}
SCHEMA = random_problem(0).episode.schema
CHECKED = {verdict: Standing(verdict, "why", 40, "c0") for verdict in ("pass", "warn", "fail", "not judged")}


def refits(helping: int, of: int, same_steps: list[int] | None = None) -> Agreement:
    steps = None if same_steps is None else tuple(StepAgreement(t, 1, n, 0, of) for t, n in enumerate(same_steps))
    gains = np.array([1.0] * helping + [-1.0] * (of - helping))
    return Agreement(gains, helping, steps, 0, (), SCHEMA, 2, Shown("cumulative SOFA", 60.0, False))


def support(flags: int) -> SupportReport:
    steps = [StepSupport(t, 1, True, 0.1, 50.0, ("rare",) if t < flags else ()) for t in range(2)]
    return SupportReport(SCHEMA, tuple(steps), 0.01, 99.0, "b0")


def sensitive(undone_by: float | None, *, harmless: float = 0.1, gain: float = 1.0) -> Sensitivity:
    steps = (StepSensitivity(1, harmless, undone_by, (0.0, 0.0), (0.0, 0.0)),)
    return Sensitivity(SCHEMA, gain, 2, 10.0, steps, ())


def ensemble_problem(seed: int, *, members: int = 3) -> Problem:
    """A problem whose model is an ensemble: its members have other weights, drawn by themselves."""
    problem = random_problem(seed, model_kind="location-scale", constrained=False, **SMALL)
    generator = torch.Generator().manual_seed(seed)
    refitted = [copy.deepcopy(problem.model) for _ in range(members)]
    with torch.no_grad():
        for member in refitted:
            for parameter in member.parameters():
                parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    ensemble = Ensemble(refitted, centre=problem.model)
    return Problem.from_episode(problem.episode, ensemble, Query(problem.reward, 2))


@pytest.mark.parametrize(
    ("trust", "summary", "warnings"),
    [
        (Trust((1,)), "the model was not checked", 0),
        (Trust((1,), CHECKED["pass"]), "the model passed its check", 0),
        (Trust((1,), CHECKED["warn"]), "the model's check warns", 1),
        (Trust((1,), CHECKED["fail"], refits(18, 20)), "the model failed its check; 18 of 20 refits agree", 1),
        (Trust((), CHECKED["not judged"]), "the model could not be judged; nothing is changed", 1),
        (Trust((), CHECKED["pass"], refits(0, 20)), "nothing is changed", 0),
        (
            Trust((0, 1), CHECKED["pass"], refits(18, 20), support(1)),
            "18 of 20 refits agree; one step goes beyond what the data supports",
            1,
        ),
        (Trust((1,), CHECKED["pass"], refits(17, 20)), "17 of 20 refits agree", 1),
        (Trust((1,), CHECKED["pass"], refits(0, 1)), "the only refit does not agree", 1),
        (Trust((1,), CHECKED["pass"], refits(20, 20, [10, 20])), "20 of 20 refits agree", 0),
        (Trust((1,), CHECKED["pass"], refits(20, 20, [9, 0])), "20 of 20 refits agree", 1),
        (Trust((1,), CHECKED["pass"], refits(2, 20, [9, 0])), "2 of 20 refits agree", 2),
        (
            Trust((1,), CHECKED["pass"], None, None, sensitive(0.321)),
            "an unrecorded influence of 0.33 standard deviations at step 1 would undo the gain",
            1,
        ),
        (
            Trust((1,), CHECKED["pass"], None, None, sensitive(0.33), 2),
            "an unrecorded influence of 0.33 standard deviations at step 1 would undo the gain under refit 3, which "
            "gains least",
            0,
        ),
        (
            Trust((1,), CHECKED["pass"], None, None, sensitive(None)),
            "no unrecorded influence at one step was found to undo the gain",
            0,
        ),
        (Trust((1,), CHECKED["pass"], None, None, sensitive(None, gain=-1.0)), "the changes do not help", 0),
    ],
)
def test_summaries_and_warnings(trust: Trust, summary: str, warnings: int) -> None:
    assert trust.summary == summary
    assert len(trust.warnings) == warnings
    content = json.loads(json.dumps(trust.to_dict(), allow_nan=False))
    assert set(content) == {"summary", "warnings", "model_check", "refits", "support", "sensitivity"}
    assert content["warnings"] == list(trust.warnings)
    row = trust.to_row()
    assert tuple(row) == COLUMNS
    assert (row["trust"], row["warnings"]) == (summary, list(trust.warnings))
    assert len(row["warning_kinds"]) == warnings
    lines = str(trust).splitlines()
    assert lines[0] == summary
    assert lines[1 : 1 + warnings] == [f"warning: {warning}" for warning in trust.warnings]


def test_warnings_say_what_they_rest_on() -> None:
    trust = Trust((0, 1), CHECKED["fail"], refits(2, 20, [9, 12]), support(2), sensitive(0.3))
    assert trust.warnings == (
        "the model failed its check (why)",
        "only 2 of 20 refits agree that the changes help",
        "few refits change the same step in their own best sequence (step 0: 9 of 20)",
        "2 steps go beyond what the data supports",
        "an unrecorded influence of 0.30 standard deviations at step 1 would undo the gain",
    )
    assert trust.warning_kinds == (
        "the model's check",
        "refits disagree",
        "refits would change other steps",
        "beyond what the data supports",
        "a small unrecorded influence would undo the gain",
    )
    unexamined = Trust((1,), CHECKED["pass"], failure="no prior")
    assert (unexamined.warnings, unexamined.warning_kinds) == (
        ("could not be examined: no prior",),
        ("could not be examined",),
    )


def test_nothing_but_the_check_is_told_of_one_model_alone() -> None:
    problem = random_problem(1, **SMALL)
    trust = examine(problem, solve(problem))
    assert (trust.refits, trust.support, trust.sensitivity) == (None, None, None)
    assert trust.summary == "the model was not checked"
    told = {name: value for name, value in trust.to_row().items() if value is not None}
    assert told == {"trust": trust.summary, "warnings": [], "warning_kinds": []}


def test_every_part_is_what_it_is_alone() -> None:
    seed = 1
    problem = replace(ensemble_problem(seed), standing=CHECKED["warn"])
    result, behaviour = solve(problem), made_behaviour(problem, seed)
    trust = examine(problem, result, behaviour=behaviour, each_refit=True, sensitivity=True)
    members = problem.model.members
    alone = agreement(problem, result.actions, members, each_refit=True)
    assert trust.model_check is problem.standing
    assert trust.changed_steps == tuple(change.step for change in result.changes)
    assert trust.refits is not None
    assert trust.refits.steps == alone.steps
    np.testing.assert_array_equal(trust.refits.improvements, alone.improvements)
    assert trust.support == support_of(problem, result.actions, behaviour)
    assert trust.sensitivity == sensitivity(problem, result.actions)
    content = json.loads(json.dumps(trust.to_dict(), allow_nan=False))
    assert content["support"] == json.loads(json.dumps(trust.support.to_dict()))
    assert content["sensitivity"]["member"] is None


@pytest.mark.parametrize("seed", [4, 5])
def test_rows_are_aligned_with_the_changed_steps(seed: int) -> None:
    problem = ensemble_problem(seed)
    result, behaviour = solve(problem), made_behaviour(problem, seed)
    row = examine(problem, result, behaviour=behaviour, each_refit=True, sensitivity=True).to_row()
    changed = [change.step for change in result.changes]
    assert changed
    report, found = support_of(problem, result.actions, behaviour), sensitivity(problem, result.actions)
    members = [problem.put_to(member) for member in problem.model.members]
    own = [solve(member, Exhaustive()) for member in members]
    gains = [member.outcome(result.actions) - member.observed_outcome for member in members]
    np.testing.assert_allclose(row["refit_improvements"], gains, atol=2 * problem.tolerance)
    assert row["refits_agree"] == np.mean([gain > problem.tolerance for gain in gains])
    assert row["step_agreement"] == [
        np.mean([one.actions[step] != problem.observed_actions[step] for one in own]) for step in changed
    ]
    assert row["change_support"] == [report.steps[step].probability for step in changed]
    later = [step.percentile for step in report.steps if step.step > changed[0]]
    assert row["farthest"] == max(later, default=None)
    assert row["unsupported_steps"] == [step.step for step in report.steps if step.flags]
    if found.steps:
        assert row["harmless_below"] == min(step.harmless_below for step in found.steps)
        sizes = [step.undone_by for step in found.steps if step.undone_by is not None]
        assert row["undone_by"] == min(sizes, default=None)


def test_rows_leave_out_what_is_infinite_or_unknown() -> None:
    row = Trust((0, 1), None, None, None, sensitive(None, harmless=math.inf)).to_row()
    assert (row["harmless_below"], row["undone_by"]) == (None, None)
    unsolved = replace(refits(1, 2), steps=(StepAgreement(0, 1, 0, 0, 0),), unsolved=2)
    row = Trust((0,), None, replace(unsolved, improvements=np.array([1.0, -np.inf]))).to_row()
    assert (row["step_agreement"], row["refits_unsolved"], row["refit_improvements"]) == (None, 2, [1.0, None])
    problem = random_problem(1, **SMALL)
    row = examine(problem, solve(problem), behaviour=made_behaviour(problem, 1, with_states=False)).to_row()
    assert row["farthest"] is None
    assert row["change_support"]


def test_nothing_changed_is_said_once() -> None:
    panel = random_panel(2, members=2, **SMALL)
    trust = examine(
        panel, panel.observed_actions, behaviour=made_behaviour(panel, 1), each_refit=True, sensitivity=True
    )
    assert trust.summary == "the model was not checked; nothing is changed"
    assert {name for name, value in trust.to_row().items() if value} == {"trust"}
    assert trust.warnings == ()


@pytest.mark.parametrize("seed", [1, 2])
def test_of_a_panel_the_weakest_member_that_gains_is_shaken(seed: int) -> None:
    panel = random_panel(seed, members=4, objective="mean", **SMALL)
    actions = solve(panel).actions
    trust = examine(panel, actions, sensitivity=True)
    gains = [member.outcome(actions) - member.observed_outcome for member in panel.members]
    gaining = [number for number, gain in enumerate(gains) if gain > panel.tolerance]
    assert trust.sensitive_member == min(gaining, key=lambda number: gains[number])
    assert trust.sensitivity == sensitivity(panel.members[trust.sensitive_member], actions)
    assert f"under refit {trust.sensitive_member + 1}, which gains least" in trust.summary
    assert trust.to_dict()["sensitivity"]["member"] == trust.sensitive_member


def test_a_panel_of_which_no_member_gains() -> None:
    panel = random_panel(1, members=2, objective="worst", **SMALL)
    every = torch.cartesian_prod(*[torch.arange(3)] * 5)
    totals = panel.replay(every)[1]
    worst = every[totals.amax(1).argmin()]
    trust = examine(panel, worst, sensitivity=True)
    assert trust.refits is not None
    assert trust.refits.helping == 0
    assert trust.summary.endswith("0 of 2 refits agree; the changes help under no refit")


def test_refits_may_be_given_for_any_question() -> None:
    panel = random_panel(3, members=3, **SMALL)
    problem, result = panel.members[0], solve(panel.members[0])
    trust = examine(problem, result, refits=panel.models[1:])
    assert trust.refits is not None
    assert trust.refits.count == 2
    on_panel = examine(EnsembleProblem.from_problem(problem, panel.models[:1]), result.actions, refits=panel.models[1:])
    assert on_panel.refits is not None
    np.testing.assert_array_equal(on_panel.refits.improvements, trust.refits.improvements)


def test_a_single_member_of_an_ensemble() -> None:
    problem = ensemble_problem(1, members=1)
    trust = examine(problem, solve(problem), each_refit=True)
    assert "the only refit" in trust.summary


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
    whole = examine(problem, result, **asked).to_dict()

    def fail(*_: object, **__: object) -> None:
        raise InputError("it overflows.")

    monkeypatch.setattr(examination, broken, fail)
    trust = examine(problem, result, **asked)
    told = trust.to_dict()
    for name in ("refits", "support", "sensitivity"):
        assert told[name] == (None if name == part else whole[name])
    said = f"could not be examined: {words} (it overflows)"
    assert trust.summary.endswith(f"; {said}")
    assert dict(zip(trust.warning_kinds, trust.warnings, strict=True))["could not be examined"] == said


def test_a_younger_check_replaces_the_warning_of_its_kind_alone() -> None:
    words, kinds = (
        ["the model's check warns (1)", "the model's check warns (said of a refit)"],
        ["the model's check", "x"],
    )
    row = {"trust": "the model's check warns; rest", "warnings": words, "warning_kinds": kinds}
    assert with_check(row, CHECKED["fail"]) == {
        "trust": "the model failed its check; rest",
        "warnings": ["the model failed its check (why)", words[1]],
        "warning_kinds": kinds,
    }
    assert with_check(row, CHECKED["pass"])["warnings"] == words[1:]


def test_what_cannot_be_told_is_refused_before_anything_is_solved() -> None:
    single, problem = random_problem(1, **SMALL), ensemble_problem(2)
    every = Examination(made_behaviour(problem, 1), each_refit=True)
    every.check(problem.model, Exhaustive())
    with pytest.raises(InputError, match="no refits"):
        Examination(each_refit=True).check(single.model, Exhaustive())
    with pytest.raises(InputError, match="proves nothing"):
        every.check(problem.model, Greedy())
    Examination().check(single.model, Greedy())
    with pytest.raises(InputError, match="different schemas"):
        every.check(random_problem(1, **{**SMALL, "actions": 4}).model, Exhaustive())


def test_there_is_something_to_tell_of_ensembles_and_of_checked_models() -> None:
    single, problem = random_problem(1, **SMALL), ensemble_problem(2)
    assert not Examination().has_answers(single.model)
    assert Examination(sensitivity=True).has_answers(single.model)
    assert Examination().has_answers(problem.model)
    checked = copy.deepcopy(single.model)
    checked.standing = CHECKED["pass"]
    assert Examination().has_answers(checked)


def test_limits_reach_the_refits() -> None:
    problem = ensemble_problem(2)
    result = solve(problem)
    trust = examine(problem, result, each_refit=True, solver=Exhaustive(), limits=Limits(seconds=0.0))
    assert trust.refits is not None
    assert trust.refits.unsolved == 3


def test_an_examination_travels_to_other_processes() -> None:
    problem = ensemble_problem(2)
    behaviour = made_behaviour(problem, 3)
    asked = Examination(behaviour, each_refit=True)
    received = pickle.loads(pickle.dumps(asked))
    result = solve(problem)
    assert received.of(problem, result).to_dict() == asked.of(problem, result).to_dict()
    asked_for = {"behaviour": behaviour.fingerprint, "distances": True, "each_refit": True, "sensitivity": False}
    assert received.to_dict() == {**asked_for, "limits": in_force()}
    assert in_force() == {name.lower(): value for name, value in vars(limits).items() if name.isupper()}
    assert not Examination(replace(behaviour, neighbours=None)).to_dict()["distances"]
    assert not asked.is_empty
    assert Examination().is_empty
    assert not Examination(sensitivity=True).is_empty


def test_without_recorded_states_nothing_is_said_of_distances() -> None:
    near, unknown = support(0), support(0)
    unknown = replace(unknown, steps=tuple(replace(step, percentile=None) for step in unknown.steps))
    assert "far from the data" in near.summary
    assert unknown.summary == "every change was made in comparable situations"
