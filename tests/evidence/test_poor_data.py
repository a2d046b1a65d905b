"""What is said of answers where there is hardly anything to learn from: clear statements, never a crash."""

import json

import numpy as np
import pytest

from ifonly.data import ActionSpace, Feature, Schema
from ifonly.data.cohort import Cohort
from ifonly.errors import InputError
from ifonly.evidence import examine
from ifonly.evidence.behaviour import BehaviourSettings, fit_behaviour
from ifonly.evidence.check.check import check_model
from ifonly.models import LocationScale
from ifonly.models.ensemble import Ensemble
from ifonly.models.fit_ensemble import fit_ensemble
from ifonly.problem import EnsembleProblem, Problem
from ifonly.query import Query
from ifonly.records import to_plain
from ifonly.result import WarningCode
from ifonly.rewards import minus
from ifonly.search.solve import solve
from ifonly.text.evidence import lines_of, messages_of

STEPS = 5
SCHEMA = Schema(
    (Feature("score", "dynamic"), Feature("constant", "dynamic")),
    ActionSpace.categories(["nothing", "something", "never taken"]),
    step_length=4,
    step_unit="h",
)


def poor_cohort(subjects: int) -> Cohort:
    """One feature never varies, one action is never taken."""
    rng = np.random.default_rng(0)
    count = subjects * STEPS
    return Cohort(
        schema=SCHEMA,
        ids=tuple(f"e{number}" for number in range(subjects)),
        offsets=np.arange(subjects + 1) * STEPS,
        states=np.column_stack([rng.normal(5.0, 1.0, size=count), np.full(count, 3.0)]),
        context=np.empty((count, 0)),
        actions=rng.integers(2, size=count),
        subjects=tuple(f"s{number}" for number in range(subjects)),
    )


def model() -> LocationScale:
    return LocationScale(SCHEMA, hidden=(4,), lipschitz=(1.0, 0.1))


@pytest.fixture(scope="module")
def ensemble() -> Ensemble:
    return fit_ensemble(model(), poor_cohort(5), members=2, epochs=2)


@pytest.mark.parametrize("together", [False, True])
def test_poor_data_are_pointed_out(ensemble: Ensemble, together: bool) -> None:
    cohort = poor_cohort(5)
    kind = EnsembleProblem if together else Problem
    problem = kind.from_episode(cohort[0], ensemble, Query(minus("score"), 2))
    behaviour = fit_behaviour(cohort, settings=BehaviourSettings(hidden=(), epochs=1))
    actions = cohort[0].actions.copy()
    actions[1] = 2
    found = examine(problem, actions, behaviour=behaviour, each_refit=True, sensitivity=True)
    told = "\n".join(lines_of(found, SCHEMA, problem.query))
    assert "at hour 4 this action is one that nobody in the data ever chose" in told
    assert " of 2 refits agree" in told.splitlines()[0]
    assert WarningCode.BEYOND_DATA in [warning.code for warning in found.warnings]
    if not together:  # an ensemble problem knows members, not the ensemble that they come from
        assert "note: There are only 5 subjects" in told
        assert "Never taken in the cohort: never taken" in told
        assert "Constant in the whole cohort: constant" in told
    json.dumps(to_plain(found), allow_nan=False)


def test_a_model_that_cannot_be_judged_says_so_first(ensemble: Ensemble) -> None:
    cohort = poor_cohort(5)
    asked = Ensemble(ensemble.members, centre=ensemble.centre)
    verdict = check_model(asked, cohort).standing.verdict
    problem = Problem.from_episode(cohort[0], asked, Query(minus("score"), 1, allow_failed_model=True))
    told = messages_of(examine(problem, solve(problem)), SCHEMA, problem.query)
    assert verdict == "not judged"
    assert str(told.statement).startswith("Uncertain: the model could not be judged. Model check: not judged")
    assert str(told.warnings[0]) == "the model could not be judged: too few subjects to tell chance from error"


def test_one_subject_is_too_few_to_refit() -> None:
    with pytest.raises(InputError, match="only one subject"):
        fit_ensemble(model(), poor_cohort(1), members=2, epochs=1)
