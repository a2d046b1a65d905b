"""First schemas of clinical tables: what was given is an action, and what has a range cannot leave it."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ifonly.data import read_table
from ifonly.data.drafts import Hints, draft_text, guess_schema
from ifonly.data.drafts.ranges import hard_range
from ifonly.data.drafts.readings import read_column
from ifonly.data.drafts.roles import looks_like_dose
from ifonly.errors import InputError

STAYS, STEPS = 40, 10
ROWS = STAYS * STEPS


def often_zero(seed, *, zeros=0.4, size=4.5):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(ROWS) < zeros, 0.0, rng.lognormal(size, 0.7, ROWS).round(2))


def stays(**columns):
    rng = np.random.default_rng(9)
    usual = {
        "icustayid": np.repeat(np.arange(STAYS), STEPS),
        "bloc": np.tile(np.arange(1, STEPS + 1), STAYS),
        "MeanBP": rng.normal(75, 9, ROWS),
        "HR_rate": rng.normal(90, 9, ROWS),
        "output_4hourly": often_zero(5, zeros=0.2),
    }
    return pl.DataFrame(usual | columns)


VASO, FLUID = often_zero(1, zeros=0.7, size=-2), often_zero(2)
CLINICAL = stays(
    input_4hourly=FLUID,
    max_dose_vaso=VASO,
    median_dose_vaso=(0.8 * VASO).round(3),
    input_total=FLUID.reshape(STAYS, STEPS).cumsum(axis=1).ravel(),
)


def features(draft):
    return {guess.feature.name: guess.feature for guess in draft.features}


def test_what_was_given_is_an_action_and_no_state():
    draft = guess_schema(CLINICAL)
    assert [dose.column for dose in draft.columns.doses] == ["input_4hourly", "max_dose_vaso"]
    assert all(axis.levels[0] == 0 and len(axis.levels) == 5 for axis in draft.schema.actions.axes)
    assert set(features(draft)) == {"MeanBP", "HR_rate", "output_4hourly", "input_total"}
    assert "max_dose_vaso, summarised in another way" in draft.left_out["median_dose_vaso"]
    assert "taken for doses by its name and zeros" in draft_text(draft, "t.csv")


@pytest.mark.parametrize("name", ["iv_fluids", "vaso", "dose", "rate", "infusion rate", "Vasopressors", "bolus (mL)"])
def test_names_of_treatments_are_known(name):
    draft = guess_schema(stays(**{name: FLUID}))
    assert [dose.column for dose in draft.columns.doses] == [name]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("heart_rate", often_zero(3)),  # not given
        ("fluid_level", 5 + often_zero(3)),  # never none
        ("input_total", FLUID.reshape(STAYS, STEPS).cumsum(axis=1).ravel() - FLUID[0]),  # a running total
        ("lactate", often_zero(3)),  # no treatment by its name
        ("fluid_balance", often_zero(3)),
        ("vaso", np.random.default_rng(0).normal(0, 1, ROWS)),  # below zero as often as above
    ],
)
def test_measurements_are_no_treatments(name, values):
    episodes = pl.Series(np.repeat(np.arange(STAYS), STEPS)).cast(pl.String)
    assert not looks_like_dose(read_column(pl.Series(name, values)), episodes)


def test_what_is_named_stays_named_and_other_doses_are_remarked_on():
    draft = guess_schema(CLINICAL, Hints(actions=("max_dose_vaso",)))
    assert [dose.column for dose in draft.columns.doses] == ["max_dose_vaso"]
    reasons = {guess.feature.name: guess.kind_reason for guess in draft.features}
    assert "--column action=NAME" in reasons["input_4hourly"]
    both = guess_schema(CLINICAL, Hints(actions=("max_dose_vaso", "median_dose_vaso")))
    assert len(both.columns.doses) == 2


def test_zero_stays_a_level_beside_a_negative_dose(tmp_path):
    """The draft says so, and import refuses the row until it is corrected."""
    spoiled = FLUID.copy()
    spoiled[17] = -250.0
    frame = stays(input_4hourly=spoiled)
    clean, draft = guess_schema(stays(input_4hourly=np.where(spoiled < 0, 0.0, spoiled))), guess_schema(frame)
    (axis,), (usual,) = draft.schema.actions.axes, clean.schema.actions.axes
    assert axis.levels[0] == 0
    assert axis.levels == usual.levels
    text = draft_text(draft, "t.csv")
    assert "1 negative dose, taken for mistakes" in text
    assert "250" not in text
    frame.write_csv(tmp_path / "t.csv")
    (tmp_path / "schema.yaml").write_text(text.replace('unit: "?"', "unit: mL"))
    with pytest.raises(InputError, match=r"row 18, step 8: the dose of input_4hourly .* is negative"):
        read_table(tmp_path / "t.csv", tmp_path / "schema.yaml")


def test_zero_stays_a_level_among_few_doses():
    values = np.tile([0.0, 0.0, 1.0, 2.0], ROWS // 4)
    values[5] = -1.0
    draft = guess_schema(stays(dose=values))
    assert draft.schema.actions.axes[0].levels == (0.0, 1.0, 2.0)
    assert draft.actions.negative == {"dose": 1}
    assert draft.actions.counts.sum() == ROWS - 1


def test_negative_doses_are_levels_where_they_are_usual():
    draft = guess_schema(stays(dose=np.random.default_rng(0).normal(0, 1, ROWS).round(2)))
    (axis,) = draft.schema.actions.axes
    assert axis.levels[0] < 0
    assert axis.plausible[0] < -3
    assert not draft.actions.negative


def test_a_dose_in_another_unit_is_a_problem_of_the_table():
    spoiled = FLUID.copy()
    spoiled[20:23] = 2_500_000.0
    draft = guess_schema(stays(input_4hourly=spoiled))
    (problem,) = [problem for problem in draft.problems if problem.kind == "impossible doses"]
    assert (problem.count, problem.refused) == (3, True)
    assert draft.schema.actions.axes[0].plausible[1] < 2_500_000


RNG = np.random.default_rng(4)
BOUNDED = {
    "SOFA": (RNG.integers(1, 15, ROWS), (0, 24)),
    "sofa_score": (RNG.integers(1, 15, ROWS), (0, 24)),
    "qSOFA": (RNG.integers(0, 4, ROWS), (0, 3)),
    "GCS": (RNG.integers(6, 16, ROWS), (3, 15)),
    "pain": (RNG.integers(0, 9, ROWS), (0, 10)),
    "NRS": (RNG.integers(0, 9, ROWS), (0, 10)),
    "Apgar": (RNG.integers(4, 11, ROWS), (0, 10)),
    "FiO2": (RNG.uniform(21, 99, ROWS), (21, 100)),
    "FiO2_1": (RNG.uniform(0.21, 1, ROWS), (0.21, 1)),
    "FiO2 (%)": (RNG.uniform(20, 99, ROWS), (0, 100)),
    "SpO2": (RNG.uniform(80, 100, ROWS), (0, 100)),
    "humidity_percent": (RNG.uniform(20, 70, ROWS), (0, 100)),
    "moisture [%]": (RNG.uniform(20, 70, ROWS), (0, 100)),
    "filled": (RNG.uniform(0, 1, ROWS), (0, 1)),
    "risk": (RNG.uniform(0, 0.1, ROWS), (0, 1)),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_features_with_a_hard_range_cannot_leave_it(tmp_path, name):
    values, expected = BOUNDED[name]
    frame = stays(dose=FLUID, **{name: values})
    draft = guess_schema(frame)
    feature = features(draft)[name]
    assert (feature.scaling, feature.plausible) == ("bounded", expected)
    text = draft_text(draft, "t.csv")
    assert "models cannot leave it; else write linear" in text
    frame.write_csv(tmp_path / "t.csv")
    (tmp_path / "schema.yaml").write_text(text.replace('unit: "?"', 'unit: ""'))
    cohort = read_table(tmp_path / "t.csv", tmp_path / "schema.yaml")
    assert cohort.schema.dynamic[cohort.schema.dynamic_index(name)].hard_range == expected


UNBOUNDED = {
    "SOFA": RNG.uniform(0, 20, ROWS),  # no whole numbers
    "GCS": RNG.integers(0, 16, ROWS),  # below its lowest value
    "GCS_motor": RNG.integers(3, 7, ROWS),
    "delta_sofa": RNG.integers(0, 4, ROWS),
    "FiO2": RNG.uniform(21, 120, ROWS),
    "change_percent": RNG.uniform(0, 60, ROWS),
    "lactate": RNG.lognormal(1, 0.5, ROWS),
    "troponin": RNG.uniform(0.01, 0.4, ROWS),  # small, but no fraction
    "grade": RNG.choice([0.0, 0.5, 1.0], ROWS),
    "weight_kg": RNG.uniform(0, 1, ROWS),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_quantities_without_a_limit_have_none(name):
    feature = features(guess_schema(stays(dose=FLUID, **{name: UNBOUNDED[name]})))[name]
    assert feature.scaling in ("linear", "log")


def test_drafts_no_longer_warn_of_logarithms():
    draft = guess_schema(stays(dose=FLUID, lactate=RNG.lognormal(1, 1, ROWS)))
    assert features(draft)["lactate"].scaling == "log"
    assert "minimised" not in draft_text(draft, "t.csv")


@given(
    st.sampled_from(["SOFA", "GCS", "x", "FiO2", "spo2", "share", "y_percent"]),
    st.lists(st.floats(-5, 120), min_size=2, max_size=60),
)
@settings(deadline=None, derandomize=True)
def test_a_hard_range_holds_all_values(name, values):
    found = hard_range(read_column(pl.Series(name, values)), "?")
    if found is not None:
        assert found.low <= min(values) <= max(values) <= found.high
