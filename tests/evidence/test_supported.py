import json

import numpy as np
import pytest
import torch
from effort import some
from made_courses import by_enumeration
from random_behaviour import made_behaviour

import ifonly
from ifonly.data.schema import moment
from ifonly.errors import InputError
from ifonly.evidence import support_of
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.problem import Problem
from ifonly.records import to_plain
from ifonly.result import SupportReport, Thresholds
from ifonly.result.evidence import SupportFlag
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.verify import verify
from ifonly.testing.instances import random_ensemble, random_problem
from ifonly.text.evidence import share_message, step_support_messages, support_messages


def supported_problem(seed: int, least: float) -> tuple[Problem, BehaviourModel]:
    problem = random_problem(seed, horizon=4, actions=3, max_changes=3, rules=False)
    behaviour = made_behaviour(problem, seed)
    problem = Problem.from_episode(
        problem.episode,
        problem.model,
        problem.query,
        support=behaviour.with_threshold(least, problem.model),
    )
    return problem, behaviour


def words_of(problem: Problem, report: SupportReport) -> list[str]:
    return [str(message) for message in support_messages(report, problem.episode.schema)]


@pytest.mark.parametrize("seed", range(some(15)))
def test_the_best_supported_sequence_is_that_of_brute_force(seed: int) -> None:
    least = (0.05, 0.2, 0.35)[seed % 3]
    problem, behaviour = supported_problem(seed, least)
    best, fine = by_enumeration(problem, least, behaviour)
    for solver in (None, BranchAndBound(bound="lipschitz" if seed % 2 else "none")):
        result = ifonly.solve(problem, solver)
        assert result.outcome == pytest.approx(best, abs=1e-9)
        assert tuple(result.actions.tolist()) in fine
        assert result.provenance.support == {
            "kind": "behaviour",
            "min_support": least,
            "behaviour": behaviour.fingerprint,
        }
    support = behaviour.with_threshold(least, problem.model)
    assert verify(result, problem.episode, problem.model, reward=problem.reward, support=support).proof_repeated


def test_a_support_does_exclude_something() -> None:
    shares = []
    for seed in range(5):
        problem, behaviour = supported_problem(seed, 0.2)
        _, fine = by_enumeration(problem, 0.2, behaviour)
        shares.append(len(fine) / problem.sequence_count())
    assert min(shares) > 0
    assert max(shares) < 1


def test_every_step_is_judged_at_its_counterfactual_state() -> None:
    problem, behaviour = supported_problem(3, 0.2)
    sequence = (problem.observed_actions + torch.tensor([0, 1, 0, 1])) % 3
    report = support_of(problem, sequence, behaviour)
    states = problem.rollout(sequence.unsqueeze(0))[0][0]
    original = torch.as_tensor(problem.decode(states))
    context = torch.as_tensor(np.array(problem.episode.context))
    context = torch.as_tensor(behaviour.scaler.context.encode(context.numpy()))
    for t, step in enumerate(report.steps):
        given = behaviour.probabilities(original[t : t + 1], context[t : t + 1], t)[0]
        assert step.probability == pytest.approx(float(given[sequence[t]]))
        assert step.percentile == pytest.approx(float(behaviour.distance_percentile(original[t : t + 1])[0]))
        assert (step.step, step.action, step.changed) == (t, int(sequence[t]), t in (1, 3))
    assert json.loads(json.dumps(to_plain(report)))["steps"][1]["probability"] == report.steps[1].probability


