"""Every write of a process, told before it happens: the seam of the crash harness, of which the package knows nothing.

Names are changed and files are written through a few functions of `os` and `io`, which are wrapped here. What native
code writes (Parquet, tensors) is told when it is synced, before which it counts for nothing.
"""

import builtins
import io
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ifonly import files


@dataclass(frozen=True)
class Write:
    """What is about to be done."""

    kind: str
    """"create", "open", "write", "sync", "rename", "exchange", "mkdir", "remove" or "truncate" (all of it)."""
    path: Path
    target: Path | None = None
    """The new name, of a rename or an exchange."""
    descriptor: int | None = None
    """Of a sync."""


Before = Callable[[Write], None]
SetAttribute = Callable[[Any, str, Any], None]
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def tell_writes(before: Before, place: Path, setattr: SetAttribute) -> None:
    """Have `before` called before every write below `place`; `setattr` sets, and perhaps resets, attributes."""
    root = os.path.realpath(place)

    def below(path: Any) -> Path | None:
        if isinstance(path, int) or path is None:
            return None
        whole = Path.cwd() / path
        return whole if str(whole) == root or str(whole).startswith(root + os.sep) else None

    _tell_names(before, below, setattr)
    _tell_contents(before, below, setattr)


def _tell_names(before: Before, below: Callable[[Any], Path | None], setattr: SetAttribute) -> None:
    """Renames, new folders, removals."""

    def moving(kind: str, move: Callable[..., Any]) -> Callable[..., Any]:
        def moved(source: Any, target: Any, **options: Any) -> Any:
            if (path := below(source)) is not None:
                before(Write(kind, path, below(target)))
            return move(source, target, **options)

        return moved

    def changing(kind: str, change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(path: Any, *rest: Any, dir_fd: int | None = None, **options: Any) -> Any:
            place = path if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink() / path
            if (found := below(place)) is not None:
                before(Write(kind, found))
            return change(path, *rest, dir_fd=dir_fd, **options)

        return changed

    for name in ("rename", "replace"):
        setattr(os, name, moving("rename", getattr(os, name)))
    for kind, name in (("mkdir", "mkdir"), ("remove", "unlink"), ("remove", "rmdir"), ("remove", "remove")):
        setattr(os, name, changing(kind, getattr(os, name)))
    setattr(files, "exchange", moving("exchange", files.exchange))


def _tell_contents(before: Before, below: Callable[[Any], Path | None], setattr: SetAttribute) -> None:
    """Files that are opened to be written, written through a descriptor, synced."""
    opened, described = io.open, os.open

    def opening(file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if set(mode) & set("wax+") and (path := below(file)) is not None:
            there = "truncate" if "w" in mode else "open"
            before(Write(there if path.exists() else "create", path))
        return opened(file, mode, *rest, **options)

    def describing(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & _WRITING and (found := below(path)) is not None and not found.exists():
            before(Write("create", found))
        return described(path, flags, *rest, **options)

    def told(kind: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def worked(descriptor: int, *rest: Any) -> Any:
            if (path := below(Path(f"/proc/self/fd/{descriptor}").readlink())) is not None:
                before(Write(kind, path, descriptor=descriptor))
            return work(descriptor, *rest)

        return worked

    setattr(io, "open", opening)
    setattr(builtins, "open", opening)
    setattr(os, "open", describing)
    for kind, name in (("write", "write"), ("write", "ftruncate"), ("sync", "fsync")):
        setattr(os, name, told(kind, getattr(os, name)))
