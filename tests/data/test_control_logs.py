"""Logs of control tasks: plain arrays per episode, spaces, and datasets of Minari and d3rlpy (by stand-ins always)."""

import importlib.util
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ifonly
from ifonly.data import ActionSpace, Axis, Cohort, Episode, Feature, Schema, schema_from_spaces
from ifonly.data.control_logs import log_columns
from ifonly.errors import InputError, StoreError

MINARI = pytest.mark.skipif(
    importlib.util.find_spec("minari") is None or importlib.util.find_spec("gymnasium") is None,
    reason="needs Minari: pip install 'ifonly[minari]'",
)
BOX = SimpleNamespace(low=np.array([-4.8, -np.inf]), high=np.array([4.8, np.inf]), shape=(2,))
DISCRETE = SimpleNamespace(n=np.int64(2), start=np.int64(0), shape=())
MULTI = SimpleNamespace(nvec=np.array([2, 3]), start=np.array([0, 0]), shape=(2,))
SCHEMA = schema_from_spaces(BOX, DISCRETE, features=["place", "speed"], actions=["left", "right"])
MIXED = Schema(
    (
        Feature("wind", "contextual"),
        Feature("place", "dynamic"),
        Feature("mass", "static"),
        Feature("speed", "dynamic"),
    ),
    ActionSpace.product(Axis("push", "N", (0.0, 2.5, 10.0)), Axis("brake", "", (0.0, 1.0))),
)


def logged(length=3, **changes):
    """An episode as a learner keeps it: three actions, four observations."""
    generator = np.random.default_rng(length)
    content = {
        "observations": generator.normal(size=(length + 1, 2)).astype(np.float32),
        "actions": generator.integers(2, size=length),
        "rewards": np.ones(length),
        "terminations": np.arange(length) == length - 1,
        "truncations": np.zeros(length, dtype=bool),
    }
    return {**content, **changes}


@pytest.mark.parametrize("form", [dict, lambda **parts: SimpleNamespace(**parts)], ids=["keys", "attributes"])
def test_every_observation_becomes_a_step_and_the_last_action_is_the_one_before(form):
    records = [logged(3), logged(5)]
    cohort = Cohort.from_logs([form(**record) for record in records], SCHEMA)
    assert cohort.ids == ("episode-0", "episode-1")
    for episode, record in zip(cohort, records, strict=True):
        assert np.array_equal(episode.states, record["observations"])
        assert np.array_equal(episode.actions, [*record["actions"], record["actions"][-1]])


def test_a_log_with_as_many_observations_as_actions_is_taken_as_it_is():
    record = logged(4, observations=np.arange(8.0).reshape(4, 2) / 10, actions=np.array([[0], [1], [1], [0]]))
    (episode,) = Cohort.from_logs([record], SCHEMA)
    assert (len(episode), episode.actions.tolist()) == (4, [0, 1, 1, 0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": np.zeros((3, 3))}, "observations have 3 entries; the schema lists 2"),
        ({"observations": np.zeros((6, 2))}, "6 observations for 3 actions"),
        ({"observations": {"image": 1}}, "observations are a dict of several parts"),
        ({"observations": None}, "has no observations"),
        ({"observations": np.full((4, 2), np.nan)}, "step 0: place is not finite"),
        ({"actions": np.array([0, 2, 0])}, "step 1: the action is none of the schema's 2"),
        ({"actions": np.array([0, -1, 0])}, "step 1: the action is none of the schema's 2"),
        ({"actions": np.array([0.5, 0, 1])}, "cut continuous actions into levels"),
        ({"actions": np.zeros((3, 2), dtype=int)}, "2 choices per step; the schema's actions have 0 axes"),
        ({"actions": np.array(["a", "b", "c"])}, "must be whole numbers"),
        ({"terminations": np.array([False, True, False])}, "step 1: the log goes on after an end"),
        ({"truncations": np.array([True, False, False])}, "step 0: the log goes on after an end"),
    ],
)
def test_a_wrong_log_is_refused_with_its_place(changes, message):
    with pytest.raises(InputError, match=message) as caught:
        Cohort.from_logs([logged(5), logged(3, **changes)], SCHEMA)
    assert "episode 'episode-1'" in str(caught.value)


