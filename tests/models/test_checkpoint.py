import json

import numpy as np
import pytest
import torch

from ifonly.data import Feature, Schema
from ifonly.errors import InputError, SchemaMismatchError, StoreError
from ifonly.models import (
    Additive,
    FlowRanges,
    LocationScale,
    MonotoneFlow,
    PartitionModel,
    PostNonlinear,
    Spline,
    base,
    load_model,
    register,
    save_model,
)
from ifonly.models.checkpoint import registered_kinds
from ifonly.models.fit import DataCounts, FitReport, FitSettings
from ifonly.testing.instances import MODEL_KINDS, RandomProblemSettings, random_model


def random_inputs(dtype):
    generator = torch.Generator().manual_seed(0)
    states, noise = (torch.randn(9, 3, generator=generator, dtype=dtype) for _ in range(2))
    return states, torch.randn(9, 2, generator=generator, dtype=dtype), torch.arange(9) % 6, noise


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_round_trip_is_bitwise(kind, constrained, dtype, schema, tmp_path):
    settings = RandomProblemSettings(model_kind=kind, constrained=constrained, hidden=(4, 3))
    model = random_model(schema, np.random.default_rng(0), settings).to(dtype)
    model.set_scaler(model.scaler)
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model", schema=schema)
    assert type(loaded) is type(model)
    assert loaded.fingerprint() == model.fingerprint()
    assert loaded.settings() == model.settings()
    assert loaded.schema == model.schema
    weights = loaded.state_dict()
    assert weights.keys() == model.state_dict().keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items())
    assert all(weights[name].dtype == dtype for name in weights)
    assert torch.equal(loaded.step(*random_inputs(dtype)), model.step(*random_inputs(dtype)))
    assert not loaded.training


@pytest.mark.parametrize(
    "make",
    [
        lambda schema: LocationScale(schema, hidden=(3,), lipschitz=(None, 0.1), activation="relu", prior="laplace"),
        lambda schema: Additive(schema, hidden=(3, 4), lipschitz=0.5, prior="independent"),
        lambda schema: PostNonlinear(schema, hidden=(3,), distortion=Spline(3, 2.0, 4.0)),
        lambda schema: MonotoneFlow(schema, hidden=(3,), ranges=FlowRanges((0.1, 1.0), (-0.1, 0.3), (0.5, 2.0))),
        lambda schema: PartitionModel(),
    ],
)
def test_every_setting_survives(make, schema, tmp_path):
    model = make(schema)
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.settings() == model.settings()
    assert loaded.fingerprint() == model.fingerprint()


def test_a_search_copy_can_be_saved(schema, tmp_path):
    model = LocationScale(schema, hidden=(4,), lipschitz=(1.0, 0.1))
    save_model(model.for_search(), tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.fingerprint() == model.fingerprint()
    wanted = model.for_search().step(*random_inputs(torch.float64))
    assert torch.equal(loaded.for_search().step(*random_inputs(torch.float64)), wanted)


def test_scaling_provenance_and_fit_report_are_kept(schema, scaler, tmp_path):
    model = LocationScale(schema, hidden=(4,), scaler=scaler)
    model.fit_report = FitReport(FitSettings(), 3, DataCounts(5, 4, 3), None, (1.5, 0.1 + 0.2), (), 2.5)
    save_model(model, tmp_path / "model", provenance={"seed": 3, "cohort": "simulated"})
    content = json.loads((tmp_path / "model" / "model.json").read_text())
    assert content["format"] == "ifonly.model"
    assert content["version"] == 1
    assert content["provenance"] == {"seed": 3, "cohort": "simulated", "schema": schema.fingerprint}
    loaded = load_model(tmp_path / "model")
    assert loaded.fit_report == model.fit_report
    assert loaded.scaler.to_dict() == scaler.to_dict()
    np.testing.assert_array_equal(loaded.action_vectors.numpy(), model.action_vectors.numpy())


def test_another_schema_is_refused_with_both_sides_shown(schema, tmp_path):
    save_model(LocationScale(schema, hidden=(4,)), tmp_path / "model")
    features = (Feature("pulse", "dynamic"), *schema.features[1:])
    with pytest.raises(SchemaMismatchError) as caught:
        load_model(tmp_path / "model", schema=Schema(features, schema.actions, step_length=4, step_unit="h"))
    assert "'pulse'" in str(caught.value)
    assert "'pressure'" in str(caught.value)
    assert str(caught.value).startswith(f"the episodes and the model in {tmp_path / 'model'} have different schemas")
    assert str(caught.value).endswith(
        "Use a model that was made for the schema of these episodes, or episodes of the model's schema."
    )


def test_an_existing_folder_is_only_replaced_on_request(schema, tmp_path):
    first, second = (LocationScale(schema, hidden=(width,)) for width in (4, 5))
    save_model(first, tmp_path / "model")
    with pytest.raises(StoreError, match="exists already"):
        save_model(second, tmp_path / "model")
    assert load_model(tmp_path / "model").fingerprint() == first.fingerprint()
    save_model(second, tmp_path / "model", overwrite=True)
    assert load_model(tmp_path / "model").fingerprint() == second.fingerprint()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("provenance", [{"value": {1, 2}}, {"value": float("nan")}])
def test_nothing_is_half_written(provenance, schema, tmp_path):
    with pytest.raises(InputError, match="not JSON"):
        save_model(LocationScale(schema, hidden=(4,)), tmp_path / "model", provenance=provenance)
    assert not list(tmp_path.iterdir())


def test_a_model_with_nan_weights_is_not_saved(schema, tmp_path):
    model = LocationScale(schema, hidden=(4,))
    with torch.no_grad():
        model.location.biases[1][0] = torch.nan
    with pytest.raises(InputError, match=r"location\.biases\.1 has entries that are not finite"):
        save_model(model, tmp_path / "model")


def test_half_precision_is_not_saved(schema, tmp_path):
    with pytest.raises(InputError, match="float16"):
        save_model(LocationScale(schema, hidden=(4,)).half(), tmp_path / "model")


@pytest.fixture
def saved(schema, tmp_path):
    save_model(LocationScale(schema, hidden=(4,), lipschitz=(1.0, 0.1)), tmp_path / "model")
    return tmp_path / "model"


def edit(folder, **changes):
    file = folder / "model.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def cut(file, keep: float = 0.7):
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * keep)])


