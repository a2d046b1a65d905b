"""Which codes of a MEDS dataset stand for what: a file that a hospital writes once.

Codes are any hospital's own, so nothing is guessed. A star in a code stands for any characters. Values are multiplied
by `factor`, which turns the unit of the dataset into the one of the event tables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ifonly.clinical.items import mimic_items
from ifonly.data.plain import as_list, as_number, check_keys, check_name, did_you_mean, read_document
from ifonly.errors import InputError

FORMAT, VERSION = "ifonly.codes", 1

Part = Literal["at", "start", "end"]
"""Of a moment, or of the beginning or the end of what lasts."""

MEASURED = ("mean_bp", "fio2", "pao2", "platelets", "bilirubin", "creatinine", "gcs")
GCS_PARTS = ("gcs_eye", "gcs_verbal", "gcs_motor")
PEOPLE = ("birth", "female", "male", "died_in_hospital")
SECTIONS = (
    "stays",
    "people",
    "measurements",
    "urine",
    "ventilation",
    "vasopressors",
    "fluids",
    "antibiotics",
    "cultures",
)
TO_FILL_IN = "?"
"""What a first code map leaves to people."""
NEVER = "-1"
"""The number of an item that no row has, for lists that would be empty."""


@dataclass(frozen=True)
class Entry:
    """Codes that stand for one thing."""

    purpose: str
    """A section of the file, or an entry of one."""
    codes: tuple[tuple[str, Part], ...]
    factor: float = 1.0
    unit: str = ""
    """Of rates of vasopressors."""
    number_at: Part = "at"
    """Where the rate or the amount of what lasts stands: with its start or its end."""
    tonicity: float = 1.0
    drug: str = ""

    @property
    def ends_by_itself(self) -> bool:
        """Whether its rows have a start and, in a column of their own, an end."""
        parts = {part for _, part in self.codes}
        return parts == {"start"}


@dataclass(frozen=True)
class CodeMap:
    """All entries of a file; their numbers, from 1, are the items that rules know."""

    entries: tuple[Entry, ...]
    ends: str = ""
    """A column of the dataset with the ends of rows, for entries that name no codes of ends."""
    items: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", _items(self.entries))

    def missing(self) -> list[str]:
        """Sections and measurements for which no code is named."""
        there = {entry.purpose for entry in self.entries}
        wanted = (*MEASURED, "urine", "ventilation on", "vasopressors", "fluids", "antibiotics", "cultures")
        lacking = [name for name in wanted if name not in there]
        parts = set(GCS_PARTS) <= there
        return [name for name in lacking if not (name == "gcs" and parts)]

    def resolve(self, codes: Iterable[str]) -> dict[str, tuple[int, Part]]:
        """The item and the part that each of the dataset's codes stands for; codes of no entry are left out."""
        exact: dict[str, set[tuple[int, Part]]] = {}
        patterns: list[tuple[re.Pattern[str], tuple[int, Part]]] = []
        for number, entry in enumerate(self.entries, 1):
            for code, part in entry.codes:
                if "*" in code:
                    patterns.append((_pattern(code), (number, part)))
                else:
                    exact.setdefault(code, set()).add((number, part))
        found = {}
        for code in codes:
            places = exact.get(code, set()) | {place for pattern, place in patterns if pattern.fullmatch(code)}
            if len(places) > 1:
                words = " and ".join(sorted({self.entries[number - 1].purpose for number, _ in places}))
                raise InputError(f"code map: the code {code!r} stands for more than one thing ({words}); name it once.")
            if places:
                (found[code],) = places
        return found


def read_code_map(path: Path) -> CodeMap:
    """The code map in a YAML or JSON file."""
    content = read_document(path, FORMAT, VERSION, kind="code map", expected="expected a code map")
    ends = content.get("ends", "")
    try:
        if ends:
            check_name("code map", "ends", ends)
        return CodeMap(tuple(_entries(content)), ends)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _entries(content: Mapping[str, Any]) -> Iterator[Entry]:
    check_keys("code map", content, required={"format", "version", "stays", "people"}, optional={*SECTIONS, "ends"})
    ended = {"end"} if "ends" not in content else set()
    yield _lasting("stays", content["stays"], "stays", {"start", *ended})
    people = content["people"]
    check_keys("people", people, required={"birth", "female", "male"}, optional=set(PEOPLE))
    for name in people:
        yield Entry(name, _codes(f"people: {name}", people[name], "at"))
    yield from _measurements(content.get("measurements", {}))
    for one in as_list("code map", "urine", content.get("urine", [])):
        yield _momentary("urine", one, "urine", set())
    ventilation = content.get("ventilation", {})
    check_keys("ventilation", ventilation, required=set(), optional={"on", "off"})
    for state, codes in ventilation.items():
        yield Entry(f"ventilation {state}", _codes(f"ventilation: {state}", codes, "at"))
    yield from _treatments(content)
    for name in ("antibiotics", "cultures"):
        if content.get(name):
            yield Entry(name, _codes(name, content[name], "at"))


def _measurements(content: Any) -> Iterator[Entry]:
    known = (*MEASURED, *GCS_PARTS, "weight")
    check_keys("measurements", content, required=set(), optional=set(known))
    for name, given in content.items():
        for one in as_list(f"measurements: {name}", "codes", given):
            yield _momentary(name, one, f"measurements: {name}", set())


