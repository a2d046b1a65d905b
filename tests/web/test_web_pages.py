"""Pages, static files and exported files."""

import gzip
import io
import json
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ifonly.report import pages
from ifonly.web import exports
from ifonly.web.app import create_app

FILES = sorted(pages.static_files())


class Embedded(HTMLParser):
    """The data in a page, and the files that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.data: dict[str, Any] = {}
        self.loaded: list[str] = []
        self._open: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "script" and given.get("type") == "application/json":
            self._open = given["id"]
        elif tag == "script":
            assert given.get("src"), "a script of the application is never in the page itself"
        for name in ("src", "href"):
            if tag in ("script", "link", "img") and given.get(name):
                self.loaded.append(str(given[name]))

    def handle_data(self, data: str) -> None:
        if self._open:
            self.data[self._open] = json.loads(data)
            self._open = None


def test_the_list_page(client: Any) -> None:
    page = client.get("/?status=optimal&size=3&order=")
    found = Embedded(page.text)
    assert page.headers["content-type"].startswith("text/html")
    assert found.data["first-data"] == client.get("/api/episodes?status=optimal&size=3").json()
    assert found.data["about-data"] == client.get("/api/about").json()
    assert found.data["query-data"]["status"] == "optimal"
    assert found.data["patterns-data"] == client.get("/api/patterns").json()


def test_the_case_page(quiet_client: Any, place: Any) -> None:
    episode = place.cohort.ids[1]
    quiet_client.put("/api/notes", json={"episode": episode, "note": "</script><b>", "revision": 0})
    page = quiet_client.get("/case", params={"episode": episode, "k": 1, "rules": "[]"})
    found = Embedded(page.text)
    assert found.data["case-data"] == quiet_client.get("/api/case", params={"episode": episode}).json()
    assert [one["note"] for one in found.data["reviews-data"]] == ["</script><b>"]
    (row,) = quiet_client.get("/api/episodes", params={"search": episode}).json()["rows"]
    shown = [one["pattern"] for one in quiet_client.get("/api/patterns").json()["patterns"]]
    assert ("Changes of this case that recur" in page.text) == any(one in shown for one in row["patterns"] or ())
    for address in found.loaded:
        assert quiet_client.get(address).status_code == 200, address


def test_errors_are_pages_for_people(client: Any) -> None:
    for path, status in (("/case?episode=%3Cb%3Enobody", 404), ("/case", 422), ("/?size=0", 422), ("/nowhere", 404)):
        answer = client.get(path)
        assert answer.status_code == status
        assert answer.headers["content-type"].startswith("text/html")
        assert "nobody" not in answer.text
        assert "Traceback" not in answer.text


@pytest.mark.parametrize("name", FILES)
def test_static_files(client: Any, name: str) -> None:
    content = pages.static_files()[name].read_bytes()
    plain = client.get(f"/static/{name}", headers={"accept-encoding": "identity"})
    assert plain.content == content
    packed = client.get(f"/static/{name}", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.content == content  # unpacked by the client
    assert packed.headers["etag"] != plain.headers["etag"]
    for answer in (plain, packed):
        encoding = {"accept-encoding": "gzip" if answer is packed else "identity"}
        again = client.get(f"/static/{name}", headers={"if-none-match": answer.headers["etag"]} | encoding)
        assert (again.status_code, again.content) == (304, b"")
    assert client.get(f"/static/{name}", headers={"if-none-match": '"other"'}).status_code == 200


def test_the_large_script_travels_packed(client: Any) -> None:
    with client.stream("GET", f"/static/{pages.PLOTLY}", headers={"accept-encoding": "gzip"}) as answer:
        raw = b"".join(answer.iter_raw())
    assert len(raw) < 0.4 * len(gzip.decompress(raw))


@pytest.mark.parametrize("name", ["../__init__.py", "..%2f__init__.py", "nothing.js", "", "%2e%2e/%2e%2e/errors.py"])
def test_nothing_else_is_served(client: Any, name: str) -> None:
    assert client.get(f"/static/{name}").status_code == 404


def test_data_as_a_file(client: Any, place: Any) -> None:
    episode = place.cohort.ids[0]
    case = client.get("/api/case", params={"episode": episode}).json()
    file = client.get("/api/export", params={"episode": episode, "kind": "json"})
    assert file.headers["content-disposition"] == f'attachment; filename="case-{episode}.json"'
    assert file.json() == case
    actions = [*case["observed"]["actions"]]
    actions[1] = (actions[1] + 1) % 25
    tried = client.get(
        "/api/export", params={"episode": episode, "kind": "json", "actions": ",".join(map(str, actions))}
    ).json()
    course = client.post("/api/course", json={"episode": episode, "actions": actions}).json()
    assert tried == case | {"edited": course}


def test_a_picture_as_a_file(client: Any, place: Any) -> None:
    for episode in (place.cohort.ids[0], place.cohort.ids[-1]):  # with an answer, and without one
        file = client.get("/api/export", params={"episode": episode, "kind": "png"})
        assert file.headers["content-type"] == "image/png"
        assert file.content.startswith(b"\x89PNG")
        assert len(file.content) > 20_000


@pytest.mark.parametrize(
    ("kind", "media_type", "beginning"),
    [
        ("pdf", "application/pdf", b"%PDF"),
        ("slide.svg", "image/svg+xml", b"<?xml"),
        ("slide.png", "image/png", b"\x89PNG"),
    ],
)
def test_a_document_and_a_slide_as_files(client: Any, place: Any, kind: str, media_type: str, beginning: bytes) -> None:
    episode = place.cohort.ids[0]
    file = client.get("/api/export", params={"episode": episode, "kind": kind})
    assert (file.headers["content-type"], file.content[: len(beginning)]) == (media_type, beginning)
    assert file.headers["content-disposition"] == f'attachment; filename="case-{episode}.{kind}"'


class Drawn:
    """A picture that takes no time to draw."""

    def __init__(self, content: io.BytesIO) -> None:
        self._content = content

    def savefig(self, file: io.BytesIO, format: str) -> None:
        file.write(self._content.getvalue())


def test_pictures_do_not_keep_everybody_waiting(client: Any, place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    query = {"episode": place.cohort.ids[0], "kind": "png"}
    monkeypatch.setattr("ifonly.web.exports._TURNS", threading.BoundedSemaphore(1))
    with exports._TURNS:
        refused = client.get("/api/export", params=query)
    assert refused.status_code == 429
    assert refused.json()["error"]["do"]
    drawn = io.BytesIO(b"\x89PNG")
    monkeypatch.setattr("ifonly.report.case_picture.plot_case", lambda case: Drawn(drawn))
    assert [client.get("/api/export", params=query).status_code for _ in range(2)] == [200, 200]


def test_a_page_as_a_file(client: Any, place: Any) -> None:
    episode = place.cohort.ids[0]
    file = client.get("/api/export", params={"episode": episode, "kind": "html"})
    assert file.headers["content-type"].startswith("text/html")
    assert "attachment" in file.headers["content-disposition"]
    assert episode in file.text
    assert '"edited":null' in file.text
    assert 'src="' not in file.text.split("<script", 1)[0]
    actions = ",".join(str(action) for action in place.cohort[episode].actions)
    tried = client.get("/api/export", params={"episode": episode, "kind": "html", "actions": actions})
    assert '"edited":{' in tried.text


@pytest.mark.parametrize("actions", ["1,2", "a", "-1", ",", "1," * 9000, "99999,0,0,0,0,0"])
def test_sequences_that_cannot_be_exported(client: Any, place: Any, actions: str) -> None:
    query = {"episode": place.cohort.ids[0], "kind": "json", "actions": actions}
    assert client.get("/api/export", params=query).status_code == 422


def test_the_answer_of_a_search_as_a_file(client: Any, place: Any, ended: Any) -> None:
    episode, other = place.cohort.ids[:2]
    rules = {"locked": [0]}
    job = client.post("/api/jobs", json={"episode": episode, "max_changes": 1, "constraints": rules}).json()["job"]
    case = ended(client, job)["case"]
    query = {"kind": "json", "job": job}
    assert client.get("/api/export", params=query | {"episode": episode}).json() == case
    assert client.get("/api/export", params=query | {"episode": other}).status_code == 422
    assert client.get("/api/export", params=query | {"episode": episode, "job": "A" * 16}).status_code == 404


def test_pages_of_a_sample_say_that_it_is_made_up(place: Any, tmp_path: Path, client_of: Any) -> None:
    client = client_of(create_app(place.settings(tmp_path / "notes.sqlite", sample=True)))
    own = client_of(create_app(place.settings(tmp_path / "other.sqlite")))
    for address in ("/", f"/case?episode={place.cohort.ids[0]}"):
        assert 'class="sample-data"' in client.get(address).text
        assert 'class="sample-data"' not in own.get(address).text
