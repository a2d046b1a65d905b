"""A data card and an overview of a cohort in words: lines for the terminal, sections for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ifonly.text.catalogue import say
from ifonly.text.numbers import NOT_SHOWN, number, percent

if TYPE_CHECKING:
    from ifonly.report.card import Card, CardWarning, Histogram
    from ifonly.report.overview import FeatureOverview, Overview

SHOWN_NAMES = 6


# Overviews


def overview_lines(overview: Overview) -> str:
    """A cohort in a few lines, one for each feature."""
    counts = {name: f"{getattr(overview, name):,}" for name in ("episodes", "subjects", "steps")}
    lines = [
        say(
            "overview.head",
            **counts,
            shortest=_figure(overview.shortest),
            longest=_figure(overview.longest),
            used=sum(count != 0 for count in overview.action_counts),
            actions=len(overview.action_counts),
        ),
        *map(_feature_line, overview.features),
    ]
    figures = [value for feature in overview.features for value in (feature.mean, feature.low, feature.high)]
    if None in (overview.shortest, overview.longest, *figures):
        lines.append(say("overview.hidden", smallest=overview.smallest_cell))
    return "\n".join(lines)


def _feature_line(feature: FeatureOverview) -> str:
    figures = {name: f"{_figure(getattr(feature, name)):>9}" for name in ("mean", "deviation", "low", "high")}
    names = {"name": f"{feature.name:<24}", "kind": f"{feature.kind:<10}", "unit": feature.unit}
    implausible = say("overview.implausible", number=feature.implausible) if feature.implausible else ""
    return say("overview.feature", **names, **figures).rstrip() + implausible


def _figure(value: float | None) -> str:
    return NOT_SHOWN if value is None else f"{value:.4g}"


# Cards


def card_lines(card: Card) -> list[str]:
    """What a terminal says of a card: counts, what was measured, warnings."""
    warnings = [say("card.line.warning", warning=card_warning(warning)) for warning in card.warnings]
    return [
        say("card.line.head", **_counts(card)),
        _actions_taken(card),
        _masks(card),
        say("card.line.warnings" if warnings else "card.line.no warnings"),
        *warnings,
    ]


def card_warning(warning: CardWarning) -> str:
    """One reason for doubt, in a sentence or two."""
    values: dict[str, Any] = {
        name: f"{value:,}" if isinstance(value, int) else value for name, value in warning.values.items()
    }
    if warning.code == "model too large":
        ratio = warning.values["values"] / warning.values["parameters"]
        values |= {"ratio": f"{ratio:.2g}", "most": f"{warning.values['values'] // warning.values['limit']:,}"}
    for shares in ("limit", "share"):
        if isinstance(values.get(shares), float):
            values[shares] = f"{100 * values[shares]:g} %"
    about = values.get("actions") or values.get("features") or ()
    return say(f"card.warning.{warning.code}", **values, count=len(about), names=_listed(about))


def beyond(histogram: Histogram) -> str:
    """What share of values the bars leave out, such as '2 % beyond'; nothing where they show all, or where none are."""
    if not histogram.counts or histogram.outside == 0:
        return ""
    if histogram.outside < 0.005:
        return say("card.hardly beyond")
    return say("card.beyond", percent=f"{100 * histogram.outside:.0f}")


def card_parts(card: Card) -> dict[str, str]:
    """What the page of a card says in sentences."""
    found = card.horizons
    low, median, high = (number(found.quantiles[share]) for share in ("25", "50", "75"))
    return {
        "head": say("card.head", **_counts(card), features=len(card.features), actions=len(card.actions.labels)),
        "measured": _masks(card),
        "actions": say("page.sentence", text=_actions_taken(card)),
        "horizons": say("card.horizons", mean=number(found.mean), median=median, low=low, high=high),
        "beyond": beyond(found.histogram),
        "reading": card_reading(card),
    }


def card_reading(card: Card) -> str:
    """How to read the card, and what it cannot see."""
    few = {"smallest": card.smallest_cell}
    size = ""
    if card.model_size is not None:
        size = say("card.reading.size", values=card.values_per_parameter, parameters=f"{card.model_size:,}")
    hidden = say("card.reading.hidden" if card.smallest_cell > 1 else "card.reading.shown", **few)
    return say("card.reading", hidden=hidden, size=size)


def _counts(card: Card) -> dict[str, Any]:
    numbers = {name: f"{getattr(card, name):,}" for name in ("episodes", "subjects", "steps", "transitions")}
    return {**numbers, "step": card.step}


def _listed(about: Sequence[str] | Mapping[str, float]) -> str:
    """The first few names, each with its share where it has one, and how many more there are."""
    names = list(about)
    if isinstance(about, Mapping):
        names = [say("card.name with share", name=name, share=percent(share)) for name, share in about.items()]
    more = len(names) - SHOWN_NAMES
    return "; ".join([*names[:SHOWN_NAMES], *([say("card.more names", more=more)] if more > 0 else [])])


def _masks(card: Card) -> str:
    measured = sum(feature.measured is not None for feature in card.features)
    return say(f"card.masks.{card.masks}", measured=measured)


def _actions_taken(card: Card) -> str:
    actions = card.actions
    taken = len(actions.labels) - actions.never
    return say("card.line.actions", taken=taken, actions=len(actions.labels), rare=actions.rare)
