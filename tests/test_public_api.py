import pytest
import yaml
from public_api import PINNED, broken, public_api

from ifonly.version import __version__


def test_nothing_public_changes_by_accident():
    """A change on purpose: `make api` writes the file anew, and the changelog says what users have to do."""
    assert broken(yaml.safe_load(PINNED.read_text(encoding="utf-8")), public_api()) == []


BEFORE = {"f": {"a": "required", "b": "1", "c": "by keyword, None"}}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ({"f": {**BEFORE["f"], "d": "by keyword, 2"}, "g": {}}, None),
        ({}, "f is gone"),
        ({"f": {"a": "required", "b": "2", "c": "by keyword, None"}}, "f: b was '1', is '2'"),
        ({"f": {"a": "required", "c": "by keyword, None"}}, "f: b was '1', is None"),
        ({"f": {**BEFORE["f"], "d": "by keyword, required"}}, "f: d is new and required"),
        ({"f": {"b": "1", "a": "required", "c": "by keyword, None"}}, "f: parameters stood in the order"),
        ({"f": {"a": "required", "b": "1", "c": "None"}}, "f: c was 'by keyword, None'"),
    ],
)
def test_breaking_changes_are_told_from_additions(after, expected):
    found = broken(BEFORE, after)
    assert (found == []) if expected is None else found[0].startswith(expected)


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((PINNED.parents[1] / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (__version__, "MIT")
