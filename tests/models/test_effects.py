"""Subject effects: learned with shrinkage, part of the context, the same in every counterfactual."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from effort import long, some
from lasting_worlds import SCHEMA, STEPS, TREATED, lasting_cohort

from ifonly import (
    BehaviourSettings,
    BranchAndBound,
    Cohort,
    EnsembleProblem,
    FitSettings,
    LocationScale,
    Problem,
    Query,
    check_model,
    fit,
    fit_behaviour,
    minus,
)
from ifonly.data.episode import Origin
from ifonly.errors import InputError
from ifonly.evidence.check.sample import NoiseSample
from ifonly.evidence.support import support_of
from ifonly.models import Ensemble, TrainableModel, load_model, save_model
from ifonly.models.effects import Shrinkage, SubjectEffectModel, like, with_effects
from ifonly.models.fit import EncodedTransitions, evaluate
from ifonly.models.fit_effects import fit_with_effects
from ifonly.testing import check_solver, check_transition_model
from ifonly.testing.instances import random_problem

KINDS = ("location-scale", "additive", "post-nonlinear", "monotone-flow")
SETTINGS = FitSettings(epochs=40, learning_rate=1e-2, batch_size=512)
PULL = 0.7


def untrained() -> LocationScale:
    return LocationScale(SCHEMA, hidden=(8,), residual="diagonal")


@pytest.fixture(scope="module")
def world():
    return lasting_cohort(300, pull=PULL)


@pytest.fixture(scope="module")
def model(world) -> SubjectEffectModel:
    return fit_with_effects(untrained(), world[0], settings=SETTINGS)


@pytest.fixture(scope="module")
def refits(world) -> Ensemble:
    return fit_with_effects(untrained(), world[0][:60], members=3, settings=FitSettings(epochs=3))


def with_random_effects(first: TrainableModel, seed: int) -> SubjectEffectModel:
    """A model of random weights, of the kind and scaling of `first`."""
    generator = torch.Generator().manual_seed(seed)
    wide, size = with_effects(first.schema), first.state_size
    models = [like(first, wide).double() for _ in range(2)]
    for model in models:
        model.initialize(generator)
    numbers = torch.rand(4, size, generator=generator, dtype=torch.float64)
    deviation, centre, within, between = (0.5 + numbers[0], numbers[1] - 0.5, 0.5 + numbers[2], 0.2 + numbers[3])
    found = (tuple(column.tolist()) for column in (deviation, centre, within, between))
    made = SubjectEffectModel(*models, Shrinkage(*found)).eval()
    made.set_scaler(first.scaler)
    return made


def effects_of(model: SubjectEffectModel, cohort: Cohort) -> np.ndarray:
    """Effects at the first step of every episode [E, D]."""
    return model.encode_context(cohort)[cohort.offsets[:-1], -model.state_size :]


# What effects are


def test_effects_are_those_of_the_hidden_constant(model, world) -> None:
    cohort, hidden = world
    owners = np.array([int(name.split()[1]) for name in cohort.subjects])
    effects = effects_of(model, cohort)
    assert np.corrcoef(effects[:, 0], hidden[owners])[0, 1] > 0.85
    pulled, free = model.fit_report.effects
    assert pulled.feature == "pulled"
    assert pulled.share == pytest.approx(PULL**2 / (1 + PULL**2), abs=0.1)
    assert free.share == 0 == free.weight
    assert not effects[:, 1].any()


def test_new_subjects_have_effects_too(model) -> None:
    others, hidden = lasting_cohort(100, pull=PULL, seed=1)
    owners = np.array([int(name.split()[1]) for name in others.subjects])
    assert np.corrcoef(effects_of(model, others)[:, 0], hidden[owners])[0, 1] > 0.8


def test_there_are_no_effects_where_nothing_lasts() -> None:
    cohort, _ = lasting_cohort(200, pull=0.0)
    model = fit_with_effects(untrained(), cohort, settings=replace(SETTINGS, epochs=25))
    assert [row.share for row in model.fit_report.effects] == [0, 0]
    assert not effects_of(model, cohort).any()


def test_shrinkage_is_the_posterior_mean() -> None:
    shrinkage = Shrinkage((1.0,), (0.1,), (2.0,), (0.5,))
    sums, counts = np.array([[6.0], [0.0], [60.0]]), np.array([[4.0], [0.0], [40.0]])
    expected = [4 / (4 + 4) * (1.5 - 0.1), 0.0, 40 / (40 + 4) * (1.5 - 0.1)]
    assert shrinkage.effects(sums, counts)[:, 0] == pytest.approx(expected)
    assert Shrinkage((1.0,), (0.1,), (2.0,), (0.0,)).effects(sums, counts).tolist() == [[0.0]] * 3


def test_variance_components_are_those_of_noise_made_to_order() -> None:
    cohort, _ = lasting_cohort(600, pull=1.0, seed=3)
    first = LinearTruth().double().eval()
    found, shares = Shrinkage.learn(first, cohort)
    assert found.within == pytest.approx((1.0, 1.0), abs=0.05)
    assert found.between[0] == pytest.approx(1.0, abs=0.15)
    assert found.between[1] == 0
    assert shares[0].share == pytest.approx(0.5, abs=0.05)
    assert 0.9 < shares[0].weight < 1


def test_draws_are_as_far_apart_as_the_truth_is_from_them() -> None:
    """And how a subject was treated tells no more of where the truth lies among them, as it does of means of noise."""
    cohort, hidden = lasting_cohort(900, pull=PULL, insight=1.5, seed=4)
    model, generator = LinearTruth().double().eval(), np.random.default_rng(0)
    shrinkage, _ = Shrinkage.learn(model, cohort)
    begins = cohort.offsets[:-1][np.unique(np.array(cohort.subjects), return_index=True)[1]]
    draws = np.stack([shrinkage.draw(model, cohort, generator)[begins] for _ in range(200)])
    assert not draws[..., 1].any()
    true = PULL * (hidden - hidden.mean())
    left = true - draws[..., 0].mean(0)
    assert (left / draws[..., 0].std(0)).std() == pytest.approx(1, abs=0.07)
    treated = np.array([cohort.actions[begin : begin + STEPS].mean() for begin in begins])
    assert abs(np.corrcoef(left, treated)[0, 1]) < 0.06
    assert np.corrcoef(true - shrinkage.of_each_step(model, cohort)[begins, 0], treated)[0, 1] > 0.2


def test_of_few_subjects_nothing_is_expected_before_their_noise_is_seen() -> None:
    cohort, _ = lasting_cohort(9, pull=2.0, seed=1)
    model = LinearTruth().double().eval()
    shrinkage, _ = Shrinkage.learn(model, cohort)
    draws = [shrinkage.draw(model, cohort, np.random.default_rng(seed)) for seed in range(400)]
    assert np.mean(draws, axis=0)[:, 0] == pytest.approx(shrinkage.of_each_step(model, cohort)[:, 0], abs=0.15)


class LinearTruth(LocationScale):
    """The equations of the world without what is hidden."""

    kind = ""

    def __init__(self) -> None:
        super().__init__(SCHEMA, hidden=(2,), prior="independent")

    def invert(self, states, context, actions, next_states):
        pushed = torch.stack([torch.zeros_like(context[..., 0]), 0.02 * (context[..., 0] - 60)], dim=-1)
        location = 0.5 * states + actions.unsqueeze(-1) * torch.as_tensor(TREATED) + pushed
        return next_states - location, torch.zeros_like(states)


@long
def test_confounding_by_what_lasts_is_removed() -> None:
    """Those who are pulled up are treated more: without effects treatment seems to do less than it does."""
    cohort, _ = lasting_cohort(400, pull=PULL, insight=1.5, seed=5)
    plain = fit(untrained(), cohort, settings=SETTINGS)
    both = fit_with_effects(untrained(), cohort, settings=SETTINGS)
    wrong = [abs(effect_of_treatment(one, cohort) - TREATED[0]) for one in (plain, both)]
    assert wrong[0] > 0.3
    assert wrong[1] < 0.1


def effect_of_treatment(model: TrainableModel, cohort: Cohort) -> float:
    """What treatment does to the first feature, in original units, over recorded states."""
    rows = EncodedTransitions.of(model, cohort)
    with torch.no_grad():
        ends = [
            model.step(rows.states, rows.context, torch.full_like(rows.actions, action), torch.zeros_like(rows.states))
            for action in (0, 1)
        ]
    return float((ends[1] - ends[0])[:, 0].mean()) * float(model.scaler.states.scale[0])


def test_less_of_the_noise_lies_between_new_subjects(model, world) -> None:
    others, _ = lasting_cohort(100, pull=PULL, seed=2)
    plain = fit(untrained(), world[0], settings=SETTINGS)
    assert evaluate(model, others) > evaluate(plain, others)
    left = []
    for one in (plain, model):
        sample = NoiseSample.of(one.for_search(), others, seed=0)
        means = [sample.noise[sample.subject == subject, 0].mean() for subject in range(100)]
        left.append(np.var(means))
    # The mean of twelve independent values has variance 1 / 12, that of subjects with two episodes half as much.
    assert left[0] > 1 / 12
    assert left[1] < left[0] / 2
    assert check_model(model, others).verdict.value != "fail"


# Whose they are


def test_episodes_of_a_subject_share_an_effect_in_a_cohort(model, world) -> None:
    cohort, _ = world
    effects = effects_of(model, cohort)
    assert cohort.subjects[0] == cohort.subjects[1] != cohort.subjects[2]
    assert effects[0, 0] == effects[1, 0] != effects[2, 0]
    alone = model.encode_context(cohort[0])
    assert (alone[:, -2:] == alone[0, -2:]).all()
    assert alone[0, -2] != effects[0, 0]
    assert np.array_equal(alone[:, :1], model.scaler.context.encode(cohort[0].context))


def test_an_effect_does_not_depend_on_other_subjects(model, world) -> None:
    cohort, _ = world
    some = cohort[:7]
    assert effects_of(model, some) == pytest.approx(effects_of(model, cohort)[:7], abs=1e-12)


def test_only_measured_entries_count(model, world) -> None:
    episode = world[0][0]
    origins = np.zeros(episode.states.shape, dtype=np.uint8)
    origins[4:, 0] = Origin.CARRIED
    states = np.array(episode.states)
    held = replace(episode, origins=origins)
    found = model.encode_context(held)
    assert found[0, -2] != model.encode_context(episode)[0, -2]
    states[-1, 0] += 3.0  # carried forward: no noise of the first feature rests on it, and it is nobody's start
    assert np.array_equal(model.encode_context(replace(held, states=states)), found)
    origins[1:] = Origin.CARRIED
    assert not model.encode_context(replace(episode, origins=origins))[:, -2:].any()


# What is promised of every model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_a_model_with_effects_keeps_the_contract(kind: str, seed: int) -> None:
    first = random_problem(seed, model_kind=kind).model
    check_transition_model(with_random_effects(first, seed))


def test_a_fitted_model_keeps_the_contract(model) -> None:
    check_transition_model(model)


@pytest.mark.parametrize("kind", KINDS)
def test_branch_and_bound_finds_what_enumeration_finds(kind: str) -> None:
    check_solver(BranchAndBound(), [problem_with_effects(seed, kind) for seed in range(some(50))])


def problem_with_effects(seed: int, kind: str) -> Problem:
    plain = random_problem(seed, model_kind=kind, rules=None)
    problem = Problem.from_episode(plain.episode, with_random_effects(plain.model, seed), plain.query)
    assert problem.context[:, -2:].abs().min() > 0
    return problem


def test_the_record_is_reproduced_and_effects_stay_in_counterfactuals(model) -> None:
    others, _ = lasting_cohort(6, pull=PULL, seed=4)
    for episode in others:
        problem = Problem.from_episode(episode, model, Query(minus("pulled"), 2))
        states, _ = problem.replay(problem.observed_actions.unsqueeze(0))
        assert torch.allclose(states[0], problem.observed_states, atol=1e-9, rtol=0)
        effects = problem.context[:, -2:]
        assert torch.equal(effects, effects[:1].expand_as(effects))
        # A counterfactual is the second model's, step by step, under the effects and the noise of the record.
        changed = 1 - problem.observed_actions
        state = problem.observed_states[0]
        replayed, _ = problem.replay(changed.unsqueeze(0))
        for step in range(problem.horizon - 1):
            state = problem.model.second.step(state, problem.context[step], changed[step], problem.noise[step])
            assert torch.allclose(state, replayed[0, step + 1], atol=1e-12, rtol=0)


def test_no_problem_depends_on_what_it_is_built_with(model, world) -> None:
    episodes = [world[0][number] for number in range(4)]  # the first two are of one subject
    query = Query(minus("pulled"), 1)
    together = Problem.from_episodes(episodes, model, query)
    for episode, problem in zip(episodes, together, strict=True):
        alone = Problem.from_episode(episode, model, query)
        assert torch.equal(alone.context, problem.context)
        assert torch.equal(alone.noise, problem.noise)


def test_put_to_a_model_with_effects_and_back(model, world) -> None:
    plain = fit(untrained(), world[0], settings=replace(SETTINGS, epochs=2))
    problem = Problem.from_episode(world[0][3], plain, Query(minus("pulled"), 1))
    put = problem.put_to(model)
    assert torch.equal(put.context, Problem.from_episode(world[0][3], model, problem.query).context)
    assert torch.equal(put.put_to(plain).noise, problem.noise)


# Files


@pytest.mark.parametrize("which", ["model", "refits"])
def test_files_give_the_same_model_back(which: str, request, world, tmp_path) -> None:
    made = request.getfixturevalue(which)
    save_model(made, tmp_path / "model")
    read = load_model(tmp_path / "model", schema=world[0].schema)
    assert read.fingerprint() == made.fingerprint()
    assert read.describe_fit() == made.describe_fit()
    assert np.array_equal(read.encode_context(world[0]), made.encode_context(world[0]))
    for name, tensor in made.state_dict().items():
        assert torch.equal(tensor, read.state_dict()[name])


def test_fingerprints_tell_every_part() -> None:
    model = with_random_effects(untrained(), seed=0)
    shrinkage = replace(model.shrinkage, within=(1.0, 1.0))
    others = [
        model.first,
        model.second,
        SubjectEffectModel(model.first, model.second, shrinkage),
        SubjectEffectModel(model.first, like(model.second, model.second.schema), model.shrinkage),
        SubjectEffectModel(like(model.first, model.first.schema), model.second, model.shrinkage),
    ]
    for other in others[3:]:
        other.set_scaler(model.scaler)
    assert len({model.fingerprint(), *(other.fingerprint() for other in others)}) == 6


# Refits, support, and what is refused


def test_refits_share_effects_and_answer_together(refits, world) -> None:
    episode = world[0][0]
    query = Query(minus("pulled"), 2, objective="mean")
    problem = EnsembleProblem.from_episode(episode, refits, query)
    assert torch.equal(problem.context, Problem.from_episode(episode, refits, Query(minus("pulled"), 2)).context)
    check_solver(BranchAndBound(), [problem])
    assert refits.fit_report.effects == refits[0].fit_report.effects


def test_members_that_see_other_effects_are_refused(model, world) -> None:
    other = SubjectEffectModel(model.first, model.second, replace(model.shrinkage, within=(3.0, 3.0)))
    with pytest.raises(InputError, match="another context"):
        EnsembleProblem.from_episode(world[0][0], [model, other], Query(minus("pulled"), 1, objective="mean"))


def test_support_is_judged_by_what_was_recorded(model, world) -> None:
    query = Query(minus("pulled"), 1, min_support=0.3)
    behaviour = fit_behaviour(world[0][:80], settings=BehaviourSettings(hidden=(4,), epochs=2))
    problem = Problem.from_episode(world[0][0], model, query, support=behaviour)
    check_solver(BranchAndBound(), [problem])
    assert len(support_of(problem, problem.observed_actions.tolist(), behaviour).steps) == problem.horizon


def test_it_takes_several_rounds(model, world) -> None:
    with pytest.raises(InputError, match="fit_with_effects"):
        fit(model, world[0], epochs=1)
