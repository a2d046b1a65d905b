"""Records as plain types and back: what is lost, what is refused, and where errors point."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from ifonly.data.plain import check_keys, check_whole, json_text, read_document, read_mapping
from ifonly.errors import InputError, StoreError
from ifonly.records import KnownNumber, MaybeNumber, States, finite, from_plain, to_plain


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    value: KnownNumber
    low: MaybeNumber = None


@dataclass(frozen=True)
class Outer:
    name: str
    count: int
    sure: bool
    colour: Colour
    kind: Literal["a", "b"]
    inner: tuple[Inner, ...]
    pair: tuple[str, float]
    table: Mapping[str, Inner]
    limits: float | tuple[float | None, ...] | None
    items: tuple[int, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


OUTER = Outer(
    "x", 3, True, Colour.RED, "a", (Inner(1.0), Inner(2.0, -1.0)), ("p", 0.5), {"t": Inner(4.0)}, (1.0, None), (7,), {}
)


def test_records_come_back() -> None:
    content = to_plain(OUTER)
    assert content["inner"] == [{"value": 1.0, "low": None}, {"value": 2.0, "low": -1.0}]
    assert (content["colour"], content["pair"], content["limits"]) == ("red", ["p", 0.5], [1.0, None])
    assert from_plain(Outer, content, what="outer") == OUTER
    assert from_plain(Outer, content | {"limits": 2}, what="outer").limits == 2.0


def test_missing_fields_have_their_defaults() -> None:
    content = {key: value for key, value in to_plain(OUTER).items() if key not in ("items", "extra")}
    assert from_plain(Outer, content, what="outer").items == ()


def test_numbers_that_json_cannot_hold_become_none_and_nan() -> None:
    assert to_plain(Inner(math.inf, math.nan)) == {"value": None, "low": None}
    back = from_plain(Inner, {"value": None, "low": None}, what="inner")
    assert math.isnan(back.value)
    assert back.low is None  # optional: None stays None
    assert (finite(1.5), finite(-math.inf)) == (1.5, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 1.5}, "outer: .*count: .*integer"),
        ({"count": True}, "outer: .*count: .*integer"),
        ({"sure": 1}, "outer: .*sure: .*boolean"),
        ({"name": None}, "outer: .*name: .*string"),
        ({"colour": "blue"}, "outer: .*colour: .*'red'"),
        ({"kind": "c"}, "outer: .*kind: .*'a' or 'b'"),
        ({"inner": [{"value": "much"}]}, r"outer: .*inner\.0\.value: .*number"),
        ({"inner": {}}, "outer: .*inner: .*array"),
        ({"pair": ["p"]}, r"outer: .*pair\.1: .*required"),
        ({"table": {"t": {}}}, r"outer: .*table\.t\.value: .*required"),
        ({"limits": "far"}, "outer: .*limits"),
        ({"more": 1}, "outer: .*more: .*[Uu]nexpected"),
        ({"inner": [{"value": 1.0, "hgih": 2.0}]}, r"outer: .*inner\.0\.hgih: .*[Uu]nexpected"),
    ],
)
def test_errors_name_the_entry(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        from_plain(Outer, to_plain(OUTER) | changes, what="outer")


def test_documents_of_another_format_or_version_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json_text({"format": "ifonly.thing", "version": 2, "x": 1}), encoding="utf-8")
    assert read_document(file, "ifonly.thing", 2, kind="thing", expected="a thing")["x"] == 1
    with pytest.raises(StoreError, match=r"version 2 of ifonly\.thing; .* reads version 1"):
        read_document(file, "ifonly.thing", 1, kind="thing", expected="a thing")
    with pytest.raises(StoreError, match=r"not a cohort: format 'ifonly\.thing'"):
        read_document(file, "ifonly.cohort", 2, kind="cohort", expected="a cohort")
    with pytest.raises(StoreError, match=r"cannot be read .*; expected a thing"):
        read_document(tmp_path / "none.json", "ifonly.thing", 2, kind="thing", expected="expected a thing")


@dataclass(frozen=True, eq=False)
class Course:
    states: States


def test_states_come_back_whatever_they_hold() -> None:
    states = np.array([[0.0, -0.0, 1.5], [math.inf, -math.inf, math.nan]])
    again = from_plain(Course, to_plain(Course(states)), what="course").states
    np.testing.assert_array_equal(again, states)


@pytest.mark.parametrize(("name", "text"), [("a.json", '{"k": 1, "k": 2}'), ("a.yaml", "k: 1\nk: 2\n")])
def test_keys_that_occur_twice_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(StoreError, match="'k' occurs twice"):
        read_mapping(tmp_path / name)


@pytest.mark.parametrize("content", [{"x": math.nan}, {"x": {1}}, {"x": "\ud800"}])
def test_what_json_cannot_hold_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"notes: .*only what JSON can hold"):
        json_text(content, what="notes")


@pytest.mark.parametrize("value", [True, 1.0, "2", 1])
def test_whole_numbers_are_checked(value: object) -> None:
    with pytest.raises(InputError, match="whole number of at least 2"):
        check_whole("bins", value, least=2)
    check_whole("bins", 2, least=2)


def test_a_misspelt_key_is_named_where_another_is_missing() -> None:
    with pytest.raises(InputError, match=r"study: missing 'query'\. Unknown: 'qury'\. Did you mean 'query'"):
        check_keys("study", {"qury": 1}, required={"query"}, optional={"fit"})
