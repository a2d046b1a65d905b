"""Progress bars on stderr, fed by the callback of `ifonly.progress`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from ifonly.cli.frame import notes
from ifonly.progress import Progress as Callback
from ifonly.progress import Tick

if TYPE_CHECKING:
    from ifonly.study import StudyTick

STAGES = {
    "simulate": "Simulating",
    "fit": "Fitting",
    "cross-validation": "Cross-validating",
    "check": "Checking",
    "behaviour": "Learning what clinicians do",
    "distances": "Measuring distances",
    "bounds": "Computing bounds",
    "search": "Searching",
    "refits": "Asking refits about",
    "cohort": "Solving episodes",
    "cases": "Finding alternatives",
}
"""How people call the stages that the library reports; others are shown as they are."""


class Watching(Protocol):
    """Whatever shows how work about several subjects goes on."""

    def about(self, subject: str, stage: str = "search") -> Callback:
        """A callback for the work about one subject, such as an episode, which begins with this stage."""


class Lines:
    """A search told line by line."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def about(self, subject: str, stage: str = "search") -> Callback:
        """A callback that writes a line per report of a search, below the subject's name."""
        from ifonly.search.log import search_log

        self._write(f"{STAGES[stage]} {subject}")
        return search_log(self._write)

    def _write(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)


class Bars:
    """One bar per stage; a stage that begins again begins its bar again."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}
        self._done: dict[str, int] = {}

    def __call__(self, tick: Tick) -> None:
        """Draw a tick."""
        self._draw(tick, STAGES.get(tick.stage, tick.stage))

    def about(self, subject: str, stage: str = "search") -> Callback:
        """A callback whose bars also say what the work is about, such as an episode; they name stages as they come."""

        def draw(tick: Tick) -> None:
            self._draw(tick, f"{STAGES.get(tick.stage, tick.stage)} {subject}")

        return draw

    def say(self, message: str) -> None:
        """A line above the bars."""
        self._progress.console.print(message, markup=False)

    def _draw(self, tick: Tick, description: str) -> None:
        if tick.stage not in self._tasks:
            self._tasks[tick.stage] = self._progress.add_task(description, total=tick.total, figures="")
        task = self._tasks[tick.stage]
        if tick.done < self._done.get(tick.stage, 0):
            self._progress.reset(task)
        self._done[tick.stage] = tick.done
        self._progress.update(
            task, description=description, completed=tick.done, total=tick.total, figures=show_figures(tick.figures)
        )


def show_figures(figures: Mapping[str, float]) -> str:
    """A few figures in a line, the gap before all others; those that are not known yet are left out.

    >>> show_figures({"bound": float("inf"), "generated": 41032, "gap": 1.23456})
    'gap 1.235  generated 41,032'
    """
    known = [(name, value) for name, value in figures.items() if math.isfinite(value)]
    known.sort(key=lambda item: item[0] != "gap")
    return "  ".join(f"{name} {_number(value)}" for name, value in known)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:.4g}"


@contextmanager
def progress_bars(console: Console | None = None) -> Iterator[Bars]:
    """Draw on a terminal; elsewhere (a pipe, a log file) stay silent."""
    console = console or notes()
    # On a narrow terminal the figures give way, not the bar.
    progress = Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, min_width=20)),
        BarColumn(bar_width=16, table_column=Column(min_width=16)),
        MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=7)),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=7)),
        TextColumn("{task.fields[figures]}", style="dim", markup=False, table_column=Column(no_wrap=True, ratio=1)),
        console=console,
        transient=True,
        expand=True,
        disable=not console.is_terminal,
    )
    with progress:
        yield Bars(progress)


@contextmanager
def progress_lines() -> Iterator[Lines]:
    """Write lines on stderr, be it a terminal or not."""
    yield Lines(notes())


@contextmanager
def study_progress(console: Console | None = None) -> Iterator[Callable[[StudyTick], None]]:
    """One view of a study: the stage at work, how far it is, and how long the whole still takes."""
    console = console or notes()
    progress = Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, min_width=24)),
        BarColumn(bar_width=24, table_column=Column(min_width=16)),
        TextColumn("{task.percentage:>3.0f} %", table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[left]}", markup=False, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[figures]}", style="dim", markup=False, table_column=Column(no_wrap=True, ratio=1)),
        console=console,
        transient=True,
        expand=True,
        disable=not console.is_terminal,
    )
    with progress:
        whole = progress.add_task("Study", total=1.0, left="", figures="")
        part = progress.add_task("", total=None, left="", figures="")

        def watch(now: StudyTick) -> None:
            left = "" if now.seconds_left is None else f"{show_duration(now.seconds_left)} left"
            progress.update(whole, description=f"Stage {now.number} of {now.of}", completed=now.share, left=left)
            tick = now.tick or Tick(now.stage, 0)
            progress.update(
                part,
                description=f"{now.stage}: {STAGES.get(tick.stage, tick.stage)}" if now.tick else now.stage,
                completed=tick.done,
                total=tick.total,
                figures=show_figures(tick.figures),
            )

        yield watch


def show_duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> show_duration(3723.4)
    '1:02:03'
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
