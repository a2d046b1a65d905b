"""What the commands of the studies share: options and tables for people."""

from __future__ import annotations

from typing import Annotated, Any

import polars as pl
import typer
from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else there.")]


def whole_number(*names: str, help: str, least: int = 1, default: str | bool = True) -> Any:
    """A whole number."""
    return typer.Option(*names, metavar="N", min=least, help=help, show_default=default)


Workers = Annotated[int | None, whole_number(help="Processes at work, of one thread each.", default="all cores")]


def repeated(option: str, help: str, default: str = "all") -> Any:
    """An option that may be repeated."""
    return typer.Option(option, metavar="NAME", help=f"{help}; may be repeated.", show_default=default)


def as_table(frame: pl.DataFrame, title: str) -> Table:
    """A table of text columns for the terminal."""
    table = Table(title=title, title_justify="left")
    for name in frame.columns:
        table.add_column(name, justify="right")
    for row in frame.iter_rows():
        table.add_row(*(str(value) for value in row))
    return table
