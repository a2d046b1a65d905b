"""The grid against plain Python, event by event; and that nothing knows the future."""

import math
from typing import Any

import polars as pl
import pytest
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from invented_events import event_rows, stay, stays, table, tables, window

from ifonly.clinical import grid as grid_module
from ifonly.clinical.grid import COLUMNS, MEASURED, VARIABLES, VENTILATION_HOLD, make_grid
from ifonly.clinical.sofa import COMPONENTS

ALL_COLUMNS = [name for group in COLUMNS for name in group]
Rows = dict[str, list[tuple[Any, ...]]]


def grid(events: dict[str, pl.LazyFrame], windows: pl.DataFrame) -> pl.DataFrame:
    return make_grid(windows, events)


def column(name: str, *, steps: int = 5, start: float = 0.0, **rows: Any) -> list[Any]:
    """One column of the grid of stay a."""
    return grid(tables(**rows), window(start=start, steps=steps))[name].to_list()


def bp(*events: tuple[float, float]) -> list[tuple[Any, ...]]:
    return [("a", hour, "mean_bp", value) for hour, value in events]


def test_columns_and_defaults_where_nothing_was_charted() -> None:
    made = grid(tables(), window(steps=2, female=False, readmission=True, age=91.4))
    assert made.columns == ALL_COLUMNS
    assert made.height == 2
    first = made.row(0, named=True)
    assert {v.feature: first[v.feature] for v in VARIABLES} == {v.feature: v.default for v in VARIABLES}
    assert (first["gender"], first["readmission"], first["age"], first["SOFA"]) == (0.0, 1.0, 91.4, 0.0)
    assert not any(first[f"measured_{name}"] for name in MEASURED)
    assert not any(first[f"known_{v.feature}"] for v in VARIABLES)


def test_a_step_has_the_mean_of_its_values_and_boundaries_belong_to_the_later_step() -> None:
    rows = bp((0.0, 60), (3.0, 70), (4.0, 90), (7.999, 100), (8.0, 50))
    assert column("MAP", measurements=rows, steps=3) == [65.0, 95.0, 50.0]


def test_coma_is_the_last_charted() -> None:
    rows = [("a", 1.0, "gcs", 15.0), ("a", 2.0, "gcs", 7.0), ("a", 3.0, "gcs", 9.0), ("a", 3.0, "gcs", 8.0)]
    assert column("GCS", measurements=rows, steps=2) == [8.0, 8.0]


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.feature)
def test_values_are_held_as_long_as_stated(variable: grid_module.Variable) -> None:
    value = {"gcs": 7.0, "fio2": 0.5}.get(variable.source, 30.0)
    shown = value * variable.factor
    limit = variable.hold

    def of_last_step(age: float) -> tuple[float, bool]:
        """What the last of 15 steps, which begins at hour 56, shows of a value that is so old then."""
        made = grid(tables(measurements=[("a", 56 - age, variable.source, value)]), window(steps=15)).row(
            -1, named=True
        )
        return made[variable.feature], made[f"known_{variable.feature}"]

    assert of_last_step(limit) == (shown, True)
    assert of_last_step(limit + 1 / 60) == (variable.default, False)
    assert of_last_step(1 / 60) == (shown, True)


def test_the_last_value_is_held_not_the_mean() -> None:
    assert column("MAP", measurements=bp((0.5, 60), (3.5, 100)), steps=2) == [80.0, 100.0]


def test_values_from_before_the_window_are_held_into_it() -> None:
    assert column("MAP", measurements=bp((-2.0, 66)), steps=3) == [66.0, 66.0, 80.0]
    assert column("MAP", measurements=bp((1.0, 66)), start=6.0, steps=1) == [66.0]


def test_oxygen_is_percent_and_bilirubin_has_a_least_value() -> None:
    assert column("FiO2", measurements=[("a", 0.0, "fio2", 0.6)], steps=1) == [60.0]
    assert column("bilirubin", measurements=[("a", 0.0, "bilirubin", 0.0)], steps=1) == [0.1]


def test_ventilation_lasts_until_it_ends_or_nobody_says_so_any_more() -> None:
    def ventilated(*evidence: tuple[float, bool]) -> list[float]:
        return column("ventilation", ventilation=[("a", hour, on) for hour, on in evidence], steps=6)

    assert ventilated((5.0, True)) == [0, 1, 1, 1, 0, 0]  # 3 and 7 hours old at the beginning of steps 2 and 3
    assert ventilated((5.0, True), (9.0, False)) == [0, 1, 1, 0, 0, 0]  # on for part of step 2
    assert ventilated((5.0, True), (5.0, False)) == [0] * 6
    assert ventilated((4.0, False), (6.0, True)) == [0, 1, 1, 1, 0, 0]
    assert ventilated((5.0, True), (8.0, False)) == [0, 1, 0, 0, 0, 0]  # off when step 2 begins
    assert ventilated((-VENTILATION_HOLD, True)) == [1, 0, 0, 0, 0, 0]


