"""The command that serves the review page: `serve`."""

from __future__ import annotations

import socket
import threading
import webbrowser
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ifonly.cli import options
from ifonly.cli.frame import ExitCode, Output, alarm, note, require_extra
from ifonly.cli.options import flag, option
from ifonly.cli.queries import QueryOptions, schema_of
from ifonly.cli.study import SAMPLE, make_sample
from ifonly.errors import InputError
from ifonly.text.catalogue import say

if TYPE_CHECKING:
    from fastapi import FastAPI

ACCESS_PANEL = "Who may look"
NOTES_NAME, NOTES_IN_RUN = "ifonly-notes.sqlite", "notes.sqlite"
SECONDS = 60.0
"""The longest that a search may take, unless another limit is given."""
SECONDS_TO_FINISH = 3
"""For requests that are under way when the server is stopped."""
MOST_CONNECTIONS = 512
SECONDS_KEPT_OPEN = 60
"""For a connection that nothing is asked on, so that a reviewer who reads need not connect again."""


@dataclass(frozen=True, kw_only=True)
class ServedOptions(QueryOptions):
    """What is asked and shown: of the made-up sample, where nothing is named."""

    episodes: options.Episodes = SAMPLE / "split" / "test"
    model: options.ModelFolder = SAMPLE / "fit"

    def is_sample(self, run: Path | None) -> bool:
        """Whether nothing is named; a part of what is needed is refused."""
        named = [getattr(self, one.name) != one.default for one in fields(self) if one.name in ("episodes", "model")]
        if all(named):
            return False
        if any(named) or run is not None or not self.is_silent:
            raise typer.BadParameter(say("sample.partly"))
        return True


def serve(
    asked: ServedOptions,
    run: Annotated[
        Path | None, option("FOLDER", "A run of `ifonly cohort`: its query and its answers.", default=False)
    ] = None,
    workers: Annotated[int, option("N", "Searches at the same time.", min=1, max=64)] = 2,
    open_page: Annotated[bool, flag("--open", "Open the page in a browser.")] = False,
    notes: Annotated[
        Path | None,
        option("FILE", "Where reviewers' notes are kept (SQLite).", default=f"RUN/{NOTES_IN_RUN}, or {NOTES_NAME}"),
    ] = None,
    host: Annotated[str, option("ADDRESS", "Any but 127.0.0.1 needs a token.", panel=ACCESS_PANEL)] = "127.0.0.1",
    port: Annotated[int, option("N", "0: any that is free.", panel=ACCESS_PANEL, min=0, max=65535)] = 8377,
    token_file: Annotated[
        Path | None,
        option("FILE", "What users must know, in a file that nobody else may read.", panel=ACCESS_PANEL),
    ] = None,
) -> ExitCode:
    """Serve the review page: every case, what could have gone better, and room to try and to judge.

    Needs the extra `web`. The page is for this machine only, unless a token is given; it loads nothing from elsewhere.
    Ctrl-C ends it. Without --episodes, --model and --run it makes, once, a sample of made-up records in the folder
    ifonly-sample, and shows it.

    Examples:
    ifonly serve --open
    ifonly serve --episodes data/sepsis --model models/sepsis --run runs/k3 --open
    ifonly serve --episodes data/sepsis --model models/sepsis --minimize SOFA -k 3
    ifonly serve --episodes data/sepsis --model models/sepsis --run runs/k3 --host 0.0.0.0 --token-file token.txt
    """
    is_sample = asked.is_sample(run)
    if run is not None and not asked.is_silent:
        raise typer.BadParameter(
            "--run says what is asked; leave out --max-changes, --minimize, --maximize and --query."
        )
    require_extra("web", "fastapi", "uvicorn", what="the review page")
    from ifonly.web.app import create_app
    from ifonly.web.settings import ReviewSettings, check_address, read_token

    token = None if token_file is None else read_token(token_file)
    check_address(host, token)
    with _listen(host, port) as listener:
        if is_sample:
            make_sample()
            run = SAMPLE / "cohort"
        settings = ReviewSettings(
            episodes=asked.episodes,
            model=asked.model,
            notes=notes or (Path(NOTES_NAME) if run is None else run / NOTES_IN_RUN),
            run=run,
            query=asked.build(schema_of(asked.episodes)) if run is None else None,
            behaviour=asked.behaviour,
            allow_failed_model=asked.allow_failed_model,
            token=token,
            sample=is_sample,
            jobs=workers,
            seconds=SECONDS if asked.seconds is None else asked.seconds,
            report=lambda error: alarm("error", error),
        )
        app = create_app(settings)
        listener.listen()  # from now on whoever comes is answered
        address = _address(host, listener.getsockname()[1])
        if is_sample:
            note("note", say("sample.shown"), style="bold green")
        Output().show(f"notes:  {settings.notes}", f"review: {address}", "Ctrl-C ends it.")
        if open_page:  # in a thread of its own, which some browsers take
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        _serve(app, listener)
    return ExitCode.DONE


def _listen(host: str, port: int) -> socket.socket:
    """A socket at the address, before anything is read: somebody else may be there."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(f"--host {host}: is no address of this machine ({error.strerror or error}).") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except OSError as error:
        listener.close()
        raise InputError(
            f"nothing can be served at {host}, port {port} ({error.strerror or error}); choose another --port."
        ) from None
    return listener


def _address(host: str, port: int) -> str:
    """Where to look; an address that stands for all addresses of the machine is none to go to."""
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"


def _serve(app: FastAPI, listener: socket.socket) -> None:
    """Serve until Ctrl-C; requests are not logged, for they name patients."""
    import uvicorn

    from ifonly.web.connections import PatientProtocol

    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=SECONDS_KEPT_OPEN,
        timeout_graceful_shutdown=SECONDS_TO_FINISH,
    )
    with suppress(KeyboardInterrupt):  # this is how it ends
        uvicorn.Server(config).run(sockets=[listener])
