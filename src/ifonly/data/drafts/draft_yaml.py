"""A draft as a YAML file for people: every choice with the reason for it, and what to check.

Its text stands in first_schema.yaml beside this module.
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from ifonly.data.drafts.draft import Draft
from ifonly.data.store import SCHEMA_FORMAT, SCHEMA_VERSION, UNIT_TO_FILL_IN
from ifonly.version import __version__

COMMENT_COLUMN = 34
"""Comments begin here, where what they are about ends before."""

WIDTH = 118
_WHY = "\x1f"
"""Parts a line from the reason for it; no name holds a sign that cannot be seen."""

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./%-]*( [A-Za-z0-9_./%-]+)*")
_NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
"""Bare, YAML takes these for something else."""


def draft_text(draft: Draft, table: str) -> str:
    """The content of a schema file for a table of this name; `load_schema` reads it once the units are filled in."""
    environment = Environment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"value": _value, "comment": _comment}
    template = environment.from_string(Path(__file__).with_name("first_schema.yaml").read_text(encoding="utf-8"))
    text = template.render(
        draft=draft,
        table=table,
        columns=draft.columns,
        space=draft.actions.space,
        counts=draft.actions.counts,
        remarks=_remarks(draft),
        format=SCHEMA_FORMAT,
        version=SCHEMA_VERSION,
        made_by=__version__,
        unknown=UNIT_TO_FILL_IN,
        why=_WHY,
        number="{:,}".format,
    )
    return "\n".join(_aligned(line) for line in text.split("\n")) + "\n"


def _remarks(draft: Draft) -> dict[str, list[str]]:
    """What stands at the head of the file, by its headings."""
    return {
        "To be solved in the table before `ifonly import` takes it:": [str(p) for p in draft.problems if p.refused],
        "To be looked at:": [str(problem) for problem in draft.problems if not problem.refused],
        "Columns left out:": [f"{_shown(name)}: {why}" for name, why in draft.left_out.items()],
    }


def _shown(name: str) -> str:
    """Some columns are left out because they cannot be shown; YAML would refuse them even in a comment."""
    return json.dumps(name, ensure_ascii=False) if name.isprintable() else ascii(name)


def _aligned(line: str) -> str:
    """A line with the reason for it, if there is one, in a comment."""
    entry, _, reason = line.partition(_WHY)
    aligned = f"{entry.rstrip():<{COMMENT_COLUMN}}  # {reason.strip()}"
    return aligned if reason.strip() else entry.rstrip()


def _value(value: str | float | tuple[str | float, ...]) -> str:
    """As YAML reads it back: text bare where that is safe, numbers without a needless .0."""
    if isinstance(value, tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, str):
        bare = _PLAIN.fullmatch(value) and value.casefold() not in _NOT_TEXT
        return value if bare else json.dumps(value, ensure_ascii=False)
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _comment(text: str, first: str = "# ", rest: str = "# ") -> str:
    """Text broken into lines of comment."""
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines)
