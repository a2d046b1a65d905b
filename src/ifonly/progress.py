"""Progress of long work: one callback, which the caller may draw; and a clock, by which the caller may end it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Tick:
    """One report of progress.

    `done` of `total` units (`total` is None while unknown) in a named stage, with a few
    figures to show beside the bar (loss, bound, gap, ...).
    """

    stage: str
    done: int
    total: int | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


Progress = Callable[[Tick], None]


def silent(_: Tick) -> None:
    """The default: no report."""


def part_of(
    progress: Progress, number: int, count: int, *, stage: str | None = None, size: int | None = None
) -> Progress:
    """A callback that reports one part of `count`, which come one after the other, as a part of all.

    Parts have the `stage` of their own reports and as many units as these say, unless told.
    """

    def report(tick: Tick) -> None:
        units = size or tick.total or 0
        progress(Tick(stage or tick.stage, number * units + tick.done, count * units or None, tick.figures))

    return report


_CLOCK: ContextVar[Callable[[], None]] = ContextVar("clock", default=lambda: None)


@contextmanager
def clock(check: Callable[[], None]) -> Iterator[None]:
    """Have `check` called several times a second by whatever runs inside; it may raise to end the work.

    Replays, builders of bounds and solvers are nested too deep to hand it down to each of them.
    """
    token = _CLOCK.set(check)
    try:
        yield
    finally:
        _CLOCK.reset(token)


def look_at_clock() -> None:
    """Say that work goes on; called by loops whose rounds may take more than a tenth of a second together."""
    _CLOCK.get()()