def test_flags_in_plain_words() -> None:
    problem, behaviour = supported_problem(3, 0.2)
    sequence = (problem.observed_actions + torch.tensor([0, 1, 0, 1])) % 3
    strict, lenient = Thresholds(unlikely=1.0, far=0.0), Thresholds(unlikely=0.0, far=100.0)
    report = support_of(problem, sequence, behaviour, thresholds=strict)
    unlikely, far = SupportFlag.UNLIKELY, SupportFlag.FAR
    assert [step.flags for step in report.steps] == [(), (unlikely,), (far,), (unlikely, far)]
    told = [[str(message) for message in step_support_messages(step, problem.episode.schema)] for step in report.steps]
    assert told[1][0].startswith("at step 1 this action was chosen in about 1 of ")
    assert told[2][0].startswith("the state at step 2 lies farther from the data than ")
    assert words_of(problem, report) == ["3 steps go beyond what the data supports", *told[1], *told[2], *told[3]]
    calm = support_of(problem, sequence, behaviour, thresholds=lenient)
    assert calm.flagged == ()
    assert "comparable situations" in "\n".join(words_of(problem, calm))
    assert support_of(problem, problem.observed_actions, behaviour, thresholds=strict).flagged == ()
    behaviour.network.taken[int(sequence[1])] = False
    never = support_of(problem, sequence, behaviour)
    assert "at step 1 this action is one that nobody in the data ever chose" in words_of(problem, never)


def test_without_recorded_states_probabilities_remain() -> None:
    problem, _ = supported_problem(3, 0.2)
    report = support_of(problem, problem.observed_actions, made_behaviour(problem, 0, with_states=False))
    assert {step.percentile for step in report.steps} == {None}
    assert (report.changed, report.flagged, report.farthest) == ((), (), None)


@pytest.mark.parametrize("with_states", [True, False])
def test_a_state_that_is_not_finite_is_flagged(with_states: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, _ = supported_problem(3, 0.2)
    sequence = (problem.observed_actions + torch.tensor([0, 1, 0, 1])) % 3
    rollout = Problem.rollout

    def overflowing(self: Problem, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        states, outcomes = rollout(self, actions)
        states[:, 2:, 0] = torch.tensor([torch.inf, torch.nan])
        return states, outcomes

    monkeypatch.setattr(Problem, "rollout", overflowing)
    report = support_of(
        problem, sequence, made_behaviour(problem, 0, with_states=with_states), thresholds=Thresholds(0.0)
    )
    assert [step.flags for step in report.steps[2:]] == [(SupportFlag.NOT_FINITE,)] * 2
    assert [step.step for step in report.flagged] == [2, 3]
    assert [step.probability is None for step in report.steps] == [False, False, True, True]
    content = json.loads(json.dumps(to_plain(report), allow_nan=False))
    assert content["steps"][3]["probability"] is None
    told = words_of(problem, report)
    assert [f"at step {t} the model gives no finite state" in told for t in (1, 2, 3)] == [False, True, True]
    assert [step.probability for step in report.changed] == [report.steps[1].probability, None]
    assert report.farthest == (100.0 if with_states else None)


def test_of_an_ensemble_the_least_supported_member_counts() -> None:
    ensemble = random_ensemble(7, members=3, model_kind="linear", rules=False, masked=False, actions=3)
    behaviour = made_behaviour(ensemble, 1)
    sequence = (ensemble.observed_actions + 1) % 3
    report = support_of(ensemble, sequence, behaviour)
    alone = [support_of(member, sequence, behaviour) for member in ensemble.members]
    for t, step in enumerate(report.steps):
        assert step.probability == pytest.approx(min(one.steps[t].probability for one in alone))
        assert step.percentile == pytest.approx(max(one.steps[t].percentile for one in alone))


def test_bad_requests() -> None:
    problem, behaviour = supported_problem(3, 0.2)
    with pytest.raises(InputError, match="action sequence"):
        support_of(problem, [0, 1], behaviour)
    with pytest.raises(InputError, match="percentage"):
        support_of(problem, problem.observed_actions, behaviour, thresholds=Thresholds(far=101))


def test_words() -> None:
    assert [str(share_message(p)) for p in (0.005, 0.0125, 0.25, 0.5, 0.99, 0.0)] == [
        "about 1 of 200",
        "about 1 of 80",
        "about 1 of 4",
        "about 5 of 10",
        "nearly all",
        "fewer than 1 of 10,000",
    ]
    assert moment(ifonly.simulate.sepsis_schema(), 2) == "hour 8"
