"""What an experiment is - settings, work that gives a table, a figure drawn from the table alone - and its folder."""

from __future__ import annotations

import json
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic

import polars as pl
import torch
from matplotlib.figure import Figure

from ifonly import __version__
from ifonly.errors import InputError, StoreError
from ifonly.files import atomic_file, write_text_atomically
from ifonly.report.plots import save_figure
from paper.bench import JOURNAL, Bench, Tally, differences
from paper.laboratory import Settings, SettingsT

TABLE, FIGURE, RECORD = "table.parquet", "figure.png", "experiment.json"
FORMAT = "ifonly.experiment"
VERSION = 1


def further_figure(name: str) -> str:
    """The file of an experiment's further figure."""
    return f"figure-{name}.png"


class Experiment(ABC, Generic[SettingsT]):
    """One figure of the paper, or one question beside them."""

    name: str
    title: str
    paper: str
    """What the paper found, in a sentence or two."""
    full: SettingsT
    """The paper's settings."""
    quick: SettingsT
    """Little of everything, to see it work."""

    @abstractmethod
    def run(self, bench: Bench, settings: SettingsT) -> pl.DataFrame:
        """Do what is not done yet; the table of all."""

    @abstractmethod
    def plot(self, table: pl.DataFrame) -> Figure:
        """The figure."""

    def more_figures(self, table: pl.DataFrame) -> Mapping[str, Figure]:
        """Further ones by name, where one does not show all."""
        return {}

    @abstractmethod
    def summary(self, table: pl.DataFrame) -> pl.DataFrame:
        """The few numbers that the figure shows, for people to read."""

    @abstractmethod
    def findings(self, table: pl.DataFrame) -> Sequence[str]:
        """What was found here beside what the paper found, in sentences computed from the table."""

    def settings(self, *, quick: bool) -> SettingsT:
        """The paper's settings, or little of everything."""
        return self.quick if quick else self.full


AnyExperiment = Experiment[Any]


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
    def read(cls, folder: Path, experiment: AnyExperiment) -> Record:
        """Read what `write` wrote."""
        file = folder / RECORD
        if not file.is_file():
            raise NothingToDrawError(f"{folder}: {experiment.name} was not run here yet; there is no {RECORD}.")
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            settings = type(experiment.full).from_dict(content["settings"])
            return cls(settings, Tally(**content["cells"]), content["machine"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{file}: broken or of another version ({type(error).__name__}: {error}).") from None


@dataclass(frozen=True)
class Outcome:
    """One experiment of a folder, with its table."""

    experiment: AnyExperiment
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

    def progress(self) -> str:
        """How much of it is measured, in words."""
        cells = self.record.cells
        failed = f", {cells.failed:,} of them failed" if cells.failed else ""
        return f"{cells.finished:,} of {cells.wanted:,} measurements finished{failed}"

    @classmethod
    def load(cls, experiment: AnyExperiment, folder: Path) -> Outcome:
        """Read what `carry_out` wrote below the folder of all experiments."""
        own = folder / experiment.name
        record = Record.read(own, experiment)
        try:
            table = pl.read_parquet(own / TABLE)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise StoreError(f"{own / TABLE}: cannot be read ({error}); run {experiment.name} again.") from None
        return cls(experiment, record, table, own)


def carry_out(experiment: AnyExperiment, settings: Settings, bench: Bench, *, force: bool = False) -> Outcome:
    """Run an experiment, or what is left of it; write its table and its figure.

    A folder that holds it with other settings is refused unless `force`: then their table and figure go at once, so
    that they are never shown under the new settings. What both have in common is not measured again.
    """
    folder = bench.laboratory.folder / experiment.name
    known = Record.read(folder, experiment).settings if (folder / RECORD).exists() else None
    if known is not None and known != settings and not force:
        raise StoreError(
            f"{folder} holds this experiment with other settings ({differences(known.to_dict(), settings.to_dict())}). "
            "Use the same settings, choose another folder, or replace table and figure with --force: what both have in "
            "common is not measured again."
        )
    machine = _machine(settings, bench.workers)
    if known != settings:
        with stored(folder / RECORD):
            for old in (*folder.glob("figure*.png"), folder / TABLE):
                old.unlink(missing_ok=True)
            Record(settings, machine=machine).write(folder, experiment.name)
    return _finish(experiment, settings, bench, machine)


def draw_again(experiment: AnyExperiment, bench: Bench) -> Outcome:
    """Make table and figure anew from the cells that are finished; with a bench for finished cells nothing is measured.

    The settings are those that the folder knows.
    """
    begun = Record.read(bench.laboratory.folder / experiment.name, experiment)
    return _finish(experiment, begun.settings, bench, begun.machine)


def _finish(experiment: AnyExperiment, settings: Settings, bench: Bench, machine: str) -> Outcome:
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


@contextmanager
def stored(path: Path) -> Iterator[None]:
    """Say which file could not be written, should that fail inside the block."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise StoreError(
            f"{path}: cannot be written ({reason}). Every measurement is kept in {JOURNAL}: make room, and give the "
            "same command again."
        ) from error


def _machine(settings: Settings, workers: int) -> str:
    """In general words; no names."""
    words = f"{os.cpu_count()} cores, {workers} worker{'' if workers == 1 else 's'}"
    device = str(settings.to_dict().get("device", "cpu"))
    if device.startswith("cuda") and torch.cuda.is_available():
        words += f", {torch.cuda.get_device_name(device)}"
    return f"{words}; {platform.system()} on {platform.machine()}, torch {torch.__version__.partition('+')[0]}"
