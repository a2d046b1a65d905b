"""Who is refused: foreign names, strangers, foreign pages, large requests; and what every answer carries."""

import asyncio
from dataclasses import replace
from http.cookies import SimpleCookie
from typing import Any

import httpx
import pytest

from ifonly.web import guard
from ifonly.web.app import create_app
from ifonly.web.guard import MOST_BYTES, Doorkeeper

TOKEN = "a-token-that-nobody-guesses"
JSON = {"content-type": "application/json"}
EVERYWHERE = ["/", "/api/about", "/static/ifonly.css", "/nowhere", "/api/nowhere", "/openapi.json"]


@pytest.mark.parametrize("path", EVERYWHERE)
def test_every_answer_carries_its_headers(client: Any, path: str) -> None:
    headers = client.get(path).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == policy["form-action"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in policy["script-src"] + policy["style-src"]
    assert not any("http" in sources for sources in policy.values())
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"  # "no-referrer" makes browsers say "Origin: null" at the login
    assert headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"] == ("no-cache" if path.startswith("/static/") else "no-store")
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("path", EVERYWHERE)
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8377", "127.0.0.1.evil.example", "", "[::1", "10.0.0.1"]
)
def test_foreign_names_are_refused(client: Any, path: str, host: str) -> None:
    answer = client.get(path, headers={"host": host})
    assert answer.status_code == 421
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:9", "localhost:8377", "LOCALHOST", "[::1]:8377", "127.0.0.2:8377"]
)
def test_own_names_are_taken(client: Any, host: str) -> None:
    assert client.get("/api/about", headers={"host": host}).status_code == 200


