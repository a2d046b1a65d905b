"""Reports and summaries for people outside: codes in place of ids, rounded values, no small groups.

Times need no shifting: whatever is imported becomes steps from 0, and no report or summary holds a date of anybody.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ifonly.errors import InputError, StoreError
from ifonly.files import file_reason, make_folders, require_ordinary, sync
from ifonly.report.cases.case import Case, MeasuredFeature
from ifonly.report.cases.courses import Course
from ifonly.report.summary import RunSummary
from ifonly.result import Result

KEY_BYTES = 32
CODE_DIGITS = 12
"""Hexadecimal: two of a million ids share a code in one of 500 cohorts."""
SMALLEST_CELL = 5
"""Rows of tables that rest on fewer episodes are left out."""
SIGNIFICANT_DIGITS = 2
"""Of measured values: enough to read a course, too few to look a person up by them."""
_CELLS = ("by_horizon", "by_group", "by_examination", "changes_used", "change_times", "warnings")


@dataclass(frozen=True, repr=False)
class Deidentifier:
    """Replaces ids by codes that only the holder of the key can make again: the same id has the same code everywhere.

    >>> codes = Deidentifier(b"k" * 32)
    >>> codes.code("patient-00001") == codes.code("patient-00001") != codes.code("patient-00002")
    True
    """

    key: bytes
    smallest_cell: int = SMALLEST_CELL

    def __post_init__(self) -> None:
        if len(self.key) < KEY_BYTES:
            raise InputError(f"deidentify: a key needs at least {KEY_BYTES} bytes, found {len(self.key)}.")

    @classmethod
    def from_file(cls, path: str | Path) -> Deidentifier:
        """With the key that a file holds; a missing one is made, with a fresh key, for nobody else to read."""
        file = Path(path)
        require_ordinary(file, most=2**12)
        try:
            if not file.exists():
                make_folders(file.parent)
                _write_key(file)
            text = file.read_text(encoding="ascii").strip()
            return cls(bytes.fromhex(text))
        except OSError as error:
            raise StoreError(f"key {file}: cannot be read or written ({file_reason(error)}).") from None
        except ValueError:
            raise StoreError(
                f"key {file}: is not a key of ifonly ({2 * KEY_BYTES} hexadecimal digits); name another file, and a "
                "key is made there."
            ) from None

    def code(self, id: str) -> str:
        """What stands for an id of an episode or a subject."""
        return f"id-{hmac.new(self.key, id.encode(), hashlib.sha256).hexdigest()[:CODE_DIGITS]}"

    def case(self, case: Case) -> Case:
        """The case under its code: measured values are rounded, what does not change in a person is left out."""
        ids = {case.episode: self.code(case.episode), case.subject: self.code(case.subject)}
        found: Case = _mapped(case, ids)
        return replace(found, facts=())

    def summary(self, summary: RunSummary) -> RunSummary:
        """The summary with codes, and without rows that rest on fewer than `smallest_cell` episodes."""
        changed: dict[str, Any] = {
            name: self._coded(getattr(summary, name)) for name in ("episodes", "cases", "failures")
        }
        for name in _CELLS:
            changed[name] = getattr(summary, name).filter(pl.col("episodes") >= self.smallest_cell)
        return replace(summary, **changed)

    def _coded(self, frame: pl.DataFrame) -> pl.DataFrame:
        names = [name for name in ("episode", "subject", "example") if name in frame.columns]
        return frame.with_columns(pl.col(names).map_elements(self.code, return_dtype=pl.String))


def _write_key(file: Path) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as content:
        content.write(secrets.token_hex(KEY_BYTES) + "\n")
        content.flush()
        os.fsync(content.fileno())
    sync(file.parent)


def _mapped(value: Any, ids: Mapping[str, str]) -> Any:
    """A record, or values nested in any way, with other ids and with measured values rounded."""
    if isinstance(value, str):
        return ids.get(value, value)
    if is_dataclass(value) and not isinstance(value, type):
        # Only what differs: a record that refers to many others is not built anew for nothing.
        found = {one.name: _mapped(getattr(value, one.name), ids) for one in fields(value) if one.init}
        found |= {name: _rounded(found[name]) for name in _measured(value)}
        changed = {name: new for name, new in found.items() if new is not getattr(value, name)}
        return replace(value, **changed) if changed else value
    if isinstance(value, Mapping):
        entries = {key: _mapped(entry, ids) for key, entry in value.items()}
        return entries if any(entries[key] is not value[key] for key in entries) else value
    if isinstance(value, list | tuple):
        items = [_mapped(item, ids) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return tuple(items) if isinstance(value, tuple) else items
    return value


def _measured(record: Any) -> tuple[str, ...]:
    """The fields of a record that hold values of a person."""
    if isinstance(record, MeasuredFeature):
        return ("observed",)
    if isinstance(record, Course):
        return ("states",)
    return ("states", "observed_states") if isinstance(record, Result) else ()


def _rounded(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return np.vectorize(_round, otypes=[np.float64])(values)
    return tuple(_rounded(value) if isinstance(value, list | tuple) else _round(value) for value in values)


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{SIGNIFICANT_DIGITS}g}")
