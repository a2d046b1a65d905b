import hashlib
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import ifonly
from ifonly import files
from ifonly.errors import StoreError
from ifonly.files import (
    atomic_file,
    atomic_folder,
    check_writable,
    none_is_younger,
    sha256_of,
    write_text_atomically,
)


def fill(folder, text):
    (folder / "one.txt").write_text(text)
    (folder / "two.txt").write_text(text)


def names_in(folder):
    return sorted(item.name for item in folder.iterdir())


def contents(folder):
    return {item.name: item.read_text() for item in folder.iterdir()}


def make(path, text="old"):
    with atomic_folder(path) as folder:
        fill(folder, text)


def whole(text):
    return {"one.txt": text, "two.txt": text}


def test_a_folder_appears_complete_with_its_parents(tmp_path):
    target = tmp_path / "a" / "b"
    with atomic_folder(target) as folder:
        fill(folder, "new")
        assert not target.exists()
    assert contents(target) == whole("new")
    assert names_in(target.parent) == ["b"]


def test_a_folder_in_the_way_is_replaced_only_on_request(tmp_path):
    target = tmp_path / "a"
    make(target)
    with pytest.raises(StoreError, match="exists already; pass overwrite=True"):
        make(target, "new")
    assert contents(target) == whole("old")
    with atomic_folder(target, overwrite=True) as folder:
        fill(folder, "new")
        assert contents(target) == whole("old")
    assert contents(target) == whole("new")
    assert names_in(tmp_path) == ["a"]


def test_of_two_who_write_a_folder_at_once_one_is_refused(tmp_path):
    def be_slow():
        with atomic_folder(tmp_path / "a") as folder:
            fill(folder, "slow")
            make(tmp_path / "a", "quick")

    with pytest.raises(StoreError, match="exists already"):
        be_slow()
    assert contents(tmp_path / "a") == whole("quick")
    assert names_in(tmp_path) == ["a"]


def test_a_file_in_the_way_is_never_replaced(tmp_path):
    (tmp_path / "a").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(StoreError, match="is a file"), atomic_folder(tmp_path / "a", overwrite=overwrite):
            pass
    assert (tmp_path / "a").read_text() == "mine"


def test_other_peoples_files_are_not_overwritten(tmp_path):
    target = tmp_path / "a"
    make(target)
    (target / "thesis.txt").write_text("years of work")
    with (
        pytest.raises(StoreError, match=r"also holds thesis.txt,.*would delete"),
        atomic_folder(target, overwrite=True) as folder,
    ):
        fill(folder, "new")
    assert contents(target) == {**whole("old"), "thesis.txt": "years of work"}
    assert names_in(tmp_path) == ["a"]


@pytest.fixture
def no_exchange(monkeypatch):
    """A disk that cannot swap two names at once."""
    monkeypatch.setattr(files, "exchange", lambda one, other: False)


@pytest.mark.usefixtures("no_exchange")
def test_what_is_outdated_goes_with_the_old_folder_and_stays_with_it(tmp_path, monkeypatch):
    target = tmp_path / "a"
    make(target)
    (target / "verdict.txt").write_text("of the old")
    before = contents(target)

    def replaced():
        with atomic_folder(target, overwrite=True, outdated=["verdict.txt", "never.txt"]) as folder:
            fill(folder, "new")

    (target / "thesis.txt").write_text("years of work")
    with pytest.raises(StoreError, match=r"also holds thesis.txt,"):
        replaced()
    (target / "thesis.txt").unlink()
    assert contents(target) == before
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse_swaps(Path.rename))
        with pytest.raises(OSError, match="no space"):
            replaced()
    assert contents(target) == before
    replaced()
    assert contents(target) == whole("new")
    assert names_in(tmp_path) == ["a"]


def refuse_swaps(rename):
    """A rename that fails where a finished folder is to take the name of an old one."""

    def refusing(self, to):
        if self.name.startswith(".") and not self.name.endswith("-old"):
            raise OSError("no space")
        return rename(self, to)

    return refusing


