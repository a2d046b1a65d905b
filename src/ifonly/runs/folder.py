"""The folder of a run: `run.json` says what is asked, `rows.jsonl` grows, `results.parquet` comes at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from ifonly.data.cohort import Cohort
from ifonly.data.plain import read_plain
from ifonly.data.store import write_parquet
from ifonly.errors import StoreError
from ifonly.files import names_in, require_ordinary, sha256_of
from ifonly.journal import Journal, Line, alone
from ifonly.result.table import COLUMNS, first_lacking
from ifonly.runs.manifest import (
    DAMAGED_LINES,
    FINISHED,
    FORMAT,
    MANIFEST,
    RUNNING,
    agreed_manifest,
    plain_manifest,
    read_manifest,
    replace_file,
    write_manifest,
)
from ifonly.runs.task import Answer

ROWS, TABLE = "rows.jsonl", "results.parquet"
WORK = "this run"
"""What locks the folder, for messages."""

ROWS_AT_A_TIME = 1000
"""Lines of the journal that are turned into a table together."""
POSITION = pl.Schema({"position": pl.Int64})


class RunFolder:
    """A run's folder while it is being worked on; `opened` gives it to one process at a time."""

    def __init__(self, folder: Path, manifest: dict[str, Any], require_in_place: Callable[[], None]) -> None:
        self.path = folder
        self.manifest = manifest
        self._require_in_place = require_in_place
        self.answered: set[int] = set()
        """Positions of the episodes that have an answer."""
        self.counts: Counter[str] = Counter()
        """How many of them have which status."""
        self._journal = rows_of(folder)

    def read_rows(self, cohort: Cohort) -> None:
        """Read what was finished before; a line that was cut off is dropped, a damaged one set aside and reported."""
        for line in self._journal.lines():
            entry = _row(self._journal, line)
            position = entry["position"]
            if not 0 <= position < len(cohort) or cohort.ids[position] != entry["episode"]:
                raise self._journal.broken(line.number)
            self._count(position, entry["status"])
        if damaged := self._journal.damaged():
            self.manifest[DAMAGED_LINES] = damaged
        self._journal.cut_unended()

    def add(self, answers: Sequence[Answer]) -> None:
        """Append answers; they are on disk when this returns."""
        self._require_in_place()
        self._journal.append(answer.line for answer in answers)
        self._require_in_place()
        for answer in answers:
            self._count(answer.position, answer.status)

    def _count(self, position: int, status: str) -> None:
        if position not in self.answered:  # of two rows, the first one counts
            self.answered.add(position)
            self.counts[status] += 1

    def finish(self) -> None:
        """Write the table, then mark the run as finished."""
        self._require_in_place()
        table = self.path / TABLE
        frame = frame_of(self._journal)
        replace_file(table, lambda file: write_parquet(frame, file))
        self.manifest |= {
            "state": FINISHED,
            "counts": dict(self.counts.most_common()),
            "table": {"file": TABLE, "bytes": table.stat().st_size, "sha256": sha256_of(table)},
        }
        write_manifest(self.path, self.manifest)


@contextmanager
def opened(folder: Path, description: Mapping[str, Any], *, force: bool = False) -> Iterator[RunFolder]:
    """The folder of the run that `description` describes, new or begun before, locked for this process.

    With `force` a new run replaces one that is there.
    """
    wanted = plain_manifest(description)
    _check_place(folder, force=force)
    with alone(folder / ROWS, work=WORK) as require_in_place:
        _remove_scratch(folder)
        begin = force or not (folder / MANIFEST).exists()
        manifest = _new_manifest(folder, wanted) if begin else _resumed_manifest(folder, wanted)
        yield RunFolder(folder, manifest, require_in_place)


