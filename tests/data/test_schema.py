import dataclasses
import json

import numpy as np
import pytest
import yaml
from effort import some
from hypothesis import assume, given, settings
from random_cohorts import action_spaces, names, ranges, schemas

from ifonly.data import ActionSpace, Axis, Feature, Schema
from ifonly.errors import InputError, SchemaMismatchError

relaxed = settings(deadline=None, derandomize=True, max_examples=some(100))


def small_schema(**changes):
    content = {
        "features": (Feature("age", "static"), Feature("heat", "dynamic", unit="C"), Feature("dose", "dynamic")),
        "actions": ActionSpace.categories(["wait", "act"]),
    }
    return Schema(**{**content, **changes})


@given(schemas())
@relaxed
def test_a_schema_survives_plain_types_json_and_yaml(schema):
    for copy in (
        Schema.from_dict(schema.to_dict()),
        Schema.from_dict(json.loads(json.dumps(schema.to_dict()))),
        Schema.from_dict(yaml.safe_load(yaml.safe_dump(schema.to_dict(), allow_unicode=True))),
    ):
        assert copy == schema
        assert hash(copy) == hash(schema)
        assert copy.fingerprint == schema.fingerprint


@given(schemas(), ranges)
@relaxed
def test_plausible_ranges_do_not_change_the_fingerprint(schema, plausible):
    """But those of bounded scales, by which models see their features."""
    changed = [
        feature if feature.scaling == "bounded" else dataclasses.replace(feature, plausible=plausible)
        for feature in schema.features
    ]
    other = dataclasses.replace(schema, features=tuple(changed))
    assert other.fingerprint == schema.fingerprint
    schema.require_same(other, here="the model", there="the cohort")


def _changed_features(feature):
    yield dataclasses.replace(feature, name=feature.name + "x")
    yield dataclasses.replace(feature, unit=feature.unit + "x")
    yield dataclasses.replace(feature, kind="static" if feature.kind == "contextual" else "contextual")
    scaling = "none" if feature.scaling != "none" else "linear"
    yield dataclasses.replace(feature, scaling=scaling, log_offset=0.0, margin=None)
    if feature.scaling == "bounded":
        low, high = feature.plausible
        yield dataclasses.replace(feature, plausible=(low, high + 1))
        yield dataclasses.replace(feature, margin=(feature.margin or 0.5) / 2)
    if feature.scaling == "log":
        yield dataclasses.replace(feature, log_offset=feature.log_offset + 1)


@given(schemas(), action_spaces, names)
@relaxed
def test_everything_else_changes_the_fingerprint_and_is_named(schema, actions, name):
    assume(name not in [feature.name for feature in schema.features])
    extra = Feature(name, "dynamic")
    variants = [
        dataclasses.replace(schema, step_length=schema.step_length * 2),
        dataclasses.replace(schema, step_unit=schema.step_unit + "x"),
        dataclasses.replace(schema, features=(*schema.features, extra)),
    ]
    if actions != schema.actions:
        variants.append(dataclasses.replace(schema, actions=actions))
    if len(schema.features) > 1:
        variants.append(dataclasses.replace(schema, features=schema.features[::-1]))
    for position, feature in enumerate(schema.features):
        for changed in _changed_features(feature):
            listed = list(schema.features)
            listed[position] = changed
            if len({f.name for f in listed}) == len(listed):
                # The extra feature keeps one dynamic when the only one becomes contextual.
                one, two = (dataclasses.replace(schema, features=(*fs, extra)) for fs in (schema.features, listed))
                assert one.fingerprint != two.fingerprint
                with pytest.raises(SchemaMismatchError, match="feature"):
                    one.require_same(two, here="the model", there="the cohort")
    for variant in variants:
        assert variant.fingerprint != schema.fingerprint
        with pytest.raises(SchemaMismatchError) as caught:
            schema.require_same(variant, here="the model", there="the cohort")
        lines = str(caught.value).splitlines()
        assert any(line.startswith("    the model: ") for line in lines), "both sides must be shown"
        assert any(line.startswith("    the cohort: ") for line in lines)


def test_a_mismatch_shows_both_sides_and_is_not_endless():
    many = ActionSpace.categories([f"option {i}" for i in range(40)])
    with pytest.raises(SchemaMismatchError) as caught:
        small_schema().require_same(small_schema(actions=many), here="model m", there="cohort c")
    message = str(caught.value)
    assert "number of actions\n    model m: 2\n    cohort c: 40" in message
    assert "more differences" in message
    assert message.count("\n") < 30


@pytest.mark.parametrize("position", [0, 1])
def test_a_different_label_or_vector_of_any_action_is_shown(position):
    vectors = [[0.0, 1.0], [2.0, 3.0]]
    labels = ["low", "high"]
    base = small_schema(actions=ActionSpace.from_vectors(vectors, labels))
    vectors[position][1] += 1e-9
    with pytest.raises(SchemaMismatchError, match=f"action {position}"):
        base.require_same(small_schema(actions=ActionSpace.from_vectors(vectors, labels)), here="a", there="b")


