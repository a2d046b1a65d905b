"""Notes: nothing that was acknowledged is ever lost, nobody overwrites anybody unknowingly."""

import csv
import io
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from effort import some
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ifonly.errors import StoreError
from ifonly.web.notes import APPLICATION, ConflictError, Note, Notes, Remark


def opened(path: Path, cohort: str = "c0", model: str = "m0") -> Notes:
    return Notes(path, cohort=cohort, model=model)


def test_a_note_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    notes = opened(tmp_path / "n.sqlite")
    assert notes.get("a") == Note("a")
    saved = notes.save(Note("a", "unsure", "two\nlines, \u00e9\U0001f600", "Ann"))
    assert (saved.revision, saved.model) == (1, "m0")
    assert notes.get("a") == saved
    notes.close()
    again = opened(tmp_path / "n.sqlite", model="m1")
    assert again.get("a") == saved
    assert again.save(replace(saved, note="other")).model == "m1"
    again.close()


def test_revisions_stay(tmp_path: Path) -> None:
    path = tmp_path / "n.sqlite"
    notes = opened(path)
    for revision in range(3):
        notes.save(Note("a", note=f"text {revision}", revision=revision))
    notes.close()
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT revision, note FROM revisions ORDER BY revision").fetchall()
        assert rows == [(1, "text 0"), (2, "text 1"), (3, "text 2")]
        for statement in ("UPDATE revisions SET note = ''", "DELETE FROM revisions"):
            with pytest.raises(sqlite3.IntegrityError, match="never"):
                database.execute(statement)
    database.close()


def test_an_old_revision_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    notes = opened(tmp_path / "n.sqlite")
    first = notes.save(Note("a", note="first"))
    for revision in (0, 2, 7):
        with pytest.raises(ConflictError):
            notes.save(Note("a", note="second", revision=revision))
    assert notes.get("a") == first
    notes.close()


def test_several_reviewers_judge_the_same_episode(tmp_path: Path) -> None:
    notes = opened(tmp_path / "n.sqlite")
    ann = notes.save(Note("a", "plausible", "Ann's", "Ann", steps=(Remark(2, "late; \u00e9"), Remark(0, "?"))))
    bo = notes.save(Note("a", "unsure", "Bo's", "Bo"))
    again = notes.save(replace(ann, verdict="implausible"))
    assert [one.revision for one in (ann, bo, again)] == [1, 2, 3]
    with pytest.raises(ConflictError):
        notes.save(replace(bo, revision=3))  # Ann's
    assert notes.reviews() == {"a": (bo, again)}
    assert [notes.get("a", name) for name in ("Ann", "Bo", None)] == [again, bo, again]
    assert notes.get("a", "Cy") == Note("a", reviewer="Cy")
    rows = list(csv.DictReader(io.StringIO(notes.to_csv())))
    assert [(row["reviewer"], row["verdict"], row["steps"]) for row in rows] == [
        ("Bo", "unsure", ""),
        ("Ann", "implausible", "2: late; \u00e9; 0: ?"),
    ]
    notes.close()


FIRST_VERSION = """
CREATE TABLE about (cohort TEXT NOT NULL) STRICT;
CREATE TABLE revisions (
    episode TEXT NOT NULL, revision INTEGER NOT NULL, verdict TEXT, note TEXT NOT NULL, reviewer TEXT NOT NULL,
    updated TEXT NOT NULL, model TEXT NOT NULL, PRIMARY KEY (episode, revision)
) STRICT, WITHOUT ROWID;
INSERT INTO about VALUES ('c0');
INSERT INTO revisions VALUES ('a', 1, 'unsure', 'kept', 'Ann', '2025-01-01', 'm0');
PRAGMA user_version = 1;
"""


def test_notes_of_the_first_version_are_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "n.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript(FIRST_VERSION + f"PRAGMA application_id = {APPLICATION};")
    database.close()
    for _ in range(2):
        notes = opened(path)
        known = notes.get("a")
        notes.save(replace(known, steps=(*known.steps, Remark(len(known.steps), "more"))))
        notes.close()
    assert (known.note, known.revision, known.steps) == ("kept", 2, (Remark(0, "more"),))


