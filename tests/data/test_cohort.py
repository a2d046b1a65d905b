import math
import pickle

import numpy as np
import pytest
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st
from random_cohorts import MODERATE, assert_same, cohorts

from ifonly.data import ActionSpace, Cohort, Episode, Feature, Schema
from ifonly.errors import InputError, PlausibilityWarning, SchemaMismatchError

relaxed = settings(deadline=None, derandomize=True, max_examples=some(60))
random_cohorts = cohorts(values=MODERATE, positive=st.floats(1e-3, 1e6))
quiet = pytest.mark.filterwarnings("ignore::ifonly.errors.PlausibilityWarning")

SCHEMA = Schema(
    (Feature("age", "static"), Feature("heat", "dynamic", unit="C", plausible=(0, 100)), Feature("wind", "contextual")),
    ActionSpace.categories(["wait", "act", "stop"]),
)


def make(lengths=(2, 3, 4), subjects=(), seed=0, **changes):
    generator = np.random.default_rng(seed)
    total = sum(lengths)
    content = {
        "schema": SCHEMA,
        "ids": tuple(f"e{i}" for i in range(len(lengths))),
        "offsets": np.cumsum([0, *lengths]),
        "states": generator.uniform(20, 30, size=(total, 1)),
        "context": np.column_stack([np.repeat(np.arange(len(lengths)), lengths), generator.normal(size=total)]),
        "actions": generator.integers(3, size=total),
        "subjects": subjects,
    }
    return Cohort(**{**content, **changes})


def many(count=60, per_subject=3, seed=0):
    lengths = np.random.default_rng(seed).integers(2, 6, size=count)
    return make(tuple(lengths), subjects=tuple(f"s{i // per_subject}" for i in range(count)), seed=seed)


def test_episodes_by_position_by_id_and_one_by_one():
    cohort = make()
    assert len(cohort) == 3
    assert cohort.lengths.tolist() == [2, 3, 4]
    assert [episode.id for episode in cohort] == ["e0", "e1", "e2"]
    np.testing.assert_array_equal(cohort["e1"].states, cohort.states[2:5])
    np.testing.assert_array_equal(cohort[-1].actions, cohort.actions[5:])
    assert cohort[np.int64(1)].id == "e1"
    assert "e1" in cohort
    assert "e9" not in cohort
    with pytest.raises(IndexError):
        cohort[3]
    with pytest.raises(InputError, match="no episode 'e9' in this cohort of 3"):
        cohort["e9"]


@quiet
@given(random_cohorts)
@relaxed
def test_a_cohort_equals_its_episodes_put_together(cohort):
    assert_same(Cohort.from_episodes(cohort), cohort)
    assert_same(pickle.loads(pickle.dumps(cohort)), cohort)


def test_episodes_of_another_schema_are_refused():
    other = Schema((Feature("heat", "dynamic", unit="F"),), SCHEMA.actions)
    stranger = Episode("x", other, states=[[1.0], [2.0]], actions=[0, 0])
    with pytest.raises(SchemaMismatchError, match=r"episode 'e0' and episode 'x'(.|\n)*unit F"):
        Cohort.from_episodes([make()[0], stranger])
    with pytest.raises(InputError, match="at least one episode"):
        Cohort.from_episodes([])


def test_arrays_are_frozen_and_independent_of_those_handed_in():
    states = np.full((4, 1), 25.0)
    cohort = make((2, 2), states=states)
    states[0] = 99.0
    assert cohort.states[0] == 25.0
    assert states.flags.writeable
    for part in (cohort, cohort.select(["e1"]), cohort[0]):
        for name in ("states", "context", "actions"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(part, name)[0] = 1
    for part in (cohort, cohort.select(["e1"])):
        with pytest.raises(ValueError, match="read-only"):
            part.offsets[0] = 1


def test_iterating_copies_nothing():
    cohort = make()
    assert np.shares_memory(cohort[1].states, cohort.states)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ids": ()}, ["at least one episode"]),
        ({"ids": ("a", "b", "a")}, ["'a'", "more than once", "unique"]),
        ({"ids": ("a", "b", 3)}, ["episode id 3", "position 2", "text"]),
        ({"subjects": ("s", "", "s")}, ["subject id ''", "position 1"]),
        ({"subjects": ("s", "s")}, ["2 subjects for 3 episodes"]),
        ({"offsets": [0, 2, 9]}, ["offsets", "0 to 9"]),
        ({"offsets": [0, 2, 5, 8]}, ["offsets", "0 to 9"]),
        ({"offsets": [0, 2.5, 5, 9]}, ["offsets", "whole numbers"]),
        ({"offsets": [0, 1, 5, 9]}, ["'e0'", "1 step(s)", "at least two"]),
        ({"offsets": np.array([0, 5, 2, 9], dtype=np.uint64)}, ["'e1'", "at least two"]),
        ({"actions": np.zeros(8, dtype=int)}, ["9 states", "8 actions"]),
        ({"context": np.zeros((8, 2))}, ["8 context rows"]),
        ({"states": np.zeros((9, 2))}, ["states have 2 column(s)", "['heat']"]),
        ({"actions": [0, 1, 2, 0, 1.5, 0, 0, 0, 0]}, ["'e1', step 2", "the action is not a whole number"]),
        ({"actions": [0, 1, 2, 0, 1, 0, 0, 3, 0]}, ["'e2', step 2", "the action is unknown", "0 to 2"]),
        ({"states": [[1.0]] * 6 + [[math.nan]] + [[1.0]] * 2}, ["'e2', step 1", "heat is not finite", "fill or drop"]),
        ({"context": [[0, 0]] * 4 + [[1, 0]] + [[0, 0]] * 4}, ["'e1', step 2", "static feature age changes"]),
    ],
)
def test_bad_input_is_refused_with_its_place(changes, expected):
    with pytest.raises(InputError) as caught:
        make(**changes)
    for part in expected:
        assert part in str(caught.value)


