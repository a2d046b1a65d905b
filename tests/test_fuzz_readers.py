"""Files that were changed in any way are read, or refused with an error of ours; and what such changes found before."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ifonly.errors import IfonlyError
from ifonly.journal import line_of

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tools"))

import fuzz_readers  # noqa: E402

COUNT, PARTS = 2000, 8


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fuzz_readers.prepare(tmp_path_factory.mktemp("corpus") / "ready")


@pytest.mark.parametrize("reader", fuzz_readers.READERS, ids=lambda reader: reader.name)
def test_the_corpus_is_read(reader: fuzz_readers.Reader, ready: Path, tmp_path: Path) -> None:
    """Else mutations would try nothing: after a change of a format, write it anew (tools/fuzz_readers.py --write)."""
    reader.read(Path(shutil.copytree(ready, tmp_path / "now")))


@pytest.mark.parametrize("part", range(PARTS))
def test_only_errors_of_ours_come_of_mutations(part: int, ready: Path, tmp_path: Path) -> None:
    shutil.copytree(ready, tmp_path / "now")
    found = [fuzz_readers.try_one(seed, ready, tmp_path / "now")[1] for seed in range(part, COUNT, PARTS)]
    assert [wrong for wrong in found if wrong is not None] == []


def entry(name: str, place: str, value: object):
    """A change of one entry of a JSON document."""

    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_bytes())
        *way, last = place.split(".")
        holder = content
        for key in way:
            holder = holder[int(key) if isinstance(holder, list) else key]
        holder[last] = value
        (folder / name).write_text(json.dumps(content))

    return change


def garbled_notes(folder: Path) -> None:
    data = (folder / "notes.sqlite").read_bytes()
    (folder / "notes.sqlite").write_bytes(data.replace(b"CREATE TABLE about", b"CREATE TABLE ab\xc5ut"))


def row_without_certificate(folder: Path) -> None:
    lines = (folder / "run" / "rows.jsonl").read_bytes().splitlines()
    rows = [json.loads(line) | {"certificate": None} for line in lines]
    texts = [json.dumps({key: value for key, value in row.items() if key != "checksum"}) for row in rows]
    (folder / "run" / "rows.jsonl").write_bytes(b"".join(map(line_of, texts)))


def changed_row(change: Callable[[dict], object]):
    """A change of the first row of a journal, with the right checksum."""

    def changed(folder: Path) -> None:
        first, *others = (folder / "run" / "rows.jsonl").read_bytes().splitlines(keepends=True)
        row = json.loads(first)
        row.pop("checksum")
        change(row)
        (folder / "run" / "rows.jsonl").write_bytes(b"".join([line_of(json.dumps(row)), *others]))

    return changed


def number_for_weights(folder: Path) -> None:
    text = (folder / "goals.yaml").read_text()
    (folder / "goals.yaml").write_text(text.replace("[0, 1, 1, 2]", "3"))


def endless_range(folder: Path) -> None:
    content = json.loads((folder / "schema.json").read_text())
    content["features"][0]["plausible"] = [0.0, 30.0] * 1000
    (folder / "schema.json").write_text(json.dumps(content))


FOUND = {
    "range of thousands": ("schema", endless_range),
    "report that is a list": ("model", entry("model/model.json", "fit_report", [1])),
    "number for weights of steps": ("goals", number_for_weights),
    "query that is a number": ("result", entry("result.json", "provenance.query", 3)),
    "infinite action": ("result", entry("result.json", "actions", [1e999, 0, 0, 0])),
    "number for states": ("result", entry("result.json", "states", 1.5)),
    "rows of states that are none": ("result", entry("result.json", "states", [True, None])),
    "kind that is no name": ("model", entry("model/model.json", "kind", {})),
    "figures that are none": ("model", entry("model/check.json", "figures.features", [[]])),
    "reward with words": ("run", entry("run/run.json", "query.reward.constant", "../..")),
    "reward that is none": ("run", entry("run/run.json", "query.reward", {"kind": "total", "parts": [[]]})),
    "table that is a number": ("run", entry("run/run.json", "table", 3.5)),
    "row without certificate": ("journal", row_without_certificate),
    "notes that are no text": ("notes", garbled_notes),
    "counts that are lists": ("run", entry("run/run.json", "counts", {"optimal": [4]})),
    "counts that are text, of a run under way": ("journal", entry("run/run.json", "counts", "4")),
    "finding that is a list": ("model", entry("model/check.json", "findings.0.kind", [])),
    "frontier without changes": ("journal", changed_row(lambda row: row["frontier"][0].pop("max_changes"))),
    "frontier without outcome": ("journal", changed_row(lambda row: row["frontier"][0].pop("outcome"))),
    "row without evidence": ("journal", changed_row(lambda row: row.update(evidence=None))),
    "more actions than steps": ("journal", changed_row(lambda row: row["actions"].append(0))),
}
"""Changes that ended in a traceback, or in an endless message, once."""


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_before(ready: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(ready, tmp_path / "now")
    reader, change = FOUND[name]
    change(tmp_path / "now")
    with pytest.raises(IfonlyError) as caught:
        next(one for one in fuzz_readers.READERS if one.name == reader).read(tmp_path / "now")
    assert len(str(caught.value)) < fuzz_readers.LONGEST_MESSAGE


def test_a_bad_reader_is_found(ready: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(folder: Path) -> None:
        fuzz_readers.json.loads((folder / "result.json").read_bytes())["status"].lower()

    wrong = fuzz_readers.Reader("result", ("result.json",), careless)
    monkeypatch.setattr(fuzz_readers, "READERS", (wrong,))
    shutil.copytree(ready, tmp_path / "now")
    found = []
    for seed in range(12):
        shutil.rmtree(tmp_path / "now")
        shutil.copytree(ready, tmp_path / "now")
        found.append(fuzz_readers.try_one(seed, ready, tmp_path / "now")[1])
    assert any(found)
