"""Residual locations, curvature penalties, heavy tails and entries that were not measured, in every network model."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from effort import some

from ifonly import fit, fit_ensemble, solve
from ifonly.bounds.taylor import TaylorChildBound, can_expand
from ifonly.data import ActionSpace, Cohort, Feature, Schema
from ifonly.models import Additive, LocationScale, MonotoneFlow, PostNonlinear
from ifonly.models.fit import EncodedTransitions, FitSettings, objective
from ifonly.models.noise import PRIORS, make_prior
from ifonly.models.smooth import Part
from ifonly.problem import Problem
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.exhaustive import Exhaustive
from ifonly.testing import check_child_bound, check_transition_model
from ifonly.testing.instances import MODEL_KINDS, RandomProblemSettings, random_model, random_problem

SCHEMA = Schema((Feature("x", "dynamic"), Feature("y", "dynamic")), ActionSpace.categories(["wait", "treat"]))
CLASSES = (LocationScale, Additive, PostNonlinear, MonotoneFlow)


def drifting_cohort(count: int = 60, *, seed: int = 0, carried: float = 0.0) -> Cohort:
    """x and y stay where they are but for small noise and treatment; a share of x is carried forward."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(2, size=(count, 10))
    steps = 0.1 * rng.standard_normal((count, 10, 2)) + 0.3 * (actions[..., None] - 0.5)
    states = 3 * rng.standard_normal((count, 1, 2)) + np.cumsum(steps, axis=1)
    origins = np.zeros(states.shape, dtype=np.uint8)
    if carried:
        origins[:, 1:, 0] = rng.random((count, 9)) < carried
        for t in range(1, 10):
            states[:, t, 0] = np.where(origins[:, t, 0] == 1, states[:, t - 1, 0], states[:, t, 0])
    return Cohort(
        SCHEMA,
        ids=tuple(f"e{i}" for i in range(count)),
        offsets=np.arange(count + 1) * 10,
        states=states.reshape(-1, 2),
        context=np.empty((count * 10, 0)),
        actions=actions.reshape(-1),
        origins=origins.reshape(-1, 2),
    )


@pytest.mark.parametrize("kind", [kind for kind in MODEL_KINDS if kind != "linear"])
def test_residual_models_keep_the_contract(kind: str) -> None:
    problem = random_problem(3, model_kind=kind, residual=None)
    settings = RandomProblemSettings(model_kind=kind, residual=None)
    for seed in range(3):
        check_transition_model(random_model(problem.episode.schema, np.random.default_rng(seed), settings))


@pytest.mark.parametrize("model_class", CLASSES)
def test_a_network_that_says_nothing_leaves_the_state_as_it_is(model_class: type[LocationScale]) -> None:
    model = model_class(SCHEMA, hidden=(4,), residual="identity").double()
    with torch.no_grad():
        for parameter in model.location.parameters():
            parameter.zero_()
    states = torch.randn(5, 2, dtype=torch.float64)
    nothing, no_noise = torch.zeros(5, 0, dtype=torch.float64), torch.zeros(5, 2, dtype=torch.float64)
    noise = model.abduct(states, nothing, torch.zeros(5, dtype=torch.int64), states)
    torch.testing.assert_close(model.step(states, nothing, torch.zeros(5, dtype=torch.int64), noise), states)
    if model_class is not MonotoneFlow:
        torch.testing.assert_close(noise, no_noise)
    assert model.settings()["residual"] == "identity"
    assert "residual" not in model_class(SCHEMA, hidden=(4,)).settings()


def test_the_bound_takes_the_linear_part_exactly() -> None:
    """With an identity and next to no network, remainders vanish: the bound of one change is the change's outcome."""
    problem = random_problem(
        0, model_kind="additive", residual="identity", reward_kind="linear", strength=1e-3, constrained=False
    )
    if not can_expand(problem):
        pytest.skip("an activation with a kink was drawn")
    single = TaylorChildBound([problem.with_max_changes(1)]).root()[0, 0]
    for step, action in itertools.product(range(problem.horizon), range(problem.action_count)):
        sequence = problem.observed_actions.clone()
        sequence[step] = action
        if action != problem.observed_actions[step] and problem.allowed[step, action]:
            outcome = float(problem.rollout(sequence[None])[1][0])
            assert outcome <= float(single[step, action]) <= outcome + 1e-4 * (1 + abs(outcome))


def test_branch_and_bound_equals_enumeration() -> None:
    """Hundreds in the long run; what was measured is carried along, and changes no answer."""
    checked = 0
    for seed in range(some(240, one_in=16)):
        problem = random_problem(seed, residual=None, max_changes=3, rules=(False, None)[seed % 2])
        origins = np.random.default_rng(seed).integers(3, size=problem.episode.states.shape, dtype=np.uint8)
        masked = Problem.from_episode(replace(problem.episode, origins=origins), problem.model, problem.query)
        found, truth = solve(masked, solver=BranchAndBound()), solve(problem, solver=Exhaustive())
        assert found.outcome == pytest.approx(truth.outcome, rel=1e-9, abs=2 * problem.tolerance), seed
        if can_expand(problem) and seed % 3 == 0:
            check_child_bound(TaylorChildBound([problem]), [problem])
            checked += 1
    assert checked >= some(16, one_in=16)


