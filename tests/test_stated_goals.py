"""Goals as people state them: query files, their words, and which steps count."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ifonly.data import ActionSpace, Axis, Feature, Scaler, Schema
from ifonly.errors import InputError
from ifonly.query import Query
from ifonly.rewards import (
    ActionCost,
    Custom,
    DoseCost,
    Goal,
    Linear,
    TimeInRange,
    Total,
    Within,
    declared_constants,
    features_of,
    minus,
    reward_from_dict,
)
from ifonly.text.goals import goal_messages

SCHEMA = Schema(
    (Feature("SOFA", "dynamic"), Feature("MAP", "dynamic")),
    ActionSpace.product(Axis("vasopressors", "mcg/kg/min", (0, 0.5)), Axis("fluids", "mL", (0, 100, 500))),
    step_length=4,
    step_unit="h",
)

STATED = """
goals:
  - {minimize: SOFA, over: end, weight: 2}
  - {keep: MAP, between: [65, 90], below: 2, over: last 24 hours}
  - {time_in_range: MAP, between: [65, null], margin: 5, discount: 0.9}
  - {weights: {SOFA: -1, MAP: 0.1}, step_weights: [0, 1, 1]}
  - costs: {1: 0.5}
dose_costs: {fluids: 0.001}
"""


def weights_of(goal: Goal, horizon: int, schema: Schema = SCHEMA) -> list[float]:
    bound = goal.bind(schema, Scaler.identity(schema)).over(horizon)
    ones = torch.zeros(horizon, 2, dtype=torch.float64)
    ones[:, 0] = 1.0
    return bound(ones, torch.zeros(horizon, dtype=torch.int64), torch.arange(horizon)).tolist()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"over": "end"}, [0, 0, 0, 1]),
        ({"over": "Last 8 hours"}, [0, 0, 1, 1]),
        ({"over": "last 9 hours"}, [0, 1, 1, 1]),  # a step that is begun counts
        ({"over": "last 9 h"}, [0, 1, 1, 1]),
        ({"over": "first 300min"}, [1, 1, 0, 0]),
        ({"over": "last 1 day"}, [1, 1, 1, 1]),
        ({"over": "first 1 step"}, [1, 0, 0, 0]),
        ({"over": "first 240 minutes"}, [1, 0, 0, 0]),
        ({"over": f"first {'9' * 400} steps"}, [1, 1, 1, 1]),
        ({"over": f"last {'9' * 400} weeks"}, [1, 1, 1, 1]),
        ({"discount": 0.5}, [1, 0.5, 0.25, 0.125]),
        ({"weight": 3, "over": "last 2 steps", "discount": 0.5}, [0, 0, 0.75, 0.375]),
        ({"step_weights": [1, 0, 2, 3], "weight": 2}, [2, 0, 4, 6]),
    ],
)
def test_steps_count_as_said(settings: dict[str, object], expected: list[float]) -> None:
    assert weights_of(Goal(Linear({"SOFA": 1.0}), **settings), 4) == pytest.approx(expected)


def test_goals_of_goals_multiply() -> None:
    inner = Goal(Linear({"SOFA": 1.0}), weight=2, over="last 2 steps")
    assert weights_of(Goal(inner, weight=3, over="first 3 steps"), 4) == [0, 0, 6, 0]


@pytest.mark.parametrize("unit", ["h", "hr", "hour", "hours"])
def test_hours_have_several_names(unit: str) -> None:
    schema = Schema(SCHEMA.features, SCHEMA.actions, step_length=4, step_unit=unit)
    assert weights_of(Goal(Linear({"SOFA": 1.0}), over="last 8 hours"), 4, schema) == [0, 0, 1, 1]


def test_hours_need_steps_that_have_some() -> None:
    plain = Schema(SCHEMA.features, SCHEMA.actions)
    with pytest.raises(InputError, match=r"does not say how long a step is.*'last 6 steps'"):
        Goal(minus("SOFA"), over="last 24 hours").bind(plain, Scaler.identity(plain))


def test_a_query_says_goals_and_keeps_them(tmp_path: Path) -> None:
    (tmp_path / "stated.yaml").write_text(STATED)
    query = Query.load(tmp_path / "stated.yaml")
    assert query.reward == Total(
        (
            Goal(minus("SOFA"), weight=2, over="end"),
            Goal(Within("MAP", 65, 90, below=2), over="last 24 hours"),
            Goal(TimeInRange("MAP", 65, None, 5), discount=0.9),
            Goal(Linear({"SOFA": -1, "MAP": 0.1}), step_weights=(0, 1, 1)),
            ActionCost({1: 0.5}),
            DoseCost({"fluids": 0.001}),
        )
    )
    for name in ("again.yaml", "again.json"):
        query.save(tmp_path / name)
        again = Query.load(tmp_path / name)
        assert again == query
        assert again.fingerprint == query.fingerprint
    other = query.with_changes(reward=Total((Goal(minus("SOFA"), weight=3, over="end"), *query.reward.parts[1:])))
    assert other.fingerprint != query.fingerprint
    assert features_of(query.reward) == {"SOFA", "MAP"}


def test_queries_of_before_mean_what_they_meant() -> None:
    assert Query.from_dict({"minimize": "SOFA", "costs": {1: 0.5}}).reward == minus("SOFA") + ActionCost({1: 0.5})
    assert Query.from_dict({"goals": [{"minimize": "SOFA"}]}).reward == minus("SOFA")


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ("SOFA", "goal 1: 'SOFA' must be a mapping"),
        ({"minimize": "SOFA", "maximize": "MAP"}, "goal 1: say once what it is about"),
        ({"minimise": "SOFA", "over": "end"}, "say once what it is about: .* Did you mean 'minimize'?"),
        ({"minimize": "SOFA", "wieght": 2}, "goal 1.*wieght"),
        ({"minimize": "SOFA", "weight": -2}, "weight -2 must be positive; for the opposite, maximize"),
        ({"minimize": "SOFA", "weight": 0}, "weight 0 must be positive"),
        ({"minimize": "SOFA", "discount": 1.5}, "discount 1.5 must be above 0 and up to 1"),
        ({"minimize": "SOFA", "over": "last hour"}, "over 'last hour' is unknown; say all, end, or a period"),
        ({"minimize": "SOFA", "over": "last 0 hours"}, "over 'last 0 hours' is unknown"),
        ({"minimize": "SOFA", "step_weights": [1, -1]}, "step_weights must be finite and not negative"),
        ({"minimize": "SOFA", "step_weights": [0, 0]}, "one of them positive"),
        ({"keep": "MAP"}, r"keep MAP: needs `between: \[LOW, HIGH\]`"),
        ({"keep": "MAP", "between": [None, None]}, "needs a range"),
        ({"keep": "MAP", "between": [90, 65]}, "low 90 must not be above high 65"),
        ({"keep": "MAP", "between": [65, 90], "below": -1}, "below must be a penalty of zero or more"),
        ({"keep": "MAP", "between": [65, 90], "below": 0, "above": 0}, "penalties of zero ask for nothing"),
        ({"keep": "MAP", "between": [65, None], "below": 0}, "penalties of zero ask for nothing"),
        ({"keep": "MAP", "between": [65, None], "above": 2}, "above counts from an end of `between` that is null"),
        ({"keep": "MAP", "between": [65, 90], "margin": 1}, "margin"),
        ({"time_in_range": "MAP", "between": [65, 90], "margin": 0}, "margin must be positive"),
        ({"dose_costs": {3: 1}}, "dose_costs .* must be a mapping from dose axes to numbers"),
    ],
)
def test_what_is_no_goal_is_refused_in_words(goal: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Query.from_dict({"goals": [goal]})


@pytest.mark.parametrize("name", ["over", "weight", "keep", "between", "discount"])
def test_what_a_goal_says_is_refused_beside_the_goals_with_a_hint(name: str) -> None:
    """`over: end` below `minimize: SOFA`, without a list of goals, is a likely slip; no entry is spelt like it."""
    with pytest.raises(InputError, match=f"'{name}' belongs to a goal of a list; write `goals:`"):
        Query.from_dict({"minimize": "SOFA", name: "end"})


def test_goals_are_a_list_and_said_once() -> None:
    with pytest.raises(InputError, match="goals must be a list"):
        Query.from_dict({"goals": {"minimize": "SOFA"}})
    with pytest.raises(InputError, match="say what counts as better, once"):
        Query.from_dict({"minimize": "SOFA", "goals": [{"minimize": "SOFA"}]})


def test_ranges_earn_what_they_say() -> None:
    states = torch.tensor([[0.0, value] for value in (55.0, 60.0, 63.0, 65.0, 80.0, 90.0, 94.0, 100.0)]).double()
    actions = torch.zeros(len(states), dtype=torch.int64)
    identity = Scaler.identity(SCHEMA)
    keep = Within("MAP", 65, 90, below=2, above=3).bind(SCHEMA, identity)
    assert keep(states, actions).tolist() == [-20, -10, -4, 0, 0, 0, -12, -30]
    share = TimeInRange("MAP", 65, 90, margin=5).bind(SCHEMA, identity)
    assert share(states, actions).tolist() == pytest.approx([0, 0, 0.6, 1, 1, 1, 0.2, 0])
    assert share.largest().tolist() == [1.0] * 6
    assert share.weights(states) is None
    assert keep.weights(states) is not None


def test_doses_cost_what_they_say() -> None:
    table = DoseCost({"fluids": 0.01}).bind(SCHEMA, Scaler.identity(SCHEMA))
    assert table(torch.zeros(6, 2).double(), torch.arange(6)).tolist() == [0, -1, -5, 0, -1, -5]
    categories = Schema(SCHEMA.features, ActionSpace.categories(["wait", "treat"]))
    with pytest.raises(InputError, match="these actions have none; use costs of actions"):
        DoseCost({"fluids": 0.01}).bind(categories, Scaler.identity(categories))


@pytest.mark.parametrize(
    "reward",
    [
        DoseCost({"fluids": 1e308}),
        Goal(minus("SOFA"), weight=1e308, step_weights=(0, 0, 2)),
        Goal(Goal(minus("SOFA"), weight=1e200), weight=1e200),
        Linear({"SOFA": -1e308}),
        Linear({"SOFA": 1.0, "MAP": 1e308}, constant=1e308),
    ],
    ids=["doses", "steps", "goals of goals", "scales", "offsets"],
)
def test_numbers_that_overflow_together_are_refused(reward) -> None:
    """Without a warning of NumPy's, which tests take for an error."""
    scaler = Scaler.identity(SCHEMA)
    ten = np.full(2, 10.0)
    scaler = replace(scaler, states=replace(scaler.states, scale=ten, offset=ten))
    with pytest.raises(InputError, match="beyond the largest number"):
        reward.bind(SCHEMA, scaler).over(3)


