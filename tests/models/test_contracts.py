"""Every model class against every invariant, and every invariant against a model that breaks it."""

import numpy as np
import pytest
import torch
from effort import some

from ifonly.errors import VerificationError
from ifonly.models import Additive, LinearModel, LocationScale, PartitionModel
from ifonly.models.noise import PRIORS
from ifonly.testing import check_transition_model
from ifonly.testing.instances import NETWORK_MODELS, RandomProblemSettings, random_model

LIMITS = {"location-scale": (1.0, 0.2), "additive": 0.9, "post-nonlinear": 0.9, "monotone-flow": (1.0, 0.2, 0.1, 0.1)}


def strong(model, factor: float, seed: int = 0):
    """The model with every parameter drawn anew and weights `factor` times as large as a fresh model's."""
    generator = torch.Generator().manual_seed(seed)
    model.initialize(generator)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".raw"):
                parameter.mul_(factor)
            else:
                parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("hidden", [(7,), (7, 5, 6)])
@pytest.mark.parametrize("kind", NETWORK_MODELS)
def test_network_models_keep_their_promises(kind, hidden, limited, dtype, schema, scaler):
    limits = LIMITS[kind] if limited else None
    model = NETWORK_MODELS[kind](schema, hidden=hidden, lipschitz=limits, scaler=scaler).to(dtype)
    model.set_scaler(scaler)
    check_transition_model(model)
    check_transition_model(strong(model, 3.0), seed=1)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("kind", NETWORK_MODELS)
def test_every_prior_with_every_model(kind, prior, schema):
    check_transition_model(strong(NETWORK_MODELS[kind](schema, hidden=(6,), prior=prior), 2.0))


@pytest.mark.parametrize("activation", ["tanh", "relu", "softplus", "sigmoid"])
@pytest.mark.parametrize("kind", NETWORK_MODELS)
def test_every_activation_with_every_model(kind, activation, schema):
    model = NETWORK_MODELS[kind](schema, hidden=(6, 6), activation=activation, lipschitz=LIMITS[kind])
    check_transition_model(strong(model, 2.0))


@pytest.mark.parametrize("seed", range(some(12)))
def test_random_models_keep_their_promises(seed, schema):
    settings = RandomProblemSettings(strength=1.0 + seed % 4, hidden=(5,) * (1 + seed % 3))
    check_transition_model(random_model(schema, np.random.default_rng(seed), settings), seed=seed)


def test_analytic_models_keep_their_promises(schema, scaler):
    rng = np.random.default_rng(0)
    check_transition_model(PartitionModel())
    check_transition_model(
        LinearModel(
            schema,
            rng.normal(size=(6, 3, 3)),
            offsets=rng.normal(size=(6, 3)),
            context_matrix=rng.normal(size=(3, 2)),
            noise_scale=[0.1, 1.0, 3.0],
            scaler=scaler,
        )
    )


@pytest.mark.parametrize("kind", NETWORK_MODELS)
def test_trained_models_keep_their_promises(kind, schema):
    """Constants hold for the weights that a few large optimiser steps leave behind."""
    for limits in (LIMITS[kind], None):
        model = NETWORK_MODELS[kind](schema, hidden=(8,), lipschitz=limits)
        generator = torch.Generator().manual_seed(3)
        states, context = torch.randn(64, 3, generator=generator), torch.randn(64, 2, generator=generator)
        actions = torch.randint(6, (64,), generator=generator)
        following = torch.tanh(2 * states) + 0.3 * torch.randn(64, 3, generator=generator)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        losses = []
        for _ in range(40):
            optimizer.zero_grad()
            loss = -model.log_prob(states, context, actions, following).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0] - 0.2
        check_transition_model(model)


