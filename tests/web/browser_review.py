"""A real browser in front of a real server; every page is watched for errors and for requests to elsewhere."""

import contextlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

PATIENCE = 60
"""Seconds until what is expected must have come: on a busy machine a right page takes its time."""
SOLVED = 16
"""Of the episodes of the cohort that is reviewed, the first so many have an answer."""
ELSEWHERE = "review.test"
"""A name of this machine that a browser trusts no more than any other machine's."""
SWITCHES = (
    f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def started_browser() -> Iterator[Any]:
    """Debian's Chromium without a window; a skip, with the reason, where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium was found: install the package chromium")
    playwright.expect.set_options(timeout=1000 * PATIENCE)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=list(SWITCHES), timeout=2000 * PATIENCE)
        yield browser
        browser.close()


def started_server(*arguments: object) -> Iterator[str]:
    """The address of `ifonly serve` with these arguments, at a free port."""
    command = [sys.executable, "-m", "ifonly", "serve", *map(str, arguments), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        said = []
        try:
            for line in server.stdout:
                said.append(line)
                if "http://" in line:
                    yield line[line.index("http://") :].strip().rstrip("/")
                    break
            else:
                raise AssertionError(f"the server has not started:\n{''.join(said)}")
        finally:
            server.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(20)
            server.kill()


@dataclass
class Watch:
    """What a page did that it must not do."""

    home: str
    wrong: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()
    """Parts of messages that a test provokes."""

    def over(self, page: Any) -> None:
        page.on("console", self._message)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("request", self._request)

    def _message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text}")

    def _request(self, request: Any) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob") and f"{address.scheme}://{address.netloc}" != self.home:
            self.wrong.append(f"a request to {address.scheme}://{address.netloc}")

    def check(self) -> None:
        assert not [text for text in self.wrong if not any(part in text for part in self.expected)]


@contextlib.contextmanager
def reader(browser: Any) -> Iterator[Any]:
    """A browser with a memory of its own, as another person would have who has been here before."""
    with newcomer(browser, viewport={"width": 1440, "height": 900}, accept_downloads=True) as context:
        context.add_init_script("try { localStorage.setItem('ifonly.toured', '1') } catch {}")
        yield context


@contextlib.contextmanager
def newcomer(browser: Any, **settings: Any) -> Iterator[Any]:
    """The same of somebody who has not."""
    context = browser.new_context(**settings)
    context.set_default_timeout(1000 * PATIENCE)
    try:
        yield context
    finally:
        context.close()


@contextlib.contextmanager
def watched_page(context: Any, home: str) -> Iterator[tuple[Any, Watch]]:
    """A new page, and the watch over it, which must have seen nothing wrong in the end."""
    page = context.new_page()
    watch = Watch(home)
    watch.over(page)
    try:
        yield page, watch
        watch.check()
    finally:
        page.close()


CARE = """() => {
  const wrong = [];
  const shown = (one) => one.checkVisibility() && !one.closest('[aria-hidden="true"]');
  const named = (one) => (one.getAttribute('aria-label') || one.textContent || '').trim() ||
    one.getAttribute('aria-labelledby') || (one.labels && one.labels.length);
  for (const one of document.querySelectorAll('button, a[href], summary, input, select, textarea'))
    if (shown(one) && !named(one)) wrong.push('no name: ' + one.outerHTML.slice(0, 80));
  for (const one of document.querySelectorAll('input:not([type=hidden]), select, textarea'))
    if (shown(one) && !one.labels.length && !one.getAttribute('aria-label'))
      wrong.push('no label: ' + one.outerHTML.slice(0, 80));
  for (const one of document.querySelectorAll('[role=img]'))
    if (!one.getAttribute('aria-label')) wrong.push('no description: ' + one.outerHTML.slice(0, 80));
  let last = 0;
  for (const one of document.querySelectorAll('h1, h2, h3, h4')) {
    if (!shown(one)) continue;
    const level = Number(one.tagName[1]);
    if (level > last + 1) wrong.push('heading out of order: ' + one.textContent);
    last = level;
  }
  if ([...document.querySelectorAll('h1')].filter(shown).length !== 1) wrong.push('not one first heading');
  const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);
  if (new Set(ids).size !== ids.length) wrong.push('an id twice');
  for (const one of document.querySelectorAll('[aria-labelledby]'))
    if (!document.getElementById(one.getAttribute('aria-labelledby'))) wrong.push('a missing label');
  const page = document.documentElement;
  if (page.scrollWidth > page.clientWidth + 1) wrong.push('wider than the window');
  return wrong;
}"""


def becomes(page: Any, read: Callable[[], Any], wanted: Any, said: str | None = None) -> None:
    """Wait until what is read is what is wanted; what cannot be read while a page is drawn again is not there yet."""
    from playwright.sync_api import Error

    latest = time.monotonic() + PATIENCE
    while True:
        try:
            found, wrong = read(), None
        except Error as error:
            found, wrong = None, error
        if wrong is None and found == wanted:
            return
        if time.monotonic() > latest:
            raise AssertionError(said or f"{found!r} has not become {wanted!r}") from wrong
        page.wait_for_timeout(50)


def until(page: Any, holds: str, argument: Any = None) -> None:
    """Wait for an expression to hold; the page's policy lets it be evaluated from outside alone."""
    becomes(page, lambda: bool(page.evaluate(holds, argument)), True, f"never: {holds}")


SETTLED = """() => {
  const { review, report } = window.ifonly ?? {};
  const views = review ? [review.view] : report ? [...report.views.values()] : [];
  return !review?.asking && views.every((view) => !view.timeline.later.timer);
}"""


def settle(page: Any) -> None:
    """Wait until everything is drawn, piece by piece as pages have time, and no answer is waited for."""
    until(page, SETTLED)


def check_care(page: Any) -> None:
    """Names, labels, headings in order, nothing wider than the window, once everything is drawn."""
    settle(page)
    becomes(page, lambda: page.evaluate(CARE), [])


def single_file(folder: Path, text: str) -> str:
    """A file's address, for pages that need no server."""
    path = folder / "page.html"
    path.write_text(text, encoding="utf-8")
    return path.as_uri()


def _expect(shown: Any) -> Any:
    from playwright.sync_api import expect

    return expect(shown)


def open_case(page: Any, home: str, episode: str, more: str = "") -> None:
    """A case of the server, with all that is on its page."""
    page.goto(f"{home}/case?episode={episode}{more}")
    _expect(page.locator(".headline")).to_contain_text("as recorded")
    settle(page)


def query_of(page: Any) -> dict[str, str]:
    """What the address asks for, by the page itself: the driver hears of a change a moment later."""
    return {name: values[0] for name, values in parse_qs(page.evaluate("location.search")[1:]).items()}


def first_dose(page: Any, words: str) -> Any:
    return page.get_by_role("button", name=re.compile(words)).first


def outcome(page: Any, kind: str) -> Any:
    """Where the outcome of a course stands."""
    return page.locator(f".outcome.{kind} .value")


def try_another_dose(page: Any, words: str) -> None:
    """Open the dialog of a dose, and try the first one that it is not."""
    first_dose(page, words).click()
    dialog = page.get_by_role("dialog")
    dialog.locator("input[type=radio]:not(:checked)").first.check()
    dialog.get_by_role("button", name="Try this").click()
    _expect(outcome(page, "own")).to_have_text(re.compile(r"\d"))
    settle(page)
