"""A data card as one HTML page: figures embedded, no scripts, nothing fetched, fit to be printed."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from ifonly.report.card import Card, FeatureCard, beyond_in_words
from ifonly.report.card_warnings import VALUES_PER_PARAMETER
from ifonly.version import __version__

STYLE = """
body { font: 15px/1.45 Georgia, "Times New Roman", serif; color: #111; background: #fff;
       max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0.2rem; }
h2 { font-size: 1.15rem; border-bottom: 1px solid #999; margin-top: 2rem; }
table { border-collapse: collapse; font-size: 0.82rem; margin: 0.8rem 0; }
th, td { padding: 0.15rem 0.6rem; text-align: right; border-bottom: 1px solid #ddd; }
td { font-variant-numeric: tabular-nums; }
th { border-bottom: 1px solid #555; }
th:first-child, td:first-child, td.words, th.words { text-align: left; }
figure { margin: 1rem 0; break-inside: avoid; }
img { max-width: 100%; height: auto; }
figcaption, .note { font-size: 0.82rem; color: #444; }
.warnings { border: 1px solid #555; border-left-width: 6px; padding: 0.4rem 1rem; }
.warnings li { margin: 0.4rem 0; }
.wide { overflow-x: auto; }
@media print { body { margin: 0; max-width: none; font-size: 11px; } .wide { overflow: visible; }
               h2 { break-after: avoid; } tr { break-inside: avoid; } }
"""

NOT_SHOWN = "-"
"""Stands for a number that is unknown, or rests on too few subjects."""


def card_page(card: Card, title: str, figures: Mapping[str, bytes]) -> str:
    """The page, with figures given as PNG files by the names that `card_figures` gives them."""
    parts = [
        *_head(card, title),
        *_warnings(card),
        *_features(card, figures),
        *_measured(card, figures),
        *_actions(card, figures),
        *_horizons(card, figures),
        *_severity(card, figures),
        *_foot(card),
    ]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Data card: {escape(title)}</title>",
            f"<style>{STYLE}</style>",
            "</head>",
            "<body>",
            *parts,
            "</body>",
            "</html>",
            "",
        ]
    )


def _head(card: Card, title: str) -> Iterator[str]:
    yield f"<h1>Data card: {escape(title)}</h1>"
    yield (
        f"<p>{card.episodes:,} episodes of {card.subjects:,} subjects; {card.steps:,} steps of {escape(card.step)}, "
        f"{card.transitions:,} transitions from one to the next; {len(card.features)} features, "
        f"{len(card.actions.labels)} actions.</p>"
    )


def _warnings(card: Card) -> Iterator[str]:
    yield "<h2>Can these data support an analysis?</h2>"
    if not card.warnings:
        yield "<p>None of the rules that are checked gives a reason for doubt.</p>"
        return
    yield '<ul class="warnings">'
    yield from (f"<li>{escape(warning.text)}</li>" for warning in card.warnings)
    yield "</ul>"


def _features(card: Card, figures: Mapping[str, bytes]) -> Iterator[str]:
    yield "<h2>Features</h2>"
    yield from _figure(
        figures,
        "features",
        alt=f"Histograms of {len(card.features)} features; their quantiles are in the table below.",
        caption="Distribution over steps (static features: over episodes), between the outermost quantiles of the "
        "table; below each, the share of values beyond them. Dashed: median; thick line: the middle half. A cross "
        "stands for a bar that too few subjects share.",
    )
    shares = list(card.features[0].quantiles)
    headings = ["feature", "kind", "mean", "sd", *(f"{share} %" for share in shares), "implausible"]
    yield from _table(headings, [_feature_row(feature, shares) for feature in card.features], words=2)


def _feature_row(feature: FeatureCard, shares: Sequence[str]) -> list[str]:
    return [
        feature.label,
        feature.kind,
        _number(feature.mean),
        _number(feature.deviation),
        *(_number(feature.quantiles[share]) for share in shares),
        _percent(feature.implausible, 2) if feature.plausible else "no range",
    ]


def _measured(card: Card, figures: Mapping[str, bytes]) -> Iterator[str]:
    yield "<h2>What was measured</h2>"
    yield f"<p>{escape(card.masks)}</p>"
    features = [feature for feature in card.features if feature.measured is not None]
    if not features:
        return
    yield from _figure(
        figures,
        "measured",
        alt="Share of steps with a measured value, a held one, and neither, per feature; the same as the table below.",
        caption="Before holds, a value is missing at every step in which it was not measured; after them, where "
        "neither a measured nor a held value stands: there, a default was filled in.",
    )
    rows = [
        [
            feature.name,
            _percent(feature.measured.measured),
            _percent(feature.measured.held),
            _percent(feature.measured.missing_before),
            _percent(feature.measured.missing_after),
        ]
        for feature in features
        if feature.measured is not None
    ]
    yield from _table(["feature", "measured", "held", "missing before holds", "missing after holds"], rows)


def _actions(card: Card, figures: Mapping[str, bytes]) -> Iterator[str]:
    actions = card.actions
    yield "<h2>Actions</h2>"
    yield (
        f"<p>{len(actions.labels) - actions.never} of {len(actions.labels)} actions were taken, {actions.rare} of them "
        "fewer than ten times.</p>"
    )
    hatched = "Hatched: never taken. " if len(actions.axes) == 2 else ""
    yield from _figure(
        figures,
        "actions",
        alt="How often each action was taken; the same as the table below.",
        caption=f"Steps with each action. {hatched}The last step of an episode counts, too, though its action has no "
        "recorded effect.",
    )
    rows = [
        [label, _count(count, card.smallest_cell), "" if count is None else _percent(count / card.steps)]
        for label, count in zip(actions.labels, actions.counts, strict=True)
    ]
    yield from _table(["action", "steps", "share"], rows)


def _horizons(card: Card, figures: Mapping[str, bytes]) -> Iterator[str]:
    quantiles = card.horizons.quantiles
    yield "<h2>Horizons</h2>"
    yield (
        f"<p>Steps per episode: mean {_number(card.horizons.mean)}, median {_number(quantiles['50'])}, middle half "
        f"{_number(quantiles['25'])} to {_number(quantiles['75'])}.</p>"
    )
    beyond = beyond_in_words(card.horizons.histogram)
    yield from _figure(
        figures,
        "horizons",
        alt="Histogram of the number of steps per episode.",
        caption=f"Episodes by number of steps{f', {beyond} those shown' if beyond else ''}.",
    )


def _severity(card: Card, figures: Mapping[str, bytes]) -> Iterator[str]:
    severity = card.severity
    yield "<h2>Outcome by severity</h2>"
    if severity is None:
        yield "<p>No feature was named by which to judge severity.</p>"
        return
    hidden = severity.outcome and any(group.outcome is None for group in severity.groups) and card.smallest_cell > 1
    few = (
        f" < {card.smallest_cell} subj.: so few had {severity.outcome}, or had it not, and the share is not shown."
        if hidden
        else ""
    )
    yield from _figure(
        figures,
        "severity",
        alt=f"Mean change of {severity.feature} by its value at the first step; the same as the table below.",
        caption=f"Change of {severity.feature} from the first to the last step, with 95 % intervals, by its value at "
        f"the first step.{few} Regression to the mean is part of it, and nothing here is an effect of any action.",
    )
    headings = [f"{severity.label} at first", "episodes", "mean first", "mean last", "mean change", "± 95 %"]
    rows = [
        [
            group.label,
            _count(group.episodes, card.smallest_cell),
            *(_number(value) for value in (group.first, group.last, group.change, group.half_interval)),
            *([_percent(group.outcome)] if severity.outcome else []),
        ]
        for group in severity.groups
    ]
    yield from _table([*headings, *([severity.outcome] if severity.outcome else [])], rows)


def _foot(card: Card) -> Iterator[str]:
    yield "<h2>How to read this</h2>"
    size = (
        f"The check of the model's size asks for {VALUES_PER_PARAMETER} recorded next values (transitions times "
        f"dynamic features) per parameter, here for {card.model_size:,} parameters. "
        if card.model_size is not None
        else ""
    )
    hidden = (
        f"Numbers that rest on fewer than {card.smallest_cell} subjects are left out ({NOT_SHOWN}), and so are "
        "extremes of single subjects. "
        if card.smallest_cell > 1
        else "Small cells are shown: not to be handed on without thought. "
    )
    yield (
        f'<p class="note">{hidden}{size}That no warning is given does not mean that the data are sound: what was not '
        "recorded, and why actions were chosen, no card can see.</p>"
    )
    yield f'<p class="note">Made by ifonly {__version__}; schema {escape(card.schema_fingerprint)}.</p>'


def _figure(figures: Mapping[str, bytes], name: str, *, alt: str, caption: str) -> Iterator[str]:
    if name not in figures:
        return
    data = base64.b64encode(figures[name]).decode("ascii")
    yield "<figure>"
    yield f'<img alt="{escape(alt)}" src="data:image/png;base64,{data}">'
    yield f"<figcaption>{escape(caption)}</figcaption>"
    yield "</figure>"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> Iterator[str]:
    """A table whose first columns hold words."""

    def cells(tag: str, texts: Sequence[str]) -> str:
        kinds = [' class="words"' if column < words else "" for column in range(len(texts))]
        return "".join(f"<{tag}{kind}>{escape(text)}</{tag}>" for kind, text in zip(kinds, texts, strict=True))

    yield '<div class="wide"><table>'
    yield f"<thead><tr>{cells('th', headings)}</tr></thead>"
    yield "<tbody>"
    yield from (f"<tr>{cells('td', row)}</tr>" for row in rows)
    yield "</tbody></table></div>"


def _number(value: float | None) -> str:
    """Three digits, more before the point."""
    if value is None:
        return NOT_SHOWN
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _percent(share: float | None, digits: int = 1) -> str:
    return NOT_SHOWN if share is None else f"{100 * share:.{digits}f} %"


def _count(count: int | None, smallest: int) -> str:
    return f"< {smallest} subjects" if count is None else f"{count:,}"
