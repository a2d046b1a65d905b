"""Reviewers' notes: an SQLite file to which revisions are added, and from which nothing is ever taken away."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import polars as pl

from ifonly.data.parsing import parse_json
from ifonly.errors import IfonlyError, StoreError
from ifonly.files import open_ordinary
from ifonly.text.catalogue import say
from ifonly.version import __version__

if TYPE_CHECKING:
    from ifonly.report.deidentify import Deidentifier

Judgement = Literal["plausible", "implausible", "unsure"]
VERDICTS: tuple[Judgement, ...] = get_args(Judgement)
LONGEST_NOTE, LONGEST_REVIEWER, LONGEST_REMARK = 10_000, 200, 500
"""Characters."""

APPLICATION = 0x69664F6E  # "ifOn": SQLite keeps it in the file's header, by which we know our own
VERSION = 2
"""Version 1 had no remarks on steps; its files are brought up to date when they are opened."""
SECONDS_TO_WAIT = 10
"""For another process that is writing, until a note is refused; whoever reads waits for nobody."""

_TABLES = (
    "CREATE TABLE about (cohort TEXT NOT NULL) STRICT",
    """
    CREATE TABLE revisions (
        episode TEXT NOT NULL,
        revision INTEGER NOT NULL CHECK (revision >= 1),
        verdict TEXT CHECK (verdict IN ('plausible', 'implausible', 'unsure')),
        note TEXT NOT NULL,
        reviewer TEXT NOT NULL,
        updated TEXT NOT NULL,
        model TEXT NOT NULL,
        steps TEXT NOT NULL DEFAULT '[]',
        PRIMARY KEY (episode, revision)
    ) STRICT, WITHOUT ROWID
    """,
)
_TRIGGERS = (
    "CREATE TRIGGER no_update BEFORE UPDATE ON revisions BEGIN SELECT RAISE(ABORT, 'revisions are never changed'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON revisions BEGIN SELECT RAISE(ABORT, 'revisions are never deleted'); END",
)
_UPGRADE = "ALTER TABLE revisions ADD COLUMN steps TEXT NOT NULL DEFAULT '[]'"
_LATEST = (
    "SELECT episode, verdict, note, reviewer, updated, max(revision), model, steps FROM revisions "
    "GROUP BY episode, reviewer ORDER BY episode, max(revision)"
)
"""The columns in the order of `Note`; beside max(), SQLite gives the other columns of the same row."""


@dataclass(frozen=True)
class Remark:
    """What a reviewer says of one step."""

    step: int
    text: str


@dataclass(frozen=True)
class Note:
    """What one reviewer says about one episode; revision 0: nothing yet."""

    episode: str
    verdict: Judgement | None = None
    note: str = ""
    reviewer: str = ""
    updated: str | None = None
    """When it was saved: ISO 8601, UTC."""
    revision: int = 0
    model: str = ""
    """The fingerprint of the model whose answer was looked at."""
    steps: tuple[Remark, ...] = ()
    """Remarks on single steps, in their order."""


class ConflictError(IfonlyError):
    """Somebody else has saved in the meantime."""


class Notes:
    """The notes on one cohort; safe to use from many threads, and from several processes."""

    def __init__(self, path: Path, *, cohort: str, model: str) -> None:
        """Open the file, or make it; `cohort` and `model` are fingerprints."""
        self._path, self._model = path, model
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._writer = _opened(path, cohort)
        self._reader = sqlite3.connect(path, timeout=0, check_same_thread=False, isolation_level=None)
        self._reviews: dict[str, tuple[Note, ...]] = {}
        self._seen: int | None = None
        try:
            with _explained(path):
                self._refresh()
                self._files = _identities(path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()

    def get(self, episode: str, reviewer: str | None = None) -> Note:
        """The latest revision: of everybody's, or of one reviewer's."""
        for note in reversed(self.reviews().get(episode, ())):
            if reviewer is None or note.reviewer == reviewer:
                return note
        return Note(episode, reviewer=reviewer or "")

    def reviews(self) -> Mapping[str, tuple[Note, ...]]:
        """Of every episode that has notes, the latest of each reviewer, in the order in which they came.

        Not to be changed. It is the same object until something more is saved, here or elsewhere. While another process
        has the file for itself, it is what was known before.
        """
        with self._reading, _explained(self._path):
            try:
                self._refresh()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    raise
            return self._reviews

    def save(self, note: Note) -> Note:
        """Add what follows `note.revision`; it is on disk when this returns.

        Refused if that is not the latest of this reviewer: somebody of the same name has saved meanwhile, perhaps the
        same person in another window. What others say is no reason: several may judge the same episode.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self._writing, _explained(self._path):
            self._require_files()
            with _transaction(self._writer):
                latest, own = self._writer.execute(
                    "SELECT coalesce(max(revision), 0), coalesce(max(revision) FILTER (WHERE reviewer = ?), 0) "
                    "FROM revisions WHERE episode = ?",
                    (note.reviewer, note.episode),
                ).fetchone()
                if own != note.revision:
                    raise ConflictError(say("refusal.conflict"))
                saved = replace(note, updated=now, revision=latest + 1, model=self._model)
                self._writer.execute(
                    "INSERT INTO revisions (episode, revision, verdict, note, reviewer, updated, model, steps) "
                    "VALUES (:episode, :revision, :verdict, :note, :reviewer, :updated, :model, :steps)",
                    asdict(saved) | {"steps": json.dumps([[one.step, one.text] for one in saved.steps])},
                )
            self._require_files()
        return saved

    def to_csv(self, answers: pl.DataFrame | None = None, codes: Deidentifier | None = None) -> str:
        """The latest note of every reviewer as a table, safe to open in a spreadsheet.

        `answers` has a row per `episode`, whose other columns stand beside each note. With `codes` it is for people
        outside, without texts.
        """
        from ifonly.report.folders import without_formulas  # brings matplotlib along, for which nobody waits here

        notes = [note for _, reviews in sorted(self.reviews().items()) for note in reviews]
        rows = [asdict(note) | {"steps": "; ".join(f"{one.step}: {one.text}" for one in note.steps)} for note in notes]
        columns = {name: pl.Int64() if name == "revision" else pl.String() for name in asdict(Note(""))}
        table = pl.DataFrame(rows, schema=columns)
        if answers is not None:
            table = table.join(answers, on="episode", how="left", maintain_order="left")
        return without_formulas(table if codes is None else codes.notes(table)).write_csv()

    def _require_files(self) -> None:
        """Refuse to go on with files that nobody can open any more: what is written there is lost."""
        if _identities(self._path) != self._files:
            raise StoreError(
                f"notes {self._path}: the file was deleted, moved or replaced while it was in use, so that nothing can "
                "be saved; put it back, and start the server again."
            )

    def _refresh(self) -> None:
        """Read again what was saved since, here or by another process."""
        (seen,) = self._reader.execute("PRAGMA data_version").fetchone()
        if seen != self._seen:
            rows = self._reader.execute(_LATEST).fetchall()
            found = [Note(*(*row[:-1], _remarks(row[-1]))) for row in rows]
            self._reviews = {id: tuple(notes) for id, notes in groupby(found, key=lambda note: note.episode)}
            self._seen = seen  # last: what could not be read is tried again


