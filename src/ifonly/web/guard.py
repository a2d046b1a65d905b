"""Who may ask, and how much: checks before a request reaches the application, and headers on every answer."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ifonly.report.pages import EMPTY_STYLE
from ifonly.web.refusals import RefusalError, is_api, refusal_response
from ifonly.web.settings import is_loopback

MOST_BYTES = 64 * 1024
"""Of a request's body."""
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
        f"style-src 'self' {EMPTY_STYLE}",
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
            refusal = RefusalError(
                500, "Something went wrong on the server.", "Try again; if it stays so, tell who runs it."
            )
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
            raise RefusalError(
                401,
                "This server asks for a token.",
                "Sign in at /login, or send the header 'Authorization: Bearer TOKEN'.",
                headers={"WWW-Authenticate": "Bearer"},
            )

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
        raise RefusalError(421, "This server is not known by that name.", "Use http://127.0.0.1 or http://localhost.")


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
        raise RefusalError(403, "This request comes from a page of another site.", "Open the review page itself.")
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if writes and api and kind != "application/json" and not _is_empty(headers):
        raise RefusalError(
            415, "The content of a request must be JSON.", "Send it with 'Content-Type: application/json'."
        )


def _is_empty(headers: Headers) -> bool:
    return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers


async def _whole_body(request: Request, receive: Receive) -> Receive:
    """The request's body, read before anybody works with it: however it is sent, too much of it is refused."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MOST_BYTES:
        raise _too_large()
    try:
        body = await asyncio.wait_for(_read(receive), SECONDS_TO_ARRIVE)
    except TimeoutError:
        raise RefusalError(
            408, "The request did not arrive in time.", "Try again.", headers={"Connection": "close"}
        ) from None
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
    return RefusalError(
        413, f"A request may hold {MOST_BYTES // 1024} KiB at most.", "Send less.", headers={"Connection": "close"}
    )


def _place_of(error: Exception) -> str:
    """The kind of an error and where in our source it arose; what it says may hold patients' values."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)] or frames
    place = f"{Path(ours[-1].filename).name}, line {ours[-1].lineno}" if ours else "an unknown place"
    return f"unexpected {type(error).__name__} in {place}"
