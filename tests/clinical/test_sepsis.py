"""Suspected infection and its onset, the window around it, and what each rule removes."""

import shutil
from pathlib import Path

import polars as pl
import pytest
from effort import some
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from invented_events import stay, stays, table, tables

from ifonly.clinical import cache
from ifonly.clinical.inclusion import (
    CODE_OF_GRIDS,
    Flow,
    FlowStep,
    Selection,
    Sieve,
    Window,
    first_onset,
    select_once,
    select_stays,
    suspected_infections,
    windows_around_onset,
    windows_from_admission,
)
from ifonly.errors import InputError
from ifonly.progress import Tick

MINUTE = 1 / 60


def onsets(antibiotics: list[float], cultures: list[float]) -> list[float]:
    found = suspected_infections(
        table("antibiotics", [("a", hour) for hour in antibiotics]),
        table("cultures", [("a", hour) for hour in cultures]),
    )
    return found["onset"].to_list()


@pytest.mark.parametrize(
    ("antibiotic", "culture", "onset"),
    [
        (10.0, 34.0, 10.0),  # antibiotic first: the culture within 24 hours
        (10.0, 34.0 + MINUTE, None),
        (82.0, 10.0, 10.0),  # culture first: the antibiotic within 72 hours
        (82.0 + MINUTE, 10.0, None),
        (5.0, 5.0, 5.0),
    ],
)
def test_close_in_time(antibiotic: float, culture: float, onset: float | None) -> None:
    assert onsets([antibiotic], [culture]) == ([] if onset is None else [onset])


def test_neither_alone_is_an_infection_and_stays_do_not_mix() -> None:
    assert onsets([1.0, 2.0], []) == []
    assert onsets([], [1.0]) == []
    mixed = suspected_infections(table("antibiotics", [("a", 1.0)]), table("cultures", [("b", 1.0)]))
    assert mixed.height == 0


TIMES = st.lists(st.integers(-200 * 60, 200 * 60).map(lambda minutes: minutes / 60), max_size=8)


@hypothesis_settings(max_examples=some(100), deadline=None)
@given(TIMES, TIMES)
def test_onsets_are_those_of_all_pairs(antibiotics: list[float], cultures: list[float]) -> None:
    pairs = [(round(60 * a), round(60 * c)) for a in antibiotics for c in cultures]
    expected = {min(a, c) for a, c in pairs if 0 <= c - a <= 24 * 60 or 0 <= a - c <= 72 * 60}
    assert [round(60 * hour) for hour in onsets(antibiotics, cultures)] == sorted(expected)


@pytest.mark.parametrize(
    ("times", "onset"),
    [
        ([-24.0, 3.0], -24.0),
        ([-24.0 - MINUTE, 3.0], 3.0),
        ([50.0], 50.0),
        ([50.0 + MINUTE], None),
        ([-100.0], None),
    ],
)
def test_the_first_onset_that_belongs_to_the_stay(times: list[float], onset: float | None) -> None:
    infections = pl.DataFrame({"stay": ["a"] * len(times), "onset": times})
    found = first_onset(stays(stay("a", hours=50.0)), infections)["onset"].to_list()
    assert found == ([] if onset is None else [onset])


@pytest.mark.parametrize(
    ("onset", "hours", "start", "steps"),
    [
        (60.0, 300.0, 32.0, 20),  # 28 hours before to 52 after
        (28.0, 300.0, 0.0, 20),
        (10.0, 300.0, 0.0, 15),  # 62 hours: the beginning is cut by admission
        (-12.0, 300.0, 0.0, 10),
        (60.0, 75.9, 32.0, 10),  # 43.9 hours: whole steps only
        (60.0, 72.0, 32.0, 10),
        (60.0, 71.99, 32.0, 9),
        (-60.0, 300.0, 0.0, 0),
    ],
)
def test_the_window_lies_around_onset_and_within_the_stay(onset: float, hours: float, start: float, steps: int) -> None:
    made = windows_around_onset(stays(stay("a", hours=hours)).with_columns(onset=pl.lit(onset)), Window())
    assert made.select("start", "steps").row(0) == (start, steps)


@pytest.mark.parametrize(("hours", "steps"), [(3.9, 0), (4.0, 1), (40.0, 10), (39.999, 9), (400.0, 20)])
def test_without_sepsis_the_window_begins_with_the_stay(hours: float, steps: int) -> None:
    made = windows_from_admission(stays(stay("a", hours=hours)), Window())
    assert made.select("start", "steps").row(0) == (0.0, steps)


def sepsis_world() -> tuple[pl.DataFrame, dict[str, pl.LazyFrame]]:
    """Stays of which each fails at another rule, and two (of one subject) that pass them all."""
    everyone = stays(
        stay("child", age=17.9),
        stay("ageless", age=None),
        stay("uninfected"),
        stay("before"),
        stay("long before"),
        stay("brief", hours=20.0),
        stay("instant", hours=3.0),
        stay("unmeasured"),
        stay("well"),
        stay("septic", subject="p"),
        stay("septic again", subject="p", age=18.0),
    )
    infected = [name for name in everyone["stay"] if name not in ("uninfected", "before", "long before")]
    antibiotics = [(name, 1.0) for name in infected] + [("before", -20.0), ("long before", -80.0)]
    cultures = [(name, 2.0) for name in infected] + [("before", -20.0), ("long before", -80.0)]
    ill = [name for name in everyone["stay"] if name not in ("unmeasured", "well")]
    measurements = [(name, 5.0, "platelets", 90.0) for name in ill] + [("well", 5.0, "platelets", 101.0)]
    return everyone, tables(antibiotics=antibiotics, cultures=cultures, measurements=measurements)


