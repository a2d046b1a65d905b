"""The pages that people open, and the files that they are made of."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ifonly.records import to_plain
from ifonly.report import pages
from ifonly.web.agreement import agreement_of
from ifonly.web.api import Desk, Episode
from ifonly.web.guard import COOKIE, LOGIN, STATIC, Doorkeeper, RefusalError
from ifonly.web.listing import ListQuery

MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
SECONDS_AFTER_WRONG_TOKEN = 0.5
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class StaticFile:
    """A file that is served as it is; packed once, when somebody first asks for it."""

    path: Path

    @cached_property
    def content(self) -> bytes:
        """The file itself."""
        return self.path.read_bytes()

    @cached_property
    def packed(self) -> bytes:
        """The file, compressed."""
        return gzip.compress(self.content, 6, mtime=0)

    @cached_property
    def tag(self) -> str:
        """Changes when the file does."""
        return hashlib.sha256(self.content).hexdigest()[:32]

    def response(self, request: Request) -> Response:
        """The file, or that the browser has it already."""
        takes_gzip = "gzip" in request.headers.get("accept-encoding", "")
        tag = f'"{self.tag}{"-gzip" if takes_gzip else ""}"'
        # Asked for again every time, answered in a word: a new version of ifonly must not meet old scripts.
        headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if takes_gzip:
            headers["Content-Encoding"] = "gzip"
        return Response(
            self.packed if takes_gzip else self.content, headers=headers, media_type=MEDIA_TYPES[self.path.suffix]
        )


def site_router(desk: Desk, doorkeeper: Doorkeeper) -> APIRouter:
    """The routes outside /api; they are not part of its description."""
    router = APIRouter(include_in_schema=False)
    files = {name: StaticFile(path) for name, path in pages.static_files().items()}
    about, recurring = to_plain(desk.about()), to_plain(desk.review.patterns)

    @router.get("/")
    def show_list(request: Request, query: Annotated[ListQuery, Query()]) -> Response:
        with desk.turns:
            return HTMLResponse(
                pages.render(
                    "list.html",
                    about=about,
                    first=to_plain(desk.review.listing.page(query, desk.notes)),
                    query=dict(request.query_params),
                    recurring=recurring,
                    agreement=to_plain(agreement_of(desk.notes.reviews())),
                )
            )

    @router.get("/case")
    def show_case(episode: Episode) -> Response:
        with desk.turns:
            case, reviews = desk.review.case(episode), to_plain(desk.reviews(episode).notes)
            here = to_plain(desk.review.patterns.among(desk.review.listing.patterns_of(episode)))
            return HTMLResponse(pages.render("case.html", case=case, about=about, reviews=reviews, patterns=here))

    @router.get(STATIC + "{name}")
    def show_file(name: str, request: Request) -> Response:
        if name not in files:
            raise RefusalError.of_status(404)
        return files[name].response(request)

    @router.get(LOGIN)
    def show_login(next: str = "/") -> Response:
        if doorkeeper.is_open:
            return RedirectResponse("/", 303)
        return HTMLResponse(pages.render("login.html", failed=False, next=_local(next)))

    @router.post(LOGIN)
    async def log_in(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
            raise RefusalError(415, "no form")
        form = parse_qs((await request.body()).decode("utf-8", "replace"))
        next_page = _local(form.get("next", ["/"])[0])
        if not doorkeeper.knows(form.get("token", [""])[0].strip()):
            await asyncio.sleep(SECONDS_AFTER_WRONG_TOKEN)
            return HTMLResponse(pages.render("login.html", failed=True, next=next_page), 401)
        response = RedirectResponse(next_page, 303)
        # Behind a proxy with TLS only the browser knows that the connection is encrypted.
        secure = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
        response.set_cookie(COOKIE, doorkeeper.sign_in(), httponly=True, samesite="strict", secure=secure, path="/")
        return response

    return router


def _local(address: str) -> str:
    """An address of this site to go to; anything else is the list."""
    elsewhere = not address.startswith("/") or address[1:2] in ("/", "\\")
    return "/" if elsewhere or not address.isprintable() else address
