"""The page of a model check: one file with the verdict, findings with what to do about them, and the figures."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ifonly.errors import StoreError
from ifonly.evidence.check.model_check import Finding, ModelCheck
from ifonly.evidence.check.remedies import TriedRemedy
from ifonly.files import write_text_atomically
from ifonly.report.check_plots import check_figures
from ifonly.report.pages import render
from ifonly.text.catalogue import Message, say
from ifonly.text.checks import cause_message, finding_message, headline, place_message, remedy_messages, trial_rows
from ifonly.text.numbers import percent
from ifonly.version import __version__

MARK = "ifonly check"
"""By which a page is known as one of these, which a later one may replace."""

MOST_PLACES = 8
"""Places of a finding that the page names; check.txt names all."""


def write_check_page(found: ModelCheck, path: str | Path, *, trials: Sequence[TriedRemedy] = ()) -> None:
    """Write the page of a check as one HTML file that needs no other."""
    require_page(path)
    images = {name: _png(figure) for name, figure in check_figures(found).items()}
    write_text_atomically(path, check_page(found, images, title=Path(path).stem, trials=trials))


def require_page(path: str | Path) -> None:
    """Refuse to replace anything but an earlier page."""
    file = Path(path)
    if not file.is_file():
        return
    with file.open(encoding="utf-8", errors="replace") as content:
        head = content.read(2000)
    if f'content="{MARK}"' not in head:
        raise StoreError(f"{file} exists and is no page of a check; move it away, or choose another name.")


def check_page(found: ModelCheck, images: Mapping[str, str], *, title: str, trials: Sequence[TriedRemedy] = ()) -> str:
    """The page, with figures given as PNG in base64: no scripts, nothing fetched, fit to be printed."""
    concerns = found.concerns()
    return render(
        "check.html",
        title=say("checkpage.title", title=title),
        mark=MARK,
        verdict=found.verdict.value,
        headline=str(headline(found)),
        about=_about(found),
        findings=[_told(finding, found) for finding in concerns],
        others=[_told(finding, found) for finding in found.findings if finding not in concerns],
        trials=trial_rows(found, trials) if trials else [],
        figures=images,
        reading=say("checkpage.reading", smallest=found.thresholds.smallest_cell),
        made_by=say("checkpage.made by", version=__version__, model=found.model, cohort=found.cohort),
    )


def _about(found: ModelCheck) -> list[str]:
    seen = Message("check.seen" if found.seen_in_training else "check.unseen")
    lines = [say("checkpage.about", seen=seen, **vars(found))]
    if found.figures.measured:
        shares = found.figures.measured.items()
        names = [Message("checkpage.measured share", {"name": name, "share": percent(share)}) for name, share in shares]
        lines.append(say("checkpage.measured", names=names))
    return lines


def _told(finding: Finding, check: ModelCheck) -> dict[str, Any]:
    """A finding as the page shows it."""
    cause = cause_message(finding)
    return {
        "level": finding.level.value,
        "text": str(finding_message(finding, check)),
        "places": [str(place_message(place, check)) for place in finding.places[1:MOST_PLACES]],
        "cause": None if cause is None else say("checkpage.cause", cause=cause),
        "remedies": [str(message) for message in remedy_messages(finding)],
    }


def _png(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
