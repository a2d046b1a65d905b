"""A search told line by line, as solvers of integer programs print it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ifonly.progress import Progress, Tick

HEADER = f"{'seconds':>9} {'nodes':>11} {'open':>11} {'incumbent':>14} {'bound':>14} {'gap':>11}"
LINES_PER_HEADER = 20


def search_log(write: Callable[[str], None]) -> Progress:
    """A progress callback that hands every report of a search to `write` as one line, under a repeated header.

    The last line says where the search ended. Seconds count from now; other stages of the work are not told.

    >>> lines = []
    >>> log = search_log(lines.append)
    >>> log(Tick("search", 1200, None, {"incumbent": 3.5, "bound": math.inf, "gap": math.inf, "open": 40}))
    >>> lines[1].split()[1:]
    ['1,200', '40', '3.5', '-', '-']
    >>> log(Tick("search", 1, 1, {"incumbent": 3.5, "bound": 3.5, "gap": 0.0}))
    >>> lines[-1].split(" s: ")
    ['ended after 1 node, 0.00', 'incumbent 3.5, bound 3.5, gap 0']
    """
    started = time.perf_counter()
    count = 0

    def log(tick: Tick) -> None:
        nonlocal count
        if tick.stage != "search":
            return
        if tick.done == tick.total:
            write(_closing_line(tick, time.perf_counter() - started))
            return
        if count % LINES_PER_HEADER == 0:
            write(HEADER)
        count += 1
        waiting = f"{int(tick.figures['open']):,}" if "open" in tick.figures else "-"
        figures = " ".join(
            f"{_number(tick.figures.get(name, math.inf)):>{width}}"
            for name, width in (("incumbent", 14), ("bound", 14), ("gap", 11))
        )
        write(f"{time.perf_counter() - started:>9.2f} {tick.done:>11,} {waiting:>11} {figures}")

    return log


def _closing_line(tick: Tick, seconds: float) -> str:
    figures = ", ".join(f"{name} {_number(tick.figures[name])}" for name in ("incumbent", "bound", "gap"))
    return f"ended after {tick.done:,} node{'' if tick.done == 1 else 's'}, {seconds:.2f} s: {figures}"


def _number(value: float) -> str:
    return f"{value:.8g}" if math.isfinite(value) else "-"
