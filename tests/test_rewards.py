"""Rewards in scaled coordinates against numpy in original units; declared constants against sampled slopes."""

import json
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st

from ifonly.data.scaling import Columns, Scaler
from ifonly.data.schema import ActionSpace, Feature, Schema
from ifonly.errors import InputError
from ifonly.rewards import (
    ActionCost,
    Custom,
    Hinge,
    Linear,
    PiecewiseLinear,
    Reward,
    Shown,
    Total,
    minus,
    reward_from_dict,
)

SCHEMA = Schema(
    (
        Feature("age", "static", unit="years"),
        Feature("SOFA", "dynamic", unit="points"),
        Feature("MAP", "dynamic", unit="mmHg"),
        Feature("lactate", "dynamic", unit="mmol/L", scaling="log", log_offset=0.5),
    ),
    ActionSpace.categories(["wait", "treat", "operate"]),
)
_LOG = Columns.identity(SCHEMA.dynamic)
SCALER = Scaler(
    states=Columns(np.array([8.0, 70.0, 0.3]), np.array([3.0, 12.0, 0.6]), _LOG.link),
    context=Columns.identity(SCHEMA.context),
    actions=Scaler.identity(SCHEMA).actions,
)

Values = npt.NDArray[np.float64]
Oracle = Callable[[Values, npt.NDArray[np.int64]], Values]


