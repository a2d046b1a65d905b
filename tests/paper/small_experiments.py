"""Experiments so small that each takes a second or two."""

from dataclasses import replace

import pytest
from paper.catalogue import EXPERIMENTS
from paper.laboratory import Conditions, Laboratory, Settings
from paper.likelihood import FoldCell
from paper.solves import SolveCell
from paper.warning_worlds import WorldCell

TINY = Conditions(horizon=4, hidden=(4,), epochs=1)

SMALL = {
    "fig2a": {"patients": 2, "location": (0.8, 1.2), "samples": (20,), "max_changes": (1,)},
    "fig2b": {"patients": 2, "samples": (10, 20), "max_changes": (1,)},
    "fig2c": {"patients": 2, "samples": (20,), "max_changes": (0, 1, 2)},
    "fig3a": {"patients": 2, "max_changes": (0, 1, 2)},
    "fig3b": {"distribution": 5, "max_changes": 1},
    "fig3c": {"distribution": 5, "max_changes": 1},
    "fig4": {"patients": 2, "sizes": (10, 20), "max_changes": 1},
    "fig5": {"location": (0.5, 1.0), "scale": (0.1,), "folds": 2},
    "baselines": {"patients": 2, "max_changes": (0, 1, 2)},
    "warnings": {
        "patients": 1,
        "enough": 40,
        "too_few": 12,
        "epochs_for_enough": 1,
        "epochs_for_few": 1,
        "held_out": 12,
        "steps": 4,
        "max_changes": 1,
        "members": 2,
        "width": 4,
    },
}


def small(name: str, **changes: object) -> Settings:
    """Settings of an experiment with little of everything."""
    return replace(EXPERIMENTS[name].settings(quick=True), **(SMALL[name] | changes))


def forbid_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on whatever is measured, fitted or solved fails the test."""

    def refuse(*_: object, **__: object) -> None:
        pytest.fail("this was done already")

    for cell in (SolveCell, FoldCell, WorldCell):
        monkeypatch.setattr(cell, "measure", refuse)
    monkeypatch.setattr(Laboratory, "fit_model", refuse)
    monkeypatch.setattr("ifonly.runs.solving._solve_missing", refuse)
