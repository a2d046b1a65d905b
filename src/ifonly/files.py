"""Writing files so that nothing is ever half-written."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ifonly.errors import StoreError


@contextmanager
def atomic_folder(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yield a fresh folder that takes the name `path` only when the block ends well.

    Whatever happens inside the block, `path` is afterwards either what it was before or complete.
    """
    target = Path(path)
    if target.exists() and not overwrite:
        raise StoreError(f"{target} exists already; pass overwrite=True or choose another name.")
    if target.exists() and not target.is_dir():
        raise StoreError(f"{target} is a file, and a folder is to be written there; move it away.")
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield scratch
        scratch.chmod(0o755)  # mkdtemp's 0o700 is meant for secrets
        if target.exists():
            retired = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
            target.rename(retired / "old")
            try:
                scratch.rename(target)
            except BaseException:
                (retired / "old").rename(target)
                raise
            finally:
                shutil.rmtree(retired, ignore_errors=True)
        else:
            scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_text_atomically(path: str | Path, text: str) -> None:
    """Replace the file `path` by `text`, or leave it untouched when writing fails."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)  # mkstemp's 0o600 is meant for secrets
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def sha256_of(path: Path) -> str:
    """The checksum by which a cut-off or altered file is recognised."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
