"""The command that puts one question to a whole cohort: `cohort`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column, Table

from ifonly.cli import options
from ifonly.cli.drawing import show_duration
from ifonly.cli.frame import ExitCode, Output, in_options, note, notes, require_extra
from ifonly.cli.queries import QueryOptions
from ifonly.progress import Tick

if TYPE_CHECKING:
    from ifonly.runs import Run

COHORT_EXAMPLES = (
    "ifonly cohort --episodes data/sepsis --model models/sepsis -k 3 --out runs/k3",
    "ifonly cohort --episodes data/sepsis --model models/sepsis -k 3 --out runs/k3 --workers 4 --seconds 60",
    "ifonly cohort --episodes data/sepsis --model models/sepsis --out runs/two --only patient-00001 "
    "--only patient-00002 --json",
    "ifonly cohort --episodes data/sepsis --model models/sepsis --out runs/k3 --workers tcp://head:8786",
    "ifonly cohort --episodes data/sepsis --model models/sepsis --out runs/k3 --device cuda",
    "ifonly cohort --episodes data/sepsis --model models/ensemble --out runs/worst --query worst.yaml "
    "--behaviour behaviour/sepsis",
)


def cohort(
    asked: QueryOptions,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FOLDER", help="The run; one that was stopped is resumed.", show_default=False),
    ],
    only: options.Only = None,
    workers: Annotated[
        str | None,
        typer.Option(
            "--workers",
            metavar="N|ADDRESS",
            help="Processes on this machine, or a Dask scheduler whose workers do the work: tcp://host:8786.",
            show_default="one per core",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Start again: drop the run that is there, finished or not, even damaged.")
    ] = False,
    device: options.Device = "cpu",
    chunk: Annotated[
        int | None,
        typer.Option(
            "--chunk",
            metavar="N",
            min=1,
            help="Episodes handed to a worker at a time.",
            show_default="16; 256 on a GPU",
            rich_help_panel=options.MORE,
        ),
    ] = None,
) -> ExitCode:
    """Solve every episode of a cohort, or some, on all cores or on a cluster.

    Every answer is written down when it is found. A run that was stopped - with Ctrl-C, by force, by a full disk - goes
    on where it was when the same command is given again. Limits are per episode. An episode that cannot be solved gets
    a row with the reason. At the end OUT/results.parquet has one row per episode.
    """
    processes, scheduler = worker_choice(workers)
    from ifonly.data.store import load_cohort
    from ifonly.models.checkpoint import load_model
    from ifonly.runs import RunSettings, solve_cohort

    everyone = load_cohort(asked.episodes)
    sources = {"episodes": asked.episodes, "model": asked.model}
    settings = RunSettings(
        episodes=options.chosen_ids(only),
        workers=processes,
        device=device,
        chunk=chunk,
        sources=sources if asked.behaviour is None else {**sources, "behaviour": asked.behaviour},
    )
    query, behaviour = asked.build(everyone.schema), asked.learned_behaviour(everyone.schema)
    learned = load_model(asked.model, schema=everyone.schema)
    with nullcontext() if scheduler is None else cluster_at(scheduler) as client, _bar() as bar:
        try:
            run = solve_cohort(
                everyone,
                learned,
                query,
                out=out,
                behaviour=behaviour,
                settings=settings,
                executor=client,
                force=force,
                progress=bar,
            )
        except KeyboardInterrupt:
            bar.close()
            note("interrupted", f"{bar.so_far} in {out}; give the same command to go on.", style="bold red")
            return ExitCode.INTERRUPTED
    if force and (out / "summary").exists():
        note("note", f"{out / 'summary'} is about the run before; summarize again.", style="bold yellow")
    return _deliver(run, Output())


def worker_choice(text: str | None) -> tuple[int | None, str | None]:
    """How many processes, or which scheduler.

    >>> worker_choice("4"), worker_choice("tcp://head:8786"), worker_choice(None)
    ((4, None), (None, 'tcp://head:8786'), (None, None))
    """
    if text is None:
        return None, None
    if "://" in text:
        require_extra("dask", "distributed", what=f"--workers {text}")
        return None, text
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"--workers {text!r}: give a whole number from 1, or an address: tcp://host:8786.")
    return int(text), None


@contextmanager
def cluster_at(address: str) -> Iterator[Any]:
    """A client of a Dask scheduler that leaves it to us to say that the scheduler is gone."""
    from ifonly.runs.clusters import dask_client

    logger = logging.getLogger("distributed.client")
    logger.addFilter(_is_worth_telling)
    try:
        with dask_client(address) as client:
            yield client
    finally:
        logger.removeFilter(_is_worth_telling)


def _is_worth_telling(record: logging.LogRecord) -> bool:
    """Not the traceback of a client that is closed while it still looks for its scheduler."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, asyncio.CancelledError)


