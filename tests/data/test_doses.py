"""Doses that cannot be: negative ones, slips, and units mixed up by a factor of a thousand."""

import re

import numpy as np
import polars as pl
import pytest
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st

from ifonly.data import ActionSpace, Axis, Feature, Schema
from ifonly.data.columns import DoseColumn, TableColumns
from ifonly.data.doses import FAR_ABOVE, plausible_doses, unit_factor
from ifonly.data.tables import cohort_from_frame
from ifonly.errors import InputError

LEVELS, EDGES = (0, 30, 80, 279, 850), (0, 50, 150, 500)
USUAL = [0.0, 20.0, 90.0, 300.0, 900.0, 0.0]


def schema(**axis):
    return Schema((Feature("heat", "dynamic"),), ActionSpace.product(Axis("fluids", "mL", LEVELS, **axis)))


def read(doses, *, edges=EDGES, **axis):
    count = len(doses)
    frame = pl.DataFrame(
        {"episode": ["a"] * count, "step": range(count), "given": doses, "heat": [1.0] * count}, strict=False
    )
    return cohort_from_frame(frame, schema(**axis), TableColumns(doses=(DoseColumn("fluids", "given", edges),)))


def refusal(doses, **settings):
    with pytest.raises(InputError) as caught:
        read(doses, **settings)
    return str(caught.value)


def test_usual_doses_are_taken():
    assert read(USUAL).actions.tolist() == [0, 1, 2, 3, 4, 0]
    assert read(USUAL, plausible=(0, 1000)).actions.tolist() == [0, 1, 2, 3, 4, 0]


@pytest.mark.parametrize(
    ("dose", "axis", "said"),
    [
        (-250.0, {}, "is negative"),
        (-250.0, {"plausible": (0, 10_000)}, "is negative"),
        (2_500_000.0, {}, "more than 10 times the highest level.*mL for L"),
        (2_500_000.0, {"plausible": (0, 10_000)}, "outside the plausible range, 0 to 10000 mL.*another unit"),
        (2000.0, {"plausible": (0, 1000)}, "outside the plausible range, 0 to 1000 mL"),
    ],
)
def test_one_impossible_dose_is_refused_by_its_place(dose, axis, said):
    message = refusal([*USUAL[:2], dose, *USUAL[2:]], **axis)
    assert message.startswith("row 3, step 2: the dose of fluids (column 'given')")
    assert re.search(said, message)
    assert "plausible" in message  # what to do if the dose is right
    assert "250" not in message.replace("mL", "")


def test_several_are_counted():
    assert "(and 1 more)" in refusal([0.0, -1.0, 20.0, -2.0, 900.0])


def test_a_range_of_its_own_allows_what_would_else_be_refused():
    assert read([*USUAL, 100_000.0], plausible=(0, 200_000)).actions[-1] == 4
    assert read([*USUAL, -5.0], plausible=(-10, 1000)).actions[-1] == 0


@pytest.mark.parametrize("factor", [1e-3, 1e3, 1e6])
def test_a_column_in_another_unit_is_refused_whatever_the_range(factor):
    doses = [factor * dose for dose in USUAL]
    refusal(doses)
    message = refusal(doses, plausible=(0, 1e12))
    assert "column 'given', row 2 and on" in message
    assert "larger" in message if factor > 1 else "smaller" in message
    assert "convert the column" in message


def test_levels_without_edges_are_refused_as_before():
    assert "none of the levels" in refusal([0.0, 30.0, -30.0], edges=())
    assert "is negative" in refusal([0.0, 30.0, -30.0], edges=(), plausible=(0, 1000))
    message = refusal([0.0, 30.0, 81.0], edges=())
    assert "give 'edges'" in message
    assert "unit" not in message


AT_LEVELS = [float(level) for level in LEVELS]


