"""Doses and volumes per step, against slow and obvious ways to compute them; and orders in all their units."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mimic_tables import MimicTables, Stay
from numpy.testing import assert_allclose, assert_array_equal

from ifonly.clinical.extract import Events, read_events
from ifonly.clinical.treatments import amount_per_step, maximum_rate, rate_profile

# Quarters of hours are exact in floating point, so that the oracles meet boundaries exactly.
quarters = st.integers(-20, 80).map(lambda n: n / 4)
values = st.integers(0, 64).map(lambda n: n / 64)
intervals = st.lists(st.tuples(quarters, quarters, values), max_size=12).map(
    lambda rows: np.array([(min(a, b), max(a, b), v) for a, b, v in rows], dtype=float).reshape(-1, 3)
)
step_edges = st.tuples(quarters, st.integers(1, 6), st.sampled_from([0.5, 1.0, 4.0])).map(
    lambda made: made[0] + made[2] * np.arange(made[1] + 1)
)


def brute_force_maximum(rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Look at every eighth of an hour: between these moments nothing changes."""
    highest = []
    for begin, end in pairwise(edges):
        moments = np.arange(begin, end, 1 / 8)
        highest.append(max(sum(v for a, b, v in rows if a <= moment < b) for moment in moments))
    return np.array(highest)


def brute_force_amounts(rows: np.ndarray, edges: np.ndarray) -> np.ndarray:
    amounts = np.zeros(len(edges) - 1)
    for start, stop, amount in rows:
        for step, (begin, end) in enumerate(pairwise(edges)):
            if start == stop:
                amounts[step] += amount if begin <= start < end else 0
            else:
                amounts[step] += amount * max(0.0, min(stop, end) - max(start, begin)) / (stop - start)
    return amounts


@given(intervals, step_edges)
def test_maximum_rate_is_that_of_brute_force(rows: np.ndarray, edges: np.ndarray) -> None:
    assert_allclose(maximum_rate(rows, edges), brute_force_maximum(rows, edges), atol=1e-12)


@given(intervals, step_edges)
def test_amounts_are_those_of_brute_force(rows: np.ndarray, edges: np.ndarray) -> None:
    assert_allclose(amount_per_step(rows, edges), brute_force_amounts(rows, edges), atol=1e-12)


@given(intervals)
def test_steps_that_cover_everything_hold_the_whole_volume(rows: np.ndarray) -> None:
    edges = np.arange(-8.0, 25.0, 4.0)
    assert_allclose(amount_per_step(rows, edges).sum(), rows[:, 2].sum(), rtol=1e-12, atol=1e-12)


@given(intervals, st.randoms())
def test_the_order_of_rows_does_not_matter(rows: np.ndarray, random: object) -> None:
    edges = np.arange(-8.0, 25.0, 4.0)
    shuffled = rows.copy()
    random.shuffle(shuffled := list(map(tuple, shuffled)))  # type: ignore[attr-defined]
    other = np.array(shuffled, dtype=float).reshape(-1, 3)
    assert_allclose(maximum_rate(other, edges), maximum_rate(rows, edges), atol=1e-12)


@given(intervals)
def test_nothing_runs_after_everything_has_stopped(rows: np.ndarray) -> None:
    times, rates = rate_profile(rows)
    assert (rates >= 0).all()
    if len(times):
        assert rates[-1] == 0


def test_nothing_given_is_zero() -> None:
    edges = np.array([0.0, 4.0, 8.0])
    assert_array_equal(maximum_rate(np.empty((0, 3)), edges), [0, 0])
    assert_array_equal(amount_per_step(np.empty((0, 3)), edges), [0, 0])


def test_an_infusion_that_ends_where_another_begins_does_not_add_up() -> None:
    rows = np.array([[0.0, 4.0, 0.3], [4.0, 8.0, 0.5]])
    assert_array_equal(maximum_rate(rows, np.array([0.0, 8.0, 12.0])), [0.5, 0])
    assert_array_equal(maximum_rate(rows, np.array([0.0, 4.0, 8.0])), [0.3, 0.5])


def test_rounding_leaves_no_infusion_behind() -> None:
    rows = np.array([[0.0, 1.0, 0.1], [0.0, 2.0, 0.2], [0.0, 3.0, 0.3]])
    assert maximum_rate(rows, np.array([3.0, 4.0])).tolist() == [0.0]


