import shlex

import pytest
from typer.main import get_command

from ifonly.cli import app
from ifonly.cli.frame import EXIT_CODES
from ifonly.version import __version__

GROUP = get_command(app)
COMMANDS = sorted(GROUP.commands)
EXAMPLES = [
    (name, line)
    for name in COMMANDS
    for line in (GROUP.commands[name].epilog or "").splitlines()
    if line.startswith("ifonly ")
]


def test_version(run) -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"ifonly {__version__}\n")


def test_help_lists_commands_and_exit_codes(run) -> None:
    result = run("--help")
    words = " ".join(result.stdout.split())
    assert result.exit_code == 0
    assert {"demo", "simulate", "import", "fit", "crossval", "solve", "verify", "info", "accuracy"} <= set(COMMANDS)
    for name in COMMANDS:
        assert f"│ {name} " in words
    for code, meaning in EXIT_CODES.items():
        assert f"{int(code)} {meaning}" in words


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_in_help_is_taken_for_markup(name: str) -> None:
    assert "[" not in (GROUP.commands[name].help or ""), "what stands in brackets would not be shown"


def test_no_command_shows_help(run) -> None:
    result = run()
    assert result.exit_code == 2
    assert "Usage: ifonly" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_shows_an_example(run, name: str) -> None:
    result = run(name, "--help")
    words = " ".join(result.stdout.split())
    examples = [line for command, line in EXAMPLES if command == name]
    assert result.exit_code == 0
    assert examples
    for line in examples:
        assert line in words


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_examples_parse(name: str, line: str) -> None:
    program, command, *arguments = shlex.split(line)
    assert (program, command) == ("ifonly", name)
    context = GROUP.commands[name].make_context(name, arguments)  # raises on an unknown option or a wrong value
    assert context.params


def test_the_parser_of_examples_notices() -> None:
    with pytest.raises(Exception, match="No such option"):
        GROUP.commands["fit"].make_context("fit", ["--episodes", "a", "--out", "b", "--epoch-count", "3"])
