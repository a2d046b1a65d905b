"""What the expansions of the Taylor bound leave out counts, every part of it, and none can be missing."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
import torch
from smooth_problems import POLYNOMIALS, smooth_problems
from taylor_oracles import excess, future_excess, moved_ahead

import ifonly.bounds.taylor.bound as taylor
from ifonly.bounds.taylor import TaylorChildBound
from ifonly.bounds.taylor.radii import RADII
from ifonly.errors import VerificationError
from ifonly.testing import check_child_bound

LEFT_OUT = {
    "values": ("value_remainder", "first_remainder", "second_remainder"),
    "advantages": ("remainder", "effect_remainder"),
}
"""Remainders of the value expansion, and of the advantages."""


def multiplied(monkeypatch: pytest.MonkeyPatch, factor: float, names: dict[str, Collection[str]]) -> None:
    """Bounds made from now on have a multiple of some of their tables."""
    for kind, chosen in names.items():
        make = getattr(taylor, f"expand_{kind}")

        def changed(*given: Any, make: Any = make, chosen: Collection[str] = chosen) -> Any:
            tables = make(*given)
            return replace(tables, **{name: factor * getattr(tables, name) for name in chosen})

        monkeypatch.setattr(taylor, f"expand_{kind}", changed)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in LEFT_OUT.items() for name in names])
def test_every_part_counts(kind: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More of anything that is left out raises some bound, and lowers none."""
    problems = [POLYNOMIALS[chosen] for chosen in ("many changes", "late", "weak and turned")]
    nodes = [moved_ahead(problem, [0.09]) for problem in problems]
    before = [TaylorChildBound([problem]) for problem in problems]
    multiplied(monkeypatch, 3.0, {kind: [name]})
    most = 0.0
    for problem, some, bound in zip(problems, nodes, before, strict=True):
        more = TaylorChildBound([problem])
        found = [one.children(some).flatten() for one in (more, bound)]
        future = [one.reward_to_go(0, some.problem, some.states[:, 0], 3).flatten() for one in (more, bound)]
        raised = (torch.cat((found[0], future[0])) - torch.cat((found[1], future[1]))).nan_to_num(0.0)
        assert float(raised.min()) >= -1e-9
        most = max(most, float(raised.max()))
    assert most > 5e-6


@pytest.mark.parametrize(
    "part", [{"values": ["value_remainder"]}, {"advantages": ["remainder"]}, LEFT_OUT], ids=["values", "changes", "all"]
)
def test_nothing_that_is_left_out_can_be_missing(
    part: dict[str, Collection[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    multiplied(monkeypatch, 0.0, part)
    below = 0
    for problem in POLYNOMIALS.values():
        bound = TaylorChildBound([problem])
        nodes = moved_ahead(problem, RADII[1:6])
        below += bool((excess(problem, bound.children(nodes), nodes) < -1e-9).any())
        below += bool((future_excess(problem, bound, 0, nodes.states[:, 0]) < -1e-9).any())
    assert below > 0


def test_the_check_notices_missing_remainders(monkeypatch: pytest.MonkeyPatch) -> None:
    multiplied(monkeypatch, 0.0, LEFT_OUT)
    found = 0
    for seed, problem in enumerate(smooth_problems(11, start=2000, strength=1.0, max_changes=3, horizon=4)):
        try:
            check_child_bound(TaylorChildBound([problem]), [problem], samples=5, seed=seed)
        except VerificationError:
            found += 1
    assert found >= 4