def gas(hour: float, oxygen: float) -> tuple[Any, ...]:
    return ("a", hour, "pao2", oxygen)


def fio2(hour: float, fraction: float) -> tuple[Any, ...]:
    return ("a", hour, "fio2", fraction)


def oxygenation(*rows: tuple[Any, ...], on: Any = (), steps: int = 3) -> list[float | None]:
    evidence = [("a", hour, state) for hour, state in on]
    return column("oxygenation", measurements=list(rows), ventilation=evidence, steps=steps)


def test_oxygen_in_blood_is_set_against_what_was_breathed_then() -> None:
    """A patient who is weaned after the gas has the ratio of the gas, not that of old blood and new air."""
    weaned = (fio2(0.5, 0.8), gas(1.0, 80), fio2(5.0, 0.4))
    assert oxygenation(*weaned) == [100.0, 100.0, 100.0]
    assert column("sofa_respiration", measurements=list(weaned), ventilation=[("a", 0.5, True)], steps=3) == [3, 3, 3]
    # What is charted after the gas is no part of it, though it is in the same step; the mean is one of ratios.
    assert oxygenation(fio2(0.5, 0.8), gas(1.0, 80), fio2(1.01, 0.4), gas(2.0, 80), steps=1) == [150.0]
    assert oxygenation(gas(1.0, 84), fio2(1.0, 0.5), steps=1) == [168.0]


def test_ratios_are_held_as_long_as_oxygen_in_blood() -> None:
    assert oxygenation(gas(-20, 84), steps=3) == [pytest.approx(400), pytest.approx(400), None]


def test_what_was_breathed_counts_as_long_as_stated() -> None:
    assert oxygenation(fio2(-12.0, 0.5), gas(0.0, 84), steps=1) == [168.0]
    assert oxygenation(fio2(-12.01, 0.5), gas(0.0, 84), steps=1) == [pytest.approx(400)]


def test_without_charted_oxygen_room_air_is_assumed_unless_ventilated() -> None:
    assert oxygenation(gas(9.0, 84), steps=3) == [None, None, pytest.approx(400)]
    assert oxygenation(gas(9.0, 84), on=[(1.0, True)]) == [None, None, None]
    assert oxygenation(gas(9.01, 84), on=[(1.0, True)]) == [None, None, pytest.approx(400)]
    assert oxygenation(gas(9.0, 84), on=[(1.0, True), (9.0, False)]) == [None, None, pytest.approx(400)]
    assert oxygenation(gas(9.0, 84), on=[(10.0, True)]) == [None, None, pytest.approx(400)]
    assert oxygenation(gas(9.0, 84), fio2(2.0, 0.5), on=[(1.0, True)]) == [None, None, 168.0]
    lost = column("sofa_respiration", measurements=[gas(1.0, 30)], ventilation=[("a", 1.0, True)], steps=1)
    assert lost == [0]


def test_urine_is_summed_by_step_and_by_day() -> None:
    rows = [("a", hour + 0.5, 20.0) for hour in range(-10, 40)]
    made = grid(tables(urine=rows), window(steps=10))
    assert made["urine"].to_list() == [80.0] * 10
    # 480 mL a day; it counts from the sixth step on, when a day of the stay is over.
    assert made["sofa_renal"].to_list() == [0] * 5 + [3] * 5


def test_a_day_ends_where_its_step_ends() -> None:
    assert column("sofa_renal", urine=[("a", 20.0, 199.0), ("a", 24.0, 1.0)], steps=7)[5:] == [4, 3]
    assert column("sofa_renal", urine=[("a", 4.0, 1.0), ("a", 20.0, 199.0)], steps=7)[5:] == [3, 3]
    assert column("sofa_renal", urine=[("a", 3.99, 1.0), ("a", 20.0, 199.0)], steps=7)[5:] == [3, 4]


def test_a_day_of_500_ml_is_not_below_500() -> None:
    tenths = [("a", 0.1 + hour * 0.5, 500 / 48) for hour in range(200)]
    made = grid(tables(urine=tenths), window(steps=20))
    assert made["sofa_renal"].max() == 0


def test_a_day_without_charted_urine_is_not_a_day_without_urine() -> None:
    made = grid(tables(urine=[("a", 1.0, 50.0)]), window(steps=10))
    # At the end of step 5 a day has passed with 50 mL; of the day before the end of step 7 nothing is known.
    assert made["sofa_renal"].to_list() == [0, 0, 0, 0, 0, 4, 0, 0, 0, 0]
    assert made["urine"].to_list() == [50.0] + [0.0] * 9
    assert made["measured_urine"].to_list() == [True] + [False] * 9


