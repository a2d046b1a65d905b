"""Hypothesis tries the same examples everywhere, and takes the time it needs; fewer examples in the ordinary run."""

from pathlib import Path
from typing import Any, BinaryIO

import pytest
from effort import some
from hypothesis import settings

settings.register_profile("ifonly", deadline=None, derandomize=True, max_examples=some(100))
settings.load_profile("ifonly")

HEADS = {"png": b"\x89PNG\r\n\x1a\n", "pdf": b"%PDF-", "svg": b"<?xml"}


def _write_head(figure: Any, target: Path | BinaryIO, *, format: str, **options: Any) -> None:
    (target.write_bytes if isinstance(target, Path) else target.write)(HEADS[format])


@pytest.fixture
def unpainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but painted into no file, which takes longest: for tests of everything else."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", _write_head)


collect_ignore = ["conftest.py"]  # has no examples; as a module its name is that of the other files like it
