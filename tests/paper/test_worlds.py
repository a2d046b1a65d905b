"""The known worlds, and the study of whether answers truly help in them."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paper import asking
from paper.warning_worlds import RIGHT, SCENARIOS
from paper.worlds import PLAIN, WORLDS, DrawnWorld, Variant, World
from paper.worlds.base import Quantity
from paper.worlds_study import (
    RECIPES,
    Answer,
    CellSettings,
    WorldCell,
    attainable,
    carry_out,
    cells_of,
    kept_in,
    measure,
    variants_of,
)
from paper.worlds_tables import BEGIN, END, background, fill_page, overview, summary

from ifonly import LocationScale, fit
from ifonly.errors import InputError, StoreError
from ifonly.simulate import SepsisWorld, simulate_cohort
from ifonly.study.plan import FitPlan

DRAWN = {name: world for name, world in WORLDS.items() if isinstance(world, DrawnWorld)}
each_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
each_drawn_world = pytest.mark.parametrize("world", DRAWN.values(), ids=DRAWN)


def with_variants(worlds: dict[str, World]) -> pytest.MarkDecorator:
    cells = [(world, variant) for world in worlds.values() for variant in world.variants]
    ids = [f"{world.name}-{variant.name}" for world, variant in cells]
    return pytest.mark.parametrize(("world", "variant"), cells, ids=ids)


each_variant, each_drawn_variant = with_variants(WORLDS), with_variants(DRAWN)


def random_actions(world: World, count: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, len(world.actions), size=(count, world.steps))


def columns(world: World, states: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(world.columns("dynamic"), np.moveaxis(states, 2, 0), strict=True))


class TestTruth:
    @each_world
    def test_recorded_actions_replay_to_the_recorded_states(self, world: World) -> None:
        recording = world.record(40, seed=1)
        course = recording.replay(recording.ids, recording.actions)
        np.testing.assert_array_equal(course.states, recording.states)
        np.testing.assert_array_equal(course.outcomes, recording.outcomes)

    @each_world
    def test_an_episode_has_the_same_truth_in_any_company(self, world: World) -> None:
        recording, actions = world.record(12, seed=2), random_actions(world, 12)
        together = recording.replay(recording.ids, actions)
        alone = recording.replay([recording.ids[5]], actions[5:6])
        np.testing.assert_allclose(alone.states[0], together.states[5], rtol=1e-12)

    @each_world
    def test_a_seed_is_a_world(self, world: World) -> None:
        one, again, other = (world.record(8, seed=seed) for seed in (16, 16, 17))
        np.testing.assert_array_equal(one.states, again.states)
        np.testing.assert_array_equal(one.actions, again.actions)
        assert (one.states[:, 0] != other.states[:, 0]).any(axis=1).all()

    @each_drawn_world
    def test_actions_have_no_part_in_circumstances(self, world: DrawnWorld) -> None:
        drawn, recorded = world.draw(25, seed=3), world.record(25, seed=3).circumstances
        for name in ("static", "context", "initial", "noise", "whims"):
            np.testing.assert_array_equal(getattr(drawn, name), getattr(recorded, name))

    @each_world
    def test_noise_is_independent_of_actions(self, world: World) -> None:
        recording = world.record(2000, seed=4)
        doses = np.array(world.actions.vectors)[recording.actions[:, :-1], 0]
        for noise in np.moveaxis(recording.circumstances.noise, 2, 0):
            assert abs(np.corrcoef(doses.ravel(), noise.ravel())[0, 1]) < 0.02

    @each_world
    def test_what_happens_before_a_change_stays(self, world: World) -> None:
        recording = world.record(30, seed=5)
        actions = recording.actions.copy()
        actions[:, 6] = (actions[:, 6] + 1) % len(world.actions)
        course = recording.replay(recording.ids, actions)
        np.testing.assert_array_equal(course.states[:, :7], recording.states[:, :7])
        # Not in all: an empty battery gives no more, whatever is asked of it.
        assert (course.states[:, 7] != recording.states[:, 7]).any(axis=1).mean() > 0.9

    @each_world
    def test_the_last_action_has_no_effect(self, world: World) -> None:
        recording = world.record(5, seed=6)
        actions = recording.actions.copy()
        actions[:, -1] = (actions[:, -1] + 1) % len(world.actions)
        np.testing.assert_array_equal(recording.replay(recording.ids, actions).states, recording.states)

    @each_world
    def test_states_never_leave_hard_ranges(self, world: World) -> None:
        recording = world.record(500, seed=8)
        courses = [np.full_like(recording.actions, action) for action in range(len(world.actions))]
        for actions in (recording.actions, random_actions(world, 500), *courses):
            found = columns(world, recording.replay(recording.ids, actions).states)
            for one in world.quantities:
                if one.kind == "dynamic":
                    assert np.isfinite(found[one.name]).all()
                    assert not one.hard or (found[one.name].min() >= one.range[0])
                    assert not one.hard or (found[one.name].max() <= one.range[1])

    @each_world
    def test_records_are_plausible_and_all_actions_occur(self, world: World) -> None:
        cohort = world.record(300, seed=9).cohort()
        assert not cohort.implausible
        # Sepsis has 25 actions, most of which cannot be frequent.
        least = min(0.02, 0.25 / len(world.actions))
        assert np.bincount(cohort.actions, minlength=len(world.actions)).min() > least * len(cohort.actions)

    def test_nobody_appears_or_vanishes_in_an_epidemic(self) -> None:
        world = WORLDS["epidemic"]
        states = columns(world, world.record(200, seed=10).states)
        assert (states["susceptible"] + states["exposed"] + states["infectious"]).max() <= 1
        assert (np.diff(states["susceptible"], axis=1) <= 0).all()

    @pytest.mark.parametrize(
        ("name", "axis", "column", "sign"),
        [
            ("glucose", 0, "glucose", -1),
            ("tumour", 0, "diameter", -1),
            ("tumour", 1, "diameter", -1),
            ("tumour", 1, "toxicity", 1),
            ("traffic", 0, "queue main", -1),
            ("traffic", 0, "queue side", 1),
            ("traffic", 1, "queue turning", -1),
            ("heating", 0, "indoor", 1),
            ("fishery", 0, "adults", -1),
        ],
    )
    def test_more_of_an_action_does_what_it_should(self, name: str, axis: int, column: str, sign: int) -> None:
        """Of the actions that differ in nothing else, at the next step: more insulin means less glucose, and so on."""
        world = WORLDS[name]
        recording, vectors = world.record(100, seed=11), np.array(world.actions.vectors)
        rest = np.delete(vectors, axis, axis=1)
        ladder = np.flatnonzero((rest == rest[0]).all(axis=1))
        assert (np.diff(vectors[ladder, axis]) > 0).all()
        courses = [
            columns(world, recording.replay(recording.ids, np.full_like(recording.actions, action)).states)[column]
            for action in ladder
        ]
        assert (sign * np.diff(np.array(courses)[:, :, 1], axis=0) > 0).all()

    @each_drawn_world
    def test_extreme_noise_leaves_no_hard_range(self, world: DrawnWorld) -> None:
        given = world.draw(100, seed=21)
        extreme = replace(given, noise=5 * np.sign(given.noise))
        found = columns(world, world.replay(extreme, random_actions(world, 100)).states)
        for one in world.quantities:
            if one.kind == "dynamic" and one.hard:
                assert one.range[0] <= found[one.name].min()
                assert found[one.name].max() <= one.range[1]

    # Not in glucose: its risk grows with the noise above the target, and shrinks with it below.
    @pytest.mark.parametrize("world", [pytest.param(w, id=w.name) for w in DRAWN.values() if w.name != "glucose"])
    def test_a_next_state_tells_the_noise(self, world: DrawnWorld) -> None:
        """So that with everything recorded the truth can be learned: the slopes' determinant never changes its sign."""
        recording = world.record(200, seed=22)
        given, doses = recording.circumstances, np.array(world.actions.vectors)[recording.actions[:, 3]]
        assert world.noises == len(world.columns("dynamic"))

        def following(noise: np.ndarray) -> np.ndarray:
            return world.advance(recording.states[:, 3], given.static, given.context[:, 3], doses, noise)

        noise, little = given.noise[:, 3], 1e-4
        slopes = np.stack(
            [following(noise + little * unit) - following(noise - little * unit) for unit in np.eye(world.noises)],
            axis=2,
        )
        signs = np.sign(np.linalg.det(slopes / np.abs(slopes).max(axis=(0, 2))[:, None]))
        assert (signs == signs[0]).all()
        assert signs[0] != 0

    @each_world
    def test_outcomes_are_those_that_ifonly_sees(self, world: World) -> None:
        recording = world.record(20, seed=12)
        cohort = recording.cohort()
        model = fit(LocationScale(cohort.schema, hidden=(4,)), cohort, epochs=1)
        problem = asking.Question(1, world.reward).problem(cohort[3], model)
        assert problem.observed_outcome == pytest.approx(recording.outcomes[3])