@pytest.mark.parametrize(
    "steps", ["", "{}", "[1]", '[["a", "b"]]', "[[1]]", "[[true, 2]]", pytest.param("[" * 100_000, id="deep")]
)
def test_remarks_that_are_none_are_refused(tmp_path: Path, steps: str) -> None:
    path = tmp_path / "n.sqlite"
    notes = opened(path)
    notes.save(Note("a"))
    notes.close()
    with sqlite3.connect(path) as database:
        database.execute("DROP TRIGGER no_update")
        database.execute("UPDATE revisions SET steps = ?", (steps,))
    database.close()
    with pytest.raises(StoreError, match="cannot be read"):
        opened(path)


def test_another_process_is_noticed(tmp_path: Path) -> None:
    ours, theirs = opened(tmp_path / "n.sqlite"), opened(tmp_path / "n.sqlite")
    before = ours.reviews()
    saved = theirs.save(Note("a", "plausible"))
    assert ours.get("a") == saved
    assert ours.reviews() is not before
    with pytest.raises(ConflictError):
        ours.save(Note("a", "implausible"))
    ours.close()
    theirs.close()


def test_of_many_at_once_exactly_one_wins_each_round(tmp_path: Path) -> None:
    shared = [opened(tmp_path / "n.sqlite") for _ in range(2)]
    outcomes: list[tuple[int, str]] = []
    barrier = threading.Barrier(8)

    def review(number: int) -> None:
        notes = shared[number % 2]
        for revision in range(5):
            barrier.wait()
            try:
                notes.save(Note("a", note=str(number), revision=revision))
                outcomes.append((revision, str(number)))
            except ConflictError:
                pass

    threads = [threading.Thread(target=review, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(revision for revision, _ in outcomes) == [0, 1, 2, 3, 4]
    assert shared[0].get("a").note == dict(outcomes)[4]
    for notes in shared:
        notes.close()


WRITER = """
import sys
from pathlib import Path
from ifonly.web.notes import Note, Notes
notes = Notes(Path(sys.argv[1]), cohort="c0", model="m0")
number = 0
while True:
    episode = f"e{number % 7}"
    saved = notes.save(Note(episode, "unsure", "x" * 3000 + str(number), "Ann", revision=notes.get(episode).revision))
    sys.stdout.write(f"{episode} {saved.revision} {number}\\n")
    sys.stdout.flush()
    number += 1
"""


def test_killed_while_writing_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "n.sqlite"
    acknowledged: dict[tuple[str, int], str] = {}
    for count in (1, 23, 60):
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(count):
                episode, revision, number = writer.stdout.readline().split()
                acknowledged[episode, int(revision)] = "x" * 3000 + number
            writer.kill()
            for line in writer.stdout.read().splitlines(keepends=True):  # written before it died
                if line.endswith("\n"):
                    episode, revision, number = line.split()
                    acknowledged[episode, int(revision)] = "x" * 3000 + number
    notes = opened(path)
    notes.close()
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        kept = {(e, r): note for e, r, note in database.execute("SELECT episode, revision, note FROM revisions")}
    database.close()
    assert len(acknowledged) >= 84
    assert acknowledged.items() <= kept.items()
    for episode in {episode for episode, _ in kept}:
        assert sorted(r for e, r in kept if e == episode) == list(range(1, 1 + sum(e == episode for e, _ in kept)))


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    notes = opened(tmp_path / "n.sqlite")
    notes.save(Note("a"))
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    notes.close()


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("not a database, but long enough to look like one" * 50)
    foreign = tmp_path / "foreign.sqlite"
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE patients (name TEXT)")
    database.close()
    newer = tmp_path / "newer.sqlite"
    with sqlite3.connect(newer) as database:
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute("PRAGMA user_version = 99")
    database.close()
    other = tmp_path / "other.sqlite"
    opened(other, cohort="another").close()
    for path, words in [
        (text, "not a database"),
        (foreign, "another program"),
        (newer, "version 99"),
        (other, "another cohort"),
        (tmp_path, "cannot be written"),
        (tmp_path / "missing" / "n.sqlite", "cannot be written"),
    ]:
        before = path.read_bytes() if path.is_file() else None
        with pytest.raises(StoreError, match=words):
            opened(path)
        assert before is None or path.read_bytes() == before


def test_a_query_without_end_in_the_place_of_a_table_is_not_asked(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS cohort FROM n"
    body = f"AFTER INSERT ON about BEGIN {endless}; END"
    for statement in (f"CREATE VIEW about AS {endless}", f"CREATE TABLE about (cohort); CREATE TRIGGER t {body}"):
        path = tmp_path / "n.sqlite"
        with sqlite3.connect(path) as database:
            database.executescript(statement)
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            database.execute("PRAGMA user_version = 1")
        database.close()
        with pytest.raises(StoreError, match="holds what ifonly did not make"):
            opened(path)
        path.unlink()
    opened(path).close()
    with sqlite3.connect(path) as database:
        database.execute("ANALYZE")  # as those who look after databases do
    database.close()
    opened(path).close()


@pytest.mark.parametrize("there", [True, False])
def test_notes_are_not_written_through_a_link(tmp_path: Path, there: bool) -> None:
    (tmp_path / "run").mkdir()
    if there:
        opened(tmp_path / "elsewhere").close()
    (tmp_path / "run" / "notes.sqlite").symlink_to("../elsewhere")
    with pytest.raises(StoreError, match="is a link"):
        opened(tmp_path / "run" / "notes.sqlite")
    assert (tmp_path / "elsewhere").exists() == there


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="cannot be written"):
        opened(tmp_path / "n.sqlite")
    tmp_path.chmod(0o700)


def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path: Path) -> None:
    notes = opened(tmp_path / "n.sqlite")
    first = notes.save(Note("a", note="kept"))
    pages = notes._writer.execute("PRAGMA page_count").fetchone()[0]
    notes._writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="full"):
        notes.save(replace(first, note="x" * 100_000))
    assert notes.get("a") == first
    notes.close()