def test_doses() -> None:
    pressors = [("a", 2.0, 6.0, 0.1, "x"), ("a", 5.0, 6.0, 0.3, "y"), ("a", 8.0, 9.0, 0.2, "x")]
    given_fluids = [("a", 2.0, 6.0, 400.0), ("a", 8.0, 8.0, 50.0), ("b", 0.0, 4.0, 1000.0)]
    assert column("vasopressor", vasopressors=pressors, steps=4) == pytest.approx([0.1, 0.4, 0.2, 0.0])
    assert column("fluid", fluids=given_fluids, steps=4) == pytest.approx([200.0, 200.0, 50.0, 0.0])


def test_steps_are_aligned_to_the_window() -> None:
    made = grid(tables(measurements=bp((5.34, 60), (5.35, 80))), window(start=1.35, steps=2))
    assert made["hour"].to_list() == [1.35, 5.35]
    assert made["MAP"].to_list() == [60.0, 80.0]


def test_stays_do_not_mix_and_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: Rows = {
        "measurements": [(name, 1.0, "mean_bp", 50.0 + i) for i, name in enumerate("abc")],
        "fluids": [("b", 0.0, 4.0, 100.0)],
    }
    windows = stays(stay("a"), stay("b"), stay("c")).with_columns(start=pl.lit(0.0), steps=pl.Series([3, 4, 2]))
    whole = make_grid(windows, tables(**rows))
    ticks = []
    monkeypatch.setattr(grid_module, "CHUNK", 1)
    assert make_grid(windows, tables(**rows), progress=ticks.append).equals(whole)
    assert [(tick.done, tick.total) for tick in ticks] == [(1, 3), (2, 3), (3, 3)]
    assert whole.filter(step=0)["MAP"].to_list() == [50.0, 51.0, 52.0]
    assert whole.filter(stay="b")["fluid"].to_list() == [100.0, 0.0, 0.0, 0.0]
    assert whole.filter(pl.col("stay") != "b")["fluid"].sum() == 0


def by_hand(rows: Rows, name: str, start: float, steps: int) -> list[dict[str, Any]]:
    """The grid of a stay, computed event by event."""
    mine = {kind: [row[1:] for row in rows[kind] if row[0] == name] for kind in rows}
    return [_step_by_hand(mine, start + 4 * step) for step in range(steps)]


def _step_by_hand(mine: Rows, begin: float) -> dict[str, Any]:
    end, tiny = begin + 4, 1e-6
    result: dict[str, Any] = {}
    for variable in VARIABLES:
        charted = [(hour, value) for hour, kind, value in mine["measurements"] if kind == variable.source]
        values = [(h, max(v * variable.factor, variable.least or 0)) for h, v in charted if h < end - tiny]
        inside = [(hour, value) for hour, value in values if hour >= begin - tiny]
        last = max((hour for hour, _ in values), default=-math.inf)
        latest = [value for hour, value in values if abs(hour - last) < tiny]
        if variable.within == "mean":
            known = (
                sum(v for _, v in inside) / len(inside) if inside else (sum(latest) / len(latest) if latest else None)
            )
        else:
            known = min(latest, default=None)
        if not inside and begin - last > variable.hold + tiny:
            known = None
        result |= {variable.feature: variable.default if known is None else known}
        result |= {f"measured_{variable.feature}": bool(inside), f"known_{variable.feature}": known is not None}
    result["oxygenation"] = _oxygenation_by_hand(mine, begin)
    result["urine"] = sum(ml for hour, ml in mine["urine"] if begin - tiny <= hour < end - tiny)
    states = {round(hour * 60): [] for hour, _ in mine["ventilation"]}
    for hour, on in mine["ventilation"]:
        states[round(hour * 60)].append(on)
    moments = {minute: all(on) for minute, on in states.items()}
    inside_on = any(on for minute, on in moments.items() if round(begin * 60) <= minute < round(end * 60))
    before = [minute for minute in moments if minute <= round(begin * 60)]
    held_on = bool(before) and moments[max(before)] and round(begin * 60) - max(before) <= VENTILATION_HOLD * 60
    result["ventilation"] = float(inside_on or held_on)
    moments_of_change = [begin, *(s for s, _, _, _ in mine["vasopressors"] if begin < s < end - tiny)]
    running = [sum(r for s, e, r, _ in mine["vasopressors"] if s <= t < e) for t in moments_of_change]
    result["vasopressor"] = max(running)
    result["fluid"] = sum(_share(s, e, begin, end) * ml for s, e, ml in mine["fluids"])
    return result