NOREPINEPHRINE, EPINEPHRINE, VASOPRESSIN, PHENYLEPHRINE, DOPAMINE = 221906, 221289, 222315, 221749, 221662
SALINE, HALF_SALINE, BICARBONATE, MANNITOL, ALBUMIN_25 = 225158, 225159, 220995, 227531, 220862


class Orders:
    """Invented orders, a stay per case, read as events."""

    def __init__(self) -> None:
        self.tables, self.stays = MimicTables(), dict[str, Stay]()

    def new(self, name: str, *, weight: float | None = 50) -> Stay:
        self.stays[name] = self.tables.add_stay(hours=72)
        if weight is not None:
            self.tables.chart(self.stays[name], 0.5, 226512, weight)
        return self.stays[name]

    def infuse(self, name: str, item: int, *orders: dict[str, Any]) -> None:
        """Orders one after the other, from hour 1 on, each for an hour."""
        stay = self.new(name)
        for hour, order in enumerate(orders, start=1):
            self.tables.infuse(stay, hour, hour + order.pop("hours", 1), item, **order)

    def read(self, folder: Path, release: str) -> None:
        source = self.tables.write(folder / "mimic", release=release)
        self.events: Events = read_events(source, folder / "work", threads=1)

    def rows(self, table: str, name: str, *columns: str) -> list[Any]:
        of_stay = self.events.table(table).filter(pl.col("stay") == str(self.stays[name].stay))
        return of_stay.sort("start", "stop").select(columns).collect().rows()

    def values(self, table: str, name: str) -> list[float]:
        column = "rate" if table == "vasopressors" else "ml"
        return [value for (value,) in self.rows(table, name, column)]

    def removed(self, table: str, kind: str) -> dict[str, int]:
        return {
            key: number for key, number in self.events.counts["tables"][table]["kinds"][kind].items() if key != "kept"
        }


def rate(value: Any, unit: str | None, **more: Any) -> dict[str, Any]:
    return {"rate": value, "rateuom": unit, **more}


def amount(value: Any, unit: str | None = "ml", **more: Any) -> dict[str, Any]:
    return {"amount": value, "amountuom": unit, **more}


@pytest.fixture(scope="module", params=["MIMIC-III", "MIMIC-IV"])
def orders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Orders:
    made = Orders()
    per_kg = rate(0.1, "mcg/kg/min")
    made.infuse("units", NOREPINEPHRINE, per_kg, rate(6, "mcg/kg/hour"), rate(5, "mcg/min"), rate(0.3, "mg/hour"))
    made.infuse(
        "own weight", NOREPINEPHRINE, rate(8, "mcg/min", patientweight=100), rate(5, "mcg/min", patientweight=900)
    )
    made.new("nobody knows", weight=None)
    made.tables.infuse(made.stays["nobody knows"], 1, 2, NOREPINEPHRINE, **rate(8, "mcg/min"))
    made.infuse("vasopressin", VASOPRESSIN, rate(0.04, "units/min"), rate(2.4, "units/hour"), rate(2.4, "units/min"))
    made.infuse("most vasopressin", VASOPRESSIN, rate(0.2, "units/min"), rate(0.21, "units/min"))
    made.infuse("cancelled", EPINEPHRINE, {**per_kg, "cancelreason": 1}, rate(0.2, "mcg/kg/min", cancelreason=0))
    made.infuse("epinephrine", EPINEPHRINE, dict(per_kg))
    made.infuse("phenylephrine", PHENYLEPHRINE, rate(1, "mcg/kg/min"))
    made.infuse("dopamine", DOPAMINE, rate(5, "mcg/kg/min"), rate(5, "units/hour"))
    made.infuse(
        "refused",
        NOREPINEPHRINE,
        rate(0.1, "mcg/kg/min", statusdescription="Rewritten"),
        rate(0.1, "drops/min"),
        rate(None, "mcg/kg/min"),
        rate(-0.1, "mcg/kg/min"),
        rate(0, "mcg/kg/min"),
        rate(11, "mcg/kg/min"),
        rate(0.1, "mcg/kg/min", hours=-0.5),
        rate(0.1, "mcg/kg/min", hours=0),
        rate(0.1, "mcg/kg/min", endtime=None),
        rate("much", "mcg/kg/min"),
        rate(0.2, "mcg/kg/min"),
    )
    made.tables.infuse(made.stays["refused"], 72.5, 73, NOREPINEPHRINE, **rate(0.3, "mcg/kg/min"))
    twice = rate(0.2, "mcg/kg/min", orderid=1)
    stay = made.new("twice")
    for order in (twice, twice, {**twice, "orderid": 2}):
        made.tables.infuse(stay, 1, 2, NOREPINEPHRINE, **order)

    made.infuse("volumes", SALINE, amount(500), amount(250, None), amount(0.5, "L"), amount(100, "cc"))
    made.infuse("half", HALF_SALINE, amount(100))
    made.infuse("bicarbonate", BICARBONATE, amount(50, "mEq"))
    made.infuse("mannitol", MANNITOL, amount(20, "grams"))
    made.infuse("albumin", ALBUMIN_25, amount(100))
    made.infuse(
        "not given",
        SALINE,
        amount(100, statusdescription="Rewritten"),
        amount(-100),
        amount(0),
        amount(None),
        amount(10_001),
        amount(5, "dose"),
        amount(100, hours=-1),
    )
    made.infuse("boluses", SALINE, amount(100, hours=0), amount(200, endtime=None))
    made.read(tmp_path_factory.mktemp("orders"), request.param)
    return made


