"""The command that puts one query to a whole cohort: `cohort`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

import ifonly
from ifonly.cli import options
from ifonly.cli.drawing import progress_bars
from ifonly.cli.frame import ExitCode, Output, alarm, name_damaged, note, require_extra
from ifonly.cli.options import flag, option
from ifonly.cli.queries import QueryOptions
from ifonly.progress import Tick
from ifonly.text.catalogue import say


def cohort(
    asked: QueryOptions,
    out: Annotated[Path, option("FOLDER", "The run's folder; a run that was stopped is resumed.", default=False)],
    only: options.Only = None,
    workers: Annotated[
        str | None,
        option(
            "N|ADDRESS",
            "Number of processes on this machine, or the address of a Dask scheduler: tcp://host:8786.",
            default="one per core",
        ),
    ] = None,
    force: Annotated[
        bool, flag("--force", "Start again: discard the run in the folder, finished, unfinished or damaged.")
    ] = False,
    device: options.Device = "cpu",
    chunk: Annotated[
        int | None,
        option("N", "Episodes handed to a worker at a time.", default="16; 256 on a GPU", panel=options.MORE, min=1),
    ] = None,
) -> ExitCode:
    """Solve every episode of a cohort, or some of them, on all cores or on a cluster.

    Every answer is stored as soon as it is found. A run that was stopped, by Ctrl-C, a crash or a full disk, resumes
    when the same command is given again. Limits apply to each episode. An episode that cannot be solved gets a row
    with the reason. The result is OUT/results.parquet, one row per episode.

    Examples:
    ifonly cohort --episodes data/sepsis --model models/sepsis -k 3 --out runs/k3
    ifonly cohort --episodes data/sepsis --model models/sepsis -k 3 --out runs/k3 --workers 4 --seconds 60
    ifonly cohort --episodes data/sepsis --model models/sepsis --out runs/two --only patient-00001 \\
        --only patient-00002 --json
    ifonly cohort --episodes data/sepsis --model models/sepsis --out runs/k3 --workers tcp://head:8786
    ifonly cohort --episodes data/sepsis --model models/sepsis --out runs/k3 --device cuda
    ifonly cohort --episodes data/sepsis --model models/ensemble --out runs/worst --query worst.yaml \\
        --behaviour behaviour/sepsis
    """
    processes, scheduler = worker_choice(workers)

    everyone = ifonly.load(asked.episodes)
    sources = {"episodes": asked.episodes, "model": asked.model, "behaviour": asked.behaviour}
    settings = ifonly.RunSettings(
        episodes=options.chosen_ids(only),
        workers=processes,
        device=device,
        chunk=chunk,
        sources={name: place for name, place in sources.items() if place is not None},
    )
    query, behaviour = asked.build(everyone.schema), options.learned_behaviour(asked.behaviour, everyone.schema)
    learned = ifonly.load_model(asked.model, schema=everyone.schema)
    reports: list[Tick] = []
    try:
        with nullcontext() if scheduler is None else cluster_at(scheduler) as client, progress_bars() as bars:

            def watch(tick: Tick) -> None:
                reports[:] = [tick]
                bars(tick)

            run = ifonly.solve_cohort(
                everyone,
                learned,
                query,
                out=out,
                behaviour=behaviour,
                settings=settings,
                executor=client,
                force=force,
                progress=watch,
            )
    except KeyboardInterrupt:
        done = [say("run.kept", done=tick.done, total=tick.total, out=out) for tick in reports]
        alarm("interrupted", (done or [say("run.not begun", out=out)])[0])
        return ExitCode.INTERRUPTED
    if force and (out / "summary").exists():
        note("note", say("run.old summary", summary=out / "summary"))
    return _deliver(run)


def worker_choice(text: str | None) -> tuple[int | None, str | None]:
    """The number of processes, or the address of a scheduler.

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
    """A client of a Dask scheduler that does not log by itself that the scheduler is gone: our message says so."""
    from ifonly.runs.clusters import dask_client

    logger = logging.getLogger("distributed.client")
    logger.addFilter(_is_worth_telling)
    try:
        with dask_client(address) as client:
            yield client
    finally:
        logger.removeFilter(_is_worth_telling)


def _is_worth_telling(record: logging.LogRecord) -> bool:
    """False for the traceback of a client that is closed while it still looks for its scheduler."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, asyncio.CancelledError)


def _deliver(run: ifonly.Run) -> ExitCode:
    """Show a summary of the run, and where its results are."""
    from ifonly.result.table import believed, reasons_of
    from ifonly.runs.folder import ROWS, TABLE
    from ifonly.text.evidence import caution_message
    from ifonly.text.numbers import counted

    table = run.table()
    failed, kept = reasons_of(table), believed(table)
    abstained = table.height - len(failed) - kept.height
    seconds = table["stats"].struct.field("seconds_bounds") + table["stats"].struct.field("seconds_search")
    document = {
        "run": str(run.folder),
        "results": str(run.folder / TABLE),
        "episodes": table.height,
        "counts": run.counts,
        "median_improvement": kept["improvement"].median(),
        "abstained": abstained,
        "seconds": {"median": seconds.median(), "total": seconds.sum()},
        "failed": failed,
        "model_check": None if run.check is None else run.check.verdict,
        "verdicts": dict(table["verdict"].drop_nulls().value_counts(sort=True).iter_rows()),
    }
    left_out = [say("run.abstained", answers=counted(abstained, "answer"), count=abstained)] if abstained else []
    closing = *left_out, say("written", place=run.folder / TABLE), say("next.summarize", run=run.folder)
    Output().tell(document, _figures(document), *closing)
    if failed:
        first = next(iter(failed.values()))
        alarm("error", first if len(failed) == 1 else say("run.more failures", first=first, count=len(failed) - 1))
    name_damaged(run.folder / ROWS, run.damaged_lines)
    if run.check is not None and run.check.failed:
        alarm("caution", caution_message(run.check))
    return _exit_code(run.counts)


def _figures(document: dict[str, Any]) -> Table:
    """The summary as a table."""
    table = Table(box=box.SIMPLE, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_row(say("run.episodes"), f"{document['episodes']:,}")
    for status, count in document["counts"].items():
        table.add_row(f"  {status}", f"{count:,}")
    if document["median_improvement"] is not None:
        table.add_row(say("run.median improvement"), f"{document['median_improvement']:.1%}")
    if document["seconds"]["median"] is not None:
        table.add_row(say("run.median seconds"), f"{document['seconds']['median']:.3g}")
        table.add_row(say("run.all seconds"), f"{document['seconds']['total']:,.0f}")
    if document["model_check"] is not None:
        table.add_row(say("run.model check"), document["model_check"])
    if document["verdicts"]:
        table.add_row(say("run.evidence"), "")
    for verdict, count in document["verdicts"].items():
        table.add_row(f"  {verdict}", f"{count:,}")
    return table


def _exit_code(counts: dict[str, int]) -> ExitCode:
    """As for `solve`: failures count before limits."""
    from ifonly.result.table import FAILED

    if counts.get(FAILED):
        return ExitCode.BAD_INPUT
    if any(counts.get(status.value) for status in ifonly.Status if status.at_limit):
        return ExitCode.LIMIT_REACHED
    return ExitCode.DONE
