"""A draft as a YAML file for people: every choice with the reason for it, and what to check."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator

from ifonly.data.columns import DoseColumn
from ifonly.data.drafts.draft import Draft
from ifonly.data.drafts.guesses import FeatureGuess
from ifonly.data.schema import Axis
from ifonly.data.store import SCHEMA_FORMAT, SCHEMA_VERSION, UNIT_TO_FILL_IN
from ifonly.version import __version__

COMMENT_COLUMN = 34
"""Comments begin here, where what they are about ends before."""

WIDTH = 118

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./%-]*( [A-Za-z0-9_./%-]+)*")
_NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
"""Bare, YAML takes these for something else."""


def draft_text(draft: Draft, table: str) -> str:
    """The content of a schema file for a table of this name; `load_schema` reads it once the units are filled in."""
    lines = [
        *_head(draft, table),
        "",
        f"format: {SCHEMA_FORMAT}",
        f"version: {SCHEMA_VERSION}",
        "",
        *_table(draft),
        "",
        *_features(draft),
        "",
        *_actions(draft),
        "",
        *_step(draft),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(draft: Draft, table: str) -> Iterator[str]:
    yield from _comment(
        f"A first schema of {table}, guessed by ifonly {__version__} from {draft.rows:,} rows in {draft.episodes:,} "
        f'episodes. Check every line. Replace every unit "{UNIT_TO_FILL_IN}", which `ifonly import` refuses.'
    )
    refused = [problem for problem in draft.problems if problem.refused]
    others = [problem for problem in draft.problems if not problem.refused]
    for heading, problems in (
        ("To be solved in the table before `ifonly import` takes it:", refused),
        ("To be looked at:", others),
    ):
        if problems:
            yield "#"
            yield f"# {heading}"
            for problem in problems:
                yield from _comment(str(problem), first="# - ", rest="#   ")
    if draft.left_out:
        yield "#"
        yield "# Columns left out:"
        for name, why in draft.left_out.items():
            # Some of them are left out because they cannot be shown; YAML would refuse them even in a comment.
            shown = json.dumps(name, ensure_ascii=False) if name.isprintable() else ascii(name)
            yield from _comment(f"{shown}: {why}", first="# - ", rest="#   ")


def _table(draft: Draft) -> Iterator[str]:
    columns = draft.columns
    yield "table:"
    yield _line("  ", "episode", columns.episode, f"{draft.episodes:,} episodes")
    yield _line(
        "  ", "step", columns.step, "one row per step" if columns.spacing else "counts 0, 1, 2, ... or 1, 2, 3, ..."
    )
    if columns.spacing is not None:
        yield _line("  ", "spacing", columns.spacing, "from one step to the next; episodes begin where they begin")
    if columns.subject is not None:
        yield _line(
            "  ",
            "subject",
            columns.subject,
            f"{draft.subjects:,} subjects; all episodes of one stay together in splits",
        )
    else:
        yield from _comment(
            "no column of subjects was found: every episode counts as its own. If several are about the same one, "
            "name its column here, as subject: COLUMN, lest a model be tested on what it was fitted to.",
            first="  # ",
            rest="  # ",
        )
    if not columns.doses:
        yield _line("  ", "action", columns.action, draft.actions.reasons[columns.action])
        return
    yield "  doses:"
    for dose in columns.doses:
        yield from _dose(dose)


def _dose(dose: DoseColumn) -> Iterator[str]:
    yield f"  - axis: {_value(dose.axis)}"
    yield f"    column: {_value(dose.column)}"
    if dose.edges:
        yield _line(
            "    ", "edges", list(dose.edges), "level i: above edge i - 1, up to edge i; the last one: all above"
        )
    else:
        yield "    # no edges: every dose is one of the axis' levels"


def _features(draft: Draft) -> Iterator[str]:
    yield from _comment(
        "kind: dynamic, what actions can change; contextual, a value per step that they cannot; static, a value per "
        "episode"
    )
    yield from _comment("plausible: values outside are counted and reported, and outcomes clipped to it; guessed wide")
    yield "features:"
    for guess in draft.features:
        yield from _feature(guess)


def _feature(guess: FeatureGuess) -> Iterator[str]:
    feature = guess.feature
    yield f"- name: {_value(feature.name)}"
    yield _line("  ", "kind", feature.kind, guess.kind_reason)
    yield _line("  ", "unit", feature.unit, guess.unit_reason)
    yield _line("  ", "scaling", feature.scaling, guess.scaling_reason)
    if feature.log_offset:
        yield _line("  ", "log_offset", feature.log_offset, "added before the logarithm")
    assert feature.plausible is not None, "every guessed feature has a range"
    if feature.scaling == "bounded":
        remark = "all that is possible; `ifonly import` refuses values outside"
    else:
        remark = "check" if feature.plausible != (0.0, 1.0) else ""
    yield _line("  ", "plausible", list(feature.plausible), remark)


def _actions(draft: Draft) -> Iterator[str]:
    space = draft.actions.space
    yield "actions:"
    if not space.axes:
        yield "  categories:"
        for label, count in zip(space.labels, draft.actions.counts, strict=True):
            yield _commented(
                f"  - {_value(label)}", f"taken {count:,} times" if count >= 5 else "taken fewer than 5 times"
            )
        return
    yield f"  # {len(space)} actions: every combination of levels, the last axis varying fastest"
    yield "  axes:"
    for axis, dose in zip(space.axes, draft.columns.doses, strict=True):
        yield from _axis(axis, draft.actions.reasons[dose.column])


def _axis(axis: Axis, why: str) -> Iterator[str]:
    yield f"  - name: {_value(axis.name)}"
    yield _line("    ", "unit", axis.unit, 'fill in; "" for none' if axis.unit == UNIT_TO_FILL_IN else "check")
    yield _line("    ", "levels", list(axis.levels), why)
    if axis.plausible is not None:
        yield _line("    ", "plausible", list(axis.plausible), "doses outside are refused: slips, other units; check")


def _step(draft: Draft) -> Iterator[str]:
    yield "step:"
    yield _line("  ", "length", draft.schema.step_length, "of one step, in the unit below")
    yield _line("  ", "unit", draft.schema.step_unit, "such as h or d" if draft.schema.step_unit == "step" else "check")


def _line(indent: str, key: str, value: str | float | list[float], comment: str) -> str:
    return _commented(f"{indent}{key}: {_value(value)}", comment)


def _commented(line: str, comment: str) -> str:
    return f"{line:<{COMMENT_COLUMN}}  # {comment}" if comment else line


def _value(value: str | float | list[float]) -> str:
    """As YAML reads it back: text bare where that is safe, numbers without a needless .0."""
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, str):
        bare = _PLAIN.fullmatch(value) and value.casefold() not in _NOT_TEXT
        return value if bare else json.dumps(value, ensure_ascii=False)
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _comment(text: str, *, first: str = "# ", rest: str = "# ") -> Iterator[str]:
    """Text broken into lines of comment."""
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
