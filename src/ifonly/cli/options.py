"""Options shared by several commands, and parsers of lists of numbers and names."""

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
"""The help panel of rarely needed options."""


def option(
    metavar: str, help: str, *names: str, default: str | bool = True, panel: str | None = None, **limits: float
) -> Any:
    """An option, named after its parameter unless `names` are given; a text as `default` is shown in help as it is."""
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
    """A positional argument."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


Episodes = Annotated[Path, option("FOLDER", "A stored cohort of episodes.", default=False)]
ModelFolder = Annotated[Path, option("FOLDER", "A model that `ifonly fit` saved.", default=False)]
Behaviour = Annotated[
    Path | None,
    option("FOLDER", "A behaviour model that `ifonly behaviour` saved; with it each answer gets a verdict."),
]
Only = Annotated[
    list[str] | None,
    option("ID", "Only this episode; may be repeated. @FILE: the ids listed in FILE, one per line.", default=False),
]
Seconds = Annotated[float | None, option("S", "Stop each search after S seconds.", min=0)]
Gap = Annotated[
    str | None,
    option("GAP", "Stop each search where nothing can be better by more: a number, or of the gain: 1%.", default="0"),
]
Out = Annotated[Path, option("FOLDER", "Where to store it.", default=False)]
Seed = Annotated[int, option("N", "Random seed; the same seed gives the same result.", min=0)]
Force = Annotated[bool, flag("--force", "Replace what exists already.")]
Device = Annotated[str, option("NAME", "Device to compute on: cpu, cuda, cuda:1, ...", panel=MORE)]
By = Annotated[
    list[str] | None,
    option(
        "NAME[=EDGES]",
        "Also report by group: by a feature's value at the first step. Numbers are cut at their quartiles, or at the "
        "edges given, such as age=50,70. May be repeated.",
    ),
]
Hidden = Annotated[str, option("WIDTHS", "Width of each hidden layer, such as 200,100; none: no hidden layer.")]
Epochs = Annotated[int, option("N", "Passes over the training data.", min=1)]
Abstain = Annotated[
    bool, flag("--abstain/--no-abstain", "Leave answers that are not believable out of the figures, and count them.")
]
Threshold = Annotated[
    float, option("SHARE", "Episodes that improve by at least this share count as interesting.", min=0)
]


def setting_option(*names: str, example: str) -> Any:
    """The option `--set NAME=VALUE` for settings that are rarely changed."""
    words = f"Change a setting: {', '.join(names)}. For example {example}. May be repeated."
    return option("NAME=VALUE", words, "--set", panel=MORE)


YES_OR_NO = {"true": True, "false": False}


def switch(text: str) -> bool | str:
    """true, false, or auto: decided by the data."""
    return text if text == "auto" else YES_OR_NO[text]


def settings(texts: Sequence[str] | None, kinds: Mapping[str, Callable[[str], Any]]) -> dict[str, Any]:
    """The settings that `--set` gives, each value converted to its type.

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
            raise typer.BadParameter(f"--set {text!r}: unknown; settings are {known}.{did_you_mean(name, kinds)}")
        try:
            found[name] = kinds[name](value)
        except (KeyError, ValueError):
            raise typer.BadParameter(f"--set {text!r}: {value!r} is no {kinds[name].__name__}.") from None
    return found


def chosen_ids(given: Sequence[str] | None) -> list[str] | None:
    """The ids that `--only` names, files included, without repetitions; None where it was not given."""
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
            raise InputError(f"--only {text}: names no episode; give one id per line.")
        listed += [line.strip() for line in lines if line.strip()]
    return list(dict.fromkeys(listed))


def learned_behaviour(folder: Path | None, schema: "ifonly.Schema") -> "BehaviourModel | None":
    """The behaviour model of a folder, if one was named."""
    return None if folder is None else ifonly.load_behaviour(folder, schema=schema)


def checked_threshold(share: float) -> float:
    """The threshold, refused unless it is finite."""
    if not math.isfinite(share):
        raise SettingError("threshold", share, "must be a number of at least 0, such as 0.15 for 15 %.")
    return share


def changes_limit(text: str) -> int | None:
    """The largest number of changes; "none" stands for no limit.

    >>> changes_limit("3"), changes_limit("none")
    (3, None)
    """
    if text.strip().lower() == "none":
        return None
    if not text.strip().isdecimal():
        raise typer.BadParameter(f"--max-changes {text!r}: give a whole number from 0, or none for no limit.")
    return int(text)


def widths(text: str) -> tuple[int, ...]:
    """Widths of layers, separated by commas; "none" stands for no hidden layer.

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
    """Lipschitz limits separated by commas; "none" leaves a function unconstrained.

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
    """Names to group by, with the edges to cut numbers at.

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