def test_rates_in_all_units_are_per_kg_and_minute(orders: Orders) -> None:
    assert orders.values("vasopressors", "units") == pytest.approx([0.1, 0.1, 5 / 50, 0.3 * 1000 / 60 / 50])


def test_rates_count_for_the_weight_of_the_order_then_of_the_stay_then_for_80_kg(orders: Orders) -> None:
    assert orders.values("vasopressors", "own weight") == pytest.approx([8 / 100, 5 / 50])
    assert orders.values("vasopressors", "nobody knows") == pytest.approx([8 / 80])
    assert orders.events.counts["tables"]["vasopressors"]["rates with an assumed weight"] == 1
    assert any("1 rates there that are not per kg are taken for 80 kg" in note for note in orders.events.notes)


def test_vasopressors_in_norepinephrine_equivalents(orders: Orders) -> None:
    assert orders.values("vasopressors", "vasopressin") == pytest.approx([0.2, 0.2, 0.2])
    assert orders.values("vasopressors", "epinephrine") == pytest.approx([0.1])
    assert orders.values("vasopressors", "phenylephrine") == pytest.approx([0.45])
    assert orders.values("vasopressors", "dopamine") == pytest.approx([0.05])
    assert orders.removed("vasopressors", "dopamine, metavision") == {"unit not known": 1}
    assert orders.events.counts["tables"]["vasopressors"]["vasopressin per minute taken as per hour"] == 2


def test_more_vasopressin_than_anybody_gets_per_minute_was_meant_per_hour(orders: Orders) -> None:
    assert orders.values("vasopressors", "most vasopressin") == pytest.approx([5 * 0.2, 5 * 0.21 / 60])


def test_orders_with_a_reason_to_cancel_them_do_not_count(orders: Orders) -> None:
    """MIMIC-IV has no such column."""
    third = orders.events.release == "MIMIC-III"
    assert orders.values("vasopressors", "cancelled") == ([0.2] if third else [0.1, 0.2])
    removed = orders.removed("vasopressors", "epinephrine, metavision")
    assert removed == ({"cancelled or rewritten": 1} if third else {})


def test_orders_that_do_not_count(orders: Orders) -> None:
    assert orders.rows("vasopressors", "refused", "start", "stop", "rate", "drug") == [(11, 12, 0.2, "norepinephrine")]
    assert orders.removed("vasopressors", "norepinephrine, metavision") == {
        "cancelled or rewritten": 1,
        "unit not known": 1,
        "no rate": 2,
        "rate not above zero": 2,
        "implausible": 1,
        "negative duration": 1,
        "no duration": 1,
        "no time": 1,
        "outside the stay": 1,
        "duplicate": 1,
    }


def test_the_same_order_counts_once_and_two_orders_twice(orders: Orders) -> None:
    assert orders.values("vasopressors", "twice") == [0.2, 0.2]


