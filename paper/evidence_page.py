"""The page of the evidence study: what was reached, its tables, and the figure of risk against coverage."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from ifonly import Verdict
from ifonly.data.episode import FloatArray
from ifonly.files import atomic_file
from ifonly.report.figure_style import AXIS_COLOURS, COUNTERFACTUAL, OBSERVED, QUIET, SERIF, one_panel
from paper.catalogue import IMAGES, WIDTH, fill_between, markdown_table
from paper.evidence_study import Cell
from paper.evidence_tables import (
    ALL,
    RULE,
    RULE_AND_CHECK,
    answers_table,
    as_the_package,
    by_the_package,
    caught,
    caught_by_cell,
    cost_table,
    interval_table,
    percent,
    probability_table,
    share,
    signal_table,
    truth_table,
    world_table,
)
from paper.verdicts import enough_harm
from paper.warning_tables import share_over_seeds

BEGIN, END = "<!-- tables: python -m paper evidence --page -->", "<!-- end of tables -->"
"""Between these lines of a page the command writes its tables."""
FIGURE = "evidence-risk.png"
LEAST_DRAWN = 10
"""Answers from which on a share of harmful ones is drawn: that of fewer jumps up and down."""
HELP, CAUGHT, COVERAGE = 0.95, 0.8, (0.85, 0.95)
"""What was to be reached: help among the supported, harmful answers caught, true gains within the interval."""


def all_tables(cells: Sequence[Cell], table: pl.DataFrame, *, leaving_out: bool = True) -> dict[str, pl.DataFrame]:
    """The tables that there is anything to say in, by title; `table` is that of the cells' answers.

    Unless rules are fitted `leaving_out` worlds, everything is by that of the package, and signals are not compared.
    """
    judged = table if leaving_out else as_the_package(table)
    found = {
        "The rule as it is, on seeds that it was not fitted to": _own_table(table),
        "The rule as it is, by seed": _own_table_by_seed(table),
        "Verdicts, by the world left out": world_table(table) if leaving_out else table.clear(),
        "True gains and their intervals": interval_table(judged),
        "How likely answers are said to help": probability_table(judged),
        "Each signal alone, and the rule": signal_table(table) if leaving_out else table.clear(),
        "Every cell": truth_table(cells, judged),
        "Seconds for an answer (median)": cost_table(table),
    }
    return {title: frame for title, frame in found.items() if len(frame)}


def tells_harm(table: pl.DataFrame) -> bool:
    """Whether there is enough harm among the answers to judge worlds by rules of the others."""
    return enough_harm(table["world"], table["helps"])


def _own_table(table: pl.DataFrame) -> pl.DataFrame:
    """Verdicts of the package's rule, by world; empty where no answer is fresh to it."""
    fresh = by_the_package(table)
    return world_table(fresh, "world") if len(fresh) else fresh


def _own_table_by_seed(table: pl.DataFrame) -> pl.DataFrame:
    """The same by seed; empty where there is only one."""
    fresh = by_the_package(table)
    seeds = fresh.sort("seed").with_columns(world=pl.format("seed {}", "seed"))
    return world_table(seeds, "seed") if fresh["seed"].n_unique() > 1 else fresh.clear()


def findings(cells: Sequence[Cell], table: pl.DataFrame, *, leaving_out: bool = True) -> list[str]:
    """What was reached and what was not, in sentences; none where there is only one world.

    First by the package's rule as it is, on seeds that it was not fitted to; then by rules fitted `leaving_out` worlds.
    """
    known = table.filter(pl.col(RULE).is_not_null())
    if not len(known):
        return []
    fresh = by_the_package(known)
    own = [f"*The rule as it is.* {text}" for text in _reached_by(fresh, OF_OTHER_SEEDS)] if len(fresh) else []
    return [*own, *(_reached_by(known, IN_OTHER_WORLDS) if leaving_out else ()), *_lasting(cells)]


OF_OTHER_SEEDS = "in cells of seeds that the rule was not fitted to"
IN_OTHER_WORLDS = "in worlds that the rule was not fitted to"


def _reached_by(known: pl.DataFrame, where: str) -> Iterator[str]:
    """What a rule reached, as far as there are such answers."""
    yield _help_among_supported(known, where)
    yield from _harmful_caught(known)
    yield _within_intervals(known)


def _is(table: pl.DataFrame, verdict: Verdict) -> pl.Series:
    return table["verdict"] == verdict.value


def _help_among_supported(known: pl.DataFrame, where: str) -> str:
    supported, helps = _is(known, Verdict.SUPPORTED), known["helps"]
    places = np.unique(known["world"].to_numpy(), return_inverse=True)[1]
    if not supported.any():
        return f"**No answer is supported**; of all answers, {share(helps)} truly help."
    over = share_over_seeds(helps.to_numpy(), supported.to_numpy(), places)
    return (
        f"**Of the supported answers {share(helps.filter(supported))} truly help**, {where}; {percent(supported)} of "
        f"all answers are supported. The goal, {HELP:.0%}, was "
        f"{_reached(over.mean >= 100 * HELP)}. Answers of a world are alike: with worlds as what is drawn by chance, "
        f"the share in percent and its 95 % interval are {over.show('{:.0f}')}. Of all answers, {share(helps)} help."
    )


