"""What a comparison of recipes has finished, on disk: a journal, and beside it the models that it keeps."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ifonly.data.cohort import Cohort
from ifonly.errors import StoreError
from ifonly.files import make_folders
from ifonly.journal import Journal
from ifonly.models.base import TrainableModel
from ifonly.models.checkpoint import load_model, save_model

Pair = tuple[TrainableModel, TrainableModel]
"""A kind of model, fitted to either half of the subjects."""


@dataclass(frozen=True)
class RecipeJournal:
    """Entries by the name of their recipe, each with a pair of models; nothing is written without a `journal`."""

    journal: Journal | None
    entries: dict[str, dict[str, Any]]

    @classmethod
    def at(cls, path: Path | None, cohort: Cohort, *what: object) -> RecipeJournal:
        """The journal at `path`, begun anew where it is of another comparison."""
        if path is None:
            return cls(None, {})
        journal = Journal(path, "comparison of recipes", "delete it to start again")
        head = {"comparison by halves": [cohort.fingerprint(), repr(what)]}
        lines = list(journal.lines()) if path.exists() else []
        if not lines or lines[0].entry != head:
            make_folders(path.parent)
            forget_recipes(path)
            journal.append([json.dumps(head)])
            return cls(journal, {})
        journal.cut_unended()
        entries = [(line, journal.checked(line, {"recipe", "models"})) for line in lines[1:]]
        for line, entry in entries:
            if not isinstance(entry["recipe"], str):
                raise journal.broken(line.number)
        return cls(journal, {entry["recipe"]: entry for _, entry in entries})

    def find(self, name: str) -> tuple[dict[str, Any], Pair] | None:
        """The entry of a recipe, and its models; None where it has none, or its models are not the kept ones."""
        entry = self.entries.get(name)
        if entry is None or self.journal is None:
            return None
        try:
            first, second = (load_model(folder) for folder in self._folders(name))
        except StoreError:
            return None
        assert isinstance(first, TrainableModel)
        assert isinstance(second, TrainableModel)
        kept = [first.fingerprint(), second.fingerprint()] == entry["models"]
        return (entry, (first, second)) if kept else None

    def keep(self, entry: dict[str, Any], models: Pair) -> tuple[dict[str, Any], Pair]:
        """Write an entry and its models down at once - the models first, so that an entry has them - and give both."""
        if self.journal is not None:
            for model, folder in zip(models, self._folders(entry["recipe"]), strict=True):
                save_model(model, folder, overwrite=True)
            self.journal.append([json.dumps(entry | {"models": [model.fingerprint() for model in models]})])
        return entry, models

    def _folders(self, name: str) -> Sequence[Path]:
        assert self.journal is not None
        return [_models_beside(self.journal.path) / f"{name}-{half}" for half in range(2)]


def forget_recipes(path: Path) -> None:
    """Remove the journal at `path`, and before it models and training beside it, of which it tells."""
    shutil.rmtree(_models_beside(path), ignore_errors=True)
    training_beside(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def training_beside(path: Path) -> Path:
    """Where the training of refits stands, for whoever keeps a comparison of recipes at `path`."""
    return path.with_name(f"{path.name}.training")


def _models_beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.models")
