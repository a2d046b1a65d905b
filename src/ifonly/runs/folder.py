"""The folder of a run: `run.json` says what was asked, `rows.jsonl` grows, `results.parquet` comes at the end."""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from ifonly.episodes.cohort import Cohort
from ifonly.errors import StoreError
from ifonly.files import atomic_file, sha256_of
from ifonly.journal import Journal
from ifonly.runs.rows import COLUMNS
from ifonly.runs.task import Answer
from ifonly.version import __version__

FORMAT = "ifonly.run"
VERSION = 1
MANIFEST, ROWS, TABLE = "run.json", "rows.jsonl", "results.parquet"
PROGRESS_KEYS = {"state", "counts", "table"}
"""What a manifest says about how far the run is; everything else says what was asked."""
RUNNING, FINISHED = "running", "finished"

ROWS_AT_A_TIME = 1000
"""Lines of the journal that are turned into a table together."""
POSITION = pl.Schema({"position": pl.Int64})


class RunFolder:
    """A run's folder while somebody works on it; `opened` gives it to one process at a time."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.path = folder
        self.manifest = manifest
        self.statuses: dict[int, str] = {}
        """How the episodes that have an answer ended, by position."""
        self._journal = rows_of(folder)

    def read_rows(self, cohort: Cohort) -> None:
        """Take over what was finished before; a line that was cut off is dropped."""
        end = 0
        for line in self._journal.lines():
            entry = self._journal.checked(line, {"position", *COLUMNS})
            position, end = entry["position"], line.end
            if not 0 <= position < len(cohort) or cohort.ids[position] != entry["episode"]:
                raise self._journal.broken(line.number)
            self.statuses.setdefault(position, entry["status"])
        self._journal.cut(end)

    def add(self, answers: Sequence[Answer]) -> None:
        """Write answers down; they are on disk when this returns."""
        self._journal.append(answer.line for answer in answers)
        self.statuses |= {answer.position: answer.status for answer in answers}

    def finish(self) -> None:
        """Write the table, then say so."""
        table = self.path / TABLE
        frame = frame_of(self._journal)
        _replace_file(table, frame.write_parquet)
        self.manifest |= {
            "state": FINISHED,
            "counts": counts_of(self.statuses.values()),
            "table": {"file": TABLE, "bytes": table.stat().st_size, "sha256": sha256_of(table)},
        }
        write_manifest(self.path, self.manifest)


@contextmanager
def opened(folder: Path, description: Mapping[str, Any]) -> Iterator[RunFolder]:
    """The folder of the run that `description` describes, new or begun before, for this process alone."""
    wanted = json.loads(json.dumps({"format": FORMAT, "version": VERSION, "ifonly": __version__, **description}))
    _check_place(folder)
    with _alone(folder):
        yield RunFolder(folder, _agreed_manifest(folder, wanted))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes away from the folder, which is made if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ROWS, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StoreError(
            f"{folder}: the run cannot be written there ({error.strerror}); choose another place."
        ) from None
    try:
        _lock(lock, folder)
        yield
    finally:
        os.close(lock)


def _check_place(folder: Path) -> None:
    """Refuse a folder of other things, before anything is written into it."""
    if folder.is_file():
        raise StoreError(f"{folder} is a file, and a run is a folder; choose another name.")
    if not folder.exists() or (folder / MANIFEST).exists():
        return
    rows = folder / ROWS
    begun = rows.is_file() and not rows.stat().st_size  # and stopped before a manifest was written
    strangers = [item.name for item in folder.iterdir() if not _is_scratch(item) and not (begun and item == rows)]
    if strangers:
        raise StoreError(
            f"{folder} holds {sorted(strangers)[:5]} and no {MANIFEST}, so it is no run; choose an empty or a new "
            "folder."
        )


def _lock(descriptor: int, folder: Path) -> None:
    """The lock ends with this process, however it ends."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(
            f"{folder}: another process works on this run; wait for it, or give this one another folder."
        ) from None
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be locked ({error.strerror}), so that nothing would keep two processes apart; choose a "
            "folder on another disk."
        ) from None


