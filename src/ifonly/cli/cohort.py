"""The command that puts one question to a whole cohort: `cohort`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Column, Table

from ifonly.cli import asking, options
from ifonly.cli.frame import ExitCode, Output, note, notes
from ifonly.cli.questions import RewardChoice, RuleChoice, changes_limit
from ifonly.cli.solvers import SolverChoice, SolverName
from ifonly.cli.trust import TrustChoice
from ifonly.errors import InputError
from ifonly.progress import Tick

if TYPE_CHECKING:
    import polars as pl

    from ifonly.runs import Run

WORK_PANEL = "Who does the work"

COHORT_EXAMPLES = (
    "ifonly cohort --episodes data/sepsis --model models/sepsis -k 3 --out runs/k3",
    "ifonly cohort --episodes data/sepsis --model models/sepsis -k 3 --out runs/k3 --workers 4 --seconds 60",
    "ifonly cohort --episodes data/sepsis --model models/sepsis --out runs/two --only patient-00001 "
    "--only patient-00002 --solver greedy --json",
    "ifonly cohort --episodes data/sepsis --model models/sepsis --out runs/k3 --scheduler tcp://head:8786",
    "ifonly cohort --episodes data/sepsis --model models/sepsis --out runs/k3 --device cuda",
    "ifonly cohort --episodes data/sepsis --model models/ensemble --out runs/worst --objective worst "
    "--behaviour behaviour/sepsis --sensitivity",
)


def cohort(
    episodes: options.Episodes,
    model: options.ModelFolder,
    out: Annotated[
        Path,
        typer.Option(
            "--out", metavar="FOLDER", help="The run: what is there is gone on with, not replaced.", show_default=False
        ),
    ],
    max_changes: asking.MaxChanges = "3",
    minimize: asking.Minimize = None,
    maximize: asking.Maximize = None,
    weight: asking.Weights = None,
    cost: asking.Costs = None,
    change_cost: asking.ChangeCost = 0.0,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="ID", help="Solve this episode, not all of them; may be repeated."),
    ] = None,
    only_in: Annotated[
        Path | None,
        typer.Option("--only-in", metavar="FILE", help="Solve the episodes whose ids this file has, one a line."),
    ] = None,
    fix_last_action: asking.FixLastAction = False,
    lock: asking.Lock = None,
    require: asking.Require = None,
    forbid: asking.Forbid = None,
    max_shift: asking.MaxShift = None,
    max_jump: asking.MaxJump = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            help="Processes on this machine.",
            show_default="one per core",
            rich_help_panel=WORK_PANEL,
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            metavar="ADDRESS",
            help="A Dask scheduler, whose workers do the work: tcp://host:8786.",
            rich_help_panel=WORK_PANEL,
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            metavar="NAME",
            help="cpu, or cuda (cuda:1, ...) to solve many episodes at once on a GPU.",
            rich_help_panel=WORK_PANEL,
        ),
    ] = "cpu",
    chunk: Annotated[
        int | None,
        typer.Option(
            "--chunk",
            metavar="N",
            min=1,
            help="Episodes handed to a worker at a time.",
            show_default="8; 256 on a GPU",
            rich_help_panel=WORK_PANEL,
        ),
    ] = None,
    objective: asking.Goal = None,
    each_refit: asking.EachRefit = False,
    behaviour: asking.Behaviour = None,
    min_support: asking.MinSupport = None,
    sensitivity: asking.Sensitive = False,
    allow_failed_model: asking.AllowFailedModel = False,
    solver: asking.SolverOption = SolverName.AUTO,
    samples: asking.Samples = None,
    anchors: asking.Anchors = None,
    anchor_strategy: asking.AnchorPlaces = None,
    shared_anchors: asking.SharedAnchors = False,
    seed: asking.SolverSeed = 0,
    seconds: asking.Seconds = None,
    nodes: asking.Nodes = None,
    gap: asking.Gap = 0.0,
    memory: asking.Memory = None,
    force: Annotated[
        bool, typer.Option("--force", help="Start again: drop the run that is there, finished or not, even damaged.")
    ] = False,
    json: options.Json = False,
) -> ExitCode:
    """Solve every episode of a cohort, or some, on all cores or on a cluster.

    Every answer is written down when it is found. A run that was stopped - with Ctrl-C, by force, by a full disk - goes
    on where it was when the same command is given again. Limits are per episode. An episode that cannot be solved gets
    a row with the reason. At the end OUT/results.parquet has one row per episode.
    """
    choice = SolverChoice(
        name=solver,
        samples=samples,
        anchors=anchors,
        strategy=anchor_strategy,
        shared=shared_anchors,
        seed=seed,
        memory=memory,
    )
    better = RewardChoice(minimize, maximize, weight or (), cost or ())
    rules = RuleChoice(lock or (), require or (), forbid or (), max_shift or (), max_jump or (), fix_last_action)
    trust = TrustChoice(objective, each_refit, behaviour, min_support, sensitivity, allow_failed_model)
    budget = changes_limit(max_changes)
    if scheduler is not None and workers is not None:
        raise typer.BadParameter("--workers and --scheduler exclude each other.")
    from ifonly.data.store import load_cohort
    from ifonly.models.checkpoint import load_model
    from ifonly.query import Limits
    from ifonly.runs import RunSettings, solve_cohort

    everyone = load_cohort(episodes)
    settings = RunSettings(
        solver=choice.build(everyone),
        limits=Limits(seconds=seconds, nodes=nodes, gap=gap, memory=memory),
        constraints=rules.build(everyone.schema),
        change_cost=change_cost,
        objective=trust.goal,
        behaviour=trust.examination(everyone.schema).behaviour,
        min_support=min_support,
        each_refit=each_refit,
        sensitivity=sensitivity,
        allow_failed_model=allow_failed_model,
        episodes=_chosen(only, only_in),
        workers=workers,
        device=device,
        chunk=chunk,
        sources={"episodes": episodes, "model": model, **({} if behaviour is None else {"behaviour": behaviour})},
    )
    learned = load_model(model, schema=everyone.schema)
    with nullcontext() if scheduler is None else cluster_at(scheduler) as client, _bar() as bar:
        try:
            run = solve_cohort(
                everyone,
                learned,
                better.build(everyone.schema),
                max_changes=budget,
                out=out,
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
    return _deliver(run, Output(json))


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


def _chosen(ids: Sequence[str] | None, file: Path | None) -> list[str] | None:
    """The episodes to solve, from the command line and from a file; None for all."""
    if ids is None and file is None:
        return None
    listed = list(ids or ())
    if file is not None:
        try:
            listed += [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--only-in {file}: cannot be read ({error}).") from None
    if not listed:
        raise InputError(f"--only-in {file}: names no episode; give one id a line.")
    return list(dict.fromkeys(listed))


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
    minutes, rest = divmod(round(left / rate), 60)
    return f"{shown}, {minutes // 60}:{minutes % 60:02}:{rest:02} left"


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

    from ifonly.runs.folder import TABLE
    from ifonly.runs.rows import FAILED

    table = run.table()
    failed = table.filter(pl.col("status") == FAILED)
    document = {
        "run": str(run.folder),
        "results": str(run.folder / TABLE),
        "episodes": table.height,
        "counts": run.counts,
        "median_improvement": _median_improvement(table),
        "seconds": {"median": table["seconds"].median(), "total": table["seconds"].sum()},
        "failed": dict(zip(failed["episode"], failed["reason"], strict=True)),
        "model_check": run.manifest["model_check"],
        "with_warnings": _with_warnings(table),
    }
    output.document(document)
    output.show(_figures(document), f"written: {run.folder / TABLE}", f"next: ifonly summarize {run.folder}")
    if failed.height:
        first = failed["reason"][0]
        more = f" (and {failed.height - 1:,} more, with their reasons in the table)" if failed.height > 1 else ""
        note("error", f"{first}{more}", style="bold red")
    check = document["model_check"]
    if check is not None and check["used_although_failed"]:
        note(
            "warning", f"the model failed its check and was asked all the same ({check['summary']}).", style="bold red"
        )
    return _exit_code(run.counts)


def _median_improvement(table: pl.DataFrame) -> float | None:
    from ifonly.report.improvements import improvements

    median = improvements(table)["improvement"].median()
    return float(median) if isinstance(median, float) else None


def _with_warnings(table: pl.DataFrame) -> int | None:
    """How many answers have something that speaks against trusting them; None where none was examined."""
    from ifonly.report.improvements import improvements

    known = improvements(table)["warnings"].drop_nulls()
    return int((known.list.len() > 0).sum()) if len(known) else None


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
        table.add_row("model check", document["model_check"]["verdict"])
    if document["with_warnings"] is not None:
        table.add_row("answers with warnings", f"{document['with_warnings']:,}")
    return table


def _exit_code(counts: dict[str, int]) -> ExitCode:
    """As for single episodes: failures before limits."""
    from ifonly.result import Status
    from ifonly.runs.rows import FAILED

    if counts.get(FAILED):
        return ExitCode.BAD_INPUT
    if any(counts.get(status.value) for status in Status if status.at_limit):
        return ExitCode.LIMIT_REACHED
    return ExitCode.DONE
