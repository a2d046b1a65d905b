"""A power cut forgets what was not synced: everything is on disk before it takes its name, and then the name is."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ifonly
from ifonly import files
from ifonly.files import atomic_file, atomic_folder, write_text_atomically
from ifonly.journal import Journal, alone
from ifonly.runs.manifest import write_manifest


class ForgetfulDisk:
    """Records what is synced, and names every rename of what is not on disk, and every name that is not."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.kept: set[tuple[int, int, int]] = set()
        self.open_names: set[Path] = set()
        """Folders in which names were changed, and not synced since."""
        self.faults: list[str] = []
        self.renames = 0
        fsync, rename, replace, mkdir, rmtree = os.fsync, os.rename, os.replace, os.mkdir, shutil.rmtree
        exchange = files.exchange

        def synced(descriptor: int) -> None:
            fsync(descriptor)
            self.kept.add(_state(os.fstat(descriptor)))
            self.open_names = {folder for folder in self.open_names if not _same(folder, descriptor)}

        def renaming(move: Callable[..., object]) -> Callable[..., object]:
            def moved(source: os.PathLike[str], target: os.PathLike[str], **options: object) -> object:
                self.renames += 1
                for item in _below(Path(source)):
                    if _state(item.stat()) not in self.kept and not Path(target).name.endswith("-old"):
                        self.faults.append(f"{item.name} is not on disk when it becomes {target}")
                self.open_names.add(Path(target).parent)
                return move(source, target, **options)

            return moved

        def made(path: os.PathLike[str], *rest: object, **options: object) -> None:
            mkdir(path, *rest, **options)  # type: ignore[arg-type]
            if not Path(path).name.startswith("."):
                self.open_names.add(Path(path).parent)

        def removed(path: os.PathLike[str], *rest: object, **options: object) -> None:
            if Path(path).exists() and Path(path).parent in self.open_names:
                self.faults.append(f"{path} is removed before its successor has its name on disk")
            rmtree(path, *rest, **options)  # type: ignore[arg-type]

        patch.setattr(os, "fsync", synced)
        patch.setattr(os, "rename", renaming(rename))
        patch.setattr(os, "replace", renaming(replace))
        patch.setattr(files, "exchange", renaming(exchange))
        patch.setattr(os, "mkdir", made)
        patch.setattr(shutil, "rmtree", removed)

    def lost(self) -> list[str]:
        """What a power cut at this moment, or during a rename before, would have lost."""
        return [*self.faults, *(f"a name in {folder}" for folder in self.open_names if folder.exists())]


def _state(found: os.stat_result) -> tuple[int, int, int]:
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def _same(folder: Path, descriptor: int) -> bool:
    return folder.exists() and os.path.samestat(folder.stat(), os.fstat(descriptor))


def _below(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for item in path.iterdir():
            yield from _below(item)
    yield path


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> ForgetfulDisk:
    return ForgetfulDisk(monkeypatch)


def test_the_disk_notices_what_is_not_synced(tmp_path: Path, disk: ForgetfulDisk) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "a").rename(tmp_path / "b")
    assert len(disk.lost()) == 2


@pytest.mark.parametrize("times", [1, 2])
def test_files_and_folders_survive(tmp_path: Path, disk: ForgetfulDisk, times: int) -> None:
    for number in range(times):
        write_text_atomically(tmp_path / "new" / "deep" / "a.txt", str(number))
        with atomic_file(tmp_path / "b.txt") as scratch:
            scratch.write_bytes(b"x" * 100_000)
        with atomic_folder(tmp_path / "other" / "folder", overwrite=True) as folder:
            (folder / "one.txt").write_text("x")
            (folder / "inner").mkdir()
            (folder / "inner" / "two.txt").write_text("x")
    assert disk.renames >= times * 3
    assert disk.lost() == []


def test_a_journal_survives_with_its_name(tmp_path: Path, disk: ForgetfulDisk) -> None:
    journal = Journal(tmp_path / "new" / "rows.jsonl", "test", "throw it away")
    with alone(journal.path, work="this test"):
        journal.append(['{"n": 1}'])
    assert _state(journal.path.stat()) in disk.kept
    assert disk.lost() == []


def test_what_the_package_stores_survives(tmp_path: Path, disk: ForgetfulDisk) -> None:
    cohort = ifonly.simulate.simulate_cohort(5, seed=0)
    model = ifonly.LocationScale(cohort.schema, hidden=(4,))
    for _ in range(2):
        ifonly.save_cohort(cohort, tmp_path / "cohort", overwrite=True)
        ifonly.save_schema(cohort.schema, tmp_path / "schema.yaml", overwrite=True)
        ifonly.save_model(model, tmp_path / "model", overwrite=True)
        write_manifest(tmp_path, {})
    assert disk.renames >= 8
    assert disk.lost() == []
