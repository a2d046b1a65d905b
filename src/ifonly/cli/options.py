"""Options that several commands share, and how lists of numbers and names are read."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ifonly
from ifonly.errors import InputError, SettingError
from ifonly.files import file_reason

if TYPE_CHECKING:
    from ifonly.evidence.behaviour import BehaviourModel

MORE = "More options"
"""The panel of options that few need."""


def option(
    metavar: str, help: str, *names: str, default: str | bool = True, panel: str | None = None, **limits: float
) -> Any:
    """An option, called as its parameter is unless `names` say otherwise; `default` in words where it is no value."""
    return typer.Option(
        *names,
        metavar=metavar,
        help=help,
        show_default=default,
        rich_help_panel=panel,
        **limits,  # type: ignore[arg-type]
    )


def flag(name: str, help: str, *, panel: str | None = None) -> Any:
    """An option without a value."""
    return typer.Option(name, help=help, rich_help_panel=panel)


def argument(metavar: str, help: str) -> Any:
    """What stands behind the command itself."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


Episodes = Annotated[Path, option("FOLDER", "A stored cohort of episodes.", default=False)]
ModelFolder = Annotated[Path, option("FOLDER", "A model that `ifonly fit` saved.", default=False)]
Behaviour = Annotated[
    Path | None, option("FOLDER", "What `ifonly behaviour` learned: how usual changes are, and with it a verdict.")
]
Only = Annotated[
    list[str] | None,
    option("ID", "This episode; may be repeated. @FILE: those whose ids the file has, one a line.", default=False),
]
Seconds = Annotated[float | None, option("S", "Stop each search after this.", min=0)]
Gap = Annotated[
    str | None,
    option(
        "GAP",
        "Stop each search once no sequence can be better by more than this: a share of the improvement, such as 1%, or "
        "a number in the outcome's units.",
        default="0",
    ),
]
Out = Annotated[Path, option("FOLDER", "Where to store it.", default=False)]
Seed = Annotated[int, option("N", "The same seed gives the same answer.", min=0)]
Force = Annotated[bool, flag("--force", "Replace what exists already.")]
Device = Annotated[str, option("NAME", "Where to compute: cpu, cuda, cuda:1, ...", panel=MORE)]
By = Annotated[
    list[str] | None,
    option(
        "NAME[=EDGES]",
        "Look at groups, too, by a feature's value at the first step; numbers are cut at their quartiles or at these "
        "edges, such as age=50,70; may be repeated.",
    ),
]
Hidden = Annotated[str, option("WIDTHS", "Width of each hidden layer, such as 200,100; none: none.")]
Epochs = Annotated[int, option("N", "Passes over the training data.", min=1)]
Abstain = Annotated[
    bool, flag("--abstain/--no-abstain", "Keep answers that are not to be believed out of figures, and count them.")
]
Threshold = Annotated[float, option("SHARE", "Episodes that improve by at least this are interesting cases.", min=0)]


def setting_option(*names: str, example: str) -> Any:
    """The option `--set NAME=VALUE` for settings that few change."""
    words = f"Another setting: {', '.join(names)}; such as {example}; may be repeated."
    return option("NAME=VALUE", words, "--set", panel=MORE)


YES_OR_NO = {"true": True, "false": False}


def switch(text: str) -> bool | str:
    """What is on, off or decided by the data."""
    return text if text == "auto" else YES_OR_NO[text]


