"""Invented event tables, and a grid computed from them the slow way: event by event, in plain Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl
from hypothesis import strategies as st

COLUMNS: dict[str, dict[str, Any]] = {
    "measurements": {"stay": pl.String, "hour": pl.Float64, "variable": pl.String, "value": pl.Float64},
    "urine": {"stay": pl.String, "hour": pl.Float64, "ml": pl.Float64},
    "ventilation": {"stay": pl.String, "hour": pl.Float64, "on": pl.Boolean},
    "vasopressors": {"stay": pl.String, "start": pl.Float64, "stop": pl.Float64, "rate": pl.Float64, "drug": pl.String},
    "fluids": {"stay": pl.String, "start": pl.Float64, "stop": pl.Float64, "ml": pl.Float64},
    "antibiotics": {"stay": pl.String, "hour": pl.Float64},
    "cultures": {"stay": pl.String, "hour": pl.Float64},
}
STAY_COLUMNS: dict[str, Any] = {
    "stay": pl.String,
    "subject": pl.String,
    "admission": pl.String,
    "age": pl.Float64,
    "female": pl.Boolean,
    "readmission": pl.Boolean,
    "hours": pl.Float64,
    "weight": pl.Float64,
    "died_in_hospital": pl.Boolean,
    "source": pl.String,
}


def table(name: str, rows: Iterable[tuple[Any, ...]] = ()) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=COLUMNS[name], orient="row")


def tables(**rows: Iterable[tuple[Any, ...]]) -> dict[str, pl.LazyFrame]:
    """All event tables; those not named are empty."""
    return {name: table(name, rows.get(name, ())).lazy() for name in COLUMNS}


def stay(name: str, **changes: Any) -> dict[str, Any]:
    usual = {"stay": name, "subject": f"subject of {name}", "admission": "1", "age": 60.0, "female": True}
    usual |= {"readmission": False, "hours": 100.0, "weight": 70.0, "died_in_hospital": False, "source": "metavision"}
    return usual | changes


def stays(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=STAY_COLUMNS)


def window(name: str = "a", *, start: float = 0.0, steps: int = 5, **changes: Any) -> pl.DataFrame:
    return stays(stay(name, **changes)).with_columns(start=pl.lit(start), steps=pl.lit(steps))


HOURS = st.one_of(
    st.integers(-60 * 60, 60 * 60).map(lambda minutes: minutes / 60),
    st.integers(-15, 15).map(lambda steps: 4.0 * steps),
    st.integers(-15, 15).map(lambda steps: 7.25 + 4.0 * steps),
)
"""Whole minutes around admission; boundaries of steps (of windows from 0 and 7.25 hours) are frequent."""
STAYS = st.sampled_from(["a", "b"])
VALUES = {
    "mean_bp": (10, 250),
    "fio2": (0.2, 1.0),
    "pao2": (10, 700),
    "platelets": (1, 2000),
    "bilirubin": (0, 80),
    "creatinine": (0.05, 60),
    "gcs": (3, 15),
}


def measurement() -> st.SearchStrategy[tuple[Any, ...]]:
    return st.sampled_from(sorted(VALUES)).flatmap(
        lambda name: st.tuples(STAYS, HOURS, st.just(name), st.integers(0, 20).map(lambda n: _between(name, n / 20)))
    )


def _between(name: str, share: float) -> float:
    low, high = VALUES[name]
    value = low + share * (high - low)
    return float(round(value)) if name == "gcs" else value


def interval(amount: st.SearchStrategy[float]) -> st.SearchStrategy[tuple[Any, ...]]:
    lengths = st.integers(0, 900).map(lambda minutes: minutes / 60)
    return st.tuples(STAYS, HOURS, lengths, amount).map(lambda row: (row[0], row[1], row[1] + row[2], row[3]))


@st.composite
def event_rows(draw: st.DrawFn) -> dict[str, list[tuple[Any, ...]]]:
    volume = st.integers(1, 2000).map(float)
    rates = st.integers(1, 100).map(lambda n: n / 50)
    return {
        "measurements": draw(st.lists(measurement(), max_size=40)),
        "urine": draw(st.lists(st.tuples(STAYS, HOURS, volume), max_size=12)),
        "ventilation": draw(st.lists(st.tuples(STAYS, HOURS, st.booleans()), max_size=12)),
        "vasopressors": [(*row, "norepinephrine") for row in draw(st.lists(interval(rates), max_size=6))],
        "fluids": draw(st.lists(interval(volume), max_size=8)),
    }
