"""Derivatives of smooth steps against automatic differentiation, and their limits against what sampling finds."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import hessian, jacrev, jvp

from ifonly.episodes import Schema
from ifonly.models import Additive, LinearModel, LocationScale, MonotoneFlow, PartitionModel, PostNonlinear
from ifonly.models.base import TransitionModel
from ifonly.models.layers import ACTIVATIONS, Network
from ifonly.models.smooth import (
    LIMITS,
    SINGLE,
    Part,
    SmoothStep,
    Weights,
    curve_derivatives,
    norm_limit,
    positive_limit,
    third_limit,
)

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
"""By torch, when it first differentiates forward."""

CURVES = tuple(LIMITS)
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
        inner = part.inner(states, context, actions, second=True)
        slope, curvature = torch.ones_like(inner.value), torch.zeros_like(inner.value)
        if part.top == "softplus":
            _, slope, curvature = curve_derivatives("softplus", inner.value)
        if part.by_noise:
            slope, curvature = slope * noise, curvature * noise
        outer = inner.jacobian.unsqueeze(-1) * inner.jacobian.unsqueeze(-2)
        jacobian = jacobian + slope.unsqueeze(-1) * inner.jacobian
        second = second + slope[..., None, None] * inner.hessian + curvature[..., None, None] * outer
    return jacobian, second


def differentiated(function: Callable[[Tensor], Tensor], states: Tensor) -> tuple[Tensor, Tensor]:
    """Jacobians [N, O, D] and Hessians [N, O, D, D] of a function of independent rows."""

    def total(x: Tensor) -> Tensor:
        return function(x).sum(0)

    return jacrev(total)(states).movedim(1, 0), hessian(total)(states).diagonal(dim1=1, dim2=3).movedim(-1, 0)


def check_step(model: TransitionModel, spread: float = 1.0) -> None:
    batch = rows(model, spread=spread)
    smooth = model.smooth()
    assert smooth is not None
    found = step_derivatives(model, smooth, batch)
    for mine, wanted in zip(found, differentiated(lambda x: model.step(x, *batch[1:]), batch[0]), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-11, atol=1e-12)


@every_network_model
def test_the_inner_network_has_these_derivatives(
    kind: type[LocationScale | Additive], hidden: tuple[int, ...], activation: str, constrained: bool, schema: Schema
) -> None:
    model = network_model(kind, schema, hidden=hidden, activation=activation, constrained=constrained)
    states, context, actions, _ = rows(model)
    vectors, weights, chosen = model.action_vectors[actions], draw(ROWS, 3, seed=6), torch.tensor([4, 0])
    for part, network in parts_and_networks(model):
        inner = part.inner(states, context, actions, second=True)
        assert inner.hessian is not None
        torch.testing.assert_close(inner.value, network(states, context, vectors), rtol=1e-13, atol=1e-13)
        first, second = differentiated(lambda x, network=network: network(x, context, vectors), states)
        torch.testing.assert_close(inner.jacobian, first, rtol=1e-11, atol=1e-12)
        torch.testing.assert_close(inner.hessian, second, rtol=1e-11, atol=1e-12)
        first_only = part.inner(states, context, actions, second=False)
        assert first_only.hessian is None
        assert torch.equal(first_only.jacobian, inner.jacobian)
        for near in (None, torch.ones(ROWS, dtype=torch.float64)):
            around = part.around(states, context, actions, near)
            torch.testing.assert_close(around.value, inner.value, rtol=1e-13, atol=1e-13)
            torch.testing.assert_close(around.jacobian, first, rtol=1e-11, atol=1e-12)
            wanted = torch.einsum("no,noij->nij", weights, second)
            torch.testing.assert_close(around.contracted(weights.clone()), wanted, rtol=1e-11, atol=1e-12)
            torch.testing.assert_close(around.curvature(slice(None)), second, rtol=1e-11, atol=1e-12)
            torch.testing.assert_close(around.curvature(chosen), second[chosen], rtol=1e-11, atol=1e-12)


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


def directional(network: Callable[[Tensor], Tensor], states: Tensor, directions: Tensor) -> tuple[Tensor, ...]:
    """The first three derivatives [N, O] of `network` along `directions` [N, D]: nested differentiation."""

    def first(x: Tensor) -> Tensor:
        return jvp(network, (x,), (directions,))[1]

    def second(x: Tensor) -> Tensor:
        return jvp(first, (x,), (directions,))[1]

    return first(states), *jvp(second, (states,), (directions,))


def unit(vectors: Tensor) -> Tensor:
    return vectors / vectors.norm(dim=-1, keepdim=True)


@every_network_model
def test_limits_hold_everywhere(
    kind: type[LocationScale | Additive], hidden: tuple[int, ...], activation: str, constrained: bool, schema: Schema
) -> None:
    model = network_model(kind, schema, hidden=hidden, activation=activation, constrained=constrained)
    count = 4000
    spread = torch.logspace(-2, 1.5, count, dtype=torch.float64).unsqueeze(1)
    states, context, actions, _ = rows(model, count)
    states = states * spread
    vectors, directions = model.action_vectors[actions], unit(draw(count, 3, seed=9))
    for part, network in parts_and_networks(model):
        # A random direction, and the one in which the network is steepest: there the others are large as well.
        steepest = torch.linalg.svd(part.inner(states, context, actions, second=False).jacobian)[2][:, 0]
        for along in (directions, steepest):
            found = directional(lambda x, network=network: network(x, context, vectors), states, along)
            for order, (derivative, limit) in enumerate(zip(found, part.limits, strict=True)):
                largest = float(derivative.norm(dim=1).max())
                assert largest <= limit * (1 + 1e-12), order
                if along is steepest and order == 0 and len(hidden) == 1:
                    assert largest >= 0.1 * limit  # not merely large


@pytest.mark.parametrize("curve", CURVES)
def test_limits_are_reached_by_a_single_unit(curve: str) -> None:
    """One state, one unit: the limits are the curve's own, times powers of the weight."""
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
    for order, (found, limit) in enumerate(zip(part.limits, LIMITS[curve], strict=True), start=1):
        assert found == pytest.approx(2 * weight**order * limit, rel=1e-9)