def test_constants_scale_with_the_steps() -> None:
    reward = Goal(minus("SOFA"), weight=2, over="last 2 steps") + Linear({"MAP": 1.0})
    bound = reward.bind(SCHEMA, Scaler.identity(SCHEMA)).over(3)
    assert np.allclose(bound.lipschitz[:, 0], [1, 3, 3])
    assert bound.lipschitz.shape == (3, 6)


def test_outcomes_have_names() -> None:
    def shown(goal: Goal | Within | TimeInRange) -> tuple[str, float, bool]:
        found = goal.show(-6.0)
        return found.label, found.value, found.higher_is_better

    assert shown(Goal(minus("SOFA"), over="end", weight=2)) == ("SOFA at the end", 3.0, False)
    assert shown(Goal(minus("SOFA"), over="last 24 hours"))[0] == "cumulative SOFA over the last 24 hours"
    assert shown(Goal(Linear({"MAP": 1.0}), discount=0.9)) == ("discounted cumulative MAP", -6.0, True)
    assert shown(Within("MAP", 65, 90)) == ("cumulative penalty for MAP outside 65 to 90", 6.0, False)
    assert shown(TimeInRange("MAP", None, 90))[0] == "steps with MAP up to 90"


def test_goals_are_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "stated.yaml").write_text(STATED)
    told = [str(message) for message in goal_messages(Query.load(tmp_path / "stated.yaml").reward)]
    assert told[0] == "Goal: a small SOFA; the last step alone counts and its weight is 2."
    assert "2 for every unit below 65 and 1 for every unit above 90; the last 24 hours count." in told[1]
    assert "many steps with MAP from 65; values less than 5 outside count in part" in told[2]
    assert told[5] == "Goal: small doses, at a cost of 0.001 for every unit of fluids, at every step."
    assert goal_messages(minus("SOFA")) == []
    costly = goal_messages(minus("SOFA") + Linear({"MAP": 0.1}) + ActionCost({3: 0.5, 24: 1}))
    assert [str(message) for message in costly] == [
        "Goal: a small SOFA, at every step.",
        "Goal: a large sum of 0.1 times MAP, at every step.",
        "Goal: cheap actions, at a cost of 0.5 for action 3 and 1 for action 24, at every step.",
    ]
    assert [str(message) for message in goal_messages(Linear({"SOFA": -1, "MAP": 0.1}))] == [
        "Goal: a large sum of -1 times SOFA and 0.1 times MAP, at every step."
    ]


def test_code_inside_a_goal_is_named() -> None:
    code = Custom(lambda states, actions: states[..., 0], {"SOFA": 1.0}, name="mine")
    goal = Goal(code, over="end")
    assert declared_constants(goal + minus("MAP")) == ["mine"]
    assert features_of(goal) == {"SOFA"}
    stored = reward_from_dict(goal.to_dict())
    with pytest.raises(InputError, match="'mine' is code"):
        stored.bind(SCHEMA, Scaler.identity(SCHEMA))
