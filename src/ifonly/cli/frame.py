"""What every command shares: exit codes, errors and warnings as people read them, output for people or machines."""

from __future__ import annotations

import functools
import inspect
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, ParamSpec

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from ifonly.errors import IfonlyError, PlausibilityWarning, StoreError, VerificationError

Parameters = ParamSpec("Parameters")

WIDTH_ELSEWHERE = 120
"""Columns for tables that are not shown on a terminal, which would say how many it has."""


class ExitCode(IntEnum):
    """What the shell is told."""

    DONE = 0
    USAGE = 2
    BAD_INPUT = 3
    LIMIT_REACHED = 4
    NOT_VERIFIED = 5
    NOT_PASSED = 6
    INTERRUPTED = 130


EXIT_CODES = {
    ExitCode.DONE: "done as asked (a search that reached the gap you asked for, and a heuristic's answer, included)",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.BAD_INPUT: "bad input: a file, an id or a value; the message says which",
    ExitCode.LIMIT_REACHED: "a search stopped at a limit; its result, a valid bracket, is printed and saved",
    ExitCode.NOT_VERIFIED: "a result did not hold when it was verified",
    ExitCode.NOT_PASSED: "a model failed its check, or could not be judged; the findings are printed and saved",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C; no file is left half-written",
}


@dataclass(frozen=True)
class Output:
    """Where things are written: results to stdout, for people or as one JSON document; notes to stderr."""

    json: bool = False

    def show(self, *items: RenderableType) -> None:
        """Write for people; with --json nobody is there to read it."""
        if self.json:
            return
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = max(console.width, WIDTH_ELSEWHERE)
        for item in items:
            if isinstance(item, str):
                # Long lines are left to the terminal: text that is piped elsewhere must not be broken.
                console.print(Text(item), soft_wrap=True)
            else:
                console.print(item)

    def document(self, content: Any) -> None:
        """Write the one JSON document, if it was asked for."""
        if self.json:
            typer.echo(json.dumps(content, indent=2, allow_nan=False))


def notes() -> Console:
    """The console for progress, notes and errors: stderr, so that stdout stays clean."""
    return Console(stderr=True, highlight=False)


def note(label: str, message: str, *, style: str) -> None:
    """One line (or a few) on stderr."""
    notes().print(Text.assemble((f"{label}: ", style), message), soft_wrap=True)


def register(
    app: typer.Typer,
    name: str,
    command: Callable[..., ExitCode],
    examples: Sequence[str],
    *,
    about_values: bool = False,
) -> None:
    """Make `command` available under `name`, with examples below its help.

    Only commands `about_values` report implausible ones: to hear of them with every command would be tiresome.
    """
    epilog = "\n\n".join(["[bold]Examples[/bold]", *examples])
    app.command(name, help=paragraphs(command), epilog=epilog)(_guarded(command, about_values=about_values))


def paragraphs(documented: object) -> str:
    """The docstring with a line per paragraph, for the terminal to break where it ends."""
    text = inspect.getdoc(documented) or ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _guarded(command: Callable[Parameters, ExitCode], *, about_values: bool) -> Callable[Parameters, None]:
    """The command with its expected failures turned into a message and an exit code; others keep their traceback."""

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            with _friendly_warnings("always" if about_values else "ignore"):
                code = command(*args, **kwargs)
        except VerificationError as error:
            code = _failed(str(error), ExitCode.NOT_VERIFIED)
        except IfonlyError as error:
            code = _failed(str(error), ExitCode.BAD_INPUT)
        except BrokenPipeError:
            raise  # whoever read our output has gone; typer ends quietly
        except OSError as error:
            code = _failed(str(error), ExitCode.BAD_INPUT)
        except KeyboardInterrupt:
            code = _failed("nothing is left half-written.", ExitCode.INTERRUPTED, label="interrupted")
        raise typer.Exit(code)

    return run


def _failed(message: str, code: ExitCode, *, label: str = "error") -> ExitCode:
    note(label, message, style="bold red")
    return code


@contextmanager
def _friendly_warnings(action: Literal["always", "ignore"]) -> Iterator[None]:
    """Show implausible values as one line, not as Python shows a warning; or not at all."""
    with warnings.catch_warnings():
        warnings.simplefilter(action, PlausibilityWarning)
        python_shows = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, PlausibilityWarning):
                note("note", str(message), style="bold yellow")
            else:
                python_shows(message, category, *rest, **more)

        warnings.showwarning = show
        yield


def require_free(*files: Path | None, folder: Path | None = None, force: bool) -> None:
    """Refuse, before any work is done, to write where something stands already, or where nothing can be written."""
    from ifonly.files import check_writable

    for path in (*files, folder):
        if path is None:
            continue
        if path.exists() and not force:
            raise StoreError(f"{path} exists already; choose another name, or replace it with --force.")
        check_writable(path, folder=path is folder)
