"""Killed at any write, by kill -9 or by a power cut, a command that is given again ends as if nothing had happened."""

import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from crash_commands import ALREADY_DONE, COMMANDS, Command, invoke, make_world, products, start
from effort import LONG, long, some
from moments import Disk
from study.standins import without_drawing
from unpainted_figures import leave_unpainted
from writes import Write, tell_writes

from ifonly.web.notes import Note, Notes


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crashes") / "world"
    with pytest.MonkeyPatch.context() as patch:
        leave_unpainted(patch)
        make_world(folder)
    return folder


each_command = pytest.mark.parametrize(
    "command",
    [pytest.param(one, id=one.name, marks=() if one.moments else long) for one in COMMANDS],
)


def files_unknown_to_the_audit(command: Command, world: Path, folder: Path) -> list[str]:
    """What the command wrote under names that docs/privacy.md, which tells what each file says of persons, lacks.

    Files that the command was told to write have the names of whoever asked, or begin with them.
    """
    page = (Path(__file__).parents[1] / "docs" / "privacy.md").read_text()
    told = [str(part) for part in command.arguments(folder)]
    found = []
    for path in folder.rglob("*"):
        before = world / path.relative_to(folder)
        is_new = path.is_file() and not (before.is_file() and before.read_bytes() == path.read_bytes())
        asked = [name for name in told if str(path).startswith(name) and not Path(name).is_dir()]
        name = f"NAME{str(path).removeprefix(asked[0])}" if asked else path.name
        if is_new and name != "NAME" and f"`{name}`" not in page:
            found.append(name)
    return sorted(found)


@each_command
@pytest.mark.usefixtures("unpainted")
def test_a_command_that_was_killed_ends_as_if_it_were_not(
    command: Command, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stood_in = command.name.startswith("run") and not LONG
    if stood_in:
        without_drawing(monkeypatch)
    start(command, world, tmp_path / "world")
    with monkeypatch.context() as patch:
        disk = Disk(
            tmp_path / "world", tmp_path / "shelf", 10 * (command.moments or 1) if LONG else command.moments, 7, patch
        )
        code, output = invoke(command.arguments(tmp_path / "world"))
    assert code in (0, 6), output
    assert len(disk.copies) == min(disk.most, disk.seen) > 0
    expected = products(tmp_path / "world")
    assert stood_in or files_unknown_to_the_audit(command, world, tmp_path / "world") == []
    (tmp_path / "world").rename(tmp_path / "done")
    for copy in disk.copies:
        copy.rename(tmp_path / "world")
        again, said = invoke(command.arguments(tmp_path / "world"))
        assert again == code or ALREADY_DONE in said, said
        found = products(tmp_path / "world")
        assert found.keys() == expected.keys(), copy.name
        assert [name for name in found if found[name] != expected[name]] == [], copy.name
        (tmp_path / "world").rename(copy)


@pytest.mark.parametrize("name", ["build", pytest.param("fit kinds", marks=long)])
@pytest.mark.usefixtures("unpainted")
def test_stopped_while_it_tidies_up_a_command_leaves_nothing(
    name: str, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of patients, above all."""
    command = next(one for one in COMMANDS if one.name == name)
    removed: list[Path] = []

    def run(folder: Path, last: int) -> int:
        def stop(write: Write) -> None:
            if write.kind == "remove":
                removed.append(write.path)
                if len(removed) == last:
                    raise KeyboardInterrupt

        removed.clear()
        start(command, world, folder)
        with monkeypatch.context() as patch:
            tell_writes(stop, folder, patch.setattr)
            return invoke(command.arguments(folder))[0]

    assert run(tmp_path / "whole", 0) == 0
    assert run(tmp_path / "world", len(removed) - 5) == 130
    _, said = invoke(command.arguments(tmp_path / "world"))
    assert ALREADY_DONE in said
    assert products(tmp_path / "world").keys() == products(tmp_path / "whole").keys()


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Nobody can write more into a file: for whoever writes, native code as well, the disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@each_command
@pytest.mark.usefixtures("unpainted")
def test_a_full_disk_is_named_and_costs_nothing_once_there_is_room(
    command: Command, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command.name.startswith("run") and not LONG:
        without_drawing(monkeypatch)
    place = tmp_path / "world"
    start(command, world, place)
    began = time.time_ns()
    code, output = invoke(command.arguments(place))
    assert code in (0, 6), output
    states = [path.stat() for path in place.rglob("*") if path.is_file()]
    largest = max(state.st_size for state in states if state.st_mtime_ns >= began)
    expected = products(place)
    for size in (0, largest // 2):
        shutil.rmtree(place)
        start(command, world, place)
        with largest_file(size):
            refused, said = invoke(command.arguments(place))
        assert refused == 3, (size, said)
        assert f"{place}/" in said or "the disk is full" in said, (size, said)
        assert not [path for path in place.rglob(".*") if path.is_file()], size
        again, said = invoke(command.arguments(place))
        assert again == code, (size, said)
        found = products(place)
        assert found.keys() == expected.keys(), size
        assert [name for name in found if found[name] != expected[name]] == [], size


def test_notes_cut_off_anywhere_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Copies of the files are what a kill leaves; SQLite's log is cut at any byte, as by a power cut."""
    place = tmp_path / "notes"
    place.mkdir()
    notes = Notes(place / "notes.sqlite", cohort="c", model="m")
    log = place / "notes.sqlite-wal"
    sizes = [log.stat().st_size]
    for number in range(6):
        notes.save(Note(f"e{number}", note=f"note {number}"))
        sizes.append(log.stat().st_size)
    draw = random.Random(3)
    cuts = [draw.randint(sizes[0], sizes[-1]) for _ in range(some(60))]
    for cut in (*cuts, *sizes):
        copy = tmp_path / "copy"
        shutil.copytree(place, copy)
        (copy / "notes.sqlite-shm").unlink()  # memory that processes share: a power cut takes it along
        with (copy / log.name).open("ab") as file:
            file.truncate(cut)
        found = Notes(copy / "notes.sqlite", cohort="c", model="m")
        saved = max(number for number, size in enumerate(sizes) if size <= cut)
        assert {name: [note.note for note in notes] for name, notes in found.reviews().items()} == {
            f"e{number}": [f"note {number}"] for number in range(saved)
        }
        found.save(Note("e9", note="after it"))
        found.close()
        shutil.rmtree(copy)
    notes.close()


def test_the_harness_finds_what_is_not_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is written in place is lost in some moments, and a name that is not synced in others."""
    place = tmp_path / "world"
    place.mkdir()
    (place / "a.txt").write_text("old")
    with monkeypatch.context() as patch:
        disk = Disk(place, tmp_path / "shelf", 20, 0, patch)
        for _ in range(10):
            (place / "a.txt").write_text("new")
            (place / ".a.txt-new").write_text("newer")
            (place / ".a.txt-new").replace(place / "b.txt")
    left = {(copy / "a.txt").read_text() for copy in disk.copies}
    assert {"", "n", "new"} <= left
    assert any(not (copy / "b.txt").exists() for copy in disk.copies)


def test_real_kills_are_survived() -> None:
    """A few, also of a server that is saving notes; `make crash` tries many, and all commands."""
    tool = Path(__file__).parents[1] / "tools" / "crash.py"
    chosen = [part for name in ("notes", "split", "serve") for part in ("--only", name)]
    command = [sys.executable, tool, "--moments", 50 if LONG else 8, *chosen]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "serve: " in done.stdout
    assert ", 0 not survived" in done.stdout
