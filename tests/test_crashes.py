"""Killed at any write, by kill -9 or by a power cut, a command that is given again ends as if nothing had happened."""

import json
from pathlib import Path

import pytest
from crash_commands import ALREADY_DONE, COMMANDS, Command, invoke, make_world, products, start
from effort import LONG
from moments import Disk
from unpainted_figures import leave_unpainted

from ifonly import files
from ifonly.journal import Journal


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crashes") / "world"
    with pytest.MonkeyPatch.context() as patch:
        leave_unpainted(patch)
        make_world(folder)
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
@pytest.mark.usefixtures("unpainted")
def test_a_command_that_was_killed_ends_as_if_it_were_not(
    command: Command, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(command, world, tmp_path / "world")
    with monkeypatch.context() as patch:
        disk = Disk(tmp_path / "world", tmp_path / "shelf", command.moments * (10 if LONG else 1), 7, patch)
        code, output = invoke(command.arguments(tmp_path / "world"))
    assert code in (0, 6), output
    assert disk.seen > command.moments
    expected = products(tmp_path / "world")
    (tmp_path / "world").rename(tmp_path / "done")
    for copy in disk.copies:
        copy.rename(tmp_path / "world")
        again, said = invoke(command.arguments(tmp_path / "world"))
        assert again == code or ALREADY_DONE in said, said
        found = products(tmp_path / "world")
        assert found.keys() == expected.keys(), copy.name
        assert [name for name in found if found[name] != expected[name]] == [], copy.name
        (tmp_path / "world").rename(copy)