def test_a_link_stays_a_link(tmp_path):
    make(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    with atomic_folder(tmp_path / "link", overwrite=True) as folder:
        fill(folder, "new")
    assert (tmp_path / "link").is_symlink()
    assert contents(tmp_path / "real") == whole("new")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("existing", [False, True])
def test_an_error_in_the_block_changes_nothing(tmp_path, error, existing):
    target = tmp_path / "a"
    if existing:
        make(target)

    def interrupted():
        with atomic_folder(target, overwrite=True) as folder:
            (folder / "one.txt").write_text("half")
            raise error

    with pytest.raises(error):
        interrupted()
    assert names_in(tmp_path) == (["a"] if existing else [])
    if existing:
        assert contents(target) == whole("old")


@pytest.mark.usefixtures("no_exchange")
@pytest.mark.parametrize("error", [OSError("no space"), KeyboardInterrupt()])
@pytest.mark.parametrize("done_first", [False, True])
@pytest.mark.parametrize("call", [1, 2])
def test_an_error_while_swapping_leaves_one_of_the_two_complete(tmp_path, monkeypatch, error, done_first, call):
    target = tmp_path / "a"
    make(target)
    rename, calls = Path.rename, []

    def failing(self, to):
        calls.append(to)
        if len(calls) == call and not done_first:
            raise error
        result = rename(self, to)
        if len(calls) == call:
            raise error
        return result

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(type(error)), atomic_folder(target, overwrite=True) as folder:
        fill(folder, "new")
    swapped = (call, done_first) == (2, True)
    assert contents(target) == whole("new" if swapped else "old")
    assert names_in(tmp_path) == ["a"]


@pytest.mark.usefixtures("no_exchange")
def test_the_old_folder_survives_even_a_failing_rescue(tmp_path, monkeypatch):
    target = tmp_path / "a"
    make(target)
    rename, calls = Path.rename, []

    def failing(self, to):
        calls.append(to)
        if len(calls) > 1:
            raise OSError("gone")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="gone"), atomic_folder(target, overwrite=True) as folder:
        fill(folder, "new")
    (hidden,) = tmp_path.iterdir()
    assert contents(hidden) == whole("old")


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        make(tmp_path / "private")
        write_text_atomically(tmp_path / "private.txt", "x")
        os.umask(0o022)
        make(tmp_path / "shared")
    finally:
        os.umask(before)
    modes = {item.name: item.stat().st_mode & 0o777 for item in tmp_path.iterdir()}
    assert modes == {"private": 0o700, "private.txt": 0o600, "shared": 0o755}


def test_text_is_replaced_completely_or_not_at_all(tmp_path, monkeypatch):
    target = tmp_path / "deep" / "a.txt"
    write_text_atomically(target, "old\n")
    write_text_atomically(target, "µ\n")
    assert target.read_bytes() == "µ\n".encode()

    def failing(self, text, **options):
        with self.open("w") as file:
            file.write(text[:1])
        raise OSError("no space")

    monkeypatch.setattr(Path, "write_text", failing)
    with pytest.raises(OSError, match="no space"):
        write_text_atomically(target, "new\n")
    assert target.read_bytes() == "µ\n".encode()
    assert names_in(target.parent) == ["a.txt"]


def test_the_checksum_is_that_of_the_bytes(tmp_path):
    (tmp_path / "a").write_bytes(b"abc" * 100_000)
    assert sha256_of(tmp_path / "a") == hashlib.sha256(b"abc" * 100_000).hexdigest()


def test_places_that_can_be_written_are_left_as_they_are(tmp_path):
    check_writable(tmp_path / "new" / "deep" / "a.txt")
    check_writable(tmp_path / "new" / "deep", folder=True)
    assert names_in(tmp_path) == []
    make(tmp_path / "a")
    check_writable(tmp_path / "a", folder=True)
    check_writable(tmp_path / "a" / "one.txt")
    assert contents(tmp_path / "a") == whole("old")