@dataclass
class _Bar:
    """One bar for the whole run: how many, how fast, how long still, and how they ended."""

    progress: Progress
    task: TaskID
    began: tuple[float, int] | None = None
    """When the first report came, and how many were done by then: those are no work of today."""
    latest: Tick | None = None

    def __call__(self, tick: Tick) -> None:
        self.latest = tick
        now = time.monotonic()
        self.began = self.began or (now, tick.done)
        pace = show_pace(tick.done - self.began[1], now - self.began[0], (tick.total or tick.done) - tick.done)
        ended = "  ".join(f"{name} {value:,.0f}" for name, value in tick.figures.items())
        self.progress.update(self.task, completed=tick.done, total=tick.total, pace=pace, ended=ended)

    @property
    def so_far(self) -> str:
        """What is kept when the work is stopped now."""
        done, total = (self.latest.done, self.latest.total) if self.latest else (0, None)
        return f"{done:,} of {total:,} episodes are finished and kept" if total else "nothing was begun"

    def close(self) -> None:
        """Leave the terminal to others."""
        self.progress.stop()


def show_pace(done: int, seconds: float, left: int) -> str:
    """How fast episodes are solved, and how long the rest takes at this pace.

    >>> show_pace(90, 60.0, 900), show_pace(2, 60.0, 118), show_pace(0, 3.0, 9)
    ('1.5/s, 0:10:00 left', '2.0/min, 0:59:00 left', '')
    """
    if not done or seconds <= 0:
        return ""
    rate = done / seconds
    shown = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"
    return f"{shown}, {show_duration(left / rate)} left"


@contextmanager
def _bar() -> Iterator[_Bar]:
    """Draw on a terminal; elsewhere stay silent."""
    console = notes()
    progress = Progress(
        TextColumn("Solving", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=16, table_column=Column(min_width=16)),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[pace]}", markup=False, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[ended]}", style="dim", markup=False, table_column=Column(no_wrap=True, ratio=1)),
        console=console,
        transient=True,
        expand=True,
        disable=not console.is_terminal,
    )
    with progress:
        yield _Bar(progress, progress.add_task("cohort", total=None, pace="", ended=""))


def _deliver(run: Run, output: Output) -> ExitCode:
    """Show what was found as a whole, and where it is."""
    import polars as pl

    from ifonly.result.table import FAILED
    from ifonly.runs.folder import TABLE

    table = run.table()
    failed = table.filter(pl.col("status") == FAILED)
    seconds = table["stats"].struct.field("seconds_bounds") + table["stats"].struct.field("seconds_search")
    document = {
        "run": str(run.folder),
        "results": str(run.folder / TABLE),
        "episodes": table.height,
        "counts": run.counts,
        "median_improvement": table["improvement"].median(),
        "seconds": {"median": seconds.median(), "total": seconds.sum()},
        "failed": dict(zip(failed["episode"], failed["reason"], strict=True)),
        "model_check": None if run.check is None else run.check.verdict,
        "verdicts": dict(table["verdict"].drop_nulls().value_counts(sort=True).iter_rows()),
    }
    output.document(document)
    output.show(_figures(document), f"written: {run.folder / TABLE}", f"next: ifonly summarize {run.folder}")
    if failed.height:
        first = in_options(failed["reason"][0])
        more = f" (and {failed.height - 1:,} more, with their reasons in the table)" if failed.height > 1 else ""
        note("error", f"{first}{more}", style="bold red")
    if run.check is not None and run.check.failed:
        from ifonly.text.evidence import caution_message

        note("caution", str(caution_message(run.check)), style="bold red")
    return _exit_code(run.counts)


def _figures(document: dict[str, Any]) -> Table:
    """The run in a few lines."""
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_row("episodes", f"{document['episodes']:,}")
    for status, count in document["counts"].items():
        table.add_row(f"  {status}", f"{count:,}")
    if document["median_improvement"] is not None:
        table.add_row("median improvement", f"{document['median_improvement']:.1%}")
    if document["seconds"]["median"] is not None:
        table.add_row("median seconds", f"{document['seconds']['median']:.3g}")
        table.add_row("seconds of all searches", f"{document['seconds']['total']:,.0f}")
    if document["model_check"] is not None:
        table.add_row("model check", document["model_check"])
    if document["verdicts"]:
        table.add_row("evidence", "")
    for verdict, count in document["verdicts"].items():
        table.add_row(f"  {verdict}", f"{count:,}")
    return table


def _exit_code(counts: dict[str, int]) -> ExitCode:
    """As for single episodes: failures before limits."""
    from ifonly.result import Status
    from ifonly.result.table import FAILED

    if counts.get(FAILED):
        return ExitCode.BAD_INPUT
    if any(counts.get(status.value) for status in Status if status.at_limit):
        return ExitCode.LIMIT_REACHED
    return ExitCode.DONE