def test_spaces_become_features_with_ranges_and_actions_or_axes():
    assert [feature.name for feature in SCHEMA.dynamic] == ["place", "speed"]
    assert [feature.plausible for feature in SCHEMA.dynamic] == [(-4.8, 4.8), None]
    assert SCHEMA.actions.is_categorical
    shifted = schema_from_spaces(BOX, SimpleNamespace(n=2, start=5, shape=()))
    assert shifted.actions.labels == ("action 5", "action 6")
    both = schema_from_spaces(BOX, MULTI, actions=["gas", "gear"], step_length=0.02, step_unit="s").actions
    assert [(axis.name, axis.levels) for axis in both.axes] == [("gas", (0.0, 1.0)), ("gear", (0.0, 1.0, 2.0))]
    switches = schema_from_spaces(BOX, SimpleNamespace(n=3, shape=(3,))).actions
    assert len(switches) == 8


@pytest.mark.parametrize(
    ("observation", "action", "message"),
    [
        (SimpleNamespace(n=4, shape=()), DISCRETE, "the state must be a Box"),
        (SimpleNamespace(low=np.zeros((4, 4)), high=np.ones((4, 4)), shape=(4, 4)), DISCRETE, "pictures"),
        (BOX, BOX, "among finitely many actions"),
        (BOX, SimpleNamespace(nvec=np.array([[2, 2]]), shape=(1, 2)), "one row"),
        (BOX, SimpleNamespace(nvec=np.full(40, 2), shape=(40,)), "combinations of choices"),
    ],
)
def test_spaces_that_are_no_schema_are_refused(observation, action, message):
    with pytest.raises(InputError, match=message):
        schema_from_spaces(observation, action)


def test_names_must_be_one_for_each():
    with pytest.raises(InputError, match="3 names for 2"):
        schema_from_spaces(BOX, DISCRETE, features=["a", "b", "c"])


def test_a_dataset_describes_itself_as_minari_and_d3rlpy_do():
    record = logged(3, actions=np.array([1, 2, 1]))
    minari = SimpleNamespace(
        observation_space=BOX,
        action_space=SimpleNamespace(n=2, start=1, shape=()),
        iterate_episodes=lambda: [SimpleNamespace(id=7, **record)],
    )
    (episode,) = Cohort.from_minari(minari)
    assert (episode.id, episode.actions.tolist()) == ("episode-7", [0, 1, 0, 0])
    about = SimpleNamespace(
        action_space=SimpleNamespace(name="DISCRETE"),
        action_size=3,
        observation_signature=SimpleNamespace(shape=[(2,)]),
    )
    same_length = logged(3, observations=record["observations"][:3])
    d3rlpy = SimpleNamespace(dataset_info=about, episodes=[SimpleNamespace(**same_length)])
    cohort = Cohort.from_logs(d3rlpy)
    assert (cohort.schema.actions.labels[-1], len(cohort[0])) == ("action 2", 3)
    for shapes in ([(3, 8, 8)], [(2,), (2,)]):
        pictures = SimpleNamespace(action_space=about.action_space, observation_signature=SimpleNamespace(shape=shapes))
        with pytest.raises(InputError, match="a state is one row of numbers"):
            Cohort.from_logs(SimpleNamespace(dataset_info=pictures, episodes=[]))
    about.action_space.name = "CONTINUOUS"
    with pytest.raises(InputError, match="continuous"):
        Cohort.from_logs(d3rlpy)
    with pytest.raises(InputError, match="give a schema"):
        Cohort.from_logs([record])


def mixed_cohort(seed=0, episodes=4):
    generator = np.random.default_rng(seed)
    made = []
    for number in range(episodes):
        length = int(generator.integers(2, 6))
        context = np.column_stack([generator.normal(size=length), np.full(length, generator.normal())])
        states, actions = generator.normal(size=(length, 2)), generator.integers(6, size=length)
        made.append(Episode(f"e{number}", MIXED, states, actions, context))
    return Cohort.from_episodes(made)


@given(st.integers(0, 10_000))
@settings(deadline=None, derandomize=True, max_examples=10)
def test_a_cohort_as_logs_and_back_is_the_same_but_for_the_last_action(seed):
    cohort = mixed_cohort(seed)
    logs = []
    for episode in cohort:
        seen, actions = log_columns(episode)
        assert seen.shape == (len(episode), 4)
        assert actions.shape == (len(episode) - 1, 2)
        logs.append({"id": episode.id, "observations": seen, "actions": actions})
    assert_same_but_last_actions(Cohort.from_logs(logs, MIXED), cohort)


