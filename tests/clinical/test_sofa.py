"""Every threshold of SOFA from both sides, and what unknown values do."""

import math

import polars as pl
import pytest

from ifonly.clinical.sofa import COMPONENTS, add_sofa

HEALTHY = {
    "oxygenation": 450.0,
    "ventilation": 0.0,
    "platelets": 250.0,
    "bilirubin": 0.7,
    "MAP": 80.0,
    "vasopressor": 0.0,
    "GCS": 15.0,
    "creatinine": 0.9,
    "urine_day": 1500.0,
}


def score(**changes: float | None) -> dict[str, int]:
    row = {name: [changes.get(name, value)] for name, value in HEALTHY.items()}
    frame = pl.DataFrame(row, schema=dict.fromkeys(HEALTHY, pl.Float64))
    return add_sofa(frame).select(*COMPONENTS, "SOFA").row(0, named=True)


def below(value: float) -> float:
    return math.nextafter(value, -math.inf)


def above(value: float) -> float:
    return math.nextafter(value, math.inf)


def test_health_scores_nothing() -> None:
    assert set(score().values()) == {0}


@pytest.mark.parametrize(
    ("component", "feature", "threshold", "points"),
    [
        ("sofa_coagulation", "platelets", 150, 1),
        ("sofa_coagulation", "platelets", 100, 2),
        ("sofa_coagulation", "platelets", 50, 3),
        ("sofa_coagulation", "platelets", 20, 4),
        ("sofa_cardiovascular", "MAP", 70, 1),
        ("sofa_nervous", "GCS", 15, 1),
        ("sofa_nervous", "GCS", 13, 2),
        ("sofa_nervous", "GCS", 10, 3),
        ("sofa_nervous", "GCS", 6, 4),
    ],
)
def test_too_little(component: str, feature: str, threshold: float, points: int) -> None:
    assert score(**{feature: threshold})[component] == points - 1
    assert score(**{feature: below(threshold)})[component] == points
    assert score(**{feature: below(threshold)})["SOFA"] == points


@pytest.mark.parametrize(
    ("component", "feature", "threshold", "points"),
    [
        ("sofa_liver", "bilirubin", 1.2, 1),
        ("sofa_liver", "bilirubin", 2.0, 2),
        ("sofa_liver", "bilirubin", 6.0, 3),
        ("sofa_liver", "bilirubin", 12.0, 4),
        ("sofa_renal", "creatinine", 1.2, 1),
        ("sofa_renal", "creatinine", 2.0, 2),
        ("sofa_renal", "creatinine", 3.5, 3),
        ("sofa_renal", "creatinine", 5.0, 4),
    ],
)
def test_too_much(component: str, feature: str, threshold: float, points: int) -> None:
    assert score(**{feature: below(threshold)})[component] == points - 1
    assert score(**{feature: threshold})[component] == points
    assert score(**{feature: threshold})["SOFA"] == points


@pytest.mark.parametrize(("ratio", "alone", "ventilated"), [(400, 1, 1), (300, 2, 2), (200, 2, 3), (100, 2, 4)])
def test_respiration_needs_ventilation_for_the_worst_grades(ratio: float, alone: int, ventilated: int) -> None:
    def points(oxygenation: float, machine: float) -> int:
        return score(oxygenation=oxygenation, ventilation=machine)["sofa_respiration"]

    assert points(ratio, 0.0) == {400: 0, 300: 1, 200: 2, 100: 2}[ratio]
    assert points(ratio, 1.0) == {400: 0, 300: 1, 200: 2, 100: 3}[ratio]
    assert points(below(ratio), 0.0) == alone
    assert points(below(ratio), 1.0) == ventilated


def test_vasopressors_outweigh_pressure() -> None:
    points = [score(vasopressor=dose, MAP=60.0)["sofa_cardiovascular"] for dose in (0.0, 1e-9, 0.1, above(0.1), 2.0)]
    assert points == [1, 3, 3, 4, 4]
    assert score(vasopressor=0.05, MAP=None)["sofa_cardiovascular"] == 3


@pytest.mark.parametrize(("urine", "points"), [(500.0, 0), (below(500), 3), (200.0, 3), (below(200), 4), (0.0, 4)])
def test_urine_counts_where_it_is_worse_than_creatinine(urine: float, points: int) -> None:
    assert score(urine_day=urine)["sofa_renal"] == points
    assert score(urine_day=urine, creatinine=None)["sofa_renal"] == points
    assert score(urine_day=urine, creatinine=3.5)["sofa_renal"] == max(3, points)
    assert score(urine_day=urine, creatinine=5.0)["sofa_renal"] == 4


def test_what_is_unknown_scores_nothing() -> None:
    unknown = dict.fromkeys(("oxygenation", "platelets", "bilirubin", "MAP", "GCS", "creatinine", "urine_day"))
    assert score(**unknown, ventilation=1.0)["SOFA"] == 0


def test_sofa_is_the_sum() -> None:
    worst = score(
        oxygenation=40.0, ventilation=1.0, platelets=5.0, bilirubin=30.0, vasopressor=1.0, GCS=3.0, creatinine=9.0
    )
    assert [worst[name] for name in COMPONENTS] == [4] * 6
    assert worst["SOFA"] == 24
