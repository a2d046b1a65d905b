"""A case as a file: a page that needs no server, a document, a slide, a picture, or data."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Callable
from typing import Literal

from ifonly.records import adapter
from ifonly.report.cases.case import Case
from ifonly.web.guard import RefusalError

Kind = Literal["html", "pdf", "slide.svg", "slide.png", "png", "json"]
MEDIA_TYPES: dict[Kind, str] = {
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
    "slide.svg": "image/svg+xml",
    "slide.png": "image/png",
    "png": "image/png",
    "json": "application/json",
}

_DRAWING = threading.Lock()
"""Matplotlib's fonts and caches are shared, and not made for several threads at once.

It and what reports need are imported when the first file is asked for, so that nobody waits for them at the start.
"""
_TURNS = threading.BoundedSemaphore(8)
"""Pictures that are drawn or wait for it; more of them would take the threads that answer everybody else."""


def exported(case: Case, kind: Kind) -> bytes:
    """The content of the file."""
    if kind == "json":
        return adapter(Case).dump_json(case, indent=2)
    if kind == "html":
        from ifonly.report.cases.page import cases_html

        return cases_html([case]).encode()
    return _picture(case, kind)


def file_name(case: Case, kind: Kind) -> str:
    """A harmless one: ids may hold anything that can be printed."""
    return f"case-{re.sub(r'[^A-Za-z0-9_-]', '_', case.episode)[:80]}.{kind}"


def _picture(case: Case, kind: str) -> bytes:
    from matplotlib.figure import Figure

    from ifonly.report.case_picture import plot_case
    from ifonly.report.case_slide import plot_slide

    if not _TURNS.acquire(blocking=False):
        raise RefusalError(429, "too many pictures")
    draw: Callable[[Case], Figure] = plot_slide if kind.startswith("slide") else plot_case
    try:
        file = io.BytesIO()
        with _DRAWING:
            draw(case).savefig(file, format=kind.rpartition(".")[2])
        return file.getvalue()
    finally:
        _TURNS.release()
