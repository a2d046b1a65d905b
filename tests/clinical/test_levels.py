"""Levels of doses: learned, fixed, merged; and the actions that they make."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st

from ifonly.clinical.grid import FLUIDS, VASOPRESSORS, clinical_schema
from ifonly.clinical.levels import (
    PAPER,
    LevelChoice,
    Levels,
    assign_actions,
    choose_levels,
    learn_levels,
    levels_to_dict,
    merge_rare,
    read_levels,
    training_subjects,
)
from ifonly.data.cohort import Cohort
from ifonly.errors import InputError, StoreError
from ifonly.simulate.world import sepsis_schema


def test_quartile_medians() -> None:
    doses = np.array([0.0, 0.0, *range(1, 101)])
    levels, remarks = learn_levels(doses, name="fluids")
    assert levels.doses == (0.0, 13.0, 38.0, 63.0, 88.0)
    assert levels.edges == (25.75, 50.5, 75.25)
    assert levels.counts(doses) == [2, 25, 25, 25, 25]
    assert remarks == ()


DOSES = st.lists(st.sampled_from([0.0, 0.001, 0.5, 1.0, 1.001, 2.0, 30.0, 1000.0, 1000.4]), min_size=1, max_size=40)


@settings(max_examples=some(200), deadline=None)
@given(DOSES)
def test_learned_levels_hold_whatever_the_doses(values: list[float]) -> None:
    doses = np.array(values)
    if not doses.any():
        with pytest.raises(InputError, match="no step of the training split has a dose above zero"):
            learn_levels(doses, name="fluids")
        return
    levels, remarks = learn_levels(doses, name="fluids")
    numbers = levels.assign(doses)
    assert len(levels.doses) <= 5
    assert bool(remarks) == (len(levels.doses) < 5)
    assert ((numbers == 0) == (doses == 0)).all()
    assert set(numbers[doses > 0]) == set(range(1, len(levels.doses))), "no level is empty"
    order = np.argsort(doses)
    assert (np.diff(numbers[order]) >= 0).all()
    for number in range(1, len(levels.doses)):
        assert levels.doses[number] == pytest.approx(np.median(doses[numbers == number]), rel=0.006)


def test_doses_that_coincide_give_fewer_levels_and_say_so() -> None:
    levels, remarks = learn_levels(np.array([0.0, 5.0, 5.0, 5.0, 5.0, 9.0]), name="vasopressors")
    assert levels.doses == (0.0, 5.0, 9.0)
    assert "2 levels above zero instead of 4" in remarks[0]


def test_the_edge_belongs_to_the_lower_level() -> None:
    levels = Levels((0, 1, 3), (2,))
    assert levels.assign(np.array([0.0, 1e-9, 2.0, 2.0001, 99.0])).tolist() == [0, 1, 1, 2, 2]


def test_levels_without_edges_are_parted_by_geometric_means() -> None:
    levels = PAPER[FLUIDS]
    assert levels.edges == pytest.approx((np.sqrt(30 * 80), np.sqrt(80 * 279), np.sqrt(279 * 850)))
    assert levels.assign(np.array(levels.doses)).tolist() == [0, 1, 2, 3, 4]


def test_the_papers_levels_are_those_of_the_simulated_world() -> None:
    schema = clinical_schema(PAPER[VASOPRESSORS].doses, PAPER[FLUIDS].doses)
    assert schema.fingerprint == sepsis_schema().fingerprint


def test_rare_levels_are_merged_into_the_neighbour_with_fewer_uses() -> None:
    doses = np.repeat([0.0, 1.0, 2.0, 3.0, 4.0], [50, 10, 2, 5, 20])
    levels = Levels((0, 1, 2, 3, 4), (1.5, 2.5, 3.5))
    merged, remarks = merge_rare(levels, doses, least=6, name="fluids")
    assert merged.edges == (1.5, 3.5)
    assert merged.doses == (0.0, 1.0, 3.0, 4.0)
    assert "4 levels above zero became 3" in remarks[0]
    assert min(merged.counts(doses)[1:]) >= 6
    assert merge_rare(levels, doses, least=2, name="fluids") == (levels, ())


def test_levels_that_were_not_merged_keep_their_dose() -> None:
    fixed = Levels.of_doses((0, 1, 10, 100))
    merged, _ = merge_rare(fixed, np.array([0.5] * 9 + [12.0, 90.0]), least=2, name="fluids")
    assert merged.doses == (0.0, 1.0, 51.0)


def test_too_few_doses_for_the_uses_asked_for() -> None:
    with pytest.raises(InputError, match="only 2 steps of the training split"):
        merge_rare(Levels((0, 1), ()), np.array([0.0, 1.0, 1.0]), least=3, name="fluids")


@pytest.mark.parametrize(
    ("doses", "edges"),
    [((1, 2), ()), ((0,), ()), ((0, 2, 1), (1.5,)), ((0, 1, 2), ()), ((0, 1, 2), (0,)), ((0, 1, 2, 3), (2, 1))],
)
def test_wrong_levels_are_refused(doses: tuple[float, ...], edges: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="must"):
        Levels(doses, edges)


def test_levels_come_back_from_their_file(tmp_path: Path) -> None:
    levels = {VASOPRESSORS: Levels((0, 0.1, 0.7), (0.3,)), FLUIDS: Levels((0, 100), ())}
    (tmp_path / "levels.json").write_text(json.dumps(levels_to_dict(levels)))
    assert read_levels(tmp_path / "levels.json") == levels


def test_levels_written_by_hand(tmp_path: Path) -> None:
    (tmp_path / "levels.yaml").write_text("vasopressors: [0, 0.1, 0.4]\nfluids: {doses: [0, 50, 500], edges: [200]}\n")
    levels = read_levels(tmp_path / "levels.yaml")
    assert levels == {VASOPRESSORS: Levels.of_doses((0, 0.1, 0.4)), FLUIDS: Levels((0, 50, 500), (200,))}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vasopressors: [0, 1]", "needs the keys"),
        ("vasopressors: [0, 1]\nfluids: much", "needs a list of numbers"),
        ("vasopressors: [0, 1]\nfluids: [5, 6]", "fluids: levels .* must begin with 0"),
        ("vasopressors: [0, .nan]\nfluids: [0, 6]", "needs a list of numbers"),
        ("vasopressors: [0, -1, 3]\nfluids: [0, 6]", "must begin with 0 and increase"),
        ("[: ", "not valid YAML"),
    ],
)
def test_wrong_files_of_levels(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "levels.yaml").write_text(text)
    with pytest.raises((InputError, StoreError), match=message):
        LevelChoice(levels=str(tmp_path / "levels.yaml")).check()


def test_a_missing_file_of_levels(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        read_levels(tmp_path / "none.yaml")


def doses_of(subjects: int, steps: int = 4, seed: int = 0) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    names = np.repeat([f"s{n}" for n in range(subjects)], steps)
    rates = random.exponential(0.3, len(names)) * (random.random(len(names)) < 0.6)
    return pl.DataFrame({"subject": names, "vasopressor": rates, "fluid": random.exponential(200, len(names))})


def test_levels_are_learned_on_the_training_side_of_the_cohorts_split() -> None:
    grid = doses_of(30)
    choice = LevelChoice(test=0.3, seed=5)
    schema = sepsis_schema()
    cohort = Cohort(
        schema=schema,
        ids=tuple(f"e{n}" for n in range(60)),
        subjects=tuple(f"s{n // 2}" for n in range(60)),
        offsets=np.arange(0, 121, 2),
        states=np.tile([50.0, 90, 200, 1, 15, 80, 1, 100, 3], (120, 1)),
        context=np.tile([1.0, 0, 60, 0], (120, 1)),
        actions=np.zeros(120, dtype=np.int64),
    )
    training, test = cohort.split(test=0.3, seed=5)
    assert set(training_subjects(grid["subject"], choice)) == set(training.subjects)
    learned, _ = choose_levels(grid, choice)
    of_test = pl.col("subject").is_in(list(set(test.subjects)))
    changed = grid.with_columns(pl.when(of_test).then(pl.col(c) * 50).otherwise(c).alias(c) for c in grid.columns[1:])
    assert choose_levels(changed, choice)[0] == learned
    assert choose_levels(grid.with_columns(pl.col("fluid") * 2), choice)[0] != learned


def test_a_single_subject_is_its_own_training_split() -> None:
    assert training_subjects(pl.Series(["s", "s"]), LevelChoice()).to_list() == ["s"]


def test_actions_are_numbered_as_the_schema_does() -> None:
    levels, _ = choose_levels(doses_of(20), LevelChoice(levels="paper"))
    schema = clinical_schema(levels[VASOPRESSORS].doses, levels[FLUIDS].doses)
    vectors = np.array(schema.actions.vectors)
    grid = pl.DataFrame({"vasopressor": vectors[:, 0], "fluid": vectors[:, 1]})
    assert assign_actions(grid, levels).tolist() == list(range(25))


@pytest.mark.parametrize("choice", [LevelChoice(test=0.0), LevelChoice(test=1.0), LevelChoice(min_uses=-1)])
def test_impossible_choices(choice: LevelChoice) -> None:
    with pytest.raises(InputError, match="levels:"):
        choice.check()


def test_merging_on_request() -> None:
    grid = doses_of(30)
    plain, none = choose_levels(grid, LevelChoice())
    merged, remarks = choose_levels(grid, LevelChoice(min_uses=30))
    assert (len(plain[VASOPRESSORS].doses), none) == (5, ())
    assert len(merged[VASOPRESSORS].doses) < 5
    assert "merged" in remarks[0]
