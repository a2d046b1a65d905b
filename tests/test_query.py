"""Queries: what is written comes back, numbers are numbers however they are spelt, and what is wrong is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ifonly.constraints import Constraints
from ifonly.errors import InputError
from ifonly.query import Limits, Query
from ifonly.rewards import ActionCost, Linear, minus

WHOLE = Query(
    reward=Linear({"SOFA": -1.0, "MAP": 0.5}) + ActionCost({"high": 0.25}),
    max_changes=None,
    constraints=Constraints(locked=[0], forbidden={None: ["high"]}, required={2: 1}, last_action_fixed=True),
    change_cost=0.5,
    objective=0.1,
    min_support=0.05,
    support_share=0.5,
    each_refit=True,
    honest=True,
    sensitivity=True,
    coupling=True,
    limits=Limits(seconds=1.5, nodes=10, gap=0.25, memory=64.0),
    solver={"name": "branch-and-bound", "alternatives": 3, "within": 0.5},
    allow_failed_model=True,
)


def test_every_entry_differs_from_its_default() -> None:
    plain = Query(minus("SOFA")).to_dict()
    assert {name for name, value in WHOLE.to_dict().items() if value == plain[name]} == set()


@pytest.mark.parametrize("name", ["query.yaml", "query.json"])
def test_a_file_gives_the_same_query_back(name: str, tmp_path: Path) -> None:
    WHOLE.save(tmp_path / name)
    found = Query.load(tmp_path / name)
    assert found == WHOLE
    assert found.fingerprint == WHOLE.fingerprint


@pytest.mark.parametrize("name", list(WHOLE.to_dict()))
def test_the_fingerprint_tells_every_entry(name: str) -> None:
    plain = Query(minus("SOFA"))
    assert plain.with_changes(**{name: getattr(WHOLE, name)}).fingerprint != plain.fingerprint


def test_numbers_are_plain_however_they_are_spelt() -> None:
    """YAML reads 1e-3 as text, and users have numbers of numpy."""
    content = {"minimize": "SOFA", "min_support": "1e-3", "support_share": "5e-1", "limits": {"gap": "1e-3"}}
    written = Query.from_dict(content)
    assert (written.min_support, written.support_share, written.limits.gap) == (1e-3, 0.5, 1e-3)
    limits = Limits(seconds=np.float32(2.0), nodes=np.int64(5))  # type: ignore[arg-type]
    query = Query(minus("SOFA"), np.int64(2), min_support=np.float32(0.5), limits=limits)  # type: ignore[arg-type]
    assert Query.from_dict(query.to_dict()).fingerprint == query.fingerprint
    assert type(query.limits.nodes) is int


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"min_support": 0.0}, "min_support=0.0 must be a probability"),
        ({"min_support": "often"}, "min_support: 'often' is not a finite number"),
        ({"support_share": 1.5}, "support_share=1.5 must be a share of the members"),
        ({"max_changes": -1}, "max_changes=-1"),
        ({"max_changes": 1.5}, "max_changes=1.5"),
        ({"change_cost": -0.5}, "must not be negative"),
        ({"objective": "best"}, "choose 'mean', 'worst'"),
        ({"limits": {"seconds": -1}}, "seconds=-1: must be zero or positive"),
        ({"limits": {"nodes": "2.5"}}, "must be a whole number"),
        ({"limits": {"second": 1}}, "Did you mean 'seconds'"),
        ({"solver": {"alternatives": 3}}, "with its name"),
        ({"sensitivity": "yes"}, "True or False"),
        ({"maximize": "MAP"}, "once"),
        ({"max_change": 2}, "Did you mean 'max_changes'"),
        ({"rules": {"locked": [0]}}, "'rules': rules stand below `constraints:`"),
        ({"pace": {"changes": 1, "within": "6 steps"}}, "'pace': rules stand below `constraints:`"),
    ],
)
def test_what_is_wrong_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Query.from_dict({"minimize": "SOFA", **wrong})