def _agreed_manifest(folder: Path, wanted: dict[str, Any]) -> dict[str, Any]:
    """The manifest that is there, if it is of the same question; else a new one, where there was none."""
    for item in folder.iterdir():
        if _is_scratch(item):  # of a process that was killed
            item.unlink()
    if not (folder / MANIFEST).exists():
        manifest = wanted | {"state": RUNNING}
        write_manifest(folder, manifest)
        return manifest
    found = read_manifest(folder)
    differing = list(_differences({k: v for k, v in found.items() if k not in PROGRESS_KEYS}, wanted))
    if differing:
        shown = "; ".join(differing[:5]) + ("; ..." if len(differing) > 5 else "")
        raise StoreError(
            f"{folder} holds another run ({shown}). Ask the same as there to go on with it, or choose another folder."
        )
    return found


def _differences(found: Any, wanted: Any, where: str = "") -> Iterator[str]:
    """Where two manifests differ, in words."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for key in dict.fromkeys([*found, *wanted]):
            yield from _differences(found.get(key), wanted.get(key), f"{where}.{key}" if where else key)
    elif found != wanted:
        yield f"{where}: {_short(found)} there, {_short(wanted)} now"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_scratch(item: Path) -> bool:
    return item.name.startswith((f".{MANIFEST}-", f".{TABLE}-"))


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Replace the manifest, or leave the old one."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    _replace_file(folder / MANIFEST, lambda file: file.write_text(text, encoding="utf-8"))


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a run, its format and version checked."""
    source = folder / MANIFEST
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"{folder} holds no {MANIFEST}, so it is no run that `solve_cohort` wrote.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise StoreError(f"{source}: cannot be read ({error}).") from None
    except json.JSONDecodeError as error:
        raise StoreError(f"{source}: not valid JSON ({error}); it was altered.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise StoreError(f"{source}: is not the manifest of a run.")
    if content.get("version") != VERSION:
        raise StoreError(f"{source}: version {content.get('version')!r}; ifonly {__version__} reads version {VERSION}.")
    return content


def _replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` write a file that is on disk, complete, before it takes its name."""
    try:
        with atomic_file(path) as scratch:
            write(scratch)
            _flush(scratch)
        _flush(path.parent)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StoreError(
            f"{path}: cannot be written ({error}). Every row is kept in {ROWS}; make room and run the same again."
        ) from error


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rows_of(folder: Path) -> Journal:
    """The journal of a run's rows."""
    return Journal(folder / ROWS, "run", "delete that line, and its episode is solved again")


def frame_of(journal: Journal) -> pl.DataFrame:
    """The rows of a journal as a table, in the cohort's order."""
    parts = [pl.DataFrame(schema={**POSITION, **COLUMNS})]
    entries: list[dict[str, Any]] = []
    for line in journal.lines():
        entries.append(journal.checked(line, {"position", *COLUMNS}))
        if len(entries) == ROWS_AT_A_TIME:
            parts.append(_part(entries))
            entries = []
    parts.append(_part(entries))
    return pl.concat(parts).unique("position", keep="first").sort("position").drop("position")


def _part(entries: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(entries, schema={**POSITION, **COLUMNS})


def counts_of(statuses: Iterable[str]) -> dict[str, int]:
    """How many episodes ended how, the most frequent first."""
    return dict(Counter(statuses).most_common())


def discard_run(folder: str | Path) -> None:
    """Remove a run, finished or not, unless somebody works on it; other things in its folder stay."""
    place = Path(folder)
    read_manifest(place)
    with _alone(place):
        for name in (TABLE, MANIFEST):
            (place / name).unlink(missing_ok=True)
        rows_of(place).cut(0)  # the file itself is what keeps other processes away
