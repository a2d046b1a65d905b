"""Writing files so that nothing is ever half-written."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ifonly.errors import StoreError


@contextmanager
def atomic_folder(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a fresh folder that takes the name `path` only when the block ends well.

    Whatever is raised inside the block, `path` is afterwards either what it was before or complete. With `overwrite`
    a folder of the same files is replaced; one that holds anything else is refused rather than lost.
    """
    target = Path(path)
    if target.is_symlink():
        target = target.resolve()  # replace what the link points to, not the link
    if target.exists() and not target.is_dir():
        raise StoreError(f"{target} is a file, and a folder is to be written there; move it away.")
    if target.exists() and not overwrite:
        raise StoreError(f"{target} exists already; pass overwrite=True or choose another name.")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = _hidden_beside(target)
    try:
        scratch.mkdir()
        yield scratch
        if target.exists():
            _replace_folder(target, scratch)
        else:
            scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _replace_folder(target: Path, scratch: Path) -> None:
    strangers = sorted({item.name for item in target.iterdir()} - {item.name for item in scratch.iterdir()})
    if strangers:
        raise StoreError(
            f"{target} also holds {strangers[:5]}, which overwriting would delete; move them away or choose another "
            "name."
        )
    retired = _hidden_beside(target)
    try:
        target.rename(retired)
        scratch.rename(target)
    finally:
        if retired.exists() and not target.exists():
            retired.rename(target)
        # The old folder goes only once something stands in its place.
        if target.exists():
            shutil.rmtree(retired, ignore_errors=True)


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
    """Yield a fresh file name; what is written there takes the name `path` only when the block ends well."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = _hidden_beside(target)
    try:
        yield scratch
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def write_text_atomically(path: str | Path, text: str) -> None:
    """Replace the file `path` by `text`, or leave it untouched when writing fails."""
    with atomic_file(path) as scratch:
        scratch.write_text(text, encoding="utf-8", newline="\n")


def _hidden_beside(target: Path) -> Path:
    """A free hidden name in the same folder, so that a rename stays within one file system.

    Unlike tempfile's, what is made under it has the permissions that the user's umask asks for.
    """
    return target.parent / f".{target.name}-{secrets.token_hex(8)}"


def sha256_of(path: Path) -> str:
    """The checksum by which a cut-off or altered file is recognised."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
