"""Journals: files of JSON lines to which finished work is appended at once, so that a run can be resumed."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ifonly.errors import StoreError
from ifonly.files import MOST_BYTES, make_folders, open_ordinary, sync

_CHECKSUM, _END = b', "checksum": "', b'%08x"}\n'
"""How every line ends: with the CRC-32 of its entry."""


@dataclass(frozen=True)
class Line:
    """One complete entry of a journal."""

    number: int
    """Counted from 1."""
    entry: dict[str, Any]


@dataclass(frozen=True)
class Journal:
    """A file with one JSON object per line, each with a checksum.

    What was being written when a run stopped - by force, or since the disk was full - is a last line without its end,
    which must be cut off before appending. A line that is not what was written is set aside: it stays where it is, and
    nobody reads it, so that its work is done again.
    """

    path: Path
    kind: str
    """What the file is the journal of, for messages."""
    advice: str
    """What to do with a file that is damaged, for messages."""

    def lines(self) -> Iterator[Line]:
        """The entries that are what was written."""
        return (line for line in self._all_lines() if line is not None)

    def damaged(self) -> list[int]:
        """The numbers of the lines that are not what was written."""
        return [number for number, line in enumerate(self._all_lines(), start=1) if line is None]

    def _all_lines(self) -> Iterator[Line | None]:
        """Every line that has its end; None for one that is not what was written."""
        for number, text in enumerate(self._texts(), start=1):
            if not text.endswith(b"\n"):
                return
            entry = _parsed(text)
            yield None if entry is None else Line(number, entry)

    def _texts(self) -> Iterator[bytes]:
        """Every line, the last one perhaps without its end."""
        with self.path.open("rb") as file:
            while text := file.readline(MOST_BYTES + 1):
                if len(text) > MOST_BYTES:
                    raise StoreError(
                        f"{self.path}: has a line of more than {MOST_BYTES / 2**20:.0f} MB, and is no {self.kind}; "
                        f"{self.advice}."
                    )
                yield text

    def checked(self, line: Line, keys: Set[str]) -> dict[str, Any]:
        """The entry of a line, which must have these keys."""
        if not keys <= line.entry.keys():
            raise self.broken(line.number)
        return line.entry

    def broken(self, number: int) -> StoreError:
        """The error for a line that does not belong to the journal."""
        return StoreError(f"{self.path}, line {number}: not a line of a {self.kind}; {self.advice}.")

    def cut_unended(self) -> None:
        """Cut off a last line without its end; done on disk when this returns."""
        size = sum(len(text) for text in self._texts() if text.endswith(b"\n"))
        if size != self.path.stat().st_size:
            self.cut(size)

    def cut(self, size: int) -> None:
        """Truncate the file to `size` bytes; done on disk when this returns."""
        descriptor = open_ordinary(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def append(self, entries: Iterable[str]) -> None:
        """Append entries, JSON objects already, in a single write; they are on disk when this returns.

        After an error the last line may be cut off; nothing may be appended before `cut_unended` has repaired that.
        """
        data = b"".join(line_of(entry) for entry in entries)
        try:
            new = not self.path.exists()
            descriptor = open_ordinary(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                while data:  # more than one round only where the disk is nearly full
                    data = data[os.write(descriptor, data) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if new:
                sync(self.path.parent)
        except OSError as error:
            raise StoreError(
                f"{self.path}: cannot be written ({error.strerror}). What was finished before is kept; make room and "
                "run the same again to go on."
            ) from error


def damaged_lines(path: Path) -> list[int]:
    """The numbers of the lines of a journal that are not what was written; none where there is no journal."""
    return Journal(path, "journal", "").damaged() if path.is_file() else []


@contextmanager
def alone(path: Path, *, work: str) -> Iterator[Callable[[], None]]:
    """Keep other processes away from the journal `path`, which is made if it is missing, until the block ends.

    `work` says what is done in its folder, for messages: "this run". Meanwhile the file may be cut and appended to, not
    replaced: what is yielded refuses to go on where somebody did. The lock ends with this process, however it ends.
    """
    try:
        make_folders(path.parent)
        descriptor = open_ordinary(path, os.O_RDWR | os.O_CREAT)
        sync(path.parent)
    except OSError as error:
        raise StoreError(
            f"{path.parent}: {work} cannot be written there ({error.strerror}); choose another place."
        ) from None
    try:
        _lock(descriptor, path.parent, work)
        yield lambda: _require_in_place(descriptor, path, work)
    finally:
        os.close(descriptor)


def _require_in_place(descriptor: int, path: Path, work: str) -> None:
    """Refuse to go on with a file that has no name any more, or another one: what is written there is lost."""
    if not path.exists() or not os.path.samestat(path.stat(), os.fstat(descriptor)):
        raise StoreError(
            f"{path}: was deleted, moved or replaced while {work} was under way, and nothing more is written; put it "
            "back, and run the same again."
        )


def _lock(descriptor: int, folder: Path, work: str) -> None:
    try:
        import fcntl  # only where it is needed: everything else works without it
    except ImportError:
        raise StoreError(
            f"{folder}: this system has no locks that would keep two processes apart; {work} needs Linux or macOS."
        ) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(
            f"{folder}: another process works on {work}; wait for it, or give this one another folder."
        ) from None
    except OSError as error:
        raise StoreError(
            f"{folder}: cannot be locked ({error.strerror}), so that nothing would keep two processes apart; choose a "
            "folder on another disk."
        ) from None


def line_of(entry: str) -> bytes:
    """The line of an entry, a JSON object that is not empty: the same object, with a checksum at its end."""
    text = entry.encode()
    return text[:-1] + _CHECKSUM + _END % zlib.crc32(text)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The entry of a complete line; None where it is not what was written."""
    text, found, checksum = line.rpartition(_CHECKSUM)
    if not found or checksum != _END % zlib.crc32(text + b"}"):
        return None
    try:
        entry = json.loads(text + b"}")
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