def assert_same_but_last_actions(found, expected):
    assert np.array_equal(found.states, expected.states)
    assert np.array_equal(found.context, expected.context)
    for one, two in zip(found, expected, strict=True):
        assert np.array_equal(one.actions[:-1], two.actions[:-1])


def test_without_minari_one_sentence_says_what_to_install(monkeypatch):
    def missing(name, *rest):
        raise ImportError(name)

    monkeypatch.setattr("ifonly.data.minari.importlib", SimpleNamespace(import_module=missing))
    for call in (lambda: Cohort.from_minari("cart/pole-v0"), lambda: mixed_cohort().to_minari("cart/pole-v0")):
        with pytest.raises(InputError, match=r"install Minari: pip install 'ifonly\[minari\]'\.$"):
            call()


@MINARI
@pytest.mark.filterwarnings("ignore")
def test_a_cohort_is_stored_in_minari_and_read_again(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    cohort = mixed_cohort()
    stored = cohort.to_minari("ifonly/mixed-v0", rewards=lambda episode: -np.abs(episode.states[1:, 0]))
    assert stored.total_episodes == len(cohort)
    assert_same_but_last_actions(Cohort.from_minari("ifonly/mixed-v0", cohort.schema), cohort)
    first = next(iter(stored.iterate_episodes()))
    assert first.truncations.tolist()[-1] is True
    assert np.allclose(first.rewards, -np.abs(cohort[0].states[1:, 0]))
    with pytest.raises(StoreError, match="no dataset"):
        Cohort.from_minari("ifonly/other-v0")
    with pytest.raises(InputError, match="one for each"):
        cohort.to_minari("ifonly/short-v0", rewards=lambda episode: [0.0])


@MINARI
def test_minari_is_told_what_is_known_and_warns_of_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        plain = mixed_cohort().to_minari("ifonly/plain-v0")
        told = mixed_cohort().to_minari(
            "ifonly/told-v0", author="A. Keeper", author_email="keeper@example.org", description="Of a brake."
        )
    assert [str(one.message) for one in warned if issubclass(one.category, UserWarning)] == []
    assert plain.storage.metadata["algorithm_name"] == "recorded"
    assert "Features: " in plain.storage.metadata["description"]
    assert set(told.storage.metadata["author"]) == {"A. Keeper"}
    assert told.storage.metadata["description"] == "Of a brake."


@MINARI
@pytest.mark.filterwarnings("ignore")
def test_a_task_of_gymnasium_is_read_as_it_was_logged():
    """And replayed with the actions that were read it goes as recorded."""
    import gymnasium

    task = gymnasium.make("CartPole-v1")
    generator, logs = np.random.default_rng(0), []
    for seed in range(3):
        seen, actions, ended = [task.reset(seed=seed)[0]], [], False
        while not ended:
            actions.append(int(generator.integers(2)))
            observation, _, ended, _, _ = task.step(actions[-1])
            seen.append(observation)
        logs.append({"observations": np.array(seen), "actions": np.array(actions)})
    cohort = Cohort.from_logs(logs, schema_from_spaces(task.observation_space, task.action_space))
    for seed, episode in enumerate(cohort):
        assert np.array_equal(episode.states[0], task.reset(seed=seed)[0])
        for state, action in zip(episode.states[1:], episode.actions, strict=False):
            assert np.array_equal(state, task.step(int(action))[0])


@MINARI
@pytest.mark.filterwarnings("ignore")
def test_spaces_of_gymnasium_are_read_like_their_stand_ins():
    from gymnasium import spaces

    box = spaces.Box(np.array([-4.8, -np.inf]), np.array([4.8, np.inf]), dtype=np.float64)
    assert schema_from_spaces(box, spaces.Discrete(2)) == schema_from_spaces(BOX, DISCRETE)
    assert schema_from_spaces(box, spaces.MultiDiscrete([2, 3])) == schema_from_spaces(BOX, MULTI)
    assert len(schema_from_spaces(box, spaces.MultiBinary(3)).actions) == 8
    assert ifonly.schema_from_spaces is schema_from_spaces
