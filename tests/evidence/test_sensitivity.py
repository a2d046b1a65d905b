import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from effort import some
from made_courses import helpful, linear_problem, linear_slopes

import ifonly
import ifonly.models.ensemble
from ifonly.errors import InputError
from ifonly.evidence import robustness, sensitivity, witnesses
from ifonly.evidence.shifts import Courses, ShiftedCourse
from ifonly.models.noise import Laplace
from ifonly.problem import Problem
from ifonly.query import Query
from ifonly.records import from_plain, to_plain
from ifonly.result import Evidence, Sensitivity
from ifonly.rewards import ActionCost, Custom, Linear
from ifonly.testing.instances import MODEL_KINDS, REWARD_KINDS, random_ensemble, random_problem
from ifonly.text.evidence import lines_of, sensitivity_messages

sensitivity_module = sys.modules["ifonly.evidence.sensitivity"]  # the package calls the function by the same name


def shifted_outcome(problem: Problem, sequence: torch.Tensor, shift: torch.Tensor) -> float:
    return replace(problem, noise=problem.noise + shift).outcome(sequence)


def words_of(problem: Problem, found: Sensitivity) -> list[str]:
    return [str(message) for message in sensitivity_messages(found, problem.episode.schema)]


@pytest.mark.parametrize("seed", range(some(12)))
def test_linear_problems_have_the_answer_in_closed_form(seed: int) -> None:
    problem = linear_problem(seed, state_size=1 + seed % 3)
    sequence = helpful(problem)
    if sequence is None:
        pytest.skip("nothing helps here")
    found = sensitivity(problem, sequence, largest=1e4)
    gain = problem.outcome(sequence) - problem.observed_outcome
    slopes = linear_slopes(problem, sequence, np.ones(problem.noise.shape[1]))
    first = int((sequence != problem.observed_actions).nonzero()[0])
    assert found.gain == pytest.approx(gain)
    assert [step.step for step in found.steps] == list(range(first, problem.horizon - 1))
    for step in found.steps:
        exact = gain / np.linalg.norm(slopes[step.step])
        assert step.undone_by == pytest.approx(exact, rel=1e-4, abs=1e-4)
        # The expansion of a linear problem is the problem itself.
        assert step.harmless_below == pytest.approx(exact, rel=1e-6)
    for column, item in enumerate(found.features):
        exact = gain / abs(slopes[first:, column].sum())
        assert abs(item.undone_by) == pytest.approx(exact, rel=1e-4, abs=1e-4)
        assert item.undone_by * slopes[first:, column].sum() < 0
        assert item.harmless_below <= exact


