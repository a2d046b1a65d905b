"""Cells of the evidence study in one small file: what tables, page and rule are made of, without fitting a model again.

A cell keeps all that was told of its answers; the archive keeps what is read of it, to the last digit. So a rule can be
judged again by whoever has the repository, and another one be tried.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ifonly import Evidence
from ifonly.errors import StoreError
from ifonly.files import atomic_file, make_folders
from paper.evidence_study import Cell, in_order


def lean(cell: Cell) -> Cell:
    """The cell without what no table and no rule reads: steps that are not changed, features, organs, labels."""
    return replace(cell, answers=tuple(replace(one, evidence=_lean(one.evidence)) for one in cell.answers))


def _lean(evidence: Evidence) -> Evidence:
    refits, support, influence, records = evidence.refits, evidence.support, evidence.sensitivity, evidence.calibration
    weakest = influence.weakest if influence else None
    return replace(
        evidence,
        refits=refits and replace(refits, steps=None, notes=(), labels=()),
        support=support and replace(support, steps=support.changed),
        sensitivity=influence
        and replace(
            influence, steps=() if weakest is None else (replace(weakest, effect=(), scaled_effect=()),), features=()
        ),
        calibration=records and replace(records, steps=()),
        scores=tuple(replace(score, organs=(), left_out=()) for score in evidence.scores),
        coupling=None,
    )


def read_archive(path: Path) -> list[Cell]:
    """All cells that an archive holds, in order."""
    try:
        lines = gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()
        return in_order(Cell.from_dict(json.loads(line)) for line in lines)
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"{path}: not an archive of cells of this study ({type(error).__name__}).") from None


def add_to_archive(path: Path, cells: Iterable[Cell]) -> list[Cell]:
    """Write cells into an archive beside those that it holds, in place of older ones of the same name; all of them."""
    kept = {cell.settings.file: cell for cell in (read_archive(path) if path.exists() else [])}
    kept |= {cell.settings.file: lean(cell) for cell in cells}
    found = in_order(kept.values())
    text = "".join(json.dumps(cell.to_dict(), allow_nan=False) + "\n" for cell in found)
    make_folders(path.parent)
    with atomic_file(path) as scratch:
        scratch.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))
    return found
