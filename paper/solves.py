"""Tables of solves: rows of cells side by side, the claims of exact solvers compared, means with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from ifonly.errors import VerificationError
from ifonly.result import Status
from paper.cells import Cell, Row, SolveCell
from paper.estimates import Estimate

EQUAL = 1e-9
"""Two solvers' outcomes of one sequence differ by rounding only: relative to their size, no more than this."""

COLUMNS = {
    "episode": pl.String,
    "solver": pl.String,
    "max_changes": pl.Int64,
    "status": pl.String,
    "outcome": pl.Float64,
    "upper_bound": pl.Float64,
    "observed_outcome": pl.Float64,
    "clipped_outcome": pl.Float64,
    "observed_clipped_outcome": pl.Float64,
    "changes": pl.Int64,
    "nodes": pl.Int64,
    "visited": pl.Int64,
    "branching_factor": pl.Float64,
    "seconds": pl.Float64,
    "seconds_bounds": pl.Float64,
}
"""What every table of solves has; `visited` and `branching_factor` are lower bounds where a search is not proven."""

PROVEN = pl.col("status") == Status.OPTIMAL.value


def solve_row(cell: SolveCell, row: Mapping[str, Any], **further: Any) -> Row:
    """One row of a table; `further` are the columns that only this experiment has."""
    own = {"episode": cell.episode, "solver": cell.solver, "max_changes": cell.max_changes}
    return further | own | {name: row[name] for name in COLUMNS if name not in own}


def solve_table(rows: Iterable[Row], **further: Any) -> pl.DataFrame:
    """The table of rows; `further` columns with their types come first."""
    return pl.DataFrame(list(rows), schema={**further, **COLUMNS}, orient="row")


def require_agreement(rows: Mapping[Cell, Row]) -> None:
    """Refuse answers that contradict each other: what a solver found must not exceed what another proved impossible.

    Two proven answers to one question are therefore equal, up to rounding.
    """
    questions: dict[tuple[Any, ...], list[tuple[SolveCell, Row]]] = {}
    for cell, row in rows.items():
        if isinstance(cell, SolveCell):
            questions.setdefault((cell.episode, cell.limits, cell.max_changes), []).append((cell, row))
    for answers in questions.values():
        best_cell, best = max(answers, key=lambda answer: float(answer[1]["outcome"]))
        for cell, row in answers:
            bound = math.inf if row["upper_bound"] is None else row["upper_bound"]
            if best["outcome"] > bound + EQUAL * max(1.0, abs(bound)):
                raise VerificationError(
                    f"episode {cell.episode!r}, at most {cell.max_changes} changes: {best_cell.solver} found an "
                    f"outcome that is {best['outcome'] - bound:.3g} above the bound that {cell.solver} "
                    "proved. One of them is wrong; no table is written."
                )


def estimate(table: pl.DataFrame, column: str) -> Estimate:
    """The mean of a column over solves; a lower bound where one of them is not proven."""
    return Estimate.of(table[column].to_list(), at_least=table.filter(~PROVEN).height > 0)


def proven_of(table: pl.DataFrame) -> str:
    """How many solves were proven, in words.

    >>> proven_of(pl.DataFrame({"status": ["optimal", "time limit"]}))
    '1 of 2'
    """
    return f"{table.filter(PROVEN).height} of {table.height}"