@settings(max_examples=some(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(min_size=1), st.text(), min_size=1, max_size=5))
def test_csv_gives_text_back_and_starts_no_formula(tmp_path: Path, texts: dict[str, str]) -> None:
    storable = {k: v for k, v in texts.items() if "\0" not in k + v and "\r" not in k + v}
    (tmp_path / "n.sqlite").unlink(missing_ok=True)
    notes = opened(tmp_path / "n.sqlite")
    for episode, text in storable.items():
        notes.save(Note(episode, note=text))
    rows = list(csv.DictReader(io.StringIO(notes.to_csv(), newline="")))
    notes.close()
    assert len(rows) == len(storable)
    for row in rows:
        for cell in (row["episode"], row["note"]):
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    assert sorted(row["note"].removeprefix("'") for row in rows) == sorted(
        v.removeprefix("'") for v in storable.values()
    )


@pytest.mark.parametrize("what", ["deleted", "replaced", "log deleted"])
def test_nothing_is_acknowledged_once_the_file_has_gone(tmp_path: Path, what: str) -> None:
    path = tmp_path / "n.sqlite"
    notes = opened(path)
    first = notes.save(Note("a", note="first"))
    gone = tmp_path / "n.sqlite-wal" if what == "log deleted" else path
    gone.rename(tmp_path / "elsewhere")
    if what == "replaced":
        sqlite3.connect(path).close()
        path.touch()
    with pytest.raises(StoreError, match="deleted, moved or replaced while it was in use"):
        notes.save(replace(first, note="second"))
    notes.close()


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
def test_who_reads_does_not_wait_for_who_writes(tmp_path: Path, lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ifonly.web.notes.SECONDS_TO_WAIT", 0.5)
    notes = opened(tmp_path / "n.sqlite")
    first = notes.save(Note("a", note="first"))
    other = sqlite3.connect(tmp_path / "n.sqlite", isolation_level=None)
    other.execute(lock)
    refused: list[str] = []

    def save() -> None:
        try:
            notes.save(replace(first, note="second"))
        except StoreError as error:
            refused.append(str(error))

    saving = threading.Thread(target=save)
    saving.start()
    began = time.monotonic()
    for _ in range(20):
        assert notes.get("a") == first
        time.sleep(0.01)
    assert time.monotonic() - began < 20 * 0.5 / 2, "twenty times to wait would take twice as long"
    saving.join()
    assert "locked" in refused[0]
    other.execute("ROLLBACK")
    other.close()
    assert notes.save(replace(first, note="second")).revision == 2
    assert notes.get("a").note == "second"
    notes.close()