def test_volumes_in_ml_corrected_for_tonicity(orders: Orders) -> None:
    assert orders.values("fluids", "volumes") == [500, 250, 500, 100]
    assert orders.values("fluids", "half") == [50]
    assert orders.values("fluids", "bicarbonate") == pytest.approx([50 * 6.66])
    assert orders.values("fluids", "mannitol") == pytest.approx([20 * 5 * 2.75])
    assert orders.values("fluids", "albumin") == [500]


def test_volumes_that_do_not_count(orders: Orders) -> None:
    assert orders.values("fluids", "not given") == []
    assert orders.removed("fluids", "metavision") == {
        "cancelled or rewritten": 1,
        "negative amount": 1,
        "nothing given": 1,
        "no amount": 1,
        "implausible": 1,
        "unit not known": 1,
        "negative duration": 1,
    }


def test_boluses_have_one_moment(orders: Orders) -> None:
    assert orders.rows("fluids", "boluses", "start", "stop", "ml") == [(1, 1, 100), (2, 2, 200)]


def test_carevue_rates_last_until_the_next_chart_of_the_drug(tmp_path: Path) -> None:
    made = Orders()
    stay = made.new("rates", weight=80)
    levophed, levophed_per_kg, neosynephrine = 30047, 30120, 30128
    for hour, item, row in (
        (1, levophed_per_kg, rate(0.1, "mcgkgmin")),
        (2, levophed_per_kg, rate(0.2, "mcgkgmin")),
        (2, levophed_per_kg, amount(0.5, "mg")),  # how much, not how fast
        (3, levophed, rate(24, "mcgmin")),  # the same drug by another item
        (5, levophed_per_kg, rate(0.4, "mcgkgmin")),
        (9.5, levophed_per_kg, rate(0.5, "mcgkgmin")),  # more than four hours later
        (10, levophed_per_kg, rate(0.5, "mcgkgmin", stopped="Stopped")),
        (11, levophed_per_kg, rate(0.6, "mcgkgmin")),
        (11.5, levophed_per_kg, rate(0, "mcgkgmin")),
        (12, levophed_per_kg, rate(None, "mcgkgmin")),
        (20, levophed_per_kg, rate(0.7, "mcgkgmin")),
        (30, levophed_per_kg, rate(0.8, "mcgkgmin")),
        (34, levophed_per_kg, rate(0.9, "mcgkgmin")),  # four hours later: the first lasted until then
        (38 + 1 / 60, levophed_per_kg, rate(1.0, "mcgkgmin")),  # a minute too late
        (1.5, neosynephrine, rate(2, "mcgkgmin")),
        (2.5, neosynephrine, amount(10, "mg", stopped="D/C'd")),
    ):
        made.tables.carevue(stay, hour, item, **row)
    for hour, item, ml in ((1, 30018, 250), (1, 30018, 250), (2, 30020, 100), (3, 30168, 500)):
        made.tables.carevue(stay, hour, item, **amount(ml))
    made.tables.carevue(stay, 4, 30030, **amount(50, "mEq"))
    made.read(tmp_path, "MIMIC-III")
    columns = ("start", "stop", "rate", "drug")
    found = [row for row in made.rows("vasopressors", "rates", *columns) if row[3] == "norepinephrine"]
    assert [row[:3] for row in found] == [
        (1, 2, 0.1),
        (2, 3, 0.2),
        (3, 5, pytest.approx(24 / 80)),
        (5, 6, 0.4),
        (9.5, 10, 0.5),
        (11, 11.5, 0.6),
        (20, 21, 0.7),
        (30, 34, 0.8),
        (34, 35, 0.9),
        (pytest.approx(38 + 1 / 60), pytest.approx(39 + 1 / 60), 1.0),
    ]
    others = [row for row in made.rows("vasopressors", "rates", *columns) if row[3] == "phenylephrine"]
    assert others == [(1.5, 2.5, 0.9, "phenylephrine")]
    assert made.removed("vasopressors", "norepinephrine, carevue") == {"amount without a rate": 1, "no rate": 1}
    # Two lines may run at the same speed: only a row of the same order would be a copy. Bladder irrigation is no fluid.
    assert made.rows("fluids", "rates", "start", "stop", "ml") == [
        (1, 1, 250),
        (1, 1, 250),
        (2, 2, 50),
        (4, 4, pytest.approx(50 * 6.66)),
    ]
