"""Results: what they say in words, and that a stored one is the same again or refused."""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from effort import some
from hypothesis import given, settings
from hypothesis import strategies as st

from ifonly.constraints import Constraints
from ifonly.data.episode import Episode
from ifonly.data.schema import ActionSpace, Axis, Feature, Schema
from ifonly.errors import InputError, StoreError
from ifonly.models.analytic import LinearModel
from ifonly.problem import Problem
from ifonly.query import Query
from ifonly.result import Budget, Certificate, Change, Result, Stats, Status
from ifonly.result.parts import effective_branching_factor
from ifonly.result.table import from_row, to_row
from ifonly.rewards import minus
from ifonly.search.base import Solution
from ifonly.search.build_result import build_result, provenance_of
from ifonly.search.exhaustive import Exhaustive
from ifonly.search.heuristics import Greedy
from ifonly.search.solve import solve
from ifonly.testing.instances import random_problem
from ifonly.text.catalogue import say
from ifonly.text.results import statement

DOSES = ActionSpace.product(Axis("vasopressors", "mcg/kg/min", (0, 0.1)), Axis("fluids", "mL/4 h", (80, 850)))


@pytest.fixture(scope="module")
def problem() -> Problem:
    """SOFA follows the doses alone: 10, then 2 less with vasopressors, 1 less with fluids, plus recorded noise."""
    schema = Schema((Feature("SOFA", "dynamic", unit="points"),), DOSES, step_length=4, step_unit="h")
    model = LinearModel(schema, np.zeros((4, 1, 1)), offsets=[[10.0], [9.0], [8.0], [7.0]])
    episode = Episode("case 7", schema, states=[[10.0], [9.5], [10.5], [8.0]], actions=[0, 0, 1, 0])
    return Problem.from_episode(episode, model, Query(minus("SOFA"), 2))


@pytest.fixture(scope="module")
def result(problem: Problem) -> Result:
    return solve(problem, Exhaustive())


def same(one: Any, two: Any) -> bool:
    """Field by field, into records, sequences and arrays: what both lose when they are written would be seen."""
    if isinstance(one, np.ndarray):
        return isinstance(two, np.ndarray) and one.dtype == two.dtype and np.array_equal(one, two, equal_nan=True)
    if isinstance(one, Query | Schema):
        return one.to_dict() == two.to_dict()
    if dataclasses.is_dataclass(one):
        return type(one) is type(two) and all(
            same(getattr(one, field.name), getattr(two, field.name)) for field in dataclasses.fields(one)
        )
    if isinstance(one, tuple | list):
        return len(one) == len(two) and all(same(*pair) for pair in zip(one, two, strict=True))
    return bool(one == two) or (isinstance(one, float) and math.isnan(one) and math.isnan(two))


def test_the_example_is_solved_as_by_hand(result: Result) -> None:
    # Both doses from step 0 and 1 on: 3 points less at steps 1 and 2. Step 3 has no recorded effect.
    assert result.actions.tolist() == [3, 3, 1, 0]
    assert result.observed_outcome == pytest.approx(-38.0)
    assert result.outcome == pytest.approx(-32.0)
    assert result.states[:, 0] == pytest.approx([10.0, 6.5, 7.5, 8.0])
    assert result.improvement == pytest.approx(6.0)
    assert result.gap == pytest.approx(0.0, abs=1e-9)


def test_the_changes_are_steps_and_actions(result: Result) -> None:
    assert result.changes == (Change(0, 0, 3), Change(1, 0, 3))


def test_a_result_prints_itself(result: Result, problem: Problem) -> None:
    first, *changes = str(result).splitlines()
    outcome = "cumulative SOFA 38.0 -> 32.0 (-15.8%)"
    assert first.startswith(f"optimal | 2 changes (at most 2) | {outcome} | bound = outcome | ")
    assert first.endswith(f" | {result.stats.nodes_expanded:,} nodes, {result.stats.seconds:.2f} s")
    words = "vasopressors 0 -> 0.1 mcg/kg/min, fluids 80 -> 850 mL/4 h"
    assert changes == [f"  step {step} (hour {4 * step}): {words}" for step in (0, 1)]
    assert repr(result) == "Result('case 7', optimal, outcome -32, gap 0)"
    single = solve(problem.with_max_changes(1), Greedy())
    outcome = "cumulative SOFA 38.0 -> 35.0 (-7.9%)"
    assert str(single).startswith(f"heuristic | 1 change (at most 1) | {outcome} | no useful bound | ")
    limited = dataclasses.replace(result, status=Status.TIME_LIMIT, upper_bound=-30.5)
    assert " | gap 1.5 (25 % of the gain) | " in str(limited)


