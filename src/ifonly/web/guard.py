"""Who may ask, and how much: checks before a request reaches the application, refusals, and headers on every answer."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ifonly.errors import IfonlyError
from ifonly.records import adapter
from ifonly.report import pages
from ifonly.text.catalogue import say
from ifonly.web.settings import is_loopback

API = "/api/"
DESCRIPTION = "/openapi.json"

MOST_BYTES = 64 * 1024
"""Of a request's body."""
MOST_DIGITS = 20
"""Of the number of bytes that a request says its body has."""
SECONDS_TO_ARRIVE = 30.0
"""For a request's body."""
SECONDS_SIGNED_IN = 12 * 3600
COOKIE = "ifonly_session"
LOGIN = "/login"
STATIC = "/static/"
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
PACKAGE = Path(__file__).parents[1]

POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        # plotly adds an empty style element, and sets styles of single elements.
        f"style-src 'self' {pages.EMPTY_STYLE}",
        "style-src-attr 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    # Not "no-referrer": under it browsers hide the origin of our own login form, too.
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""On every answer, unless it has its own."""


@dataclass(frozen=True)
class ErrorText:
    """What is wrong, and what to do about it."""

    what: str
    do: str


@dataclass(frozen=True)
class ErrorAnswer:
    """Every refusal."""

    error: ErrorText


class RefusalError(IfonlyError):
    """A request that is not answered: the HTTP status, and the code of what is wrong and what to do about it."""

    def __init__(self, status: int, code: str, *, headers: Mapping[str, str] | None = None, **values: Any) -> None:
        self.status, self.headers = status, dict(headers or {})
        self.answer = ErrorAnswer(
            ErrorText(say(f"refusal.{code}", **values), say(f"refusal.{code}.do", **values)),
        )
        super().__init__(self.answer.error.what)

    @classmethod
    def of_status(cls, status: int, headers: Mapping[str, str] | None = None) -> RefusalError:
        """A refusal of which no more is known than the status."""
        codes = {400: "unreadable", 404: "nothing here", 405: "wrong method"}
        return cls(status, codes.get(status, "unanswerable"), headers=headers)


def is_api(path: str) -> bool:
    """Whether answers at this path are for programs."""
    return path.startswith(API) or path == DESCRIPTION


def refusal_response(path: str, refusal: RefusalError) -> Response:
    """The refusal as JSON for the API, as a page for people."""
    if is_api(path):
        return json_response(refusal.answer, status=refusal.status, headers=refusal.headers)
    error = refusal.answer.error
    page = pages.render("error.html", status=refusal.status, what=error.what, do=error.do)
    return HTMLResponse(page, status_code=refusal.status, headers=refusal.headers)


def json_response(record: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A record as JSON, by the same annotations that describe it; the framework would check and copy it first."""
    return Response(adapter(type(record)).dump_json(record), status, dict(headers or {}), "application/json")


