"""From the files of a MIMIC release or a MEDS dataset to canonical event tables, one streaming pass per file.

Every pass and every event table is a stage: written whole or not at all, and not made again while the file and the
rules that it comes from are the same.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from ifonly.clinical.cache import Counts, TableCache, code_of
from ifonly.clinical.code_map import with_items
from ifonly.clinical.database import Database, csv_relation, open_database, parquet_relation
from ifonly.clinical.inclusion import TABLES, FlowStep
from ifonly.clinical.items import differing_labels
from ifonly.clinical.meds import MedsSource, find_meds, meds_files, meds_notes, meds_stages
from ifonly.clinical.passes import Pass, make_passes, pass_recipe, run_pass
from ifonly.clinical.rules import EventRule, check_losses, loss_notes, read_rules
from ifonly.clinical.sources import Source, Table, find_source
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
    source: str | Path,
    work: str | Path,
    *,
    codes: Path | None = None,
    memory: str = "4GB",
    threads: int | None = None,
    progress: Progress = silent,
) -> Events:
    """Read a folder of MIMIC-III or MIMIC-IV tables, or a MEDS dataset, into event tables under `work`/stages.

    `codes` is a file: the code map of a MEDS dataset, or items of MIMIC to read besides the packaged ones.

    `memory` limits what the database holds (the rest waits in temporary files under `work`, removed at the end);
    `threads` is by default the number of cores. Progress comes per file, in bytes, then per event table.
    """
    found = recognise(source, codes)
    work = Path(work)
    reader = _Reader(found, TableCache(work / "stages"), TableCache(work / "stages" / "passes"), progress)
    with open_database(work / "temporary", memory=memory, threads=threads) as database:
        # Only now: limits that are refused leave no folder behind.
        (work / "stages" / "passes").mkdir(parents=True, exist_ok=True)
        made = [*reader.make_passes(database), *reader.make_tables(database)]
        notes = [*_label_notes(database, found), *reader.notes()]
    counts = {"release": found.release, **reader.counts()}
    write_text_atomically(work / "stages" / "counts.json", json.dumps({**counts, "notes": notes}, indent=1) + "\n")
    return Events(work / "stages", found.release, counts, tuple(notes), tuple(made))


def recognise(folder: str | Path, codes: Path | None = None) -> Source | MedsSource:
    """What a folder holds: a MEDS dataset, or a release of MIMIC, with further items where a file names some."""
    if meds_files(Path(folder)):
        return find_meds(Path(folder), codes)
    found = find_source(folder)
    return found if codes is None else replace(found, items=with_items(found.items, read_mapping(codes)))


@dataclass
class _Reader:
    """One build of event tables."""

    source: Source | MedsSource
    stages: TableCache
    passes: TableCache
    """The passes' rows and what only rules read, apart from the event tables."""
    progress: Progress

    def make_passes(self, database: Database) -> Iterator[str]:
        """Make each pass that is not there; yield the names of those that were made."""
        if isinstance(self.source, MedsSource):
            yield from self._make_meds(database, self.source)
            return
        passes, tables = make_passes(self.source), self.source.tables
        # Small files first: what is wrong with them shows before the hours that the largest ones take.
        for name in sorted(passes, key=lambda name: tables[name].size):
            if self._make_pass(database, tables[name], name, passes[name]):
                yield name
            database.view(f"raw_{name}", f"SELECT * FROM {parquet_relation(self.passes.path(name))}")

    def _make_meds(self, database: Database, source: MedsSource) -> Iterator[str]:
        for stage in meds_stages(source, database):
            self.progress(Tick(stage.name, 0, 1))
            if self.passes.make(stage.name, stage.recipe, stage.write):
                yield stage.name
            self.progress(Tick(stage.name, 1, 1))
            database.view(f"raw_{stage.name}", f"SELECT * FROM {parquet_relation(self.passes.path(stage.name))}")

    def _make_pass(self, database: Database, table: Table, name: str, chosen: Pass) -> bool:
        stage, total = table.path.name.split(".")[0], table.size

        def report(fraction: float) -> None:
            self.progress(Tick(stage, min(int(fraction * total), total), total))

        report(0.0)
        made = self.passes.make(
            name, pass_recipe(table, chosen), lambda path: run_pass(database, table, chosen, path, report=report)
        )
        report(1.0)
        return made

    def make_tables(self, database: Database) -> Iterator[str]:
        """Make each event table that is not there; yield the names of those that were made."""
        for rule in read_rules(self.source.release, self.source.tables, self.source.items):
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
        files = {name: counts for name, counts in passed.items() if name in self.source.tables}
        rules = {name: counts for name, counts in passed.items() if name not in files}
        return {"files": files, "tables": rules | self.stages.counts}

    def notes(self) -> Iterator[str]:
        """What the counts say that a reader should not overlook."""
        counted = self.counts()
        if isinstance(self.source, MedsSource):
            yield from meds_notes(self.source, counted["files"])
        for counts in counted["files"].values():
            for column, found in counts.get("text", {}).items():
                yield (
                    f"{counts['file']}: {found['values']:,} values in {column} are no numbers and are left out; the "
                    f"first is in row {found['first row']:,} after the header."
                )
        for name, counts in counted["tables"].items():
            yield from loss_notes(name, counts["kinds"])
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


def _label_notes(database: Database, source: Source | MedsSource) -> Iterator[str]:
    """Items that the release's own dictionaries describe otherwise than expected."""
    for name, laboratory in (("items", False), ("lab_items", True)):
        if isinstance(source, MedsSource) or name not in source.tables:
            continue
        table = source.tables[name]
        rows = database.rows(
            f"SELECT TRY_CAST(itemid AS INTEGER), label FROM {csv_relation(table)} "
            "WHERE TRY_CAST(itemid AS INTEGER) IS NOT NULL AND label IS NOT NULL",
            reading=table,
        )
        different = differing_labels(dict(rows), laboratory=laboratory)
        if different:
            listed = ", ".join(map(str, different[:10])) + (" and others" if len(different) > 10 else "")
            yield f"{table.path.name}: {len(different)} items have other labels than expected ({listed}); check them."
