"""Every class of networks made from explicit arrays is the function that they describe; cards say what is known."""

import itertools

import numpy as np
import pytest
import torch
from test_location_scale import evaluate, random_arrays, random_covariance

from ifonly.data import ActionSpace, Feature, Schema
from ifonly.errors import InputError
from ifonly.models import (
    Additive,
    FlowRanges,
    LinearModel,
    LocationScale,
    MonotoneFlow,
    PostNonlinear,
    Spline,
    load_model,
    save_model,
)
from ifonly.models.noise import PRIORS
from ifonly.testing import check_transition_model

COVARIANCE = random_covariance(3)
PARTS = ("location", "scale", "skewness", "tails")


def inputs(schema, seed=0):
    rng = np.random.default_rng(seed)
    vectors = np.array(schema.actions.vectors)
    for action in range(len(schema.actions)):
        yield rng.normal(size=3), rng.normal(size=2), action, vectors[action], rng.normal(size=3)


def stepped(model, x, c, action, u):
    tensors = (torch.as_tensor(x), torch.as_tensor(c), torch.tensor(action), torch.as_tensor(u))
    return model.step(*tensors).detach().numpy()


def test_additive_models(schema):
    model = Additive.from_weights(schema, location=random_arrays(1), covariance=COVARIANCE)
    for x, c, action, vector, u in inputs(schema):
        wanted = evaluate(random_arrays(1), x, c, vector) + u
        np.testing.assert_allclose(stepped(model, x, c, action, u), wanted, rtol=1e-12)
    check_transition_model(model)


def test_flows(schema):
    networks = {name: random_arrays(number) for number, name in enumerate(PARTS)}
    ranges = FlowRanges(scale=(0.1, 1.0))
    model = MonotoneFlow.from_weights(schema, networks=networks, covariance=COVARIANCE, ranges=ranges)

    def squashed(values, span):
        return span[0] + (span[1] - span[0]) / (1 + np.exp(-values))

    for x, c, action, vector, u in inputs(schema):
        values = {name: evaluate(arrays, x, c, vector) for name, arrays in networks.items()}
        scale, skewness, tails = (squashed(values[name], getattr(ranges, name)) for name in PARTS[1:])
        wanted = values["location"] + scale * np.sinh(tails * np.arcsinh(u) + skewness)
        np.testing.assert_allclose(stepped(model, x, c, action, u), wanted, rtol=1e-10)
    with pytest.raises(InputError, match="a flow has the networks"):
        MonotoneFlow.from_weights(schema, networks={"location": random_arrays(1)}, covariance=COVARIANCE)


def test_post_nonlinear_models(schema):
    form = Spline(bins=4)
    none = {"widths": np.zeros((3, 4)), "heights": np.zeros((3, 4)), "slopes": np.zeros((3, 3))}

    def made(**changes):
        return PostNonlinear.from_weights(
            schema, location=random_arrays(1), distortion={**none, **changes}, covariance=COVARIANCE, form=form
        )

    for x, c, action, vector, u in inputs(schema):
        wanted = evaluate(random_arrays(1), x, c, vector) + u
        np.testing.assert_allclose(stepped(made(), x, c, action, u), wanted, rtol=1e-9, atol=1e-9)
    bent = made(heights=np.random.default_rng(0).normal(size=(3, 4)))
    assert bent.fingerprint() != made().fingerprint()
    check_transition_model(bent)
    with pytest.raises(InputError, match=r"slopes has shape \[3, 4\]; expected \[3, 3\]"):
        made(slopes=np.zeros((3, 4)))
    with pytest.raises(InputError, match="needs the arrays"):
        made(more=1)


def torch_network(widths, seed):
    """A perceptron of torch alone and its arrays under the names that `from_weights` takes."""
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(a, b).double() for a, b in itertools.pairwise(widths)]
    module = torch.nn.Sequential(*itertools.chain(*((layer, torch.nn.Tanh()) for layer in layers)))[:-1]
    first, *others = [(layer.weight.detach(), layer.bias.detach()) for layer in layers]
    state, context, action = first[0].split([3, 2, 2], dim=1)
    names = [f"hidden_{number}" for number in range(2, len(layers))] + ["output"]
    arrays = {"state": state, "context": context, "action": action, "bias": first[1]}
    for name, (weight, bias) in zip(names, others, strict=True):
        arrays |= {name: weight, f"{name}_bias": bias}
    return module, arrays


FACTORS = [0.9, 0.5, -0.2]
NONE = {"widths": np.zeros((3, 8)), "heights": np.zeros((3, 8)), "slopes": np.zeros((3, 7))}


def made_of(kind, schema, arrays, **settings):
    """A model of this class whose location has these arrays and whose scale, where it has one, is the same network."""
    settings = {"covariance": COVARIANCE, **settings}
    if kind is MonotoneFlow:
        return kind.from_weights(schema, networks=dict.fromkeys(PARTS, arrays), **settings)
    more = {LocationScale: {"scale": arrays}, PostNonlinear: {"distortion": NONE}}.get(kind, {})
    return kind.from_weights(schema, location=arrays, **more, **settings)


