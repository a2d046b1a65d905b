"""Derivatives of smooth steps against automatic differentiation, and their bounds against what sampling finds."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import hessian, jacrev, jvp

from ifonly.data import Schema
from ifonly.models import Additive, LinearModel, LocationScale, MonotoneFlow, PartitionModel, PostNonlinear
from ifonly.models.base import TransitionModel
from ifonly.models.layers import ACTIVATIONS, Network
from ifonly.models.smooth import (
    DERIVATIVE_BOUNDS,
    Part,
    SmoothStep,
    curve_derivatives,
    eigenvalue_bound,
    entry_weights,
    norm_bound,
    triples,
    unpacked,
)

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
"""By torch, when it first differentiates forward."""

CURVES = tuple(DERIVATIVE_BOUNDS)
HIDDEN = ((6,), (5, 4))
ROWS = 7


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def network_model(
    kind: type[LocationScale | Additive], schema: Schema, *, hidden: tuple[int, ...], activation: str, constrained: bool
) -> LocationScale | Additive:
    """Weights of every part at random, biases too; those without limits are large enough to bend."""
    limits = (1.1, 0.4) if kind is LocationScale else 1.1
    model = kind(schema, hidden=hidden, activation=activation, lipschitz=limits if constrained else None)
    model.initialize(generator(1))
    with torch.no_grad():
        for network in model.networks():
            for matrix in network.matrices():
                matrix.raw.mul_(2.0)
            for number, bias in enumerate(network.biases):
                bias.copy_(0.7 * draw(len(bias), seed=number))
    return model.for_search()


def parts_and_networks(model: LocationScale | Additive) -> list[tuple[Part, Network]]:
    smooth = model.smooth()
    assert smooth is not None
    return list(zip(smooth.parts, model.networks(), strict=True))


def every_network_model(test: Callable) -> Callable:
    for name, values in (
        ("kind", (LocationScale, Additive)),
        ("hidden", HIDDEN),
        ("activation", CURVES),
        ("constrained", (True, False)),
    ):
        test = pytest.mark.parametrize(name, values)(test)
    return test


def rows(model: TransitionModel, count: int = ROWS, spread: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        spread * draw(count, model.state_size, seed=3),
        draw(count, model.context_size, seed=4),
        torch.arange(count) % model.action_count,
        2.0 * draw(count, model.state_size, seed=5),
    )


def step_derivatives(model: TransitionModel, smooth: SmoothStep, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """The step's Jacobians and Hessians from the parts' own: sum of parts under their tops, and the linear part."""
    states, context, actions, noise = batch
    size = model.state_size
    jacobian = torch.zeros(len(states), size, size, dtype=torch.float64)
    second = torch.zeros(len(states), size, size, size, dtype=torch.float64)
    if smooth.skip is not None:
        jacobian = jacobian + smooth.skip[actions]
    for part in smooth.parts:
        inner = part.derivatives(states, context, actions, second=True)
        slope, curvature = torch.ones_like(inner.value), torch.zeros_like(inner.value)
        if part.top == "softplus":
            _, slope, curvature, _ = curve_derivatives("softplus", inner.value)
        if part.by_noise:
            slope, curvature = slope * noise, curvature * noise
        outer = inner.jacobian.unsqueeze(-1) * inner.jacobian.unsqueeze(-2)
        jacobian = jacobian + slope.unsqueeze(-1) * inner.jacobian
        second = second + slope[..., None, None] * unpacked(inner.hessian, size) + curvature[..., None, None] * outer
    return jacobian, second


def differentiated(function: Callable[[Tensor], Tensor], states: Tensor) -> tuple[Tensor, Tensor]:
    """Jacobians [N, O, D] and Hessians [N, O, D, D] of a function of independent rows."""

    def total(x: Tensor) -> Tensor:
        return function(x).sum(0)

    return jacrev(total)(states).movedim(1, 0), hessian(total)(states).diagonal(dim1=1, dim2=3).movedim(-1, 0)


def thirds(function: Callable[[Tensor], Tensor], states: Tensor) -> Tensor:
    """Third derivatives [N, O, D, D, D] of a function of independent rows, from those along some directions."""
    size = states.shape[1]
    eye = torch.eye(size, dtype=torch.float64)

    def along(inner: Callable[[Tensor], Tensor], vector: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: jvp(inner, (x,), (vector.expand_as(x),))[1]

    rows = [along(along(along(function, a), b), c)(states) for a in eye for b in eye for c in eye]
    return torch.stack(rows, dim=-1).unflatten(-1, (size, size, size))


def check_step(model: TransitionModel, spread: float = 1.0) -> None:
    batch = rows(model, spread=spread)
    smooth = model.smooth()
    assert smooth is not None
    found = step_derivatives(model, smooth, batch)
    for mine, wanted in zip(found, differentiated(lambda x: model.step(x, *batch[1:]), batch[0]), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-11, atol=1e-12)


@every_network_model
def test_the_network_has_these_derivatives(
    kind: type[LocationScale | Additive], hidden: tuple[int, ...], activation: str, constrained: bool, schema: Schema
) -> None:
    model = network_model(kind, schema, hidden=hidden, activation=activation, constrained=constrained)
    states, context, actions, _ = rows(model)
    vectors = model.action_vectors[actions]
    for part, network in parts_and_networks(model):
        inner = part.derivatives(states, context, actions, second=True)
        assert inner.hessian is not None
        torch.testing.assert_close(inner.value, network(states, context, vectors), rtol=1e-13, atol=1e-13)
        first, second = differentiated(lambda x, network=network: network(x, context, vectors), states)
        torch.testing.assert_close(inner.jacobian, first, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(unpacked(inner.hessian, 3), second, rtol=1e-11, atol=1e-12)
        first_only = part.derivatives(states, context, actions, second=False)
        assert first_only.hessian is None
        assert torch.equal(first_only.jacobian, inner.jacobian)
        jet = part.jet(states, context, actions)
        torch.testing.assert_close(jet.value, inner.value, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(jet.jacobian, first, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(unpacked(jet.hessian, 3), second, rtol=1e-11, atol=1e-12)
        assert part.is_shallow == (len(hidden) == 1)
        assert (jet.third is not None) == part.is_shallow
        if jet.third is not None:
            places = triples(3, states.device)[1]
            third = thirds(lambda x, network=network: network(x, context, vectors), states)
            torch.testing.assert_close(jet.third()[..., places], third.flatten(2), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_triples_of_a_symmetric_tensor(size: int) -> None:
    (i, j, k), places = triples(size, torch.device("cpu"))
    assert len(i) == size * (size + 1) * (size + 2) // 6
    assert bool(((i <= j) & (j <= k)).all())
    vector = torch.arange(1.0, size + 1)
    packed = vector[i] + 10 * vector[j] + 100 * vector[k]
    full = packed[places].view(size, size, size)
    for entry in torch.cartesian_prod(*[torch.arange(size)] * 3).view(-1, 3):
        first, second, last = vector[entry.sort().values]
        assert float(full[tuple(entry)]) == float(first + 10 * second + 100 * last)


@pytest.mark.parametrize("top", ["identity", "softplus"])
def test_tops_have_these_derivatives(top: str) -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    part = Part(one, one[:, :0], 0 * one, (one,), (one[0],), "tanh", top=top, by_noise=top == "softplus")
    value, noise = draw(40, 1).mul_(4).requires_grad_(), 2 * draw(40, 1, seed=1)
    found = part.top_derivatives(value.detach(), noise)
    current = torch.nn.functional.softplus(value) * noise if top == "softplus" else value + 0 * value**3
    for derivative in found:
        (current,) = torch.autograd.grad(current.sum(), value, create_graph=True)
        torch.testing.assert_close(derivative, current.detach(), rtol=1e-9, atol=1e-12)


@every_network_model
def test_the_sum_of_parts_is_the_step(
    kind: type[LocationScale | Additive], hidden: tuple[int, ...], activation: str, constrained: bool, schema: Schema
) -> None:
    check_step(network_model(kind, schema, hidden=hidden, activation=activation, constrained=constrained))


def test_linear_steps(schema: Schema) -> None:
    rng = np.random.default_rng(0)
    matrices = rng.normal(size=(6, 3, 3))
    check_step(LinearModel(schema, matrices, context_matrix=rng.normal(size=(3, 2)), noise_scale=[0.5, 1.0, 2.0]))
    partition = PartitionModel()
    check_step(partition)
    assert torch.equal(partition.smooth().skip[1], torch.tensor([[1.0, -1.0], [0.0, 0.0]], dtype=torch.float64))


def test_what_has_no_three_derivatives(schema: Schema) -> None:
    for kind in (LocationScale, Additive):
        assert kind(schema, hidden=(4,), activation="relu").for_search().smooth() is None
    for kind in (PostNonlinear, MonotoneFlow):
        for activation in ACTIVATIONS:
            assert kind(schema, hidden=(4,), activation=activation).for_search().smooth() is None
    assert SmoothStep.of_parts((None,)) is None


def directional(network: Callable[[Tensor], Tensor], states: Tensor, directions: Tensor) -> list[Tensor]:
    """The first four derivatives [N, O] of `network` along `directions` [N, D]: nested differentiation."""
    found, function = [], network
    for _ in range(4):
        function = partial(lambda inner, x: jvp(inner, (x,), (directions,))[1], function)
        found.append(function(states))
    return found


def unit(vectors: Tensor) -> Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True)


@every_network_model
def test_derivative_bounds_hold_everywhere(
    kind: type[LocationScale | Additive], hidden: tuple[int, ...], activation: str, constrained: bool, schema: Schema
) -> None:
    model = network_model(kind, schema, hidden=hidden, activation=activation, constrained=constrained)
    count = 1000
    spread = torch.logspace(-2, 1.5, count, dtype=torch.float64).unsqueeze(1)
    states, context, actions, _ = rows(model, count)
    states = states * spread
    vectors, directions = model.action_vectors[actions], unit(draw(count, 3, seed=9))
    for part, network in parts_and_networks(model):
        # A random direction, and the one in which the network is steepest: there the others are large as well.
        steepest = torch.linalg.svd(part.derivatives(states, context, actions, second=False).jacobian)[2][:, 0]
        for along in (directions, steepest):
            found = directional(lambda x, network=network: network(x, context, vectors), states, along)
            for order, (derivative, bound) in enumerate(zip(found, part.derivative_bounds, strict=True)):
                largest = float(derivative.norm(dim=1).max())
                assert largest <= bound * (1 + 1e-12), order
                if along is steepest and order == 0 and len(hidden) == 1:
                    assert largest >= 0.1 * bound  # not merely large
            form = torch.einsum("ni,ij,nj->n", along, part.third_form, along)
            assert bool((found[2].norm(dim=1) <= form * (1 + 1e-12)).all())
        assert bool((torch.linalg.eigvalsh(part.third_form) >= 0).all())


@pytest.mark.parametrize("curve", CURVES)
def test_derivative_bounds_are_reached_by_a_single_unit(curve: str) -> None:
    """One state, one unit: the bounds are the curve's own, times powers of the weight."""
    weight = 1.7
    part = Part(
        state=torch.tensor([[weight]], dtype=torch.float64),
        context=torch.zeros(1, 0, dtype=torch.float64),
        actions=torch.zeros(1, 1, dtype=torch.float64),
        matrices=(torch.tensor([[-2.0]], dtype=torch.float64),),
        biases=(torch.zeros(1, dtype=torch.float64),),
        activation=curve,
    )
    assert part.is_shallow
    for order, (found, bound) in enumerate(zip(part.derivative_bounds, DERIVATIVE_BOUNDS[curve], strict=True), start=1):
        assert found == pytest.approx(2 * weight**order * bound, rel=1e-9)
    assert float(part.third_form) == pytest.approx(part.derivative_bounds[2], rel=1e-9)
    assert float(part.column_norms) == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize("curve", CURVES)
