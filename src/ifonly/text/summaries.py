"""A run's summary in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ifonly.text.catalogue import Message, say
from ifonly.text.checks import concern_messages
from ifonly.text.numbers import counted, outcomes, percent

if TYPE_CHECKING:
    from ifonly.report.summary import RunSummary


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
    return "\n".join(
        [*(f"{name:<{width}}  {say_it(summary)}" for name, say_it in lines.items()), summary_statement(summary)]
    )


def summary_statement(summary: RunSummary) -> str:
    """What is and is not proven, in sentences."""
    return " ".join(str(message) for message in statement_messages(summary))


def statement_messages(summary: RunSummary) -> list[Message]:
    """What is and is not proven: a sentence or two each."""
    counts = summary.counts
    answers = counted(counts.answered, "answer")
    parts = [_proven(summary)]
    if summary.evidence.model_failed:
        parts.append(Message("summary.failed model"))
    for name, noun, count in (
        ("failed", "episode", counts.failed),
        ("without improvement", "answer", counts.without_improvement),
        ("without outcome", "answer", counts.without_outcome),
        ("abstained", "answer", summary.abstained),
        ("unfinished", "episode", counts.left),
    ):
        if count:
            parts.append(Message(f"summary.{name}", {f"{noun}s": counted(count, noun), "count": count}))
    if summary.evidence.hidden_clearly and summary.evidence.examined:
        parts.append(Message("summary.hidden"))
    elif summary.evidence.debiased:
        supported = summary.evidence.verdicts.get("supported", 0)
        parts.append(Message("summary.supported", {"supported": supported, "answers": answers}))
    if (left := summary.evidence.share_left) is not None:
        values = {"answers": counted(summary.evidence.debiased, "answer"), "left": percent(left, 0)}
        parts.append(Message("summary.chosen", values))
    if found := summary.evidence.judged_by_organs:
        values = {"number": f"{summary.evidence.not_borne_out:,}", "answers": counted(found, "answer")}
        parts.append(Message("summary.organs", values))
    return parts


def pattern_message(row: Mapping[str, Any]) -> Message:
    """A row of the table of patterns in words: what is changed, how, and when."""
    when = {"unit": row["unit"], "since": f"{row['since']:g}", "until": f"{row['until']:g}"}
    code = f"pattern.{row['direction']}.{row['levels']}"
    return Message(code, {"axis": row["axis"], "when": Message("pattern.when", when)})


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
    limits = ", ".join(f"{number:,} {name}" for name, number in counts.statuses.items() if name != "optimal")
    return say(
        "summary.line.episodes",
        total=say(f"summary.line.episodes.{'of' if counts.left else 'all'}", **vars(counts)),
        limits=say("summary.line.episodes.limits", limits=limits) if limits else "",
        **vars(counts),
    )


def _outcomes(summary: RunSummary) -> str:
    shown = summary.outcomes
    if shown.observed_median is None or shown.counterfactual_median is None:
        return say("summary.line.outcome.none")
    values = dict[str, str]()
    for average in ("median", "mean"):
        names = [f"{course}_{average}" for course in ("observed", "counterfactual")]
        values |= zip(names, outcomes(*(getattr(shown, name) for name in names)), strict=True)
    return say("summary.line.outcome", **values, better="higher" if shown.higher_is_better else "lower")


def _improvement(summary: RunSummary) -> str:
    found = summary.improvement
    if not found.episodes:
        return say(f"summary.line.improvement.{'none' if summary.believed.height else 'abstained'}")
    interval = "" if found.low is None else say("summary.line.improvement.interval", **vars(found))
    return say("summary.line.improvement", **vars(found), interval=interval)


def _cases(summary: RunSummary) -> str:
    count, total, more = summary.cases.height, summary.improvement.episodes, summary.possible_cases
    return say(
        "summary.line.interesting",
        cases=count,
        episodes=counted(total, "episode"),
        share=say("summary.line.interesting.share", share=count / total) if total else "",
        threshold=summary.threshold,
        more=say("summary.line.interesting.more", number=more) if more else "",
    )


def _changes(summary: RunSummary) -> str:
    shares = [say("summary.line.changes.share", **row) for row in summary.changes_used.to_dicts()]
    if not shares:
        return say("summary.line.changes.none")
    return say("summary.line.changes", shares=", ".join(shares))


def _model_check(summary: RunSummary) -> str:
    check = summary.evidence.model_check
    if check is None:
        return say("summary.line.model check.none")
    reasons = concern_messages(check["findings"])
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
    no_median = found.median_without_warnings is None
    return say(
        "summary.line.evidence",
        judged=say("summary.line.evidence.judged", verdicts=verdicts_text(found.verdicts)) if found.verdicts else "",
        answers=counted(found.examined, "examined answer"),
        median="" if no_median else say("summary.line.evidence.median", **vars(found)),
        agreeing=say("summary.line.evidence.refits", **vars(found)) if found.refits else "",
        **vars(found),
    )


def verdicts_text(verdicts: Mapping[str, int]) -> str:
    """How many answers have which verdict.

    >>> verdicts_text({"supported": 14, "uncertain": 1})
    '14 supported, 1 uncertain'
    """
    return ", ".join(f"{number:,} {verdict}" for verdict, number in verdicts.items())


def _work(summary: RunSummary) -> str:
    work = summary.work
    rate = "" if work.answers_per_second is None else say("summary.line.work.rate", **vars(work))
    return say("summary.line.work", rate=rate, **vars(work))