class TestVariants:
    @each_variant
    def test_they_hide_what_they_claim_and_nothing_else(self, world: World, variant: Variant) -> None:
        name, hidden = variant.name, set(variant.hidden)
        recording = world.record(10, 13, name)
        plain, shown = recording.cohort(), recording.cohort(name)
        everything, known = plain.columns(), shown.columns()
        assert set(everything) - set(known) == hidden
        for column in known:
            np.testing.assert_array_equal(known[column], everything[column])
        np.testing.assert_array_equal(shown.actions, plain.actions)
        assert not hidden & set(world.penalties)

    @each_drawn_variant
    def test_those_who_act_know_what_is_hidden_and_it_matters(self, world: DrawnWorld, variant: Variant) -> None:
        """So that it confounds: another value of a hidden column changes preferences, and the next state."""
        recording = world.record(50, seed=14)
        given, vectors = recording.circumstances, np.array(world.actions.vectors)
        arrays = {"dynamic": recording.states[:, 4], "static": given.static, "contextual": given.context[:, 4]}

        def reactions() -> tuple[np.ndarray, np.ndarray]:
            rest = arrays["dynamic"], arrays["static"], arrays["contextual"]
            following = world.advance(*rest, np.repeat(vectors[-1:], 50, axis=0), given.noise[:, 4])
            return world.preferences(*rest), following

        liked, following = reactions()
        kinds = {one.name: one.kind for one in world.quantities}
        for kind in {kinds[name] for name in variant.hidden}:
            places = [world.columns(kind).index(n) for n in variant.hidden if kinds[n] == kind]
            arrays[kind] = arrays[kind].copy()
            arrays[kind][:, places] *= np.linspace(0.8, 1.1, len(places))
        liked_then, following_then = reactions()
        # Not in all: where nothing at all is wanted, or more than there is, a little more or less changes nothing.
        assert (np.abs(liked_then - liked).max(axis=1) > 1e-6).mean() > 0.4
        # Nor here: a full battery takes no more, whatever its size.
        assert (np.abs(following_then - following).max(axis=1) > 1e-6).mean() > 0.6

    @each_drawn_world
    def test_one_of_each_kind(self, world: World) -> None:
        assert variants_of(world) == [PLAIN, "column", "constant", "drift"]
        kinds = {one.name: one.kind for one in world.quantities}
        assert {kinds[name] for name in world.variant("constant").hidden} == {"static"}
        assert {kinds[name] for name in world.variant("drift").hidden} == {"contextual"}
        with pytest.raises(InputError, match="choose from"):
            world.variant("drit")

    def test_hard_ranges_may_get_another_scaling(self) -> None:
        assert Quantity("x", "dynamic", "", (0, 1), hard=True).feature("linear").scaling == "linear"
        assert Quantity("x", "dynamic", "", (0, 1)).feature("bounded").scaling == "linear"
        assert Quantity("x", "static", "", (0, 1), hard=True).feature("bounded").scaling == "linear"


