"""The command line: `ifonly --help` says what there is.

Commands import what they need when they run, so that help comes at once.
"""

import inspect
import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ifonly.cli import cohorts, data, info, learning, mimic, queries, report, serve, solve, study
from ifonly.cli.frame import EXIT_CODES, Output, paragraphs, register
from ifonly.version import __version__

JSON = "--json"


class Commands(TyperGroup):
    """Commands that share an option, which may stand before or behind the command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the shared option in front, where it is looked for."""
        end = args.index("--") if "--" in args else len(args)
        others = [arg for arg in args[:end] if arg != JSON]
        front = [JSON] if len(others) < end else []
        return super().parse_args(ctx, [*front, *others, *args[end:]])


app = typer.Typer(
    name="ifonly",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog="\n\n".join(["[bold]Exit codes[/bold]", *(f"{int(code):>3}  {text}" for code, text in EXIT_CODES.items())]),
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ifonly {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    json: Annotated[
        bool,
        typer.Option(JSON, help="Print one JSON document on stdout, and nothing else there; of every command."),
    ] = False,
) -> None:
    """If only we had acted differently at k moments: how much better could it have gone, and when?

    Looks back at recorded episodes, learns a causal model of them, and finds for single episodes the action sequence
    with at most k changes that would have gone best, with proof. Start with: ifonly demo
    """
    Output.as_json = json


app.callback(help=paragraphs(inspect.getdoc(root) or ""))(root)
register(app, "demo", study.demo, has_json=False)
register(app, "init", study.init)
register(app, "run", study.run)
register(app, "simulate", data.simulate, about_values=True)
register(app, "import", data.import_table, about_values=True)
register(app, "mimic", mimic.mimic, about_values=True)
register(app, "card", data.card, about_values=True)
register(app, "split", data.split, about_values=True)
register(app, "fit", learning.fit, about_values=True)
register(app, "crossval", learning.crossval)
register(app, "check", learning.check)
register(app, "behaviour", learning.behaviour, about_values=True)
register(app, "query", queries.query)
register(app, "solve", solve.solve)
register(app, "cohort", cohorts.cohort)
register(app, "summarize", report.summarize)
register(app, "report", report.report)
register(app, "serve", serve.serve, has_json=False)
register(app, "verify", solve.verify)
register(app, "info", info.info, about_values=True)


def main() -> None:
    """Run the command line."""
    # Read when torch is loaded. Threads that wait by spinning, the default, are many times slower as soon as anything
    # else wants a processor.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    app()


__all__ = ["app", "main"]