def _oxygenation_by_hand(mine: Rows, begin: float) -> float | None:
    def latest(charted: list[tuple[int, float]], moment: int, hours: float) -> list[float]:
        """The values of the last moment up to `moment`, if not older than so many hours; all times in seconds."""
        last = max((second for second, _ in charted if second <= moment), default=-math.inf)
        return [value for second, value in charted if second == last and moment - last <= hours * 3600]

    def charted(kind: str) -> list[tuple[int, float]]:
        return [(round(hour * 3600), value) for hour, name, value in mine["measurements"] if name == kind]

    gases, inspired = charted("pao2"), charted("fio2")
    machine = [(round(hour * 3600), on) for hour, on in mine["ventilation"]]
    ratios = []
    for moment in sorted({second for second, _ in gases}):
        breathed = latest(inspired, moment, 12)
        states = latest(machine, moment, VENTILATION_HOLD)
        oxygen = [value for second, value in gases if second == moment]
        if breathed:
            ratios.append((moment, sum(oxygen) / len(oxygen) / (sum(breathed) / len(breathed))))
        elif not states or not all(states):
            ratios.append((moment, sum(oxygen) / len(oxygen) / 0.21))
    first = round(begin * 3600)
    inside = [ratio for moment, ratio in ratios if first <= moment < first + 4 * 3600]
    held = latest(ratios, first, 24)
    return sum(inside) / len(inside) if inside else held[0] if held else None


def _share(start: float, stop: float, begin: float, end: float) -> float:
    if stop == start:
        return float(begin <= start < end)
    return max(0.0, min(stop, end) - max(start, begin)) / (stop - start)


WINDOWS = stays(stay("a"), stay("b", hours=70.0)).with_columns(start=pl.Series([0.0, 7.25]), steps=pl.Series([12, 6]))


@settings(max_examples=some(25), deadline=None)
@given(event_rows())
def test_the_grid_is_what_plain_code_gives(rows: Rows) -> None:
    made = make_grid(WINDOWS, tables(**rows))
    for name, start, steps in (("a", 0.0, 12), ("b", 7.25, 6)):
        mine = made.filter(stay=name)
        for step, expected in enumerate(by_hand(rows, name, start, steps)):
            found = mine.row(step, named=True)
            assert (found["oxygenation"] is None) == (expected["oxygenation"] is None), (name, step)
            for row in (found, expected):
                row["oxygenation"] = row["oxygenation"] or 0.0
            assert {key: found[key] for key in expected} == pytest.approx(expected, rel=1e-9, abs=1e-9), (name, step)


@settings(max_examples=some(15), deadline=None)
@given(event_rows(), event_rows(), st.integers(0, 11))
def test_nothing_comes_from_the_future(rows: Rows, others: Rows, step: int) -> None:
    """Whatever is charted after the end of a step, nothing at or before this step changes."""
    end = 4.0 * (step + 1)

    def past(kind: str) -> list[tuple[Any, ...]]:
        return [row for row in rows[kind] if row[1] < end]

    # Infusions that run beyond the end are cut there: what they do later is the future too.
    cut = {"vasopressors": [(a, s, min(e, end), *rest) for a, s, e, *rest in past("vasopressors")]}
    cut["fluids"] = [
        (a, s, min(e, end), ml * _share(s, e, s, end)) for a, s, e, ml in past("fluids") if s == e or e > s
    ]
    known: Rows = {kind: cut.get(kind, past(kind)) for kind in rows}
    future: Rows = {kind: [row for row in others[kind] if row[1] >= end] for kind in others}
    windows = window(steps=12)
    before = make_grid(windows, tables(**known)).filter(pl.col("step") <= step)
    after = make_grid(windows, tables(**{kind: known[kind] + future[kind] for kind in known})).filter(
        pl.col("step") <= step
    )
    whole = make_grid(windows, tables(**rows)).filter(pl.col("step") <= step)
    assert after.equals(before)
    inexact = ["fluid"]  # a cut infusion gives the same amount, up to rounding
    assert whole.drop(inexact).equals(before.drop(inexact))
    assert whole["fluid"].to_list() == pytest.approx(before["fluid"].to_list())


def test_sofa_is_the_sum_of_its_components_and_urine_never_negative() -> None:
    rows: Rows = {
        "measurements": [("a", 1.0, "platelets", 40.0), ("a", 1.0, "bilirubin", 3.0)],
        "urine": [("a", 2.0, -50.0)],
    }
    made = grid(tables(**rows), window(steps=1))
    assert made["SOFA"].item() == made.select(pl.sum_horizontal(COMPONENTS)).item() == 5.0
    assert made["urine"].item() == 0.0


def test_an_empty_window_gives_no_rows() -> None:
    assert make_grid(window(steps=0), tables()).height == 0
    assert table("urine").height == 0