def _remarks(text: str) -> tuple[Remark, ...]:
    """The remarks of a row, which is checked: whoever can write to the file can write anything."""
    found = parse_json(text)
    fine = isinstance(found, list) and all(
        isinstance(one, list) and [type(part) for part in one] == [int, str] for one in found
    )
    if not fine:
        raise ValueError("remarks on steps that are none")
    return tuple(Remark(*one) for one in found)


def _identities(path: Path) -> list[tuple[int, int] | None]:
    """Which files stand at the place of the notes and of SQLite's log of them; None where there is none."""
    found: list[tuple[int, int] | None] = []
    for name in (path, path.with_name(f"{path.name}-wal")):
        try:
            status = name.stat()
            found.append((status.st_dev, status.st_ino))
        except OSError:
            found.append(None)
    return found


def _opened(path: Path, cohort: str) -> sqlite3.Connection:
    """A connection to the notes on this cohort; the file is made where it is missing."""
    try:
        # Made here rather than by SQLite, so that nobody else may read it, and that it is no link to somewhere else.
        os.close(open_ordinary(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreError(
            f"notes {path}: cannot be written there ({error.strerror}); choose another place with --notes."
        ) from None
    connection = sqlite3.connect(path, timeout=SECONDS_TO_WAIT, check_same_thread=False, isolation_level=None)
    try:
        with _explained(path):
            _check_format(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
            # Acknowledged means on disk, not on its way there.
            connection.execute("PRAGMA synchronous = FULL")
            _prepare(connection, path, cohort)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a database that is not ours, before anything in it is touched; an empty one will be ours."""
    application, version = (_value(connection, f"PRAGMA {name}") for name in ("application_id", "user_version"))
    if application == 0 and version == 0 and _value(connection, "SELECT count(*) FROM sqlite_schema") == 0:
        return
    if application != APPLICATION:
        raise StoreError(f"notes {path}: holds no notes, but another program's data; choose another file with --notes.")
    if version not in (1, VERSION):
        raise StoreError(f"notes {path}: version {version}; ifonly {__version__} reads versions 1 and {VERSION}.")
    # Our tables, and nothing that is done unasked: a view in the place of one could be a query without end.
    found = "SELECT type, sql FROM sqlite_schema WHERE sql NOT NULL AND substr(name, 1, 7) != 'sqlite_'"
    entries = [(kind, " ".join(text.split())) for kind, text in connection.execute(found)]
    made = {text if kind == "trigger" else text.partition(" (")[0] for kind, text in entries}
    if not made <= {"CREATE TABLE about", "CREATE TABLE revisions", *_TRIGGERS}:
        raise StoreError(f"notes {path}: holds what ifonly did not make; choose another file with --notes.")


def _prepare(connection: sqlite3.Connection, path: Path, cohort: str) -> None:
    """Make the tables, all or none of them; of two processes that begin at once, one does."""
    with _transaction(connection):
        if _value(connection, "PRAGMA application_id") == 0:
            for statement in (*_TABLES, *_TRIGGERS):
                connection.execute(statement)
            connection.execute("INSERT INTO about VALUES (?)", (cohort,))
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
        elif _value(connection, "SELECT cohort FROM about") != cohort:
            raise StoreError(
                f"notes {path}: these are about another cohort, in which the same ids may stand for other patients; "
                "choose another file with --notes."
            )
        elif _value(connection, "PRAGMA user_version") == 1:
            connection.execute(_UPGRADE)
        connection.execute(f"PRAGMA user_version = {VERSION}")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All that is done inside, or nothing; another process that writes is waited for."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite itself gives up where the disk is full
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _value(connection: sqlite3.Connection, query: str) -> Any:
    row = connection.execute(query).fetchone()
    return None if row is None else row[0]


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What SQLite says, as an error of ours; its messages hold no content."""
    try:
        yield
    except (sqlite3.Error, ValueError) as error:
        reason = error if isinstance(error, sqlite3.Error) else "it holds what is no note"
        raise StoreError(
            f"notes {path}: cannot be read or written ({reason}); see that it is a file of notes, that its place can "
            "be written to and that the disk is not full."
        ) from None
