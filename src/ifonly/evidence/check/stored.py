"""The check that is kept with a model, in the model's own folder."""

from __future__ import annotations

from pathlib import Path

from ifonly.evidence.check.result import ModelCheck
from ifonly.models.checkpoint import CHECK, read_metadata


def stored_check(model_folder: str | Path) -> ModelCheck | None:
    """The check kept in a model's folder; None where there is none, or only one of other weights."""
    file = Path(model_folder) / CHECK
    if not file.is_file():
        return None
    check = ModelCheck.load(file)
    return check if check.model == read_metadata(model_folder)["fingerprint"] else None