class TestSepsis:
    """The adapter shows the package's own world, and no other."""

    @pytest.mark.parametrize("variant", variants_of(WORLDS["sepsis"]))
    def test_records_are_those_of_the_simulation(self, variant: str) -> None:
        scenario = SCENARIOS[RIGHT if variant == PLAIN else variant]
        truth = SepsisWorld(scenario.world)
        complete = simulate_cohort(30, seed=18, horizon=12, world=truth, clinician=scenario.clinician)
        expected, recording = truth.recorded(complete), WORLDS["sepsis"].record(30, 18, variant)
        found = recording.cohort(variant, "bounded")
        assert found.schema == expected.schema
        assert found.subjects == expected.subjects
        np.testing.assert_array_equal(found.actions, expected.actions)
        np.testing.assert_array_equal(found.context, expected.context)
        np.testing.assert_allclose(found.states, expected.states, rtol=1e-9)
        linear = recording.cohort(variant).schema.features
        assert {feature.name for feature in found.schema.features if feature not in linear} == {"FiO2", "GCS", "SOFA"}

    @pytest.mark.parametrize("variant", variants_of(WORLDS["sepsis"]))
    def test_replays_are_the_simulated_worlds_own(self, variant: str) -> None:
        """Which abducts the noise from what was recorded, where this one was told."""
        scenario = SCENARIOS[RIGHT if variant == PLAIN else variant]
        truth = SepsisWorld(scenario.world)
        complete = simulate_cohort(10, seed=19, horizon=12, world=truth, clinician=scenario.clinician)
        recording = WORLDS["sepsis"].record(10, 19, variant)
        actions = random_actions(recording.world, 10)
        course = recording.replay(recording.ids, actions)
        for number, episode in enumerate(complete):
            problem = asking.Question(None).problem(episode, truth)
            assert problem.outcome(actions[number]) == pytest.approx(course.outcomes[number], rel=1e-6)

    def test_a_variant_is_a_world_of_its_own(self) -> None:
        world = WORLDS["sepsis"]
        plain, confounded = (world.record(5, 20, variant) for variant in (PLAIN, "confounded"))
        assert "frailty" in confounded.cohort().columns()
        assert (plain.states != confounded.states).any()
        with pytest.raises(InputError, match="another world"):
            plain.cohort("confounded")