def settings(texts: Sequence[str] | None, kinds: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """What `--set` says, each value of the kind that its name has.

    >>> settings(["batch_size=128", "prior=laplace"], {"batch_size": int, "prior": str})
    {'batch_size': 128, 'prior': 'laplace'}
    >>> settings(["subject_effect=true"], {"subject_effect": switch})
    {'subject_effect': True}
    """
    found: dict[str, Any] = {}
    for text in texts or ():
        name, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not value or name in found:
            raise typer.BadParameter(f"--set {text!r}: give NAME=VALUE, each name once.")
        if name not in kinds:
            from ifonly.data.plain import did_you_mean

            known = ", ".join(kinds)
            raise typer.BadParameter(f"--set {text!r}: there is only {known}.{did_you_mean(name, kinds)}")
        try:
            found[name] = kinds[name](value)
        except (KeyError, ValueError):
            raise typer.BadParameter(f"--set {text!r}: {value!r} is no {kinds[name].__name__}.") from None
    return found


def chosen_ids(given: Sequence[str] | None) -> list[str] | None:
    """The ids that `--only` names, each once, those of files included; None where it was not given."""
    if given is None:
        return None
    listed: list[str] = []
    for text in given:
        if not text.startswith("@"):
            listed.append(text)
            continue
        try:
            lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"--only {text}: cannot be read ({file_reason(error)}).") from None
        if not any(line.strip() for line in lines):
            raise InputError(f"--only {text}: names no episode; give one id a line.")
        listed += [line.strip() for line in lines if line.strip()]
    return list(dict.fromkeys(listed))


def learned_behaviour(folder: Path | None, schema: "ifonly.Schema") -> "BehaviourModel | None":
    """What clinicians do, as far as that was learned."""
    if folder is None:
        return None

    return ifonly.load_behaviour(folder, schema=schema)


def checked_threshold(share: float) -> float:
    """A number that improvements can be compared with."""
    if not math.isfinite(share):
        raise SettingError("threshold", share, "must be a number of at least 0, such as 0.15 for 15 %.")
    return share


def changes_limit(text: str) -> int | None:
    """At most how many changes: a whole number, or none for no limit.

    >>> changes_limit("3"), changes_limit("none")
    (3, None)
    """
    if text.strip().lower() == "none":
        return None
    if not text.strip().isdecimal():
        raise typer.BadParameter(f"--max-changes {text!r}: give a whole number from 0, or none for no limit.")
    return int(text)


def widths(text: str) -> tuple[int, ...]:
    """Widths of layers, separated by commas; "none" stands for no layer.

    >>> widths("200,100"), widths("none")
    ((200, 100), ())
    """
    if text.strip().lower() == "none":
        return ()
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter(f"--hidden {text!r}: give whole numbers of at least 1, such as 200 or 200,100.")
    return numbers


def limits(text: str) -> tuple[float | None, ...]:
    """Lipschitz limits separated by commas; "none" leaves a function free.

    >>> limits("1.0,none")
    (1.0, None)
    """
    try:
        return tuple(None if part.strip() == "none" else float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"--lipschitz {text!r}: give numbers separated by commas, such as 1.0,0.1.") from None


def horizon(text: str) -> tuple[int, int]:
    """A number of steps, or the shortest and the longest.

    >>> horizon("10-20"), horizon("12")
    ((10, 20), (12, 12))
    """
    first, _, last = text.partition("-")
    try:
        return int(first), int(last or first)
    except ValueError:
        raise typer.BadParameter(f"--horizon {text!r}: give a number of steps such as 12, or a range: 10-20.") from None


def groupings(texts: Sequence[str] | None) -> dict[str, tuple[float, ...] | None]:
    """What to group by, and at which edges.

    >>> groupings(["gender", "age=50,70"])
    {'gender': None, 'age': (50.0, 70.0)}
    """
    found: dict[str, tuple[float, ...] | None] = {}
    for text in texts or ():
        name, separator, edges = (part.strip() for part in text.partition("="))
        if not name or name in found:
            raise typer.BadParameter(f"--by {text!r}: give NAME or NAME=EDGES, each name once.")
        try:
            found[name] = tuple(float(edge) for edge in edges.split(",")) if separator else None
        except ValueError:
            raise typer.BadParameter(f"--by {text!r}: edges are numbers separated by commas, such as 50,70.") from None
    return found
