"""A first code map of a MEDS dataset: codes that sound like what is read, for people to check, and all others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import yaml

from ifonly.clinical.code_map import TO_FILL_IN
from ifonly.clinical.items import mimic_items
from ifonly.clinical.meds import NUMBERS, SUBJECTS, meds_files, one_of
from ifonly.version import __version__

FEWEST = 5
"""Subjects of a code that is shown: a rarer one could tell who somebody is."""
MOST_NAMED, MOST_SHOWN = 12, 300
"""Codes of one thing, and codes that are listed beside."""


@dataclass(frozen=True)
class Code:
    """A code of the dataset, what its own dictionary says of it, and how often it occurs."""

    name: str
    description: str
    rows: int
    numbers: int

    @property
    def quoted(self) -> str:
        """As YAML writes it."""
        return yaml.safe_dump(self.name, default_flow_style=True, width=10_000, allow_unicode=True).split("\n")[0]

    @property
    def remark(self) -> str:
        """For the end of a line."""
        told = f", {self.description}" if self.description else ""
        return f"# {self.rows:,} rows, {self.numbers:,} with a number{told}"


def first_code_map(folder: Path, place: str) -> str:
    """The text of a first code map of the dataset in `folder`, which the file names `place`."""
    content = yaml.safe_load((Path(__file__).parent / "first_codes.yaml").read_text(encoding="utf-8"))
    codes, rare = _codes(folder)
    found = _found(codes, content["words"])
    named = {code.name for group in found.values() for code in group}
    others = [code for code in codes if code.name not in named]
    return str(content["text"]).format(
        place=place,
        version=__version__,
        fewest=FEWEST,
        rare=f"{rare + max(0, len(others) - MOST_SHOWN):,}",
        others=_remarks(others[:MOST_SHOWN]),
        **{name: _family(found[name]) for name in ("stays_start", "stays_end", "birth", "female", "male")},
        died=f"died_in_hospital: {_family(found['died'])}" if found["died"] else "# died_in_hospital: CODE",
        measurements=_measurements(found, content["units"]),
        urine=_section("urine", found["urine"], factor=True),
        ventilation=_ventilation(found),
        vasopressors=_remarks(found["vasopressors"]),
        fluids=_remarks(found["fluids"]),
        antibiotics=_section("antibiotics", found["antibiotics"]),
        cultures=_section("cultures", found["cultures"]),
    )


def _codes(folder: Path) -> tuple[list[Code], int]:
    """Codes of at least `FEWEST` subjects, most rows first, and how many others there are."""
    files = meds_files(folder)
    subject, number = one_of(SUBJECTS, files), one_of(NUMBERS, files)
    counted = (
        pl.scan_parquet(files, glob=False)
        .group_by("code")
        .agg(rows=pl.len(), numbers=pl.col(number).count(), subjects=pl.col(subject).n_unique())
    )
    table = (
        counted.with_columns(pl.col("code").cast(pl.String))
        .drop_nulls("code")
        .sort(["rows", "code"], descending=[True, False])
        .collect()
    )
    shown = table.filter(pl.col("subjects") >= FEWEST)
    told = _descriptions(folder)
    codes = [
        Code(row["code"], told.get(row["code"], ""), row["rows"], row["numbers"])
        for row in shown.iter_rows(named=True)
        if row["code"].isprintable() and row["code"].strip() == row["code"] != ""
    ]
    return codes, table.height - len(codes)


def _descriptions(folder: Path) -> dict[str, str]:
    """What metadata/codes.parquet says of codes, where there is one."""
    file = folder / "metadata" / "codes.parquet"
    if not file.is_file() or not {"code", "description"} <= set(pl.read_parquet_schema(file)):
        return {}
    table = pl.read_parquet(file, columns=["code", "description"], glob=False).drop_nulls()
    return {code: " ".join(str(text).split())[:60] for code, text in table.iter_rows() if str(text).isprintable()}


def _found(codes: list[Code], words: Mapping[str, str]) -> dict[str, list[Code]]:
    """The codes that sound like each purpose; each stands for one."""
    patterns = {name: re.compile(text) for name, text in words.items()}
    drugs = "|".join(re.escape(word) for word in mimic_items()["antibiotics"])
    patterns["antibiotics"] = re.compile(rf"\b({drugs})")
    items = _item_purposes()
    found: dict[str, list[Code]] = {name: [] for name in patterns}
    for code in codes:
        text = f"{code.name} {code.description}".strip().lower()
        parts = set(re.split(r"\W+", code.name))
        purposes = [name for item, name in items.items() if item in parts]
        purposes += [name for name, pattern in patterns.items() if pattern.search(text)]
        if purposes:
            found[purposes[0]].append(code)
    return {name: group[:MOST_NAMED] for name, group in found.items()}


def _item_purposes() -> dict[str, str]:
    """What MIMIC's items stand for; ids below five digits could be anything."""
    items = mimic_items()
    groups: list[tuple[str, Iterable[str]]] = [(name, ids) for name, ids in items["charted"].items()]
    groups += [(name, ids) for name, ids in items["labs"].items()]
    groups += [("gcs" if name == "total" else f"gcs_{name}", ids) for name, ids in items["gcs"].items()]
    groups += [("weight", items["weight"]["kg"]), ("urine", items["urine"]), ("ventilation_on", items["ventilation"])]
    groups += [("fluids", items["fluids"]), *(("vasopressors", ids) for ids in items["vasopressors"].values())]
    return {item: name for name, ids in groups for item in ids if len(item) > 4}


def _family(codes: list[Code]) -> str:
    """The code, or what the codes begin with and a star, or all of them; a mark to fill in where there is none."""
    if not codes:
        return f'"{TO_FILL_IN}"'
    if len(codes) == 1:
        return codes[0].quoted
    stems = {code.name.partition("//")[0] for code in codes if "//" in code.name}
    if len(stems) == 1 and all("//" in code.name for code in codes):
        return Code(f"{stems.pop()}//*", "", 0, 0).quoted
    return f"[{', '.join(code.quoted for code in codes)}]"


def _measurements(found: Mapping[str, list[Code]], units: Mapping[str, str]) -> str:
    lines = []
    for name, unit in units.items():
        group = _section(name, found[name], factor=True).split("\n")
        group[0] += f"  # {unit}"
        lines += group
    there = any(found[name] for name in units)
    return "\n  ".join(["measurements:" if there else "# measurements:", *lines])


def _ventilation(found: Mapping[str, list[Code]]) -> str:
    states = {state: found[f"ventilation_{state}"] for state in ("on", "off")}
    lines = [line for state, codes in states.items() for line in _section(state, codes).split("\n")]
    return "\n  ".join(["ventilation:" if any(states.values()) else "# ventilation:", *lines])


def _section(name: str, codes: list[Code], *, factor: bool = False) -> str:
    """The entry of one thing, a comment where no code sounds like it."""
    if not codes:
        return f"# {name}: []"
    entry = '{{code: {code}, factor: "?"}}' if factor else "{code}"
    return "\n".join([f"{name}:", *(f"- {entry.format(code=code.quoted)}  {code.remark}" for code in codes)])


def _remarks(codes: list[Code]) -> str:
    lines = [f"# {code.rows:>9,} {code.numbers:>9,}  {code.quoted}  {code.description}".rstrip() for code in codes]
    return "\n".join(lines or ["#   none"])
