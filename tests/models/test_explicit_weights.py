"""Every class of networks made from explicit arrays is the function that they describe; cards say what is known."""

import numpy as np
import pytest
import torch
from test_location_scale import evaluate, random_arrays, random_covariance

from ifonly.data import ActionSpace, Feature, Schema
from ifonly.errors import InputError
from ifonly.models import Additive, FlowRanges, LinearModel, MonotoneFlow, PostNonlinear, Spline, load_model, save_model
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