def _check_place(folder: Path, *, force: bool) -> None:
    """Before anything is written, refuse a folder with other contents."""
    if folder.is_file():
        raise StoreError(f"{folder} is a file, and a run is a folder; choose another name.")
    if (folder / MANIFEST).exists():
        if force and not _is_run(folder):
            raise StoreError(f"{folder / MANIFEST}: is not the manifest of a run, and is kept; choose another folder.")
        return
    if not folder.exists():
        return
    rows = folder / ROWS
    begun = rows.is_file() and not rows.stat().st_size  # killed before the manifest was written
    strangers = [name for name in names_in(folder) if not _is_scratch(Path(name)) and not (begun and name == ROWS)]
    if strangers:
        raise StoreError(
            f"{folder} holds {', '.join(sorted(strangers)[:5])} and no {MANIFEST}, so it is no run; choose an empty or "
            "a new folder."
        )


def _is_run(folder: Path) -> bool:
    """Whether the manifest is that of a run, even of a damaged one or one of another version."""
    try:
        content = read_plain(folder / MANIFEST)
    except StoreError:
        return (folder / ROWS).is_file()
    return isinstance(content, dict) and content.get("format") == FORMAT


def _remove_scratch(folder: Path) -> None:
    """Remove half-written files of a process that was killed."""
    for item in folder.iterdir():
        if _is_scratch(item):
            item.unlink()


def _new_manifest(folder: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Begin a run. A run to be replaced keeps its manifest until nothing else of it is left.

    So the folder is that of a run at any moment, and never has rows of one query under the manifest of another.
    """
    (folder / TABLE).unlink(missing_ok=True)
    rows_of(folder).cut(0)
    manifest = wanted | {"state": RUNNING}
    write_manifest(folder, manifest)
    return manifest


def _resumed_manifest(folder: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """Resume a run of the same query, and update what may have changed since: moved sources, a newer check."""
    manifest = agreed_manifest(folder, wanted)
    if manifest != read_manifest(folder):
        write_manifest(folder, manifest)
    return manifest


def _is_scratch(item: Path) -> bool:
    return item.name.startswith((f".{MANIFEST}-", f".{TABLE}-"))


def rows_of(folder: Path) -> Journal:
    """The journal of a run's rows."""
    return Journal(folder / ROWS, "run", "delete that line, and its episode is solved again")


def frame_of(journal: Journal) -> pl.DataFrame:
    """The rows of a journal as a table, in the cohort's order."""
    if not journal.path.is_file():
        raise StoreError(f"{journal.path}: missing, so that this run has no rows; run the same again to solve them.")
    require_ordinary(journal.path, folder=journal.path.parent)
    parts = [pl.DataFrame(schema={**POSITION, **COLUMNS})]
    lines: list[Line] = []
    for line in journal.lines():
        lines.append(line)
        if len(lines) == ROWS_AT_A_TIME:
            parts.append(_part(journal, lines))
            lines = []
    parts.append(_part(journal, lines))
    return require_whole(
        pl.concat(parts).unique("position", keep="first").sort("position").drop("position"), journal.path
    )


def require_whole(table: pl.DataFrame, source: Path) -> pl.DataFrame:
    """The table of a run, unless an answer in it is not whole."""
    if (lacking := first_lacking(table)) is not None:
        raise StoreError(
            f"{source}: an answer without {lacking!r}; it was altered. Delete the run, and solve it again."
        )
    return table


def _part(journal: Journal, lines: Sequence[Line]) -> pl.DataFrame:
    try:
        return pl.DataFrame([_row(journal, line) for line in lines], schema={**POSITION, **COLUMNS})
    except (pl.exceptions.PolarsError, TypeError, ValueError, OverflowError) as error:  # a value of a wrong type
        if len(lines) == 1:
            raise journal.broken(lines[0].number) from error
        return pl.concat([_part(journal, [line]) for line in lines])


def _row(journal: Journal, line: Line) -> dict[str, Any]:
    """The row that a line holds, with its position."""
    row = journal.checked(line, {"position", *COLUMNS})
    if type(row["position"]) is not int or not isinstance(row["status"], str):
        raise journal.broken(line.number)
    return row


def counts_of(statuses: Iterable[str]) -> dict[str, int]:
    """The number of episodes with each status, the most frequent first."""
    return dict(Counter(statuses).most_common())
