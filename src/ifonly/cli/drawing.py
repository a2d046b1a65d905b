"""Progress bars on stderr, fed by the callback of `ifonly.progress`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column

import ifonly
from ifonly.cli.frame import notes
from ifonly.progress import Progress as Callback
from ifonly.progress import Tick
from ifonly.text.catalogue import catalogue, say

if TYPE_CHECKING:
    from ifonly.study import StudyTick


def stage_words(stage: str) -> str:
    """How people call a stage that the library reports; one that has no words is shown as it is."""
    return say(f"progress.{stage}") if f"progress.{stage}" in catalogue() else stage


class Watching(Protocol):
    """Whatever shows how work about several subjects goes on."""

    def about(self, subject: str, stage: str = "search") -> Callback:
        """A callback for the work about one subject, such as an episode, which begins with this stage."""


class Lines:
    """A search told line by line."""

    def about(self, subject: str, stage: str = "search") -> Callback:
        """A callback that writes a line per report of a search, below the subject's name."""

        self._write(f"{stage_words(stage)} {subject}")
        return ifonly.search_log(self._write)

    def _write(self, line: str) -> None:
        notes().print(line, markup=False, soft_wrap=True)


class Bars:
    """One bar per stage, with its pace where how much there is to do is known; one that begins again starts anew."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stages: dict[str, _Stage] = {}

    def __call__(self, tick: Tick) -> None:
        """Draw a tick."""
        self._draw(tick, stage_words(tick.stage))

    def about(self, subject: str, stage: str = "search") -> Callback:
        """A callback whose bars also say what the work is about, such as an episode; they name stages as they come."""
        return lambda tick: self._draw(tick, f"{stage_words(tick.stage)} {subject}")

    def say(self, message: str) -> None:
        """A line above the bars."""
        self._progress.console.print(message, markup=False)

    def _draw(self, tick: Tick, description: str) -> None:
        if tick.stage not in self._stages:
            task = self._progress.add_task(description, total=tick.total, pace="", figures="")
            self._stages[tick.stage] = _Stage(task, tick)
        stage = self._stages[tick.stage]
        if tick.done < stage.latest.done:
            self._progress.reset(stage.task)
            stage = self._stages[tick.stage] = _Stage(stage.task, tick)
        stage.latest = tick
        self._progress.update(
            stage.task,
            description=description,
            completed=tick.done,
            total=tick.total,
            pace=stage.pace(),
            figures=show_figures(tick.figures),
        )


class _Stage:
    """What is known of a stage: what was done when its first report came is no work of today."""

    def __init__(self, task: TaskID, first: Tick) -> None:
        self.task, self.first, self.latest = task, first, first
        self._began = time.monotonic()

    def pace(self) -> str:
        total, done = self.latest.total, self.latest.done
        if total is None:
            return ""
        return show_pace(done - self.first.done, time.monotonic() - self._began, total - done)


def show_pace(done: int, seconds: float, left: int) -> str:
    """How fast the work goes, and how long the rest takes at this pace.

    >>> show_pace(90, 60.0, 900), show_pace(2, 60.0, 118), show_pace(0, 3.0, 9)
    ('1.5/s, 0:10:00 left', '2.0/min, 0:59:00 left', '')
    """
    if not done or seconds <= 0:
        return ""
    rate = done / seconds
    shown = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"
    return f"{shown}, {show_duration(left / rate)} left"


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


def show_duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> show_duration(3723.4)
    '1:02:03'
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _drawn(console: Console | None, *middle: ProgressColumn) -> Progress:
    """Bars on a terminal, and elsewhere (a pipe, a log file) nothing; on a narrow one the figures give way."""
    place = console or notes()
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, min_width=20)),
        BarColumn(bar_width=16, table_column=Column(min_width=16)),
        *middle,
        TextColumn("{task.fields[pace]}", markup=False, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[figures]}", style="dim", markup=False, table_column=Column(no_wrap=True, ratio=1)),
        console=place,
        transient=True,
        expand=True,
        disable=not place.is_terminal,
    )


@contextmanager
def progress_bars(console: Console | None = None) -> Iterator[Bars]:
    """A bar for each stage of some work."""
    narrow = Column(no_wrap=True, min_width=7)
    with _drawn(console, MofNCompleteColumn(table_column=narrow), TimeElapsedColumn(table_column=narrow)) as progress:
        yield Bars(progress)


@contextmanager
def progress_lines() -> Iterator[Lines]:
    """Write lines on stderr, be it a terminal or not."""
    yield Lines()


@contextmanager
def study_progress(console: Console | None = None) -> Iterator[Callable[[StudyTick], None]]:
    """One view of a study: the stage at work, how far it is, and how long the whole still takes."""
    with _drawn(console, TextColumn("{task.percentage:>3.0f} %", table_column=Column(no_wrap=True))) as progress:
        whole = progress.add_task("Study", total=1.0, pace="", figures="")
        part = progress.add_task("", total=None, pace="", figures="")

        def watch(now: StudyTick) -> None:
            left = "" if now.seconds_left is None else f"{show_duration(now.seconds_left)} left"
            progress.update(whole, description=f"Stage {now.number} of {now.of}", completed=now.share, pace=left)
            tick = now.tick or Tick(now.stage, 0)
            progress.update(
                part,
                description=f"{now.stage}: {stage_words(tick.stage)}" if now.tick else now.stage,
                completed=tick.done,
                total=tick.total,
                figures=show_figures(tick.figures),
            )

        yield watch
