"""The simulated world: an exact, bounded, Lipschitz causal model; cohorts that tell a plausible story."""

import copy
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ifonly.data import Cohort
from ifonly.errors import InputError
from ifonly.models import TransitionModel, load_model, save_model
from ifonly.problem import Problem
from ifonly.progress import Tick
from ifonly.query import Query
from ifonly.rewards import minus
from ifonly.search.heuristics import Greedy
from ifonly.search.solve import solve
from ifonly.simulate import SepsisWorld, sepsis_schema, simulate_cohort
from ifonly.simulate.patients import treatment
from ifonly.simulate.world import soft_clamp, soft_unclamp
from ifonly.testing import check_transition_model

DYNAMIC = ["FiO2", "PaO2", "platelets", "bilirubin", "GCS", "MAP", "creatinine", "urine", "SOFA"]
WORLD = SepsisWorld()


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a PlausibilityWarning would be one
        return simulate_cohort(2000, seed=3)


def transitions(cohort: Cohort) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States, context, actions and next states, row by row, in the world's coordinates."""
    rows, scaler = cohort.transitions(), WORLD.scaler
    return (
        torch.as_tensor(scaler.states.encode(rows.states)),
        torch.as_tensor(scaler.context.encode(rows.context)),
        torch.as_tensor(np.array(rows.actions)),
        torch.as_tensor(scaler.states.encode(rows.next_states)),
    )