SMALL = {"episodes": 60, "asked": 4, "max_changes": 1}


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> str:
    """Adding one takes one line."""
    monkeypatch.setitem(RECIPES, "quick", FitPlan(lipschitz=(1.0, 0.1), hidden=(8,), epochs=5))
    monkeypatch.setattr("paper.worlds_study.HELD_OUT", 30)
    return "quick"


class TestStudy:
    @pytest.mark.parametrize(("world", "variant"), [("glucose", "drift"), ("sepsis", "misspecified")])
    def test_a_cell_from_record_to_truth(self, world: str, variant: str, recipe: str) -> None:
        cell = measure(CellSettings(world, variant, recipe, **SMALL))
        assert len(cell.answers) == 4
        assert cell.verdict in ("pass", "warn", "fail", "not judged")
        assert cell.random_sequences == 4 * 20
        for answer in cell.answers:
            # One change: the best one in the world is found exactly, and no answer beats it.
            assert answer.true <= answer.attainable + 1e-9
            assert answer.promised >= 0
            assert 0 <= answer.impossible <= answer.predicted <= 15
        assert WorldCell.from_dict(json.loads(json.dumps(cell.to_dict(), allow_nan=False))) == cell

    def test_the_command_resumes(self, run, recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        words = ("worlds", "--world", "battery", "--variant", PLAIN, "--recipe", recipe, "--episodes", 60)
        words = (*words, "--asked", 3, "-k", 1, "--workers", 1, "--out", tmp_path / "cells")
        page = tmp_path / "page.md"
        page.write_text(f"# Before\n{BEGIN}\nold\n{END}\nafter\n")
        first = run(*words, "--json", "--page", page)
        assert first.exit_code == 0, first.output
        (cell,) = json.loads(first.stdout)["cells"]
        assert cell["settings"]["world"] == "battery"
        assert [path.name for path in (tmp_path / "cells").iterdir()] == ["battery-plain-quick-linear-0.json"]
        text = page.read_text()
        assert text.startswith("# Before\n")
        assert text.endswith("after\n")
        assert "old" not in text
        assert "### Battery" in text

        monkeypatch.setitem(RECIPES, recipe, None)  # would fail if anything were fitted again
        again = run(*words, "--json")
        assert json.loads(again.stdout)["cells"] == [cell]
        shown = run(*words)
        assert shown.exit_code == 0
        assert "truly help" in shown.stdout
        assert run(*words, "-k", 2).exit_code == 3  # the same cell under other settings

    def test_attainable_gains_grow_with_the_budget(self) -> None:
        recording = WORLDS["epidemic"].record(6, seed=15)
        one, two = (attainable(recording, recording.ids, changes) for changes in (1, 2))
        assert (one >= 0).all()
        assert (two >= one).all()

    def test_all_cells_the_plain_ones_first(self) -> None:
        cells = cells_of((), (), ())
        assert len({cell.file for cell in cells}) == len(cells) == len(WORLDS) * 4 * len(RECIPES)
        assert {cell.variant for cell in cells if cell.world == "sepsis"} == set(variants_of(WORLDS["sepsis"]))
        assert {cell.world for cell in cells_of((), ["drift"], ())} == set(WORLDS) - {"sepsis"}
        for wrong in ((["sepsi"], (), ()), (["sepsis"], ["drift"], ()), ((), ["drit"], ())):
            with pytest.raises(InputError, match="choose from"):
                cells_of(*wrong)
        assert [cell.variant for cell in cells[: len(WORLDS) * len(RECIPES)]] == [PLAIN] * len(WORLDS) * len(RECIPES)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"world": "glucos"},
            {"recipe": "fee"},
            {"variant": "plan"},
            {"asked": 0},
            {"max_changes": 0},
            {"scaling": "log"},
        ],
    )
    def test_what_does_not_exist_is_refused(self, wrong: dict[str, object]) -> None:
        with pytest.raises(InputError):
            replace(CellSettings("glucose", PLAIN, "free"), **wrong)

    def test_foreign_files_are_refused(self, tmp_path: Path) -> None:
        settings = CellSettings("glucose", PLAIN, "free")
        (tmp_path / settings.file).write_text("[]")
        with pytest.raises(StoreError, match="not a cell"):
            carry_out([settings], tmp_path)
        with pytest.raises(StoreError, match="no lines"):
            fill_page(tmp_path / "page.md", [])
        assert kept_in(tmp_path / "nowhere").find(settings) is None


