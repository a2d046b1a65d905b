import json

import numpy as np
import pytest
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cohorts import MODERATE, cohorts

from ifonly.data import ActionSpace, Axis, Cohort, Feature, Scaler, Schema
from ifonly.data.scaling import Columns
from ifonly.errors import InputError

relaxed = settings(deadline=None, derandomize=True, max_examples=some(80))
random_cohorts = cohorts(values=MODERATE, positive=st.floats(1e-3, 1e6))
quiet = pytest.mark.filterwarnings("ignore::ifonly.errors.PlausibilityWarning")


def one_feature_cohort(values, **feature):
    values = np.asarray(values, dtype=float)
    schema = Schema((Feature("x", "dynamic", **feature),), ActionSpace.categories(["a", "b"]))
    none = np.empty((len(values), 0))
    return Cohort(schema, ("e",), np.array([0, len(values)]), values[:, None], none, np.zeros(len(values), dtype=int))


@quiet
@given(random_cohorts)
@relaxed
def test_decoding_undoes_encoding(cohort):
    for scaler in (Scaler.fit(cohort), Scaler.identity(cohort.schema)):
        for columns, values in ((scaler.states, cohort.states), (scaler.context, cohort.context)):
            before = values.copy()
            scaled = columns.encode(values)
            back = columns.decode(scaled)
            size = np.abs(values).max(axis=0, initial=1.0) + columns.link.log_offset
            assert (np.abs(back - values) <= 1e-11 * size).all()
            np.testing.assert_array_equal(values, before)
            np.testing.assert_allclose(columns.encode(back), scaled, rtol=0, atol=1e-6)


@quiet
@given(random_cohorts)
@relaxed
def test_a_scaler_survives_json_in_every_bit(cohort):
    scaler = Scaler.fit(cohort)
    copy = Scaler.from_dict(cohort.schema, json.loads(json.dumps(scaler.to_dict())))
    for name in ("states", "context", "actions"):
        left, right = getattr(scaler, name), getattr(copy, name)
        for part in ("offset", "scale"):
            assert getattr(left, part).tobytes() == getattr(right, part).tobytes()
        assert left.link.same_as(right.link)


@quiet
@given(random_cohorts)
@relaxed
def test_scales_are_positive_and_finite(cohort):
    scaler = Scaler.fit(cohort)
    for columns in (scaler.states, scaler.context, scaler.actions):
        assert (columns.scale > 0).all()
        assert np.isfinite(columns.scale).all()
        assert np.isfinite(columns.offset).all()


def test_fitted_features_have_zero_mean_and_unit_deviation():
    values = np.random.default_rng(0).lognormal(2, 0.5, size=1000)
    for feature in ({}, {"scaling": "log"}, {"scaling": "log", "log_offset": 0.3}):
        cohort = one_feature_cohort(values, **feature)
        scaled = Scaler.fit(cohort).states.encode(cohort.states)
        assert scaled.mean() == pytest.approx(0, abs=1e-12)
        assert scaled.std() == pytest.approx(1)


def test_a_log_feature_is_encoded_by_its_logarithm():
    cohort = one_feature_cohort([1.0, 9.0], scaling="log", log_offset=1.0)
    columns = Scaler.identity(cohort.schema).states
    np.testing.assert_allclose(columns.encode(cohort.states), np.log([[2.0], [10.0]]))


def test_scaling_none_leaves_values_alone():
    cohort = one_feature_cohort([5.0, 70.0, 900.0], scaling="none")
    np.testing.assert_array_equal(Scaler.fit(cohort).states.encode(cohort.states), cohort.states)


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9 / 3])
def test_a_constant_column_is_only_shifted(constant):
    scaler = Scaler.fit(one_feature_cohort([constant] * 7))
    assert scaler.states.scale.tolist() == [1.0]
    assert scaler.states.offset[0] == pytest.approx(constant)


def test_small_units_are_scaled_like_large_ones():
    small = Scaler.fit(one_feature_cohort([1e-15, 2e-15, 4e-15])).states
    large = Scaler.fit(one_feature_cohort([1e15, 2e15, 4e15])).states
    np.testing.assert_allclose(
        small.encode([[1e-15], [2e-15], [4e-15]]), large.encode([[1e15], [2e15], [4e15]]), rtol=1e-12
    )


