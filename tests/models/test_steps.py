"""Values recorded in steps: densities are those of places within their cells, so that none grows without limit."""

import numpy as np
import pytest
import torch

from ifonly import ActionSpace, Cohort, Feature, FitSettings, Schema, check_model, simulate
from ifonly.data.scaling import Scaler
from ifonly.evidence.check.model_check import Level
from ifonly.models.fit import EncodedTransitions, fit, fresh_copy
from ifonly.models.recipes import RECIPES
from ifonly.models.steps import SPREAD, recorded_steps, spread_over_cells

STEP = 5.0
SCHEMA = Schema(
    (
        Feature("setting", "dynamic", unit="%", scaling="bounded", plausible=(20.0, 100.0)),
        Feature("sold", "dynamic", unit="1", scaling="log", log_offset=1.0, plausible=(0.0, 100.0)),
        Feature("level", "dynamic", unit="m"),
    ),
    ActionSpace.categories(["wait", "act"]),
)


def held_settings(subjects: int, seed: int, steps: int = 12) -> Cohort:
    """A setting that three times in four stays as it was, counts that are often zero, and a level like any other."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(2, size=(subjects, steps))
    setting, level = 5.0 * rng.integers(6, 16, size=subjects), rng.normal(size=subjects)
    states = []
    for t in range(steps):
        sold = rng.poisson(0.7 * np.exp(0.3 * level))
        states.append(np.column_stack([setting, sold, level]))
        jumps = STEP * rng.integers(-3, 4, size=subjects) * (rng.random(subjects) < 0.3)
        setting = np.clip(setting + jumps, 20.0, 100.0)
        level = 0.8 * level + actions[:, t] + 0.5 * rng.normal(size=subjects)
    ids = tuple(f"episode {number}" for number in range(subjects))
    table = np.stack(states, axis=1).reshape(-1, 3)
    offsets = np.arange(subjects + 1) * steps
    return Cohort(SCHEMA, ids, offsets, table, np.empty((len(table), 0)), actions.ravel())


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return held_settings(150, seed=1)


def encoded(cohort: Cohort) -> tuple:
    model = fresh_copy(RECIPES["residual"].untrained(cohort.schema, (8,)), Scaler.fit(cohort), torch.Generator())
    model = model.double()
    return model, EncodedTransitions.of(model, cohort)


def test_places_lie_about_recorded_values_and_within_scales(cohort: Cohort) -> None:
    model, rows = encoded(cohort)
    spread = spread_over_cells(model, rows)
    steps = recorded_steps(model, rows)
    assert steps.tolist() == pytest.approx([STEP, 1.0, 0.0])
    assert bool(torch.isfinite(spread.next_states).all())
    assert torch.equal(spread.next_states[:, 2], rows.next_states[:, 2])
    assert torch.equal(spread.states, rows.states), "what is known before stays as it was recorded"
    columns, recorded = model.scaler.states, cohort.transitions().next_states
    places = columns.decode(spread.next_states)  # shown within ranges
    off = np.abs(places - recorded)[:, :2] / steps[:2]
    assert off.max() <= SPREAD + 1e-9
    assert off.max() > 0.9 * SPREAD
    inside = (recorded[:, 0] > 30) & (recorded[:, 0] < 90)
    assert abs((places - recorded)[inside, 0].mean()) < 0.1 * STEP
    again = spread_over_cells(model, rows)
    assert torch.equal(again.next_states, spread.next_states)


def test_nothing_is_moved_where_values_hardly_repeat() -> None:
    model, rows = encoded(simulate.simulate_cohort(20, seed=0))
    assert spread_over_cells(model, rows) is rows


def test_a_fit_of_values_that_repeat_passes_its_check(cohort: Cohort) -> None:
    settings = FitSettings.thorough(cohort, epochs=25, density="margins")
    model = fit(RECIPES["residual-tails"].untrained(SCHEMA, (16,)), cohort, settings=settings)
    check = check_model(model, held_settings(100, seed=2))
    assert check.verdict is not Level.FAIL, [(one.kind, one.level.value) for one in check.concerns()]
    held = {feature.name: feature.unchanged for feature in check.figures.features}
    assert held["setting"] > 0.7
    assert held["sold"] < 0.3, "nothing sold after nothing sold was not carried forward"
