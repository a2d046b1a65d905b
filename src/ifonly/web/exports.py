"""A case as a file: a page that needs no server, a picture, or data."""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from ifonly.web.refusals import RefusalError

_DRAWING = threading.Lock()
"""Matplotlib's fonts and caches are shared, and not made for several threads at once.

It and what reports need are imported when the first file is asked for, so that nobody waits for them at the start.
"""
_TURNS = threading.BoundedSemaphore(8)
"""Pictures that are drawn or wait for it; more of them would take the threads that answer everybody else."""


def exported(case: Mapping[str, Any], kind: str, *, edited: Mapping[str, Any] | None = None) -> tuple[bytes, str]:
    """The file's content and its media type; `kind` is html, json or png.

    A course that was tried (`edited`) is in all of them: in the data under that name, in page and picture beside the
    others.
    """
    if kind == "png":
        return _picture(case, edited), "image/png"
    content = dict(case) if edited is None else {**case, "edited": edited}
    if kind == "json":
        return to_json(content, indent=2), "application/json"
    from ifonly.report.case_report import single_case_html

    return single_case_html(content).encode(), "text/html; charset=utf-8"


def _picture(case: Mapping[str, Any], edited: Mapping[str, Any] | None) -> bytes:
    from ifonly.report.case_picture import plot_case

    if not _TURNS.acquire(blocking=False):
        raise RefusalError(429, "Too many pictures are being drawn.", "Try again in a few seconds.")
    try:
        file = io.BytesIO()
        with _DRAWING:
            plot_case(case, edited=edited).savefig(file, format="png")
        return file.getvalue()
    finally:
        _TURNS.release()