def test_implausible_values_are_counted_and_follow_the_selection():
    states = np.full((9, 1), 25.0)
    states[[0, 1, 8]] = [[-1.0], [101.0], [500.0]]
    with pytest.warns(PlausibilityWarning, match="cohort of 3 episodes.*heat 3") as caught:
        cohort = make(states=states)
    assert len(caught) == 1
    assert cohort.implausible == {"heat": 3}
    assert cohort.select(["e2"]).implausible == {"heat": 1}
    assert cohort.select(["e1"]).implausible == {}
    assert cohort.states[8] == 500.0


@quiet
@given(random_cohorts, st.data())
@relaxed
def test_filter_and_select_keep_episodes_as_they_are(cohort, data):
    mask = data.draw(st.lists(st.booleans(), min_size=len(cohort), max_size=len(cohort)).filter(any))
    chosen = [id for id, kept in zip(cohort.ids, mask, strict=True) if kept]
    expected = Cohort.from_episodes([cohort[id] for id in chosen])
    assert_same(cohort.filter(mask), expected)
    assert_same(cohort.filter(np.array(mask)), expected)
    assert_same(cohort.filter(lambda episode: episode.id in chosen), expected)
    assert_same(cohort.select(chosen), expected)
    assert_same(cohort.select(chosen[::-1]), Cohort.from_episodes([cohort[id] for id in chosen[::-1]]))


def test_selections_that_make_no_sense_are_refused():
    cohort = make()
    with pytest.raises(InputError, match="keeps no episode"):
        cohort.filter([False] * 3)
    with pytest.raises(InputError, match="keeps no episode"):
        cohort.select([])
    with pytest.raises(InputError, match="3 episodes; found bool"):
        cohort.filter([True] * 2)
    with pytest.raises(InputError, match="true or false"):
        cohort.filter([0, 1, 2])
    with pytest.raises(InputError, match="'e1' more than once"):
        cohort.select(["e1", "e1"])
    with pytest.raises(InputError, match="no episode 'zz'"):
        cohort.select(["zz"])


def subjects_of(cohort):
    return set(cohort.subjects)


@given(st.integers(2, 40), st.integers(1, 4), st.floats(0.01, 0.99), st.integers(0, 5))
@relaxed
def test_a_split_divides_subjects(count, per_subject, share, seed):
    cohort = many(count, per_subject)
    total = len(subjects_of(cohort))
    if total < 2:
        with pytest.raises(InputError, match="at least two subjects"):
            cohort.split(test=share, seed=seed)
        return
    train, test = cohort.split(by="subject", test=share, seed=seed)
    assert not subjects_of(train) & subjects_of(test)
    assert sorted(train.ids + test.ids) == sorted(cohort.ids)
    assert abs(len(subjects_of(test)) - share * total) <= 1
    assert_same(test, cohort.select(test.ids))


def test_a_split_depends_on_the_seed_alone():
    cohort = many()
    order = np.random.default_rng(1).permutation(len(cohort))
    shuffled = cohort.select([cohort.ids[i] for i in order])
    tests = [frozenset(cohort.split(seed=seed)[1].ids) for seed in range(5)]
    assert tests == [frozenset(cohort.split(seed=seed)[1].ids) for seed in range(5)]
    assert tests == [frozenset(shuffled.split(seed=seed)[1].ids) for seed in range(5)]
    assert len(set(tests)) == 5


def test_splits_that_make_no_sense_are_refused():
    for share in (0, 1, -0.1, math.nan):
        with pytest.raises(InputError, match="strictly between 0 and 1"):
            many().split(test=share)
    with pytest.raises(InputError, match=r"by='time'.*'subject'"):
        many().split(by="time")


