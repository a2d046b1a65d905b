"""A data card and an overview of a cohort in words: lines for the terminal, sections for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ifonly.text.catalogue import say
from ifonly.text.numbers import NOT_SHOWN, number, percent

if TYPE_CHECKING:
    from ifonly.report.card import Card, CardWarning, Histogram
    from ifonly.report.overview import FeatureOverview, Overview

SHOWN_NAMES = 6


@dataclass(frozen=True)
class Section:
    """A part of a page: a paragraph, a figure with what it shows, and a table whose first columns hold words."""

    heading: str
    text: str = ""
    figure: str | None = None
    alt: str = ""
    caption: str = ""
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    words: int = 1


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


def card_sections(card: Card) -> list[Section]:
    """The page, part by part."""
    return [_features(card), _measured(card), _actions(card), _horizons(card), _severity(card)]


def card_head(card: Card) -> str:
    """What the cohort holds, in a sentence."""
    return say("card.head", **_counts(card), features=len(card.features), actions=len(card.actions.labels))


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


def _count(count: int | None, card: Card) -> str:
    return say("card.too few", smallest=card.smallest_cell) if count is None else f"{count:,}"


def _share(share: float | None, digits: int = 1) -> str:
    return percent(share, digits, unknown=NOT_SHOWN)


def _features(card: Card) -> Section:
    shares = list(card.features[0].quantiles)
    rows = [
        [
            feature.label,
            feature.kind,
            *map(number, (feature.mean, feature.deviation, *(feature.quantiles[share] for share in shares))),
            _share(feature.implausible, 2) if feature.plausible else say("card.no range"),
        ]
        for feature in card.features
    ]
    return Section(
        heading=say("card.heading.features"),
        figure="features",
        alt=say("card.alt.features", features=len(card.features)),
        caption=say("card.caption.features"),
        headings=["feature", "kind", "mean", "sd", *(f"{share} %" for share in shares), "implausible"],
        rows=rows,
        words=2,
    )


def _measured(card: Card) -> Section:
    known = {feature.name: feature.measured for feature in card.features if feature.measured is not None}
    rows = [
        [name, *map(_share, (found.measured, found.held, found.missing_before, found.missing_after))]
        for name, found in known.items()
    ]
    return Section(
        heading=say("card.heading.measured"),
        text=_masks(card),
        figure="measured",
        alt=say("card.alt.measured"),
        caption=say("card.caption.measured"),
        headings=["feature", "measured", "held", "missing before holds", "missing after holds"],
        rows=rows,
    )


def _actions(card: Card) -> Section:
    counts = zip(card.actions.labels, card.actions.counts, strict=True)
    hatched = say("card.caption.actions.hatched") if len(card.actions.axes) == 2 else ""
    return Section(
        heading=say("card.heading.actions"),
        text=f"{_actions_taken(card)}.",
        figure="actions",
        alt=say("card.alt.actions"),
        caption=say("card.caption.actions", hatched=hatched),
        headings=["action", "steps", "share"],
        rows=[
            [label, _count(count, card), "" if count is None else _share(count / card.steps)] for label, count in counts
        ],
    )


def _horizons(card: Card) -> Section:
    found = card.horizons
    low, median, high = (number(found.quantiles[share]) for share in ("25", "50", "75"))
    left_out = beyond(found.histogram)
    more = say("card.caption.horizons.beyond", beyond=left_out) if left_out else ""
    return Section(
        heading=say("card.heading.horizons"),
        text=say("card.horizons", mean=number(found.mean), median=median, low=low, high=high),
        figure="horizons",
        alt=say("card.alt.horizons"),
        caption=say("card.caption.horizons", beyond=more),
    )


def _severity(card: Card) -> Section:
    severity, heading = card.severity, say("card.heading.severity")
    if severity is None:
        return Section(heading=heading, text=say("card.no severity"))
    few = {"smallest": card.smallest_cell, "outcome": severity.outcome}
    hidden = severity.outcome and any(group.outcome is None for group in severity.groups) and card.smallest_cell > 1
    outcome = [severity.outcome] if severity.outcome else []
    rows = [
        [
            group.label,
            _count(group.episodes, card),
            *map(number, (group.first, group.last, group.change, group.half_interval)),
            *(_share(group.outcome) for _ in outcome),
        ]
        for group in severity.groups
    ]
    first = say("card.at first", label=severity.label)
    return Section(
        heading=heading,
        figure="severity",
        alt=say("card.alt.severity", feature=severity.feature),
        caption=say(
            "card.caption.severity",
            feature=severity.feature,
            few=say("card.caption.severity.few", **few) if hidden else "",
        ),
        headings=[first, "episodes", "mean first", "mean last", "mean change", "± 95 %", *outcome],
        rows=rows,
    )
