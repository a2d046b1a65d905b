"""The command line: `ifonly --help` says what there is.

Commands import what they need when they run, so that help comes at once.
"""

import inspect
import os
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ifonly.cli import build, cohorts, data, info, learning, queries, report, serve, solve, study
from ifonly.cli.frame import EXIT_CODES, Output, add_command, paragraphs
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

    def invoke(self, ctx: Any) -> Any:
        """A value that an option cannot take is refused in our words."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if error.__cause__ is not None:
                from pydantic import ValidationError

                from ifonly.records import first_fault

                if isinstance(error.__cause__, ValidationError):
                    error.message = first_fault(error.__cause__)[1]
            raise


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
        typer.Option(JSON, help="Print one JSON document on stdout and nothing else; works with every command."),
    ] = False,
) -> None:
    """If only we had acted differently at k moments: how much better could it have gone, and when?

    Looks back at recorded episodes, learns a causal model from them, and finds for each episode the action sequence
    with at most k changes that would have gone best, with proof. Start with: ifonly demo
    """
    Output.as_json = json


app.callback(help=paragraphs(inspect.getdoc(root) or ""))(root)
add_command(app, "demo", study.demo, has_json=False)
add_command(app, "init", study.init)
add_command(app, "run", study.run)
add_command(app, "simulate", data.simulate, about_values=True)
add_command(app, "import", data.import_table, about_values=True)
add_command(app, "build", build.build, about_values=True)
add_command(app, "card", data.card, about_values=True)
add_command(app, "split", data.split, about_values=True)
add_command(app, "pool", data.pool, about_values=True)
add_command(app, "fit", learning.fit, about_values=True)
add_command(app, "crossval", learning.crossval)
add_command(app, "check", learning.check)
add_command(app, "behaviour", learning.behaviour, about_values=True)
add_command(app, "query", queries.query)
add_command(app, "solve", solve.solve)
add_command(app, "cohort", cohorts.cohort)
add_command(app, "summarize", report.summarize)
add_command(app, "report", report.report)
add_command(app, "deidentify", report.deidentify)
add_command(app, "serve", serve.serve, has_json=False)
add_command(app, "verify", solve.verify)
add_command(app, "info", info.info, about_values=True)


def main() -> None:
    """Run the command line."""
    # Read when torch is loaded. Threads that wait by spinning, the default, are many times slower as soon as anything
    # else wants a processor.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    app()


__all__ = ["app", "main"]
