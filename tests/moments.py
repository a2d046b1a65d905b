"""What a kill, or a power cut, leaves on the disk: a folder as it is before a write, without what was never synced."""

import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from writes import Write, tell_writes

from ifonly import files

State = tuple[int, int, int]
Undo = Callable[[Path], None]
"""Takes a change of names back, in a copy of the folder."""

ENDED = 2**22 + 1
"""The number of no process: beyond all that Linux gives."""


class Disk:
    """Copies `place` before some of the writes below it, each as likely as any other, onto `shelf`.

    Every other copy is that of a power cut: contents that were not synced are cut off somewhere, and names that were
    changed since their folder was synced may be as before, the last ones first.
    """

    def __init__(self, place: Path, shelf: Path, most: int, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.place, self.shelf, self.most = place, shelf, most
        self.seen = 0
        """Writes so far."""
        self._random = random.Random(seed)
        self._kept: dict[int, State] = {path.stat().st_ino: _state(path.stat()) for path in _files(place)}
        self._pending: list[tuple[Path, Undo]] = []
        """Folders whose names were changed, and how to take that back."""
        shelf.mkdir()
        if not _can_exchange(shelf):
            patch.setattr(files, "exchange", lambda one, other: False)
        tell_writes(self._before, place, patch.setattr)

    @property
    def copies(self) -> list[Path]:
        """In no order of time."""
        return sorted(self.shelf.iterdir())

    def _before(self, write: Write) -> None:
        # The moment itself: reservoir sampling, so that the number of writes need not be known.
        slot = self.seen if self.seen < self.most else self._random.randrange(self.seen + 1)
        self.seen += 1
        try:
            if slot < self.most:
                self._copy(self.shelf / f"{slot:03}", cut=bool(slot % 2))
            self._note(write)
        except OSError as error:  # which whoever writes would take for their own
            raise AssertionError(f"the harness failed before {write}") from error

    def _note(self, write: Write) -> None:
        """Keep in mind what a power cut would take back from now on."""
        where = write.path.relative_to(self.place)
        if write.kind == "sync":
            assert write.descriptor is not None
            found = os.fstat(write.descriptor)
            self._kept[found.st_ino] = _state(found)
            self._pending = [(folder, undo) for folder, undo in self._pending if folder != write.path]
        elif write.kind == "truncate":
            self._kept.pop(write.path.stat().st_ino, None)
        elif write.kind in ("create", "mkdir") and not write.path.exists():  # else it is refused, and changes nothing
            self._pending.append((write.path.parent, lambda copy: _remove(copy / where)))
        elif write.kind == "remove" and write.path.is_file():
            content, when = write.path.read_bytes(), write.path.stat().st_mtime_ns
            self._pending.append((write.path.parent, lambda copy: _restore(copy / where, content, when)))
        elif write.kind == "rename":
            assert write.target is not None
            old = write.target.read_bytes() if write.target.is_file() else None
            to = write.target.relative_to(self.place)
            self._pending.append((write.path.parent, lambda copy: _move_back(copy / where, copy / to, old)))
        elif write.kind == "exchange":
            assert write.target is not None
            to = write.target.relative_to(self.place)
            self._pending.append((write.path.parent, lambda copy: _swap(copy / where, copy / to)))

    def _copy(self, copy: Path, *, cut: bool) -> None:
        shutil.rmtree(copy, ignore_errors=True)
        _clone(self.place, copy)
        if cut:
            for path in _files(self.place):
                found = path.stat()
                if _state(found) != self._kept.get(found.st_ino):
                    synced = self._kept.get(found.st_ino, (0, 0, 0))[1]
                    size = self._random.choice([synced, (synced + found.st_size) // 2, found.st_size])
                    os.truncate(copy / path.relative_to(self.place), min(size, found.st_size))
            for _, undo in reversed(self._pending[self._random.randint(0, len(self._pending)) :]):
                undo(copy)
        for path in [*copy.rglob(".*")]:  # what is hidden belongs to a process that has ended
            if path.exists():
                path.rename(path.with_name(re.sub(rf"-{os.getpid()}-", f"-{ENDED}-", path.name)))


def _can_exchange(place: Path) -> bool:
    """Whether names can be swapped at once here; both are removed again."""
    one, other = place / "one", place / "other"
    one.mkdir(), other.mkdir()
    try:
        return files.exchange(one, other)
    finally:
        one.rmdir(), other.rmdir()


def _clone(source: Path, target: Path) -> None:
    """Without shutil, whose writes would be told."""
    target.mkdir()
    for item in os.scandir(source):
        if item.is_dir(follow_symlinks=False):
            _clone(Path(item.path), target / item.name)
        else:
            (target / item.name).write_bytes(Path(item.path).read_bytes())
            (target / item.name).chmod(item.stat().st_mode)
            os.utime(target / item.name, ns=(item.stat().st_mtime_ns,) * 2)


def _files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]


def _state(found: os.stat_result) -> State:
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _restore(path: Path, content: bytes, when: int) -> None:
    if path.parent.is_dir() and not path.exists():
        path.write_bytes(content)
        os.utime(path, ns=(when, when))


def _move_back(source: Path, target: Path, old: bytes | None) -> None:
    if target.exists():
        target.rename(source)
    if old is not None:
        target.write_bytes(old)


def _swap(one: Path, other: Path) -> None:
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)
