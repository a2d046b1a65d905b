"""How much of claimed effects is found again: by data of a known model, and by one that claims twice as much."""

import numpy as np
import pytest
from paper.effect_slope import _slope, effect_slope
from paper.worlds import PLAIN, WORLDS

from ifonly import BehaviourSettings, fit_behaviour


def test_the_slope_is_what_was_drawn() -> None:
    rng = np.random.default_rng(0)
    claimed, usual = rng.normal(size=(2, 400, 5))
    found = _slope(claimed, usual, 0.5 * claimed + 2 * usual + 3 + rng.normal(size=(400, 5)))
    assert found is not None
    assert found.error == pytest.approx(1 / np.sqrt(2000), rel=0.1)
    assert abs(found.slope - 0.5) < 4 * found.error
    assert _slope(np.zeros((4, 5)), usual[:4], usual[:4]) is None, "nothing was claimed"


def test_the_world_itself_is_found_again() -> None:
    world = WORLDS["sepsis"]
    cohort = world.record(120, 0).cohort(PLAIN, "linear")
    behaviour = fit_behaviour(cohort, settings=BehaviourSettings(hidden=(), epochs=3))
    weights = np.array([-world.penalties.get(feature.name, 0.0) for feature in cohort.schema.dynamic])
    found = effect_slope(world.truth.for_search(), behaviour, cohort, weights)
    assert found is not None
    assert 0 < found.error < 0.3
    assert abs(found.slope - 1) < 3 * found.error
