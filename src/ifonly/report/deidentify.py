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
from ifonly.files import file_reason, make_folders, require_ordinary, require_private, sync
from ifonly.report.cases.band import RefitBand
from ifonly.report.cases.case import Case, Claim, MeasuredFeature
from ifonly.report.cases.courses import Course
from ifonly.report.summary import RunSummary
from ifonly.result import Alternative, Budget, Result
from ifonly.result.evidence import Reason
from ifonly.text.catalogue import Message, say

KEY_BYTES = 32
CODE_DIGITS = 12
"""Hexadecimal: two of a million ids share a code in one of 500 cohorts."""
SMALLEST_CELL = 5
"""Rows of tables that rest on fewer episodes are left out."""
SIGNIFICANT_DIGITS = 2
"""Of measured values, and of outcomes: enough to read a course, too few to look a person up by them."""
_CELLS = ("by_horizon", "by_group", "by_examination", "changes_used", "change_times", "warnings")
_FAILED = "evidence.failed."
"""How codes of messages begin whose reason is what an error says, and that names its episode, and may tell numbers."""
_IDS = ("episode", "subject")
"""Names of entries and columns that hold ids."""
_OUTCOMES = ("outcome", "clipped_outcome", "upper_bound", "member_outcomes")
_VALUES: dict[type, tuple[str, ...]] = {
    MeasuredFeature: ("observed",),
    Course: ("states", "outcome"),
    RefitBand: ("low", "high"),
    Claim: ("best_possible",),
    Result: ("states", "observed_states", "observed_outcome", "observed_clipped_outcome", *_OUTCOMES),
    Budget: _OUTCOMES,
    Alternative: _OUTCOMES,
}
"""The fields of records that hold values of a person. The outcome of a goal that counts at one step is one, too."""


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
            require_private(file, what="key")
            text = file.read_bytes()
        except OSError as error:
            raise StoreError(f"key {file}: cannot be read or written ({file_reason(error)}).") from None
        try:
            return cls(bytes.fromhex(text.decode("ascii").strip()))
        except ValueError:
            raise StoreError(
                f"key {file}: is not a key of ifonly ({2 * KEY_BYTES} hexadecimal digits); name another file, and a "
                "key is made there."
            ) from None

    def code(self, id: str) -> str:
        """What stands for an id of an episode or a subject."""
        return f"id-{hmac.new(self.key, id.encode(), hashlib.sha256).hexdigest()[:CODE_DIGITS]}"

    def case(self, case: Case) -> Case:
        """The case under its code: values are rounded, what does not change in a person is left out."""
        found: Case = self._mapped(case)
        return replace(found, facts=())

    def summary(self, summary: RunSummary) -> RunSummary:
        """The summary with codes and rounded outcomes, and without rows that rest on fewer than `smallest_cell`
        episodes; patterns are those of subjects, and were left out when the summary was made.

        Rows are in the order of their codes, cases among equals: that of the cohort is often the order of ids.
        """
        changed: dict[str, Any] = {
            name: self._coded(getattr(summary, name)) for name in ("episodes", "cases", "failures")
        }
        changed["episodes"] = changed["episodes"].sort("episode")
        changed["cases"] = changed["cases"].sort("improvement", "episode", descending=[True, False])
        for name in _CELLS:
            changed[name] = getattr(summary, name).filter(pl.col("episodes") >= self.smallest_cell)
        few = (pl.col("changed") > 0) & (pl.col("changed") < self.smallest_cell)
        changed["change_times"] = changed["change_times"].filter(~few)
        averages = {name: _rounded(value) for name, value in vars(summary.outcomes).items()}
        return replace(summary, **changed, outcomes=replace(summary.outcomes, **averages))

    def notes(self, table: pl.DataFrame) -> pl.DataFrame:
        """Reviewers' judgements under codes, theirs and those of episodes; without what they wrote, which may name
        anybody, and without when."""
        outcomes = [name for name in ("observed", "best") if name in table.columns]
        coded = pl.col("episode", "reviewer").map_elements(self.code, return_dtype=pl.String)
        rounded = pl.col(outcomes).map_elements(_rounded, return_dtype=pl.Float64)
        return table.drop("note", "steps", "updated").with_columns(coded, rounded).sort("episode", "reviewer")

    def _coded(self, frame: pl.DataFrame) -> pl.DataFrame:
        ids = [name for name in (*_IDS, "example") if name in frame.columns]
        outcomes = [name for name in ("observed", "counterfactual") if name in frame.columns]
        return frame.with_columns(
            pl.col(ids).map_elements(self.code, return_dtype=pl.String),
            pl.col(outcomes).map_elements(_rounded, return_dtype=pl.Float64),
        )

    def _mapped(self, value: Any) -> Any:
        """A record, or values nested in any way, with codes in place of ids, and with rounded values."""
        if isinstance(value, Reason):
            return replace(value, detail=say("reason.not told"))
        if isinstance(value, Message) and value.code.startswith(_FAILED):
            return replace(value, values={"reason": say("reason.not told")})
        if is_dataclass(value) and not isinstance(value, type):
            rounded = {name for kind, names in _VALUES.items() if isinstance(value, kind) for name in names}
            entries = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
            found = {
                name: _rounded(entry) if name in rounded else self._entry(name, entry)
                for name, entry in entries.items()
            }
            # Only what differs: a record that refers to many others is not built anew for nothing.
            changed = {name: new for name, new in found.items() if new is not entries[name]}
            return replace(value, **changed) if changed else value
        if isinstance(value, Mapping):
            found = {key: self._entry(key, entry) for key, entry in value.items()}
            return found if any(found[key] is not value[key] for key in found) else value
        if isinstance(value, list | tuple):
            items = [self._mapped(item) for item in value]
            if all(new is old for new, old in zip(items, value, strict=True)):
                return value
            return tuple(items) if isinstance(value, tuple) else items
        return value

    def _entry(self, name: str, value: Any) -> Any:
        return self.code(value) if name in _IDS and isinstance(value, str) else self._mapped(value)


def _write_key(file: Path) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as content:
        content.write(secrets.token_hex(KEY_BYTES) + "\n")
        content.flush()
        os.fsync(content.fileno())
    sync(file.parent)


def _rounded(value: Any) -> Any:
    """A number, or numbers nested in any way, with few digits; what is no number stays."""
    if isinstance(value, np.ndarray):
        return np.vectorize(_rounded, otypes=[np.float64])(value) if value.size else value
    if isinstance(value, list | tuple):
        return tuple(_rounded(one) for one in value)
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if isinstance(value, float) else value
