"""Local calibration against a linear world whose truth is known."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from biased_worlds import BIAS, SCHEMA, WRONG_ACTION, behaviour_of, recorded, true_model, wrong_model

from ifonly.errors import InputError
from ifonly.evidence import calibration, examine
from ifonly.evidence.behaviour import BehaviourSettings, fit_behaviour
from ifonly.evidence.comparable import Records
from ifonly.models.analytic import LinearModel
from ifonly.problem import EnsembleProblem, Problem
from ifonly.query import Query
from ifonly.records import from_plain, to_plain
from ifonly.result import Evidence, LocalCalibration
from ifonly.rewards import minus
from ifonly.text.evidence import lines_of

QUERY = Query(minus("burden"), max_changes=3)
ASKED = tuple(recorded(30, seed=9))


def changed(episode, seed: int) -> torch.Tensor:
    """Three steps changed to the action that a model may be wrong about."""
    actions = torch.as_tensor(np.array(episode.actions))
    actions[np.random.default_rng(seed).choice(len(actions) - 2, 3, replace=False)] = WRONG_ACTION
    return actions


def judged(episode, model: LinearModel, seed: int) -> tuple[LocalCalibration, float]:
    """What calibration says of a sequence, and what it truly gains."""
    sequence, truth = changed(episode, seed), Problem.from_episode(episode, true_model(), QUERY)
    found = calibration(Problem.from_episode(episode, model, QUERY), sequence, behaviour_of())
    return found, truth.outcome(sequence) - truth.observed_outcome


def test_a_local_bias_is_found_where_it_is_and_nowhere_else() -> None:
    inside, outside, other = [], [], []
    for seed, episode in enumerate(ASKED):
        problem, sequence = Problem.from_episode(episode, wrong_model(), QUERY), changed(episode, seed)
        states = problem.rollout(sequence[None])[0][0]
        for step in calibration(problem, sequence, behaviour_of()).steps:
            reserve = float(states[step.step, 1])
            z = [(bias - expected) / error for bias, expected, error in zip(step.bias, BIAS, step.error, strict=True)]
            assert step.records == 30
            other.append(z[1])
            if step.action == WRONG_ACTION and step.percentile < 90 and abs(reserve) > 0.3:
                (inside if reserve > 0 else outside).append(z[0] if reserve > 0 else step.bias[0] / step.error[0])
            elif step.action != WRONG_ACTION and step.same_action == 30:
                outside.append(step.bias[0] / step.error[0])
    for scores in (inside, outside, other):
        assert len(scores) > 20
        assert abs(np.mean(scores)) < 0.5
        assert 0.5 < np.std(scores) < 1.4


def test_the_adjusted_gain_is_nearer_the_truth_than_the_promise() -> None:
    found = [judged(episode, wrong_model(), seed) for seed, episode in enumerate(ASKED)]
    promised = np.array([one.gain - truth for one, truth in found])
    adjusted = np.array([one.adjusted - truth for one, truth in found])
    deviations = np.array([one.deviation for one, _ in found])
    assert np.abs(adjusted).mean() < 0.7 * np.abs(promised).mean()
    assert abs(adjusted.mean()) < 0.6 * abs(promised.mean())
    assert (np.abs(adjusted) < 2 * deviations).mean() > 0.85


def test_a_right_model_is_left_as_it_is_within_noise() -> None:
    for seed, episode in enumerate(ASKED):
        found, truth = judged(episode, true_model(), seed)
        assert found.gain == pytest.approx(truth)
        assert abs(found.adjusted - truth) < 0.5 * found.deviation


def test_replays_by_hand_give_the_adjusted_gain() -> None:
    problem, sequence = Problem.from_episode(ASKED[0], wrong_model(), QUERY), changed(ASKED[0], 0)
    found = calibration(problem, sequence, behaviour_of())
    shift = torch.zeros_like(problem.noise)
    for step in found.steps:
        shift[step.step] = torch.tensor(step.shift, dtype=torch.float64)
    outcome = replace(problem, noise=problem.noise + shift).outcome(sequence)
    assert found.adjusted == pytest.approx(outcome - problem.observed_outcome)
    assert any(abs(step.shift[0]) > 0.2 for step in found.steps)


def test_the_one_who_is_asked_about_is_left_out() -> None:
    """With other episodes of the same subject; the others stay."""
    cohort = recorded(40, seed=4)
    twins = replace(cohort, subjects=tuple(f"s{number // 2}" for number in range(40)))
    settings = BehaviourSettings(hidden=(), epochs=1, most_states=10)
    behaviour = fit_behaviour(twins, settings=settings)
    records = Records.of(behaviour, behaviour.recordings)
    for number in (0, 7):
        scaled = torch.as_tensor(behaviour.scaler.states.encode(cohort[number].states)) / records.deviations
        actions = torch.as_tensor(np.array(cohort[number].actions))
        own = records.is_recorded_in(scaled[:-1], actions[:-1])
        assert int(own.sum()) == 40
        assert len(records.subjects[own].unique()) == 1
        compared = records.compare(scaled[:-1], actions[:-1], own)
        assert not own[compared.rows].any()
        nobody = records.is_recorded_in(scaled[:-1] + 1e-3, actions[:-1])
        assert not nobody.any()
        nearest = records.compare(scaled[:-1], actions[:-1], nobody).rows[:, 0]
        assert own[nearest].all(), "each is its own nearest record"


def test_comparable_records_are_those_of_the_definition() -> None:
    """By loops: the nearest under the same action within reach, then others by one reach for each step of dose."""
    behaviour = behaviour_of(100)
    records = Records.of(behaviour, behaviour.recordings)
    rng = np.random.default_rng(0)
    places = torch.as_tensor(rng.normal(size=(12, 2)) * 1.5)
    actions = torch.as_tensor(rng.integers(4, size=12))
    left_out = records.subjects < 3
    compared = records.compare(places, actions, left_out)
    for query in range(12):
        distances = (records.places - places[query]).norm(dim=1).numpy()
        steps = (records.actions - actions[query]).abs().numpy()  # doses are evenly spaced
        keys = np.where(left_out.numpy(), np.inf, distances + records.reach * steps)
        assert set(compared.rows[query].tolist()) == set(np.argsort(keys)[:30].tolist())
        same = int((steps[np.argsort(keys)[:30]] == 0).sum())
        assert int(compared.same_action[query]) == same
        within = np.sum((steps == 0) & (distances <= records.reach) & ~left_out.numpy())
        assert same >= min(30, within)
        expected = 100 * float((records.usual < np.sort(keys)[29] * (1 - 1e-5)).double().mean())
        assert float(compared.percentile[query]) == pytest.approx(expected, abs=0.3)


def test_an_unchanged_place_has_no_shift_and_no_error() -> None:
    """Only the step before the last is changed: that step alone is adjusted, and the last leads nowhere."""
    episode = ASKED[0]
    problem = Problem.from_episode(episode, wrong_model(), QUERY)
    sequence = problem.observed_actions.clone()
    assert calibration(problem, sequence, behaviour_of()).steps == ()
    sequence[-1] = (sequence[-1] + 1) % 4
    last = calibration(problem, sequence, behaviour_of())
    assert last.steps == ()
    assert (last.adjusted, last.deviation) == (last.gain, 0.0)
    sequence[-2] = (sequence[-2] + 1) % 4
    (step,) = calibration(problem, sequence, behaviour_of()).steps
    assert step.step == problem.horizon - 2
    assert step.changed


def test_evidence_keeps_it_and_tells_it(tmp_path) -> None:
    episode = ASKED[1]
    problem, sequence = Problem.from_episode(episode, wrong_model(), QUERY), changed(episode, 1)
    evidence = examine(problem, sequence, behaviour=behaviour_of())
    assert evidence.calibration == calibration(problem, sequence, behaviour_of())
    assert from_plain(Evidence, to_plain(evidence), what="evidence").calibration == evidence.calibration
    told = "\n".join(lines_of(evidence, SCHEMA, QUERY))
    assert "what comparable records say: the gain of" in told
    assert "30 comparable transitions of others" in told
    bare = replace(behaviour_of(), recordings=None)
    assert examine(problem, sequence, behaviour=bare).calibration is None
    with pytest.raises(InputError, match="without recorded courses"):
        calibration(problem, sequence, bare)


def test_little_that_is_left_is_a_warning() -> None:
    half = LocalCalibration(gain=2.0, adjusted=0.9, deviation=0.3, transitions=10)
    evidence = Evidence(changed_steps=(1,), calibration=half)
    assert [warning.code for warning in evidence.warnings] == ["beyond calibration"]
    assert Evidence(changed_steps=(1,), calibration=replace(half, adjusted=1.1)).warnings == ()
    assert Evidence(changed_steps=(1,), calibration=replace(half, gain=0.0, adjusted=0.0)).warnings == ()


def test_of_an_ensemble_the_member_that_gains_least_is_judged() -> None:
    problem = EnsembleProblem.from_episode(ASKED[2], [wrong_model(), true_model()], QUERY)
    sequence = changed(ASKED[2], 2)
    found = examine(problem, sequence, behaviour=behaviour_of()).calibration
    assert found is not None
    gains = [member.outcome(sequence) - member.observed_outcome for member in problem.members]
    assert found.member == int(np.argmin(gains))
    assert found.gain == pytest.approx(min(gains))
    with pytest.raises(InputError, match="one model's problem"):
        calibration(problem, sequence, behaviour_of())


def test_sixteen_thousand_records_take_no_time() -> None:
    problem, sequence = Problem.from_episode(ASKED[0], true_model(), QUERY), changed(ASKED[0], 0)
    assert len(behaviour_of().recordings) == 16_000
    calibration(problem, sequence, behaviour_of())  # abducts all of them, once for a model
    spent = []
    for _ in range(5):
        start = time.perf_counter()
        calibration(problem, sequence, behaviour_of())
        spent.append(time.perf_counter() - start)
    assert min(spent) < 0.2
