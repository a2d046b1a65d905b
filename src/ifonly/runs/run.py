"""A run, finished or not: what was asked, and its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from ifonly.data.parquet import parse_parquet
from ifonly.data.schema import Schema
from ifonly.errors import InputError, StoreError
from ifonly.files import require_ordinary, sha256_of
from ifonly.markup import html_table
from ifonly.models.standing import Standing
from ifonly.query import Query
from ifonly.records import from_plain
from ifonly.result import ModelReference, Provenance, Result
from ifonly.result.evidence import Reason
from ifonly.result.table import COLUMNS, FAILED, from_row, with_check
from ifonly.runs.folder import TABLE, counts_of, frame_of, require_whole, rows_of
from ifonly.runs.manifest import DAMAGED_LINES, FINISHED, MODEL_CHECK, read_manifest


@dataclass(frozen=True, eq=False)
class Run:
    """The folder of a cohort run and its manifest: `format`, `query`, `solver`, fingerprints, `counts`."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def is_finished(self) -> bool:
        """Whether every episode has its row."""
        return bool(self.manifest["state"] == FINISHED)

    @property
    def counts(self) -> dict[str, int]:
        """The number of episodes with each status, "failed" included."""
        return dict(self.manifest["counts"])

    @property
    def damaged_lines(self) -> list[int]:
        """Lines of the journal that were altered or damaged, and set aside: their episodes were solved again."""
        return list(self.manifest.get(DAMAGED_LINES, ()))

    @cached_property
    def query(self) -> Query:
        """The query put to every episode; a reward that is code can be shown, but not evaluated."""
        return Query.from_dict(self.manifest["query"])

    @property
    def check(self) -> Standing | None:
        """The newest check of the model that the run knows of."""
        content = self.manifest.get(MODEL_CHECK)
        return None if content is None else from_plain(Standing, content, what=f"{self.folder}: model check")

    @cached_property
    def provenance(self) -> Provenance:
        """What all answers of the run rest on."""
        return Provenance(
            query=self.query,
            schema=Schema.from_dict(self.manifest["schema"]),
            model=from_plain(ModelReference, self.manifest["model"], what=f"{self.folder}: model"),
            solver=self.manifest["solver"],
            support=self.manifest["support"],
            version=self.manifest["ifonly"],
        )

    def result(self, episode: str) -> Result:
        """The run's answer for an episode; refused if the episode failed or is not in the run."""
        table, places = self._rows
        if episode not in places:
            raise InputError(f"{self.folder}: this run has no episode {episode!r}; its table lists those it has.")
        row = table.row(places[episode], named=True)
        if row["status"] == FAILED:
            raise InputError(f"{self.folder}: episode {episode!r} has no answer; {Reason(**row['reason'])}")
        return from_row(row, self.provenance)

    @cached_property
    def _rows(self) -> tuple[pl.DataFrame, Mapping[str, int]]:
        """The table, and the row of each episode: converting all rows to Python objects would take long."""
        table = self.table()
        return table, {episode: place for place, episode in enumerate(table["episode"])}

    def table(self) -> pl.DataFrame:
        """One row per episode, `ifonly.result.table.COLUMNS`, in the cohort's order; if unfinished, those so far.

        Rows have the newest check of the model that the run knows of, which may be more recent than they are.
        """
        return with_check(self._stored_table(), self.check)

    def _stored_table(self) -> pl.DataFrame:
        if not self.is_finished:
            return frame_of(rows_of(self.folder))
        require_ordinary(self.folder / TABLE, folder=self.folder)
        if not has_table(self.folder, self.manifest):
            raise StoreError(
                f"{self.folder / TABLE}: missing, cut off or altered since the run ended; run the same again to have "
                "it made from the rows."
            )
        frame = parse_parquet(self.folder / TABLE, (self.folder / TABLE).read_bytes())
        if frame.schema != COLUMNS:
            raise StoreError(f"{self.folder / TABLE}: its columns are not those of a run.")
        return require_whole(frame, self.folder / TABLE)

    def _repr_html_(self) -> str:
        title = f"{self.manifest['cohort']['episodes']} episodes in {self.folder}"
        return html_table(title, ("status", "episodes"), list(self.counts.items()))

    def __repr__(self) -> str:
        done = ", ".join(f"{count} {status}" for status, count in self.counts.items()) or "nothing yet"
        return f"Run({str(self.folder)!r}, {self.manifest['cohort']['episodes']} episodes: {done})"


def load_run(folder: str | Path) -> Run:
    """The run in `folder`, finished or not."""
    place = Path(folder)
    manifest = read_manifest(place)
    if manifest.get("state") != FINISHED:
        manifest["counts"] = counts_of(frame_of(rows_of(place))["status"])
    return Run(place, manifest)


def has_table(folder: Path, manifest: dict[str, Any]) -> bool:
    """Whether a finished run's table is there and unaltered."""
    table, expected = folder / TABLE, manifest.get("table")
    return (
        isinstance(expected, dict)
        and table.is_file()
        and table.stat().st_size == expected.get("bytes")
        and sha256_of(table) == expected.get("sha256")
    )