def flip(file):
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: cut(f / "model.safetensors"), "cut off or altered"),
        (lambda f: flip(f / "model.safetensors"), "cut off or altered"),
        (lambda f: cut(f / "model.json"), "not valid JSON"),
        (lambda f: (f / "model.safetensors").unlink(), "cannot be read"),
        (lambda f: (f / "model.json").unlink(), "cannot be read"),
        (lambda f: (f / "model.json").write_bytes(b"\xff\xfe\xff"), "cannot be read"),
        (lambda f: (f / "model.json").write_text("[]"), "not a model"),
        (lambda f: edit(f, format="ifonly.result"), "not a model: format 'ifonly.result'; expected 'ifonly.model'"),
        (lambda f: edit(f, version=2), "version 2 of ifonly.model; ifonly [0-9.]+ reads version 1"),
        (lambda f: edit(f, kind="oracle"), "kind 'oracle', which is unknown here"),
        (lambda f: edit(f, kind="additive"), "do not make a model"),
        (lambda f: edit(f, kind=None), "unknown here"),
        (lambda f: edit(f, settings={"hidden": [5]}), "do not make a model"),
        (lambda f: edit(f, settings={"hidden": [4], "magic": 1}), "do not make a model"),
        (lambda f: edit(f, settings={"hidden": [4], "lipschitz": [2.0, 0.1]}), "was altered"),
        (lambda f: edit(f, scaling=None), "broken or incomplete"),
        (lambda f: edit(f, schema={"features": []}), "broken or incomplete"),
        (lambda f: edit(f, dtype="float16"), "broken or incomplete"),
        (lambda f: edit(f, fit_report={"seed": 1}), "do not make a model"),
        (lambda f: edit(f, fingerprint="0" * 16), "was altered"),
    ],
)
def test_damage_is_recognised(damage, message, saved):
    damage(saved)
    with pytest.raises(StoreError, match=message):
        load_model(saved)


def test_altered_scaling_is_recognised(saved, scaler):
    edit(saved, scaling=scaler.to_dict())
    with pytest.raises(StoreError, match="was altered"):
        load_model(saved)


def test_a_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(StoreError, match="cannot be read"):
        load_model(tmp_path / "nowhere")


@pytest.fixture
def own_registry(monkeypatch):
    monkeypatch.setattr(base, "_KINDS", dict(base._KINDS))


@pytest.mark.usefixtures("own_registry")
def test_a_model_of_ones_own_can_be_saved_once_registered(schema, tmp_path):
    class Mine(Additive):
        kind = "mine"

    model = Mine(schema, hidden=(3,))
    with pytest.raises(InputError, match="Mine is not registered"):
        save_model(model, tmp_path / "model")
    assert register(Mine) is Mine
    assert "mine" in registered_kinds()
    save_model(model, tmp_path / "model")
    assert type(load_model(tmp_path / "model")) is Mine


@pytest.mark.usefixtures("own_registry")
def test_a_subclass_does_not_pass_for_its_parent(schema, tmp_path):
    class Mine(Additive):
        pass

    with pytest.raises(InputError, match="Mine is not registered"):
        save_model(Mine(schema, hidden=(3,)), tmp_path / "model")
    with pytest.raises(InputError, match="already belongs to Additive"):
        register(Mine)


def test_registering_needs_a_kind():
    class Nameless(Additive):
        kind = ""

    with pytest.raises(InputError, match="give the class a `kind`"):
        register(Nameless)
