"""The tables of the study of other worlds, and the page that shows them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
import polars as pl

from ifonly.intervals import share_interval
from paper.catalogue import WIDTH, fill_between, markdown_table
from paper.worlds import WORLDS
from paper.worlds_study import Answer, WorldCell, is_proven

BEGIN, END = "<!-- tables: python -m paper worlds --page -->", "<!-- end of tables -->"
"""Between these lines of a page the command writes its tables."""


def summary(cells: Sequence[WorldCell]) -> pl.DataFrame:
    """One row per cell, as text: what is true of its answers."""
    return pl.DataFrame([_truth(cell) for cell in cells])


def background(cells: Sequence[WorldCell]) -> pl.DataFrame:
    """One row per cell, as text: what is known of its model without the truth, and what searching took."""
    return pl.DataFrame([_model(cell) for cell in cells])


def _named(cell: WorldCell) -> dict[str, str]:
    settings = cell.settings
    scaling = "" if settings.scaling == "linear" else f", {settings.scaling}"
    seed = f", seed {settings.seed}" if settings.seed else ""
    return {"variant": settings.variant, "recipe": f"{settings.recipe}{scaling}{seed}"}


def _truth(cell: WorldCell) -> dict[str, str]:
    given = cell.given
    promised, true = _mean(given, "promised"), _mean(given, "true")
    return {
        **_named(cell),
        "truly help": _share(cell.helped, len(given)),
        "random changes help": f"{cell.random_helped / cell.random_sequences:.0%}",
        "promised": _number(promised),
        "true": _number(true),
        "true / promised": "-" if promised is None or true is None else f"{true / promised:.2f}",
        "worst": _number(min((answer.true for answer in given), default=None)),
        "attainable": _number(_mean(cell.answers, "attainable")),
        "impossible states": _percent(sum(one.impossible for one in given), sum(one.predicted for one in given)),
    }


def _model(cell: WorldCell) -> dict[str, str]:
    seconds = [answer.seconds for answer in cell.answers]
    return {
        **_named(cell),
        "check": cell.verdict,
        "log-likelihood": "-" if cell.log_likelihood is None else f"{cell.log_likelihood:.2f}",
        "replay error": "-" if cell.replay_error is None else f"{cell.replay_error:.2f}",
        "state error": _number(_mean(cell.given, "state_error")),
        "promised within ranges": _number(_mean(cell.given, "clipped")),
        "proven": _percent(sum(map(is_proven, cell.answers)), len(cell.answers)),
        "median seconds": f"{np.median(seconds):.2f}",
    }


def _mean(answers: Sequence[Answer], name: str) -> float | None:
    known = [value for answer in answers if (value := getattr(answer, name)) is not None]
    return float(np.mean(known)) if known else None


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _percent(hits: int, count: int) -> str:
    return f"{hits / count:.0%}" if count else "-"


def _share(hits: int, count: int) -> str:
    """How many, and the share with its 95 % interval."""
    if not count:
        return "-"
    low, high = share_interval(hits, count)
    return f"{hits} of {count}, {hits / count:.0%} ({100 * low:.0f} to {100 * high:.0f})"


def tables(cells: Sequence[WorldCell]) -> str:
    """All worlds as Markdown: what was asked, and two tables for each world."""
    parts = []
    for name, group in groupby(cells, key=lambda cell: cell.settings.world):
        world, members = WORLDS[name], list(group)
        parts += [f"### {world.title}", "", _asked(members), "", markdown_table(summary(members)), ""]
        parts += [markdown_table(background(members)), ""]
    return "\n".join(parts)


def _asked(cells: Sequence[WorldCell]) -> str:
    """What the cells of a world have in common, in words."""
    words = []
    for what in ("episodes", "asked", "max_changes"):
        values = sorted({getattr(cell.settings, what) for cell in cells})
        words.append(" or ".join(f"{value:,}" for value in values))
    hidden = "; ".join(f"*{variant.name}*: {variant.words}" for variant in WORLDS[cells[0].settings.world].variants)
    text = f"{words[0]} episodes to learn from, {words[1]} others asked about, k = {words[2]}. Variants: {hidden}."
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def fill_page(page: Path, cells: Sequence[WorldCell]) -> None:
    """Write the tables into a page, between its two marks; the rest of it stays."""
    fill_between(page, BEGIN, END, tables(cells))
