"""Options that several commands share, and how lists of numbers and names are read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ifonly.errors import InputError

MORE = "More options"
"""The panel of options that few need."""

Episodes = Annotated[
    Path, typer.Option("--episodes", metavar="FOLDER", help="A stored cohort of episodes.", show_default=False)
]
ModelFolder = Annotated[
    Path, typer.Option("--model", metavar="FOLDER", help="A model that `ifonly fit` saved.", show_default=False)
]
Behaviour = Annotated[
    Path | None,
    typer.Option(
        "--behaviour", metavar="FOLDER", help="What `ifonly behaviour` learned: tell how usual each change is."
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="ID",
        help="This episode; may be repeated. @FILE: those whose ids the file has, one a line.",
        show_default=False,
    ),
]
Seconds = Annotated[float | None, typer.Option("--seconds", metavar="S", min=0, help="Stop each search after this.")]
Out = Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where to store it.", show_default=False)]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed gives the same answer.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what exists already.")]
Device = Annotated[
    str, typer.Option("--device", metavar="NAME", help="Where to compute: cpu, cuda, cuda:1, ...", rich_help_panel=MORE)
]
By = Annotated[
    list[str] | None,
    typer.Option(
        "--by",
        metavar="NAME[=EDGES]",
        help="Look at groups, too, by a feature's value at the first step; numbers are cut at their quartiles or at "
        "these edges, such as age=50,70; may be repeated.",
    ),
]
Hidden = Annotated[
    str, typer.Option("--hidden", metavar="WIDTHS", help="Width of each hidden layer, such as 200,100; none: none.")
]
Epochs = Annotated[int, typer.Option("--epochs", metavar="N", min=1, help="Passes over the training data.")]
Threshold = Annotated[
    float,
    typer.Option(
        "--threshold", metavar="SHARE", min=0, help="Episodes that improve by at least this are interesting cases."
    ),
]


def setting_option(*names: str, example: str) -> Any:
    """The option `--set NAME=VALUE` for settings that few change."""
    return typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help=f"Another setting: {', '.join(names)}; such as {example}; may be repeated.",
        rich_help_panel=MORE,
    )


def settings(texts: Sequence[str] | None, kinds: Mapping[str, type]) -> dict[str, Any]:
    """What `--set` says, each value of the kind that its name has.

    >>> settings(["batch_size=128", "prior=laplace"], {"batch_size": int, "prior": str})
    {'batch_size': 128, 'prior': 'laplace'}
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
        except ValueError:
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
            raise InputError(f"--only {text}: cannot be read ({error}).") from None
        if not any(line.strip() for line in lines):
            raise InputError(f"--only {text}: names no episode; give one id a line.")
        listed += [line.strip() for line in lines if line.strip()]
    return list(dict.fromkeys(listed))


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