@settings(deadline=None, derandomize=True, max_examples=some(15))
@given(seed=st.integers(0, 10_000), heuristic=st.booleans())
def test_json_gives_the_same_result_back(seed: int, heuristic: bool) -> None:
    problem = random_problem(seed, horizon=3)
    result = solve(problem, Greedy() if heuristic else Exhaustive())
    assert math.isinf(result.upper_bound) is heuristic
    assert same(result, Result.from_json(result.to_json()))
    assert same(result, from_row(to_row(result), result.provenance))


def test_infinite_bounds_become_null(problem: Problem) -> None:
    content = json.loads(solve(problem, Greedy()).to_json(), parse_constant=lambda name: pytest.fail(name))
    assert content["upper_bound"] is None
    assert math.isinf(Result.from_dict(content).upper_bound)


def test_the_document_says_what_it_rests_on(result: Result, problem: Problem) -> None:
    content = json.loads(result.to_json())
    assert content["format"] == "ifonly.result"
    assert statement(result) == "No admissible sequence does better under this model."
    assert content["certificate"]["proven"] is True
    assert content["provenance"]["solver"] == {"name": "exhaustive", "batch": Exhaustive().batch}
    assert content["provenance"]["query"]["reward"] == {"kind": "linear", "weights": {"SOFA": -1.0}, "constant": 0.0}
    assert content["provenance"]["model"]["fingerprint"] == problem.model.fingerprint()


def test_no_sentence_is_stored(result: Result) -> None:
    """Every text in a stored result is a code, a name of the user's data, or a reference."""

    def texts(content: Any) -> Iterator[str]:
        if isinstance(content, dict):
            for value in content.values():
                yield from texts(value)
        elif isinstance(content, list):
            for value in content:
                yield from texts(value)
        elif isinstance(content, str):
            yield content

    found = result.to_dict()
    named = set(texts(found.pop("provenance")["schema"]))
    assert not [text for text in texts(found) if text not in named and len(text.split()) > 3]


def test_what_was_allowed_is_kept(problem: Problem) -> None:
    allowed = np.ones((4, 4), dtype=bool)
    allowed[1, 3] = False
    restricted = problem.with_constraints(Constraints().restricted_to(allowed, problem.episode))
    result = solve(restricted, Exhaustive())
    assert result.query.constraints.choices == {1: (0, 1, 2)}
    assert Result.from_json(result.to_json()).query == result.query


def test_saved_and_loaded(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "result.json"
    result.save(path)
    assert same(result, Result.load(path))
    assert path.read_text(encoding="utf-8").endswith("}\n")


def test_a_failed_save_leaves_the_old_file(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    result.save(path)
    before = path.read_bytes()

    def failing(self: Path, target: Path) -> Path:
        raise OSError("no space")

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(StoreError, match="exists already"):
        result.save(path)
    with pytest.raises(OSError, match="no space"):
        result.save(path, overwrite=True)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["result.json"]


@settings(deadline=None, derandomize=True, max_examples=some(30))
@given(share=st.floats(0.0, 0.999))
def test_text_cut_off_anywhere_is_refused(share: float) -> None:
    text = _stored()
    with pytest.raises(StoreError, match="cut off"):
        Result.from_json(text[: int(share * len(text))])


@cache
def _stored() -> str:
    return solve(random_problem(3, horizon=3), Exhaustive()).to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(version=99), "version 99; this ifonly reads version 7"),
        (lambda c: c.update(format="something"), "expected format 'ifonly.result', found 'something'"),
        (lambda c: c.update(status="splendid"), "broken or incomplete.*status"),
        (lambda c: c.update(outcome="good"), "broken or incomplete"),
        (lambda c: c.update(outcome=None), "broken or incomplete"),
        (lambda c: c["actions"].append(0), "every sequence must hold"),
        (lambda c: c["actions"].__setitem__(0, 99), "every sequence must hold"),
        (lambda c: c["actions"].__setitem__(0, 0.5), "broken or incomplete.*whole numbers"),
        (lambda c: c["evidence"].update(changed_steps=[99]), "about other changes"),
        (lambda c: c["states"].pop(), "states must hold"),
        (lambda c: c["states"][0].append(1.0), "broken or incomplete|states must hold"),
        (lambda c: c["provenance"]["schema"].pop("features"), "broken or incomplete.*features"),
        (lambda c: c["provenance"]["query"].pop("reward"), "broken or incomplete.*better"),
        (lambda c: c.update(opinion="fine"), "unknown"),
        (lambda c: c.update(certificate={"sure": True}), "broken or incomplete"),
        (lambda c: c.update(stats=None), "broken or incomplete"),
    ],
)
def test_altered_documents_are_refused(change: Callable[[dict[str, Any]], object], message: str) -> None:
    content = json.loads(_stored())
    change(content)
    with pytest.raises(StoreError, match=message):
        Result.from_json(json.dumps(content))