def distance_from_target(states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """-|MAP - 65| - action, in original units."""
    return -(states[..., 1] - 65.0).abs() - actions


def wave(states: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
    """Scaled space: slope at most 2 times (1 + action)."""
    return (1.0 + actions) * torch.sin(2.0 * states[..., 0])


def hinges(states: Values, actions: npt.NDArray[np.int64]) -> Values:
    """What HINGES says, in numpy."""
    low, sum_high = np.maximum(0, 65 - states[:, 1]), np.maximum(0, states[:, 1] + 2 * states[:, 0] - 90)
    return np.asarray(-2 * low - 0.5 * sum_high)


HINGES = PiecewiseLinear((Hinge(-2.0, {"MAP": -1.0}, 65.0), Hinge(-0.5, {"MAP": 1.0, "SOFA": 2.0}, -90.0)))

CASES: dict[str, tuple[Reward, Oracle]] = {
    "minus": (minus("SOFA"), lambda x, a: -x[:, 0]),
    "linear": (Linear({"SOFA": -2.0, "MAP": 0.1}, 3.0), lambda x, a: -2.0 * x[:, 0] + 0.1 * x[:, 1] + 3.0),
    "cost": (ActionCost({"operate": 5.0, 1: 1.5}), lambda x, a: -np.array([0.0, 1.5, 5.0])[a]),
    "hinges": (HINGES, hinges),
    "custom": (Custom(distance_from_target, {"MAP": 1.0}), lambda x, a: -np.abs(x[:, 1] - 65) - a),
    "custom scaled": (
        Custom(wave, [2.0, 4.0, 6.0], space="scaled"),
        lambda x, a: (1 + a) * np.sin(2 * (x[:, 0] - 8) / 3),
    ),
    "total": (minus("SOFA") + ActionCost({2: 1.0}) + HINGES, lambda x, a: -x[:, 0] - (a == 2) + hinges(x, a)),
}
every_reward = pytest.mark.parametrize("name", CASES)


def draw(seed: int, count: int = 50) -> tuple[Values, npt.NDArray[np.int64]]:
    """States in original units, some far out, and actions."""
    rng = np.random.default_rng(seed)
    scaled = rng.normal(size=(count, 3)) * rng.choice([0.3, 1.0, 4.0], size=(count, 1))
    return SCALER.states.decode(scaled), rng.integers(3, size=count)


@every_reward
def test_values_are_those_of_numpy_in_original_units(name: str) -> None:
    reward, oracle = CASES[name]
    states, actions = draw(0)
    bound = reward.bind(SCHEMA, SCALER)
    found = bound(torch.as_tensor(SCALER.states.encode(states)), torch.as_tensor(actions))
    assert found.dtype == torch.float64
    assert found.numpy() == pytest.approx(oracle(states, actions), rel=1e-9, abs=1e-9)


def test_a_custom_reward_sees_log_features_in_original_units() -> None:
    bound = Custom(lambda states, actions: states[..., 2] + 0.0 * actions, {"SOFA": 0.0}).bind(SCHEMA, SCALER)
    states, actions = draw(3)
    found = bound(torch.as_tensor(SCALER.states.encode(states)), torch.as_tensor(actions))
    assert found.numpy() == pytest.approx(states[:, 2], rel=1e-9)


@every_reward
def test_shapes_broadcast_and_rows_are_independent(name: str) -> None:
    bound = CASES[name][0].bind(SCHEMA, SCALER)
    states, actions = draw(1, 6)
    scaled = torch.as_tensor(SCALER.states.encode(states))
    every = bound(scaled.unsqueeze(1), torch.arange(3))
    assert every.shape == (6, 3)
    for row in range(6):
        assert bound(scaled[row : row + 1], torch.as_tensor(actions[row : row + 1])).shape == (1,)
        for action in range(3):
            alone = bound(scaled[row], torch.tensor(action))
            assert alone.shape == ()
            assert float(alone) == pytest.approx(float(every[row, action]), rel=1e-12, abs=1e-12)
    assert bound(scaled, torch.tensor(2)).shape == (6,)


@every_reward
@settings(deadline=None, derandomize=True, max_examples=some(10))
@given(seed=st.integers(0, 1000), step=st.sampled_from([1e-5, 1e-2, 1.0, 10.0]))
def test_no_slope_exceeds_the_declared_constant(name: str, seed: int, step: float) -> None:
    bound = CASES[name][0].bind(SCHEMA, SCALER)
    rng = np.random.default_rng(seed)
    here = torch.as_tensor(rng.normal(size=(200, 3)) * 3)
    direction = torch.nn.functional.normalize(torch.as_tensor(rng.normal(size=(200, 3))), dim=1)
    there = here + step * direction
    for action in range(3):
        taken = torch.full((200,), action)
        slopes = (bound(there, taken) - bound(here, taken)).abs() / (there - here).norm(dim=1)
        assert float(slopes.max()) <= float(bound.lipschitz[action]) * (1 + 1e-9) + 1e-10 / step


@pytest.mark.parametrize("name", ["minus", "linear", "hinges", "custom", "custom scaled"])
def test_the_constant_is_attained(name: str) -> None:
    """Autograd finds points where the gradient is as long as the constant says: nothing is given away."""
    bound = CASES[name][0].bind(SCHEMA, SCALER)
    rng = np.random.default_rng(0)
    states = torch.as_tensor(rng.normal(size=(20_000, 3)) * 4).requires_grad_()
    (gradient,) = torch.autograd.grad(bound(states, torch.tensor(1)).sum(), states)
    assert float(gradient.norm(dim=1).max()) == pytest.approx(float(bound.lipschitz[1]), rel=1e-3)


def test_costs_do_not_depend_on_the_state() -> None:
    assert ActionCost({0: 3.0}).bind(SCHEMA, SCALER).lipschitz.tolist() == [0.0, 0.0, 0.0]


def test_constants_of_a_total_add_up() -> None:
    parts = (minus("SOFA"), Custom(wave, [2.0, 4.0, 6.0], space="scaled"))
    total = Total(parts).bind(SCHEMA, SCALER).lipschitz
    assert torch.equal(total, parts[0].bind(SCHEMA, SCALER).lipschitz + parts[1].bind(SCHEMA, SCALER).lipschitz)


@settings(deadline=None, derandomize=True, max_examples=some(30))
@given(seed=st.integers(0, 1000), count=st.integers(1, 12))
def test_the_constant_of_hinges_is_the_largest_gradient_of_any_pattern(seed: int, count: int) -> None:
    """In as many dimensions as there are hinges every on/off pattern occurs, so the constant is exact."""
    rng = np.random.default_rng(seed)
    schema = Schema(tuple(Feature(f"x{i}", "dynamic") for i in range(count)), SCHEMA.actions)
    reward = PiecewiseLinear(
        tuple(
            Hinge(float(rng.normal()), {f"x{i}": float(rng.normal()) for i in range(count)}, float(rng.normal()))
            for _ in range(count)
        )
    )
    constant = float(reward.bind(schema, Scaler.identity(schema)).lipschitz[0])
    slopes = np.array([[h.factor * h.weights[f"x{i}"] for i in range(count)] for h in reward.hinges])
    largest = 0.0
    for pattern in range(2**count):
        on = [(pattern >> bit) & 1 for bit in range(count)]
        largest = max(largest, float(np.linalg.norm(np.array(on) @ slopes)))
    if count <= 10:
        assert constant == pytest.approx(largest, rel=1e-9)
    assert constant >= largest


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        (minus("SOFA"), Shown("cumulative SOFA", 12.0, False, "SOFA")),
        (Linear({"MAP": 1.0}), Shown("cumulative MAP", -12.0, True, "MAP")),
        (Linear({"MAP": np.float64(-1.0)}), Shown("cumulative MAP", 12.0, False, "MAP")),
        (Linear({"MAP": 2.0}), Shown("outcome", -12.0, True)),
        (Linear({"MAP": 1.0}, 3.0), Shown("outcome", -12.0, True)),
        (minus("SOFA") + ActionCost({0: 1.0}), Shown("outcome", -12.0, True)),
    ],
)
def test_outcomes_are_shown_as_people_read_them(reward: Reward, expected: Shown) -> None:
    assert reward.show(-12.0) == expected
    assert type(reward.show(-12.0).higher_is_better) is bool


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Linear({"MAP": "x"}), "'x' for 'MAP' must be a finite number"),
        (lambda: Linear({"MAP": None}), "must be a finite number"),
        (lambda: Linear({"constant": float("nan")}), "nan for 'constant'"),
        (lambda: Linear(["MAP"]), "must be a mapping"),
        (lambda: Linear("MAP"), "must be a mapping"),
        (lambda: Hinge(1.0, ["MAP"], 0.0), "must be a mapping"),
        (lambda: ActionCost([1.0, 2.0]), "must be a mapping"),
        (lambda: ActionCost({1.5: 1}), "no action 1.5; name an action by its number or its label"),
        (lambda: ActionCost({True: 1}), "no action True"),
    ],
)
def test_slips_are_named(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_rewards_can_be_summed() -> None:
    parts = [minus("SOFA"), ActionCost({0: 1.0}), Linear({"MAP": 1.0})]
    assert sum(parts) == Total(tuple(parts))
    assert sum(parts[:1]) == parts[0]
    for wrong in (3, "MAP", None):
        with pytest.raises(TypeError):
            minus("SOFA") + wrong  # type: ignore[operator]
        with pytest.raises(TypeError):
            wrong + minus("SOFA")  # type: ignore[operator]


@pytest.mark.parametrize("name", ["minus", "linear", "cost", "hinges", "total"])
def test_stored_rewards_are_the_same_again(name: str) -> None:
    reward = CASES[name][0]
    again = reward_from_dict(json.loads(json.dumps(reward.to_dict())))
    assert again == reward
    assert again.to_dict() == reward.to_dict()


@pytest.mark.parametrize(
    ("reward", "plain"),
    [
        (Linear({np.str_("SOFA"): np.float32(0.5)}, np.float32(2)), Linear({"SOFA": 0.5}, 2.0)),
        (ActionCost({np.int64(1): np.float32(1.5), np.str_("operate"): 2}), ActionCost({1: 1.5, "operate": 2.0})),
        (
            PiecewiseLinear((Hinge(np.float32(2), {"MAP": np.int64(-1)}, np.float64(65)),)),
            PiecewiseLinear((Hinge(2.0, {"MAP": -1.0}, 65.0),)),
        ),
    ],
    ids=["linear", "cost", "hinges"],
)
def test_numbers_of_numpy_can_be_stored(reward: Reward, plain: Reward) -> None:
    assert json.dumps(reward.to_dict()) == json.dumps(plain.to_dict())
    assert reward_from_dict(json.loads(json.dumps(reward.to_dict()))) == plain


def test_a_reward_keeps_what_it_was_built_with() -> None:
    weights, costs = {"SOFA": -1.0}, {0: 1.0}
    rewards = (Linear(weights), ActionCost(costs))
    weights["SOFA"], costs[0] = 5.0, 5.0
    assert rewards == (minus("SOFA"), ActionCost({0: 1.0}))


def test_a_custom_reward_cannot_be_stored() -> None:
    content = Custom(wave, 1.0, space="scaled", name="my wave").to_dict()
    named = reward_from_dict(content)
    assert named.to_dict() == content
    with pytest.raises(InputError, match="'my wave' is code and was not stored; pass reward="):
        named.bind(SCHEMA, Scaler.identity(SCHEMA))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"kind": "quadratic"}, "kind 'quadratic' is unknown"),
        ({}, "kind None is unknown"),
        ({"kind": "linear", "weights": {"SOFA": 1.0}}, "'linear': incomplete.*constant"),
        ({"kind": "action cost"}, "'action cost': incomplete.*costs"),
        ({"kind": "total", "parts": 3}, "'total': incomplete"),
        ({"kind": "piecewise linear", "hinges": [{"factor": 1.0}]}, "'piecewise linear': incomplete.*weights"),
    ],
)
def test_broken_descriptions_are_refused(content: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reward_from_dict(content)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Linear({"SOFA": np.nan}), "'SOFA' must be a finite number"),
        (lambda: Linear({"SOFA": 1.0}, np.inf), "'constant' must be a finite number"),
        (lambda: ActionCost({"treat": np.inf}), "'treat' must be a finite number"),
        (lambda: Hinge(np.nan, {"SOFA": 1.0}, 0.0), "'factor' must be a finite number"),
        (lambda: PiecewiseLinear(()), "at least one hinge"),
        (lambda: Total(()), "at least one part"),
    ],
)
def test_nonsense_is_refused_when_it_is_built(build: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (Custom(wave, {"lactate": 1.0}), "is on a logarithmic scale, where .* no Lipschitz constant"),
        (minus("age"), "'age' is not a dynamic feature"),
        (Linear({}), "at least one dynamic feature"),
        (ActionCost({"pray": 1.0}), "no action 'pray'"),
        (ActionCost({1: 1.0, "treat": 2.0}), "1 and 'treat' are the same action"),
        (ActionCost({7: 1.0}), "action 7 is unknown; actions are numbered 0 to 2"),
        (Custom(wave, 1.0), "lipschitz per feature"),
        (Custom(wave, {"SOFA": 1.0}, space="scaled"), "one constant, or one per action"),
        (Custom(wave, [1.0, 2.0], space="scaled"), "2 Lipschitz constants for 3 actions"),
        (Custom(wave, -1.0, space="scaled"), "not negative"),
        (Custom(wave, np.inf, space="scaled"), "finite"),
        (Custom(wave, 1.0, space="somewhere"), "space 'somewhere' is unknown"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_the_schema_is_refused(reward: Reward, message: str) -> None:
    with pytest.raises(InputError, match=message):
        reward.bind(SCHEMA, SCALER)


def test_totals_are_flat() -> None:
    total = minus("SOFA") + ActionCost({0: 1.0}) + minus("MAP")
    assert isinstance(total, Total)
    assert total.parts == (minus("SOFA"), ActionCost({0: 1.0}), minus("MAP"))


@pytest.mark.parametrize("reward", [minus("lactate"), PiecewiseLinear((Hinge(1.0, {"lactate": 1.0}, 0.0),))])
def test_on_a_logarithmic_scale_there_is_a_reward_and_no_lipschitz_constant(reward: Reward) -> None:
    bound = reward.bind(SCHEMA, SCALER)
    states = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]], dtype=torch.float64)
    lactate = SCALER.states.decode(states.numpy())[:, 2]
    sign = -1 if isinstance(reward, Linear) else 1
    np.testing.assert_allclose(bound(states, torch.tensor([0, 1])), sign * lactate)
    assert bool(bound.lipschitz.isinf().all())
