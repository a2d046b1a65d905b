"""eICU as a clinical source: its own labels, drug strings and free texts as the typed rows that rules read.

Tables and columns are those of the public schema (github.com/MIT-LCP/eicu-code), release 2.0. One pass over each file
keeps what may count; texts are read from these rows, and what cannot be read is counted by its reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ifonly.clinical.cache import Counts, code_of
from ifonly.clinical.code_map import NEVER
from ifonly.clinical.database import Database, parquet_relation, quoted
from ifonly.clinical.items import mimic_items
from ifonly.clinical.passes import antibiotics_of, pass_stages
from ifonly.clinical.rules import values
from ifonly.clinical.sources import Source
from ifonly.clinical.stages import ExtractStage, Report
from ifonly.data.plain import as_number, check_keys
from ifonly.errors import InputError

ROWS = (
    *("stays", "patients", "admissions", "charted", "labs", "outputs", "inputs_metavision", "inputs_carevue"),
    *("procedures", "prescriptions", "microbiology"),
)
"""The typed rows that are made of eICU's tables, by the names that rules know."""
PARSED = ("charted", "outputs", "inputs_carevue")
"""Those that are made of texts."""
MEASURED = ("fio2", "pao2", "platelets", "bilirubin", "creatinine")
"""What a laboratory can tell."""
WORDS = (
    *MEASURED,
    "mean_bp",
    "gcs",
    "eye",
    "verbal",
    "motor",
    "kg",
    "lb",
    "ventilator",
    "device",
    "off",
    "urine",
    "irrigant",
)


@dataclass(frozen=True)
class Eicu:
    """eICU, recognised."""

    found: Source
    rows: tuple[str, ...] = ROWS

    def __post_init__(self) -> None:
        _check_texts(self.texts)

    @property
    def release(self) -> str:
        """What the data are called."""
        return self.found.release

    @property
    def texts(self) -> Mapping[str, Any]:
        """Which labels and texts are read, as what."""
        return self.found.items

    @cached_property
    def numbers(self) -> dict[str, int]:
        """A number for all that rows can be about: the items that rules know."""
        return {
            word: place for place, word in enumerate((*WORDS, *self.texts["vasopressors"], *self.texts["fluids"]), 1)
        }

    @cached_property
    def items(self) -> Mapping[str, Any]:
        """Items in the form of MIMIC's list, by our numbers."""

        def of(*words: str) -> dict[str, Any]:
            return {str(self.numbers[word]): word for word in words}

        never = {NEVER: {"label": "", "on": "only", "values": ["-"]}}
        return {
            **mimic_items(),
            "charted": {name: of(name) for name in ("mean_bp", "fio2")},
            "labs": {name: of(name) for name in MEASURED},
            "blood_gas_specimen": {NEVER: "specimen"},
            "gcs": {"total": of("gcs"), **{part: of(part) for part in ("eye", "verbal", "motor")}},
            "weight": {"kg": of("kg"), "lb": of("lb")},
            "ventilation": of("ventilator"),
            "ventilation_text": never,
            "off_ventilation": {str(self.numbers["device"]): {"label": "device", "values": ["device"]}},
            "urine": of("urine"),
            "irrigant_in": of("irrigant"),
            "vasopressors": {drug: of(drug) for drug in self.texts["vasopressors"]},
            "fluids": {
                str(self.numbers[name]): {"label": name, "tonicity": fluid["tonicity"]}
                for name, fluid in self.texts["fluids"].items()
            },
        }

    def stages(self, database: Database) -> Iterator[ExtractStage]:
        """One pass over each file, then the typed rows that are made of these."""
        recipes = {}
        for stage in pass_stages(self.found, database, self._wanted()):
            recipes[stage.name] = stage.recipe
            yield stage
        said = self._template()
        for name in ROWS:
            sql = getattr(said, name)()
            read = [table for table in self.found.tables if re.search(rf"\braw_{table}\b", sql)]
            recipe = {"query": sql, "from": [recipes[table] for table in read], "code": code_of("eicu", "database")}
            yield ExtractStage(name, recipe, self._writer(database, said, name, sql, read), name)

    def _writer(self, database: Database, said: Any, name: str, sql: str, read: list[str]) -> Any:
        files = " and ".join(self.found.tables[table].path.name for table in read)

        def write(path: Path, report: Report) -> Counts:
            database.write(sql, path)
            ((rows,),) = database.rows(f"SELECT count(*) FROM {parquet_relation(path)}")
            counts: Counts = {"file": files, "rows": rows}
            if name in PARSED:
                counts["read"] = _by_reason(database, getattr(said, f"{name}_read")())
            return counts

        return write

    def _wanted(self) -> dict[str, str]:
        """Which rows of a table can count at all, in SQL."""
        texts = self.texts
        respiratory = [
            *texts["respiratory"]["fio2"],
            *texts["respiratory"]["ventilator"],
            texts["ventilator_switch"]["label"],
        ]
        drugs = "|".join(f"({pattern})" for pattern in texts["vasopressors"].values())
        treatments = (
            f"regexp_matches(lower(treatmentstring), {quoted(texts['antibacterials'] + '|' + texts['cultures'])})"
        )
        systemic = f"NOT coalesce(regexp_matches(lower(routeadmin), {quoted(texts['not_systemic_routes'])}), false)"
        antibiotics = antibiotics_of(mimic_items(), "drugname", "routeadmin")
        return {
            "vitalperiodic": "systemicmean IS NOT NULL",
            "vitalaperiodic": "noninvasivemean IS NOT NULL",
            "lab": f"labname IN ({_quoted_all(texts['labs'])})",
            "nursecharting": "nursingchartcelltypevallabel IN "
            f"({_quoted_all([*texts['nursing'], texts['devices']['label']])})",
            "respiratorycharting": f"respchartvaluelabel IN ({_quoted_all(respiratory)})",
            "infusiondrug": f"regexp_matches(lower(drugname), {quoted(drugs)})",
            "medication": f"{antibiotics} AND {systemic} AND coalesce(lower(trim(drugordercancelled)) <> 'yes', true)",
            "treatment": treatments,
        }

    def _template(self) -> Any:
        environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "sql"), undefined=StrictUndefined, trim_blocks=True
        )
        nursing = [
            (label, name, self.numbers[word])
            for label, names in self.texts["nursing"].items()
            for name, word in names.items()
        ]
        environment.globals |= {
            "texts": self.texts,
            "tables": self.found.tables,
            "item": self.numbers,
            "nursing": nursing,
            "labs_items": [(label, self.numbers[word]) for label, word in self.texts["labs"].items()],
            "body_weight": [(leaf, self.numbers[word]) for leaf, word in self.texts["body_weight"].items()],
            "fluids": [(name, fluid["words"]) for name, fluid in self.texts["fluids"].items()],
            "treatments": [(name, self.numbers[name]) for name in (*self.texts["vasopressors"], *self.texts["fluids"])],
            "values": values,
            "quoted": quoted,
            "quoted_all": _quoted_all,
        }
        template: Any = environment.get_template("eicu.sql")
        return template.make_module({})

    def notes(self, database: Database, counts: Mapping[str, Counts]) -> Iterator[str]:
        """What could not be read of texts, and what the data do not tell."""
        for stage in PARSED:
            for kind, reasons in counts[stage]["read"].items():
                lost = {reason: rows for reason, rows in reasons.items() if reason != "kept"}
                if lost:
                    total, listed = sum(reasons.values()), "; ".join(f"{name}: {rows:,}" for name, rows in lost.items())
                    yield f"{kind}: {sum(lost.values()):,} of {total:,} rows are not read ({listed})."
        ((several,),) = database.rows(
            "SELECT count(*) FROM (SELECT subject FROM raw_patient GROUP BY subject, year "
            "HAVING count(DISTINCT hospital_stay) > 1)"
        )
        if several:
            yield (
                f"{several:,} times a patient was in hospital more than once within a year; which stay came first is "
                "not in eICU, and none of them counts as a readmission for the other."
            )
        if not counts["microbiology"]["rows"]:
            yield "no culture is recorded: nobody can have a suspected infection; --cohort all-adults asks for none."


