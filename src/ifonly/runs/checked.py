"""A run's table where the model was checked while the run was under way, or after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from ifonly.evidence.rechecked import with_check
from ifonly.models.standing import Standing
from ifonly.runs.manifest import MODEL_CHECK

WORDS = ("trust", "warnings", "warning_kinds")


def with_check_of(manifest: Mapping[str, Any], table: pl.DataFrame) -> pl.DataFrame:
    """The table with rows that all say of the model's check what the manifest says: the newest that is known."""
    check = manifest.get(MODEL_CHECK)
    if check is None:
        return table
    standing = Standing.from_dict(check)
    words = [with_check(row, standing) for row in table.select(WORDS).iter_rows(named=True)]
    return table.with_columns(pl.Series(name, [row[name] for row in words], dtype=table.schema[name]) for name in WORDS)
