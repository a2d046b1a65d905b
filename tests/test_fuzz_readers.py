"""Files that were changed in any way are read, or refused with an error of ours; and what such changes found before."""

import random
import shutil
import sys
from pathlib import Path

import pytest
from effort import LONG

import ifonly
from ifonly.errors import IfonlyError

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

import fuzz_readers  # noqa: E402

COUNT = 2000 if LONG else 250


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fuzz_readers.prepare(tmp_path_factory.mktemp("corpus") / "ready")


@pytest.mark.parametrize("reader", fuzz_readers.READERS, ids=lambda reader: reader.name)
def test_the_corpus_is_read(reader: fuzz_readers.Reader, ready: Path) -> None:
    """Else mutations would try nothing: after a change of a format, write it anew (tools/fuzz_readers.py --write)."""
    reader.read(ready)


def test_only_errors_of_ours_come_of_mutations(ready: Path, tmp_path: Path) -> None:
    shutil.copytree(ready, tmp_path / "now")
    found = [fuzz_readers.try_one(seed, ready, tmp_path / "now")[1] for seed in range(COUNT)]
    assert [wrong for wrong in found if wrong is not None] == []


SEEDS = []
"""Mutations that ended in a traceback once."""


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_found_before(ready: Path, tmp_path: Path, seed: int) -> None:
    shutil.copytree(ready, tmp_path / "now")
    assert fuzz_readers.try_one(seed, ready, tmp_path / "now")[1] is None


def test_a_bad_reader_is_found(ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(folder: Path) -> None:
        fuzz_readers.json.loads((folder / "result.json").read_bytes())["status"].lower()

    wrong = fuzz_readers.Reader("result", ("result.json",), careless)
    monkeypatch.setattr(fuzz_readers, "READERS", (wrong,))
    shutil.copytree(ready, tmp_path / "now")
    found = []
    for seed in range(40):
        shutil.rmtree(tmp_path / "now")
        shutil.copytree(ready, tmp_path / "now")
        found.append(fuzz_readers.try_one(seed, ready, tmp_path / "now")[1])
    assert any(found)
