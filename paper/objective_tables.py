"""The tables of the study of objectives: who truly helps, and what is gained, beside the centre's best answers.

Gains are shares of what is attainable in a cell, so that worlds of different units can be put together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from ifonly.data.episode import FloatArray
from ifonly.intervals import mean_interval
from paper.evidence_tables import ALL, percent, share
from paper.objective_study import CENTRE, OBJECTIVES, Choice, ObjectiveCell


def objective_table(cells: Sequence[ObjectiveCell]) -> pl.DataFrame:
    """For each objective, as text: how many answers truly help, what they gain, and what they cost."""
    lines = []
    for objective in OBJECTIVES:
        given = _given(cells, objective)
        behind = gains(cells, objective) - gains(cells, CENTRE)
        seconds = [cell.searched[objective] / cell.searched[CENTRE] for cell in cells if cell.searched[CENTRE] > 0]
        lines.append(
            {
                "objective": objective,
                "answers": f"{len(given)}",
                "truly help": share(pl.Series([choice.helps for choice in given], dtype=pl.Boolean)),
                "truly gained": percent(gains(cells, objective)),
                "promised": percent(_shares(cells, objective, "promised")),
                "lost by harm": percent(_lost(cells, objective)),
                "gained beyond the centre": "-" if objective == CENTRE else _difference(behind),
                "helping beyond the centre": "-" if objective == CENTRE else _difference(_helping(cells, objective)),
                "proven": percent(pl.Series([c.proven for cell in cells for c in cell.of(objective)])),
                "times the centre's search": f"{np.median(seconds):.1f}" if seconds else "-",
            }
        )
    return pl.DataFrame(lines)


def world_table(cells: Sequence[ObjectiveCell]) -> pl.DataFrame:
    """For each world and each objective, as text: the share of its answers that truly help, and what is gained."""
    names = list(dict.fromkeys(cell.settings.world for cell in cells))
    lines = []
    for name in [*names, ALL]:
        part = [cell for cell in cells if name in (cell.settings.world, ALL)]
        told = {one: pl.Series([choice.helps for choice in _given(part, one)]) for one in OBJECTIVES}
        lines.append(
            {"world": name} | {one: f"{percent(told[one])}, {percent(gains(part, one))}" for one in OBJECTIVES}
        )
    return pl.DataFrame(lines)


def preferred(cells: Sequence[ObjectiveCell]) -> str:
    """The objective whose answers help most often among those that gain as much as the centre's, but for chance.

    As much: less by no more than one standard error of the difference, cells being what is drawn by chance.
    """
    return max(filter(lambda one: _gains_as_much(cells, one), OBJECTIVES), key=lambda one: helping_share(cells, one))


def _gains_as_much(cells: Sequence[ObjectiveCell], objective: str) -> bool:
    behind = gains(cells, objective) - gains(cells, CENTRE)
    error = behind.std(ddof=1) / np.sqrt(len(behind)) if len(behind) > 1 else 0.0
    return bool(behind.mean() >= -error)


def findings(cells: Sequence[ObjectiveCell]) -> list[str]:
    """What follows, in sentences."""
    best = preferred(cells)
    told = [
        f"**{best}** is preferred by the rule of the study: of its answers {helping_share(cells, best):.0%} truly "
        f"help, and of what is attainable they gain {gains(cells, best).mean():.0%}; of the centre's "
        f"{helping_share(cells, CENTRE):.0%} help, and they gain {gains(cells, CENTRE).mean():.0%}."
    ]
    ranked = sorted(OBJECTIVES, key=lambda one: -helping_share(cells, one))
    told.append(
        f"The largest share that helps, whatever it gains, is that of *{ranked[0]}*: "
        f"{helping_share(cells, ranked[0]):.0%}, with {gains(cells, ranked[0]).mean():.0%} of what is attainable."
    )
    return told


def helping_share(cells: Sequence[ObjectiveCell], objective: str) -> float:
    """Of an objective's answers that change anything, the share that truly helps; every answer counts the same."""
    given = _given(cells, objective)
    return float(np.mean([choice.helps for choice in given])) if given else 0.0


def gains(cells: Sequence[ObjectiveCell], objective: str) -> FloatArray:
    """For each cell, what is truly gained by an episode asked about, as a share of what is attainable."""
    return _shares(cells, objective, "true")


def _given(cells: Sequence[ObjectiveCell], objective: str) -> list[Choice]:
    """Answers that change anything."""
    return [choice for cell in cells for choice in cell.of(objective) if choice.changes]


def _shares(cells: Sequence[ObjectiveCell], objective: str, what: str) -> FloatArray:
    means = [np.mean([getattr(choice, what) for choice in cell.of(objective)]) / cell.attainable for cell in cells]
    return np.array(means)


def _lost(cells: Sequence[ObjectiveCell], objective: str) -> FloatArray:
    means = [np.mean([min(choice.true, 0.0) for choice in cell.of(objective)]) / cell.attainable for cell in cells]
    return -np.array(means)


def _helping(cells: Sequence[ObjectiveCell], objective: str) -> FloatArray:
    """For each cell in which both have answers, the share that helps less that of the centre."""
    pairs = [[[c.helps for c in cell.of(one) if c.changes] for one in (objective, CENTRE)] for cell in cells]
    return np.array([np.mean(own) - np.mean(centre) for own, centre in pairs if own and centre])


def _difference(values: FloatArray) -> str:
    """The mean over cells in points, with half of its 95 % interval."""
    interval = mean_interval(values)
    around = "" if interval is None else f" ± {100 * (interval.high - float(values.mean())):.1f}"
    return f"{100 * float(values.mean()):+.1f}{around}" if len(values) else "-"
