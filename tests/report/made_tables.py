"""Tables of cohort runs, made up: realistic ones, and random ones with everything that can occur."""

from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

from ifonly.records import finite, to_plain
from ifonly.result import Evidence
from ifonly.result.improvement import as_it_is, improvement_between
from ifonly.result.table import COLUMNS, FAILED


def made_row(number: int = 0, **values: Any) -> dict[str, Any]:
    """What a proven answer holds that changes one step of five, 100 -> 90, with other values for some columns.

    Besides columns, `changed_steps`, `nodes`, `seconds` and `evidence` (an `Evidence`) may be given; `made_table` adds
    what follows from the rest.
    """
    horizon, steps = values.get("horizon", 5), tuple(values.pop("changed_steps", (1,)))
    work = {"nodes_expanded": values.pop("nodes", 10), "nodes_generated": 20, "model_steps": 100}
    seconds = {"seconds_bounds": 0.0, "seconds_search": values.pop("seconds", 0.5)}
    row = {
        "episode": f"patient-{number:05d}",
        "subject": f"subject-{number:05d}",
        "horizon": horizon,
        "status": "optimal",
        "observed_outcome": -100.0,
        "outcome": -90.0,
        "upper_bound": -90.0,
        "observed_clipped_outcome": -100.0,
        "clipped_outcome": -90.0,
        "observed_actions": [0] * horizon,
        "actions": [int(step in steps) for step in range(horizon)],
        "states": [[1.0]] * horizon,
        "observed_states": [[1.0]] * horizon,
        "frontier": [],
        "alternatives": [],
        "certificate": {"method": "taylor bound", "proven": True, "tolerance": 0.0, "details": "{}"},
        "stats": work | seconds,
        "evidence": Evidence(changed_steps=steps),
    }
    return row | values


def failed(number: int, reason: str) -> dict[str, Any]:
    """An episode that could not be solved."""
    who = {"episode": f"patient-{number:05d}", "subject": f"subject-{number:05d}", "horizon": 5}
    return dict.fromkeys(COLUMNS) | who | {"status": FAILED, "reason": {"code": "refused", "detail": reason}}


def budget(changes: int, outcome: float | None, bound: float | None, clipped: float | None = None) -> dict[str, Any]:
    """An entry of a frontier; where nothing else is said, clipping changes nothing."""
    clipped = outcome if clipped is None else clipped
    return {
        "max_changes": changes,
        "outcome": outcome,
        "clipped_outcome": clipped,
        "upper_bound": bound,
        "actions": None if outcome is None else [0, 0],
    }


def made_table(*rows: dict[str, Any]) -> pl.DataFrame:
    """A run's table of these rows."""
    return pl.DataFrame([row if row["status"] == FAILED else _complete(row) for row in rows], schema=COLUMNS)


def _complete(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the columns that follow from the others, as `Result` and `Evidence` define them."""
    evidence, bound = row["evidence"], row["upper_bound"]
    outcomes = [row[name] for name in ("observed_clipped_outcome", "clipped_outcome")]
    known = None not in outcomes and all(finite(value) is not None for value in outcomes)
    return row | {
        "reason": None,
        "gap": None if bound is None else max(0.0, bound - row["outcome"]),
        "proven": row["status"] == "optimal",
        "changes": len(evidence.changed_steps),
        "improvement": improvement_between(as_it_is, *outcomes).relative if known else None,
        "verdict": evidence.verdict.value,
        "warnings": [warning.code.value for warning in evidence.warnings],
        "evidence": to_plain(evidence),
    }


def realistic_table(episodes: int = 400, *, seed: int = 0, limited: float = 0.05, budgets: int = 3) -> pl.DataFrame:
    """Improvements as the paper finds them: most are small, a few stand out; some episodes limited, few failed."""
    random = np.random.default_rng(seed)
    rows = []
    for number in range(episodes):
        if random.random() < 0.01:
            rows.append(failed(number, f"episode 'patient-{number:05d}', step 3: the model finds no finite noise."))
            continue
        horizon = int(random.integers(10, 21))
        observed = float(max(1.0, random.normal(8, 2.5)) * horizon)
        best = min(0.9, float(random.gamma(2.2, 0.027)))
        steps = sorted(random.choice(horizon, size=budgets, replace=False, p=_early(horizon)).tolist())
        reached = [best * (1 - 0.55**k) / (1 - 0.55**budgets) for k in range(budgets + 1)]
        outcomes = [-observed * (1 - share) for share in reached]
        is_limited = random.random() < limited
        room = float(random.exponential(0.02)) * abs(observed) if is_limited else 0.0
        rows.append(
            made_row(
                number,
                horizon=horizon,
                status="time limit" if is_limited else "optimal",
                observed_outcome=-observed,
                observed_clipped_outcome=-observed,
                outcome=outcomes[-1],
                clipped_outcome=outcomes[-1],
                upper_bound=outcomes[-1] + room,
                changed_steps=steps,
                frontier=[budget(k, outcome, outcome + room) for k, outcome in enumerate(outcomes)],
                nodes=int(random.geometric(0.002)),
                seconds=float(random.exponential(0.05)),
            )
        )
    return made_table(*rows)


def _early(horizon: int) -> np.ndarray:
    weights = np.exp(-np.arange(horizon) / 5)
    return weights / weights.sum()


OUTCOMES = st.floats(-1000, 1000, allow_nan=False).map(lambda value: round(value, 3))


@st.composite
def random_rows(draw: st.DrawFn, number: int) -> dict[str, Any]:
    """Any row that a run can have: failed, proven or limited, with or without bounds, budgets and improvement."""
    status = draw(st.sampled_from(["optimal", "gap reached", "time limit", "node limit", "heuristic", FAILED]))
    if status == FAILED:
        return failed(number, draw(st.sampled_from(["no model", f"episode 'patient-{number:05d}': step {number}"])))
    horizon = draw(st.integers(2, 6))
    outcome, room = draw(OUTCOMES), draw(st.floats(0, 50))
    bound = outcome if status == "optimal" else draw(st.sampled_from([outcome + room, None]))
    steps = sorted(draw(st.sets(st.integers(0, horizon - 1), max_size=3)))
    return made_row(
        number,
        horizon=horizon,
        status=status,
        observed_outcome=draw(OUTCOMES),
        observed_clipped_outcome=draw(st.sampled_from([0.0, -0.0, 1e-13, -50.0]) | OUTCOMES),
        outcome=outcome,
        clipped_outcome=draw(OUTCOMES),
        upper_bound=bound,
        changed_steps=steps,
        frontier=draw(frontiers(min(3, horizon))),
    )


@st.composite
def frontiers(draw: st.DrawFn, largest: int) -> list[dict[str, Any]]:
    """No frontier, or one entry for each budget, some of them without a sequence or a bound."""
    if draw(st.booleans()):
        return []
    entries = []
    for changes in range(largest + 1):
        outcome = draw(st.none() | OUTCOMES)
        entries.append(budget(changes, outcome, draw(st.sampled_from([outcome, None])), draw(st.none() | OUTCOMES)))
    return entries


@st.composite
def random_tables(draw: st.DrawFn) -> pl.DataFrame:
    """Up to eight rows, in cohort order."""
    return made_table(*(draw(random_rows(number)) for number in range(draw(st.integers(0, 8)))))
