"""Files that are never half-written, not even after a power cut, and what the machine offers."""

import ctypes
import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ifonly.errors import InputError, StoreError

_MARK = r"-[0-9a-f]{8}-[0-9]{1,9}-[0-9a-f]{8}(?:-old)?"
"""Added to a name to hide something beside it: machine, process, something random; `old` is what is being replaced."""


def require_absent(target: Path, *, unless: bool) -> None:
    """Refuse to replace what exists, `unless` that was asked for."""
    if target.exists() and not unless:
        raise StoreError(f"{target} exists already; pass overwrite=True or choose another name.")


@contextmanager
def atomic_folder(path: str | Path, *, overwrite: bool = False, outdated: Collection[str] = ()) -> Iterator[Path]:
    """Yield a fresh folder that takes the name `path` only when the block ends well.

    Whatever is raised inside the block, `path` is afterwards either what it was before or complete. With `overwrite`
    a folder of the same files is replaced; one that holds anything else is refused rather than lost, but for the names
    in `outdated`, which go with the old folder, once the new one stands in its place. What a process that was killed
    while it wrote the same folder has left beside it is removed.
    """
    target = Path(path)
    if target.is_symlink():
        target = target.resolve()  # replace what the link points to, not the link
    _tidy_up_beside(target)
    if target.exists() and not target.is_dir():
        raise StoreError(f"{target} is a file, and a folder is to be written there; move it away.")
    require_absent(target, unless=overwrite)
    make_folders(target.parent)
    scratch = _hidden_beside(target)
    try:
        with _naming(target):
            scratch.mkdir()
            yield scratch
            sync_all(scratch)
            if target.exists():
                require_absent(target, unless=overwrite)  # somebody else may have been quicker
                _replace_folder(target, scratch, outdated)
            else:
                scratch.rename(target)
                sync(target.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _replace_folder(target: Path, scratch: Path, outdated: Collection[str]) -> None:
    """Give a finished folder the name of the old one; the old one is left as `scratch`, or removed."""
    require_only(target, {item.name for item in scratch.iterdir()} | set(outdated))
    if exchange(scratch, target):
        sync(target.parent)  # before the old one is removed: a power cut must find one of the two
        return
    retired = _hidden_beside(target, old=True)
    try:
        target.rename(retired)
        scratch.rename(target)
        sync(target.parent)
    finally:
        if retired.exists() and not target.exists():
            retired.rename(target)
        # The old folder is removed only once the new one has its name.
        if target.exists():
            shutil.rmtree(retired, ignore_errors=True)


_EXCHANGES = {"linux": ("renameat2", -100), "darwin": ("renameatx_np", -2)}
"""The system's call that swaps two names at once, and its word for the current folder."""
_SWAP = 2
"""Its flag: both names stay, and mean each other's content."""
_NOT_HERE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV, errno.EPERM}
"""What file systems without it say."""


def exchange(one: Path, other: Path) -> bool:
    """Swap two names, so that nobody ever sees either of them missing; False where the system or the disk cannot."""
    name, here = _EXCHANGES.get(sys.platform, ("", 0))
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None) if name else None
    if call is None:
        return False
    if call(here, os.fsencode(one), here, os.fsencode(other), ctypes.c_uint(_SWAP)) == 0:
        return True
    error = ctypes.get_errno()
    if error in _NOT_HERE:
        return False
    raise OSError(error, os.strerror(error), str(other))


def bring_back(folder: Path) -> None:
    """Give a folder its name again whose replacement was killed half-way, where names cannot be swapped at once.

    For those who read: a folder that is there, or was never there, is left alone.
    """
    if not os.path.lexists(folder):
        _tidy_up_beside(folder)


def require_only(folder: Path, names: Collection[str]) -> None:
    """Refuse to replace a folder that holds anything but files of these names; a missing one is fine.

    What a process that was killed has left half-written in it goes with it.
    """
    others = sorted(set(names_in(folder)) - set(names))
    if others:
        raise StoreError(
            f"{folder} also holds {', '.join(others[:5])}, which overwriting would delete; move them away or choose "
            "another name."
        )


def names_in(folder: Path) -> list[str]:
    """What a folder holds, but for what killed processes have left half-written in it; nothing where there is none."""
    return [item.name for item in folder.iterdir() if not is_left_over(item)] if folder.is_dir() else []


def check_writable(path: str | Path, *, folder: bool = False) -> None:
    """Refuse, before any work is done for it, a `path` at which no file (or folder) can be written.

    What is missing on the way there could be made; nothing is made yet.
    """
    target = Path(path)
    if folder and target.is_file():
        raise StoreError(f"{path} is a file, and a folder is to be written there; choose another name.")
    if not folder and target.is_dir():
        raise StoreError(f"{path} is a folder, and a file is to be written there; choose another name.")
    existing = next((parent for parent in target.absolute().parents if os.path.lexists(parent)), target.absolute())
    _tidy_up_beside(existing / target.name)
    probe = existing / _hidden_beside(target).name
    try:
        # Asking for permissions would not do: read-only disks and names that are too long show only now.
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be written, since {existing} takes no new files ({error.strerror}); choose another place."
        ) from None


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a fresh file name; what is written there takes the name `path` only when the block ends well.

    What a process that was killed while it wrote the same file has left beside it is removed.
    """
    target = Path(path)
    make_folders(target.parent)
    _tidy_up_beside(target)
    scratch = _hidden_beside(target)
    try:
        with _naming(target):
            yield scratch
            sync(scratch)
            scratch.replace(target)
            sync(target.parent)
    finally:
        scratch.unlink(missing_ok=True)


@contextmanager
def _naming(target: Path) -> Iterator[None]:
    """Let errors of the system name the place where they name none, as those of a full disk do."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno not in (None, errno.EPIPE):  # a pipe is that of our output
            error.filename = str(target)
        raise


