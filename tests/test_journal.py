"""Journals: what was appended is there, what was cut off is dropped, what is damaged is named."""

import errno
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ifonly.errors import StoreError
from ifonly.journal import Journal, alone, line_of


def journal(folder: Path) -> Journal:
    return Journal(folder / "rows.jsonl", "test", "throw it away")


def numbers(found: Journal) -> list[int]:
    return [line.entry["n"] for line in found.lines()]


def entries(*values: int) -> list[str]:
    return [json.dumps({"n": value, "text": "é\\n" * value}) for value in values]


@given(sizes=st.lists(st.integers(0, 4), max_size=5), cut=st.floats(0, 1))
def test_cut_anywhere_only_whole_lines_are_left(tmp_path_factory, sizes, cut):
    found = journal(tmp_path_factory.mktemp("journal"))
    found.append([])
    expected: list[int] = []
    for size in sizes:
        part = list(range(len(expected), len(expected) + size))
        found.append(entries(*part))
        expected += part
    whole = found.path.read_bytes()
    kept = whole[: round(cut * len(whole))]
    found.path.write_bytes(kept)
    lines = list(found.lines())
    assert [line.entry["n"] for line in lines] == expected[: kept.count(b"\n")]
    assert found.damaged() == []
    found.cut_unended()
    assert found.path.read_bytes() == whole[: kept.rfind(b"\n") + 1]
    found.append(entries(99))
    assert numbers(found) == [*expected[: len(lines)], 99]


@pytest.mark.parametrize("tail", [b"\0" * 40, b'{"n": 1', b"[1]\n", b'\xff\n{"n"\n', b"[" * 100_000 + b"\n"])
def test_a_broken_end_is_dropped_and_a_broken_middle_is_set_aside(tmp_path: Path, tail: bytes) -> None:
    found = journal(tmp_path)
    found.append(entries(1, 2))
    whole = found.path.read_bytes()
    found.path.write_bytes(whole + tail)
    assert numbers(found) == [1, 2]
    damaged = list(range(3, 3 + tail.count(b"\n")))
    assert found.damaged() == damaged
    found.cut_unended()
    assert found.path.read_bytes() == whole + tail[: tail.rfind(b"\n") + 1]
    found.append(entries(3))
    assert numbers(found) == [1, 2, 3]
    assert found.damaged() == damaged


@given(place=st.floats(0, 1, exclude_max=True), value=st.integers(1, 255))
def test_a_line_with_any_other_byte_is_set_aside_and_no_other(tmp_path_factory, place, value):
    found = journal(tmp_path_factory.mktemp("journal"))
    found.append(entries(1, 2, 3))
    content = bytearray(found.path.read_bytes())
    position = int(place * len(content))
    hit = content[:position].count(b"\n") + 1
    content[position] ^= value
    found.path.write_bytes(content)
    left, kept = numbers(found), {1, 2, 3} - {hit}
    assert set(left) <= kept
    # A byte that ends or joins lines takes its neighbour along.
    assert len(left) == 2 or content.count(b"\n") != 3


def test_altered_numbers_are_noticed_and_the_entry_is_as_given(tmp_path: Path) -> None:
    found = journal(tmp_path)
    found.append(['{"n": 1, "checksum": "mine"}', '{"n": 2}'])
    assert json.loads(found.path.read_bytes().splitlines()[1]).keys() == {"n", "checksum"}
    assert [line.entry for line in found.lines()] == [{"n": 1, "checksum": "mine"}, {"n": 2}]
    found.path.write_bytes(found.path.read_bytes().replace(b'"n": 1', b'"n": 7'))
    assert [line.entry for line in found.lines()] == [{"n": 2}]
    assert found.damaged() == [1]


def test_a_line_without_the_keys_is_named(tmp_path: Path) -> None:
    found = journal(tmp_path)
    found.append(['{"n": 1}'])
    (line,) = found.lines()
    assert found.checked(line, {"n"}) == {"n": 1}
    with pytest.raises(StoreError, match="line 1"):
        found.checked(line, {"n", "m"})


def test_a_full_disk_keeps_what_fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = journal(tmp_path)
    found.append(entries(1))
    write, room = os.write, [len(line_of(entries(2)[0])) + 5]

    def write_what_fits(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[: room[0]])
        room[0] -= written
        return written

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_what_fits)
        with pytest.raises(StoreError, match=r"No space left on device.*kept"):
            found.append(entries(2, 3))
    lines = list(found.lines())
    assert [line.entry["n"] for line in lines] == [1, 2]
    found.cut_unended()
    found.append(entries(3))
    assert numbers(found) == [1, 2, 3]


def test_one_process_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    with alone(path, work="this test"):
        assert path.read_bytes() == b""
        with pytest.raises(StoreError, match=r"new: another process works on this test"), alone(path, work="this test"):
            pytest.fail("not alone")
        journal(path.parent).append(entries(1))
    with alone(path, work="this test"):
        assert numbers(journal(path.parent)) == [1]
    with (
        pytest.raises(StoreError, match="this test cannot be written there"),
        alone(path / "below a file" / "rows.jsonl", work="this test"),
    ):
        pytest.fail("nothing to lock")


def test_nothing_is_written_through_a_link_and_no_pipe_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("no journal")
    (tmp_path / "rows.jsonl").symlink_to("precious")
    for work in (journal(tmp_path).cut, lambda _: journal(tmp_path).append(entries(1))):
        with pytest.raises(StoreError, match="is a link"):
            work(0)
    with pytest.raises(StoreError, match="is a link"), alone(tmp_path / "rows.jsonl", work="this test"):
        pytest.fail("through a link")
    assert (tmp_path / "precious").read_text() == "no journal"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="no ordinary file"), alone(tmp_path / "pipe", work="this test"):
        pytest.fail("a pipe")


def test_a_line_without_end_is_not_read(tmp_path: Path) -> None:
    found = journal(tmp_path)
    found.append(entries(1))
    os.truncate(found.path, 2**40)  # holes, which take no room on a disk
    for read in (lambda: numbers(found), found.damaged, found.cut_unended):
        with pytest.raises(StoreError, match="has a line of more than 64 MB, and is no test; throw it away"):
            read()


def test_without_locks_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(StoreError, match="this test needs Linux or macOS"), alone(tmp_path / "rows", work="this test"):
        pytest.fail("not locked")
