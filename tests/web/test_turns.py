"""Requests that take long wait for their turn, in the order in which they came; others do not."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ifonly.web import app as application
from ifonly.web.app import create_app
from ifonly.web.settings import ReviewSettings
from ifonly.web.turns import AT_ONCE, Turns


def wait_until(holds: Callable[[], bool]) -> None:
    latest = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < latest, "never"
        time.sleep(0.001)


def test_who_came_first_goes_first_and_few_at_once() -> None:
    turns, order, inside, most = Turns(2), [], [0], [0]
    counting = threading.Lock()

    def work(number: int) -> None:
        with turns:
            with counting:
                order.append(number)
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            time.sleep(0.002)
            with counting:
                inside[0] -= 1

    turns.__enter__()
    turns.__enter__()
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(20)]
    for number, thread in enumerate(threads):
        thread.start()
        wait_until(lambda number=number: len(turns._waiting) == number + 1)
    turns.__exit__(None, None, None)  # one place alone: the order in which they begin is the order in which they came
    wait_until(lambda: len(order) == 20)
    turns.__exit__(None, None, None)
    for thread in threads:
        thread.join(60)
    assert order == list(range(20))
    assert most == [1]


def test_an_error_gives_the_place_back() -> None:
    turns = Turns(1)
    for _ in range(3):
        with pytest.raises(ValueError, match="no"), turns:
            raise ValueError("no")
    with turns:
        pass


def test_lists_cases_and_courses_wait_and_the_rest_does_not(
    settings: ReviewSettings, client_of: Callable[..., Any], place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = Turns()
    monkeypatch.setattr(application, "Turns", lambda: taken)
    app, episode = create_app(settings), place.cohort.ids[0]
    actions = place.cohort[episode].actions.tolist()
    asked = [
        ("GET", "/", None),
        ("GET", f"/case?episode={episode}", None),
        ("GET", "/api/episodes", None),
        ("GET", f"/api/case?episode={episode}", None),
        ("POST", "/api/course", {"episode": episode, "actions": actions}),
    ]
    for _ in range(AT_ONCE):
        taken.__enter__()
    answers: list[int] = []

    def ask(client: Any, method: str, path: str, body: Any) -> None:
        answers.append(client.request(method, path, json=body).status_code)

    threads = [threading.Thread(target=ask, args=(client_of(app), *one), daemon=True) for one in asked]
    other = client_of(app)
    try:
        for number, thread in enumerate(threads):
            thread.start()
            wait_until(lambda number=number: len(taken._waiting) == number + 1)
        for path in ("/static/words.js", "/api/about", f"/api/notes?episode={episode}"):
            assert other.get(path).status_code == 200
        assert other.get(f"/api/export?episode={episode}&kind=json").status_code == 200
        assert answers == []
    finally:
        for _ in range(AT_ONCE):
            taken.__exit__(None, None, None)
    for thread in threads:
        thread.join(60)
    assert answers == [200] * len(asked)
