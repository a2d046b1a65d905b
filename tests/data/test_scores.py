"""Scores made of other features: what schemas say of them, and their points against hand-made ones."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml
from slow_sofa import slow_sofa

from ifonly import ActionSpace, Axis, Feature, Schema, load_schema, save_schema
from ifonly.clinical.grid import clinical_schema
from ifonly.data.organs import SOFA, over_a_day
from ifonly.data.scores import Score, ScoredCourse, organ_points
from ifonly.errors import InputError
from ifonly.simulate import sepsis_schema, simulate_cohort

CLINICAL = clinical_schema((0.0, 0.05, 0.3), (0.0, 500.0))
SCORE = CLINICAL.scores[0]
HEALTHY = {
    **{"FiO2": 21.0, "PaO2": 95.0, "platelets": 250.0, "bilirubin": 0.7, "GCS": 15.0, "MAP": 80.0},
    **{"creatinine": 0.9, "urine": 400.0, "SOFA": 0.0},
}


def course(
    rows: list[dict[str, float]],
    *,
    ventilation: float = 0.0,
    actions: list[int] | None = None,
    schema: Schema = CLINICAL,
) -> ScoredCourse:
    """A course of these values; what a row leaves out is healthy."""
    states = np.array([[{**HEALTHY, **row}[feature.name] for feature in schema.dynamic] for row in rows])
    context = np.array(
        [[{"ventilation": ventilation}.get(feature.name, 0.0) for feature in schema.context]] * len(rows)
    )
    return ScoredCourse(states, context, np.array(actions or [0] * len(rows)))


def points(*rows: dict[str, float], **settings: object) -> list[dict[str, int]]:
    found = organ_points(SCORE, CLINICAL, course(list(rows), **settings))
    return [dict(zip(SCORE.organs, row, strict=True)) for row in found.tolist()]


def test_a_hand_computed_stay() -> None:
    """Ventilated, PaO2/FiO2 = 150: 3; platelets 90: 2; bilirubin 2.5: 2; norepinephrine 0.3: 4; GCS 9: 3; creatinine
    2.4: 2; together 16."""
    ill = {"FiO2": 60.0, "PaO2": 90.0, "platelets": 90.0, "bilirubin": 2.5, "GCS": 9.0, "MAP": 62.0, "creatinine": 2.4}
    dosed = CLINICAL.actions.vectors.index((0.3, 0.0))
    (found,) = points(ill, ventilation=1.0, actions=[dosed])
    assert found == {
        **{"respiration": 3, "coagulation": 2, "liver": 2},
        **{"cardiovascular": 4, "nervous": 3, "renal": 2},
    }
    (without,) = points(ill, ventilation=0.0)
    assert (without["respiration"], without["cardiovascular"]) == (2, 1), (
        "no ventilator, no vasopressor: pressure counts"
    )
    assert set(points({})[0].values()) == {0}


def test_doses_are_those_of_the_course_itself() -> None:
    """States [2, T, D] and actions [2, T] of two courses at once: only the second has vasopressors, at step 1."""
    low, high = (CLINICAL.actions.vectors.index((dose, 0.0)) for dose in (0.05, 0.3))
    one = course([{"MAP": 60.0}] * 3)
    both = ScoredCourse(np.stack([one.states] * 2), one.context, np.array([[0, 0, 0], [0, high, low]]))
    found = organ_points(SCORE, CLINICAL, both)
    assert found.shape == (2, 3, 6)
    assert found[..., SCORE.organs.index("cardiovascular")].tolist() == [[1, 1, 1], [1, 4, 3]]


def test_urine_counts_once_a_day_is_known() -> None:
    rows = [{"urine": 100.0}] * 6 + [{"urine": 0.0}] * 6
    found = [step["renal"] for step in points(*rows)]
    assert found == [0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 4, 4], "600 mL after a day, then 500, 400, 300, 200, 100, 0"


def test_urine_of_a_day_needs_a_known_length_of_steps() -> None:
    amounts = np.full(30, 10.0)
    assert np.isnan(over_a_day(amounts, np.nan)).all()
    assert np.isnan(over_a_day(amounts, 5.0)).all(), "a day is no whole number of such steps"
    assert over_a_day(amounts, 1.0)[23] == 240.0
    assert np.isnan(over_a_day(amounts, 1.0)[:23]).all()
    assert np.isnan(over_a_day(amounts[:5], 4.0)).all(), "shorter than a day"


@pytest.mark.parametrize("seed", range(5))
def test_points_are_those_of_a_slow_calculation(seed: int) -> None:
    """Random stays, many values exactly on thresholds."""
    generator = np.random.default_rng(seed)
    edges = {
        **{"FiO2": (21.0, 40.0, 50.0, 100.0), "PaO2": (40.0, 80.0, 84.0, 100.0, 160.0, 200.0, 300.0)},
        **{"platelets": (20.0, 50.0, 100.0, 150.0), "bilirubin": (1.2, 2.0, 6.0, 12.0), "GCS": (6.0, 10.0, 13.0, 15.0)},
        **{"MAP": (70.0,), "creatinine": (1.2, 2.0, 3.5, 5.0), "urine": (0.0, 30.0, 50.0, 80.0, 100.0)},
    }
    vectors = np.array(CLINICAL.actions.vectors)
    for _ in range(40):
        length = int(generator.integers(2, 15))
        rows = [
            {
                name: float(generator.choice(values) + generator.choice([-0.4, 0.0, 0.4]))
                for name, values in edges.items()
            }
            for _ in range(length)
        ]
        actions = generator.integers(0, len(vectors), length).tolist()
        ventilation = float(generator.integers(0, 2))
        told = [
            {**row, "ventilation": ventilation, "vasopressors": vectors[action, 0]}
            for row, action in zip(rows, actions, strict=True)
        ]
        assert points(*rows, ventilation=ventilation, actions=actions) == slow_sofa(told)


def test_coma_scales_are_whole_numbers_and_rounding_crosses_no_threshold() -> None:
    found = points({"GCS": 14.6}, {"GCS": 14.4}, {"creatinine": 1.2 - 1e-12}, {"platelets": 150 - 1e-12})
    assert [sum(step.values()) for step in found] == [0, 1, 1, 0]


def test_what_nobody_measured_scores_nothing() -> None:
    ill = course([{"GCS": 3.0, "platelets": 10.0, "urine": 0.0}] * 6)
    unknown = np.zeros(ill.states.shape, dtype=bool)
    coma, urine = CLINICAL.dynamic_index("GCS"), CLINICAL.dynamic_index("urine")
    unknown[2:, coma] = True
    unknown[:5, urine] = True  # one of the day's steps was charted: the others count as none
    found = organ_points(SCORE, CLINICAL, dataclasses.replace(ill, unknown=unknown))
    assert found[:, SCORE.organs.index("nervous")].tolist() == [4, 4, 0, 0, 0, 0]
    assert found[:, SCORE.organs.index("renal")].tolist() == [0, 0, 0, 0, 0, 4]
    unknown[:, urine] = True
    found = organ_points(SCORE, CLINICAL, dataclasses.replace(ill, unknown=unknown))
    assert not found[:, SCORE.organs.index("renal")].any()


def test_values_that_are_not_finite_score_without_a_warning() -> None:
    for value in (np.nan, np.inf, -np.inf, 1e308):
        found = organ_points(SCORE, CLINICAL, course([dict.fromkeys(HEALTHY, value)] * 8))
        assert ((found >= 0) & (found <= 4)).all()
    assert not organ_points(SCORE, CLINICAL, course([dict.fromkeys(HEALTHY, np.nan)])).any()


def scored_schema(score: Score, *features: Feature, actions: ActionSpace | None = None) -> Schema:
    space = actions or ActionSpace.categories(["wait", "treat"])
    return Schema((Feature("severity", "dynamic"), *features), space, 6.0, "h", scores=(score,))


def test_other_units_are_converted() -> None:
    score = Score("severity", {name: name for name in ("PaO2", "FiO2", "creatinine", "bilirubin", "urine")})
    schema = scored_schema(
        score,
        Feature("PaO2", "dynamic", unit="kPa"),
        Feature("FiO2", "dynamic", unit="fraction"),
        Feature("creatinine", "dynamic", unit="umol/L"),
        Feature("bilirubin", "dynamic", unit="umol/L"),
        Feature("urine", "dynamic", unit="mL/6 h"),
    )
    states = np.array([[0.0, 13.3, 0.5, 177.0, 35.0, 30.0]] * 4)  # 100 mmHg at 50 %, 2.0 and 2.05 mg/dL
    found = organ_points(score, schema, ScoredCourse(states, np.zeros((4, 0)), np.zeros(4, dtype=np.int64)))
    assert score.organs == ("respiration", "liver", "renal")
    assert found.tolist() == [[2, 2, 2], [2, 2, 2], [2, 2, 2], [2, 2, 4]]


def test_organs_without_values_are_left_out() -> None:
    score = Score("severity", {"MAP": "pressure", "FiO2": "oxygen"})
    assert score.organs == ("cardiovascular",), "FiO2 alone tells nothing"
    assert set(score.left_out) == set(SOFA.inputs) - {"MAP", "FiO2"}


PRESSURE = Feature("pressure", "dynamic", unit="mmHg")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Score("severity", {}), "no organ can be scored"),
        (lambda: Score("severity", {"MAPP": "pressure"}), "unknown input 'MAPP'.*Did you mean 'MAP'"),
        (lambda: Score("severity", {"MAP": 3}), "must be text"),
        (lambda: Score("severity", ["MAP"]), "expected a mapping"),
        (lambda: Score("severity", {"MAP": "pressure"}, table="APACHE"), "'APACHE' is unknown"),
        (lambda: scored_schema(Score("none", {"MAP": "pressure"}), PRESSURE), "'none' is not a dynamic feature"),
        (lambda: scored_schema(Score("severity", {"MAP": "presure"}), PRESSURE), "no feature and no dose axis"),
        (lambda: scored_schema(Score("severity", {"MAP": "p"}), Feature("p", "dynamic", unit="kPa")), "unit 'kPa'"),
        (
            lambda: scored_schema(
                Score("severity", {"MAP": "pressure"}),
                PRESSURE,
                actions=ActionSpace.product(Axis("pressure", "", (0, 1))),
            ),
            "both a feature and a dose axis",
        ),
        (lambda: dataclasses.replace(CLINICAL, scores=(SCORE, SCORE)), "listed more than once"),
        (lambda: Schema.from_dict({**CLINICAL.to_dict(), "scores": [{"feature": "SOFA"}]}), "missing 'inputs'"),
        (lambda: Schema.from_dict({**CLINICAL.to_dict(), "scores": {}}), "must be a list"),
    ],
)
def test_scores_that_make_no_sense_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_schemas_keep_scores_and_models_do_not_depend_on_them(tmp_path: Path) -> None:
    plain = dataclasses.replace(CLINICAL, scores=())
    assert "scores" not in plain.to_dict()
    assert Schema.from_dict(plain.to_dict()).scores == ()
    assert CLINICAL.fingerprint == plain.fingerprint
    plain.require_same(CLINICAL, here="old", there="new")
    assert hash(CLINICAL) is not None
    for name in ("schema.yaml", "schema.json"):
        save_schema(CLINICAL, tmp_path / name)
        assert load_schema(tmp_path / name) == CLINICAL
    assert (
        yaml.safe_load((tmp_path / "schema.yaml").read_text())["scores"][0]["inputs"]["vasopressors"] == "vasopressors"
    )


def test_fingerprints_are_those_of_schemas_without_scores() -> None:
    """Models and cohorts that are stored already keep theirs."""
    assert sepsis_schema().fingerprint == "d76a03e0f51f16e3"


def test_simulated_stays_have_scores_too() -> None:
    cohort = simulate_cohort(3, seed=1)
    assert cohort.schema.scores == clinical_schema((0.0,), (0.0,)).scores
    found = organ_points(
        cohort.schema.scores[0], cohort.schema, ScoredCourse(cohort.states, cohort.context, cohort.actions)
    )
    assert found.shape == (len(cohort.states), 6)