class TestTables:
    def cell(self) -> WorldCell:
        def answer(number: int, true: float, changes: int = 2) -> Answer:
            promised = 3.0 * number if changes else 0.0
            return Answer(f"e{number}", changes, "optimal", promised, promised, true, 9.5, 1, 8, 0.25, 0.5)

        answers = (answer(1, 2.0), answer(2, -4.0), answer(3, 5.5), answer(4, 0.0, changes=0))
        settings = CellSettings("glucose", PLAIN, "free", asked=4)
        return WorldCell(settings, "fail", ("shape: fail",), 1.234, 0.5, 80, 20, -1.0, answers, 60.0)

    def test_shares_and_ratios_follow_from_the_numbers_beside_them(self) -> None:
        cell = self.cell()
        row = summary([cell]).row(0, named=True)
        hits, count, percent, low, high = (
            float(number) for number in re.findall(r"[\d.]+", row["truly help"].replace(",", ""))
        )
        assert (hits, count) == (2, 3)
        assert percent == round(100 * hits / count)
        assert low < percent < high
        assert float(row["true / promised"]) == pytest.approx(float(row["true"]) / float(row["promised"]), abs=0.005)
        assert row["random changes help"] == "25%"
        assert row["impossible states"] == "12%"
        assert row["worst"] == "-4.00"
        other = background([cell]).row(0, named=True)
        assert other["proven"] == "100%"
        assert other["check"] == "fail"

    def test_all_worlds_together_are_the_sum_of_their_cells(self) -> None:
        cell = self.cell()
        other = replace(cell, verdict="pass", answers=(replace(cell.answers[0], impossible=0), *cell.answers[2:]))
        hidden = replace(cell, settings=replace(cell.settings, variant="drift"))
        rows = overview([hidden, cell, other]).to_dicts()
        assert [row["recorded"] for row in rows] == ["everything", "something hidden"]
        assert (rows[0]["cells"], rows[0]["check: pass, warn, fail"]) == ("2", "1, 0, 1")
        assert rows[0]["truly help"].startswith("4 of 5, 80% ")
        assert rows[0]["by cell"] == "67% to 100%"
        # Promised 3, 6 and 9, true 2, -4 and 5.5; then 3 and 9, 2 and 5.5.
        assert rows[0]["true / promised"] == f"{3.5 / 18:.2f} to {7.5 / 12:.2f}"
        assert rows[0]["impossible states"] == f"{1 / 16:.1%} to {3 / 24:.1%}"
        assert rows[1]["by cell"] == "67%"

    def test_nothing_given_is_no_share(self) -> None:
        cell = replace(self.cell(), answers=self.cell().answers[3:])
        row = summary([cell]).row(0, named=True)
        assert row["truly help"] == row["true / promised"] == row["worst"] == "-"
