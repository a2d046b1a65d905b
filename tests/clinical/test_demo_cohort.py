"""The open demo of MIMIC-III, where it is present: stays followed from raw rows to the grid by plain, separate code.

Stays are picked by rules, and what is expected is computed here from the rows: no value of a patient is written down.
"""

import csv
import gzip
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from statistics import mean, median

import numpy as np
import polars as pl
import pytest

from ifonly.clinical.build import Build, BuildOptions, build_cohort
from ifonly.clinical.inclusion import Selection
from ifonly.data.store import load_cohort
from ifonly.evidence.organs import points_of

ROOT = Path(__file__).parents[2]
DEMO = Path(os.environ.get("IFONLY_MIMIC_DEMO", ROOT.parent / "shared" / "data" / "mimic-iii-demo"))

pytestmark = pytest.mark.skipif(
    not (DEMO / "ICUSTAYS.csv.gz").exists(),
    reason="the demo of MIMIC-III is not here; IFONLY_MIMIC_DEMO names its folder",
)

Row = dict[str, str]


def rows(table: str, items: set[str] | None = None) -> Iterator[Row]:
    with gzip.open(DEMO / f"{table}.csv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if items is None or row["itemid"] in items:
                yield row


def time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S")


PRESSURES = {"220181", "220052", "225312"}
COMA = {"198"}
LABS = {
    "platelets": {"828", "227457", "3789", "51265"},
    "bilirubin": {"1538", "848", "225690", "50885"},
    "creatinine": {"791", "1525", "220615", "3750", "50912"},
}
"""By the bedside, and in the laboratory (the last)."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, work: Path) -> Build:
    """Adults of the demo, from admission on."""
    options = BuildOptions(selection=Selection(cohort="all-adults"), work=work, threads=1)
    return build_cohort(DEMO, tmp_path_factory.mktemp("demo") / "cohort", options)


@pytest.fixture(scope="module")
def charted() -> list[Row]:
    """Rows of CHARTEVENTS that the tests below follow, without those flagged as errors."""
    items = PRESSURES | COMA | set().union(*LABS.values())
    return [row for row in rows("CHARTEVENTS", items) if row["valuenum"] and row["error"] != "1"]


@pytest.fixture(scope="module")
def admitted() -> dict[str, datetime]:
    return {row["icustay_id"]: time(row["intime"]) for row in rows("ICUSTAYS")}


@pytest.fixture(scope="module")
def chosen(demo: Build) -> set[str]:
    return set(demo.grid["stay"])


def hours(text: str, begin: datetime) -> float:
    return (time(text) - begin).total_seconds() / 3600


def most_frequent(counted: Counter[str]) -> str:
    (stay, number), *_ = counted.most_common(1)
    assert number > 10, "too few rows to compare anything"
    return stay


def steps_of(demo: Build, stay: str) -> pl.DataFrame:
    mine = demo.grid.filter(stay=stay)
    assert mine["hour"].to_list() == [4.0 * step for step in range(mine.height)]
    return mine


def by_step(events: list[tuple[float, float]], steps: int) -> list[list[float]]:
    inside: list[list[float]] = [[] for _ in range(steps)]
    for hour, value in events:
        if 0 <= hour < 4 * steps:
            inside[int(hour // 4)].append(value)
    return inside


def held(moments: dict[float, float], steps: int, *, hold: float, default: float) -> list[float]:
    """The mean of a step's values, else the last one if it is not too old, else the default."""
    expected = []
    for step in range(steps):
        begin, end = 4 * step, 4 * step + 4
        inside = [value for hour, value in moments.items() if begin <= hour < end]
        before = [hour for hour in moments if hour < begin]
        recent = bool(before) and begin - max(before) <= hold
        expected.append(mean(inside) if inside else moments[max(before)] if recent else default)
    return expected


def test_counts_are_those_of_the_stays_table(demo: Build) -> None:
    """All that removes adults here is the length of their stay: whole steps of four hours."""
    born = {row["subject_id"]: time(row["dob"]) for row in rows("PATIENTS")}
    whole = []
    adults = 0
    for row in rows("ICUSTAYS"):
        begin = time(row["intime"])
        adult = (begin - born[row["subject_id"]]).days / 365.2425 >= 18
        adults += adult
        whole.append((int(hours(row["outtime"], begin) // 4), adult))
    assert sum(steps > 0 for steps, _ in whole) == 135
    assert sum(steps >= 10 for steps, _ in whole) == 87
    kept = [steps for steps, adult in whole if adult]
    assert [step.stays for step in demo.flow.steps] == [
        len(whole),
        len(whole),
        adults,
        sum(steps > 0 for steps in kept),
        sum(steps >= 10 for steps in kept),
        sum(steps >= 10 for steps in kept),
    ]
    assert sorted(demo.cohort.lengths) == sorted(min(steps, 20) for steps in kept if steps >= 10)


@pytest.mark.parametrize(
    ("feature", "default", "plausible"),
    [("platelets", 250, (1, 2000)), ("creatinine", 0.9, (0.05, 60)), ("bilirubin", 0.7, (0, 80))],
)
def test_labs(
    demo: Build,
    admitted: dict[str, datetime],
    charted: list[Row],
    feature: str,
    default: float,
    plausible: tuple[float, float],
) -> None:
    """The five stays, alone in their admission, with the most values, from the laboratory or charted."""
    stays_of = defaultdict(list)
    for row in rows("ICUSTAYS"):
        stays_of[row["hadm_id"]].append(row["icustay_id"])
    alone = {admission: stays[0] for admission, stays in stays_of.items() if len(stays) == 1}
    values: dict[str, dict[float, set[float]]] = defaultdict(lambda: defaultdict(set))
    laboratory = (row for row in rows("LABEVENTS", LABS[feature]) if row["valuenum"])
    bedside = (
        row for row in charted if row["itemid"] in LABS[feature] and alone.get(row["hadm_id"]) == row["icustay_id"]
    )
    for table, earliest in ((laboratory, -48), (bedside, -24)):
        for row in table:
            stay = alone.get(row["hadm_id"], "")
            if stay in admitted and plausible[0] <= float(row["valuenum"]) <= plausible[1]:
                hour = hours(row["charttime"], admitted[stay])
                if hour >= earliest:
                    values[stay][hour].add(float(row["valuenum"]))
    grids = {stay: part for (stay,), part in demo.grid.partition_by("stay", as_dict=True).items()}
    counted = Counter({stay: sum(hour < 80 for hour in values[stay]) for stay in values if stay in grids})
    for stay, number in counted.most_common(5):
        assert number > 2
        mine = grids[stay]
        moments = {hour: median(found) for hour, found in values[stay].items()}
        expected = held(moments, mine.height, hold=48, default=default)
        assert mine[feature].to_list() == pytest.approx(expected)
        if feature == "platelets":
            points = [sum(value < threshold for threshold in (150, 100, 50, 20)) for value in expected]
            assert mine["sofa_coagulation"].to_list() == points
        if feature == "bilirubin":
            points = [sum(value >= threshold for threshold in (1.2, 2, 6, 12)) for value in expected]
            assert mine["sofa_liver"].to_list() == points


def test_mean_blood_pressure(demo: Build, admitted: dict[str, datetime], chosen: set[str], charted: list[Row]) -> None:
    """The MetaVision stay with the most pressures, arterial and by cuff."""
    values: dict[str, dict[float, set[float]]] = defaultdict(lambda: defaultdict(set))
    for row in charted:
        stay = row["icustay_id"]
        if row["itemid"] in PRESSURES and stay in chosen and 10 <= float(row["valuenum"]) <= 250:
            values[stay][hours(row["charttime"], admitted[stay])].add(float(row["valuenum"]))
    stay = most_frequent(Counter({stay: len(moments) for stay, moments in values.items()}))
    mine = steps_of(demo, stay)
    moments = {hour: median(found) for hour, found in values[stay].items()}
    expected = held(moments, mine.height, hold=8, default=80)
    assert mine["MAP"].to_list() == pytest.approx(expected)
    without = mine.filter(pl.col("vasopressor") == 0)
    assert without["sofa_cardiovascular"].to_list() == (without["MAP"] < 70).cast(int).to_list()


def test_coma_as_carevue_totals_it(
    demo: Build, admitted: dict[str, datetime], chosen: set[str], charted: list[Row]
) -> None:
    values: dict[str, dict[float, float]] = defaultdict(dict)
    for row in charted:
        stay = row["icustay_id"]
        if row["itemid"] in COMA and stay in chosen:
            values[stay][hours(row["charttime"], admitted[stay])] = float(row["valuenum"])
    stay = most_frequent(Counter({stay: sum(0 <= hour < 80 for hour in moments) for stay, moments in values.items()}))
    mine = steps_of(demo, stay)
    totals = values[stay]
    for step in range(mine.height):
        row = mine.row(step, named=True)
        last = max((hour for hour in totals if hour < 4 * step + 4), default=None)
        if last is not None and 4 * step - last <= 12:
            assert row["GCS"] == totals[last], step
            assert row["sofa_nervous"] == sum(totals[last] < threshold for threshold in (15, 13, 10, 6)), step
        else:
            assert (row["GCS"], row["known_GCS"]) == (15, False), step


def test_urine(demo: Build, admitted: dict[str, datetime], chosen: set[str]) -> None:
    items = {"40055", "43175", "40069", "40094", "40715", "40473", "40085", "40057", "40056", "226559", "226560"}
    volumes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows("OUTPUTEVENTS", items):
        if row["icustay_id"] in chosen and row["value"]:
            volumes[row["icustay_id"]].append(
                (hours(row["charttime"], admitted[row["icustay_id"]]), float(row["value"]))
            )
    stay = most_frequent(Counter({stay: len(found) for stay, found in volumes.items()}))
    mine = steps_of(demo, stay)
    found = volumes[stay]
    assert mine["urine"].to_list() == pytest.approx([sum(values) for values in by_step(found, mine.height)])
    for row in mine.iter_rows(named=True):
        end = row["hour"] + 4
        day = [ml for hour, ml in found if end - 24 <= hour < end]
        by_urine = 0 if end < 24 or not day else 4 if sum(day) < 200 else 3 if sum(day) < 500 else 0
        by_creatinine = sum(row["creatinine"] >= threshold for threshold in (1.2, 2, 3.5, 5))
        assert row["sofa_renal"] == max(by_urine, by_creatinine), row["step"]


def test_norepinephrine_of_metavision(demo: Build, admitted: dict[str, datetime], chosen: set[str]) -> None:
    """The highest rate of each step, minute by minute, in the stay with the most orders of norepinephrine alone."""
    pressors = {"221906", "221289", "222315", "221749", "221662"}
    orders: dict[str, list[tuple[float, float, float, str]]] = defaultdict(list)
    for row in rows("INPUTEVENTS_MV", pressors):
        stay = row["icustay_id"]
        if stay in chosen and row["rate"] and row["statusdescription"] != "Rewritten" and row["cancelreason"] == "0":
            start, stop = hours(row["starttime"], admitted[stay]), hours(row["endtime"], admitted[stay])
            orders[stay].append((start, stop, float(row["rate"]), row["itemid"]))
    alone = {stay: found for stay, found in orders.items() if {item for *_, item in found} == {"221906"}}
    stay = max(alone, key=lambda stay: (sum(start < 80 for start, *_ in alone[stay]), stay))
    mine = steps_of(demo, stay)
    seconds = [(round(start * 3600), round(stop * 3600), rate) for start, stop, rate, _ in alone[stay] if stop > start]
    for row in mine.iter_rows(named=True):
        begin = round(row["hour"] * 3600)
        moments = {begin, *(start for start, *_ in seconds if begin <= start < begin + 4 * 3600)}
        highest = max(sum(rate for start, stop, rate in seconds if start <= t < stop) for t in moments)
        assert row["vasopressor"] == pytest.approx(highest, abs=1e-9), row["step"]
        pressure = 1 if row["MAP"] < 70 and row["known_MAP"] else 0
        assert row["sofa_cardiovascular"] == (4 if highest > 0.1 else 3 if highest > 0 else pressure), row["step"]
    assert mine["vasopressor"].max() > 0


def test_fluids_of_metavision(demo: Build, admitted: dict[str, datetime], chosen: set[str]) -> None:
    """Volumes by overlap with each step, in the stay with the most saline, dextrose and packed cells."""
    factors = {"225158": 1.0, "225159": 0.5, "225168": 1.0, "225828": 1.0, "220970": 1.0, "220862": 5.0,
               "220864": 1.0, "225943": 1.0, "226089": 1.0, "225823": 0.5, "225825": 1.0, "225827": 1.0, "225941": 1.0,
               "225170": 1.0, "225171": 1.0, "225161": 3.0, "220995": 6.66, "227533": 6.66, "227531": 2.75,
               "228341": 8.0}  # fmt: skip
    orders: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    odd = set()
    for row in rows("INPUTEVENTS_MV", set(factors)):
        stay = row["icustay_id"]
        if stay not in chosen or row["statusdescription"] == "Rewritten" or row["cancelreason"] != "0":
            continue
        if row["amountuom"].lower() not in ("ml", "l"):
            odd.add(stay)
            continue
        amount = float(row["amount"]) * (1000 if row["amountuom"].lower() == "l" else 1) * factors[row["itemid"]]
        start, stop = hours(row["starttime"], admitted[stay]), hours(row["endtime"], admitted[stay])
        orders[stay].append((start, stop, amount))
    stay = most_frequent(Counter({stay: len(found) for stay, found in orders.items() if stay not in odd}))
    mine = steps_of(demo, stay)
    expected = [
        sum(
            ml * max(0.0, min(stop, begin + 4) - max(start, begin)) / (stop - start)
            if stop > start
            else ml * (begin <= start < begin + 4)
            for start, stop, ml in orders[stay]
        )
        for begin in mine["hour"]
    ]
    assert mine["fluid"].to_list() == pytest.approx(expected, abs=1e-6)
    assert sum(expected) > 0


def test_norepinephrine_of_carevue(demo: Build, admitted: dict[str, datetime], chosen: set[str]) -> None:
    """A charted rate lasts until the next within four hours, else one hour; in the stay with the most of them."""
    pressors = {"30120", "30047", "30119", "30044", "30309", "30051", "30128", "30127", "30043", "30307"}
    points: dict[str, dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    items: dict[str, set[str]] = defaultdict(set)
    for row in rows("INPUTEVENTS_CV", pressors):
        stay = row["icustay_id"]
        if stay in chosen:
            items[stay].add(row["itemid"])
            stopped = row["stopped"] in ("Stopped", "D/C'd")
            if row["rate"] or stopped:
                second = round(hours(row["charttime"], admitted[stay]) * 3600)
                points[stay][second].append({"rate": row["rate"] or "0", "stopped": "yes" if stopped else ""})
    alone = Counter(
        {stay: sum(0 <= s < 80 * 3600 for s in points[stay]) for stay in points if items[stay] == {"30120"}}
    )
    stay = most_frequent(alone)
    mine = steps_of(demo, stay)
    times = sorted(points[stay])
    lasting = []
    for second, following in zip(times, [*times[1:], None], strict=True):
        found = points[stay][second]
        rate = 0.0 if any(row["stopped"] for row in found) else max(float(row["rate"]) for row in found)
        soon = following is not None and following - second <= 4 * 3600
        lasting.append((second, following if soon else second + 3600, rate))
    for row in mine.iter_rows(named=True):
        begin = round(row["hour"] * 3600)
        running = [rate for start, stop, rate in lasting if start < begin + 4 * 3600 and (stop or 0) > begin]
        assert row["vasopressor"] == pytest.approx(max(running, default=0.0)), row["step"]
    assert mine["vasopressor"].max() > 0


def test_fluids_of_carevue(demo: Build, admitted: dict[str, datetime], chosen: set[str]) -> None:
    """Volumes count when they are charted; the stay with the most, of a few common fluids and no others."""
    factors = {"30018": 1.0, "30021": 1.0, "30015": 0.5, "30296": 1.0, "30020": 0.5, "30001": 1.0, "30005": 1.0,
               "30006": 1.0, "30008": 1.0, "30009": 5.0, "30011": 1.0, "30014": 1.0, "30060": 1.0, "30061": 1.0,
               "30063": 1.0, "30066": 1.0, "30094": 1.0, "30143": 3.0, "30159": 1.0, "30160": 1.0, "30168": 1.0,
               "30176": 0.25, "30179": 1.0, "30180": 1.0, "30185": 1.0, "30186": 0.5, "30190": 1.0, "30210": 1.0,
               "30211": 0.5, "30315": 0.25, "30321": 0.5, "30352": 1.0, "30353": 0.5, "30381": 1.0, "30007": 1.0,
               "30004": 1.0, "30161": 0.3}  # fmt: skip
    others = {"30030", "46493", "45399", "46516", "40850", "42742", "46087", "41491", "42698", "42244"}
    given: dict[str, dict[tuple[str, ...], tuple[float, float]]] = defaultdict(dict)
    odd = set()
    for row in rows("INPUTEVENTS_CV", set(factors) | others):
        stay = row["icustay_id"]
        if stay not in chosen:
            continue
        if row["itemid"] in others or row["amountuom"].lower() not in ("ml", "cc", ""):
            odd.add(stay)
        elif row["amount"] and float(row["amount"]) > 0:
            moment = hours(row["charttime"], admitted[stay])
            same = (row["charttime"], row["itemid"], row["amount"], row["orderid"])
            given[stay][same] = (moment, float(row["amount"]) * factors[row["itemid"]])
    stay = most_frequent(Counter({stay: len(found) for stay, found in given.items() if stay not in odd}))
    mine = steps_of(demo, stay)
    expected = [sum(volumes) for volumes in by_step(list(given[stay].values()), mine.height)]
    assert mine["fluid"].to_list() == pytest.approx(expected, abs=1e-6)
    assert sum(expected) > 0


def test_sepsis_cohort(demo: Build, tmp_path: Path, work: Path) -> None:
    made = build_cohort(DEMO, tmp_path / "sepsis", BuildOptions(work=work, threads=1))
    left = [step.stays for step in made.flow.steps]
    assert left == sorted(left, reverse=True)
    assert 10 < made.flow.stays < demo.flow.stays
    assert made.grid.group_by("stay").agg(pl.col("SOFA").max())["SOFA"].min() >= 2
    assert (made.cohort.lengths.min(), made.cohort.lengths.max()) == (10, 20)
    assert load_cohort(tmp_path / "sepsis").fingerprint() == made.cohort.fingerprint()
    # Steps of both cohorts that begin at the same moment of the same stay are the same.
    both = made.grid.join(demo.grid, on=["stay", "hour"], suffix="_too")
    assert both.height > 100
    assert both["SOFA"].to_list() == both["SOFA_too"].to_list()


def test_recomputed_points_are_those_of_the_grid(demo: Build) -> None:
    """Organs whose value stands in the states as the score saw it: the same points, step by step, and the same score
    but for what levels of doses, gases of another moment, and urine of before the window change."""
    cohort = demo.cohort
    (score,) = cohort.schema.scores
    made = np.concatenate([points_of(score, one, one.states, one.actions) for one in cohort])
    for organ in ("coagulation", "liver", "nervous"):
        assert made[:, score.organs.index(organ)].tolist() == demo.grid[f"sofa_{organ}"].to_list(), organ
    unpressed = (demo.grid["vasopressor"] == 0).to_numpy()
    circulation = demo.grid["sofa_cardiovascular"].to_numpy()
    assert (made[:, score.organs.index("cardiovascular")] == circulation)[unpressed].all()
    known = (demo.grid["step"] >= 6).to_numpy()  # of all-adults, windows begin with the stay
    renal = demo.grid["sofa_renal"].to_numpy()
    same = (made[:, score.organs.index("renal")] == renal)[known]
    assert same.mean() > 0.99, "irrigant is taken off the day's urine, but not off a step's beyond zero"
    difference = np.abs(made.sum(axis=-1) - demo.grid["SOFA"].to_numpy())
    assert difference.mean() < 0.2