def test_derivative_bounds_of_a_chain_of_units(curve: str) -> None:
    """Three weights in a row: the chain rule, with every derivative of the curve at its largest."""
    u, v, w = 1.3, 0.8, 2.1
    one = torch.ones(1, 1, dtype=torch.float64)
    part = Part(
        state=u * one,
        context=one[:, :0],
        actions=0 * one,
        matrices=(-v * one, w * one),
        biases=(one[0], one[0]),
        activation=curve,
    )
    assert not part.is_shallow
    s1, s2, s3, s4 = DERIVATIVE_BOUNDS[curve]
    p, q, r, f = v * s1 * u, v * s2 * u**2, v * s3 * u**3, v * s4 * u**4
    fourth = s4 * p**4 + 6 * s3 * p**2 * q + s2 * (3 * q**2 + 4 * p * r) + s1 * f
    wanted = (w * s1 * p, w * (s2 * p**2 + s1 * q), w * (s3 * p**3 + 3 * s2 * p * q + s1 * r), w * fourth)
    assert part.derivative_bounds == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("curve", CURVES)
def test_curve_bounds_against_dense_sampling(curve: str) -> None:
    line = torch.linspace(-60, 60, 240_001, dtype=torch.float64)
    function = ACTIVATIONS[curve][0] if curve != "tanh" else torch.tanh
    value, *derivatives = curve_derivatives(curve, line)
    torch.testing.assert_close(value, function(line), rtol=1e-13, atol=1e-15)
    derivative = line.clone().requires_grad_()
    current = function(derivative)
    found = []
    for _ in range(4):
        (current,) = torch.autograd.grad(current.sum(), derivative, create_graph=True)
        found.append(current.detach())
    for mine, wanted in zip(derivatives, found[:3], strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-9, atol=1e-12)
    for sampled, bound in zip(found, DERIVATIVE_BOUNDS[curve], strict=True):
        largest = float(sampled.abs().max())
        assert 0.998 * bound <= largest <= bound


