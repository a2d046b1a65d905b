"""From the files of a clinical source - MIMIC, eICU, MEDS - to canonical event tables, one streaming pass per file.

Every pass and every event table is a stage: written whole or not at all, and not made again while the file and the
rules that it comes from are the same.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from ifonly.clinical.cache import Counts, TableCache, code_of
from ifonly.clinical.code_map import with_items
from ifonly.clinical.database import Database, open_database, parquet_relation
from ifonly.clinical.eicu import Eicu
from ifonly.clinical.inclusion import TABLES, FlowStep
from ifonly.clinical.meds import find_meds, meds_files
from ifonly.clinical.mimic import Mimic
from ifonly.clinical.rules import EventRule, check_losses, loss_notes, read_rules
from ifonly.clinical.sources import find_source
from ifonly.clinical.stages import ClinicalSource, ExtractStage
from ifonly.clinical.treatments import DEFAULT_WEIGHT
from ifonly.data.plain import read_mapping
from ifonly.errors import InputError
from ifonly.files import write_text_atomically
from ifonly.progress import Progress, Tick, silent


@dataclass(frozen=True)
class Events:
    """The event tables of a source, as Parquet files in one folder, and what was counted on the way."""

    folder: Path
    release: str
    counts: dict[str, Any]
    notes: tuple[str, ...]
    """What a reader should know about this source, in sentences."""
    made: tuple[str, ...]
    """The stages that were made now; others were there already."""

    def path(self, table: str) -> Path:
        """The file of one of `TABLES`."""
        if table not in TABLES:
            raise InputError(f"there is no event table {table!r}; there are {', '.join(TABLES)}.")
        return self.folder / f"{table}.parquet"

    @property
    def listed(self) -> FlowStep:
        """All rows of the source's table of stays, usable or not: where a flow begins."""
        counts = self.counts["tables"]["admitted"]
        return FlowStep("stays in intensive care", counts["stays listed"], counts["subjects listed"])

    def table(self, name: str) -> pl.LazyFrame:
        """One of `TABLES`, not yet read."""
        return pl.scan_parquet(self.path(name), glob=False)


def read_events(
    source: str | Path | ClinicalSource,
    work: str | Path,
    *,
    codes: Path | None = None,
    memory: str = "4GB",
    threads: int | None = None,
    progress: Progress = silent,
) -> Events:
    """Read the tables of MIMIC-III, MIMIC-IV or eICU, or a MEDS dataset, into event tables under `work`/stages.

    `source` is a folder, or a source of your own. `codes` is a file: the code map of a MEDS dataset, or what to read of
    the others besides the packaged lists.

    `memory` limits what the database holds (the rest waits in temporary files under `work`, removed at the end);
    `threads` is by default the number of cores. Progress comes per file, in bytes, then per event table.
    """
    found = recognise(source, codes) if isinstance(source, str | Path) else source
    work = Path(work)
    reader = _Reader(found, TableCache(work / "stages"), TableCache(work / "stages" / "passes"), progress)
    with open_database(work / "temporary", memory=memory, threads=threads) as database:
        # Only now: limits that are refused leave no folder behind.
        (work / "stages" / "passes").mkdir(parents=True, exist_ok=True)
        made = [*reader.make_passes(database), *reader.make_tables(database)]
        notes = [*found.notes(database, reader.counts()["files"]), *reader.notes()]
    counts = {"release": found.release, **reader.counts()}
    write_text_atomically(work / "stages" / "counts.json", json.dumps({**counts, "notes": notes}, indent=1) + "\n")
    return Events(work / "stages", found.release, counts, tuple(notes), tuple(made))


def recognise(folder: str | Path, codes: Path | None = None) -> ClinicalSource:
    """What a folder holds: a MEDS dataset, or a database's tables, with more to read where a file names it."""
    if meds_files(Path(folder)):
        return find_meds(Path(folder), codes)
    found = find_source(folder)
    if codes is not None:
        found = replace(found, items=with_items(found.items, read_mapping(codes)))
    return Eicu(found) if found.release == "eICU" else Mimic(found)


