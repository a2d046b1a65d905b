import math
import warnings

import numpy as np
import pytest

from ifonly.data import ActionSpace, Episode, Feature, Schema
from ifonly.errors import InputError, PlausibilityWarning

SCHEMA = Schema(
    (
        Feature("age", "static", plausible=(0, 120)),
        Feature("heat", "dynamic", plausible=(20, 45)),
        Feature("lactate", "dynamic", scaling="log"),
        Feature("hour", "contextual"),
    ),
    ActionSpace.categories(["wait", "act", "stop"]),
)


def parts(**changes):
    good = {
        "id": "case 7",
        "schema": SCHEMA,
        "states": [[36.0, 1.0], [37.0, 2.0], [38.0, 4.0]],
        "context": [[50.0, 0.0], [50.0, 1.0], [50.0, 2.0]],
        "actions": [0, 2, 1],
    }
    return {**good, **changes}


def changed(values, row, column, value):
    table = np.array(values, dtype=float)
    table[row, column] = value
    return table


def test_a_good_episode_keeps_what_it_was_given():
    episode = Episode(**parts(subject="Ann"))
    assert len(episode) == 3
    assert (episode.id, episode.subject) == ("case 7", "Ann")
    np.testing.assert_array_equal(episode.states, parts()["states"])
    np.testing.assert_array_equal(episode.context, parts()["context"])
    assert episode.actions.tolist() == [0, 2, 1]
    assert (episode.states.dtype, episode.actions.dtype) == (np.float64, np.int64)
    assert repr(episode) == "Episode('case 7', subject='Ann', states [3, 2], context [3, 2], actions [3])"


def test_the_subject_is_the_episode_itself_unless_given():
    assert Episode(**parts()).subject == "case 7"


def test_whole_floats_are_actions():
    assert Episode(**parts(actions=np.array([0.0, 2.0, 1.0]))).actions.tolist() == [0, 2, 1]


def test_arrays_are_frozen_and_independent_of_those_handed_in():
    states = np.array(parts()["states"])
    view = states.view()
    view.flags.writeable = False
    for given in (states, view):
        episode = Episode(**parts(states=given))
        states[0, 0] = 41.0
        assert episode.states[0, 0] == 36.0
        states[0, 0] = 36.0
    assert states.flags.writeable
    for array in (episode.states, episode.context, episode.actions):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        episode.states = states


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"states": changed(parts()["states"], 1, 0, math.nan)},
            ["'case 7'", "step 1", "heat is not finite", "fill or drop"],
        ),
        ({"states": changed(parts()["states"], 2, 1, math.inf)}, ["'case 7'", "step 2", "lactate is not finite"]),
        ({"context": changed(parts()["context"], 2, 1, -math.inf)}, ["'case 7'", "step 2", "hour is not finite"]),
        (
            {"states": changed(parts()["states"], 1, 1, 0)},
            ["'case 7'", "step 1", "lactate has no logarithm", "log_offset"],
        ),
        ({"states": changed(parts()["states"], 1, 1, -2)}, ["'case 7'", "lactate is negative", "ends at zero"]),
        ({"context": changed(parts()["context"], 1, 0, 51)}, ["step 1", "static feature age changes"]),
        ({"states": [[36.0], [37.0], [38.0]]}, ["'case 7'", "states have 1 column(s)", "['heat', 'lactate']"]),
        ({"context": [[50.0]] * 3}, ["'case 7'", "context have 1 column(s)", "['age', 'hour']"]),
        ({"states": [36.0, 37.0, 38.0]}, ["'case 7'", "states", "1 dimension(s)"]),
        ({"states": [["a", 1.0]] * 3}, ["'case 7'", "states", "table of numbers"]),
        ({"states": [[1.0, 2.0], [1.0]]}, ["'case 7'", "states", "rectangular"]),
        ({"actions": [0, 1.5, 2]}, ["'case 7'", "step 1", "the action is not a whole number"]),
        ({"actions": [0, math.nan, 2]}, ["'case 7'", "step 1", "the action is not a whole number"]),
        ({"actions": [0, 1e300, 2]}, ["'case 7'", "step 1", "not a whole number"]),
        ({"actions": [0, 1, 3]}, ["'case 7'", "step 2", "the action is unknown", "0 to 2"]),
        ({"actions": [-1, 1, 2]}, ["'case 7'", "step 0", "the action is unknown"]),
        ({"actions": ["wait", "act", "stop"]}, ["'case 7'", "whole numbers"]),
        ({"actions": [True, False, True]}, ["'case 7'", "whole numbers"]),
        ({"actions": [0, 1]}, ["'case 7'", "3 states", "2 actions"]),
        ({"context": [[50.0, 0.0]]}, ["'case 7'", "1 context rows"]),
        (
            {"states": [[36.0, 1.0]], "context": [[50.0, 0.0]], "actions": [0]},
            ["'case 7'", "1 step(s)", "at least two", "leave it out"],
        ),
        ({"id": ""}, ["episode id ''"]),
        ({"id": 7}, ["episode id 7", "text"]),
        ({"id": "a\ud800"}, ["episode id", "printable"]),
        ({"subject": 7}, ["subject id 7", "text"]),
    ],
)
def test_bad_input_is_refused_with_its_place(changes, expected):
    with pytest.raises(InputError) as caught:
        Episode(**parts(**changes))
    for part in expected:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"states": changed(parts()["states"], 1, 1, -4711.5)},
        {"context": changed(parts()["context"], 1, 0, 4711.5)},
        {"states": [["4711,5", 1.0]] * 3},
        {"actions": [0, 4711.5, 2]},
        {"actions": [0, 4711, 2]},
    ],
    ids=["no logarithm", "static", "text", "fraction", "unknown"],
)
def test_messages_name_the_episode_and_no_value(changes):
    with pytest.raises(InputError, match="'case 7'") as caught:
        Episode(**parts(**changes))
    assert "4711" not in str(caught.value)


def test_a_log_offset_admits_zero():
    schema = Schema((Feature("dose", "dynamic", scaling="log", log_offset=0.5),), SCHEMA.actions)
    Episode("a", schema, states=[[0.0], [1.0]], actions=[0, 0])
    with pytest.raises(InputError, match="step 1: dose is negative"):
        Episode("a", schema, states=[[0.0], [-0.5]], actions=[0, 0])


def test_context_may_be_left_out_where_the_schema_has_none():
    schema = Schema((Feature("heat", "dynamic"),), SCHEMA.actions)
    assert Episode("a", schema, states=[[1.0], [2.0]], actions=[0, 0]).context.shape == (2, 0)
    with pytest.raises(InputError, match="0 context rows"):
        Episode(**parts(context=np.empty((0, 0))))


def test_implausible_values_are_kept_counted_and_warned_about_once():
    states = changed(changed(parts()["states"], 0, 0, 19.0), 1, 0, 50.0)
    with pytest.warns(PlausibilityWarning) as caught:
        episode = Episode(**parts(states=states, context=[[130.0, 0.0]] * 3))
    assert episode.states[0, 0] == 19.0
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "'case 7'" in message
    assert "heat 2" in message
    assert "age 3" in message
    assert caught[0].filename == __file__


def test_the_limits_of_a_plausible_range_are_plausible():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Episode(**parts(states=[[20.0, 1.0], [45.0, 1.0], [30.0, 1.0]]))
