"""`python -m paper`: the paper's experiments, and how far learned counterfactuals are from the truth."""

import typer

from ifonly.cli.frame import register
from paper.accuracy_command import ACCURACY_EXAMPLES, accuracy
from paper.reproduce_command import REPRODUCE_EXAMPLES, reproduce

app = typer.Typer(name="python -m paper", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
register(app, "reproduce", reproduce, REPRODUCE_EXAMPLES)
register(app, "accuracy", accuracy, ACCURACY_EXAMPLES)

if __name__ == "__main__":
    app()