@dataclass
class _Reader:
    """One build of event tables."""

    source: ClinicalSource
    stages: TableCache
    passes: TableCache
    """The passes' rows and what only rules read, apart from the event tables."""
    progress: Progress
    read: list[str] = field(default_factory=list)
    """The names of the source's stages."""

    def make_passes(self, database: Database) -> Iterator[str]:
        """Make the source's rows where they are not there; yield the names of those that were made."""
        for stage in self.source.stages(database):
            self.read.append(stage.name)
            if self._make_pass(stage):
                yield stage.name
            database.view(f"raw_{stage.name}", f"SELECT * FROM {parquet_relation(self.passes.path(stage.name))}")

    def _make_pass(self, stage: ExtractStage) -> bool:
        def report(fraction: float) -> None:
            self.progress(Tick(stage.shown, min(int(fraction * stage.size), stage.size), stage.size))

        report(0.0)
        made = self.passes.make(stage.name, stage.recipe, lambda path: stage.write(path, report))
        report(1.0)
        return made

    def make_tables(self, database: Database) -> Iterator[str]:
        """Make each event table that is not there; yield the names of those that were made."""
        for rule in read_rules(self.source.release, self.source.rows, self.source.items):
            stages = self.passes if rule.intermediate else self.stages
            self.progress(Tick(rule.name, 0, 1))
            if self._make_table(database, rule, stages):
                yield rule.name
            files = " and ".join(self.passes.counts[name]["file"] for name in rule.passes)
            check_losses(rule.name, stages.counts[rule.name]["kinds"], files=files)
            self.progress(Tick(rule.name, 1, 1))
            database.view(rule.name, f"SELECT * FROM {parquet_relation(stages.path(rule.name))}")

    def _make_table(self, database: Database, rule: EventRule, stages: TableCache) -> bool:
        keys = [self.passes.keys[name] for name in rule.passes]
        keys += [self.stages.keys.get(name) or self.passes.keys[name] for name in rule.after]
        # The queries are all that rules say; this module and the database run them.
        code = code_of("extract", "database")
        recipe = {"rows": rule.rows, "table": rule.table, "figures": rule.figures, "from": keys, "code": code}
        return stages.make(rule.name, recipe, lambda path: _apply(database, rule, path))

    def counts(self) -> dict[str, dict[str, Counts]]:
        """What each pass read, and what each rule kept and removed."""
        passed = self.passes.counts
        files = {name: counts for name, counts in passed.items() if name in self.read}
        rules = {name: counts for name, counts in passed.items() if name not in files}
        return {"files": files, "tables": rules | self.stages.counts}

    def notes(self) -> Iterator[str]:
        """What the counts say that a reader should not overlook."""
        counted = self.counts()
        for counts in counted["files"].values():
            for column, found in counts.get("text", {}).items():
                yield (
                    f"{counts['file']}: {found['values']:,} values in {column} are no numbers and are left out; the "
                    f"first is in row {found['first row']:,} after the header."
                )
        for name, counts in counted["tables"].items():
            yield from loss_notes(name, counts["kinds"])
        if alone := self.stages.counts["vasopressors"].get("charted rates that nothing follows in time"):
            yield (
                f"vasopressors: after {alone:,} charted rates nothing says for 4 hours how they went on; they count "
                "for one hour."
            )
        without = self.stages.counts["stays"]["kinds"].get("no weight", {}).get("kept", 0)
        if without:
            rates = self.stages.counts["vasopressors"]["rates with an assumed weight"]
            yield (
                f"{without:,} stays have no plausible weight; {rates:,} rates there that are not per kg are taken for "
                f"{DEFAULT_WEIGHT:g} kg."
            )


def _apply(database: Database, rule: EventRule, path: Path) -> Counts:
    """Write a rule's table, and count its rows by kind and reason."""
    database.view(f"{rule.name}_rows", rule.rows)
    database.write(rule.table, path)
    kinds: dict[str, dict[str, int]] = {}
    for kind, reason, number in database.rows(
        f"SELECT kind, coalesce(reason, 'kept'), count(*) FROM {rule.name}_rows GROUP BY ALL ORDER BY ALL"
    ):
        kinds.setdefault(kind, {})[reason] = number
    counts: Counts = {"kinds": kinds}
    ((counts["rows"],),) = database.rows(f"SELECT count(*) FROM {parquet_relation(path)}")
    for words, query in rule.figures:
        ((counts[words],),) = database.rows(query)
    return counts
