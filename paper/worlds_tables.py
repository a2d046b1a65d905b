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
from paper.worlds import PLAIN, WORLDS
from paper.worlds_study import Answer, WorldCell, is_proven

BEGIN, END = "<!-- tables: python -m paper worlds --page -->", "<!-- end of tables -->"
"""Between these lines of a page the command writes its tables."""


def overview(cells: Sequence[WorldCell]) -> pl.DataFrame:
    """One row per recipe, cells with everything recorded and those that hide something apart, as text."""
    groups: dict[tuple[str, bool], list[WorldCell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.settings.variant != PLAIN):
        groups.setdefault((_named(cell)["recipe"], cell.settings.variant == PLAIN), []).append(cell)
    return pl.DataFrame([_together(members, recipe, plain) for (recipe, plain), members in groups.items()])


def _together(cells: Sequence[WorldCell], recipe: str, plain: bool) -> dict[str, str]:
    given, verdicts = [cell for cell in cells if cell.given], [cell.verdict for cell in cells]
    return {
        "recorded": "everything" if plain else "something hidden",
        "recipe": recipe,
        "cells": str(len(cells)),
        "truly help": _share(sum(cell.helped for cell in given), sum(len(cell.given) for cell in given)),
        "by cell": _range([cell.helped / len(cell.given) for cell in given], "{:.0%}"),
        "true / promised": _range([ratio for cell in given if (ratio := _ratio(cell)) is not None], "{:.2f}"),
        "impossible states": _range([hits / count for hits, count in map(_impossible, given) if count], "{:.1%}"),
        "check: pass, warn, fail": ", ".join(str(verdicts.count(one)) for one in ("pass", "warn", "fail")),
    }


def _ratio(cell: WorldCell) -> float | None:
    """The mean true gain over the mean promise."""
    promised, true = _mean(cell.given, "promised"), _mean(cell.given, "true")
    return None if promised is None or true is None else true / promised


def _impossible(cell: WorldCell) -> tuple[int, int]:
    """How many predicted states are impossible, and how many there are."""
    return sum(one.impossible for one in cell.given), sum(one.predicted for one in cell.given)


def _range(values: Sequence[float], form: str) -> str:
    """The smallest and the largest."""
    ends = [form.format(end) for end in (min(values), max(values))] if values else []
    return " to ".join(dict.fromkeys(ends)) or "-"


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
    given, ratio = cell.given, _ratio(cell)
    return {
        **_named(cell),
        "truly help": _share(cell.helped, len(given)),
        "random changes help": f"{cell.random_helped / cell.random_sequences:.0%}",
        "promised": _number(_mean(given, "promised")),
        "true": _number(_mean(given, "true")),
        "true / promised": "-" if ratio is None else f"{ratio:.2f}",
        "worst": _number(min((answer.true for answer in given), default=None)),
        "attainable": _number(_mean(cell.answers, "attainable")),
        "impossible states": _percent(*_impossible(cell)),
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
    """All worlds as Markdown: a table of all together; for each world what was asked, and two tables."""
    parts = ["### All worlds", "", markdown_table(overview(cells)), ""] if cells else []
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
    there = {cell.settings.variant for cell in cells}
    variants = [one for one in WORLDS[cells[0].settings.world].variants if one.name in there]
    text = f"{words[0]} episodes to learn from, {words[1]} others asked about, k = {words[2]}."
    if variants:
        text += f" Variants: {'; '.join(f'*{one.name}*: {one.words}' for one in variants)}."
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)


def fill_page(page: Path, cells: Sequence[WorldCell]) -> None:
    """Write the tables into a page, between its two marks; the rest of it stays."""
    fill_between(page, BEGIN, END, tables(cells))