@pytest.mark.parametrize("seed", range(some(18)))
def test_witnesses_leave_no_gain_and_are_never_below_the_bound(seed: int) -> None:
    kind, reward = MODEL_KINDS[seed % len(MODEL_KINDS)], REWARD_KINDS[seed // 5 % len(REWARD_KINDS)]
    problem = random_problem(seed, model_kind=kind, reward_kind=reward, masked=False, horizon=4)
    sequence = helpful(problem)
    if sequence is None:
        pytest.skip("nothing helps here")
    found = sensitivity(problem, sequence)
    course = ShiftedCourse.of(problem, sequence)
    for step in found.steps:
        assert step.harmless_below >= 0
        assert step.undone_by is None or step.harmless_below <= step.undone_by <= found.largest
        if step.undone_by is not None:
            # The effect tells the shift, whatever the model: abduct it back and replay.
            t = step.step
            after = course.states[t + 1] + torch.tensor(step.scaled_effect)
            noise = problem.model.abduct(course.states[t], problem.context[t], sequence[t], after)
            shift = torch.zeros_like(problem.noise)
            shift[t] = noise - problem.noise[t]
            length = float(torch.linalg.solve_triangular(course.factor, shift[t][:, None], upper=False).norm())
            assert length == pytest.approx(step.undone_by, rel=1e-5)
            assert shifted_outcome(problem, sequence, 1.000001 * shift) <= problem.observed_outcome + 1e-6
    for column, item in enumerate(found.features):
        assert item.harmless_below >= 0
        if item.undone_by is not None:
            assert item.harmless_below <= abs(item.undone_by) <= found.largest
            shift = torch.zeros_like(problem.noise)
            shift[course.first :, column] = item.undone_by * course.deviations[column]
            assert shifted_outcome(problem, sequence, shift) <= problem.observed_outcome


@pytest.mark.parametrize("seed", range(some(12)))
def test_no_smaller_shift_than_the_bound_undoes_the_gain(seed: int) -> None:
    kind = ("location-scale", "additive", "post-nonlinear", "linear")[seed % 4]
    problem = random_problem(seed, model_kind=kind, reward_kind="linear", masked=False, horizon=4)
    sequence = helpful(problem)
    if sequence is None:
        pytest.skip("nothing helps here")
    found, course = sensitivity(problem, sequence), ShiftedCourse.of(problem, sequence)
    generator = torch.Generator().manual_seed(seed)
    assert found.steps
    for step in found.steps:
        assert step.harmless_below > 0
        directions = torch.randn(400, problem.noise.shape[1], generator=generator, dtype=torch.float64)
        standardised = min(step.harmless_below, 1e6) * torch.nn.functional.normalize(directions, dim=1)
        shifts = torch.zeros(400, *problem.noise.shape, dtype=torch.float64)
        shifts[:, step.step] = standardised @ course.factor.mT
        assert (course.gains(shifts) > 0).all()
    for column, item in enumerate(found.features):
        sizes = item.harmless_below * torch.linspace(-1, 1, 41, dtype=torch.float64)
        shifts = torch.zeros(41, *problem.noise.shape, dtype=torch.float64)
        shifts[:, course.first :, column] = (sizes * course.deviations[column])[:, None]
        assert (course.gains(shifts) > 0).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_grid_of_directions_finds_nothing_much_smaller(seed: int) -> None:
    problem = random_problem(
        seed, model_kind="location-scale", reward_kind="linear", masked=False, horizon=4, state_size=2
    )
    sequence = helpful(problem)
    if sequence is None:
        pytest.skip("nothing helps here")
    found, course = sensitivity(problem, sequence), ShiftedCourse.of(problem, sequence)
    angles = torch.linspace(0, 2 * math.pi, 91, dtype=torch.float64)[:-1]
    directions = torch.stack([angles.cos(), angles.sin()], dim=1)
    lengths = torch.linspace(0, found.largest, 501, dtype=torch.float64)[1:]
    for step in found.steps:
        trials = (lengths[:, None, None] * directions) @ course.factor.mT  # [500, 90, 2]
        shifts = torch.zeros(trials.shape[0] * trials.shape[1], *problem.noise.shape, dtype=torch.float64)
        shifts[:, step.step] = trials.flatten(0, 1)
        undone = (course.gains(shifts) <= 0).view(500, 90).any(1)
        smallest = float(lengths[int(undone.to(torch.int64).argmax())]) if undone.any() else math.inf
        assert (step.undone_by or math.inf) <= smallest + 0.021


def test_lengths_are_counted_in_the_priors_deviations() -> None:
    problem = random_problem(5, model_kind="additive", reward_kind="linear", masked=False)
    sequence = helpful(problem)
    model = problem.model
    model.prior = Laplace(problem.noise.shape[1]).double()
    before = sensitivity(problem, sequence, largest=100)
    with torch.no_grad():
        model.prior.log_scale += math.log(4)
    after = sensitivity(problem, sequence, largest=100)
    for one, other in zip(before.steps, after.steps, strict=True):
        assert other.undone_by == pytest.approx(one.undone_by / 4, rel=1e-3)
        assert other.harmless_below == pytest.approx(one.harmless_below / 4, rel=1e-6)
    assert float(ShiftedCourse.of(problem, sequence).deviations[0]) == pytest.approx(4 * math.sqrt(2))


def test_sequences_with_nothing_to_undo() -> None:
    problem = linear_problem(1)
    same = sensitivity(problem, problem.observed_actions)
    assert (same.steps, same.features, same.gain) == ((), (), 0.0)
    (told,) = lines_of(Evidence(sensitivity=same), problem.episode.schema, problem.query)
    assert "Nothing is changed" in told
    worse = next(
        sequence
        for sequence in (
            problem.observed_actions.clone().index_fill_(0, torch.tensor([t]), a) for t in (0, 1) for a in range(3)
        )
        if problem.outcome(sequence) < problem.observed_outcome
    )
    assert "do not help" in words_of(problem, sensitivity(problem, worse))[0]


def test_a_change_of_the_last_action_cannot_be_undone() -> None:
    schema = ifonly.Schema((ifonly.Feature("x", "dynamic"),), ifonly.ActionSpace.categories(["costly", "free"]))
    episode = ifonly.Episode("a", schema, states=[[1.0], [2.0], [1.0]], actions=[0, 0, 0])
    model = ifonly.LinearModel(schema, [[[1.0]], [[1.0]]])
    reward = Linear({"x": 1.0}) + ActionCost({0: 5.0})
    problem = Problem.from_episode(episode, model, Query(reward, 1))
    found = sensitivity(problem, [0, 0, 1])
    assert (found.gain, found.steps, found.features) == (5.0, (), ())
    assert "no later influence" in words_of(problem, found)[0]


def test_what_no_influence_can_undo_is_told() -> None:
    schema = ifonly.Schema((ifonly.Feature("x", "dynamic"),), ifonly.ActionSpace.categories(["costly", "free"]))
    episode = ifonly.Episode("a", schema, states=[[1.0], [2.0], [1.0]], actions=[0, 0, 0])
    problem = Problem.from_episode(
        episode, ifonly.LinearModel(schema, [[[1.0]], [[1.0]]]), Query(ActionCost({0: 5.0}), 1)
    )
    found = sensitivity(problem, [1, 0, 0])
    assert [(step.harmless_below, step.undone_by) for step in found.steps] == [(math.inf, None)] * 2
    assert any("no influence can undo it" in line for line in words_of(problem, found))
    content = json.loads(json.dumps(to_plain(found), allow_nan=False))
    assert content["steps"][0]["harmless_below"] is None
    assert from_plain(Sensitivity, content, what="sensitivity") == found


class Steep(ifonly.LinearModel):
    """A model that promises nothing."""

    def lipschitz(self, context: torch.Tensor, actions: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return torch.full_like(super().lipschitz(context, actions, noise), math.inf)

    def smooth(self) -> None:
        return None


class Unknown(Steep):
    """One whose step may be anything."""

    def step(self, *inputs: torch.Tensor) -> torch.Tensor:
        return super().step(*inputs)


@pytest.mark.parametrize("kind", ["location-scale", "additive", "post-nonlinear", "linear"])
def test_slopes_of_the_noise_hold_and_are_not_inherited_by_another_step(kind: str) -> None:
    problem = random_problem(3, model_kind=kind)
    model, inputs = problem.model, (problem.observed_states[:-1], problem.context[:-1], problem.observed_actions[:-1])
    slopes = model.noise_slopes(*inputs)
    assert slopes is not None
    assert slopes.shape == problem.noise.shape
    moved = model.step(*inputs, problem.noise + 0.3) - model.step(*inputs, problem.noise)
    assert (moved.abs() <= 0.3 * slopes.abs() * (1 + 1e-9)).all()
    other = type("Other", (type(model),), {"step": lambda self, *given: type(model).step(self, *given)})
    model.__class__ = other
    assert model.noise_slopes(*inputs) is None


def test_infinite_constants_and_unknown_models_prove_nothing() -> None:
    problem = linear_problem(2)
    sequence = helpful(problem)
    plain = problem.model
    steep = Steep(plain.schema, plain.state_matrices, offsets=plain.offsets, noise_scale=plain.noise_scale)
    steep.context_matrix.copy_(plain.context_matrix)
    steep.set_scaler(plain.scaler)
    infinite = sensitivity(problem.put_to(steep), sequence)
    steep.__class__ = Unknown
    unknown = sensitivity(problem.put_to(steep), sequence)
    for found in (unknown, infinite):
        assert found.gain == pytest.approx(sensitivity(problem, sequence).gain)
        assert {item.harmless_below for item in found.features} == {0.0}
        assert any(step.undone_by is not None for step in found.steps)
        assert "cannot" not in words_of(problem, found)[0]
    assert {step.harmless_below for step in unknown.steps} == {0.0}
    # Only the last noise has no step after it, whose constant would be needed.
    assert [step.harmless_below > 0 for step in infinite.steps] == [False] * (len(infinite.steps) - 1) + [True]


@pytest.mark.parametrize("seed", range(3))
def test_long_courses_are_asked_in_parts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the shifts of 100 steps of 40 features would fill the memory."""
    problem = random_problem(seed, model_kind="additive", reward_kind="linear", masked=False, horizon=6)
    sequence = helpful(problem)
    if sequence is None:
        pytest.skip("nothing helps here")
    whole, largest, gains = sensitivity(problem, sequence), [], Courses.gains

    def counted(self: Courses, owner: torch.Tensor, shifts: torch.Tensor, **options: bool) -> torch.Tensor:
        largest.append(shifts.numel())
        return gains(self, owner, shifts, **options)

    one = witnesses.shifts_per_step(ShiftedCourse.of(problem, sequence).alone) * problem.noise.numel()
    monkeypatch.setattr(sensitivity_module, "MOST_NUMBERS", one)
    monkeypatch.setattr(Courses, "gains", counted)
    parts = sensitivity(problem, sequence)
    assert max(largest) == one
    for found, expected in zip(parts.steps, whole.steps, strict=True):
        assert found.undone_by == pytest.approx(expected.undone_by, rel=1e-9)
    assert parts.features == whole.features


def test_where_tables_would_not_fit_nothing_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = linear_problem(2)
    sequence = helpful(problem)
    expanded = sensitivity(problem, sequence)
    monkeypatch.setattr(robustness, "TABLE_ELEMENTS", 0)
    monkeypatch.setattr(robustness, "expand_values_together", None)
    plain = sensitivity(problem, sequence)
    bounds = [
        (here.harmless_below, there.harmless_below) for here, there in zip(plain.steps, expanded.steps, strict=True)
    ]
    assert all(0 < here <= there for here, there in bounds)
    assert [step.undone_by for step in plain.steps] == [step.undone_by for step in expanded.steps]


def test_a_lasting_push_that_makes_the_model_more_erratic_is_bounded_all_the_same() -> None:
    """Noise of zero hides how the scale bends with the state; under a push it counts, and the bound must know."""
    schema = ifonly.Schema((ifonly.Feature("x", "dynamic"),), ifonly.ActionSpace.categories(["wait", "treat"]))
    location = {"state": [[0.0]], "context": np.zeros((1, 0)), "action": [[0.0, 2.0]], "bias": [0.0]}
    scale = {"state": [[3.0]], "context": np.zeros((1, 0)), "action": [[0.0, 0.0]], "bias": [0.0]}
    model = ifonly.LocationScale.from_weights(
        schema,
        location={**location, "output": [[0.5]], "output_bias": [0.0]},
        scale={**scale, "output": [[-3.0]], "output_bias": [0.0]},
        covariance=[[1.0]],
    )
    episode = ifonly.Episode("calm", schema, states=[[0.0]] * 4, actions=[0] * 4)
    problem = Problem.from_episode(episode, model, Query(Linear({"x": 1.0}), 1))
    (push,) = sensitivity(problem, [1, 0, 0, 0]).features
    assert 0 < push.harmless_below <= -push.undone_by < 0.345  # what the slopes along the course alone would allow


@pytest.mark.parametrize("effect", [0.0, 0.001])
def test_what_the_third_derivative_does_is_bounded(effect: float) -> None:
    """V(y) = y / 20 + y - tanh(y) after a shift by y: a loss that neither gradient nor Hessian tells."""
    schema = ifonly.Schema((ifonly.Feature("x", "dynamic"),), ifonly.ActionSpace.from_vectors([[0.0], [1.0]]))
    model = ifonly.Additive(schema, hidden=(2,)).double()
    model.set_scaler(model.scaler)
    wide = 1e-3
    weights = {"state": [[wide], [1.0]], "action": [[effect * wide], [0.0]], "bias": [0.0, 0.0]}
    model.location.load_weights("the", {**weights, "output": [[0.05 / wide, -1.0]], "output_bias": [0.0]})
    episode = ifonly.Episode("flat", schema, states=[[0.0]] * 3, actions=[0] * 3)
    gain, exact = 0.05, 0.0
    problem = Problem.from_episode(episode, model, Query(Linear({"x": 1.0}) + ActionCost({0: gain}), 1))
    step = sensitivity(problem, [1, 0, 0]).steps[0]
    while exact / 20 + exact - math.tanh(exact) < gain:
        exact += 1e-4
    assert 0.8 * exact <= step.harmless_below <= exact * (1 + 10 * effect) + 2e-4
    assert step.undone_by == pytest.approx(exact, rel=0.02)


def test_an_ensemble_is_as_sensitive_as_its_centre() -> None:
    problem = random_problem(3, model_kind="additive", reward_kind="linear", masked=False)
    other = random_problem(3, model_kind="additive", reward_kind="linear", masked=False).model
    ensemble = problem.put_to(ifonly.models.ensemble.Ensemble([other], centre=problem.model))
    sequence = helpful(problem)
    assert sensitivity(ensemble, sequence) == sensitivity(problem, sequence)


def test_a_sequence_that_is_infinitely_bad_is_plain_json() -> None:
    schema = ifonly.Schema((ifonly.Feature("x", "dynamic"),), ifonly.ActionSpace.categories(["a", "b"]))
    episode = ifonly.Episode("a", schema, states=[[1.0], [2.0], [1.0]], actions=[0, 0, 0])
    ruin = Custom(
        lambda states, actions: torch.where(actions == 1, -math.inf, 0.0 * states[..., 0]), 0.0, space="scaled"
    )
    found = sensitivity(
        Problem.from_episode(episode, ifonly.LinearModel(schema, [[[1.0]]] * 2), Query(ruin, 1)), [1, 0, 0]
    )
    assert (found.helps, found.steps, to_plain(found)["gain"]) == (False, (), None)


def test_it_is_told_in_words_and_in_original_units() -> None:
    problem = linear_problem(3, state_size=2)
    sequence = helpful(problem)
    found = sensitivity(problem, sequence, largest=1e3)
    weakest = found.weakest
    assert weakest.undone_by == min(step.undone_by for step in found.steps)
    told = words_of(problem, found)
    assert told[0].startswith("an unrecorded influence of ")
    assert f"at step {weakest.step} would undo the gain; influences below" in told[0]
    assert len(told) == 1 + len(found.steps) + len(found.features) + 1
    scale = problem.model.scaler.states.scale
    np.testing.assert_allclose(weakest.effect, np.array(weakest.scaled_effect) * scale, rtol=1e-6)
    content = json.loads(json.dumps(to_plain(found), allow_nan=False))
    assert from_plain(Sensitivity, content, what="sensitivity") == found
    assert len(found.steps[0].effect) == 2
    small = sensitivity(problem, sequence, largest=1e-6)
    assert small.weakest is None
    assert "no unrecorded influence at a single step was found" in words_of(problem, small)[0]
    assert any("no common push" in line for line in words_of(problem, small))
    assert isinstance(small, Sensitivity)


def test_bad_requests() -> None:
    problem = linear_problem(1)
    with pytest.raises(InputError, match="of an ensemble problem"):
        sensitivity(random_ensemble(7), problem.observed_actions)
    with pytest.raises(InputError, match="largest"):
        sensitivity(problem, problem.observed_actions, largest=math.inf)
    with pytest.raises(InputError, match="action sequence"):
        sensitivity(problem, [0])
