"""The tables of the evidence study: what is true of answers, and how much of it the evidence knew.

All of them are made of one table with a line for every examined answer. Verdicts are those of a rule that was fitted to
the other worlds; what needs one is empty where there is only one world.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from ifonly import Evidence, Verdict
from ifonly.data.episode import FloatArray
from ifonly.intervals import share_interval
from ifonly.result.verdict import SIGNALS, estimate_of, signals_of
from paper.evidence_study import Answer, Cell
from paper.verdicts import BELIEVABLE, ENOUGH_HARMFUL, RULE_SEEDS, SUPPORTED, BoolArray, Judged, left_out
from paper.warning_tables import FALSE_ALARMS, limit_for

ALL = "all"
RULE = "the rule, of other worlds"
RULE_AND_CHECK = "the same, failed models last"
OWN = "by the package: "
"""Before columns that are by the rule of the package as it is, whatever it was fitted to."""
FOUND_AGAIN = "effects found again elsewhere"
NOTHING = "-"
EDGES = (0.0, BELIEVABLE, 0.7, 0.8, SUPPORTED, 0.95, 1.01)
"""Of probabilities, between which answers are counted; none is above 1."""

Reading = Callable[[Evidence], float | None]


def _honest(evidence: Evidence) -> float | None:
    honest = evidence.honest
    return None if honest is None or honest.promised <= 0 else honest.judged / honest.promised


def _rarest(evidence: Evidence) -> float | None:
    changed = evidence.support.changed if evidence.support else ()
    return min((one.probability or 0.0 for one in changed), default=None)


def _influence(evidence: Evidence) -> float | None:
    weakest = evidence.sensitivity.weakest if evidence.sensitivity else None
    return None if weakest is None else weakest.undone_by


def _hidden(name: str) -> Reading:
    def read(evidence: Evidence) -> float | None:
        found = None if evidence.check is None else getattr(evidence.check.hidden, name)
        return None if found is None else -float(found)

    return read


READINGS: dict[str, Reading] = {
    "refits that agree": lambda evidence: None if evidence.refits is None else evidence.refits.share,
    "judged by the other half / promised": _honest,
    "gain left by comparable records": lambda evidence: (
        None if evidence.calibration is None else evidence.calibration.share
    ),
    "least likely change": _rarest,
    "influence that undoes it": _influence,
    "hidden: noise that lasts": _hidden("lasting"),
    "hidden: noise by earlier actions": _hidden("earlier"),
    "hidden: noise between subjects": _hidden("between"),
    "hidden: choices by earlier noise": _hidden("choice"),
    "check failed": lambda evidence: None if evidence.check is None else -float(evidence.check.failed),
}
"""Signals on their own, by name: larger values speak for an answer, and None gives no cause for concern."""


def answers_table(cells: Sequence[Cell]) -> pl.DataFrame:
    """A line for every examined answer, in the order of the cells; see `_line` for the columns."""
    rows = [(number, cell, one) for number, cell in enumerate(cells) for one in cell.answers]
    judged = Judged.of(cells)
    several = len(set(judged.world)) > 1
    found: Iterator[tuple[float, int]] = zip(*left_out(judged), strict=True) if several else iter(())
    lines = []
    for number, cell, answer in rows:
        full = several and signals_of(answer.evidence) is not None
        probability, place = next(found) if full else (None, None)
        lines.append({"cell": number, **_line(cell, answer, answer.evidence, probability), "place": place})
    return pl.DataFrame(lines, infer_schema_length=None)


def _line(cell: Cell, answer: Answer, evidence: Evidence, probability: float | None) -> dict[str, Any]:
    """One answer; `probability` is that it helps, by a rule of other worlds."""
    settings, estimate, signals = cell.settings, estimate_of(evidence), signals_of(evidence) or {}
    failed = evidence.check is not None and evidence.check.failed
    known = None if probability is None else float(probability)
    return {
        "world": settings.world,
        "variant": settings.variant,
        "episodes": settings.episodes,
        "seed": settings.seed,
        "promised": answer.promised,
        "debiased": None if estimate is None else estimate.gain,
        "true": answer.true,
        "helps": answer.helps,
        "verdict": evidence.verdict_at(known).value,
        RULE: known,
        RULE_AND_CHECK: None if known is None else known - failed,
        "seconds": answer.seconds,
        "examined": answer.examined,
        **_of_package(answer, evidence),
        **{name: read(evidence) for name, read in READINGS.items()},
        FOUND_AGAIN: cell.effect_slope,
        **{_of_rule(name.value): signals.get(name) for name in SIGNALS},
    }


def _of_package(answer: Answer, evidence: Evidence) -> dict[str, Any]:
    """What the package itself says of one answer."""
    judgement, estimate = evidence.judgement, evidence.estimate
    return {
        OWN + "verdict": evidence.verdict.value,
        OWN + RULE: None if judgement is None else judgement.probability,
        OWN + "place": None if estimate is None else int(answer.true > estimate.high) - int(answer.true < estimate.low),
    }


def as_the_package(table: pl.DataFrame) -> pl.DataFrame:
    """All answers with the verdicts of the package's rule, as it is, in place of those of rules that were fitted to
    other worlds; none for answers of seeds that it was fitted to."""
    fresh = ~pl.col("seed").is_in(RULE_SEEDS)
    own = {name.removeprefix(OWN): pl.when(fresh).then(name) for name in table.columns if name.startswith(OWN)}
    return table.with_columns(**own).with_columns((pl.col(RULE) + pl.col("check failed")).alias(RULE_AND_CHECK))


def by_the_package(table: pl.DataFrame) -> pl.DataFrame:
    """The answers of seeds that the package's rule was not fitted to, with its verdicts."""
    return as_the_package(table).filter(~pl.col("seed").is_in(RULE_SEEDS))