def test_whole_numbers_and_floats_make_the_same_schema():
    def build(number):
        return Schema(
            (Feature("x", "dynamic", scaling="log", log_offset=number(1), plausible=(number(0), number(9))),),
            ActionSpace.from_vectors([[number(1), number(2)], [number(3), number(4)]]),
            step_length=number(4),
        )

    assert build(int).fingerprint == build(float).fingerprint == build(np.int64).fingerprint
    assert build(int) == build(float) == build(np.float32)
    assert Schema.from_dict(build(int).to_dict()).fingerprint == build(int).fingerprint


def test_minus_zero_is_zero():
    spaces = [ActionSpace.from_vectors([[zero], [1.0]]) for zero in (0.0, -0.0)]
    assert small_schema(actions=spaces[0]).fingerprint == small_schema(actions=spaces[1]).fingerprint


def test_features_are_sorted_into_states_and_context_in_the_given_order():
    schema = small_schema()
    assert [f.name for f in schema.dynamic] == ["heat", "dose"]
    assert [f.name for f in schema.context] == ["age"]
    assert schema.dynamic_index("dose") == 1
    with pytest.raises(InputError, match=r"'age' is not a dynamic feature.*\['heat', 'dose'\]"):
        schema.dynamic_index("age")


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (lambda: Feature("", "dynamic"), ["name", "printable"]),
        (lambda: Feature(" heat", "dynamic"), ["' heat'", "space"]),
        (lambda: Feature("he\nat", "dynamic"), ["printable"]),
        (lambda: Feature(7, "dynamic"), ["7", "text"]),
        (lambda: Feature("step", "dynamic"), ["'step'", "rename"]),
        (lambda: Feature("heat", "changing"), ["'heat'", "kind 'changing'", "dynamic"]),
        (lambda: Feature("heat", "dynamic", scaling="cubic"), ["scaling 'cubic'", "log"]),
        (lambda: Feature("heat", "dynamic", unit=None), ["'heat'", "unit", "text"]),
        (lambda: Feature("heat", "dynamic", plausible=(2, 1)), ["'heat'", "low 2.0", "high 1.0"]),
        (lambda: Feature("heat", "dynamic", plausible=(0, float("inf"))), ["'heat'", "inf", "finite"]),
        (lambda: Feature("heat", "dynamic", plausible=5), ["'heat'", "pair"]),
        (lambda: Feature("heat", "dynamic", scaling="log", log_offset=-1), ["'heat'", "log_offset -1"]),
        (lambda: Feature("heat", "dynamic", log_offset=1), ["'heat'", "log_offset", "'log'"]),
        (lambda: Axis("fluids", "mL", ()), ["'fluids'", "at least one"]),
        (lambda: Axis("fluids", "mL", (0, 0)), ["'fluids'", "increase"]),
        (lambda: Axis("fluids", "mL", (0, float("nan"))), ["'fluids'", "nan", "finite"]),
        (lambda: Axis("", "mL", (0, 1)), ["name"]),
        (lambda: ActionSpace.product(), ["at least one axis"]),
        (lambda: ActionSpace.product(Axis("a", "", (0, 1)), Axis("a", "", (0, 1))), ["axes", "'a'"]),
        (lambda: ActionSpace.categories([]), ["at least one action"]),
        (lambda: ActionSpace.categories(["a", "b", "a"]), ["'a'", "more than once"]),
        (lambda: ActionSpace.categories([True, False]), ["True", "quotes"]),
        (lambda: ActionSpace.from_vectors([[1.0], [1.0, 2.0]]), ["action 1", "2 entries", "action 0 has 1"]),
        (lambda: ActionSpace.from_vectors([[], []]), ["action 0", "at least one"]),
        (lambda: ActionSpace.from_vectors([[1.0], [float("inf")]]), ["action 1", "inf"]),
        (lambda: ActionSpace.from_vectors([[1.0]], ["a", "b"]), ["1 vectors", "2 labels"]),
        (lambda: ActionSpace(((0.0,), (2.0,)), ("a", "b"), (Axis("d", "", (0, 1)),)), ["axes", "product"]),
        (lambda: small_schema(features=[Feature("a", "static")]), ["dynamic"]),
        (lambda: small_schema(features=[Feature("a", "dynamic")] * 2), ["'a'", "more than once"]),
        (lambda: small_schema(step_length=0), ["step_length 0"]),
        (lambda: small_schema(step_length=float("nan")), ["step_length", "nan"]),
        (lambda: small_schema(step_unit=4), ["unit 4", "text"]),
    ],
)
def test_what_makes_no_sense_is_refused(build, parts):
    with pytest.raises(InputError) as caught:
        build()
    for part in parts:
        assert part in str(caught.value)


