"""What every command shares: exit codes, errors and warnings as people read them, output for people or machines."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import IntEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_type_hints

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ifonly.errors import (
    FailedModelError,
    IfonlyError,
    InputError,
    PlausibilityWarning,
    SettingError,
    StoreError,
    VerificationError,
    visible,
)
from ifonly.files import check_writable, file_reason
from ifonly.text.catalogue import say

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
    ExitCode.DONE: "done as asked (reaching the gap you asked for, and a heuristic's answer, count as done)",
    ExitCode.USAGE: "the command line is wrong",
    ExitCode.BAD_INPUT: "bad input: a file, an id or a value, named in the message",
    ExitCode.LIMIT_REACHED: "a search stopped at a limit; its result, a valid bracket, is printed and saved",
    ExitCode.NOT_VERIFIED: "a result failed verification",
    ExitCode.NOT_PASSED: "a model failed its check, or could not be judged; the findings are printed and saved",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C; no file is left half-written",
}


class PlainConsole(Console):
    """Shows texts as they are: what terminals obey comes from here alone, and not from files that are shown."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """As always, with such signs written out."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


class Output:
    """Where output goes: results to stdout, for people or as one JSON document; notes to stderr."""

    as_json = False
    """Whether --json stands anywhere on the command line."""

    def show(self, *items: RenderableType) -> None:
        """Write for people; with --json, write nothing."""
        if Output.as_json:
            return
        console = PlainConsole(highlight=False)
        if not console.is_terminal:
            console.width = max(console.width, WIDTH_ELSEWHERE)
        for item in items:
            if isinstance(item, str):
                # Long lines are left to the terminal: text that is piped elsewhere must not be broken.
                console.print(Text(item), soft_wrap=True)
            else:
                console.print(item)

    def document(self, content: Any) -> None:
        """Write the JSON document if --json asks for it."""
        if Output.as_json:
            typer.echo(json.dumps(content, indent=2, allow_nan=False))

    def tell(self, content: Any, *items: RenderableType) -> None:
        """Write the document for programs or the items for people, whichever is asked for."""
        self.document(content)
        self.show(*items)


def notes() -> Console:
    """The console for progress, notes and errors: stderr, so that stdout stays clean."""
    return PlainConsole(stderr=True, highlight=False)


def note(label: str, message: object, *, style: str = "bold yellow") -> None:
    """Write a labelled message to stderr."""
    notes().print(Text.assemble((f"{label}: ", style), str(message)), soft_wrap=True)


def alarm(label: str, message: object) -> None:
    """The same in red, for what went wrong."""
    note(label, message, style="bold red")


def name_damaged(journal: Path, lines: Sequence[int]) -> None:
    """Say which lines of a journal were set aside, if any: their work is done again."""
    if lines:
        alarm(
            "caution",
            say("journal.damaged", journal=journal, lines=", ".join(f"{line:,}" for line in lines), count=len(lines)),
        )


def add_command(
    app: typer.Typer,
    name: str,
    command: Callable[..., ExitCode],
    *,
    about_values: bool = False,
    has_json: bool = True,
) -> None:
    """Register `command` under `name`; its docstring is its help, and the examples at its end become the epilog.

    A parameter that is a dataclass stands for one option per field, so that commands can share options. Implausible
    values are reported only by commands `about_values`: repeated by every command, the note would be tiresome.
    """
    also = ["With --json: one JSON document on stdout and nothing else."] if has_json else []
    text, _, examples = (inspect.getdoc(command) or "").partition("\n\nExamples:\n")
    lines = examples.replace("\\\n", " ").splitlines()
    epilog = "\n\n".join([*also, "[bold]Examples[/bold]", *(" ".join(line.split()) for line in lines)])
    guarded = _guarded(command, about_values=about_values, has_json=has_json)
    app.command(name, help=paragraphs(text), epilog=epilog)(guarded)


def paragraphs(text: str) -> str:
    """A docstring with each paragraph on one line: the terminal wraps it."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _guarded(command: Callable[..., ExitCode], *, about_values: bool, has_json: bool) -> Callable[..., None]:
    """The command with expected failures turned into a message and an exit code; bugs keep their traceback."""
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
            code = _failed(error, ExitCode.NOT_VERIFIED)
        except SettingError as error:
            code = _failed(_as_option(error, signature), ExitCode.BAD_INPUT)
        except FailedModelError as error:
            from ifonly.text.checks import refusal_message

            code = _failed(refusal_message(error.findings, "--allow-failed-model"), ExitCode.BAD_INPUT)
        except IfonlyError as error:
            code = _failed(error, ExitCode.BAD_INPUT)
        except BrokenPipeError:
            raise  # the reader of our output has gone; typer exits quietly
        except OSError as error:
            place = "" if error.filename is None else f"{error.filename}: "
            code = _failed(f"{place}{file_reason(error)}.", ExitCode.BAD_INPUT)
        except KeyboardInterrupt:
            code = _failed(say("interrupted"), ExitCode.INTERRUPTED, label="interrupted")
        raise typer.Exit(code)

    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def _options_of(command: Callable[..., ExitCode]) -> tuple[dict[str, Any], inspect.Signature]:
    """The parameters that are dataclasses, and the signature with their fields in place of them."""
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


def _as_option(error: SettingError, signature: inspect.Signature) -> str:
    """The error with the setting named as the command's option, where it has one."""
    if error.setting not in signature.parameters:
        return str(error)
    return f"--{error.setting.replace('_', '-')} {error.value}: {error.why}"


def _failed(message: object, code: ExitCode, *, label: str = "error") -> ExitCode:
    alarm(label, message)
    return code


def require_extra(extra: str, *packages: str, what: str) -> None:
    """Refuse in one sentence if packages that `what` needs are not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InputError(f"{what} needs {' and '.join(missing)}, not installed here: pip install 'ifonly[{extra}]'")


@contextmanager
def _friendly_warnings(action: Literal["always", "ignore"]) -> Iterator[None]:
    """Show warnings about implausible values as one-line notes, or not at all."""
    with warnings.catch_warnings():
        warnings.simplefilter(action, PlausibilityWarning)
        python_shows = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
            if issubclass(category, PlausibilityWarning):
                note("note", message)
            else:
                python_shows(message, category, *rest, **more)

        warnings.showwarning = show
        yield


def require_free(*files: Path | None, folder: Path | None = None, force: bool | None) -> None:
    """Before any work is done, refuse targets that exist already or cannot be written; None: there is no --force."""
    for path in (*files, folder):
        if path is None:
            continue
        if path.exists() and not force:
            replace = "" if force is None else ", or replace it with --force"
            raise StoreError(f"{path} exists already; choose another name{replace}.")
        check_writable(path, folder=path is folder)
