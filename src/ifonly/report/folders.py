"""Summaries, data cards and model checks as folders: complete, replaced as a whole, and nobody else's files lost."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
from matplotlib.figure import Figure

from ifonly.data.plain import read_plain
from ifonly.errors import InputError, StoreError
from ifonly.evidence.check.model_check import FORMAT as CHECK_FORMAT
from ifonly.evidence.check.model_check import ModelCheck
from ifonly.evidence.check.remedies import TriedRemedy
from ifonly.files import atomic_folder, file_reason, names_in
from ifonly.models import save_model
from ifonly.models.checkpoint import CHECK
from ifonly.report import card, cohort_plots, summary
from ifonly.report.card_plots import card_figures
from ifonly.report.check_page import check_page
from ifonly.report.check_plots import check_figures
from ifonly.report.pages import render
from ifonly.report.plots import FORMATS, save_figure
from ifonly.text.cards import card_parts, card_warning
from ifonly.text.catalogue import say
from ifonly.text.numbers import NOT_SHOWN, number, percent
from ifonly.version import __version__

FORMULA_STARTS = ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"]
"""What spreadsheets take text for a formula by; the last ones are the same signs in full width."""


@dataclass(frozen=True)
class WrittenFolder:
    """What was written, and which figures could not be drawn and why."""

    path: Path
    files: tuple[str, ...]
    not_drawn: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FolderKind:
    """What is written into a folder: its noun, and the JSON document that says so."""

    noun: str
    format: str
    document: str
    known: tuple[str, ...] | None = None
    """All names that it can have; None: the document lists those that it has as `files`."""

    def files_in(self, folder: Path) -> list[str]:
        """The names that an earlier one wrote into this folder."""
        try:
            content = read_plain(folder / self.document)
        except StoreError:
            return []
        if not isinstance(content, dict) or content.get("format") != self.format:
            return []
        names = content.get("files") if self.known is None else self.known
        listed = names if isinstance(names, list | tuple) else ()
        return [name for name in listed if isinstance(name, str) and Path(name).name == name]

    def check(self, path: str | Path) -> None:
        """Refuse a folder that holds anything else than an earlier one, which writing would replace."""
        folder = Path(path)
        if strangers := sorted(set(names_in(folder)) - set(self.files_in(folder))):
            raise StoreError(
                f"{folder} holds {strangers[:5]}, which no earlier {self.noun} wrote there; move them away, or choose "
                "an empty or a new folder."
            )

    @contextmanager
    def replaced(self, target: Path) -> Iterator[Path]:
        """A place to write; the folder is afterwards either what it was or complete."""
        self.check(target)
        try:
            with atomic_folder(target, overwrite=True, outdated=self.files_in(target)) as scratch:
                yield scratch
        except (OSError, pl.exceptions.PolarsError) as error:
            raise StoreError(
                f"{target}: the {self.noun} cannot be written ({file_reason(error)}); make room, or choose another "
                "place."
            ) from error


SUMMARY_FOLDER = FolderKind("summary", summary.FORMAT, "summary.json")
CARD_FOLDER = FolderKind("data card", card.FORMAT, "card.json")
CHECK_FIGURES = ("likelihood", "noise", "coverage", "ahead", "parts")
TRIED = "tried"
"""Of a check: the folder with models that were fitted in place of the one that was checked, and a table of them."""
CHECK_FOLDER = FolderKind(
    "check",
    CHECK_FORMAT,
    "check.json",
    ("check.json", "check.txt", "check.html", *(f"{name}.png" for name in CHECK_FIGURES), TRIED, f"{TRIED}.json"),
)


def write_summary(found: summary.RunSummary, path: str | Path, *, figures: Sequence[str] = ("png",)) -> WrittenFolder:
    """Write a folder with summary.json, a CSV file per table and the figures in each of these formats."""
    if wrong := [kind for kind in figures if kind not in FORMATS]:
        raise InputError(f"summary {path}: no figures can be made as {wrong}; choose from {list(FORMATS)}.")
    not_drawn = {}
    with SUMMARY_FOLDER.replaced(Path(path)) as scratch:
        for name, frame in found.frames().items():
            without_formulas(frame).write_csv(scratch / f"{name}.csv")
        for name, draw in summary_plots(found).items():
            try:
                figure = draw(found)
            except InputError as error:
                not_drawn[name] = str(error)
                continue
            for kind in figures:
                save_figure(figure, scratch / f"{name}.{kind}")
        files = (SUMMARY_FOLDER.document, *sorted(item.name for item in scratch.iterdir()))
        _write_document(scratch / SUMMARY_FOLDER.document, found.to_dict() | {"files": files})
    return WrittenFolder(Path(path), files, not_drawn)


def write_card(found: card.Card, path: str | Path, *, title: str = "cohort") -> WrittenFolder:
    """Write a folder with card.html (complete in itself), card.json and the figures as PNG."""
    with CARD_FOLDER.replaced(Path(path)) as scratch:
        images = _save_images(card_figures(found), scratch)
        _write_text(scratch / "card.html", _card_page(found, title, images))
        files = tuple(sorted([CARD_FOLDER.document, *(item.name for item in scratch.iterdir())]))
        _write_document(scratch / CARD_FOLDER.document, found.to_dict() | {"title": title, "files": files})
    return WrittenFolder(Path(path), files)


def _save_images(figures: Mapping[str, Figure], folder: Path) -> dict[str, str]:
    """Write figures as PNG files, and give them back in base64 for a page that carries them inside."""
    for name, figure in figures.items():
        save_figure(figure, folder / f"{name}.png")
    return {name: base64.b64encode((folder / f"{name}.png").read_bytes()).decode("ascii") for name in figures}


def _card_page(found: card.Card, title: str, figures: Mapping[str, str]) -> str:
    """One HTML page, with figures given as PNG in base64: no scripts, nothing fetched, fit to be printed."""
    return render(
        "card.html",
        title=say("card.title", title=title),
        card=found,
        said=card_parts(found),
        warnings=[card_warning(warning) for warning in found.warnings],
        figures=figures,
        number=number,
        percent=partial(percent, unknown=NOT_SHOWN),
        version=__version__,
    )


def write_check(found: ModelCheck, path: str | Path, *, trials: Sequence[TriedRemedy] = ()) -> WrittenFolder:
    """Write a folder with check.json, check.txt (all findings in words), figures as PNG, and check.html with it all.

    With `trials`, tried.json compares them, and the folder tried/ has their models, by the names of their recipes.
    """
    with CHECK_FOLDER.replaced(Path(path)) as scratch:
        found.save(scratch / CHECK_FOLDER.document)
        _write_text(scratch / "check.txt", found.details() + "\n")
        images = _save_images(check_figures(found), scratch)
        title = Path(path).resolve().name
        _write_text(scratch / "check.html", check_page(found, images, title=title, trials=trials))
        _write_trials(scratch, trials)
        files = tuple(sorted(item.name for item in scratch.iterdir()))
    return WrittenFolder(Path(path), files)


def _write_trials(folder: Path, trials: Sequence[TriedRemedy]) -> None:
    if not trials:
        return
    _write_document(folder / f"{TRIED}.json", {"trials": [trial.to_dict() for trial in trials]})
    for trial in trials:
        save_model(trial.model, folder / TRIED / trial.recipe, provenance={"recipe": trial.recipe})
        trial.check.save(folder / TRIED / trial.recipe / CHECK)


def summary_plots(found: summary.RunSummary) -> dict[str, Callable[[summary.RunSummary], Figure]]:
    """Every figure of a summary by its file's name."""
    groups = {
        f"group_{quote(name, safe='')}": partial(cohort_plots.plot_improvement_by_group, by=name)
        for name in found.group_labels
    }
    return {
        "improvement_distribution": cohort_plots.plot_improvement_distribution,
        "improvement_by_budget": cohort_plots.plot_improvement_by_budget,
        "improvement_by_horizon": cohort_plots.plot_improvement_by_horizon,
        "change_times": cohort_plots.plot_change_times,
        **({"evidence": cohort_plots.plot_evidence} if found.evidence.examined else {}),
        **groups,
    }


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """Text that a spreadsheet would run as a formula, with an apostrophe before it."""
    words = pl.col(pl.String)
    is_formula = words.str.slice(0, 1).is_in(FORMULA_STARTS)
    return frame.with_columns(pl.when(is_formula).then(pl.lit("'") + words).otherwise(words).name.keep())


def _write_document(path: Path, content: dict[str, Any]) -> None:
    _write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