@pytest.mark.parametrize("kind", [Additive, LocationScale, PostNonlinear, MonotoneFlow])
@pytest.mark.parametrize("residual", ["identity", FACTORS])
@pytest.mark.parametrize("hidden", [(6,), (6, 5), (4, 6, 5)])
def test_networks_that_predict_what_changes(kind, residual, hidden, schema, scaler, tmp_path):
    """`x + net(x)` of torch is handed over as it is, of any depth, in scaled coordinates; noise is abducted exactly."""
    module, arrays = torch_network([7, *hidden, 3], seed=2)
    model = made_of(kind, schema, arrays, residual=residual, scaler=scaler)
    assert model.settings()["residual"] == ("identity" if residual == "identity" else "diagonal")
    factors = torch.tensor([1.0, 1.0, 1.0] if residual == "identity" else residual, dtype=torch.float64)
    vectors = scaler.actions.encode(np.array(schema.actions.vectors))
    still = torch.zeros(3, dtype=torch.float64)
    for x, c, action, _, u in inputs(schema):
        state, context, noise = (torch.as_tensor(values) for values in (x, c, u))
        joined = torch.cat((state, context, torch.as_tensor(vectors[action])))
        location = factors * state + module(joined)
        if kind is MonotoneFlow:
            found = model.shape(state, context, torch.tensor(action)).location
        else:
            found = model.step(state, context, torch.tensor(action), still)
        torch.testing.assert_close(found.detach(), location.detach(), rtol=1e-9, atol=1e-9)
        after = model.step(state, context, torch.tensor(action), noise)
        abducted, _ = model.invert(state, context, torch.tensor(action), after)
        torch.testing.assert_close(abducted.detach(), noise, rtol=1e-8, atol=1e-8)
    check_transition_model(model)
    save_model(model, tmp_path / "model")
    assert load_model(tmp_path / "model").fingerprint() == model.fingerprint()


@pytest.mark.parametrize("prior", sorted(PRIORS))
def test_noise_of_any_prior_has_the_covariance_given(prior, schema):
    covariance = COVARIANCE if prior in ("gaussian", "student") else np.diag([0.5, 2.0, 1e-3])
    freedom = {"student": 4.0, "independent-student": [3.0, 5.0, 40.0], "student-margins": 6.0}.get(prior)
    settings = {"covariance": covariance, "prior": prior, "freedom": freedom}
    model = made_of(Additive, schema, random_arrays(1), **settings)
    np.testing.assert_allclose(model.prior.covariance().detach(), covariance, rtol=1e-6, atol=1e-12)
    if freedom is not None:
        np.testing.assert_allclose(model.prior.freedom().detach(), freedom, rtol=1e-9)
    assert model.settings()["prior"] == prior


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"residual": "diagonal"}, "needs its factors"),
        ({"residual": [1.0, 2.0]}, r"factors of shape \[2\]; expected \[3\]"),
        ({"residual": "most"}, "residual='most' is unknown"),
        ({"prior": "cauchy"}, "noise prior 'cauchy' is unknown"),
        ({"prior": "laplace"}, "expected a diagonal matrix"),
        ({"prior": "laplace", "covariance": np.diag([1.0, 0.0, 1.0])}, "not positive definite"),
        ({"prior": "student"}, "needs its degrees of freedom"),
        ({"prior": "student", "freedom": 2.0}, "expected more than 2"),
        ({"prior": "student", "freedom": [3.0, 4.0]}, "2 numbers; expected one"),
        ({"freedom": 5.0}, "only noise of Student's t"),
    ],
)
def test_residuals_and_noise_that_cannot_be_are_refused(changes, message, schema):
    with pytest.raises(InputError, match=message):
        made_of(Additive, schema, random_arrays(1), **changes)


def test_a_hidden_layer_that_is_missing_is_named(schema):
    _, arrays = torch_network([7, 6, 5, 3], seed=0)
    del arrays["hidden_2"]
    with pytest.raises(InputError, match=r"array 'hidden_2' \[5, 6\] is missing"):
        Additive.from_weights(schema, location=arrays, covariance=COVARIANCE)


def test_models_from_weights_are_stored_with_a_card(schema, tmp_path):
    model = Additive.from_weights(schema, location=random_arrays(1), covariance=COVARIANCE)
    save_model(model, tmp_path / "model")
    assert load_model(tmp_path / "model").fingerprint() == model.fingerprint()
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert card.startswith("---\nlibrary_name: ifonly\n")
    assert model.fingerprint() in card
    assert "made elsewhere" in card
    for feature in schema.features:
        assert feature.name in card
    save_model(model, tmp_path / "model", overwrite=True)


def test_names_in_a_card_are_no_markup(tmp_path):
    """A picture of a name would be fetched from elsewhere by whoever looks at the card."""
    picture = "![](http://elsewhere/a.png)"
    schema = Schema((Feature("a|b<c", "dynamic", picture),), ActionSpace.categories(["wait", "act"]), 1.0, picture)
    save_model(LinearModel(schema, np.ones((2, 1, 1))), tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "| a&#124;b&#60;c | dynamic | &#33;&#91;&#93;(http&#58;//elsewhere/a.png) |" in card
    assert "![" not in card
    assert "http:" not in card
