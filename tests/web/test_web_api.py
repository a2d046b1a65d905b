"""Every endpoint of the API, against what the library itself says."""

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest

import ifonly
from ifonly.records import to_plain
from ifonly.report.cases import case_of, course_of
from ifonly.web.app import create_app
from ifonly.web.listing import ListQuery
from ifonly.web.notes import Note, Notes
from ifonly.web.review import Review


@pytest.fixture
def first(place: Any) -> str:
    return place.cohort.ids[0]


def problem_of(place: Any, episode: str) -> ifonly.Problem:
    model = ifonly.load_model(place.model).for_search()
    return ifonly.Problem.from_episode(place.cohort[episode], model, ifonly.Query(ifonly.minus("SOFA"), 2))


def error_of(response: Any, status: int) -> dict[str, str]:
    assert response.status_code == status, response.text
    content = response.json()
    assert set(content) == {"error"}
    assert set(content["error"]) == {"what", "do"}
    assert all(content["error"].values())
    return content["error"]


def test_about(client: Any, place: Any) -> None:
    about = client.get("/api/about").json()
    assert about["question"]["max_changes"] == 2
    assert about["question"]["outcome"] == "cumulative SOFA"
    assert about["cohort"]["episodes"] == 24
    assert about["cohort"]["fingerprint"] == place.cohort.fingerprint()
    assert about["run"] == {"episodes": 16, "finished": True, "counts": {"optimal": 16}, "examined": False}
    assert len(about["treatments"]["actions"]) == len(place.cohort.schema.actions)
    assert about["signs_in"] is False
    assert about["sample"] is False


def test_episodes(client: Any) -> None:
    page = client.get("/api/episodes", params={"size": 5, "page": 2}).json()
    assert (page["total"], page["page"], page["size"], len(page["rows"])) == (24, 2, 5, 5)
    everyone = client.get("/api/episodes?search=&status=&verdict=&at_least=&order=").json()
    assert everyone["total"] == 24
    assert client.get("/api/episodes?status=unsolved").json()["total"] == 8
    assert client.get("/api/episodes?page=999").json()["rows"] == []


@pytest.mark.parametrize(
    "query", ["size=0", "size=201", "page=0", "status=lost", "order=secret", "at_least=nan", "at_least=x", "page=1e9"]
)
def test_queries_that_do_not_fit(client: Any, query: str) -> None:
    error_of(client.get(f"/api/episodes?{query}"), 422)


def test_cases_are_those_of_the_run(client: Any, place: Any) -> None:
    run = ifonly.load_run(place.run)
    for episode in place.cohort.ids[:3]:
        case = client.get("/api/case", params={"episode": episode}).json()
        expected = to_plain(case_of(problem_of(place, episode), run.result(episode)))
        for content in (case, expected):
            assert content["question"]["query"].pop("allow_failed_model") in (True, False)
            content["answer"]["result"]["provenance"]["query"].pop("allow_failed_model")
        assert case == expected
        assert case["answer"]["claim"]["proven"]
    unsolved = client.get("/api/case", params={"episode": place.cohort.ids[-1]}).json()
    assert unsolved["answer"] is None


def test_a_course_is_a_rollout(client: Any, place: Any, first: str) -> None:
    problem = problem_of(place, first)
    random = np.random.default_rng(0)
    for _ in range(5):
        actions = random.integers(0, problem.action_count, problem.horizon).tolist()
        course = client.post("/api/course", json={"episode": first, "actions": actions}).json()
        assert course == {**to_plain(course_of(problem, actions)), "support": None}
        assert course["outcome"] == pytest.approx(-problem.outcome(actions))
    recorded = client.post(
        "/api/course", json={"episode": first, "actions": place.cohort[first].actions.tolist()}
    ).json()
    assert recorded["changes"] == []


@pytest.mark.parametrize(
    "actions", [[], [0], [0] * 400, [-1] * 5, ["0"] * 5, [0.5] * 5, [True] * 5, [10**30] * 5, None, "0,0,0"]
)
def test_sequences_that_are_none(client: Any, first: str, actions: object) -> None:
    error_of(client.post("/api/course", json={"episode": first, "actions": actions}), 422)
    error_of(client.post("/api/course", json={"actions": actions}), 422)


