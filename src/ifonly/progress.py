"""Progress of long work: one callback, which the caller may draw."""

from collections.abc import Callable, Mapping
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
