"""A run's summary as a folder: summary.json, tables as CSV, figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

import polars as pl
from matplotlib.figure import Figure

from ifonly.errors import InputError, StoreError
from ifonly.files import atomic_folder
from ifonly.report import cohort_plots
from ifonly.report.plots import FORMATS, save_figure
from ifonly.report.summary import FORMAT, Summary
from ifonly.report.trust_plots import plot_trust

SUMMARY_FILE = "summary.json"

FORMULA_STARTS = ["=", "+", "-", "@", "\t", "\r"]
"""What spreadsheets take text for a formula by."""


@dataclass(frozen=True)
class SummaryFolder:
    """What was written, and which figures could not be drawn and why."""

    path: Path
    files: tuple[str, ...]
    not_drawn: Mapping[str, str]


def check_summary_folder(path: str | Path) -> None:
    """Refuse a folder that holds anything else than an earlier summary, which writing would replace."""
    folder = Path(path)
    names = {item.name for item in folder.iterdir()} if folder.is_dir() else set()
    strangers = sorted(names - set(_files_of(folder)))
    if strangers:
        raise StoreError(
            f"{folder} holds {strangers[:5]}, which no earlier summary wrote there; move them away, or choose an empty "
            "or a new folder."
        )


def write_summary(summary: Summary, path: str | Path, *, figures: Sequence[str] = ("png",)) -> SummaryFolder:
    """Write a folder with summary.json, a CSV file per table and the figures in each of these formats.

    An earlier summary there is replaced as a whole; the folder is afterwards either what it was or complete.
    """
    wrong = [kind for kind in figures if kind not in FORMATS]
    if wrong:
        raise InputError(f"summary {path}: no figures can be made as {wrong}; choose from {list(FORMATS)}.")
    check_summary_folder(path)
    target = Path(path)
    # What an earlier summary had and this one has not would count as somebody else's.
    with _named(target), atomic_folder(target, overwrite=True, outdated=_files_of(target)) as scratch:
        for name, frame in summary.frames().items():
            _harmless(frame).write_csv(scratch / f"{name}.csv")
        not_drawn = _draw_all(summary, scratch, figures)
        files = (SUMMARY_FILE, *sorted(item.name for item in scratch.iterdir()))
        content = summary.to_dict() | {"files": files}
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        (scratch / SUMMARY_FILE).write_text(text, encoding="utf-8", newline="\n")
    return SummaryFolder(target, files, not_drawn)


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Say what could not be written, should that fail inside the block."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise StoreError(
            f"{folder}: the summary cannot be written ({reason}); make room, or choose another place."
        ) from error


def _harmless(frame: pl.DataFrame) -> pl.DataFrame:
    """Text that a spreadsheet would run as a formula, with an apostrophe before it."""
    words = pl.col(pl.String)
    is_formula = words.str.slice(0, 1).is_in(FORMULA_STARTS)
    return frame.with_columns(pl.when(is_formula).then(pl.lit("'") + words).otherwise(words).name.keep())


def _draw_all(summary: Summary, folder: Path, kinds: Sequence[str]) -> dict[str, str]:
    """Draw what can be drawn; gives back why the others cannot."""
    not_drawn = {}
    for name, draw in _plots(summary).items():
        try:
            figure = draw(summary)
        except InputError as error:
            not_drawn[name] = str(error)
            continue
        for kind in kinds:
            save_figure(figure, folder / f"{name}.{kind}")
    return not_drawn


def _plots(summary: Summary) -> dict[str, Callable[[Summary], Figure]]:
    groups = {
        f"group_{quote(name, safe='')}": partial(cohort_plots.plot_improvement_by_group, by=name)
        for name in summary.group_labels
    }
    trust = {"trust": plot_trust} if summary.trust.examined else {}
    return {
        "improvement_distribution": cohort_plots.plot_improvement_distribution,
        "improvement_by_budget": cohort_plots.plot_improvement_by_budget,
        "improvement_by_horizon": cohort_plots.plot_improvement_by_horizon,
        "change_times": cohort_plots.plot_change_times,
        **trust,
        **groups,
    }


def _files_of(folder: Path) -> list[str]:
    """The names that an earlier summary wrote into this folder."""
    try:
        content = json.loads((folder / SUMMARY_FILE).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        return []
    if not isinstance(content, dict) or content.get("format") != FORMAT or not isinstance(content.get("files"), list):
        return []
    return [name for name in content["files"] if isinstance(name, str) and Path(name).name == name]
