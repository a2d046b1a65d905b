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
"""The default time limit of a search."""
SECONDS_TO_FINISH = 3
"""Grace for requests in flight when the server is stopped."""
MOST_CONNECTIONS = 512
SECONDS_KEPT_OPEN = 60
"""How long an idle connection is kept open, so that a reviewer who is reading need not reconnect."""


@dataclass(frozen=True, kw_only=True)
class ServedOptions(QueryOptions):
    """What is asked and shown; by default, the made-up sample."""

    episodes: options.Episodes = SAMPLE / "split" / "test"
    model: options.ModelFolder = SAMPLE / "fit"

    def is_sample(self, run: Path | None) -> bool:
        """Whether to show the sample: nothing is named. Naming only a part of what is needed is refused."""
        named = [getattr(self, one.name) != one.default for one in fields(self) if one.name in ("episodes", "model")]
        if all(named):
            return False
        if any(named) or run is not None or not self.is_silent:
            raise typer.BadParameter(say("sample.partly"))
        return True


def serve(
    asked: ServedOptions,
    run: Annotated[
        Path | None, option("FOLDER", "Show the answers of this run of `ifonly cohort`.", default=False)
    ] = None,
    workers: Annotated[int, option("N", "Number of searches at the same time.", min=1, max=64)] = 2,
    open_page: Annotated[bool, flag("--open", "Open the page in a browser.")] = False,
    notes: Annotated[
        Path | None,
        option("FILE", "Where reviewers' notes are kept (SQLite).", default=f"RUN/{NOTES_IN_RUN}, or {NOTES_NAME}"),
    ] = None,
    key: Annotated[
        Path | None,
        option("FILE", "Key of codes, for exports for people outside; created if it does not exist.", default=False),
    ] = None,
    host: Annotated[
        str, option("ADDRESS", "Address to listen on; any but 127.0.0.1 needs a token.", panel=ACCESS_PANEL)
    ] = "127.0.0.1",
    port: Annotated[
        int, option("N", "Port to listen on; 0: any free one.", panel=ACCESS_PANEL, min=0, max=65535)
    ] = 8377,
    token_file: Annotated[
        Path | None,
        option("FILE", "A file with the token that users must enter; readable by you alone.", panel=ACCESS_PANEL),
    ] = None,
) -> ExitCode:
    """Serve the review page: look at every case and at what could have gone better, try other courses, and judge.

    Needs the extra `web`. The page is served to this machine only, unless a token is given, and loads nothing from
    elsewhere. Ctrl-C stops the server. Without --episodes, --model and --run it creates a sample of made-up records,
    once, in the folder ifonly-sample, and shows that.

    Examples:
    ifonly serve --open
    ifonly serve --episodes data/sepsis --model models/sepsis --run runs/k3 --open
    ifonly serve --episodes data/sepsis --model models/sepsis --minimize SOFA -k 3
    ifonly serve --episodes data/sepsis --model models/sepsis --run runs/k3 --host 0.0.0.0 --token-file token.txt
    """
    is_sample = asked.is_sample(run)
    if run is not None and not asked.is_silent:
        raise typer.BadParameter(
            "--run already has a query; leave out --max-changes, --minimize, --maximize and --query."
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
            key=key,
            sample=is_sample,
            jobs=workers,
            seconds=SECONDS if asked.seconds is None else asked.seconds,
            report=lambda error: alarm("error", error),
        )
        app = create_app(settings)
        listener.listen()  # from now on requests are answered
        address = _address(host, listener.getsockname()[1])
        if is_sample:
            note("note", say("sample.shown"), style="bold green")
        Output().show(say("serve.address", notes=settings.notes, address=address))
        if open_page:  # in a thread of its own: some browsers block
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        _serve(app, listener)
    return ExitCode.DONE


def _listen(host: str, port: int) -> socket.socket:
    """A socket bound to the address, before any data are read: the port may be taken."""
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
    """The address to open; one that stands for all addresses of the machine is replaced by the machine's name."""
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"


def _serve(app: FastAPI, listener: socket.socket) -> None:
    """Serve until Ctrl-C; requests are not logged, because they name patients."""
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
    with suppress(KeyboardInterrupt):  # the normal way to stop
        uvicorn.Server(config).run(sockets=[listener])
