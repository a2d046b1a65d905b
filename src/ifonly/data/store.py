"""Cohorts and schemas on disk: Parquet plus versioned metadata, and tables that people bring.

The formats are written down in docs/file-formats.md.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.data.columns import TableColumns
from ifonly.data.joins import join_tables
from ifonly.data.labels import refuse_switches, require_features
from ifonly.data.parquet import parse_parquet
from ifonly.data.parsing import yaml_text
from ifonly.data.plain import check_version, json_text, read_document, read_mapping, repeated
from ifonly.data.schema import Schema
from ifonly.data.tables import cohort_and_first_step, cohort_from_frame, cohort_to_frame, frame_schema
from ifonly.data.text_tables import TextForm, parse_text
from ifonly.data.times import require_same_step
from ifonly.errors import InputError, StoreError
from ifonly.files import (
    atomic_folder,
    bring_back,
    file_reason,
    require_absent,
    require_ordinary,
    sha256_of,
    write_text_atomically,
)
from ifonly.version import __version__

COHORT_FORMAT, COHORT_VERSION = "ifonly.cohort", 1
SCHEMA_FORMAT, SCHEMA_VERSION = "ifonly.schema", 1
TABLE_ENDINGS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".parquet")
TABLE_NAME, METADATA_NAME = "episodes.parquet", "metadata.json"
UNIT_TO_FILL_IN = "?"
"""Stands in a drafted schema for a unit that cannot be guessed."""


def save_cohort(
    cohort: Cohort, path: str | Path, *, provenance: Mapping[str, Any] | None = None, overwrite: bool = False
) -> None:
    """Write a cohort as a folder with `episodes.parquet` and `metadata.json`, completely or not at all.

    Values come back bit by bit. `provenance` is anything that JSON can hold: where the data come from, settings,
    seeds. An existing cohort folder is replaced only with `overwrite`.
    """
    origin = json.loads(json_text(dict(provenance or {}), what="provenance"))
    try:
        with atomic_folder(path, overwrite=overwrite) as folder:
            table = folder / TABLE_NAME
            write_parquet(cohort_to_frame(cohort), table)
            metadata = {
                "format": COHORT_FORMAT,
                "version": COHORT_VERSION,
                "ifonly": __version__,
                "provenance": origin,
                "counts": _counts(cohort),
                "table": {"file": TABLE_NAME, "bytes": table.stat().st_size, "sha256": sha256_of(table)},
                "schema_fingerprint": cohort.schema.fingerprint,
                "schema": cohort.schema.to_dict(),
            }
            (folder / METADATA_NAME).write_text(json_text(metadata), encoding="utf-8")
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = file_reason(error)
        raise StoreError(f"{path}: the cohort could not be written ({reason}); nothing was changed.") from error


def write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write a Parquet file; what the disk says against it is an `OSError`, also where polars words it."""
    try:
        frame.write_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise OSError(errno.EIO, str(error)) from error


def load_cohort(path: str | Path) -> Cohort:
    """Read a cohort folder that `save_cohort` wrote; anything missing, cut off or altered is a `StoreError`."""
    folder = Path(path)
    metadata = load_metadata(folder)
    schema = _stored_schema(folder, metadata)
    frame = _stored_frame(folder / TABLE_NAME, metadata["table"])
    if frame.schema not in (frame_schema(schema), frame_schema(schema, origins=True)):
        raise StoreError(
            f"{folder / TABLE_NAME}: its columns are {dict(frame.schema)}, while {METADATA_NAME} describes "
            f"{dict(frame_schema(schema))}; get a fresh copy of the folder."
        )
    try:
        cohort = cohort_from_frame(frame, schema)
    except InputError as error:
        raise StoreError(f"{folder / TABLE_NAME}: {error}") from None
    if metadata["counts"] != _counts(cohort):
        raise StoreError(
            f"{folder}: {METADATA_NAME} counts {metadata['counts']}, the table holds {_counts(cohort)}; "
            "get a fresh copy of the folder."
        )
    return cohort


load = load_cohort


