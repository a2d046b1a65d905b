import json
import shlex
from dataclasses import fields

import pytest
from typer.main import get_command

from ifonly.cli import app
from ifonly.cli.frame import EXIT_CODES
from ifonly.cli.queries import QueryOptions
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
    assert {"demo", "simulate", "import", "fit", "crossval", "solve", "verify", "info", "init", "run"} <= set(COMMANDS)
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
    known = [argument for argument in arguments if argument != "--json"]  # which is read before the command
    context = GROUP.commands[name].make_context(name, known)  # raises on an unknown option or a wrong value
    assert context.params or name == "demo"


def options_of(name: str) -> list:
    return [p for p in GROUP.commands[name].params if p.param_type_name == "option" and p.name != "help"]


def test_the_command_line_can_be_learned() -> None:
    assert sum(len(options_of(name)) for name in COMMANDS) < 150
    for name in COMMANDS:
        shown_first = [one for one in options_of(name) if not getattr(one, "rich_help_panel", None)]
        assert len(shown_first) <= 15, name
        assert not {"--episode"} & {word for one in options_of(name) for word in one.opts}, name


def test_commands_that_ask_share_their_options() -> None:
    shared = [{one.name: (one.opts, one.help) for one in options_of(name)} for name in ("solve", "cohort", "serve")]
    common = {field.name for field in fields(QueryOptions)}
    assert len(common) >= 9
    for name in common:
        assert shared[0][name] == shared[1][name] == shared[2][name]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_json_may_stand_anywhere(run, cohort_folder, place: int) -> None:
    words = ["info", cohort_folder]
    result = run(*words[:place], "--json", *words[place:])
    assert json.loads(result.stdout)["holds"] == "cohort"


def test_json_is_refused_where_there_is_none(run) -> None:
    assert run("demo", "--json").exit_code == 2


def test_the_parser_of_examples_notices() -> None:
    with pytest.raises(Exception, match="No such option"):
        GROUP.commands["fit"].make_context("fit", ["--episodes", "a", "--out", "b", "--epoch-count", "3"])