@pytest.mark.parametrize("count", [2, 3, 7, 20])
def test_folds_are_a_partition_by_subject(count):
    cohort = many()
    folds = cohort.folds(count, seed=3)
    assert len(folds) == count
    assert sorted(id for _, part in folds for id in part.ids) == sorted(cohort.ids)
    for train, validation in folds:
        assert not subjects_of(train) & subjects_of(validation)
        assert sorted(train.ids + validation.ids) == sorted(cohort.ids)
    sizes = [len(subjects_of(part)) for _, part in folds]
    assert max(sizes) - min(sizes) <= 1
    again = cohort.folds(count, seed=3)
    assert [part.ids for _, part in folds] == [part.ids for _, part in again]
    assert [part.ids for _, part in folds] != [part.ids for _, part in cohort.folds(count, seed=4)]


@pytest.mark.parametrize("count", [0, 1, 21])
def test_too_few_or_too_many_folds_are_refused(count):
    with pytest.raises(InputError, match=f"count={count}.*20"):
        many().folds(count)


@quiet
@given(random_cohorts)
@relaxed
def test_transitions_are_those_of_a_plain_loop(cohort):
    expected = [
        (episode.states[t], episode.context[t], episode.actions[t], episode.states[t + 1], position)
        for position, episode in enumerate(cohort)
        for t in range(len(episode) - 1)
    ]
    found = cohort.transitions()
    assert len(found) == len(expected) == len(cohort.actions) - len(cohort)
    columns = (found.states, found.context, found.actions, found.next_states, found.episode)
    for column, values in zip(columns, zip(*expected, strict=True), strict=True):
        np.testing.assert_array_equal(column, np.array(values))


def test_a_summary_says_what_is_there():
    states = np.array([[10.0], [20.0], [30.0], [40.0], [150.0]])
    with pytest.warns(PlausibilityWarning):
        cohort = make((2, 3), subjects=("s", "s"), states=states, actions=[0, 0, 2, 0, 0])
    summary = cohort.summary()
    assert (summary.episodes, summary.subjects, summary.steps) == (2, 1, 5)
    assert (summary.shortest, summary.longest) == (2, 3)
    assert summary.action_counts == (4, 0, 1)
    assert [feature.name for feature in summary.features] == ["age", "heat", "wind"]
    heat = summary.features[1]
    assert (heat.mean, heat.minimum, heat.maximum, heat.implausible) == (50.0, 10.0, 150.0, 1)
    assert heat.deviation == pytest.approx(np.std(states))
    text = str(summary)
    assert "2 episodes of 1 subjects, 5 steps (horizons 2 to 3), 2 of 3 actions used" in text
    assert "(1 implausible)" in text
    assert repr(cohort) == "Cohort(2 episodes, 1 subjects, 5 steps)"


def test_a_slice_is_a_cohort():
    cohort = make((2, 3, 4, 2, 3))
    for key in (slice(0, 2), slice(-2, None), slice(None, None, 2), slice(None, None, -1)):
        part = cohort[key]
        assert isinstance(part, Cohort)
        assert part.ids == cohort.ids[key]
        for id in part.ids:
            np.testing.assert_array_equal(part[id].states, cohort[id].states)
    with pytest.raises(InputError, match="keeps no episode"):
        cohort[5:]


def test_episodes_of_different_schemas_are_advised_to_part():
    other = Schema((Feature("else", "dynamic"),), ActionSpace.categories(["wait"]))
    episodes = [make()[0], Episode("b", other, states=[[0.0], [1.0]], actions=[0, 0])]
    with pytest.raises(SchemaMismatchError, match=r"All episodes of a cohort share one schema; make a cohort for each"):
        Cohort.from_episodes(episodes)


def test_pooled_cohorts_keep_every_value_and_where_it_comes_from():
    first = make()
    second = first.with_prefix("b ")
    pooled = Cohort.pool([first, second])
    for name in ("states", "context", "actions"):
        part = getattr(first, name)
        np.testing.assert_array_equal(getattr(pooled, name), np.concatenate([part, part]))
    assert pooled.ids == (*first.ids, *(f"b {id}" for id in first.ids))
    carried = make(origins=np.ones_like(first.states, dtype=np.uint8))
    origins = Cohort.pool([carried, second]).origins
    assert origins[: len(first.actions)].all()
    assert not origins[len(first.actions) :].any()
    with pytest.raises(InputError, match=f"pool: {len(first)} ids of episodes are in more than one cohort"):
        Cohort.pool([first, first])
    other = Schema(SCHEMA.features, ActionSpace.categories(["wait", "act", "halt"]))
    with pytest.raises(SchemaMismatchError, match="with the same schema file"):
        Cohort.pool([first, make(schema=other)])
