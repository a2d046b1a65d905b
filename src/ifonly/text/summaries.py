"""A run's summary in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ifonly.text.catalogue import Message, say
from ifonly.text.checks import concern_message
from ifonly.text.numbers import counted, percent

if TYPE_CHECKING:
    from ifonly.report.summary import AnswerCounts, RunSummary


def summary_lines(summary: RunSummary) -> str:
    """A few aligned lines for a terminal, and what is proven."""
    lines: dict[str, Callable[[RunSummary], str]] = {
        "episodes": _episodes,
        summary.outcomes.label: _outcomes,
        "improvement": _improvement,
        "interesting": _cases,
        "changes": _changes,
        "model check": _model_check,
        "evidence": _evidence,
        "work": _work,
    }
    width = max(len(name) for name in lines)
    return "\n".join([*(f"{name:<{width}}  {say_it(summary)}" for name, say_it in lines.items()), statement(summary)])


def statement(summary: RunSummary) -> str:
    """What is and is not proven, in sentences."""
    return " ".join(str(message) for message in statement_messages(summary))


def statement_messages(summary: RunSummary) -> list[Message]:
    """What is and is not proven: a sentence or two each."""
    counts = summary.counts
    parts = [_proven(summary)]
    if summary.evidence.model_failed:
        parts.append(Message("summary.failed model"))
    for name, noun, count in (
        ("failed", "episode", counts.failed),
        ("without improvement", "answer", counts.without_improvement),
        ("without outcome", "answer", counts.without_outcome),
    ):
        if count:
            parts.append(Message(f"summary.{name}", {f"{noun}s": counted(count, noun), "count": count}))
    left = (counts.expected or 0) - counts.episodes
    if left > 0:
        parts.append(Message("summary.unfinished", {"episodes": counted(left, "episode"), "count": left}))
    return parts


def unfinished(counts: AnswerCounts) -> str:
    """What is to know of a run that is not finished, in a sentence or two; nothing of one that is."""
    left = (counts.expected or 0) - counts.episodes
    return say("summary.unfinished", episodes=counted(left, "episode"), count=left) if left > 0 else ""


def _proven(summary: RunSummary) -> Message:
    counts = summary.counts
    answers = counted(counts.answered, "answer")
    if not counts.limited:
        return Message("summary.proven.all", {"answers": answers})
    numbers = {"proven": f"{counts.proven:,}", "limited": f"{counts.limited:,}"}
    return Message("summary.proven.some", {"answers": answers, **numbers, "brackets": _brackets(summary)})


def _brackets(summary: RunSummary) -> Message | str:
    """How much better it could be, as far as bounds are known."""
    found, without = summary.improvement, summary.counts.without_bound
    if not found.episodes:
        return ""
    ends = {"mean": (found.mean, found.upper_mean), "median": (found.median, found.upper_median)}
    brackets = [
        Message("summary.bracket", {"average": name, "low": percent(low, 2), "high": percent(high, 2)})
        for name, (low, high) in ends.items()
        if high is not None
    ]
    values = {
        "brackets": Message("summary.brackets", {"brackets": brackets}) if brackets else "",
        "without": Message("summary.without bound", {"number": f"{without:,}"}) if without else "",
    }
    return Message("summary.bracketed", values)


def _episodes(summary: RunSummary) -> str:
    counts = summary.counts
    done, expected = f"{counts.episodes:,}", counts.expected
    whole = expected is None or expected == counts.episodes
    limits = ", ".join(f"{number:,} {name}" for name, number in counts.statuses.items() if name != "optimal")
    return say(
        "summary.line.episodes",
        total=done if whole else say("summary.line.episodes.of", done=done, expected=f"{expected:,}"),
        **{name: f"{getattr(counts, name):,}" for name in ("proven", "limited", "failed")},
        limits=say("summary.line.episodes.limits", limits=limits) if limits else "",
    )


def _outcomes(summary: RunSummary) -> str:
    shown = summary.outcomes
    names = ("observed_median", "counterfactual_median", "observed_mean", "counterfactual_mean")
    found = {name: getattr(shown, name) for name in names}
    figures = {name: "unknown" if value is None else f"{value:.1f}" for name, value in found.items()}
    return say("summary.line.outcome", **figures, better="higher" if shown.higher_is_better else "lower")


def _improvement(summary: RunSummary) -> str:
    found = summary.improvement
    if not found.episodes:
        return say("summary.line.improvement.none")
    names = ("median", "lower_quartile", "upper_quartile", "mean", "largest")
    shares = {name: percent(getattr(found, name)) for name in names}
    ends = {"low": percent(found.low), "high": percent(found.high)}
    return say(
        "summary.line.improvement",
        **shares,
        interval="" if found.low is None else say("summary.line.improvement.interval", **ends),
    )


def _cases(summary: RunSummary) -> str:
    count, total, more = summary.cases.height, summary.improvement.episodes, summary.possible_cases
    return say(
        "summary.line.interesting",
        cases=f"{count:,}",
        episodes=counted(total, "episode"),
        share=say("summary.line.interesting.share", share=percent(count / total)) if total else "",
        threshold=f"{100 * summary.threshold:g} %",
        more=say("summary.line.interesting.more", number=f"{more:,}", count=more) if more else "",
    )


def _changes(summary: RunSummary) -> str:
    used = zip(summary.changes_used["changes"], summary.changes_used["share"], strict=True)
    shares = [say("summary.line.changes.share", changes=changes, share=percent(share)) for changes, share in used]
    return say("summary.line.changes", shares=", ".join(shares))


def _model_check(summary: RunSummary) -> str:
    check = summary.evidence.model_check
    if check is None:
        return say("summary.line.model check.none")
    reasons: list[Any] = [concern_message(kind) for kind in check["findings"]]
    return say(
        "summary.line.model check",
        verdict=check["verdict"],
        episodes=counted(check["episodes"], "episode"),
        reasons=say("summary.line.model check.reasons", reasons=reasons) if reasons else "",
    )


def _evidence(summary: RunSummary) -> str:
    """How many answers raise no warning, and how far refits agree."""
    found = summary.evidence
    if not found.examined:
        return say("summary.line.evidence.none")
    agree = {"agree": f"{found.all_refits_agree:,}", "refits": f"{found.refits:,}"}
    share = percent(found.median_agreement, 0)
    median = found.median_without_warnings
    return say(
        "summary.line.evidence",
        clean=f"{found.without_warnings:,}",
        examined=counted(found.examined, "examined answer"),
        median="" if median is None else say("summary.line.evidence.median", median=percent(median)),
        refits=say("summary.line.evidence.refits", **agree, share=share) if found.refits else "",
    )


def _work(summary: RunSummary) -> str:
    work = summary.work
    rate = work.answers_per_second
    return say(
        "summary.line.work",
        seconds=f"{work.seconds:,.1f}",
        median=f"{work.median_seconds:.3g}",
        slowest=f"{work.slowest_seconds:.3g}",
        rate="" if rate is None else say("summary.line.work.rate", rate=f"{rate:.3g}"),
        nodes=f"{work.nodes:,}",
    )