def load_metadata(path: str | Path) -> dict[str, Any]:
    """The metadata of a cohort folder: counts, provenance, schema; the table itself is not read."""
    folder = Path(path)
    bring_back(folder)
    if folder.is_file():
        raise StoreError(f"{folder} is a file, not a cohort folder; read_table reads a CSV or Parquet table.")
    if not folder.is_dir():
        raise StoreError(f"{folder} does not exist; expected a cohort folder.")
    source = folder / METADATA_NAME
    if not source.is_file():
        # Without other names of what it does hold: a file of somebody else may have led here.
        parts = [str(folder / name) for name in ("train", "test") if (folder / name / METADATA_NAME).is_file()]
        instead = f" Name one of the cohorts in it: {', '.join(parts)}." if parts else ""
        raise StoreError(f"{folder} holds no {METADATA_NAME}, so it is no cohort folder.{instead}")
    content = read_document(source, COHORT_FORMAT, COHORT_VERSION, kind="cohort", expected="expected a cohort folder")
    for key, kind in (("schema", dict), ("counts", dict), ("table", dict), ("provenance", dict), ("ifonly", str)):
        if not isinstance(content.get(key), kind):
            raise StoreError(f"{source}: {key!r} is missing or broken; get a fresh copy of the folder.")
    if missing := {"bytes", "sha256"} - set(content["table"]):
        raise StoreError(f"{source}: 'table' lacks {sorted(missing)}; get a fresh copy of the folder.")
    return content


