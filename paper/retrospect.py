"""What figures 3b and 3c share: one run over the whole cohort."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ifonly.runs.manifest import MANIFEST
from ifonly.runs.rows import COLUMNS, FAILED
from ifonly.runs.run import load_run
from ifonly.runs.settings import RunSettings
from ifonly.runs.solving import solve_cohort
from ifonly.query import Limits
from paper.base import Settings
from paper.runner import Bench, Tally


@dataclass(frozen=True)
class RetrospectSettings(Settings):
    """Of the run over the cohort."""

    distribution: int | None = None
    """How many patients, the first of the cohort; None: all."""
    max_changes: int = 3
    seconds: float | None = 60.0
    """Limit of every single solve; None: no limit."""
    device: str = "cpu"


QUICK = RetrospectSettings(distribution=12, max_changes=2, seconds=10.0)


def cohort_rows(bench: Bench, settings: RetrospectSettings) -> pl.DataFrame:
    """The table of the run, as `ifonly cohort` makes it; of what is finished, if nothing is to be solved."""
    ids = bench.laboratory.cohort().ids[: settings.distribution]
    folder = _folder(bench, settings, len(ids))
    if bench.finished_only:
        table = load_run(folder).table() if (folder / MANIFEST).exists() else pl.DataFrame(schema=COLUMNS)
    else:
        standard = bench.laboratory.standard
        bench.fit_models([] if standard is None else [standard])
        table = solve_cohort(
            bench.laboratory.cohort(),
            bench.laboratory.load_model(standard),
            bench.laboratory.reward,
            max_changes=settings.max_changes,
            out=folder,
            settings=RunSettings(
                limits=Limits(seconds=settings.seconds),
                episodes=ids,
                workers=bench.workers,
                device=settings.device,
            ),
            progress=bench.progress,
        ).table()
    bench.tally = Tally(len(ids), table.height, table.filter(pl.col("status") == FAILED).height)
    return table


def _folder(bench: Bench, settings: RetrospectSettings, episodes: int) -> Path:
    """One for each combination of settings, so that none is in the other's way."""
    limit = "" if settings.seconds is None else f"-{settings.seconds:g}s"
    name = f"{episodes}-episodes-{settings.max_changes}-changes{limit}-{settings.device.replace(':', '-')}"
    return bench.laboratory.folder / "cohort-runs" / name