def test_an_action_that_does_not_exist(client: Any, place: Any, first: str) -> None:
    actions = place.cohort[first].actions.tolist()
    actions[0] = len(place.cohort.schema.actions)
    assert (
        "numbered 0 to 24"
        in error_of(client.post("/api/course", json={"episode": first, "actions": actions}), 422)["what"]
    )


@pytest.mark.parametrize("name", ["nobody", "../../etc/passwd", "<script>alert(1)</script>", "'; DROP TABLE revisions"])
def test_unknown_episodes(client: Any, name: str) -> None:
    answers = [
        client.get("/api/case", params={"episode": name}),
        client.get("/api/notes", params={"episode": name}),
        client.get("/api/export", params={"episode": name, "kind": "json"}),
        client.post("/api/course", json={"episode": name, "actions": [0]}),
        client.post("/api/jobs", json={"episode": name, "max_changes": 1}),
        client.put("/api/notes", json={"episode": name, "revision": 0}),
    ]
    for answer in answers:
        assert name not in str(error_of(answer, 404))


def test_notes(quiet_client: Any, place: Any, first: str) -> None:
    def save(**content: object) -> Any:
        return quiet_client.put("/api/notes", json={"episode": first, "revision": 0} | content)

    nothing = quiet_client.get("/api/notes", params={"episode": first}).json()
    assert (nothing["revision"], nothing["verdict"], nothing["updated"]) == (0, None, None)
    saved = save(verdict="implausible", note="=1+1\nsecond line", reviewer="Ann").json()
    assert saved["revision"] == 1
    assert quiet_client.get("/api/notes", params={"episode": first}).json() == saved
    error_of(save(note="mine", reviewer="Ann"), 409)
    remarks = [{"step": 2, "text": "late"}, {"step": 0, "text": "why?"}]
    mine = save(note="mine", reviewer="Ann", revision=1, steps=remarks).json()
    assert (mine["revision"], mine["steps"]) == (2, remarks[::-1])
    listed = quiet_client.get("/api/episodes", params={"search": first}).json()["rows"]
    assert [(row["noted"], row["verdict"]) for row in listed] == [(True, None)]
    for reviewer, verdict in (("Ann", "unsure"), ("Bo", "plausible")):
        known = quiet_client.get("/api/notes", params={"episode": first, "reviewer": reviewer}).json()
        save(verdict=verdict, reviewer=reviewer, revision=known["revision"], note=f"by {reviewer}")
    both = quiet_client.get("/api/reviews", params={"episode": first}).json()["notes"]
    assert [(one["reviewer"], one["verdict"]) for one in both] == [("Ann", "unsure"), ("Bo", "plausible")]
    (listed,) = quiet_client.get("/api/episodes", params={"reviews": "differ"}).json()["rows"]
    assert (listed["episode"], listed["reviewers"], listed["verdict"]) == (first, 2, "plausible")
    agreement = quiet_client.get("/api/agreement").json()
    assert (agreement["judged"], agreement["twice"], agreement["differ"]) == (1, 1, 1)
    assert [(pair["first"], pair["second"], pair["agreed"]) for pair in agreement["pairs"]] == [("Ann", "Bo", 0)]
    table = quiet_client.get("/api/notes.csv")
    assert table.headers["content-type"].startswith("text/csv")
    assert "attachment" in table.headers["content-disposition"]
    rows = pl.read_csv(table.content)
    assert rows["note"].to_list() == ["by Ann", "by Bo"]
    (answer,) = quiet_client.get("/api/episodes", params={"search": first}).json()["rows"]
    assert rows["improvement"].to_list() == pytest.approx([answer["improvement"]] * 2)
    assert rows["doubts"].to_list() == ["; ".join(answer["doubts"])] * 2


@pytest.mark.parametrize(
    "content",
    [
        {"verdict": "perfect"},
        {"note": "x" * 10_001},
        {"note": "nul\0"},
        {"note": 7},
        {"reviewer": "x" * 201},
        {"revision": -1},
        {"revision": True},
        {"revision": None},
        {"surprise": 1},
        {"steps": [{"step": -1, "text": "x"}]},
        {"steps": [{"step": 1, "text": ""}]},
        {"steps": [{"step": 1, "text": "x" * 501}]},
        {"steps": [{"step": 1, "text": "x"}] * 51},
    ],
)
def test_notes_that_do_not_fit(client: Any, first: str, content: dict[str, object]) -> None:
    error_of(client.put("/api/notes", json={"episode": first, "revision": 0} | content), 422)


