"""Figures that are made, but not painted: to turn them into pixels takes longest, and other tests look at pictures."""

from pathlib import Path
from typing import Any, BinaryIO

import pytest

HEADS = {"png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF-", "svg": b"<?xml"}


def write_head(figure: Any, target: Path | BinaryIO, *, format: str, **options: Any) -> None:
    """In place of `Figure.savefig`."""
    (target.write_bytes if isinstance(target, Path) else target.write)(HEADS[format])


def leave_unpainted(patch: pytest.MonkeyPatch) -> None:
    """Files of figures hold how their kind begins, and nothing more."""
    patch.setattr("matplotlib.figure.Figure.savefig", write_head)
