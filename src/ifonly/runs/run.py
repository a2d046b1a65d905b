"""A run that was done, or is being done: what was asked, and its table."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from ifonly.errors import StoreError
from ifonly.evidence.limits import in_force
from ifonly.files import sha256_of
from ifonly.runs.checked import with_check_of
from ifonly.runs.folder import TABLE, counts_of, frame_of, rows_of
from ifonly.runs.manifest import FINISHED, read_manifest
from ifonly.runs.rows import COLUMNS, FIRST_COLUMNS, TRUST_COLUMNS


@dataclass(frozen=True, eq=False)
class Run:
    """The folder of a cohort run and its manifest: `format`, `question`, `solver`, `limits`, fingerprints, `counts`."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def is_finished(self) -> bool:
        """Whether every episode has its row."""
        return bool(self.manifest["state"] == FINISHED)

    @property
    def counts(self) -> dict[str, int]:
        """How many episodes ended how: statuses, "failed" included."""
        return dict(self.manifest["counts"])

    @property
    def warning_limits(self) -> dict[str, float]:
        """The limits beyond which rows warn, by name: those in force when the run was made."""
        return dict(self.manifest["question"]["examination"].get("limits") or in_force())

    def table(self) -> pl.DataFrame:
        """One row per episode, `ifonly.runs.rows.COLUMNS`, in the cohort's order; of a run at work, the rows so far.

        Rows tell the newest check of the model that the run knows of, which may be younger than they are.
        """
        return with_check_of(self.manifest, self._stored_table())

    def _stored_table(self) -> pl.DataFrame:
        if not self.is_finished:
            return frame_of(rows_of(self.folder))
        if not has_table(self.folder, self.manifest):
            raise StoreError(
                f"{self.folder / TABLE}: missing, cut off or altered since the run ended; run the same again to have "
                "it made from the rows."
            )
        frame = pl.read_parquet(io.BytesIO((self.folder / TABLE).read_bytes()))
        if frame.schema == FIRST_COLUMNS:  # written by version 1
            return frame.with_columns(pl.lit(None, kind).alias(name) for name, kind in TRUST_COLUMNS.items())
        if frame.schema != COLUMNS:
            raise StoreError(f"{self.folder / TABLE}: its columns are not those of a run.")
        return frame

    def __repr__(self) -> str:
        done = ", ".join(f"{count} {status}" for status, count in self.counts.items()) or "nothing yet"
        return f"Run({str(self.folder)!r}, {self.manifest['cohort']['episodes']} episodes: {done})"


def load_run(folder: str | Path) -> Run:
    """The run in `folder`, be it finished or not."""
    place = Path(folder)
    manifest = read_manifest(place)
    if manifest.get("state") != FINISHED:
        manifest["counts"] = counts_of(frame_of(rows_of(place))["status"])
    return Run(place, manifest)


def has_table(folder: Path, manifest: dict[str, Any]) -> bool:
    """Whether a finished run's table is there, as it was written."""
    table, expected = folder / TABLE, manifest.get("table", {})
    return (
        table.is_file() and table.stat().st_size == expected.get("bytes") and sha256_of(table) == expected.get("sha256")
    )