FOREIGN = [
    {"origin": "http://evil.example"},
    {"origin": "null"},
    {"origin": "http://["},
    {"origin": "127.0.0.1:8377"},
    {"origin": "http://127.0.0.1:9999"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": "http://127.0.0.1:8377"},
]


@pytest.mark.parametrize("headers", FOREIGN)
def test_foreign_pages_cannot_write(client: Any, place: Any, headers: dict[str, str]) -> None:
    episode = place.cohort.ids[5]
    before = client.get("/api/notes", params={"episode": episode}).json()
    requests = [
        ("PUT", "/api/notes", {"episode": episode, "revision": 0}),
        ("POST", "/api/course", {"episode": episode, "actions": [0]}),
        ("POST", "/api/jobs", {"episode": episode, "max_changes": 1}),
        ("POST", "/api/jobs/AAAAAAAAAAAAAAAA/stop", None),
        ("POST", "/login", None),
    ]
    for method, path, body in requests:
        assert client.request(method, path, json=body, headers=headers).status_code == 403
    assert client.get("/api/notes", params={"episode": episode}).json() == before


def test_foreign_pages_cannot_read_the_api_but_may_link(client: Any) -> None:
    assert client.get("/api/about", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200


def test_our_own_page_may_write(quiet_client: Any, place: Any) -> None:
    headers = {"origin": "http://127.0.0.1:8377", "sec-fetch-site": "same-origin"}
    body = {"episode": place.cohort.ids[0], "revision": 0}
    assert quiet_client.put("/api/notes", json=body, headers=headers).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_only_json_is_read(client: Any, place: Any, kind: str) -> None:
    body = f'{{"episode": "{place.cohort.ids[0]}", "revision": 0}}'
    assert client.put("/api/notes", content=body, headers={"content-type": kind}).status_code == 415


def test_large_requests_are_refused(client: Any) -> None:
    def pieces() -> Any:
        for _ in range(MOST_BYTES // 1000 + 2):
            yield b" " * 1000

    announced = client.put("/api/notes", content=b" " * (MOST_BYTES + 1), headers=JSON)
    unannounced = client.put("/api/notes", content=pieces(), headers=JSON)
    nonsense = [
        client.put("/api/notes", content=b"{}", headers=JSON | {"content-length": length})
        for length in ("-5", "9" * 5000, "0" * 5000)
    ]
    for answer in (announced, unannounced, *nonsense):
        assert answer.status_code == 413
        assert set(answer.json()["error"]) == {"what", "do"}
    largest = client.put("/api/notes", content=b" " * MOST_BYTES, headers=JSON)
    assert largest.status_code == 422


def test_slow_requests_are_given_up(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "SECONDS_TO_ARRIVE", 0.05)
    app = create_app(settings)

    async def never() -> Any:
        yield b"{"
        await asyncio.sleep(60)

    async def ask() -> int:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return (await client.put("/api/notes", content=never(), headers=JSON)).status_code

    assert asyncio.run(ask()) == 408


@pytest.mark.parametrize("path", ["/api/about", "/api/episodes", "/openapi.json", "/api/notes.csv", "/api/nowhere"])
def test_without_the_token_the_api_says_no(guarded_client: Any, path: str) -> None:
    tries = [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": TOKEN},
        {"authorization": "Bearer "},
        {"cookie": f"{guard.COOKIE}={TOKEN}"},
        {"cookie": f"{guard.COOKIE}=9999999999.{'0' * 64}"},
        {"cookie": f"{guard.COOKIE}=."},
        {"cookie": f"{guard.COOKIE}="},
    ]
    for headers in tries:
        answer = guarded_client.get(path, headers=headers)
        assert answer.status_code == 401, headers
        assert answer.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in answer.text
    assert guarded_client.get(f"{path}?token={TOKEN}").status_code == 401
    assert guarded_client.get(path, headers={"authorization": f"Bearer {TOKEN}"}).status_code in (200, 404)


def test_writing_without_the_token(guarded_client: Any, place: Any) -> None:
    body = {"episode": place.cohort.ids[0], "revision": 0}
    assert guarded_client.put("/api/notes", json=body).status_code == 401
    assert guarded_client.put("/api/notes", json=body, headers={"authorization": f"bearer {TOKEN}"}).status_code == 200


def test_pages_lead_to_the_login_and_back(guarded_client: Any) -> None:
    there = guarded_client.get("/case?episode=a%20b&k=2")
    assert there.status_code == 303
    assert there.headers["location"] == "/login?next=%2Fcase%3Fepisode%3Da%2520b%26k%3D2"
    form = guarded_client.get(there.headers["location"])
    assert form.status_code == 200
    assert "/case?episode=a%20b&amp;k=2" in form.text
    assert guarded_client.get("/static/ifonly.css").status_code == 200
    answer = guarded_client.post("/login", data={"token": TOKEN, "next": "/case?episode=a%20b&k=2"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/case?episode=a%20b&k=2"
    (morsel,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert morsel.key == guard.COOKIE
    assert TOKEN not in morsel.value
    assert morsel["httponly"]
    assert morsel["samesite"].lower() == "strict"
    assert guarded_client.get("/").status_code == 200
    assert guarded_client.get("/api/about").json()["signs_in"] is True


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], f"{TOKEN}x", "\u00e9" * 20])
def test_a_wrong_token_opens_nothing(guarded_client: Any, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ifonly.web.site.SECONDS_AFTER_WRONG_TOKEN", 0.0)
    answer = guarded_client.post("/login", data={"token": token, "next": "/"})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert guarded_client.get("/").status_code == 303


@pytest.mark.parametrize(
    "elsewhere", ["http://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)", "", "/a\r\nb: c"]
)
def test_the_login_leads_nowhere_else(guarded_client: Any, elsewhere: str) -> None:
    answer = guarded_client.post("/login", data={"token": TOKEN, "next": elsewhere})
    assert answer.headers["location"] == "/"
    assert "evil" not in guarded_client.get("/login", params={"next": elsewhere}).text


def test_without_a_token_there_is_no_login(client: Any) -> None:
    assert client.get("/login").headers["location"] == "/"
    assert client.post("/login", data={"token": "anything"}).status_code == 401
    assert client.post("/login", json={}).status_code == 415


def test_who_signed_in_is_signed_out_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = Doorkeeper(TOKEN)
    shown = {guard.COOKIE: keeper.sign_in()}
    none = httpx.Headers()
    assert keeper.admits(none, shown)
    assert not Doorkeeper(TOKEN).admits(none, shown)  # another start of the server
    until, signature = shown[guard.COOKIE].split(".")
    assert not keeper.admits(none, {guard.COOKIE: f"{int(until) + 1}.{signature}"})
    later = int(until) + 1
    monkeypatch.setattr("ifonly.web.guard.time.time", lambda: later)
    assert not keeper.admits(none, shown)


@pytest.mark.parametrize("path", ["/stat%09ic/ifonly.css", "/log%0Ain", "/static", "/login/", "//static/x", "/Login"])
def test_only_the_login_and_its_files_are_for_strangers(guarded_client: Any, path: str) -> None:
    assert guarded_client.get(path).status_code == 303


@pytest.mark.parametrize(("origin", "secure"), [("https://review.example", True), ("http://review.example", False)])
def test_behind_a_proxy_with_encryption_the_cookie_stays_there(guarded_client: Any, origin: str, secure: bool) -> None:
    headers = {"host": "review.example", "origin": origin}
    answer = guarded_client.post("/login", data={"token": TOKEN}, headers=headers)
    assert answer.status_code == 303
    (morsel,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert bool(morsel["secure"]) == secure


def test_under_a_token_any_name_will_do(settings: Any, client_of: Any) -> None:
    client = client_of(create_app(replace(settings, token=TOKEN)), "https://hospital.example")
    assert client.get("/api/about", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    answer = client.post("/login", data={"token": TOKEN})
    assert "Secure" in answer.headers["set-cookie"]
