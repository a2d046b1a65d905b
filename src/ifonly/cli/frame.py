"""What every command shares: exit codes, errors and warnings as people read them, output for people or machines."""

from __future__ import annotations

import inspect
import json
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import IntEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_type_hints

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from ifonly.errors import IfonlyError, InputError, PlausibilityWarning, StoreError, VerificationError

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


class Output:
    """Where things are written: results to stdout, for people or as one JSON document; notes to stderr."""

    as_json = False
    """Whether the command line asks for JSON, wherever it says so."""

    @property
    def json(self) -> bool:
        """Whether a program reads along."""
        return Output.as_json

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
    has_json: bool = True,
) -> None:
    """Make `command` available under `name`, with examples below its help.

    A parameter that is a dataclass stands for the options that its fields are: commands share them so. Only commands
    `about_values` report implausible ones: to hear of them with every command would be tiresome.
    """
    also = ["With --json: one JSON document on stdout, and nothing else there."] if has_json else []
    epilog = "\n\n".join([*also, "[bold]Examples[/bold]", *examples])
    guarded = _guarded(command, about_values=about_values, has_json=has_json)
    app.command(name, help=paragraphs(command), epilog=epilog)(guarded)


def paragraphs(documented: object) -> str:
    """The docstring with a line per paragraph, for the terminal to break where it ends."""
    text = inspect.getdoc(documented) or ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _guarded(command: Callable[..., ExitCode], *, about_values: bool, has_json: bool) -> Callable[..., None]:
    """The command with its expected failures turned into a message and an exit code; others keep their traceback."""
    groups, signature = _options_of(command)

    def run(**given: Any) -> None:
        if Output.as_json and not has_json:
            raise typer.BadParameter("--json: this command has no document to print.")
        for name, kind in groups.items():
            given[name] = kind(**{one.name: given.pop(one.name) for one in fields(kind)})
        try:
            with _friendly_warnings("always" if about_values else "ignore"):
                code = command(**given)
        except VerificationError as error:
            code = _failed(str(error), ExitCode.NOT_VERIFIED)
        except IfonlyError as error:
            code = _failed(in_options(str(error)), ExitCode.BAD_INPUT)
        except BrokenPipeError:
            raise  # whoever read our output has gone; typer ends quietly
        except OSError as error:
            code = _failed(str(error), ExitCode.BAD_INPUT)
        except KeyboardInterrupt:
            code = _failed("nothing is left half-written.", ExitCode.INTERRUPTED, label="interrupted")
        raise typer.Exit(code)

    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def _options_of(command: Callable[..., ExitCode]) -> tuple[dict[str, Any], inspect.Signature]:
    """The parameters that are dataclasses, and the signature with their fields in their places."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not is_dataclass(kind):
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[name] = kind
        shared = inspect.signature(kind).parameters  # type: ignore[arg-type]
        of_fields = get_type_hints(kind, include_extras=True)
        parameters += [one.replace(annotation=of_fields[one.name]) for one in shared.values()]
    return groups, inspect.Signature(parameters)


IN_OPTIONS = (
    (r"pass overwrite=True or", "pass --force or"),
    (r"allow_failed_model=True, --allow-failed-model", "--allow-failed-model"),
    (r" \((?:fit_ensemble|fit_behaviour), (`ifonly [^`]*`)\)", r" (\1)"),
    (r", or pass (?:refits|support)=\.\.\.", ""),
    (r" \((?:episodes|model|behaviour)=\.\.\.\)", ""),
    (r"\bmax_changes=", "--max-changes "),
    (r"(?:limit )?\bseconds=", "--seconds "),
    (r"\blimit (nodes|gap|memory)=", r"limits in the query file: \1: "),
    (r"\bquery: (min_support|support_share)=", r"query file: \1: "),
    (r"\bchange_cost=", "change_cost in the query file: "),
    (r"run settings: device '([^']*)'", r"--device \1"),
    (r"run settings: (workers|chunk)=", r"--\1 "),
    (r"(?:fit|behaviour|report|summary|split|review): (epochs|validation|cases|threshold|test|seed)=", r"--\1 "),
    (r"\bthreshold=", "--threshold "),
    (r"(?:fit|behaviour): (batch_size|learning_rate|threads)=", r"--set \1="),
)
"""What the library calls its parameters, and what the command line calls them."""


def in_options(message: str) -> str:
    """A message of the library with the command line's options in place of Python's parameters.

    >>> in_options("max_changes=-1: must be at least 0.")
    '--max-changes -1: must be at least 0.'
    """
    for parameter, option in IN_OPTIONS:
        message = re.sub(parameter, option, message)
    return message


def _failed(message: str, code: ExitCode, *, label: str = "error") -> ExitCode:
    note(label, message, style="bold red")
    return code


def require_extra(extra: str, *packages: str, what: str) -> None:
    """Refuse, in one sentence, what needs packages that are not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InputError(
            f"{what} needs {', '.join(missing)}, which is not installed; install it: pip install 'ifonly[{extra}]'"
        )


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
