"""MIMIC-III and MIMIC-IV as a clinical source: one pass over each file gives the typed rows that rules read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ifonly.clinical.cache import Counts
from ifonly.clinical.database import Database, csv_relation
from ifonly.clinical.items import differing_labels
from ifonly.clinical.passes import antibiotics_of, pass_stages
from ifonly.clinical.sources import Source
from ifonly.clinical.stages import ExtractStage


@dataclass(frozen=True)
class Mimic:
    """A release of MIMIC, recognised."""

    found: Source

    @property
    def release(self) -> str:
        """MIMIC-III or MIMIC-IV."""
        return self.found.release

    @property
    def items(self) -> Mapping[str, Any]:
        """Item ids by purpose."""
        return self.found.items

    @property
    def rows(self) -> tuple[str, ...]:
        """The release's tables, by our names."""
        return tuple(self.found.tables)

    def stages(self, database: Database) -> Iterator[ExtractStage]:
        """One pass over each file."""
        return pass_stages(self.found, database, {"prescriptions": antibiotics_of(self.items, "drug", "route")})

    def notes(self, database: Database, counts: Mapping[str, Counts]) -> Iterator[str]:
        """Items that the release's own dictionaries describe otherwise than expected."""
        for name, laboratory in (("items", False), ("lab_items", True)):
            if name not in self.found.tables:
                continue
            table = self.found.tables[name]
            rows = database.rows(
                f"SELECT TRY_CAST(itemid AS INTEGER), label FROM {csv_relation(table)} "
                "WHERE TRY_CAST(itemid AS INTEGER) IS NOT NULL AND label IS NOT NULL",
                reading=table,
            )
            different = differing_labels(dict(rows), laboratory=laboratory)
            if different:
                listed = ", ".join(map(str, different[:10])) + (" and others" if len(different) > 10 else "")
                count = f"{len(different)} items have other labels than expected"
                yield f"{table.path.name}: {count} ({listed}); check them."
