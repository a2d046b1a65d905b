"""What the server exports under codes holds no id, no value as it was measured, no words of a reviewer."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from ifonly.report.deidentify import Deidentifier
from ifonly.web.app import create_app

KINDS = ("json", "html", "slide.svg", "slide.png", "png", "pdf")


@pytest.fixture
def coding(place: Any, client_of: Callable[[FastAPI], TestClient], tmp_path: Path) -> TestClient:
    return client_of(create_app(place.settings(tmp_path / "notes.sqlite", jobs=1, key=tmp_path / "key")))


def ids_in(content: bytes, place: Any) -> list[str]:
    text = content.decode("utf-8", "replace")
    return [id for id in {*place.cohort.ids, *place.cohort.subjects} if id in text]


def values_in(text: str, place: Any) -> set[str]:
    """Measured values with more digits than are left of them."""
    measured = [value for one in place.cohort for value in one.states.flatten().tolist()]
    told = {f"{value:.{digits}g}" for value in measured for digits in (4, 6)} | {repr(value) for value in measured}
    return {one for one in told if len(one.strip("-0.").replace(".", "")) >= 4} & set(re.findall(r"-?\d+\.\d+", text))


@pytest.mark.parametrize("kind", KINDS)
def test_a_case_under_its_code(coding: TestClient, place: Any, tmp_path: Path, kind: str) -> None:
    episode = place.cohort.ids[0]
    code = Deidentifier.from_file(tmp_path / "key").code(episode)
    actions = ",".join("0" * len(place.cohort[0].actions))
    asked = {"episode": episode, "kind": kind, "actions": actions}
    plain, coded = (coding.get("/api/export", params=asked | {"coded": one}) for one in (False, True))
    assert plain.status_code == coded.status_code == 200
    assert ids_in(coded.content, place) == []
    assert code in coded.headers["content-disposition"]
    assert episode not in coded.headers["content-disposition"]
    if kind in ("json", "html", "slide.svg"):
        assert ids_in(plain.content, place), "the search finds what is there"
        assert code.encode() in coded.content
    if kind == "json":
        assert values_in(plain.text, place)
        assert not values_in(coded.text, place)


def test_judgements_under_codes(coding: TestClient, place: Any, tmp_path: Path) -> None:
    for number, episode in enumerate(place.cohort.ids[:3]):
        said = {"episode": episode, "reviewer": "Dr Grey", "note": f"{episode} is my neighbour", "revision": 0}
        remark = {"step": 0, "text": "my neighbour"}
        verdict = ("plausible", "unsure", None)[number]
        assert coding.put("/api/notes", json=said | {"verdict": verdict, "steps": [remark]}).status_code == 200
    plain, coded = (coding.get("/api/notes.csv", params={"coded": one}) for one in (False, True))
    assert len(ids_in(plain.content, place)) == 3
    assert ids_in(coded.content, place) == []
    assert not any(told in coded.text for told in ("Grey", "neighbour", plain.text.split("T")[0][-10:]))
    codes, rows = Deidentifier.from_file(tmp_path / "key"), pl.read_csv(coded.content)
    assert rows["episode"].to_list() == sorted(codes.code(id) for id in place.cohort.ids[:3])
    assert set(rows["reviewer"]) == {codes.code("Dr Grey")}
    verdicts = dict(zip(rows["episode"], rows["verdict"], strict=True))
    assert [verdicts[codes.code(id)] for id in place.cohort.ids[:3]] == ["plausible", "unsure", None]
    assert not values_in(coded.text, place)


@pytest.mark.parametrize("path", ["/api/notes.csv?coded=true", "/api/export?kind=json&coded=true&episode="])
def test_without_a_key_nothing_is_exported_under_codes(quiet_client: TestClient, place: Any, path: str) -> None:
    refused = quiet_client.get(path + (place.cohort.ids[0] if path.endswith("=") else ""))
    assert refused.status_code == 422
    assert "no key of codes" in refused.json()["error"]["what"]