@pytest.mark.parametrize("curve", CURVES)
def test_limits_of_a_chain_of_units(curve: str) -> None:
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
    s1, s2, s3 = LIMITS[curve]
    p, q, r = v * s1 * u, v * s2 * u**2, v * s3 * u**3
    wanted = (w * s1 * p, w * (s2 * p**2 + s1 * q), w * (s3 * p**3 + 3 * s2 * p * q + s1 * r))
    assert part.limits == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("curve", CURVES)
def test_curve_limits_against_dense_sampling(curve: str) -> None:
    line = torch.linspace(-60, 60, 240_001, dtype=torch.float64)
    function = ACTIVATIONS[curve][0] if curve != "tanh" else torch.tanh
    value, slope, curvature = curve_derivatives(curve, line)
    torch.testing.assert_close(value, function(line), rtol=1e-13, atol=1e-15)
    derivative = line.clone().requires_grad_()
    current = function(derivative)
    found = []
    for _ in range(3):
        (current,) = torch.autograd.grad(current.sum(), derivative, create_graph=True)
        found.append(current.detach())
    torch.testing.assert_close(slope, found[0], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(curvature, found[1], rtol=1e-9, atol=1e-12)
    for sampled, limit in zip(found, LIMITS[curve], strict=True):
        largest = float(sampled.abs().max())
        assert 0.998 * limit <= largest <= limit


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
def test_norm_limits(shape: tuple[int, int], squarings: int) -> None:
    matrices = hard_matrices(*shape)
    truth = torch.linalg.svdvals(matrices)[:, 0]
    ratio = norm_limit(matrices, squarings=squarings) / truth
    # The singular value is itself rounded.
    assert float(ratio.min()) >= 1 - 2e-15 * max(shape)
    assert float(ratio.max()) <= min(shape) ** (0.5 ** (squarings + 2)) * (1 + 1e-9)
    if squarings == 3:
        assert torch.equal(norm_limit(matrices), norm_limit(matrices, squarings=3))
        assert torch.equal(norm_limit(matrices.view(2, -1, *shape)), norm_limit(matrices).view(2, -1))
        assert not norm_limit(torch.zeros(2, *shape, dtype=torch.float64)).any()


@pytest.mark.parametrize("squarings", [2, 3, 5])
@pytest.mark.parametrize("size", [1, 2, 9])
def test_limits_of_positive_matrices(size: int, squarings: int) -> None:
    roots = hard_matrices(size, size)
    matrices = roots @ roots.mT
    truth = torch.linalg.eigvalsh(matrices)[:, -1]
    ratio = positive_limit(matrices, squarings=squarings) / truth
    assert float(ratio.min()) >= 1 - 1e-13
    assert float(ratio.max()) <= size ** (0.5 ** (squarings + 1)) * (1 + 1e-9)
    assert not positive_limit(torch.zeros(3, size, size, dtype=torch.float64)).any()


def third_sizes(curve: str, distances: Tensor) -> Tensor:
    """Of third derivatives, in numbers that stay small where the curves are flat."""
    e = torch.exp(-2 * distances if curve == "tanh" else -distances)
    slope = e / (1 + e) ** 2
    if curve == "softplus":
        return slope * (1 - e) / (1 + e)
    return (slope * (1 - 6 * slope)).abs() * (16 if curve == "tanh" else 1)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("curve", CURVES)
def test_third_derivatives_at_a_distance(curve: str, single: bool) -> None:
    """The supremum over all arguments at least that far from zero, up to the precision it is asked for in."""
    line = torch.linspace(0, 40, 80_001, dtype=torch.float64)
    argument = line.clone().requires_grad_()
    current = ACTIVATIONS[curve][0](argument) if curve != "tanh" else torch.tanh(argument)
    for _ in range(3):
        (current,) = torch.autograd.grad(current.sum(), argument, create_graph=True)
    sizes = third_sizes(curve, line)
    torch.testing.assert_close(sizes, current.detach().abs(), rtol=1e-9, atol=1e-12)
    wanted = sizes.flip(0).cummax(0).values.flip(0)
    found = third_limit(curve, line.float() if single else line).double()
    rounding = 1e-5 if single else 1e-12
    assert bool((found >= wanted * (1 - rounding)).all())
    assert bool((found <= wanted * 1.001).all())


def third_along(network: Callable[[Tensor], Tensor], states: Tensor, z: Tensor, e: Tensor) -> Tensor:
    """Third derivatives [N, O] along z, z and e."""

    def along(function: Callable[[Tensor], Tensor], vectors: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: jvp(function, (x,), (vectors,))[1]

    return along(along(along(network, z), z), e)(states)


def made_of(third: Tensor, weights: Weights) -> Tensor:
    """What `weights` make of third derivatives [N, O], at their worst [N]."""
    if weights.signed is not None:
        total = (weights.signed * third).sum(1).abs()
        return total if weights.unsigned is None else total + (weights.unsigned * third).abs().sum(1)
    return (third if weights.lengths is None else weights.lengths * third).norm(dim=1)


def every_weights(count: int, size: int) -> dict[str, Weights]:
    drawn = [draw(count, size, seed=seed) for seed in (11, 12, 13)]
    return {
        "signed": Weights(signed=drawn[0]),
        "with any signs": Weights(signed=drawn[0], unsigned=drawn[1]),
        "lengths": Weights(lengths=drawn[2].abs()),
        "plain lengths": Weights(),
    }


def form_values(forms: Tensor, z: Tensor) -> Tensor:
    return torch.einsum("nij,ni,nj->n", forms.double(), z, z)


@every_network_model
def test_third_derivatives_near_states(
    kind: type[LocationScale | Additive], hidden: tuple[int, ...], activation: str, constrained: bool, schema: Schema
) -> None:
    model = network_model(kind, schema, hidden=hidden, activation=activation, constrained=constrained)
    count = 300
    states, context, actions, _ = rows(model, count, spread=2.0)
    vectors, z, e = model.action_vectors[actions], draw(count, 3, seed=7), draw(count, 3, seed=8)
    near = torch.logspace(-3, 0.5, count, dtype=torch.float64)
    inside = states + near.unsqueeze(1) * unit(draw(count, 3, seed=9))
    everywhere = 10 * draw(count, 3, seed=10)
    for part, network in parts_and_networks(model):
        truths = [
            third_along(lambda y, n=network: n(y, context, vectors), x, z, e) for x in (states, inside, everywhere)
        ]
        for radius, places in ((near, truths[:2]), (None, truths)):
            around = part.around(states, context, actions, radius)
            for name, weights in every_weights(count, 3).items():
                given, for_units = around.third(weights, e), around.third(weights, None)
                for forms in (given, for_units):
                    assert forms.dtype == torch.float32
                    torch.testing.assert_close(forms, forms.mT)
                    assert bool((torch.linalg.eigvalsh(forms) >= 0).all()), "positive"
                limits = torch.minimum(form_values(given, z), form_values(for_units, z) * e.norm(dim=1))
                for third in places:
                    # Far below what any sum of them tells.
                    assert bool((made_of(third, weights) <= limits + 1e-20).all()), name


@pytest.mark.parametrize("curve", CURVES)
def test_third_derivatives_near_a_single_unit_are_attained(curve: str) -> None:
    """Two states, one unit, and two outputs: nothing is added but room for rounding, whatever is made of them."""
    row, columns = torch.tensor([[1.2, -0.5]], dtype=torch.float64), torch.tensor([[2.0], [-1.0]], dtype=torch.float64)
    part = Part(
        state=row,
        context=row[:, :0],
        actions=torch.zeros(1, 1, dtype=torch.float64),
        matrices=(columns,),
        biases=(torch.zeros(2, dtype=torch.float64),),
        activation=curve,
    )
    away = torch.tensor([0.3, -0.8, 2.0, -4.0, 9.0, -14.0], dtype=torch.float64)
    count, length = len(away), float(row.norm())
    states = away.unsqueeze(1) * row / length  # so far from where the unit bends most
    actions, context = torch.zeros(count, dtype=torch.int64), states[:, :0]
    signed, unsigned = draw(count, 2, seed=1), draw(count, 2, seed=2).abs()
    z, e = draw(count, 2, seed=3), draw(count, 2, seed=4)
    sizes = {
        "signed": (Weights(signed=signed), (signed @ columns).abs()),
        "unsigned": (
            Weights(signed=signed, unsigned=unsigned),
            (signed @ columns).abs() + unsigned @ columns.abs(),
        ),
        "lengths": (Weights(lengths=unsigned), (unsigned * columns.mT).norm(dim=1, keepdim=True)),
        "plain": (Weights(), columns.norm().expand(count, 1)),
    }
    along_z, along_e = (z @ row.mT).squeeze(1) ** 2, (e @ row.mT).squeeze(1).abs()
    for near in (0.0, 0.1, 0.7, 3.0):
        least = (away.abs() - near).clamp(min=0) * length
        around = part.around(states, context, actions, torch.full_like(away, near))
        for weights, size in sizes.values():
            exact = size.squeeze(1) * third_limit(curve, least)
            for vectors, rest in ((e, along_e), (None, length)):
                found, wanted = form_values(around.third(weights, vectors), z), exact * along_z * rest
                rounding = SINGLE * exact * length**2 * rest * z.square().sum(1)
                assert bool((found >= wanted).all())
                assert bool((found <= 1.003 * (wanted + rounding)).all())


def test_products_that_cancel() -> None:
    """In single precision nothing would be left of what weights make of these outputs, and of the vectors' product."""
    part = Part(
        state=torch.tensor([[1.0, 1.0]], dtype=torch.float64),
        context=torch.zeros(1, 0, dtype=torch.float64),
        actions=torch.zeros(1, 1, dtype=torch.float64),
        matrices=(torch.tensor([[1.0], [1.0 - 1e-8]], dtype=torch.float64),),
        biases=(torch.zeros(2, dtype=torch.float64),),
        activation="tanh",
    )
    states = torch.zeros(1, 2, dtype=torch.float64)
    opposite, nearly = (torch.tensor([[1.0, less - 1.0]], dtype=torch.float64) for less in (0.0, 1e-8))
    around = part.around(states, states[:, :0], torch.zeros(1, dtype=torch.int64), states[:, 0])
    unit_vector, wanted = torch.full((1, 2), 0.5**0.5, dtype=torch.float64), 1e-8 * 2 * 2**1.5
    for weights, vectors in ((Weights(signed=opposite), None), (Weights(), nearly)):
        assert float(form_values(around.third(weights, vectors), unit_vector)) >= wanted