@pytest.mark.parametrize("kind", NETWORK_MODELS)
def test_climbing_to_the_steepest_state_stays_below_the_constant(kind, schema):
    """A stronger attack than sampling: gradient ascent on the Jacobian's norm, per row."""
    model = strong(NETWORK_MODELS[kind](schema, hidden=(4,)), 2.0).for_search()
    generator = torch.Generator().manual_seed(0)
    context, noise = torch.zeros(2, dtype=torch.float64), torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)
    constant = model.lipschitz(context, torch.tensor(2), noise)
    states = torch.randn(32, 3, generator=generator, dtype=torch.float64).requires_grad_()
    optimizer = torch.optim.Adam([states], lr=0.1)
    best = 0.0
    for _ in range(60):
        jacobians = torch.func.vmap(torch.func.jacrev(lambda x: model.step(x, context, torch.tensor(2), noise)))(states)
        norms = torch.linalg.matrix_norm(jacobians, ord=2)
        best = max(best, norms.max().item())
        optimizer.zero_grad()
        (-norms.sum()).backward()
        optimizer.step()
    assert best <= constant
    assert best >= 0.02 * constant  # the constant says something


class Broken(Additive):
    """An additive model with one lie, chosen by name."""

    lie = ""

    def step(self, states, context, actions, noise):
        following = super().step(states, context, actions, noise)
        if self.lie == "mixes noise":
            following = following + noise.roll(1, -1) * 0.5
        if self.lie == "mixes rows" and following.dim() > 1:
            following = following + 1e-6 * states.mean(0)
        if self.lie == "no broadcasting" and following.dim() == 3:
            following = following[:, 0]
        if self.lie == "decreasing":
            following = following - 2 * noise * (states > 0)
        return following

    def invert(self, states, context, actions, next_states):
        noise, log_det = super().invert(states, context, actions, next_states)
        if self.lie == "wrong inverse":
            noise = noise * (1 + 1e-6)
        if self.lie == "not finite":
            noise = noise.log()
        if self.lie == "wrong density":
            log_det = log_det + 1e-4
        if self.lie == "mixes noise":
            mix = torch.eye(3) + 0.5 * torch.eye(3).roll(1, 0)
            noise = torch.linalg.solve(mix.to(noise), noise.unsqueeze(-1)).squeeze(-1)
        if self.lie == "decreasing":
            noise = torch.where(states > 0, -noise, noise)
        return noise, log_det

    def lipschitz(self, context, actions, noise):
        constants = super().lipschitz(context, actions, noise)
        if self.lie == "constant too small":
            return constants * 0.9
        if self.lie == "negative constant":
            return -constants
        if self.lie == "single precision constant":
            return constants.float()
        if self.lie == "constant of wrong shape":
            return constants.amax()
        return constants

    def sample(self, states, context, actions, *, generator):
        samples = super().sample(states, context, actions, generator=generator)
        if self.lie == "wrong samples":
            samples = samples + 0.2 * (samples - samples.mean(0))
        if self.lie == "own randomness":
            samples = samples + torch.rand(())
        return samples

    def bake_(self):
        super().bake_()
        with torch.no_grad():
            if self.lie == "bake changes weights":
                self.location.biases[0].add_(1.0)
            if self.lie == "bake changes the function":
                self.location.activate, self.location._folded = torch.relu, None


LIES = {
    "mixes noise": "depends on another noise",
    "mixes rows": "changes other rows",
    "no broadcasting": "does not broadcast",
    "decreasing": "not strictly monotone",
    "wrong inverse": "gives another",
    "not finite": "not finite",
    "wrong density": "automatic differentiation",
    "constant too small": "above the constant",
    "negative constant": "negative constant",
    "single precision constant": "float32",
    "constant of wrong shape": "lipschitz returns shape",
    "wrong samples": "another covariance",
    "own randomness": "same seed",
    "bake changes weights": "another fingerprint",
    "bake changes the function": "another function",
}


@pytest.mark.parametrize("lie", LIES)
def test_a_broken_promise_is_found(lie, schema):
    model = Broken(schema, hidden=(1,))
    # One hidden unit without bias: its constant is attained at the origin, where a too small one is found out.
    with torch.no_grad():
        model.location.context.raw.zero_()
        model.location.action.raw.zero_()
    check_transition_model(model, spread=0.01)
    model.lie = lie
    with pytest.raises(VerificationError, match=LIES[lie]):
        check_transition_model(model, spread=0.01)


def test_a_model_of_ones_own_needs_no_kind(schema):
    class Mine(Additive):
        kind = ""

    check_transition_model(Mine(schema, hidden=(3,)))


def test_extra_integer_buffers_do_not_disturb(schema):
    model = LocationScale(schema, hidden=(3,))
    model.register_buffer("counter", torch.tensor(3))
    check_transition_model(model)
