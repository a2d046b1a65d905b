"""Noise of several features that goes together, with heavy tails: courses of several steps show who knows of it."""

import numpy as np
import torch

from ifonly import ActionSpace, Cohort, Feature, FitSettings, Schema
from ifonly.evidence.check.check import check_model
from ifonly.evidence.check.model_check import Level
from ifonly.evidence.recipes import fit_recipe
from ifonly.models.noise import StudentMargins
from ifonly.models.recipes import RECIPES, Recipe

SCHEMA = Schema(
    (Feature("inflow", "dynamic", unit="m3"), Feature("level", "dynamic", unit="m")),
    ActionSpace.categories(["open", "shut"]),
)
STEPS = 10


def record(subjects: int, seed: int) -> Cohort:
    """What is surprisingly high in one feature is low in the other, and both add up over the steps."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(2, size=(subjects, STEPS))
    states = np.zeros((subjects, STEPS, 2))
    states[:, 0] = rng.normal(size=(subjects, 2))
    for t in range(STEPS - 1):
        common = rng.normal(size=(subjects, 1))
        scores = common * [0.95, -0.95] + 0.31 * rng.normal(size=(subjects, 2))
        noise = scores / np.sqrt(rng.gamma(2, 0.5, size=(subjects, 2)))  # Student's t, four degrees of freedom
        inflow, level = states[:, t].T
        states[:, t + 1, 0] = 0.9 * inflow - 0.3 * actions[:, t] + 0.3 * noise[:, 0]
        states[:, t + 1, 1] = 0.9 * level + 0.8 * inflow + 0.3 * noise[:, 1]
    ids = tuple(f"basin {number}" for number in range(subjects))
    offsets = np.arange(subjects + 1) * STEPS
    return Cohort(SCHEMA, ids, offsets, states.reshape(-1, 2), np.empty((subjects * STEPS, 0)), actions.ravel())


def test_recipes_with_tails_know_how_noise_goes_together() -> None:
    train, held_out = record(200, seed=0), record(200, seed=1)
    recipe = Recipe("one", residual="diagonal", prior=RECIPES["residual-tails"].prior, strengths=(0.1,))
    model = fit_recipe(train, recipes=[recipe], hidden=(8,), settings=FitSettings.thorough(train, epochs=8))
    prior = model.prior
    assert isinstance(prior, StudentMargins)
    assert float((prior.factor() @ prior.factor().mT)[0, 1].detach()) < -0.7
    right = check_model(model, held_out)
    assert {finding.kind: finding.level for finding in right.findings}["noise_together"] is Level.PASS
    assert {finding.kind: finding.level for finding in right.findings}["coverage_ahead"] is Level.PASS
    with torch.no_grad():
        prior.lower.zero_()
    apart = check_model(model, held_out)
    found = {finding.kind: finding for finding in apart.concerns()}
    assert {"noise_together", "coverage_ahead"} <= set(found)
    assert found["coverage_ahead"].cause == "apart", "the cause is not that errors add up"
    density = [check.figures.log_likelihood for check in (right, apart)]
    assert density[0] > density[1] + 0.3, "nats a transition"
