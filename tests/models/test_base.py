import numpy as np
import pytest
import torch

from ifonly.data import ActionSpace, Feature, Schema
from ifonly.models import LocationScale
from ifonly.testing.instances import MODEL_KINDS, NETWORK_MODELS, RandomProblemSettings, random_model

SETTINGS = {kind: RandomProblemSettings(model_kind=kind, constrained=True) for kind in MODEL_KINDS}


def made(kind, schema, seed=0):
    return random_model(schema, np.random.default_rng(seed), SETTINGS[kind])


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_for_search_is_frozen_float64_and_leaves_the_original_alone(kind, schema):
    model = made(kind, schema).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    frozen = model.for_search()
    assert frozen.is_for_search("cpu")
    assert not frozen.training
    assert all(t.dtype == torch.float64 for t in [*frozen.parameters(), *frozen.buffers()])
    assert not any(p.requires_grad for p in frozen.parameters())
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    if kind in NETWORK_MODELS:
        assert not model.is_for_search("cpu")
        assert all(p.requires_grad and p.dtype == torch.float32 for p in model.parameters())


def test_a_frozen_float64_model_that_is_not_baked_is_not_yet_for_search(schema):
    model = LocationScale(schema, hidden=(4,), lipschitz=(1.0, 0.1)).double().eval().requires_grad_(False)
    assert not model.is_for_search("cpu")
    model.bake_()
    assert model.is_for_search("cpu")
    assert not model.is_for_search("meta")


def test_baking_again_starts_from_the_weights(schema):
    """Rounding of a float32 normalisation must not survive in a float64 copy."""
    model = LocationScale(schema, hidden=(4,), lipschitz=(1.0, 0.1))
    direct = model.for_search()
    model.bake_()
    detour = model.for_search()
    assert torch.equal(direct.location.state.weight(), detour.location.state.weight())
    again = direct.for_search()
    assert torch.equal(direct.location.state.weight(), again.location.state.weight())


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_fingerprint_is_stable_and_notices_everything(kind, schema, scaler):
    model = made(kind, schema)
    first = model.fingerprint()
    assert first == made(kind, schema).fingerprint() == model.for_search().fingerprint() == model.fingerprint()
    assert first != made(kind, schema, seed=1).fingerprint()
    for name, tensor in model.state_dict().items():
        if tensor.numel() and tensor.is_floating_point():
            kept = tensor.clone()
            with torch.no_grad():
                tensor.view(-1)[-1] += 1e-3
            assert model.fingerprint() != first, name
            with torch.no_grad():
                tensor.copy_(kept)
    assert model.fingerprint() == first
    model.set_scaler(scaler)
    assert model.fingerprint() != first


def test_fingerprint_tells_activations_limits_and_schemas_apart(schema):
    base = LocationScale(schema, hidden=(4,))
    others = [
        LocationScale(schema, hidden=(4,), activation="relu"),
        LocationScale(schema, hidden=(4,), lipschitz=(1.0, 0.1)),
        LocationScale(schema, hidden=(4,), lipschitz=(1.0, 0.2)),
        LocationScale(Schema(schema.features, schema.actions, step_length=2, step_unit="h"), hidden=(4,)),
    ]
    assert len({model.fingerprint() for model in [base, *others]}) == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_set_scaler_changes_the_doses_that_networks_see(schema, scaler, dtype):
    model = LocationScale(schema, hidden=(4,)).to(dtype)
    plain = np.array(schema.actions.vectors)
    np.testing.assert_allclose(model.action_vectors.numpy(), plain, rtol=1e-6)
    model.set_scaler(scaler)
    assert model.action_vectors.dtype == dtype
    wanted = (plain - scaler.actions.offset) / scaler.actions.scale
    np.testing.assert_allclose(model.action_vectors.numpy(), wanted, rtol=1e-6 if dtype == torch.float32 else 1e-15)
    # What searches see is exact, whatever precision the model was trained in.
    np.testing.assert_array_equal(model.for_search().action_vectors.numpy(), wanted)


@pytest.mark.parametrize("kind", NETWORK_MODELS)
def test_initial_weights_depend_on_the_generator_alone(kind, schema):
    model, other = (NETWORK_MODELS[kind](schema, hidden=(5,)) for _ in range(2))
    assert model.fingerprint() == other.fingerprint()
    model.initialize(torch.Generator().manual_seed(5))
    assert model.fingerprint() != other.fingerprint()
    other.initialize(torch.Generator().manual_seed(5))
    assert model.fingerprint() == other.fingerprint()


@pytest.mark.parametrize("kind", NETWORK_MODELS)
def test_batch_size_does_not_change_the_answer(kind, schema):
    model = made(kind, schema).for_search()
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(257, 3, generator=generator, dtype=torch.float64)
    context = torch.randn(2, generator=generator, dtype=torch.float64)
    noise = torch.randn(3, generator=generator, dtype=torch.float64)
    actions = torch.randint(6, (257,), generator=generator)
    whole = model.step(states, context, actions, noise)
    parts = [model.step(states[i : i + 10], context, actions[i : i + 10], noise) for i in range(0, 257, 10)]
    assert torch.allclose(torch.cat(parts), whole, atol=1e-12)


def test_models_without_context_work():
    schema = Schema((Feature("x", "dynamic"),), ActionSpace.categories(["a", "b"]))
    for kind in MODEL_KINDS:
        model = made(kind, schema).for_search()
        states, context = torch.zeros(4, 1, dtype=torch.float64), torch.zeros(4, 0, dtype=torch.float64)
        assert model.step(states, context, torch.tensor([0, 1, 0, 1]), states).shape == (4, 1)


@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_everything_stays_on_the_model_s_device(kind, schema):
    """A tensor left on the CPU does not mix with the meta device, just as it would not with a GPU."""
    model = made(kind, schema).for_search("meta")
    assert model.is_for_search("meta")
    states, context = torch.empty(5, 1, 3, dtype=torch.float64), torch.empty(2, dtype=torch.float64)
    inputs = (states.to("meta"), context.to("meta"), torch.empty(6, dtype=torch.int64, device="meta"))
    noise = torch.empty(3, dtype=torch.float64, device="meta")
    for result in (model.step(*inputs, noise), model.abduct(*inputs, noise)):
        assert result.device.type == "meta"
        assert result.shape == (5, 6, 3)