def test_each_rule_removes_whom_it_should() -> None:
    everyone, events = sepsis_world()
    made = select_stays({"stays": everyone.lazy(), **events}, Selection())
    assert made.grid["stay"].unique().sort().to_list() == ["septic", "septic again"]
    assert [(step.stays, step.removed_stays) for step in made.flow.steps] == [
        (11, 0),
        (9, 2),  # adults
        (8, 1),  # infection
        (7, 1),  # onset near the stay
        (6, 1),  # a whole step
        (4, 2),  # ten steps
        (3, 1),  # something measured
        (2, 1),  # SOFA
    ]
    assert made.flow.steps[-1].subjects == 1
    assert made.flow.stays == 2
    # 53 hours from admission: the onset is at hour 1.
    assert made.grid.group_by("stay").len()["len"].to_list() == [13, 13]


def test_all_adults_need_no_infection() -> None:
    everyone, events = sepsis_world()
    made = select_stays({"stays": everyone.lazy(), **events}, Selection(cohort="all-adults"))
    assert set(made.grid["stay"]) == {"uninfected", "before", "long before", "well", "septic", "septic again"}
    assert [step.stays for step in made.flow.steps] == [11, 9, 8, 7, 6]


def test_nobody_left_names_the_rule() -> None:
    everyone, events = sepsis_world()
    healthy = everyone.filter(pl.col("stay").is_in(["well", "child"]))
    with pytest.raises(InputError, match=r"'SOFA of 2 or more in one of them' removed the last 1\b") as failure:
        select_stays({"stays": healthy.lazy(), **events}, Selection())
    assert "adults (18 years or older)" in str(failure.value)
    assert "well" not in str(failure.value)
    nobody = tables(measurements=[("well", 5.0, "platelets", 90.0)])
    with pytest.raises(InputError, match="suspected infection"):
        select_stays({"stays": healthy.lazy(), **nobody}, Selection())


def test_the_grid_is_made_once(tmp_path: Path) -> None:
    everyone, events = sepsis_world()
    for name, frame in {"stays": everyone.lazy(), **events}.items():
        frame.collect().write_parquet(tmp_path / f"{name}.parquet")
    ticks: list[Tick] = []
    first = select_once(tmp_path, Selection(), progress=ticks.append)
    made = len(ticks)
    again = select_once(tmp_path, Selection(), progress=ticks.append)
    assert made > 0
    assert len(ticks) == made
    assert again.grid.equals(first.grid)
    assert again.flow == first.flow
    other = select_once(tmp_path, Selection(cohort="all-adults"), progress=ticks.append)
    assert len(ticks) > made
    assert other.flow != first.flow
    table("antibiotics", [("septic", 40.0)]).write_parquet(tmp_path / "antibiotics.parquet")
    assert select_once(tmp_path, Selection(), progress=ticks.append).flow.steps[2].stays == 1


@pytest.mark.parametrize("module", CODE_OF_GRIDS)
def test_other_code_makes_another_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    everyone, events = sepsis_world()
    for name, frame in {"stays": everyone.lazy(), **events}.items():
        frame.collect().write_parquet(tmp_path / f"{name}.parquet")
    ticks: list[Tick] = []
    select_once(tmp_path, Selection(), progress=ticks.append)
    made = len(ticks)
    code = shutil.copytree(cache.CODE, tmp_path / "code")
    monkeypatch.setattr(cache, "CODE", code)
    select_once(tmp_path, Selection(), progress=ticks.append)
    assert len(ticks) == made
    (code / f"{module}.py").write_text("# another rule\n")
    select_once(tmp_path, Selection(), progress=ticks.append)
    assert len(ticks) == 2 * made


def test_the_flow_begins_with_all_that_were_listed(tmp_path: Path) -> None:
    everyone, events = sepsis_world()
    listed = FlowStep("stays in intensive care", 14, 13)
    made = select_stays({"stays": everyone.lazy(), **events}, Selection(), listed=listed)
    first, second, third, *_ = made.flow.steps
    assert first == listed
    assert (second.stays, second.removed_stays, second.removed_subjects) == (11, 3, 13 - second.subjects)
    assert third.rule.startswith("adults")
    with pytest.raises(InputError, match="removed the last 14"):
        select_stays({"stays": everyone.clear().lazy(), **events}, Selection(), listed=listed)


def test_a_flow_comes_back_from_its_file_and_reads_well() -> None:
    sieve = Sieve(stays(stay("a", subject="p"), stay("b", subject="p"), stay("c", age=3.0)), rule="stays")
    sieve.keep(pl.col("age") > 18, rule="adults")
    sieve.keep_ids(["a"], rule="those called a")
    assert Flow.from_dict(sieve.flow.to_dict()) == sieve.flow
    assert str(sieve.flow).splitlines() == [
        "                   stays  subjects   removed",
        "stays                  3         2",
        "adults                 2         1        -1",
        "those called a         1         1        -1",
    ]
    with pytest.raises(InputError, match="format"):
        Flow.from_dict({"format": "else"})


@pytest.mark.parametrize("settings", [{"shortest": 1}, {"shortest": 9, "longest": 8}, {"before": -1.0}])
def test_impossible_windows(settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match="window:"):
        Window(**settings)  # type: ignore[arg-type]


def test_unknown_cohorts() -> None:
    with pytest.raises(InputError, match="choose from sepsis3, all-adults"):
        Selection(cohort="everyone")  # type: ignore[arg-type]