@pytest.mark.parametrize("key", list(json.loads(_stored())))
def test_nothing_may_be_missing(key: str) -> None:
    content = json.loads(_stored())
    del content[key]
    with pytest.raises(StoreError, match=key if key not in ("format", "version") else "expected|version"):
        Result.from_dict(content)


def test_files_are_named_in_errors(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"absent\.json.*cannot be read"):
        Result.load(tmp_path / "absent.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(StoreError, match=r"list\.json: result: expected a JSON object"):
        Result.load(tmp_path / "list.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(StoreError, match=r"bytes\.json.*cannot be read"):
        Result.load(tmp_path / "bytes.json")


def test_a_bound_that_is_no_number_is_refused(problem: Problem) -> None:
    with pytest.raises(InputError, match="NaN as its upper bound"):
        build_result(
            problem,
            Solution(torch.tensor([0, 0, 1, 0]), Status.OPTIMAL, math.nan, Certificate("none", proven=False)),
            stats=Stats(),
            provenance=provenance_of(problem, Greedy()),
        )


@pytest.mark.parametrize("status", Status)
def test_every_status_has_a_sentence(status: Status) -> None:
    assert say(f"claim.{status.value}", which="", whom="").endswith(".")
    assert status.at_limit == (status in (Status.TIME_LIMIT, Status.NODE_LIMIT, Status.INTERRUPTED))


@settings(deadline=None, derandomize=True, max_examples=some(50))
@given(base=st.floats(1.0, 6.0), horizon=st.integers(1, 20))
def test_the_effective_branching_factor_inverts_its_definition(base: float, horizon: int) -> None:
    nodes = sum(base**power for power in range(horizon + 1))
    found = effective_branching_factor(round(nodes), horizon)
    assert found is not None
    again = sum(found**power for power in range(horizon + 1))
    assert again == pytest.approx(max(round(nodes), horizon + 1), rel=1e-9)


def test_the_effective_branching_factor_of_tiny_searches() -> None:
    assert effective_branching_factor(0, 5) is None
    assert effective_branching_factor(3, 5) == 1.0


@pytest.mark.parametrize("bound", [-math.inf, -50.0, math.inf])
def test_budgets_without_a_sequence_keep_their_bound(result: Result, bound: float) -> None:
    """Proven to have none, none found yet with a bound, and none found yet at all: three things to say."""
    empty = Budget(0, None, None, None, bound)
    known = [Budget(k, -32.0, -32.0, result.actions, -32.0) for k in (1, 2)]
    kept = dataclasses.replace(result, frontier=(empty, *known))
    assert Result.from_json(kept.to_json()).frontier[0].upper_bound == bound
    assert from_row(to_row(kept), kept.provenance).frontier[0].upper_bound == bound


def test_numbers_that_json_lacks_cost_no_answer(result: Result) -> None:
    odd = dataclasses.replace(result, clipped_outcome=math.nan)
    assert to_row(odd)["clipped_outcome"] is None
    assert to_row(odd)["improvement"] is None
    assert math.isnan(Result.from_json(odd.to_json()).clipped_outcome)
    assert math.isnan(from_row(to_row(odd), odd.provenance).clipped_outcome)


def test_infinite_states_come_back_as_they_were(result: Result) -> None:
    states = result.states.copy()
    states[0, 0], states[1, 0], states[2, 0] = math.inf, -math.inf, math.nan
    odd = dataclasses.replace(result, states=states)
    for again in (Result.from_json(odd.to_json()), from_row(to_row(odd), odd.provenance)):
        np.testing.assert_array_equal(again.states, states)


def test_settings_may_hold_numbers_of_numpy(result: Result) -> None:
    given = {"least": np.float32(0.5), "members": np.int64(3), "strict": np.bool_(True), "levels": np.arange(2)}
    kept = dataclasses.replace(result, provenance=dataclasses.replace(result.provenance, support=given))
    plain = {"least": 0.5, "members": 3, "strict": True, "levels": [0, 1]}
    assert Result.from_json(kept.to_json()).provenance.support == plain