def _harmful_caught(known: pl.DataFrame) -> Iterator[str]:
    helps = known["helps"]
    if not len(helps.filter(~helps)):
        return
    rate, with_check = (caught(known[name].to_numpy(), helps.to_numpy()) for name in (RULE, RULE_AND_CHECK))
    supported, unbelieved = _is(known, Verdict.SUPPORTED), _is(known, Verdict.NOT_BELIEVABLE)
    by_model = known.select(pl.col(RULE).mean().over("cell")).to_series().to_numpy()
    yield (
        f"**Of the {(~helps).sum()} harmful answers {rate:.0%} are caught** at a limit that suspects at most a tenth "
        f"of those that help ({with_check:.0%} where answers of failed models count as the worst). The goal, "
        f"{CAUGHT:.0%}, was {_reached(rate >= CAUGHT)}. The verdict itself does not believe "
        f"{percent(unbelieved.filter(~helps))} of the harmful ones, nor {percent(unbelieved.filter(helps))} of those "
        f"that help; it supports {percent(supported.filter(~helps))} of the harmful ones. To suspect whole "
        f"models, by the mean probability of their answers, catches {caught(by_model, helps.to_numpy()):.0%}; who knew "
        f"of each cell the share of its answers that help, and no more, would catch {caught_by_cell(known):.0%}."
    )


def _within_intervals(known: pl.DataFrame) -> str:
    low, high = COVERAGE
    place, worlds = known["place"].to_numpy(), known["world"].to_numpy()
    covered = place == 0
    told = covered[(~_is(known, Verdict.NOT_BELIEVABLE)).to_numpy()]
    rates = [covered[worlds == name].mean() for name in np.unique(worlds)]
    everywhere = share_over_seeds(covered, np.ones_like(covered), np.unique(worlds, return_inverse=True)[1])
    return (
        f"**The interval of the gain, set for 90 %, holds {covered.mean():.1%} of the true gains**; {min(rates):.0%} "
        f"to {max(rates):.0%} by world, and with worlds as what is drawn by chance {everywhere.show('{:.0f}')}. Below "
        f"it lie {percent(place < 0)}. Of answers that are not believed no interval is told; those of all others hold "
        f"{percent(told)}. The goal, {low:.0%} to {high:.0%}, was "
        f"{_reached(low <= covered.mean() <= high)} over all, and in {sum(low <= rate <= high for rate in rates)} of "
        f"{len(rates)} worlds."
    )


def _reached(is_so: bool) -> str:
    return "reached" if is_so else "**not reached**"


def _lasting(cells: Sequence[Cell]) -> Iterator[str]:
    """What hides something that lasts: where subject effects were chosen, and what became of answers."""
    for variant in ("constant", "confounded"):
        chosen = [cell for cell in cells if cell.settings.variant == variant and cell.answers]
        if not chosen:
            continue
        helps = [np.mean([one.helps for one in cell.answers]) for cell in chosen]
        ends = f"{min(helps):.0%} to {max(helps):.0%}" if len(helps) > 1 else f"{helps[0]:.0%}"
        yield (
            f"**Something that lasts is hidden, *{variant}***: subject effects were chosen in "
            f"{sum(cell.effects for cell in chosen)} of {len(chosen)} cells; {ends} of the answers of a cell help."
        )


def risk_curve(scores: FloatArray, helps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Shares of the answers [N], and of the harmful among so many with the highest scores [N]."""
    harmful = 1 - helps[np.argsort(-scores, kind="stable")].astype(np.float64)
    count = np.arange(1, len(harmful) + 1)
    return count / len(harmful), np.cumsum(harmful) / count


def risk_figure(table: pl.DataFrame) -> Figure:
    """The share of harmful answers among those that the rule ranks highest, one line per world and one for all."""
    known = table.filter(pl.col(RULE).is_not_null())
    names = known["world"].unique(maintain_order=True).to_list()
    colours, markers = (*AXIS_COLOURS, COUNTERFACTUAL, QUIET), "os^vDP*X"
    with one_panel(height=3.2, letters=SERIF) as (figure, panel):
        for number, name in enumerate([*names, ALL]):
            part = known if name == ALL else known.filter(pl.col("world") == name)
            kept, harmful = risk_curve(part[RULE_AND_CHECK].to_numpy(), part["helps"].to_numpy())
            drawn = slice(min(LEAST_DRAWN, len(kept)) - 1, None)
            look: dict[str, Any] = {"color": OBSERVED, "linewidth": 2.2}
            if name != ALL:
                marker = markers[number % len(markers)]
                look = {"color": colours[number % len(colours)], "marker": marker, "markevery": 0.2, "markersize": 4}
            panel.plot(100 * kept[drawn], 100 * harmful[drawn], label=name, **look)
        panel.set_xlabel("answers kept, the most probable first (%)")
        panel.set_ylabel("harmful among them (%)")
        panel.set_xlim(0, 100)
        panel.set_ylim(bottom=0)
        panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def fill_page(page: Path, cells: Sequence[Cell]) -> None:
    """Write findings and tables into a page, between its two marks, and the figure into the folder of images."""
    table = answers_table(cells)
    leaving_out = tells_harm(table)
    told = findings(cells, table, leaving_out=leaving_out)
    ranked = table if leaving_out else by_the_package(table)
    parts = [textwrap.fill(f"- {text}", WIDTH, subsequent_indent="  ", break_on_hyphens=False) for text in told]
    if ranked[RULE].count():
        parts += ["", f"![Harmful answers among the most probable ones]({IMAGES}/{FIGURE})"]
    for title, frame in all_tables(cells, table, leaving_out=leaving_out).items():
        parts += ["", f"### {title}", "", markdown_table(frame)]
    fill_between(page, BEGIN, END, "\n".join(parts) + "\n")
    if ranked[RULE].count():
        _save(risk_figure(ranked), page.parent / IMAGES / FIGURE)


def _save(figure: Figure, image: Path) -> None:
    image.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(image) as scratch:
        figure.savefig(scratch, format="png", metadata={"Software": None})