class Doorkeeper:
    """Knows the token, if there is one, and who has shown it."""

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else _digest(token)
        self._secret = secrets.token_bytes(32)  # a restart signs everybody out

    @property
    def is_open(self) -> bool:
        """Whether no token is needed."""
        return self._token is None

    def knows(self, token: str) -> bool:
        """Whether this is the token; takes as long whatever is wrong with it."""
        return self._token is not None and hmac.compare_digest(_digest(token), self._token)

    def sign_in(self) -> str:
        """What a browser shows from now on instead of the token."""
        until = str(int(time.time()) + SECONDS_SIGNED_IN)
        return f"{until}.{self._signature(until)}"

    def admits(self, headers: Headers, cookies: dict[str, str]) -> bool:
        """Whether a request shows the token, or that it was shown before."""
        if self.is_open:
            return True
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.knows(token.strip())
        until, _, signature = cookies.get(COOKIE, "").partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(until).encode()):
            return False
        return int(until) > time.time()

    def _signature(self, until: str) -> str:
        return hmac.new(self._secret, until.encode(), "sha256").hexdigest()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class Guard:
    """Stands before the application: no foreign names, no strangers, no foreign pages that write, no large bodies."""

    def __init__(self, app: ASGIApp, *, doorkeeper: Doorkeeper, report: Callable[[str], None]) -> None:
        self._app, self._doorkeeper, self._report = app, doorkeeper, report

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or have the application answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._answer(scope, receive, send_guarded)
        except Exception as error:
            self._report(_place_of(error))
            if started:  # nothing more can be said; the message must not reach a log
                raise RuntimeError("an answer was cut off by an error") from None
            refusal = RefusalError(500, "broken")
            await refusal_response(scope["path"], refusal)(scope, receive, send_guarded)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        try:
            self._check(request)
            if request.method not in SAFE_METHODS:
                receive = await _whole_body(request, receive)
        except RefusalError as refusal:
            await refusal_response(scope["path"], refusal)(scope, receive, send)
            return
        if self._must_sign_in(request):
            await _to_login(request)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, request: Request) -> None:
        if self._doorkeeper.is_open:
            _check_host(request.headers)
        _check_origin(request)
        if is_api(request.scope["path"]) and not self._doorkeeper.admits(request.headers, request.cookies):
            raise RefusalError(401, "no token", headers={"WWW-Authenticate": "Bearer"})

    def _must_sign_in(self, request: Request) -> bool:
        path = request.scope["path"]  # by which requests are routed; the URL is made up with what the client says
        return (
            path != LOGIN
            and not path.startswith(STATIC)
            and not self._doorkeeper.admits(request.headers, request.cookies)
        )


def _to_login(request: Request) -> RedirectResponse:
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"{LOGIN}?next={quote(here, safe='')}", 303)


def _check_host(headers: Headers) -> None:
    """Refuse other names for this machine: a foreign page could have its name point here, and read along.

    An address of this machine cannot be made to point elsewhere, so that any of them will do.
    With a token there is no need: a browser shows what it was given here under this name only.
    """
    try:
        name = urlsplit(f"//{headers.get('host', '')}").hostname
    except ValueError:
        name = None
    if name is None or not is_loopback(name):
        raise RefusalError(421, "wrong name")


def _check_origin(request: Request) -> None:
    """Refuse what a page of another site has sent; browsers say so."""
    headers, api = request.headers, is_api(request.scope["path"])
    writes = request.method not in SAFE_METHODS
    if not writes and not api:
        return
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    foreign = site is not None and site not in ("same-origin", "none")
    if writes and origin is not None:
        foreign = foreign or origin.partition("://")[2] != headers.get("host")
    if foreign:
        raise RefusalError(403, "other site")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if writes and api and kind != "application/json" and not _is_empty(headers):
        raise RefusalError(415, "no json")


def _is_empty(headers: Headers) -> bool:
    return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers


async def _whole_body(request: Request, receive: Receive) -> Receive:
    """The request's body, read before anybody works with it: however it is sent, too much of it is refused."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > MOST_DIGITS or int(length) > MOST_BYTES:
        raise _too_large()
    try:
        body = await asyncio.wait_for(_read(receive), SECONDS_TO_ARRIVE)
    except TimeoutError:
        raise RefusalError(408, "too slow", headers={"Connection": "close"}) from None
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()  # later only that the client has gone
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


async def _read(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            raise _too_large()
        if not message.get("more_body"):
            return bytes(body)


def _too_large() -> RefusalError:
    return RefusalError(413, "too large", most=MOST_BYTES // 1024, headers={"Connection": "close"})


def _place_of(error: Exception) -> str:
    """The kind of an error and where in our source it arose; what it says may hold patients' values."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)] or frames
    place = f"{Path(ours[-1].filename).name}, line {ours[-1].lineno}" if ours else "an unknown place"
    return f"unexpected {type(error).__name__} in {place}"
