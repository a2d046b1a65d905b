"""Options that several commands share, and how lists of numbers are read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

Episodes = Annotated[
    Path, typer.Option("--episodes", metavar="FOLDER", help="A stored cohort of episodes.", show_default=False)
]
ModelFolder = Annotated[
    Path, typer.Option("--model", metavar="FOLDER", help="A model that `ifonly fit` saved.", show_default=False)
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed gives the same answer.")]
Device = Annotated[str, typer.Option("--device", metavar="NAME", help="Where to compute: cpu, cuda, cuda:1, ...")]
Force = Annotated[bool, typer.Option("--force", help="Replace what exists already.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")]
Hidden = Annotated[str, typer.Option("--hidden", metavar="WIDTHS", help="Width of each hidden layer, such as 200,100.")]
Epochs = Annotated[int, typer.Option("--epochs", metavar="N", min=1, help="Passes over the training data.")]
BatchSize = Annotated[int, typer.Option("--batch-size", metavar="N", min=1, help="Transitions per gradient step.")]
LearningRate = Annotated[float, typer.Option("--learning-rate", metavar="RATE", help="Step size of Adam.")]


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Whole numbers of at least 1, separated by commas.

    >>> whole_numbers("200,100", "--hidden")
    (200, 100)
    """
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1:
        raise typer.BadParameter(f"{option} {text!r}: give whole numbers of at least 1, such as 200 or 200,100.")
    return numbers


def limits(text: str, option: str) -> tuple[float | None, ...]:
    """Lipschitz limits separated by commas; "none" leaves a function free.

    >>> limits("1.0,none", "--lipschitz")
    (1.0, None)
    """
    try:
        return tuple(None if part.strip() == "none" else float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{option} {text!r}: give numbers separated by commas, such as 1.0,0.1.") from None


def horizon(text: str, option: str) -> tuple[int, int]:
    """A number of steps, or the shortest and the longest.

    >>> horizon("10-20", "--horizon"), horizon("12", "--horizon")
    ((10, 20), (12, 12))
    """
    first, _, last = text.partition("-")
    try:
        return int(first), int(last or first)
    except ValueError:
        raise typer.BadParameter(f"{option} {text!r}: give a number of steps such as 12, or a range: 10-20.") from None


def groupings(texts: Sequence[str]) -> dict[str, tuple[float, ...] | None]:
    """What to group by, and at which edges.

    >>> groupings(["gender", "age=50,70"])
    {'gender': None, 'age': (50.0, 70.0)}
    """
    found: dict[str, tuple[float, ...] | None] = {}
    for text in texts:
        name, separator, edges = (part.strip() for part in text.partition("="))
        if not name or name in found:
            raise typer.BadParameter(f"--by {text!r}: give NAME or NAME=EDGES, each name once.")
        try:
            found[name] = tuple(float(edge) for edge in edges.split(",")) if separator else None
        except ValueError:
            raise typer.BadParameter(f"--by {text!r}: edges are numbers separated by commas, such as 50,70.") from None
    return found
