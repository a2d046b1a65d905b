"""Records as plain types and back: what is lost, what is refused, and where errors point."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest

from ifonly.data.records import check_whole, finite, from_plain, json_text, read_document, read_mapping, to_plain
from ifonly.errors import InputError, StoreError


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    value: float
    low: float | None = None


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
    items: Sequence[int] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


OUTER = Outer(
    "x", 3, True, Colour.RED, "a", (Inner(1.0), Inner(2.0, -1.0)), ("p", 0.5), {"t": Inner(4.0)}, (1.0, None), (7,), {}
)


def test_records_come_back() -> None:
    content = to_plain(OUTER)
    assert content["inner"] == [{"value": 1.0, "low": None}, {"value": 2.0, "low": -1.0}]
    assert (content["colour"], content["pair"], content["limits"]) == ("red", ["p", 0.5], [1.0, None])
    assert from_plain(Outer, content, "outer") == OUTER
    assert from_plain(Outer, content | {"limits": 2}, "outer").limits == 2.0


def test_missing_fields_have_their_defaults() -> None:
    content = {key: value for key, value in to_plain(OUTER).items() if key not in ("items", "extra")}
    assert from_plain(Outer, content, "outer").items == ()


def test_numbers_that_json_cannot_hold_become_none_and_nan() -> None:
    assert to_plain(Inner(math.inf, math.nan)) == {"value": None, "low": None}
    back = from_plain(Inner, {"value": None, "low": None}, "inner")
    assert math.isnan(back.value)
    assert back.low is None  # optional: None stays None
    assert (finite(1.5), finite(-math.inf)) == (1.5, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 1.5}, "outer: count: expected int, found float"),
        ({"count": True}, "outer: count: expected int, found bool"),
        ({"sure": 1}, "outer: sure: expected bool"),
        ({"name": None}, "outer: name: expected str, found NoneType"),
        ({"colour": "blue"}, r"outer: colour: .*choose from \['red'\]"),
        ({"kind": "c"}, r"outer: kind: .*choose from \['a', 'b'\]"),
        ({"inner": [{"value": "much"}]}, r"outer: inner\[0\]: value: expected float, found str"),
        ({"inner": {}}, "outer: inner: it must be a list"),
        ({"pair": ["p"]}, "outer: pair: 1 values; expected 2"),
        ({"table": {"t": {}}}, r"outer: table: t: missing \['value'\]"),
        ({"limits": "far"}, "outer: limits: "),
        ({"more": 1}, r"outer: unknown \['more'\]"),
    ],
)
def test_errors_name_the_entry(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_plain(Outer, to_plain(OUTER) | changes, "outer")


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
