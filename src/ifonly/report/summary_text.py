"""A run's summary in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ifonly.report.trusting import CLEAN
from ifonly.result import Status

if TYPE_CHECKING:
    from ifonly.report.summary import Counts, Summary


def described(summary: Summary) -> str:
    """A few aligned lines for a terminal, and what is proven."""
    lines = [
        ("episodes", _episodes(summary)),
        (summary.outcomes.label, _outcomes(summary)),
        ("improvement", _improvement(summary)),
        ("interesting", _cases(summary)),
        ("changes", _changes(summary)),
        ("model check", _model_check(summary)),
        ("trust", _trust(summary)),
        ("work", _work(summary)),
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join([*(f"{name:<{width}}  {text}" for name, text in lines), summary.statement])


def statement(summary: Summary) -> str:
    """What is and is not proven, in sentences."""
    counts = summary.counts
    answers = plural(counts.answered, "answer")
    if not counts.limited:
        proven = f"Every one of the {answers} is proven optimal under the model."
    else:
        proven = (
            f"{counts.proven:,} of {answers} are proven optimal under the model; the improvement of the other "
            f"{counts.limited:,} is a lower bound.{_brackets(summary)}"
        )
    parts = [proven]
    if summary.trust.model_failed:
        parts.append("But the model failed its check: it was asked all the same, and its optima mean little.")
    if counts.failed:
        parts.append(f"{plural(counts.failed, 'episode')} failed and {_verb(counts.failed)} not in these figures.")
    if counts.without_improvement:
        parts.append(
            f"{plural(counts.without_improvement, 'answer')} with an observed outcome of zero "
            f"{'has' if counts.without_improvement == 1 else 'have'} no relative improvement."
        )
    if counts.without_outcome:
        parts.append(
            f"{plural(counts.without_outcome, 'answer')} without a known outcome within the features' ranges "
            f"{_verb(counts.without_outcome)} not in averages."
        )
    return " ".join([*parts, unfinished(counts)]).strip()


def unfinished(counts: Counts) -> str:
    """What is to know of a run that is not finished, in a sentence or two; nothing of one that is."""
    if counts.expected is None or counts.expected <= counts.episodes:
        return ""
    left = counts.expected - counts.episodes
    return (
        f"The run is not finished: {plural(left, 'episode')} {_verb(left)} still to come. The longest come first, so "
        "these are not averages of the cohort."
    )


def percent(value: float | None, digits: int = 1) -> str:
    """A share in percent, as people read it.

    >>> percent(0.0523), percent(None)
    ('5.2 %', 'unknown')
    """
    return "unknown" if value is None else f"{100 * value:.{digits}f} %"


def plural(count: int, noun: str) -> str:
    """A count with its noun.

    >>> plural(1, "episode"), plural(1200, "episode")
    ('1 episode', '1,200 episodes')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _brackets(summary: Summary) -> str:
    """How much better it could be, as far as bounds are known."""
    found = summary.improvement
    if not found.episodes:
        return ""
    brackets = [
        f"the {name} lies between {percent(low, 2)} and {percent(high, 2)}"
        for name, low, high in (
            ("mean", found.mean, found.upper_mean),
            ("median", found.median, found.upper_median),
        )
        if high is not None
    ]
    words = ""
    if brackets:
        words = f" Of the best sequences, clipping aside, {' and '.join(brackets)}."
    unknown = summary.counts.without_bound
    if unknown:
        words += f" No upper bound is known for {unknown:,} of them."
    return words


def _episodes(summary: Summary) -> str:
    counts = summary.counts
    expected = counts.expected
    total = f"{counts.episodes:,}" if expected in (None, counts.episodes) else f"{counts.episodes:,} of {expected:,}"
    limits = [f"{number:,} {name}" for name, number in counts.statuses.items() if name != Status.OPTIMAL.value]
    limited = f"{counts.limited:,} limited" + (f" ({', '.join(limits)})" if limits else "")
    return f"{total}: {counts.proven:,} proven, {limited}, {counts.failed:,} failed"


def _outcomes(summary: Summary) -> str:
    shown = summary.outcomes
    better = "higher" if shown.higher_is_better else "lower"
    return (
        f"median {_figure(shown.observed_median)} observed -> {_figure(shown.counterfactual_median)} counterfactual "
        f"(mean {_figure(shown.observed_mean)} -> {_figure(shown.counterfactual_mean)}; {better} is better)"
    )


def _figure(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}"


def _improvement(summary: Summary) -> str:
    found = summary.improvement
    if not found.episodes:
        return "none can be given: outcomes are zero or unknown"
    interval = "" if found.low is None else f" (95 % interval {percent(found.low)} to {percent(found.high)})"
    return (
        f"median {percent(found.median)}, quartiles {percent(found.lower_quartile)} and "
        f"{percent(found.upper_quartile)}, mean {percent(found.mean)}{interval}, largest {percent(found.largest)}"
    )


def _cases(summary: Summary) -> str:
    count, total = summary.cases.height, summary.improvement.episodes
    share = f" ({percent(count / total)})" if total else ""
    words = f"{count:,} of {plural(total, 'episode')}{share} would be at least {100 * summary.threshold:g} % better"
    more = summary.possible_cases
    return words + (f"; {more:,} limited {'one' if more == 1 else 'ones'} may be, too" if more else "")


def _changes(summary: Summary) -> str:
    used = zip(summary.changes_used["changes"], summary.changes_used["share"], strict=True)
    return ", ".join(f"{changes} in {percent(share)}" for changes, share in used) + " of the answers"


def _model_check(summary: Summary) -> str:
    check = summary.trust.model_check
    return "not done" if check is None else f"{check['summary']} (on {plural(check['episodes'], 'episode')})"


def _trust(summary: Summary) -> str:
    """How many answers raise no warning, and how far refits agree."""
    found = summary.trust
    if not found.examined:
        return "not examined"
    words = f"{found.without_warnings:,} of {plural(found.examined, 'examined answer')} raise no warning"
    clean = [row for row in summary.by_standing.iter_rows(named=True) if row["standing"] == CLEAN]
    if clean and clean[0]["median"] is not None:
        words += f" (median improvement {percent(clean[0]['median'])})"
    if found.refits:
        words += (
            f"; all refits agree in {found.all_refits_agree:,} of {found.refits:,}, in the median "
            f"{percent(found.median_agreement, 0)} of them"
        )
    return words


def _work(summary: Summary) -> str:
    work = summary.work
    rate = (
        ""
        if work.answers_per_second is None
        else f", {work.answers_per_second:.3g} answers per worker and second of searching"
    )
    return (
        f"{work.seconds:,.1f} s in all (median {work.median_seconds:.3g}, slowest {work.slowest_seconds:.3g}){rate}, "
        f"{work.nodes:,} nodes"
    )


def _verb(count: int) -> str:
    return "is" if count == 1 else "are"
