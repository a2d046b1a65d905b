"""An experiment's folder: its settings, its table and its figure, which can always be gone on with or drawn again."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field
from pathlib import Path

import polars as pl
import torch

from ifonly.errors import InputError, StoreError
from ifonly.files import atomic_file, write_text_atomically
from ifonly.report.plots import save_figure
from ifonly.version import __version__
from paper.base import Experiment, Settings
from paper.runner import Bench, Tally
from paper.storing import stored

TABLE, FIGURE, RECORD = "table.parquet", "figure.png", "experiment.json"
FORMAT = "ifonly.experiment"
VERSION = 1


def further_figure(name: str) -> str:
    """The file of an experiment's further figure."""
    return f"figure-{name}.png"


class NothingToDrawError(StoreError):
    """An experiment has nothing yet that a figure could show."""


@dataclass(frozen=True)
class Record:
    """What a folder knows about one of its experiments, beside its table and its figure."""

    settings: Settings
    cells: Tally = field(default_factory=Tally)
    """What the table is made of; nothing wanted until the first table of these settings is written."""
    machine: str = ""

    def write(self, folder: Path, name: str) -> None:
        """Store it, atomically."""
        content = {"format": FORMAT, "version": VERSION, "ifonly": __version__, "experiment": name}
        content |= {"settings": self.settings.to_dict(), "cells": asdict(self.cells), "machine": self.machine}
        write_text_atomically(folder / RECORD, json.dumps(content, indent=2) + "\n")

    @classmethod
    def read(cls, folder: Path, experiment: Experiment) -> Record:
        """Read what `write` wrote."""
        file = folder / RECORD
        if not file.is_file():
            raise NothingToDrawError(f"{folder}: {experiment.name} was not run here yet; there is no {RECORD}.")
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            settings = experiment.settings_class.from_dict(content["settings"])
            return cls(settings, Tally(**content["cells"]), content["machine"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{file}: broken or of another version ({type(error).__name__}: {error}).") from None


@dataclass(frozen=True)
class Outcome:
    """One experiment of a folder, with its table."""

    experiment: Experiment
    record: Record
    table: pl.DataFrame
    folder: Path

    @property
    def figure(self) -> Path:
        """Where the figure is."""
        return self.folder / FIGURE

    @property
    def figures(self) -> list[Path]:
        """All figures, the main one first."""
        return [self.figure, *sorted(self.folder.glob(further_figure("*")))]

    @property
    def table_file(self) -> Path:
        """Where the table is."""
        return self.folder / TABLE

    @classmethod
    def load(cls, experiment: Experiment, folder: Path) -> Outcome:
        """Read what `carry_out` wrote below the folder of all experiments."""
        own = folder / experiment.name
        record = Record.read(own, experiment)
        try:
            table = pl.read_parquet(own / TABLE)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise StoreError(f"{own / TABLE}: cannot be read ({error}); run {experiment.name} again.") from None
        return cls(experiment, record, table, own)


def carry_out(experiment: Experiment, settings: Settings, bench: Bench, *, force: bool = False) -> Outcome:
    """Run an experiment, or what is left of it; write its table and its figure.

    A folder that holds it with other settings is refused unless `force`: then their table and figure go at once, so
    that they are never shown under the new settings. What both have in common is not measured again.
    """
    folder = bench.laboratory.folder / experiment.name
    known = Record.read(folder, experiment).settings if (folder / RECORD).exists() else None
    if known is not None and not force:
        _require_same(folder, known, settings)
    machine = _machine(settings, bench.workers)
    if known != settings:
        with stored(folder / RECORD):
            for old in (*folder.glob("figure*.png"), folder / TABLE):
                old.unlink(missing_ok=True)
            Record(settings, machine=machine).write(folder, experiment.name)
    return _finish(experiment, settings, bench, machine)


def draw_again(experiment: Experiment, bench: Bench) -> Outcome:
    """Make table and figure anew from the cells that are finished; with a bench for finished cells nothing is measured.

    The settings are those that the folder knows.
    """
    begun = Record.read(bench.laboratory.folder / experiment.name, experiment)
    return _finish(experiment, begun.settings, bench, begun.machine)


def _finish(experiment: Experiment, settings: Settings, bench: Bench, machine: str) -> Outcome:
    """The record comes last: what it says of the cells is then true of the table."""
    folder = bench.laboratory.folder / experiment.name
    bench.tally = Tally()
    table = experiment.run(bench, settings)
    try:
        if not len(table):
            raise InputError("nothing is finished that could be drawn.")
        figures = {FIGURE: experiment.plot(table)}
        figures |= {further_figure(name): figure for name, figure in experiment.more_figures(table).items()}
    except InputError as error:
        raise NothingToDrawError(
            f"{folder}: no figure of {experiment.name} ({bench.tally.finished} of {bench.tally.wanted} cells finished, "
            f"{bench.tally.failed} failed): {error}"
        ) from None
    record = Record(settings, bench.tally, machine)
    with stored(folder / TABLE), atomic_file(folder / TABLE) as scratch:
        table.write_parquet(scratch)
    for name, figure in figures.items():
        with stored(folder / name):
            save_figure(figure, folder / name)
    with stored(folder / RECORD):
        record.write(folder, experiment.name)
    return Outcome(experiment, record, table, folder)


def _require_same(folder: Path, found: Settings, wanted: Settings) -> None:
    there, now = found.to_dict(), wanted.to_dict()
    differing = [name for name in now if there.get(name) != now[name]]
    if differing:
        details = "; ".join(f"{name}: {there.get(name)} there, {now[name]} now" for name in differing)
        raise StoreError(
            f"{folder} holds this experiment with other settings ({details}). Use the same settings, choose another "
            "folder, or replace table and figure with --force: what both have in common is not measured again."
        )


def _machine(settings: Settings, workers: int) -> str:
    """In general words; no names."""
    words = f"{os.cpu_count()} cores, {workers} worker{'' if workers == 1 else 's'}"
    device = str(settings.to_dict().get("device", "cpu"))
    if device.startswith("cuda") and torch.cuda.is_available():
        words += f", {torch.cuda.get_device_name(device)}"
    return f"{words}; {platform.system()} on {platform.machine()}, torch {torch.__version__.partition('+')[0]}"