GOOD = {"features": [{"name": "heat", "kind": "dynamic"}], "actions": {"categories": ["wait", "act"]}}


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ([], ["mapping", "list"]),
        ({**GOOD, "extra": 1, 2: 3}, ["unknown", "'extra'", "'2'", "features"]),
        ({"features": GOOD["features"]}, ["missing 'actions'"]),
        ({**GOOD, "features": {"heat": "dynamic"}}, ["'features' must be a list"]),
        ({**GOOD, "features": ["heat"]}, ["mapping", "str"]),
        ({**GOOD, "features": [{"name": "heat"}]}, ["'heat'", "missing 'kind'"]),
        ({**GOOD, "features": [{"name": "heat", "kind": "dynamic", "units": "C"}]}, ["'heat'", "'units'", "unit"]),
        ({**GOOD, "features": [{"name": "heat", "kind": "dynamic", "plausible": [1, "x"]}]}, ["'heat'", "'x'"]),
        ({**GOOD, "features": [{"name": "heat", "kind": "dynamic", "plausible": "0-9"}]}, ["'heat'", "pair"]),
        ({**GOOD, "step": {"length": "long"}}, ["step_length", "'long'"]),
        ({**GOOD, "step": 4}, ["step", "mapping"]),
        ({**GOOD, "actions": {}}, ["exactly one of axes, categories or vectors"]),
        ({**GOOD, "actions": {"categories": ["a"], "vectors": [[1]]}}, ["exactly one", "'categories', 'vectors'"]),
        ({**GOOD, "actions": {"categories": ["a"], "labels": ["a"]}}, ["exactly one"]),
        ({**GOOD, "actions": {"categories": "abc"}}, ["categories must be a list", "'abc'"]),
        ({**GOOD, "actions": {"axes": [{"name": "d"}]}}, ["axis", "missing 'levels'"]),
        ({**GOOD, "actions": {"axes": [{"name": "d", "levels": 3}]}}, ["levels must be a list"]),
        ({**GOOD, "actions": {"axes": [{"name": "d", "levels": [0, "many"]}]}}, ["'d'", "'many'"]),
        ({**GOOD, "actions": {"vectors": [1, 2]}}, ["each vector must be a list"]),
    ],
)
def test_what_a_schema_file_gets_wrong_is_named(content, parts):
    with pytest.raises(InputError) as caught:
        Schema.from_dict(content)
    for part in parts:
        assert part in str(caught.value)


def test_yaml_numbers_without_a_point_are_numbers():
    text = "features: [{name: x, kind: dynamic}]\nactions: {axes: [{name: d, unit: mg, levels: [0, 1e-3]}]}"
    assert Schema.from_dict(yaml.safe_load(text)).actions.vectors == ((0.0,), (0.001,))


def test_a_product_varies_its_last_axis_fastest_and_says_what_changes():
    space = ActionSpace.product(Axis("press", "u", (0, 1)), Axis("fluid", "mL", (0, 80, 850)))
    assert space.vectors == ((0, 0), (0, 80), (0, 850), (1, 0), (1, 80), (1, 850))
    assert space.labels[5] == "press 1 u, fluid 850 mL"
    assert space.describe_change(1, 2) == "fluid 80 -> 850 mL"
    assert space.describe_change(1, 3) == "press 0 -> 1 u, fluid 80 -> 0 mL"
    assert space.describe_change(2, 2) == "no change"
    assert ActionSpace.categories(["wait", "act"]).describe_change(0, 1) == "wait -> act"


def test_levels_that_agree_in_six_digits_are_told_apart():
    space = ActionSpace.product(Axis("d", "mg", (0.12345671, 0.12345672)))
    assert space.labels == ("d 0.12345671 mg", "d 0.12345672 mg")
    assert space.describe_change(0, 1) == "d 0.12345671 -> 0.12345672 mg"


def test_only_indicators_are_categorical():
    assert ActionSpace.categories(["a", "b"]).is_categorical
    assert ActionSpace.from_vectors([[1.0, 0.0], [0.0, 1.0]]).is_categorical
    assert not ActionSpace.from_vectors([[1.0, 0.0], [0.0, 2.0]]).is_categorical
    assert not ActionSpace.product(Axis("d", "", (1,))).is_categorical


def test_a_schema_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        small_schema().step_length = 2.0


@pytest.mark.parametrize(
    ("name", "unit", "label"),
    [
        ("heat", "C", "heat (C)"),
        ("cost (EUR)", "EUR", "cost (EUR)"),
        ("soil water [vol %]", "vol %", "soil water [vol %]"),
        ("cost (EUR)", "kEUR", "cost (EUR) (kEUR)"),
        ("share", "", "share"),
    ],
)
def test_a_label_has_the_unit_once(name, unit, label):
    assert Feature(name, "dynamic", unit=unit).label == label