@pytest.mark.parametrize("hidden", [(8,), (8, 6)])
def test_the_penalty_is_above_the_third_derivative_that_the_bound_uses(hidden: tuple[int, ...]) -> None:
    model = Additive(SCHEMA, hidden=hidden).double()
    model.initialize(torch.Generator().manual_seed(1))
    searched = model.for_search()
    part = Part.of_network(searched.location, searched.action_vectors, "tanh")
    assert part is not None
    bend = float(model.curvature().detach())
    if len(hidden) == 1:
        assert bend * 2.0 >= float(torch.trace(part.third_form))
    assert bend * 4.1 >= part.derivative_bounds[2]
    model.curvature().backward()
    assert model.location.state.raw.grad is not None


@pytest.mark.parametrize("lipschitz", [None, 1.0])
def test_a_stronger_penalty_bends_less_and_ensembles_feel_it_alike(lipschitz: float | None) -> None:
    cohort = drifting_cohort()
    model = Additive(SCHEMA, hidden=(16,), lipschitz=lipschitz, residual="diagonal", prior="student")
    bends = []
    for strength in (0.0, 0.3, 30.0):
        settings = FitSettings(epochs=4, curvature=strength)
        alone = fit(model, cohort, settings=settings)
        together = fit_ensemble(model, cohort, members=1, settings=settings)
        torch.testing.assert_close(
            together.centre.curvature().detach(), alone.curvature().detach(), rtol=1e-3, atol=1e-5
        )
        bends.append(float(alone.curvature().detach()))
    assert bends[0] > bends[1] > bends[2]


def test_residuals_fit_what_persists() -> None:
    """One step ahead, an untrained identity is already near; the plain network has to learn it."""
    cohort = drifting_cohort()
    settings = FitSettings(epochs=3)
    losses = {
        residual: fit(LocationScale(SCHEMA, hidden=(16,), residual=residual), cohort, settings=settings)  # type: ignore[arg-type]
        for residual in ("none", "identity", "diagonal")
    }
    final = {name: model.fit_report.validation_loss[-1] for name, model in losses.items() if model.fit_report}
    assert max(final["identity"], final["diagonal"]) < final["none"] - 0.5


@pytest.mark.parametrize("name", PRIORS)
def test_marginals_are_those_of_the_joint_density(name: str) -> None:
    """Integrated over the entry that was not measured, on a grid; all measured, the density itself."""
    prior = make_prior(name, 2).double()
    with torch.no_grad():
        for parameter in prior.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    noise = torch.tensor([[0.3, -0.7], [1.5, 0.2]], dtype=torch.float64)
    grid = torch.linspace(-400, 400, 400_001, dtype=torch.float64)
    with torch.no_grad():
        full = prior.marginal_log_prob(noise, torch.ones(2, 2, dtype=torch.bool))
        torch.testing.assert_close(full, prior.log_prob(noise))
        measured = torch.tensor([[True, False], [True, False]])
        for row, marginal in zip(noise, prior.marginal_log_prob(noise, measured), strict=True):
            joint = prior.log_prob(torch.stack([row[0].expand_as(grid), grid], dim=1)).exp()
            assert float(torch.trapezoid(joint, grid).log()) == pytest.approx(float(marginal), abs=1e-4)


def test_students_tail_is_its_covariance_and_its_draws_are_finite() -> None:
    prior = make_prior("student", 3).double()
    prior.initialize()
    draws = prior.sample((200_000,), generator=torch.Generator().manual_seed(0))
    assert torch.isfinite(draws).all()
    torch.testing.assert_close(draws.T.cov(), prior.covariance().detach(), rtol=0.05, atol=0.02)
    gaussian = -0.5 * 36 - 0.5 * math.log(2 * math.pi)
    assert float(prior.entry_log_prob(torch.full((3,), 6.0, dtype=torch.float64)).detach()[0]) > gaussian + 5


@pytest.mark.parametrize("prior", PRIORS)
def test_what_was_not_measured_has_no_part_in_the_fit(prior: str) -> None:
    """Nine tenths of x are carried forward: a fit to all of it takes its noise for tiny."""
    cohort = drifting_cohort(120, carried=0.9)
    everything = Cohort(
        SCHEMA, cohort.ids, cohort.offsets, cohort.states, cohort.context, cohort.actions, cohort.subjects
    )
    model, settings = (
        Additive(SCHEMA, hidden=(8,), residual="identity", prior=prior),
        FitSettings(epochs=20, learning_rate=0.03),
    )
    honest, fooled = (fit(model, one, settings=settings) for one in (cohort, everything))
    deviations = [float(one.prior.covariance().detach()[0, 0].sqrt()) for one in (honest, fooled)]
    assert deviations[0] > 1.1 * deviations[1]
    together = fit_ensemble(model, cohort, members=1, settings=settings)
    assert float(together.centre.prior.covariance().detach()[0, 0].sqrt()) == pytest.approx(deviations[0], rel=1e-2)


@pytest.mark.parametrize("density", ["joint", "margins"])
@pytest.mark.parametrize("prior", PRIORS)
def test_values_that_were_not_measured_change_no_density(prior: str, density: str) -> None:
    cohort = drifting_cohort(20, carried=0.5)
    model = LocationScale(SCHEMA, hidden=(8,), prior=prior)
    rows = EncodedTransitions.of(model, cohort)
    assert rows.measured is not None
    other = rows._replace(next_states=torch.where(rows.measured, rows.next_states, rows.next_states + 7.0))
    settings = FitSettings(density=density)  # type: ignore[arg-type]
    with torch.no_grad():
        torch.testing.assert_close(objective(model, other, settings), objective(model, rows, settings))
        everything = objective(model, other._replace(measured=None), settings)
    assert not torch.allclose(everything, objective(model, rows, settings).detach())
