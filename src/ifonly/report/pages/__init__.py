"""What a reviewer looks at: templates and static files that the report and the server have in common.

Templates and what each is given (`render(name, **context)`); dictionaries are plain JSON types:

- `list.html`: `about` (of /api/about), `first` (of /api/episodes, for the query of the page), `query` (its parameters)
- `case.html`: `case` (`Case.to_dict()`), `about`, `note` (of /api/notes, or None)
- `error.html`: `status` (number), `what`, `do` (sentences)
- `login.html`: `failed` (whether a wrong token was given), `next` (the path to go to afterwards);
  its form posts `token` and `next` to /login
- `report.html`: `summary` (None: a single case), `cases` (list of `Case.to_dict()`); one file that needs no other.

`summary` of a report: {"title", "threshold" (relative improvement, or None),
"question": as in a Case, "counts": [{"label", "value", "note" (optional)}],
"improvements": [one number per answered episode], "by_changes": [{"max_changes", "mean", "low", "high", "median"}],
"rows": [{"episode", "steps", "observed", "best", "improvement", "changes", "status", "proven", "refits_agree",
"refits", "warnings" (a number, or None: not examined)}], "notes": [sentences], "model": as in a Case,
"trust": None, or {"examined", "without_warnings", "median_agreement", "groups": [{"standing", "episodes", "median",
"lower_quartile", "upper_quartile", "cases"}], "warnings": [{"warning", "episodes", "share"}],
"agreement": [{"low", "high", "episodes"}]}};
an episode of `rows` that is among `cases` is linked to its page.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ifonly.errors import InputError

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"
PLOTLY = "plotly.min.js"
"""The charting library, which ships in the Python package plotly."""

REPORT_STYLES = ("ifonly.css",)
REPORT_SCRIPTS = (
    PLOTLY,
    "words.js",
    "charts.js",
    "lanes.js",
    "tables.js",
    "trust.js",
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
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "ensure_ascii": False, "separators": (",", ":")}
    environment.globals |= {
        "chart_style_ids": chart_style_ids,
        "inline": lambda name: Markup(asset(name)),
        "report_policy": report_policy,
        "report_scripts": REPORT_SCRIPTS,
        "report_styles": REPORT_STYLES,
    }
    return environment