def test_doses_are_standardised_and_categories_left_alone():
    base = one_feature_cohort([1.0, 2.0, 3.0])

    def with_actions(actions):
        schema = Schema(base.schema.features, actions)
        return Cohort(schema, base.ids, base.offsets, base.states, base.context, base.actions)

    doses = ActionSpace.product(Axis("fixed", "", (0.1,)), Axis("fluid", "mL", (0, 80, 850)))
    for actions in (doses, ActionSpace.from_vectors(doses.vectors)):
        encoded = Scaler.fit(with_actions(actions)).actions.encode(np.array(actions.vectors))
        np.testing.assert_allclose(encoded[:, 0], 0, atol=1e-12)
        np.testing.assert_allclose([encoded[:, 1].mean(), encoded[:, 1].std()], [0, 1], atol=1e-12)
    categories = ActionSpace.categories(["a", "b", "c"])
    np.testing.assert_array_equal(Scaler.fit(with_actions(categories)).actions.encode(np.eye(3)), np.eye(3))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"states": {"offset": [0.0, 0.0], "scale": [1.0, 1.0]}}, "scaling of states: 2 columns; the schema has 1"),
        ({"states": {"offset": [0.0], "scale": [0.0]}}, "scales positive"),
        ({"states": {"offset": [float("nan")], "scale": [1.0]}}, "finite"),
        ({"states": {"offset": ["x"], "scale": [1.0]}}, "list of numbers"),
        ({"actions": {"offset": [0.0, 0.0]}}, "scaling of actions: needs 'offset' and 'scale'"),
        ({"actions": None}, "scaling of actions"),
    ],
)
def test_broken_scalings_are_refused(change, expected):
    schema = one_feature_cohort([1.0, 2.0]).schema
    content = {**Scaler.identity(schema).to_dict(), **change}
    with pytest.raises(InputError, match=expected):
        Scaler.from_dict(schema, content)


def test_a_bounded_scale_reaches_its_ends_and_never_passes_them():
    cohort = one_feature_cohort([0.0, 24.0, 12.0], scaling="bounded", plausible=(0, 24))
    columns = Scaler.identity(cohort.schema).states
    scaled = columns.encode(cohort.states)
    np.testing.assert_allclose(scaled[:, 0], [-np.log(24.24 / 0.24), np.log(24.24 / 0.24), 0.0], atol=1e-12)
    np.testing.assert_allclose(columns.decode(scaled), cohort.states, atol=1e-12)
    assert columns.decode([[-1e6], [-5.0], [1e6]])[:, 0].tolist() == [0.0, 0.0, 24.0]


def test_a_logarithmic_scale_ends_at_zero():
    cohort = one_feature_cohort([0.0, 3.0], scaling="log", log_offset=2.0)
    columns = Scaler.fit(cohort).states
    np.testing.assert_allclose(columns.decode(columns.encode(cohort.states)), cohort.states, atol=1e-12)
    assert columns.decode([[-1e3]]).tolist() == [[0.0]]
    with pytest.raises(InputError, match="x is negative, and a logarithmic scale ends at zero"):
        one_feature_cohort([-0.5, 3.0], scaling="log", log_offset=2.0)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([[-1.0, 25.0], [0.0, 1.0]], "or null for each feature"),
        ([3.0], "or null for each feature"),
        ([None], "beyond the range of bounded"),
        ([[0.0, 25.0]], "beyond the range of bounded"),
        ([[-1.0, float("inf")]], "beyond the range of bounded"),
    ],
)
def test_broken_ends_are_refused(ends, expected):
    schema = one_feature_cohort([1.0, 2.0], scaling="bounded", plausible=(0, 24)).schema
    content = Scaler.identity(schema).to_dict()
    content["states"]["ends"] = ends
    with pytest.raises(InputError, match=expected):
        Scaler.from_dict(schema, content)


def test_values_outside_a_bounded_scale_are_refused_with_their_place():
    with pytest.raises(InputError, match="x lies outside the range of its bounded scale"):
        one_feature_cohort([0.0, 25.0], scaling="bounded", plausible=(0, 24))


def test_the_slope_of_a_link_is_its_derivative():
    features = (
        Feature("a", "dynamic", scaling="bounded", plausible=(1, 3)),
        Feature("b", "dynamic", scaling="log", log_offset=0.5),
        Feature("c", "dynamic"),
    )
    link = Columns.identity(features).link
    values, step = np.array([[1.2, 2.0, -1.0], [2.9, 0.1, 4.0]]), 1e-6
    slopes = (link.forward(values + step) - link.forward(values - step)) / (2 * step)
    np.testing.assert_allclose(link.log_slopes(values), np.log(slopes), atol=1e-6)