def test_places_that_cannot_be_written_are_named_as_given(tmp_path, monkeypatch):
    make(tmp_path / "a")
    with pytest.raises(StoreError, match=r"one\.txt is a file, and a folder"):
        check_writable(tmp_path / "a" / "one.txt", folder=True)
    with pytest.raises(StoreError, match="a is a folder, and a file"):
        check_writable(tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    for wrong in (Path("a/one.txt/deep/b.txt"), Path("x" * 250)):
        with pytest.raises(StoreError) as caught:
            check_writable(wrong)
        assert str(caught.value).startswith(f"{wrong}: cannot be written")
        assert f".{wrong.name}-" not in str(caught.value)
    assert contents(tmp_path / "a") == whole("old")


WRITING = """
import pathlib, sys, time
from ifonly import files
from ifonly.files import atomic_file, atomic_folder

def stop():
    print("ready", flush=True)
    time.sleep(60)

how, target = sys.argv[1:]
if how == "swapping":
    files.exchange = lambda one, other: False
    rename = pathlib.Path.rename
    pathlib.Path.rename = lambda self, to: (rename(self, to), stop())  # the old folder has gone, the new is not there
if how == "file":
    with atomic_file(target) as scratch:
        scratch.write_text("somebody's data")
        stop()
with atomic_folder(target, overwrite=True) as folder:
    if how == "nested":
        with atomic_folder(folder, overwrite=True) as inner:
            (inner / "one.txt").write_text("somebody's data")
            stop()
    for name in ("one.txt", "two.txt"):
        (folder / name).write_text("somebody's data")
    if how == "folder":
        stop()
"""


@contextmanager
def a_process_writing(how, target):
    """A process that is stopped while it writes `target`."""
    with subprocess.Popen([sys.executable, "-c", WRITING, how, str(target)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("how", ["file", "folder", "nested"])
def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path, how):
    target = tmp_path / "a"
    strangers = {".a-work", ".ab-0a0a0a0a-1-0a0a0a0a", ".a-notes"}
    for name in strangers:
        (tmp_path / name).mkdir()
    with a_process_writing(how, target):
        during = set(names_in(tmp_path))
        assert during > strangers
        write = write_text_atomically if how == "file" else make
        write(target, "new")
        assert set(names_in(tmp_path)) == during | {"a"}, "the other process lives, and its work is spared"
    assert set(names_in(tmp_path)) == during | {"a"}
    with atomic_file(target) if how == "file" else atomic_folder(target, overwrite=True) as scratch:
        assert set(names_in(tmp_path)) - {scratch.name} == strangers | {"a"}
        scratch.write_text("newer") if how == "file" else fill(scratch, "newer")
    assert set(names_in(tmp_path)) == strangers | {"a"}


def test_a_folder_whose_replacement_was_killed_half_way_comes_back(tmp_path):
    target = tmp_path / "a"
    make(target)
    with a_process_writing("swapping", target):
        assert not target.exists()
    with pytest.raises(StoreError, match="exists already"):
        make(target, "new")
    assert contents(target) == whole("old")
    assert names_in(tmp_path) == ["a"]


def test_whoever_reads_a_folder_brings_it_back_too(tmp_path):
    cohort = ifonly.simulate.simulate_cohort(2, seed=0, horizon=3)
    model = ifonly.LocationScale(cohort.schema, hidden=(2,))
    ifonly.save_cohort(cohort, tmp_path / "cohort")
    ifonly.save_model(model, tmp_path / "model")
    for name in ("cohort", "model"):
        (tmp_path / name).rename(tmp_path / f".{name}-{files._this_machine()}-{2**22 + 1}-0a0a0a0a-old")
    assert ifonly.load(tmp_path / "cohort").fingerprint() == cohort.fingerprint()
    assert ifonly.load_model(tmp_path / "model").fingerprint() == model.fingerprint()
    assert names_in(tmp_path) == ["cohort", "model"]
    with pytest.raises(StoreError, match="does not exist"):
        ifonly.load(tmp_path / "other")


def test_a_folder_that_is_replaced_is_never_missing(tmp_path, monkeypatch):
    """Where the disk can swap names, and the old one is left beside it until the new one has its name on disk."""
    target = tmp_path / "a"
    make(target)
    seen = []
    monkeypatch.setattr(files, "sync", lambda path: seen.append((target.exists(), len(names_in(tmp_path)))))
    (tmp_path / "b").mkdir()
    if not files.exchange(tmp_path / "b", target):
        pytest.skip("this disk cannot swap names")
    files.exchange(tmp_path / "b", target)
    monkeypatch.setattr(Path, "rename", None)
    with atomic_folder(target, overwrite=True) as folder:
        fill(folder, "new")
    assert contents(target) == whole("new")
    assert seen[-1] == (True, 3)
    assert names_in(tmp_path) == ["a", "b"]
    with pytest.raises(FileNotFoundError):
        files.exchange(tmp_path / "b", tmp_path / "missing")


def test_what_is_kept_is_left_over_once_something_younger_was_stored(tmp_path):
    stored, kept = tmp_path / "stored", [tmp_path / "one", tmp_path / "two"]
    assert not none_is_younger(kept, stored)
    for age, path in enumerate((kept[0], stored), start=1):
        path.touch()
        os.utime(path, ns=(age, age))
    assert none_is_younger(kept, stored), "what is not there does not count"
    kept[1].touch()
    assert not none_is_younger(kept, stored), "work is under way"
    stored.unlink()
    assert not none_is_younger(kept[:1], stored)
    stored.touch()
    assert not none_is_younger([], stored)


def test_hidden_things_of_other_machines_are_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(files.platform, "node", lambda: "another")
    with a_process_writing("folder", tmp_path / "a"):
        (left,) = names_in(tmp_path)
    make(tmp_path / "a")
    assert names_in(tmp_path) == sorted([left, "a"])