def write_text_atomically(path: str | Path, text: str) -> None:
    """Replace the file `path` by `text`, or leave it untouched when writing fails."""
    with atomic_file(path) as scratch:
        scratch.write_text(text, encoding="utf-8", newline="\n")


def make_folders(folder: Path) -> None:
    """Make a folder and those above it where they are missing; their names are on disk when this returns."""
    if not folder.is_dir():
        make_folders(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk when this returns; else a power cut may leave it empty."""
    if os.name == "nt" and path.is_dir():  # Windows keeps names by itself, and opens no folder
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(folder: Path) -> None:
    """Have everything in a folder on disk, and then the folder itself."""
    for item in folder.iterdir():
        if item.is_dir() and not item.is_symlink():
            sync_all(item)
        else:
            sync(item)
    sync(folder)


def _hidden_beside(target: Path, *, old: bool = False) -> Path:
    """A free hidden name in the same folder, so that a rename stays within one file system.

    Unlike tempfile's, what is made under it has the permissions that the user's umask asks for. The name
    holds machine and process, so that it can be removed once that process has ended.
    """
    mark = f"-{_this_machine()}-{os.getpid()}-{secrets.token_hex(4)}{'-old' if old else ''}"
    return target.parent / f".{target.name}{mark}"


def _this_machine() -> str:
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


def _tidy_up_beside(target: Path) -> None:
    """Remove hidden files of killed processes beside `target`: they hold patient data and would never be removed.

    A folder that was being replaced when its process was killed, and has no successor, gets its name back. What belongs
    to a process that lives, or to another machine that shares the disk, is left alone.
    """
    for item, marks in _hidden_for(target):
        if any(_may_live(mark) for mark in marks):
            continue
        with suppress(OSError):  # another user's, or removed meanwhile
            if len(marks) == 1 and marks[0].endswith("-old") and not os.path.lexists(target):
                item.rename(target)
            elif item.is_dir():
                shutil.rmtree(item)
            else:
                item.unlink()


def _hidden_for(target: Path) -> list[tuple[Path, list[str]]]:
    """What is hidden beside `target`, and beside hidden folders that were to become it, with the marks of its name."""
    hidden = re.compile(rf"\.+{re.escape(target.name)}((?:{_MARK})+)")
    try:
        with os.scandir(target.parent) as items:
            found = [(Path(item.path), hidden.fullmatch(item.name)) for item in items]
    except OSError:
        return []  # not there yet, or not to be listed
    return [(item, re.findall(_MARK, match[1])) for item, match in found if match]


def is_left_over(item: Path) -> bool:
    """Whether a process hid this, and has ended since."""
    found = re.fullmatch(rf"\..*?((?:{_MARK})+)", item.name)
    return found is not None and not any(_may_live(mark) for mark in re.findall(_MARK, found[1]))


def none_is_younger(files: Iterable[Path], than: Path) -> bool:
    """Whether some of the files are there and none is younger than `than`, which is there: what work that had finished
    left behind; files of work that is under way are younger than what was stored before."""
    kept = [path for path in files if path.is_file()] if than.is_file() else []
    return bool(kept) and all(path.stat().st_mtime_ns <= than.stat().st_mtime_ns for path in kept)


def _may_live(mark: str) -> bool:
    """Whether the process that hid something under a name with this mark may still need it."""
    _, machine, process, *_ = mark.split("-")
    if machine != _this_machine() or os.name == "nt":  # on Windows, asking a process for life ends it
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's process
    return True


MOST_BYTES = 64 * 2**20
"""Of a file of JSON; more would fill the memory once it is read."""


def require_ordinary(path: Path, *, most: int | None = None, folder: Path | None = None) -> None:
    """Refuse what is no ordinary file (a device has no end), has more than `most` bytes, or leads out of `folder`.

    A missing file is for whoever reads it to name.
    """
    try:
        found = path.stat()
    except OSError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path}: cannot be read, for it is no ordinary file.")
    if most is not None and found.st_size > most:
        raise StoreError(
            f"{path}: has {found.st_size / 2**20:,.0f} MB, and at most {most / 2**20:,.3g} MB are read; it is damaged, "
            "or something else than what its name says."
        )
    if folder is not None and not path.resolve().is_relative_to(folder.resolve()):
        raise StoreError(f"{path}: is a link that leads out of its folder, and is not followed; put the file there.")


def require_private(path: Path, *, what: str) -> None:
    """Refuse a file that other users of this machine may read or change."""
    if os.name == "posix" and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"{what} {path}: other users of this machine may read or change it; chmod 600 {path}")


def open_ordinary(path: Path, flags: int, mode: int = 0o666) -> int:
    """A descriptor of an ordinary file that is to be written; a link is not followed, for it may lead anywhere."""
    try:
        descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), mode)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise StoreError(f"{path}: is a link, and nothing is written through one; put the file there.") from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{path}: cannot be written, for it is no ordinary file.")
    return descriptor


def file_reason(error: Exception) -> str:
    """Why a file could not be read or written, in words alone: without the error's number, and without the path."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def sha256_of(path: Path) -> str:
    """The checksum by which a cut-off or altered file is recognised."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