def _of_rule(name: str) -> str:
    return f"of the rule: {name}"


def truth_table(cells: Sequence[Cell], table: pl.DataFrame) -> pl.DataFrame:
    """For each cell, as text: what is true of its answers, and what was told of them."""
    usual = statistics.mode(cell.settings.episodes for cell in cells)
    lines = []
    for number, cell in enumerate(cells):
        part, settings = table.filter(pl.col("cell") == number), cell.settings
        size = "" if settings.episodes == usual else f", {settings.episodes} episodes"
        seed = f", seed {settings.seed}" if settings.seed else ""
        lines.append(
            {
                "world": settings.world,
                "variant": f"{settings.variant}{size}{seed}",
                "answers": f"{len(part)}",
                "truly help": share(part["helps"]),
                **{name: _number(part[name].mean()) for name in ("promised", "debiased", "true")},
                "check": cell.verdict,
                "subject effects": "yes" if cell.effects else "no",
                **_verdicts(part),
            }
        )
    return pl.DataFrame(lines)


def _verdicts(part: pl.DataFrame) -> dict[str, str]:
    """Shares of the verdicts, and of what helps among those that are supported."""
    told = part.filter(pl.col(RULE).is_not_null() | (pl.col("verdict") == Verdict.NOT_BELIEVABLE))
    words = (Verdict.SUPPORTED, Verdict.UNCERTAIN, Verdict.NOT_BELIEVABLE)
    return {
        **{word.value: percent(told["verdict"] == word.value) for word in words},
        "help, of the supported": share(told.filter(pl.col("verdict") == Verdict.SUPPORTED)["helps"]),
    }


def world_table(table: pl.DataFrame, first: str = "world left out") -> pl.DataFrame:
    """For each world and for all, as text: verdicts by a rule that was fitted to the other worlds."""
    parts = [(str(name), table.filter(pl.col("world") == name)) for name in table["world"].unique(maintain_order=True)]
    return pl.DataFrame(
        [
            {
                first: name,
                "answers": f"{len(part)}",
                "truly help": share(part["helps"]),
                **_verdicts(part),
                "harmful, of the not believable": percent(
                    ~part.filter(pl.col("verdict") == Verdict.NOT_BELIEVABLE)["helps"]
                ),
                "true gain within the interval": percent(part["place"].drop_nulls() == 0),
                "below it": percent(part["place"].drop_nulls() < 0),
            }
            for name, part in [*parts, (ALL, table)]
        ]
    )


def interval_table(table: pl.DataFrame) -> pl.DataFrame:
    """By the verdict, as text: where true gains lie by their intervals."""
    known = table.filter(pl.col("place").is_not_null())
    parts = [(word.value, known.filter(pl.col("verdict") == word.value)) for word in Verdict]
    return pl.DataFrame(
        [
            {
                "verdict": name,
                "answers": f"{len(part)}",
                "true gain within the interval": percent(part["place"] == 0),
                "below it": percent(part["place"] < 0),
                "above it": percent(part["place"] > 0),
            }
            for name, part in [*parts, (ALL, known)]
            if len(part)
        ]
    )


def probability_table(table: pl.DataFrame) -> pl.DataFrame:
    """By how likely answers are said to help, by a rule of other worlds, as text: how many truly do."""
    lines = []
    for low, high in itertools.pairwise(EDGES):
        part = table.filter((pl.col(RULE) >= low) & (pl.col(RULE) < high))
        said = percent(part[RULE])
        lines.append({"probability": f"{low:g} to {min(high, 1):g}", "said": said, "truly help": share(part["helps"])})
    return pl.DataFrame(lines if table[RULE].count() else [])


def signal_table(table: pl.DataFrame) -> pl.DataFrame:
    """For each signal alone and for the rule, as text: how well it tells harmful answers from those that help."""
    names = [*READINGS, FOUND_AGAIN, *(_of_rule(name.value) for name in SIGNALS), RULE, RULE_AND_CHECK]
    known = table.filter(pl.col(RULE).is_not_null())
    helps, worlds = known["helps"].to_numpy(), known["world"].to_numpy()
    return pl.DataFrame([_signal(name, _scores(known, name), helps, worlds) for name in names if len(known)])