def hard_matrices(rows_count: int, columns: int) -> Tensor:
    """Random ones, of full and of low rank, orthogonal ones (where every singular value is the largest), any scale."""
    full = draw(40, rows_count, columns, seed=1)
    low = draw(40, rows_count, 1, seed=2) @ draw(40, 1, columns, seed=3)
    orthogonal = torch.linalg.qr(draw(40, max(rows_count, columns), min(rows_count, columns), seed=4))[0]
    orthogonal = orthogonal if rows_count >= columns else orthogonal.mT
    together = torch.cat((full, low, orthogonal))
    scales = torch.logspace(-30, 30, len(together), dtype=torch.float64)
    return torch.cat((together, together * scales[:, None, None]))


@pytest.mark.parametrize("squarings", [2, 3, 5])
@pytest.mark.parametrize("shape", [(9, 9), (9, 81), (81, 9), (1, 9), (9, 1), (30, 30)])
def test_norm_bounds(shape: tuple[int, int], squarings: int) -> None:
    matrices = hard_matrices(*shape)
    truth = torch.linalg.svdvals(matrices)[:, 0]
    ratio = norm_bound(matrices, squarings=squarings) / truth
    # The singular value is itself rounded.
    assert float(ratio.min()) >= 1 - 2e-15 * max(shape)
    assert float(ratio.max()) <= min(shape) ** (0.5 ** (squarings + 2)) * (1 + 1e-9)
    if squarings == 3:
        assert torch.equal(norm_bound(matrices), norm_bound(matrices, squarings=3))
        assert torch.equal(norm_bound(matrices.view(2, -1, *shape)), norm_bound(matrices).view(2, -1))
        assert not norm_bound(torch.zeros(2, *shape, dtype=torch.float64)).any()