def _treatments(content: Mapping[str, Any]) -> Iterator[Entry]:
    drugs = mimic_items()["norepinephrine_equivalent"]
    ended = {"end"} if "ends" not in content else set()
    vasopressors = content.get("vasopressors", {})
    check_keys("vasopressors", vasopressors, required=set(), optional=set(drugs))
    for drug, given in vasopressors.items():
        for one in as_list(f"vasopressors: {drug}", "infusions", given):
            where = f"vasopressors: {drug}"
            entry = _lasting("vasopressors", one, where, {"start", *ended, "number", "unit"}, {"factor"})
            yield Entry(**{**vars(entry), "drug": drug})
    for one in as_list("code map", "fluids", content.get("fluids", [])):
        if isinstance(one, Mapping) and "code" not in one:
            yield _lasting("fluids", one, "fluids", {"start", *ended, "number"}, {"factor", "tonicity"})
        else:
            yield _momentary("fluids", one, "fluids", {"tonicity"})


def _pattern(code: str) -> re.Pattern[str]:
    """A code with stars, each for any characters. What stands between two of them is looked for once and not again, so
    that many stars take no longer than a few: a later place could match no more than the first."""
    first, *middle, last = map(re.escape, code.split("*"))
    return re.compile("".join((first, *(f"(?>.*?{part})" for part in middle), ".*", last)), re.DOTALL)


def _momentary(purpose: str, given: Any, where: str, more: set[str]) -> Entry:
    if isinstance(given, str):
        return Entry(purpose, _codes(where, given, "at"))
    check_keys(where, given, required={"code"}, optional={"factor", *more})
    return Entry(purpose, _codes(where, given["code"], "at"), _factor(where, given), tonicity=_tonicity(where, given))


def _lasting(purpose: str, given: Any, where: str, required: set[str], optional: Collection[str] = ()) -> Entry:
    check_keys(where, given, required=required, optional={*optional, "end"})
    number: Part = given.get("number", "at")
    if "number" in required and number not in ("start", "end"):
        raise InputError(f"{where}: number {number!r}: say with which it stands, 'start' or 'end'.")
    if number == "end" and "end" not in given:
        raise InputError(f"{where}: number 'end', but no code ends it; the number of a row stands with its start.")
    codes = _codes(where, given["start"], "start")
    if "end" in given:
        codes = (*codes, *_codes(where, given["end"], "end"))
    unit = given.get("unit", "")
    if "unit" in required:
        check_name(where, "unit", unit)
    return Entry(purpose, codes, _factor(where, given), unit, number, _tonicity(where, given))


def _codes(where: str, given: Any, part: Part) -> tuple[tuple[str, Part], ...]:
    codes = [given] if isinstance(given, str) else as_list(where, "codes", given)
    for code in codes:
        check_name(where, "code", code)
        if code == TO_FILL_IN:
            raise InputError(f"{where}: the code is still to be filled in ('{TO_FILL_IN}').")
    if not codes:
        raise InputError(f"{where}: names no code; leave it out where there is none.")
    return tuple((code, part) for code in codes)


def _factor(where: str, given: Mapping[str, Any]) -> float:
    if given.get("factor") == TO_FILL_IN:
        raise InputError(
            f"{where}: the factor of {given.get('code')!r} is still to be filled in ('{TO_FILL_IN}'): what turns its "
            "unit into that of the event tables, 1 where it is the same."
        )
    factor = as_number(f"{where}: factor", given.get("factor", 1.0))
    if factor <= 0:
        raise InputError(f"{where}: factor {factor:g} must be above zero.")
    return factor


def _tonicity(where: str, given: Mapping[str, Any]) -> float:
    return as_number(f"{where}: tonicity", given.get("tonicity", 1.0))


def _items(entries: tuple[Entry, ...]) -> dict[str, Any]:
    """Items in the form of MIMIC's list, by the numbers of entries: the same rules read both."""

    def of(purpose: str) -> dict[str, str]:
        numbers = {str(number): purpose for number, entry in enumerate(entries, 1) if entry.purpose == purpose}
        return numbers or {NEVER: purpose}

    drugs: dict[str, dict[str, str]] = {}
    for number, entry in enumerate(entries, 1):
        if entry.purpose == "vasopressors":
            drugs.setdefault(entry.drug, {})[str(number)] = entry.drug
    tonicities = {
        str(number): {"label": "fluids", "tonicity": entry.tonicity}
        for number, entry in enumerate(entries, 1)
        if entry.purpose == "fluids"
    }
    return {
        **mimic_items(),
        "charted": {"mean_bp": {NEVER: "mean_bp"}},
        "labs": {name: of(name) for name in MEASURED},
        "blood_gas_specimen": {NEVER: "specimen"},
        "gcs": {"total": {NEVER: "gcs"}} | {name.removeprefix("gcs_"): of(name) for name in GCS_PARTS},
        "weight": {"kg": of("weight"), "lb": {NEVER: "weight"}},
        "ventilation": of("ventilation on"),
        "ventilation_text": {NEVER: {"label": "", "on": "only", "values": ["-"]}},
        "off_ventilation": {NEVER: {"label": "", "values": ["-"]}},
        "urine": of("urine"),
        "irrigant_in": {NEVER: "irrigant"},
        "vasopressors": drugs or {"norepinephrine": {NEVER: "norepinephrine"}},
        "fluids": tonicities or {NEVER: {"label": "fluids", "tonicity": 1.0}},
    }


def with_items(items: Mapping[str, Any], more: Mapping[str, Any], where: str = "items") -> dict[str, Any]:
    """A list of items with those of another file of the same form added; what it does not know is refused."""
    unknown = sorted(set(more) - set(items))
    if unknown and where == "items":
        raise InputError(f"{where}: there is no list {unknown[0]!r}.{did_you_mean(unknown[0], items)}")
    merged = dict(items)
    for name, given in more.items():
        nested = isinstance(given, Mapping) and isinstance(items.get(name), Mapping)
        merged[name] = with_items(items[name], given, f"{where}: {name}") if nested else given
    return merged