def save_schema(schema: Schema, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a schema file, YAML or JSON by the ending of its name."""
    target = _schema_path(path)
    require_absent(target, unless=overwrite)
    content = {"format": SCHEMA_FORMAT, "version": SCHEMA_VERSION, **schema.to_dict()}
    text = json_text(content) if target.suffix.lower() == ".json" else yaml_text(content, width=110)
    try:
        write_text_atomically(target, text)
    except OSError as error:
        raise StoreError(f"{target}: the schema could not be written ({file_reason(error)}).") from error


def load_schema(path: str | Path) -> Schema:
    """Read a schema file, written by `save_schema` or by hand (`format` and `version` may then be left out)."""
    return load_schema_and_columns(path)[0]


def load_schema_and_columns(path: str | Path) -> tuple[Schema, TableColumns]:
    """The schema in a schema file, and what its key `table` says about the columns of the tables it is for."""
    source = _schema_path(path)
    content: dict[str, Any] = {"format": SCHEMA_FORMAT, "version": SCHEMA_VERSION} | read_mapping(source)
    check_version(source, content, SCHEMA_FORMAT, SCHEMA_VERSION, kind="schema")
    try:
        columns = TableColumns.from_dict(content.get("table", {}))
        schema = Schema.from_dict({k: v for k, v in content.items() if k not in ("format", "version", "table")})
        columns.require_fit(schema.actions)
        require_same_step(columns.spacing, schema.step_length, schema.step_unit)
        require_features(columns.labels, schema.features)
        _require_units(schema)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None
    return schema, columns


def _require_units(schema: Schema) -> None:
    """Refuse units that are still to be filled in: models remember units, so that they cannot be corrected later."""
    open_units = [f"feature {feature.name!r}" for feature in schema.features if feature.unit == UNIT_TO_FILL_IN]
    open_units += [f"axis {axis.name!r}" for axis in schema.actions.axes if axis.unit == UNIT_TO_FILL_IN]
    open_units += ["the step"] if schema.step_unit == UNIT_TO_FILL_IN else []
    if open_units:
        raise InputError(
            f"schema: the unit of {', '.join(open_units)} is still to be filled in ({UNIT_TO_FILL_IN!r}); write it "
            'down, or "" for a quantity without one.'
        )


def read_table(path: str | Path, schema: Schema | str | Path) -> Cohort:
    """A cohort out of a long CSV or Parquet table, one row per step, and a schema or a schema file.

    Columns: episode, step, action, every feature by its name, and subject where there is one; others are ignored. A
    schema file may say under `table` what they are called, and which doses the actions are made of. Nothing is
    guessed: whatever is missing, doubled, out of order or unknown is an `InputError` that names the place. Steps may
    count from 1 in the table; in the cohort, and in everything made from it, they count from 0.
    """
    return read_table_and_remarks(path, schema)[0]


def read_table_and_remarks(path: str | Path, schema: Schema | str | Path) -> tuple[Cohort, dict[str, Any]]:
    """What `read_table` gives, and how the table was read, for its provenance.

    `first step of the table`: 0 or 1; `read as`: encoding, separator and decimal sign, where they are not the usual
    ones; `joined`: checksums of further tables, where there are any.
    """
    source = Path(path)
    layout, columns = (schema, TableColumns()) if isinstance(schema, Schema) else load_schema_and_columns(schema)
    frame, form = read_frame_and_form(source)
    remarks: dict[str, Any] = {} if form is None or form.is_usual else {"read as": str(form)}
    if not isinstance(schema, Schema) and columns.join:
        folder = Path(schema).parent
        frame = join_tables(frame, columns.join, folder, read_frame)
        remarks["joined"] = {join.file: sha256_of(folder / join.file) for join in columns.join}
    try:
        cohort, first = cohort_and_first_step(frame, layout, columns)
        refuse_switches(layout.dynamic, cohort.states)
        return cohort, {"first step of the table": first, **remarks}
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _counts(cohort: Cohort) -> dict[str, int]:
    return {"episodes": len(cohort), "subjects": len(set(cohort.subjects)), "steps": len(cohort.actions)}


def _stored_schema(folder: Path, metadata: Mapping[str, Any]) -> Schema:
    source = folder / METADATA_NAME
    try:
        schema = Schema.from_dict(metadata["schema"])
    except InputError as error:
        raise StoreError(f"{source}: {error}") from None
    if schema.fingerprint != metadata.get("schema_fingerprint"):
        raise StoreError(
            f"{source}: the schema's fingerprint is {schema.fingerprint}, not {metadata.get('schema_fingerprint')} as "
            "when it was written; it was altered since. Get a fresh copy of the folder."
        )
    return schema


def _stored_frame(source: Path, expected: Mapping[str, Any]) -> pl.DataFrame:
    """The table, parsed from the very bytes that were checked."""
    require_ordinary(source, folder=source.parent)
    try:
        size = source.stat().st_size
        if size != expected["bytes"]:  # before it is read: a file of holes can be larger than any memory
            raise StoreError(
                f"{source}: has {size} bytes, {expected['bytes']} were written: cut off or altered. "
                "Get a fresh copy of the folder."
            )
        data = source.read_bytes()
    except OSError as error:
        raise StoreError(f"{source}: is missing or cannot be read ({error.strerror}).") from None
    if hashlib.sha256(data).hexdigest() != expected["sha256"]:
        raise StoreError(f"{source}: does not match its checksum: altered. Get a fresh copy of the folder.")
    return parse_parquet(source, data)


def _schema_path(path: str | Path) -> Path:
    if Path(path).suffix.lower() not in (".yaml", ".yml", ".json"):
        raise InputError(f"{path}: the name of a schema file ends in .yaml, .yml or .json.")
    return Path(path)


def read_frame(path: str | Path) -> pl.DataFrame:
    """A CSV table, every cell as text, or a Parquet table as it is; errors quote none of its cells."""
    return read_frame_and_form(path)[0]


def read_frame_and_form(path: str | Path) -> tuple[pl.DataFrame, TextForm | None]:
    """What `read_frame` gives, and how a CSV file was written: its encoding, separator and decimal sign."""
    source = Path(path)
    if not source.name.lower().endswith(TABLE_ENDINGS):
        *endings, last = TABLE_ENDINGS
        raise InputError(
            f"{source}: the name of a table ends in {', '.join(endings)} or {last}; save a spreadsheet as CSV."
        )
    require_ordinary(source)
    try:
        data = source.read_bytes()
    except OSError as error:
        raise StoreError(f"{source}: cannot be read ({error.strerror}).") from None
    except MemoryError:
        raise StoreError(f"{source}: cannot be read, for it is larger than the memory.") from None
    if source.suffix.lower() != ".parquet":
        return parse_text(source, data)
    return _trimmed(source, parse_parquet(source, data)), None


def _trimmed(source: Path, frame: pl.DataFrame) -> pl.DataFrame:
    """Without spaces around names and texts, as databases fill them up to a length."""
    names = [name.strip() for name in frame.columns]
    if twice := repeated(names):
        raise InputError(f"{source}: columns {twice} occur more than once; keep one of each.")
    return frame.rename(dict(zip(frame.columns, names, strict=True))).with_columns(pl.col(pl.String).str.strip_chars())
