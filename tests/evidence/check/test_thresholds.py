import re
from dataclasses import fields
from importlib.resources import files

import pytest

from ifonly.errors import InputError, StoreError
from ifonly.evidence.check.thresholds import CheckThresholds, Threshold, default_thresholds, load_thresholds
from ifonly.records import to_plain

TEXT = files("ifonly.evidence.check").joinpath("thresholds.yaml").read_text(encoding="utf-8")


def test_every_limit_is_in_the_file_with_a_comment_of_its_own() -> None:
    names = re.findall(r"(?:^#.*\n)+^(\w+):", TEXT, flags=re.MULTILINE)
    assert names == [field.name for field in fields(CheckThresholds)]


def test_a_file_changes_what_it_names(tmp_path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("distance: {warn: 0.1, fail: 0.3}\nsmallest_cell: 1\n")
    found = load_thresholds(file)
    assert (found.distance, found.smallest_cell) == (Threshold(0.1, 0.3), 1)
    assert found.coverage == default_thresholds().coverage
    file.write_text("")
    assert load_thresholds(file) == default_thresholds()
    file.write_text(TEXT)
    assert load_thresholds(file) == default_thresholds()
    assert default_thresholds().changed(to_plain(default_thresholds())) == default_thresholds()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("distanse: {warn: 0.1, fail: 0.3}", r"unknown 'distanse'"),
        ("distance: {warn: 0.1}", "missing"),
        ("distance: {warn: 0.1, fail: 0.3, stop: 1}", r"unknown 'stop'"),
        ("distance: {warn: high, fail: 0.3}", "not a finite number"),
        ("distance: {warn: 0.3, fail: 0.1}", "0 <= warn <= fail"),
        ("gain_over_linear: {warn: -0.1, fail: 0.1}", "fail at or below warn"),
        ("subjects: {judge: 1, enough: 2}", "two must judge"),
        ("smallest_cell: 2.5", "not a whole number"),
        ("smallest_cell: 0", "start at 1"),
        ("- 1", "expected a mapping"),
    ],
)
def test_nonsense_is_refused(tmp_path, text: str, words: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=words):
        load_thresholds(file)


def test_files_that_cannot_be_read(tmp_path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        load_thresholds(tmp_path / "none.yaml")
    (tmp_path / "own.yaml").write_text("{")
    with pytest.raises(StoreError, match="not valid YAML"):
        load_thresholds(tmp_path / "own.yaml")