def test_what_was_sent_is_not_repeated(client: Any, first: str) -> None:
    secret = "Mrs Smith of Baker Street"
    for content in ({"episode": first, "note": [secret], "revision": 0}, {secret: 1}, [secret], secret):
        answer = client.put("/api/notes", json=content)
        error_of(answer, 422)
        assert secret not in answer.text
    broken = client.put("/api/notes", content=f"{{{secret}", headers={"content-type": "application/json"})
    error_of(broken, 422)
    assert secret not in broken.text


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"episode":' * 5000,
        b'{"revision": 1' + b"0" * 5000 + b"}",
        b'{"revision": NaN}',
        b'{"note": "\\ud800", "revision": 0, "episode": "EPISODE"}',
        b'{"episode": "\\udcff", "revision": 0}',
        b'{"episode": "EPISODE", "revision": 0, "revision": 0, "reviewer": "\\u0000"}',
        b"",
        b"null",
    ],
)
def test_hostile_json(client: Any, first: str, content: bytes) -> None:
    answer = client.put(
        "/api/notes", content=content.replace(b"EPISODE", first.encode()), headers={"content-type": "application/json"}
    )
    assert answer.status_code in (400, 422)
    error_of(answer, answer.status_code)


def test_notes_that_cannot_be_stored_are_an_error_of_its_own(settings: Any, first: str, client_of: Any) -> None:
    told: list[str] = []
    client = client_of(create_app(replace(settings, report=told.append)))
    with sqlite3.connect(settings.notes) as database:
        database.execute("DROP TABLE revisions")
    database.close()
    error_of(client.put("/api/notes", json={"episode": first, "revision": 0}), 503)
    for _ in range(2):  # what could not be read is not taken for read
        error_of(client.get("/api/notes", params={"episode": first}), 503)
    assert len(told) == 3
    assert all(text.startswith("notes ") and first not in text for text in told)


def test_a_note_saved_while_the_list_is_made_is_seen_next_time(settings: Any, first: str) -> None:
    class Busy(Notes):
        coming: ClassVar = [Note(first, "unsure")]

        def reviews(self) -> Any:
            found = super().reviews()
            if self.coming:
                self.save(self.coming.pop())
            return found

    review = Review.load(settings)
    notes = Busy(settings.notes, cohort=review.fingerprint, model="m")
    verdicts = [review.listing.page(ListQuery(search=first), notes).rows[0].verdict for _ in range(2)]
    notes.close()
    assert verdicts == [None, "unsure"]


def test_addresses_that_do_not_exist(client: Any) -> None:
    error_of(client.get("/api/nothing"), 404)
    answer = client.delete("/api/notes")
    error_of(answer, 405)
    assert "PUT" in answer.headers["allow"] or "GET" in answer.headers["allow"]


def test_unexpected_errors_say_nothing(
    settings: Any, place: Any, first: str, client_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    client = client_of(create_app(replace(settings, report=told.append)))

    def broken(*_: object) -> None:
        raise ValueError("Mrs Smith had 12.5")

    monkeypatch.setattr("ifonly.web.review.course_of", broken)
    answer = client.post("/api/course", json={"episode": first, "actions": place.cohort[first].actions.tolist()})
    error_of(answer, 500)
    assert "Smith" not in answer.text
    assert len(told) == 1
    assert told[0].startswith("unexpected ValueError in ")
    assert "Smith" not in told[0]


def test_the_description_is_complete(client: Any) -> None:
    described = client.get("/openapi.json").json()
    assert set(described["paths"]) == {
        "/api/about",
        "/api/episodes",
        "/api/patterns",
        "/api/case",
        "/api/course",
        "/api/jobs",
        "/api/jobs/{job}",
        "/api/jobs/{job}/stop",
        "/api/notes",
        "/api/notes.csv",
        "/api/reviews",
        "/api/agreement",
        "/api/export",
    }
    assert client.get("/docs").status_code == 404


def test_places_are_no_part_of_answers(client: Any, place: Any) -> None:
    folder = str(Path(place.episodes).parent)
    for path in ("/", "/api/about", "/openapi.json", f"/case?episode={place.cohort.ids[0]}"):
        assert folder not in client.get(path).text