@pytest.mark.parametrize("squarings", [2, 3, 5])
@pytest.mark.parametrize("size", [1, 2, 9])
def test_eigenvalue_bounds(size: int, squarings: int) -> None:
    roots = hard_matrices(size, size)
    matrices = roots @ roots.mT
    truth = torch.linalg.eigvalsh(matrices)[:, -1]
    ratio = eigenvalue_bound(matrices, squarings=squarings) / truth
    assert float(ratio.min()) >= 1 - 1e-13
    assert float(ratio.max()) <= size ** (0.5 ** (squarings + 1)) * (1 + 1e-9)
    assert not eigenvalue_bound(torch.zeros(3, size, size, dtype=torch.float64)).any()


def test_derivative_bounds_of_huge_weights_are_infinite() -> None:
    one = torch.ones(1, 1, dtype=torch.float64)
    for weight in (1e60, 1e110, 1e200):
        part = Part(weight * one, one[:, :0], 0 * one, (one,), (one[0],), "tanh")
        assert part.derivative_bounds[0] == pytest.approx(weight)
        assert not part.derivative_bounds[3] < 1e200


def test_lengths_of_packed_matrices() -> None:
    """To the last digit: bounds in double precision rest on it."""
    for size in (1, 3, 9):
        entries = torch.randn(40, size * (size + 1) // 2, generator=torch.Generator().manual_seed(size)).double()
        full = unpacked(entries, size)
        assert torch.equal(full, full.mT)
        found = (entries * entry_weights(size, entries.device)).norm(dim=1)
        torch.testing.assert_close(found, full.flatten(1).norm(dim=1), rtol=1e-14, atol=0.0)
