from dataclasses import asdict

import numpy as np
import pytest

from ifonly.data import ActionSpace, Cohort, Feature, Schema
from ifonly.report.overview import Overview
from ifonly.simulate import simulate_cohort

SECRET = 4711.75


def made_cohort(subjects, *, odd=0, length=4):
    """One episode per subject; the first `odd` of them have secret values, a secret action and a secret length."""
    rng = np.random.default_rng(0)
    lengths = [length + 13 if subject < odd else length for subject in range(subjects)]
    of_row = np.repeat(np.arange(subjects), lengths)
    secret = of_row < odd
    schema = Schema(
        (Feature("size", "static", unit="m"), Feature("heat", "dynamic", unit="C"), Feature("sun", "contextual")),
        ActionSpace.categories(["wait", "act", "never"]),
    )
    size = rng.normal(5, 1, subjects)[of_row]
    return Cohort(
        schema=schema,
        ids=tuple(f"e{i}" for i in range(subjects)),
        offsets=np.cumsum([0, *lengths]),
        states=np.where(secret, SECRET, rng.normal(20, 2, len(of_row)))[:, None],
        context=np.stack([np.where(secret, SECRET, size), np.where(secret, -SECRET, size)], axis=1),
        actions=secret.astype(int),
    )


def test_figures_are_those_of_the_cohort():
    cohort = simulate_cohort(150, seed=4, horizon=(6, 9))
    found = Overview.of(cohort, smallest_cell=1)
    assert (found.episodes, found.subjects, found.steps) == (150, len(set(cohort.subjects)), len(cohort.actions))
    assert found.action_counts == tuple(np.bincount(cohort.actions, minlength=25))
    assert (found.shortest, found.longest) == (6, 9)
    features = {feature.name: feature for feature in found.features}
    sofa = cohort.states[:, cohort.schema.dynamic_index("SOFA")]
    assert (features["SOFA"].low, features["SOFA"].high) == tuple(np.quantile(sofa, [0.01, 0.99]))
    assert (features["SOFA"].mean, features["SOFA"].deviation) == (sofa.mean(), sofa.std())
    age = cohort.context[cohort.offsets[:-1], [f.name for f in cohort.schema.context].index("age")]
    assert features["age"].mean == age.mean()
    assert "fewer than" not in str(found)


@pytest.mark.parametrize(("odd", "shown"), [(0, False), (1, False), (4, False), (5, True)])
def test_values_that_few_subjects_have_are_not_shown(odd, shown):
    found = Overview.of(made_cohort(60, odd=odd))
    assert ("4712" in str(found)) is shown
    assert (str(SECRET) in str(asdict(found))) is shown
    assert (found.longest == 17) is shown
    assert found.action_counts[1:] == (17 * odd if shown else None if odd else 0, 0)
    assert "- stands for figures that rest on fewer than 5 subjects" in str(found)
    assert f"{2 if odd else 1} of 3 actions used" in str(found)


@pytest.mark.parametrize("subjects", [1, 4, 5])
def test_of_fewer_than_five_subjects_nothing_is_shown(subjects):
    found = Overview.of(made_cohort(subjects))
    figures = [getattr(f, name) for f in found.features for name in ("mean", "deviation", "low", "high")]
    if subjects < 5:
        assert set(figures) == {None}
        assert found.action_counts == (None, 0, 0)
    else:
        assert all(feature.mean is not None for feature in found.features)


def test_steps_of_one_subject_are_one_subject():
    """Many episodes of few people are still few people."""
    cohort = made_cohort(60)
    owned = Cohort(
        cohort.schema,
        cohort.ids,
        cohort.offsets,
        cohort.states,
        cohort.context,
        cohort.actions,
        subjects=tuple(f"s{i % 3}" for i in range(60)),
    )
    assert all(feature.mean is None for feature in Overview.of(owned).features)
