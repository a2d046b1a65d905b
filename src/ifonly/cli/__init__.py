"""The command line: `ifonly --help` says what there is.

Commands import what they need when they run, so that help comes at once.
"""

import os
from typing import Annotated

import typer

from ifonly.cli import (
    behaviour,
    card,
    check,
    cohort,
    data,
    demo,
    info,
    mimic,
    models,
    report,
    results,
    schema,
    search,
    serve,
    summarize,
)
from ifonly.cli.frame import EXIT_CODES, paragraphs, register
from ifonly.version import __version__

app = typer.Typer(
    name="ifonly",
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
) -> None:
    """If only we had acted differently at k moments: how much better could it have gone, and when?

    Looks back at recorded episodes, learns a causal model of them, and finds for single episodes the action sequence
    with at most k changes that would have gone best, with proof. Start with: ifonly demo
    """


app.callback(help=paragraphs(root))(root)
register(app, "demo", demo.demo, demo.DEMO_EXAMPLES)
register(app, "simulate", data.simulate, data.SIMULATE_EXAMPLES, about_values=True)
register(app, "schema", schema.schema, schema.SCHEMA_EXAMPLES)
register(app, "import", data.import_table, data.IMPORT_EXAMPLES, about_values=True)
register(app, "mimic", mimic.mimic, mimic.MIMIC_EXAMPLES, about_values=True)
register(app, "card", card.card, card.CARD_EXAMPLES, about_values=True)
register(app, "fit", models.fit, models.FIT_EXAMPLES, about_values=True)
register(app, "crossval", models.crossval, models.CROSSVAL_EXAMPLES)
register(app, "check", check.check, check.CHECK_EXAMPLES)
register(app, "behaviour", behaviour.behaviour, behaviour.BEHAVIOUR_EXAMPLES, about_values=True)
register(app, "solve", search.solve, search.SOLVE_EXAMPLES)
register(app, "cohort", cohort.cohort, cohort.COHORT_EXAMPLES)
register(app, "summarize", summarize.summarize, summarize.SUMMARIZE_EXAMPLES)
register(app, "report", report.report, report.REPORT_EXAMPLES)
register(app, "serve", serve.serve, serve.SERVE_EXAMPLES)
register(app, "verify", results.verify, results.VERIFY_EXAMPLES)
register(app, "info", info.info, info.INFO_EXAMPLES, about_values=True)


def main() -> None:
    """Run the command line."""
    # Read when torch is loaded. Threads that wait by spinning, the default, are many times slower as soon as anything
    # else wants a processor.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    app()


__all__ = ["app", "main"]
