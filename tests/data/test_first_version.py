"""Folders that the package's first version wrote, of simulated patients, are still read, and still answer."""

from pathlib import Path

import numpy as np
import pytest

import ifonly
from ifonly.data import Schema

FIRST = Path(__file__).parent / "first_version"


@pytest.fixture(scope="module")
def cohort() -> ifonly.Cohort:
    return ifonly.load(FIRST / "cohort")


def test_a_cohort_and_its_schema(cohort: ifonly.Cohort) -> None:
    """What later versions know is left open: origins, scores, margins, doses that can be."""
    assert (len(cohort), len(cohort.actions)) == (6, 24)
    assert (cohort.origins, cohort.schema.scores) == (None, ())
    assert {feature.scaling for feature in cohort.schema.dynamic} == {"linear", "log"}
    assert {feature.margin for feature in cohort.schema.features} == {None}
    assert Schema.from_dict(cohort.schema.to_dict()) == cohort.schema
    assert np.isfinite(cohort.states).all()


def test_a_model_answers(cohort: ifonly.Cohort) -> None:
    model = ifonly.load_model(FIRST / "model", schema=cohort.schema)
    assert model.fit_report is not None
    assert model.fit_report.settings.schedule == "constant"
    problem = ifonly.Problem.from_episode(cohort[0], model, ifonly.Query(ifonly.minus("SOFA"), 1))
    result, truth = ifonly.solve(problem), ifonly.solve(problem, ifonly.Exhaustive())
    assert result.outcome == pytest.approx(truth.outcome)
    assert result.status is ifonly.Status.OPTIMAL