def _scores(table: pl.DataFrame, name: str) -> FloatArray:
    """[N]; what is null gives no cause for concern."""
    values: FloatArray = table[name].cast(pl.Float64).fill_null(np.finfo(float).max).to_numpy()
    return values


def _signal(name: str, scores: FloatArray, helps: BoolArray, worlds: Any) -> dict[str, str]:
    groups = [worlds == world for world in np.unique(worlds)]
    told = [own for own in groups if (~helps[own]).sum() >= ENOUGH_HARMFUL and helps[own].any()]
    flagged = np.zeros(len(helps), dtype=bool)
    for own in groups:
        flagged[own] = scores[own] < limit_for(scores[~own & helps])
    return {
        "signal": name,
        "AUC": f"{auc(scores, helps):.2f}",
        "AUC by world": _range([auc(scores[own], helps[own]) for own in told], "{:.2f}"),
        "caught": f"{caught(scores, helps):.0%}",
        "caught by world": _range([caught(scores[own], helps[own]) for own in told], "{:.0%}"),
        "help, of its best half": f"{best_half(scores, helps):.0%}",
        "limits of other worlds: false alarms": percent(flagged[helps]),
        "limits of other worlds: caught": percent(flagged[~helps]),
    }


def auc(scores: FloatArray, helps: BoolArray) -> float:
    """How often an answer that helps scores higher than a harmful one; ties count half. NaN where one kind is missing.

    >>> auc(np.array([1.0, 2.0, 2.0]), np.array([False, True, False]))
    0.75
    """
    difference = np.subtract.outer(scores[helps], scores[~helps])
    return float(((difference > 0) + (difference == 0) / 2).mean()) if difference.size else math.nan


def caught_by_cell(table: pl.DataFrame) -> float:
    """The share of harmful answers within the false alarms, for one who suspects whole cells, the worst first.

    Of the cell at which the false alarms are used up as large a part is suspected as they allow.
    """
    counts = table.group_by("cell").agg(helpful=pl.col("helps").sum(), harmful=(~pl.col("helps")).sum())
    counts = counts.sort(pl.col("harmful") / (pl.col("harmful") + pl.col("helpful")), descending=True)
    helpful, harmful = counts["helpful"].to_numpy(), counts["harmful"].to_numpy()
    left = FALSE_ALARMS * helpful.sum() - (np.cumsum(helpful) - helpful)
    part = np.clip(left / np.maximum(helpful, 1), (helpful == 0) * 1.0, 1)
    return float((part * harmful).sum() / harmful.sum())


def caught(scores: FloatArray, helps: BoolArray) -> float:
    """The share of harmful answers below the limit that at most a tenth of those that help lie below."""
    return float((scores[~helps] < limit_for(scores[helps], FALSE_ALARMS)).mean()) if (~helps).any() else math.nan


def best_half(scores: FloatArray, helps: BoolArray) -> float:
    """The share that helps among the half with the highest scores; of those on its edge, as many as there is room for.

    >>> best_half(np.array([3.0, 1.0, 1.0, 0.0]), np.array([True, True, False, False]))
    0.75
    """
    half = len(scores) / 2
    edge = np.sort(scores)[::-1][math.ceil(half) - 1]
    above, level = scores > edge, scores == edge
    return float((helps[above].sum() + (half - above.sum()) * helps[level].mean()) / half)


def cost_table(table: pl.DataFrame) -> pl.DataFrame:
    """For each world and size, as text: median seconds of the search and of its evidence."""
    groups = table.group_by("world", "episodes", maintain_order=True)
    parts = [(f"{world}, {size} episodes", part) for (world, size), part in groups]
    lines = []
    for name, part in [*parts, (ALL, table)]:
        search, evidence = np.median(part["seconds"].to_numpy()), np.median(part["examined"].to_numpy())
        ratio = f"{evidence / search:.1f}" if search > 0 else NOTHING
        lines.append({"cells": name, "search": f"{search:.2f}", "evidence": f"{evidence:.2f}", "ratio": ratio})
    return pl.DataFrame(lines)


def share(hits: pl.Series) -> str:
    """How many of the answers, and the share with its 95 % interval as if answers were independent."""
    if not len(hits):
        return NOTHING
    low, high = share_interval(int(hits.sum()), len(hits))
    return f"{hits.sum()} of {len(hits)}, {percent(hits)} ({100 * low:.0f} to {100 * high:.0f})"


def percent(hits: Any) -> str:
    """The share alone."""
    return f"{float(hits.mean()):.0%}" if len(hits) else NOTHING


def _range(values: Sequence[float], form: str) -> str:
    return f"{form.format(min(values))} to {form.format(max(values))}" if values else NOTHING


def _number(value: Any) -> str:
    if value is None:
        return NOTHING
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
