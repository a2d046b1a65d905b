"""Results made by hand, as a search would return them."""

import math
from typing import Any

import numpy as np

from ifonly.data.schema import ActionSpace, Axis, Feature, Schema
from ifonly.query import Query
from ifonly.result import Certificate, Evidence, ModelReference, Provenance, Result, Stats, Status
from ifonly.rewards import minus

DOSES = ActionSpace.product(
    Axis("vasopressors", "mcg/kg/min", (0, 0.04, 0.113, 0.225, 0.788)), Axis("fluids", "mL/4 h", (0, 30, 80, 279, 850))
)
WORDS = ActionSpace.categories(["wait", "talk it over with the family", "operate"])


def made_result(changes: dict[int, tuple[int, int]], **values: Any) -> Result:
    """A result that changes (observed, counterfactual) actions at the given steps."""
    steps = values.pop("steps", 12)
    schema = Schema(
        (Feature("MAP", "dynamic", unit="mmHg"), Feature("SOFA", "dynamic", unit="points")),
        values.pop("actions", DOSES),
        step_length=values.pop("step_length", 4),
        step_unit=values.pop("step_unit", "h"),
    )
    asked = {name: values.pop(name) for name in ("reward", "max_changes", "change_cost") if name in values}
    provenance = Provenance(
        query=Query(**({"reward": minus("SOFA")} | asked)),
        schema=schema,
        model=ModelReference("location-scale", "0123456789abcdef"),
        solver={"name": "exhaustive"},
    )
    observed_actions = np.ones(steps, dtype=np.int64)
    actions = observed_actions.copy()
    for step, (before, after) in changes.items():
        observed_actions[step], actions[step] = before, after
    time = np.arange(steps)
    observed = np.stack([70 + 3 * np.sin(time), 8 + 2 * np.sin(time / 2)], axis=1)
    gained = np.cumsum([step in changes for step in range(-1, steps - 1)])
    states = observed - np.stack([np.zeros(steps), 0.7 * gained], axis=1)
    before, after = float(observed[:, 1].sum()), float(states[:, 1].sum())
    outcome, observed_outcome = values.get("outcome", -after), values.get("observed_outcome", -before)
    given: dict[str, Any] = {
        "episode": "patient-00017",
        "subject": "subject-00017",
        "status": Status.OPTIMAL,
        "actions": actions,
        "observed_actions": observed_actions,
        "states": states,
        "observed_states": observed,
        "outcome": outcome,
        "observed_outcome": observed_outcome,
        "clipped_outcome": outcome,
        "observed_clipped_outcome": observed_outcome,
        "upper_bound": -after,
        "certificate": Certificate("exhaustive enumeration", proven=True, tolerance=1e-9),
        "stats": Stats(nodes_expanded=1234, seconds_bounds=1.25, seconds_search=0.5),
        "provenance": provenance,
        "evidence": Evidence(changed_steps=tuple(sorted(changes))),
    }
    return Result(**(given | values))


def without_bound(changes: dict[int, tuple[int, int]], **values: Any) -> Result:
    """A heuristic's result."""
    certificate = Certificate("greedy heuristic", proven=False)
    unproven = {"status": Status.HEURISTIC, "upper_bound": math.inf, "certificate": certificate}
    return made_result(changes, **(unproven | values))
