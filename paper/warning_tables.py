"""The tables of the warning study, for people to read: what is true, and what each signal catches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from ifonly.data.episode import IntArray
from ifonly.evidence.limits import AGREEING, FAR, INFLUENCE, UNLIKELY
from paper.estimates import Estimate
from paper.scenarios import RIGHT, SCENARIOS
from paper.separation import SIGNALS, TOGETHER, BoolArray, Judged, share_over_seeds
from paper.study_table import falls_short, is_near_optimal, is_wrong, recommended

LIMITS_IN_USE = {
    "verdict": 2.0,
    "refits_agree": AGREEING,
    "least_support": UNLIKELY,
    "farthest": -FAR,
    "undone_by": INFLUENCE,
}
"""By column, the scores below which `ifonly.evidence` warns."""


def truth_table(table: pl.DataFrame) -> pl.DataFrame:
    """For each scenario, in percent of its recommendations: what is true of them; and the verdicts about its models."""
    lines = []
    for scenario in SCENARIOS.values():
        part = recommended(table.filter(pl.col("scenario") == scenario.name))
        seeds = part["seed"].to_numpy()

        def percent(which: BoolArray, seeds: IntArray = seeds) -> str:
            return share_over_seeds(which, np.ones(len(which)), seeds).show("{:.0f}")

        verdicts = part.group_by("seed").agg(pl.col("verdict").first())["verdict"].value_counts(sort=True)
        lines.append(
            {
                "scenario": scenario.label,
                "recommendations": f"{len(part)}",
                "truly help %": percent(~is_wrong(part)),
                "at least half as promised %": percent(~falls_short(part)),
                "near-optimal %": percent(is_near_optimal(part)),
                "promised": _mean_over_seeds(part, "promised").show(),
                "true": _mean_over_seeds(part, "true").show(),
                "attainable": _mean_over_seeds(part, "attainable").show(),
                "verdicts": ", ".join(f"{verdict} {count}" for verdict, count in verdicts.sort("verdict").rows()),
            }
        )
    return pl.DataFrame(lines)


def caught_table(table: pl.DataFrame, wrong: Callable[[pl.DataFrame], BoolArray] = is_wrong) -> pl.DataFrame:
    """A line for each signal, and one for all together: its limit, how well it separates, and percents flagged.

    `wrong` says which recommendations should be caught; the limit flags a tenth of the others.
    """
    asked = recommended(table)
    judged = Judged.of(asked, wrong(asked))
    words = {signal.label: signal.limit_in_words(judged.limit(signal.label)) for signal in SIGNALS}
    words[TOGETHER] = f"one rarer than {judged.limit(TOGETHER):.1%}"
    lines = [
        {"signal": label, "flagged where": limit, "AUC": judged.separation(label).show()}
        | _flagged(asked, judged, judged.flags(label))
        for label, limit in words.items()
    ]
    return pl.DataFrame(lines)


def separation_table(table: pl.DataFrame) -> pl.DataFrame:
    """How well each signal about single recommendations tells right from wrong within a scenario: its AUC."""
    lines = []
    for scenario in SCENARIOS.values():
        part = recommended(table.filter(pl.col("scenario") == scenario.name))
        judged = Judged.of(part, is_wrong(part))
        found = {signal.label: judged.separation(signal.label).show() for signal in SIGNALS if not signal.of_model}
        lines.append({"scenario": scenario.label, "wrong": f"{judged.wrong.sum()}"} | found)
    return pl.DataFrame(lines)


def limits_in_use_table(table: pl.DataFrame) -> pl.DataFrame:
    """The same for the limits that `ifonly.evidence` warns by, whatever they flag; the last lines are any of them.

    Limits that were set after looking at this very table are flattered by it.
    """
    asked = recommended(table)
    judged = Judged.of(asked, is_wrong(asked))
    used = [signal for signal in SIGNALS if signal.column in LIMITS_IN_USE]
    flags = {signal: judged.scores[signal.label] < LIMITS_IN_USE[signal.column] for signal in used}
    lines = [
        {"signal": signal.label, "flagged where": signal.limit_in_words(LIMITS_IN_USE[signal.column])}
        | _flagged(asked, judged, found)
        for signal, found in flags.items()
    ]
    unions = {
        "any about the answer": [found for signal, found in flags.items() if not signal.of_model],
        TOGETHER: list(flags.values()),
    }
    lines += [
        {"signal": label, "flagged where": "-"} | _flagged(asked, judged, np.any(found, axis=0))
        for label, found in unions.items()
    ]
    return pl.DataFrame(lines)


def _flagged(asked: pl.DataFrame, judged: Judged, flags: BoolArray) -> dict[str, str]:
    """Percents of right and of wrong recommendations that are flagged, the latter by scenario too."""

    def percent(counted: BoolArray) -> str:
        return share_over_seeds(flags, counted, judged.seeds).show("{:.0f}")

    scenarios = asked["scenario"].to_numpy()
    found = {
        "false alarms %": percent(~judged.wrong),
        "false alarms, model right %": percent(~judged.wrong & (scenarios == RIGHT)),
        "caught %": percent(judged.wrong),
    }
    return found | {one.label: percent(judged.wrong & (scenarios == one.name)) for one in SCENARIOS.values()}


def _mean_over_seeds(part: pl.DataFrame, column: str) -> Estimate:
    return Estimate.of(part.group_by("seed", maintain_order=True).agg(pl.col(column).mean())[column].to_list())
