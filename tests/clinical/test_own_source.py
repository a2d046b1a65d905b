"""A clinical source of one's own: rows from anywhere, and all that follows is that of the others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ifonly.clinical.build import BuildOptions, build_cohort
from ifonly.clinical.cache import Counts
from ifonly.clinical.database import Database
from ifonly.clinical.inclusion import Selection
from ifonly.clinical.items import mimic_items
from ifonly.clinical.levels import LevelChoice
from ifonly.clinical.stages import ExtractStage, Report

MORNING = "TIMESTAMP '2031-05-01 08:00:00'"
NONE = "WHERE false"
ROWS = {
    "stays": f"SELECT 1 AS stay, 7 AS subject, 1 AS admission, {MORNING} AS intime, "
    f"{MORNING} + INTERVAL 48 HOUR AS outtime, 'ours' AS source",
    "patients": "SELECT 7 AS subject, TIMESTAMP '1981-05-01' AS born, 'F' AS gender",
    "admissions": "SELECT 1 AS admission, 0 AS died",
    "charted": f"SELECT 1 AS stay, {MORNING} + to_hours(h::INTEGER) AS time, 60.0 + h AS number, 220052 AS item, "
    "NULL::VARCHAR AS text, false AS flagged FROM range(48) r(h)",
    "labs": f"SELECT 7 AS subject, 1 AS admission, {MORNING} AS time, 90.0 AS number, 51265 AS item, "
    "NULL::VARCHAR AS text",
    "outputs": f"SELECT 1 AS stay, {MORNING} AS time, 100.0 AS number, 226559 AS item, false AS flagged",
    "inputs_metavision": f"SELECT 1 AS stay, {MORNING} AS start, {MORNING} + INTERVAL 6 HOUR AS stop, 221906 AS item, "
    "50.0 AS weight, NULL::DOUBLE AS amount, NULL AS amount_unit, 0.1 AS rate, 'mcg/kg/min' AS rate_unit, "
    "'1' AS order_id, false AS cancelled",
    "prescriptions": f"SELECT 7 AS subject, 1 AS admission, {MORNING} AS time, true AS time_known {NONE}",
    "microbiology": f"SELECT 7 AS subject, 1 AS admission, {MORNING} AS time, {MORNING} AS day {NONE}",
}


@dataclass(frozen=True)
class Ours:
    """One stay, with items of MIMIC; another hospital would have numbers of its own."""

    release: str = "Ours"
    items: Mapping[str, Any] = field(default_factory=mimic_items)
    rows: tuple[str, ...] = tuple(ROWS)

    def stages(self, database: Database) -> Iterator[ExtractStage]:
        for name, sql in ROWS.items():

            def write(path: Path, report: Report, sql: str = sql) -> Counts:
                return {"file": "ours", "rows": database.write(sql, path)}

            yield ExtractStage(name, {"query": sql}, write, name)

    def notes(self, database: Database, counts: Mapping[str, Counts]) -> Iterator[str]:
        yield f"{len(counts)} kinds of rows."


def test_a_source_of_ones_own_becomes_a_cohort(tmp_path: Path) -> None:
    options = BuildOptions(selection=Selection(cohort="all-adults"), levels=LevelChoice("paper"), threads=1)
    made = build_cohort(Ours(), tmp_path / "cohort", options)
    assert made.origin["source"] == "Ours"
    assert f"{len(ROWS)} kinds of rows." in made.remarks
    assert made.grid["MAP"].to_list() == pytest.approx([61.5 + 4 * step for step in range(12)])
    assert made.grid["platelets"].to_list()[0] == 90
    assert made.grid["vasopressor"].to_list() == [0.1, 0.1, *[0.0] * 10]
    assert made.grid["age"].to_list()[0] == pytest.approx(50, abs=0.01)