def _check_texts(texts: Mapping[str, Any]) -> None:
    """Refuse what a user's file has added, if it is no pattern, no number, or not complete."""
    for name, fluid in texts["fluids"].items():
        check_keys(f"fluids: {name}", fluid, required={"words", "tonicity"}, optional=set())
        as_number(f"fluids: {name}: tonicity", fluid["tonicity"])
    patterns = {f"fluids: {name}": fluid["words"] for name, fluid in texts["fluids"].items()}
    for group in ("vasopressors", "not_fluids"):
        patterns |= {f"{group}: {name}": pattern for name, pattern in texts[group].items()}
    for where, pattern in patterns.items():
        try:
            re.compile(pattern)
        except (re.error, TypeError):
            raise InputError(f"{where}: {pattern!r} is no pattern (a regular expression, for lower case).") from None
    if unknown := set(texts["vasopressors"]) - set(mimic_items()["norepinephrine_equivalent"]):
        raise InputError(f"vasopressors: {min(unknown)!r} has no equivalent in norepinephrine.")
    if unknown := {word for word in texts["labs"].values() if word not in MEASURED}:
        raise InputError(f"labs: {min(unknown, key=str)!r} is none of {', '.join(MEASURED)}.")


def _by_reason(database: Database, rows: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for kind, reason, number in database.rows(
        f"SELECT kind, coalesce(reason, 'kept'), count(*) FROM ({rows}) GROUP BY ALL ORDER BY ALL"
    ):
        found.setdefault(kind, {})[reason] = number
    return found


def _quoted_all(texts: Iterable[str]) -> str:
    return ", ".join(map(quoted, texts))
