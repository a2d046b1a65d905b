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


LINES_APART = 300.0
"""Seconds between lines about the same stage of a study, in a log."""


def stage_words(stage: str) -> str:
    """The words for a stage that the library reports; a stage without any is shown as it is."""
    return say(f"progress.{stage}") if f"progress.{stage}" in catalogue() else stage


class Watching(Protocol):
    """Something that shows the progress of work on several subjects."""

    def about(self, subject: str, stage: str = "search") -> Callback:
        """A callback for the work on one subject, such as an episode, that begins with this stage."""


class Lines:
    """Progress of a search as lines on stderr, on a terminal or not."""

    def about(self, subject: str, stage: str = "search") -> Callback:
        """A callback that writes one line per report of a search, below the subject's name."""
        self._write(f"{stage_words(stage)} {subject}")
        return ifonly.search_log(self._write)

    def _write(self, line: str) -> None:
        notes().print(line, markup=False, soft_wrap=True)


class Bars:
    """One bar per stage, with its pace if the total is known; the bar of a stage that starts over is reset."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stages: dict[str, _Stage] = {}

    def __call__(self, tick: Tick) -> None:
        """Update the bar of a tick's stage."""
        self._draw(tick, stage_words(tick.stage))

    def about(self, subject: str, stage: str = "search") -> Callback:
        """A callback whose bars also name the subject; `stage` is not needed, since every tick names its own."""
        return lambda tick: self._draw(tick, f"{stage_words(tick.stage)} {subject}")

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
    """The state of a stage; what was done before its first report does not count towards its pace."""

    def __init__(self, task: TaskID, first: Tick) -> None:
        self.task, self.first, self.latest = task, first, first
        self._began = time.monotonic()

    def pace(self) -> str:
        total, done = self.latest.total, self.latest.done
        if total is None:
            return ""
        return show_pace(done - self.first.done, time.monotonic() - self._began, total - done)


def show_pace(done: int, seconds: float, left: int) -> str:
    """The rate of the work, and the time left at this rate.

    >>> show_pace(90, 60.0, 900), show_pace(2, 60.0, 118), show_pace(0, 3.0, 9)
    ('1.5/s, 0:10:00 left', '2.0/min, 0:59:00 left', '')
    """
    if not done or seconds <= 0:
        return ""
    rate = done / seconds
    shown = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"
    return f"{shown}, {show_duration(left / rate)} left"


def show_figures(figures: Mapping[str, float]) -> str:
    """Figures in one line, the gap first; those that are not known yet are left out.

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
    """Bars on a terminal and nothing elsewhere (a pipe, a log file); if space is short the figures are cut."""
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


class _StageLines:
    """How far a study is, as lines of a log."""

    def __init__(self, place: Console) -> None:
        self._place, self._stage, self._written = place, "", 0.0

    def __call__(self, now: StudyTick) -> None:
        if now.stage == self._stage and time.monotonic() - self._written < LINES_APART:
            return
        begins, self._stage, self._written = now.stage != self._stage, now.stage, time.monotonic()
        done = "" if begins or now.tick is None or not now.tick.total else f", {now.tick.done} of {now.tick.total}"
        left = "" if now.seconds_left is None else f", {show_duration(now.seconds_left)} left"
        line = f"{now.stage}: stage {now.number} of {now.of}{done}{left}"
        self._place.print(line, markup=False, soft_wrap=True)


@contextmanager
def study_progress(console: Console | None = None) -> Iterator[Callable[[StudyTick], None]]:
    """One view of a study: the current stage, its progress, and the time left for the whole; elsewhere than on a
    terminal a line for each stage that begins, and from time to time, since a study may take hours.
    """
    place = console or notes()
    if not place.is_terminal:
        yield _StageLines(place)
        return
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