def random_inputs(seed: int, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States all over the plausible box, context, actions and noise, in the world's coordinates."""
    generator = torch.Generator().manual_seed(seed)
    box = torch.rand(rows, 9, generator=generator, dtype=torch.float64)
    context = torch.rand(rows, 4, generator=generator, dtype=torch.float64).round()
    context[:, 2] = 2 * torch.randn(rows, generator=generator, dtype=torch.float64)
    return (
        WORLD.low + (WORLD.high - WORLD.low) * box,
        context,
        torch.randint(25, (rows,), generator=generator),
        torch.randn(rows, 9, generator=generator, dtype=torch.float64),
    )


class TestSchema:
    def test_features_and_actions_are_the_papers(self) -> None:
        schema = sepsis_schema()
        assert [(f.name, f.kind) for f in schema.context] == [
            ("gender", "static"),
            ("readmission", "static"),
            ("age", "static"),
            ("ventilation", "contextual"),
        ]
        assert [f.name for f in schema.dynamic] == DYNAMIC
        assert all(feature.plausible is not None for feature in schema.features)
        assert [axis.name for axis in schema.actions.axes] == ["vasopressors", "fluids"]
        assert schema.actions.vectors[7] == (0.04, 80.0)
        assert len(schema.actions) == 25
        assert (schema.step_length, schema.step_unit) == (4, "h")

    def test_scaling_fits_the_kind_of_feature(self) -> None:
        scaling = {feature.name: feature.scaling for feature in sepsis_schema().features}
        assert {name for name, how in scaling.items() if how == "log"} == {
            "PaO2",
            "platelets",
            "bilirubin",
            "creatinine",
            "urine",
        }
        assert {name for name, how in scaling.items() if how == "none"} == {"gender", "readmission", "ventilation"}


class TestClamp:
    @settings(deadline=None, derandomize=True, max_examples=some(300))
    @given(st.floats(-1.5, 1.5), st.floats(1.5, 12.0), st.floats(0.0, 1.0))
    def test_inverse_and_range(self, low: float, width: float, share: float) -> None:
        """From 1.2 below the lower end to 1.2 above the upper one."""
        ends = torch.tensor([low, low + width], dtype=torch.float64)
        value = torch.tensor(low - 1.2 + share * (width + 2.4), dtype=torch.float64)
        clamped = soft_clamp(value, *ends)
        assert ends[0] < clamped < ends[1]
        assert soft_unclamp(clamped, *ends).item() == pytest.approx(value.item(), abs=1e-9)

    @settings(deadline=None, derandomize=True, max_examples=some(200))
    @given(st.floats(-30, 30), st.floats(1e-3, 5.0))
    def test_increasing_with_slope_at_most_one(self, start: float, distance: float) -> None:
        ends = (torch.tensor(-2.0, dtype=torch.float64), torch.tensor(3.0, dtype=torch.float64))
        points = torch.tensor([start, start + distance], dtype=torch.float64)
        before, after = soft_clamp(points, *ends)
        assert ends[0] <= before <= after <= ends[1]
        assert after - before <= distance * (1 + 1e-12) + 1e-14

    def test_nearly_the_identity_inside(self) -> None:
        ends = (torch.tensor(-2.0, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64))
        middle = torch.linspace(-1.25, 1.25, 51, dtype=torch.float64)
        assert (soft_clamp(middle, *ends) - middle).abs().max() < 1e-3

    def test_ends_and_beyond_have_no_origin(self) -> None:
        ends = (torch.tensor(-2.0, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64))
        assert soft_unclamp(ends[0], *ends) == -math.inf
        assert soft_unclamp(ends[1], *ends) == math.inf
        assert torch.isnan(soft_unclamp(torch.tensor(2.5, dtype=torch.float64), *ends))


class TestWorld:
    def test_keeps_every_contract_of_a_model(self) -> None:
        check_transition_model(WORLD, spread=0.5, noise_spread=0.4)

    def test_is_ready_for_search(self) -> None:
        assert isinstance(WORLD, TransitionModel)
        assert WORLD.kind == "sepsis-world"
        assert WORLD.elementwise
        assert WORLD.is_for_search("cpu")
        assert SepsisWorld().fingerprint() == WORLD.fingerprint()

    @settings(deadline=None, derandomize=True, max_examples=some(60))
    @given(st.integers(0, 10**6), st.floats(0.0, 1.2))
    def test_round_trip_up_to_the_clamps(self, seed: int, beyond: float) -> None:
        """Noise chosen such that features land up to `beyond` outside their range before the clamp."""
        states, context, actions, _ = random_inputs(seed, 16)
        location, scale = WORLD.location_and_scale(states, context, actions)
        share = torch.rand(16, 9, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
        landing = WORLD.low - beyond + (WORLD.high - WORLD.low + 2 * beyond) * share
        noise = (landing - location) / scale
        following = WORLD.step(states, context, actions, noise)
        assert ((following > WORLD.low) & (following < WORLD.high)).all()
        assert (WORLD.abduct(states, context, actions, following) - noise).abs().max() < 1e-8
        again = WORLD.step(states, context, actions, WORLD.abduct(states, context, actions, following))
        assert (again - following).abs().max() < 1e-12

    def test_slopes_stay_below_the_constant(self) -> None:
        states, context, actions, noise = random_inputs(0, 4000)
        constants = WORLD.lipschitz(context, actions, noise)
        for distance, seed in ((1e-3, 1), (0.1, 2), (1.0, 3), (5.0, 4)):
            direction = torch.randn(states.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
            other = states + distance * torch.nn.functional.normalize(direction, dim=-1)
            moved = WORLD.step(other, context, actions, noise) - WORLD.step(states, context, actions, noise)
            assert (moved.norm(dim=-1) <= constants * distance * (1 + 1e-9)).all()

    def test_constant_is_attained_nearly_and_moderate(self) -> None:
        """The steepest direction at the steepest state comes close to L_h: the constant is not idly large."""
        largest = 0.0
        for seed in range(40):
            states, context, actions, _ = random_inputs(seed, 1)
            jacobian = torch.autograd.functional.jacobian(
                lambda x, c=context[0], a=actions[0]: WORLD.location_and_scale(x, c, a)[0], states[0]
            )
            largest = max(largest, float(torch.linalg.matrix_norm(jacobian, ord=2)))
        assert 0.8 * WORLD.location_lipschitz() < largest <= WORLD.location_lipschitz()
        assert 0.9 < WORLD.location_lipschitz() < 1.2
        assert 0.01 < WORLD.scale_lipschitz() < 0.15

    def test_constant_grows_with_the_noise(self) -> None:
        """At the typical patient without treatment phi is as steep as L_phi says: its tanh has slope one there."""
        zero = torch.zeros(4, dtype=torch.float64)
        jacobian = torch.autograd.functional.jacobian(
            lambda x: WORLD.location_and_scale(x, zero, torch.tensor(0))[1], torch.zeros(9, dtype=torch.float64)
        )
        assert float(torch.linalg.matrix_norm(jacobian, ord=2)) == pytest.approx(WORLD.scale_lipschitz())
        noise = torch.tensor([0.0, -3.0, *[1.0] * 7], dtype=torch.float64)
        constant = WORLD.lipschitz(zero, torch.tensor(0), noise)
        assert constant.item() == pytest.approx(WORLD.location_lipschitz() + 3 * WORLD.scale_lipschitz())

    def test_broadcasting_equals_looping(self) -> None:
        states, context, _, noise = random_inputs(5, 6)
        every = torch.arange(25)
        whole = WORLD.step(states.unsqueeze(1), context[0], every, noise[0])
        assert whole.shape == (6, 25, 9)
        for n in range(6):
            for action in range(25):
                single = WORLD.step(states[n], context[0], torch.tensor(action), noise[0])
                assert torch.allclose(whole[n, action], single, rtol=0, atol=1e-13)
        assert WORLD.lipschitz(context[0], every, noise.unsqueeze(1)).shape == (6, 25)

    def test_rows_do_not_influence_each_other(self) -> None:
        states, context, actions, noise = random_inputs(6, 8)
        before = WORLD.step(states, context, actions, noise)
        states[0], noise[0], actions[0] = 99.0, -99.0, 24
        assert torch.equal(WORLD.step(states, context, actions, noise)[1:], before[1:])

    def test_float32_is_the_same_function(self) -> None:
        single = copy.deepcopy(WORLD).float()
        states, context, actions, noise = random_inputs(7, 200)
        wanted = WORLD.step(states, context, actions, noise)
        found = single.step(states.float(), context.float(), actions, noise.float())
        assert found.dtype == torch.float32
        assert torch.allclose(found.double(), wanted, atol=1e-5)
        back = single.for_search()
        assert back.is_for_search("cpu")
        assert torch.allclose(back.step(states, context, actions, noise), wanted, atol=1e-5)

    def test_log_prob_is_the_density_that_automatic_differentiation_gives(self) -> None:
        states, context, actions, noise = random_inputs(8, 12)
        following = WORLD.step(states, context, actions, noise)
        found = WORLD.log_prob(states, context, actions, following)
        for row in range(12):
            inputs = (states[row], context[row], actions[row])
            slopes = torch.autograd.functional.jacobian(
                lambda y, inputs=inputs: WORLD.abduct(*inputs, y), following[row]
            )
            wanted = WORLD.prior.log_prob(noise[row]) + torch.linalg.slogdet(slopes)[1]
            assert found[row].item() == pytest.approx(wanted.item(), rel=1e-7, abs=1e-6)

    def test_samples_are_reproducible(self) -> None:
        states, context, actions, _ = random_inputs(9, 5)
        one, two = (
            WORLD.sample(states, context, actions, generator=torch.Generator().manual_seed(1)) for _ in range(2)
        )
        assert one.shape == (5, 9)
        assert torch.equal(one, two)

    def test_noise_is_correlated_with_unit_deviations(self) -> None:
        covariance = WORLD.prior.covariance()
        assert torch.allclose(covariance.diagonal(), torch.ones(9, dtype=torch.float64))
        assert covariance[DYNAMIC.index("MAP"), DYNAMIC.index("SOFA")].item() == pytest.approx(-0.25)

    def test_checkpoint_keeps_it(self, tmp_path: Path) -> None:
        save_model(WORLD, tmp_path / "world")
        loaded = load_model(tmp_path / "world", schema=sepsis_schema())
        assert isinstance(loaded, SepsisWorld)
        assert loaded.fingerprint() == WORLD.fingerprint()

    def test_describes_every_coefficient(self) -> None:
        text = SepsisWorld.describe()
        assert "vasoconstriction  pressor effect x logistic(- 1.4 MAP - 1) -> MAP +0.5, urine +0.15, SOFA -1.1" in text
        stated = len(re.findall(r"(?<![\w.])\d+(?:\.\d+)?", text))
        buffers = ("drift", "response_gates", "response_effects", "feedback_inputs", "feedback_effects", "noise_inputs")
        coefficients = sum(int((getattr(WORLD, name) != 0).sum()) for name in buffers)
        correlations = int((WORLD.prior.covariance().triu(diagonal=1).abs() > 1e-12).sum())
        # Each line about noise also states its base size, the swing of 0.3 and a 1.
        assert stated == coefficients + correlations + 3 * 9


class TestTreatmentEffects:
    """The stories that the equations tell, at a typical patient."""

    def answer(self, action: int, **state: float) -> dict[str, float]:
        """The expected next state, in scaled units."""
        states = torch.tensor([state.get(name, 0.0) for name in DYNAMIC], dtype=torch.float64)
        zero = torch.zeros(4, dtype=torch.float64)
        after = WORLD.step(states, zero, torch.tensor(action), torch.zeros(9, dtype=torch.float64))
        return dict(zip(DYNAMIC, after.tolist(), strict=True))

    def test_vasopressors_raise_pressure_most_when_it_is_low(self) -> None:
        low = self.answer(15, MAP=-2.0)["MAP"] - self.answer(0, MAP=-2.0)["MAP"]
        high = self.answer(15, MAP=2.0)["MAP"] - self.answer(0, MAP=2.0)["MAP"]
        assert low > high > 0
        assert self.answer(15, MAP=-2.0)["SOFA"] < self.answer(0, MAP=-2.0)["SOFA"]
        assert self.answer(15, MAP=2.0)["SOFA"] > self.answer(0, MAP=2.0)["SOFA"]

    def test_effect_of_doses_diminishes(self) -> None:
        doses = [self.answer(5 * level, MAP=-1.0)["MAP"] for level in range(5)]
        per_dose = np.diff(doses) / np.diff([0, 0.04, 0.113, 0.225, 0.788])
        assert (np.diff(doses) > 0).all()
        assert (np.diff(per_dose) < 0).all()

    def test_fluids_help_the_dry_and_harm_the_lungs_of_the_wet(self) -> None:
        dry, wet = {"MAP": -1.5, "urine": -1.5}, {"MAP": 1.0, "urine": 1.0, "FiO2": 1.0, "PaO2": -1.0}
        assert self.answer(4, **dry)["SOFA"] < self.answer(0, **dry)["SOFA"]
        assert self.answer(4, **dry)["urine"] > self.answer(0, **dry)["urine"]
        assert self.answer(4, **wet)["SOFA"] > self.answer(0, **wet)["SOFA"]
        assert self.answer(4, **wet)["PaO2"] < self.answer(0, **wet)["PaO2"]
        assert self.answer(4, **wet)["FiO2"] > self.answer(0, **wet)["FiO2"]

    def test_high_doses_of_vasopressors_harm_kidneys_and_platelets(self) -> None:
        none, much = self.answer(0), self.answer(20)
        assert much["creatinine"] > none["creatinine"]
        assert much["platelets"] < none["platelets"]


class TestCohort:
    def test_values_never_leave_their_ranges(self, cohort: Cohort) -> None:
        assert cohort.implausible == {}
        for column, feature in enumerate(cohort.schema.dynamic):
            assert feature.plausible is not None
            values = cohort.states[:, column]
            assert feature.plausible[0] < values.min() < values.max() < feature.plausible[1]

    def test_shape_of_the_cohort(self, cohort: Cohort) -> None:
        assert len(cohort) == 2000
        assert (cohort.lengths.min(), cohort.lengths.max()) == (10, 20)
        assert cohort.ids[42] == "patient-00042"
        assert (np.bincount(cohort.actions, minlength=25) > 0).all()

    def test_some_subjects_stay_twice(self, cohort: Cohort) -> None:
        twice = [i for i in range(1, len(cohort)) if cohort.subjects[i] == cohort.subjects[i - 1]]
        assert 150 < len(twice) < 250  # one in five of every second patient: 200 +- 4 deviations of 13
        assert len(cohort) - len(set(cohort.subjects)) == len(twice)
        for number in twice[:20]:
            first, second = cohort[number - 1], cohort[number]
            assert second.context[0, 1] == 1
            assert second.context[0, 0] == first.context[0, 0]
            assert second.context[0, 2] == first.context[0, 2]
            assert not np.array_equal(first.states[0], second.states[0])

    def test_same_seed_same_cohort_other_seed_another(self) -> None:
        one, two, other = (simulate_cohort(40, seed=seed) for seed in (5, 5, 6))
        assert np.array_equal(one.states, two.states)
        assert np.array_equal(one.actions, two.actions)
        assert not np.array_equal(one.states[:100], other.states[:100])

    @pytest.mark.parametrize("patients", [1, 100, 256, 257])
    def test_smaller_cohort_is_the_beginning_of_a_larger(self, cohort: Cohort, patients: int) -> None:
        small = simulate_cohort(patients, seed=3)
        rows = len(small.actions)
        assert small.ids == cohort.ids[:patients]
        assert small.subjects == cohort.subjects[:patients]
        assert np.array_equal(small.states, cohort.states[:rows])
        assert np.array_equal(small.context, cohort.context[:rows])
        assert np.array_equal(small.actions, cohort.actions[:rows])

    def test_fixed_horizon_and_its_beginning(self) -> None:
        long, short = simulate_cohort(30, seed=1, horizon=20), simulate_cohort(30, seed=1, horizon=12)
        assert set(short.lengths) == {12}
        assert np.array_equal(long.states.reshape(30, 20, 9)[:, :12], short.states.reshape(30, 12, 9))

    def test_float32_world_gives_the_cohort_of_its_rounded_coefficients(self) -> None:
        rounded = simulate_cohort(5, world=copy.deepcopy(WORLD).float())
        assert np.allclose(rounded[0].states[:2], simulate_cohort(5)[0].states[:2], rtol=1e-3)

    def test_progress_reaches_the_end(self) -> None:
        ticks: list[Tick] = []
        simulate_cohort(3, horizon=5, progress=ticks.append)
        assert [(tick.done, tick.total) for tick in ticks] == [(step, 5) for step in range(1, 6)]

    @pytest.mark.parametrize("wrong", [{"patients": 0}, {"horizon": 1}, {"horizon": (12, 10)}, {"seed": -1}])
    def test_wrong_settings_are_refused(self, wrong: dict[str, object]) -> None:
        with pytest.raises(InputError, match=re.escape(next(iter(wrong)))):
            simulate_cohort(**{"patients": 3, **wrong})  # type: ignore[arg-type]

    def test_abducted_noise_follows_the_prior(self, cohort: Cohort) -> None:
        """Mean and covariance within five standard errors of their estimates."""
        noise = WORLD.abduct(*transitions(cohort))
        count = len(noise)
        assert (noise.mean(0).abs() < 5 / math.sqrt(count)).all()
        products = noise.unsqueeze(-1) * noise.unsqueeze(-2)
        error = products.std(0) / math.sqrt(count)
        assert ((products.mean(0) - WORLD.prior.covariance()).abs() < 5 * error).all()

    def test_replay_is_exact(self, cohort: Cohort) -> None:
        states, context, actions, following = transitions(cohort)
        noise = WORLD.abduct(states, context, actions, following)
        assert (WORLD.step(states, context, actions, noise) - following).abs().max() < 1e-12

    def test_noise_of_the_next_step_is_unrelated_to_treatment(self, cohort: Cohort) -> None:
        """Nothing hidden drives both: within five standard errors."""
        noise = WORLD.abduct(*transitions(cohort)).numpy()
        doses = np.array(cohort.schema.actions.vectors)[cohort.transitions().actions]
        for dose in doses.T:
            for column in noise.T:
                assert abs(np.corrcoef(dose, column)[0, 1]) < 5 / math.sqrt(len(noise))

    def test_severity_is_plausible_and_stays_so(self) -> None:
        score = simulate_cohort(1000, seed=9, horizon=20).states[:, -1].reshape(1000, 20)
        assert 7 < score.mean() < 9
        assert (score.std(axis=0) > 2).all()
        assert (np.abs(score.mean(axis=0) - 8) < 1.5).all()


class TestClinician:
    def test_reacts_to_severity(self, cohort: Cohort) -> None:
        """Correlations of dose level and severity far beyond chance: their standard error is below 0.01."""
        states = dict(zip(DYNAMIC, cohort.states.T, strict=True))
        pressors, fluids = np.divmod(cohort.actions, 5)
        assert np.corrcoef(pressors, states["MAP"])[0, 1] < -0.2
        assert np.corrcoef(pressors, states["SOFA"])[0, 1] > 0.05
        assert np.corrcoef(fluids, states["urine"])[0, 1] < -0.2

    def test_choices_follow_the_need_on_average(self) -> None:
        calm, shocked = np.zeros((4000, 9)), np.zeros((4000, 9))
        shocked[:, [DYNAMIC.index("MAP"), DYNAMIC.index("urine")]] = -2.0
        draws = np.random.default_rng(0).random((4000, 2))
        style = np.zeros((4000, 2))
        pressors, fluids = np.divmod(treatment(calm, 8, style, draws), 5)
        more_pressors, more_fluids = np.divmod(treatment(shocked, 8, style, draws), 5)
        assert more_pressors.mean() > pressors.mean() + 1
        assert more_fluids.mean() > fluids.mean() + 1
        assert (treatment(calm, 0, style, draws) % 5).mean() > fluids.mean()  # resuscitation comes early

    def test_does_better_than_chance_or_nothing_but_not_as_well_as_possible(self) -> None:
        """The same patients, with the same noise, under other policies; differences beyond five standard errors."""
        patients, steps = 500, 12
        cohort = simulate_cohort(patients, seed=4, horizon=steps)
        states, context, actions, following = transitions(cohort)
        noise = WORLD.abduct(states, context, actions, following).reshape(patients, steps - 1, 9)
        context = context.reshape(patients, steps - 1, 4)
        first = states.reshape(patients, steps - 1, 9)[:, 0]

        def severity(policy: Callable[[int], Tensor]) -> Tensor:
            """Mean scaled SOFA of each patient over the steps after the first."""
            now, total = first, torch.zeros(patients, dtype=torch.float64)
            for t in range(steps - 1):
                now = WORLD.step(now, context[:, t], policy(t), noise[:, t])
                total += now[:, -1]
            return total / (steps - 1)

        observed = severity(lambda t: actions.reshape(patients, steps - 1)[:, t])
        assert observed.numpy() == pytest.approx(following.reshape(patients, -1, 9)[:, :, -1].mean(1).numpy())
        chance = torch.randint(25, (patients, steps), generator=torch.Generator().manual_seed(0))
        for worse in (severity(lambda t: chance[:, t]), severity(lambda t: torch.zeros(patients, dtype=torch.int64))):
            loss = worse - observed
            assert loss.mean() > 5 * loss.std() / math.sqrt(patients)

    def test_three_better_choices_matter_in_both_directions(self) -> None:
        """Greedy answers: a median gain of a few percent, a tail above 12 %, and changes up and down on both axes."""
        gains, up, down = [], np.zeros(2), np.zeros(2)
        for episode in simulate_cohort(40, seed=77, horizon=12):
            result = solve(Problem.from_episode(episode, WORLD, Query(minus("SOFA"), 3)), Greedy())
            gains.append(result.improvement / abs(result.observed_outcome))
            for change in result.changes:
                moved = np.subtract(divmod(change.counterfactual, 5), divmod(change.observed, 5))
                up += moved > 0
                down += moved < 0
        assert 0.04 < np.median(gains) < 0.09
        assert max(gains) > 0.12
        assert (up / (up + down) > 0.2).all()
        assert (down / (up + down) > 0.2).all()