def test_negative_doses_are_named_where_there_are_no_edges():
    message = refusal([*AT_LEVELS, -250.0, 30.0, -80.0], edges=())
    assert message.startswith("row 6, step 5: the dose of fluids (column 'given') is none of the levels")
    assert "it is negative (and 1 more); correct it" in message
    assert "250" not in message


@pytest.mark.parametrize("factor", [1000.0, 1e-3, 1e6, 1e-6, 60.0, 1 / 60, 24.0, 1 / 24, 3600.0, 100.0])
def test_another_unit_is_named_where_there_are_no_edges(factor):
    said = f"{factor:,.0f} times one of them" if factor > 1 else f"one of them divided by {1 / factor:,.0f}"
    message = refusal([factor * dose for dose in AT_LEVELS], edges=())
    assert message.startswith("row 2, step 1: the dose of fluids (column 'given') is none of the levels")
    assert f"but {said}, as is every dose but zero; is it in another unit" in message
    assert message.endswith("Convert the column to the unit of the levels (mL), or correct the levels.")
    message = refusal([*AT_LEVELS, factor * 279, 30.0, factor * 850], edges=())
    assert message.startswith("row 6, step 5: ")
    assert f"but {said} (and 1 more); is it" in message
    assert message.endswith("Convert it to the unit of the levels (mL), correct the slip, or add it to the levels.")


def test_negative_levels_allow_negative_doses():
    axis = Axis("heat", "kW", (-5, 0, 5))
    assert plausible_doses(axis) == (-50.0, 50.0)
    assert plausible_doses(Axis("heat", "kW", (0,))) == (0.0, np.inf)


@given(
    st.lists(st.floats(0, FAR_ABOVE * LEVELS[-1]), min_size=2, max_size=12),
    st.integers(0, 11),
    st.one_of(st.floats(-1e9, -1e-9), st.floats(FAR_ABOVE * LEVELS[-1] * 1.001, 1e12)),
)
@settings(deadline=None, derandomize=True, max_examples=some(60))
def test_exactly_the_impossible_is_refused(doses, place, wrong):
    """Whatever the other doses are, one that cannot be is refused; without it, only a column of another unit is."""
    try:
        read(doses)
    except InputError as error:
        assert "than its levels" in str(error)  # noqa: PT017
    spoiled = list(doses)
    spoiled[place % len(doses)] = wrong
    message = refusal(spoiled)
    assert f"row {place % len(doses) + 1}, " in message


@given(st.lists(st.sampled_from(LEVELS[1:]), min_size=4, max_size=20), st.sampled_from([-6, -3, 3, 6]))
@settings(deadline=None, derandomize=True, max_examples=some(40))
def test_the_factor_of_a_unit_is_found(doses, power):
    """Doses at the levels themselves, in a unit a thousand or a million times larger or smaller."""
    column, axis = DoseColumn("fluids", "given", EDGES), Axis("fluids", "mL", LEVELS)
    values = 10.0**power * np.array(doses)
    found = unit_factor(values, column.levels_of(values, axis), axis.levels)
    assert found is not None
    assert abs(np.log10(found) - power) <= 1
    assert unit_factor(np.array(doses), column.levels_of(np.array(doses), axis), axis.levels) is None


def test_ranges_of_axes_are_checked_stored_and_no_part_of_the_fingerprint():
    with pytest.raises(InputError, match=r"level\(s\) \[850.0\] lie outside"):
        schema(plausible=(0, 800))
    with pytest.raises(InputError, match="pair"):
        schema(plausible=(0,))
    ranged = schema(plausible=(0, 10_000))
    assert ranged.fingerprint == schema().fingerprint
    assert Schema.from_dict(ranged.to_dict()) == ranged
    assert ranged.to_dict()["actions"]["axes"][0]["plausible"] == [0.0, 10_000.0]
    assert "plausible" not in schema().to_dict()["actions"]["axes"][0]
    ranged.require_same(schema(), here="one", there="the other")
