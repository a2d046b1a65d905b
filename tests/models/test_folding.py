"""Networks of tanh units that are evaluated as ones of logistic units: the same functions, and new weights count."""

import pytest
import torch
from torch import Tensor
from torch.func import hessian, jacrev

from ifonly.data import Schema
from ifonly.models import Additive, LocationScale
from ifonly.models.layers import ACTIVATIONS, MANY_ROWS, Network

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
"""By torch, when it first differentiates forward."""


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


@pytest.mark.parametrize("hidden", [(7,), (5, 4), (4, 6, 3)])
@pytest.mark.parametrize("constrained", [True, False])
class TestFolded:
    """A baked network of tanh units is evaluated as one of logistic units."""

    sizes = (3, 2, 4)

    def network(self, hidden: tuple[int, ...], constrained: bool, seed: int = 1) -> Network:
        network = Network(self.sizes, 3, hidden=hidden, lipschitz=1.3 if constrained else None).double()
        network.initialize(generator(seed))
        with torch.no_grad():
            for number, bias in enumerate(network.biases):
                bias.copy_(draw(len(bias), seed=seed + number))
        return network.requires_grad_(False)

    def inputs(self, shapes: tuple[tuple[int, ...], ...]) -> list[Tensor]:
        return [3 * draw(*shape, size, seed=size) for shape, size in zip(shapes, self.sizes, strict=True)]

    @pytest.mark.parametrize(
        "shapes",
        [
            ((), (), ()),
            ((8,), (8,), (8,)),
            ((250,), (250,), (250,)),
            ((250,), (), (250,)),
            ((8,), (), (8,)),
            ((8, 1), (), (5,)),
            ((8, 5), (), (8, 5)),
            ((8, 5), (5,), (8, 5)),
            ((2, 8, 1), (2, 1, 1), (5,)),
            ((1,), (8,), (1,)),
            ((), (8,), ()),
            ((), (), (5,)),
            ((0,), (), (0,)),
        ],
    )
    def test_is_the_same_function(self, hidden: tuple[int, ...], constrained: bool, shapes: tuple) -> None:
        network = self.network(hidden, constrained)
        inputs = self.inputs(shapes)
        copies = [values.clone() for values in inputs]
        wanted = network(*inputs)
        network.bake_()
        assert network._folded is not None
        found = network(*inputs)
        assert found.shape == wanted.shape
        torch.testing.assert_close(found, wanted, rtol=1e-13, atol=1e-13)
        assert all(torch.equal(*pair) for pair in zip(inputs, copies, strict=True))

    @pytest.mark.parametrize("how", ["initialize", "load_state_dict", "load_weights", "float", "bake_"])
    def test_new_weights_are_used(self, hidden: tuple[int, ...], constrained: bool, how: str) -> None:
        network, other = self.network(hidden, constrained), self.network(hidden, constrained, seed=5)
        inputs = self.inputs(((6,), (6,), (6,)))
        network.bake_()
        if how == "initialize":
            network.initialize(generator(5))
            other.initialize(generator(5))
        elif how == "load_state_dict":
            network.load_state_dict(other.state_dict())
        elif how == "bake_":
            with torch.no_grad():
                for mine, theirs in zip(network.parameters(), other.parameters(), strict=True):
                    mine.copy_(theirs)
            network.bake_()
        elif how == "float":
            network, other = network.float(), self.network(hidden, constrained).float()
            inputs = [values.float() for values in inputs]
        elif len(hidden) == 1:
            first = (other.state.raw, other.context.raw, other.action.raw, other.biases[0])
            names = ("state", "context", "action", "bias", "output", "output_bias")
            network.load_weights("the", dict(zip(names, (*first, other.layers[0].raw, other.biases[1]), strict=True)))
        else:
            return
        tolerance = 1e-5 if how == "float" else 1e-13
        torch.testing.assert_close(network(*inputs), other(*inputs), rtol=tolerance, atol=tolerance)

    def test_derivatives_go_through(self, hidden: tuple[int, ...], constrained: bool) -> None:
        network = self.network(hidden, constrained)
        rows = (MANY_ROWS + 1,) if hidden == (7,) else (6,)
        states, context, vectors = self.inputs((rows, (), rows))
        wanted = [transform(lambda x: network(x, context, vectors).sum(0))(states) for transform in (jacrev, hessian)]
        network.bake_()
        found = [transform(lambda x: network(x, context, vectors).sum(0))(states) for transform in (jacrev, hessian)]
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)
        for number, values in enumerate((states, context, vectors)):
            inputs = [states, context, vectors]
            inputs[number] = values.clone().requires_grad_()
            network(*inputs).square().sum().backward()
            gradient = inputs[number].grad
            plain = self.network(hidden, constrained)
            inputs[number] = values.clone().requires_grad_()
            plain(*inputs).square().sum().backward()
            torch.testing.assert_close(gradient, inputs[number].grad, rtol=1e-10, atol=1e-11)


def test_only_tanh_is_folded() -> None:
    for activation in ACTIVATIONS:
        network = Network((3, 2, 1), 3, hidden=(4,), activation=activation)
        network.bake_()
        assert (network._folded is not None) == (activation == "tanh")


def test_baking_keeps_the_fingerprint(schema: Schema) -> None:
    for kind, hidden in ((LocationScale, (6,)), (Additive, (5, 4))):
        model = kind(schema, hidden=hidden)
        before = model.fingerprint()
        model.bake_()
        assert model.fingerprint() == model.for_search().fingerprint() == before
        assert all("folded" not in name for name in model.state_dict())
