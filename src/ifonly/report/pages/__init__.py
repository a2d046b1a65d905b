"""What a reviewer looks at: templates and static files that the report and the server have in common.

Templates and what each is given (`render(name, **context)`), all of it in plain JSON types (`ifonly.records.to_plain`),
but for cases of `case.html`, which may be records:

- `list.html`: `about` (`web.api.About`), `first` (`web.listing.ListPage`), `query` (the page's parameters)
- `case.html`: `case` (`report.cases.Case`), `about`, `reviews` (notes of `web.notes.Note`)
- `error.html`: `status` (number), `what`, `do` (sentences)
- `login.html`: `failed` (whether a wrong token was given), `next` (the path to go to afterwards);
  its form posts `token` and `next` to /login
- `report.html`: `summary` (`report.case_report.summary_page`, or None: a single case), `cases` (a list of `Case`);
  one file that needs no other; an episode of the summary that is among `cases` is linked to its page.
- `card.html` and `check.html`: pages without scripts, of data cards and of model checks, in the frame of `plain.html`

Words are the catalogue's: templates and scripts `say` codes and messages; pages carry the sentences as JSON.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from ifonly.errors import InputError
from ifonly.records import adapter
from ifonly.text.catalogue import catalogue, say

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
PLOTLY = "plotly.min.js"
"""The charting library, which ships in the Python package plotly."""

REPORT_STYLES = ("palette.css", "ifonly.css")
REPORT_SCRIPTS = (
    PLOTLY,
    "words.js",
    "glossary.js",
    "charts.js",
    "lanes.js",
    "tables.js",
    "evidence.js",
    "courses.js",
    "timeline.js",
    "compare.js",
    "case.js",
    "cohort.js",
    "report.js",
)
"""What a report carries inside itself, in the order in which it runs."""

EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
"""The hash of nothing: the charting library adds an empty style element and fills it by script."""


def render(template: str, **context: Any) -> str:
    """The page as HTML; everything in `context` is escaped where it is put in."""
    return _environment().get_template(template).render(**context)


@cache
def asset(name: str) -> str:
    """The text of one of `static_files()`."""
    files = static_files()
    if name not in files:
        raise InputError(f"pages: there is no static file {name!r}; there are {sorted(files)}.")
    return files[name].read_text(encoding="utf-8")


@cache
def static_files() -> Mapping[str, Path]:
    """Everything that the server may serve under /static/, by name."""
    own = {path.name: path for path in sorted(STATIC.iterdir()) if path.suffix in {".css", ".js", ".svg"}}
    return {**own, PLOTLY: _plotly_file()}


@cache
def report_policy() -> str:
    """The content-security policy of a report: its own scripts and styles by their hashes, and nothing else."""
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {_hashes(REPORT_SCRIPTS)}",
            f"style-src {_hashes(REPORT_STYLES)} {EMPTY_STYLE}",
            "style-src-attr 'unsafe-inline'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


@cache
def chart_style_ids() -> Sequence[str]:
    """Ids of style elements that the charting library adds unless there is one; a strict policy refuses them.

    They belong to maps, which are not drawn here: pages hold an empty element with the same id instead.
    """
    return sorted(set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', asset(PLOTLY))))


def _hashes(names: Sequence[str]) -> str:
    digests = (hashlib.sha256(asset(name).encode()).digest() for name in names)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _plotly_file() -> Path:
    found = find_spec("plotly")  # to import it would take longer than the page
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "package_data" / PLOTLY


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Numbers that JSON does not have would make a page that no browser can read.
    environment.policies["json.dumps_function"] = _json
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "ensure_ascii": False, "separators": (",", ":")}
    environment.globals |= {
        "catalogue": catalogue,
        "sentences_json": _sentences_json,
        "say": _say,
        "chart_style_ids": chart_style_ids,
        "inline": lambda name: Markup(asset(name)),
        "report_policy": report_policy,
        "report_scripts": REPORT_SCRIPTS,
        "report_styles": REPORT_STYLES,
    }
    return environment


def _json(value: Any, **settings: Any) -> str:
    """Plain types or a record as JSON; to make a record plain first takes longer."""
    return adapter(type(value)).dump_json(value).decode() if is_dataclass(value) else json.dumps(value, **settings)


@cache
def _sentences_json() -> Markup:
    """All sentences as JSON for a page; the same for every page of the server, where making it anew takes long."""
    return htmlsafe_json_dumps(catalogue(), **_environment().policies["json.dumps_kwargs"])


def _say(what: str | Mapping[str, Any], **values: Any) -> str:
    """The sentence of a code, or of a message in plain types."""
    return say(what, **values) if isinstance(what, str) else say(what["code"], **what["values"])
