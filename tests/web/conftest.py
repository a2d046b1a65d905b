"""A small cohort, a model and a run of some of its episodes, and the application that shows them."""

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browser_review import SOLVED, reader, started_browser, started_server, watched_page
from described_answers import DescribedClient
from fastapi import FastAPI

import ifonly
from ifonly.web.app import create_app
from ifonly.web.settings import ReviewSettings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have another client library than the one that is installed
    from starlette.testclient import TestClient

ADDRESS = "http://127.0.0.1:8377"
TOKEN = "a-token-that-nobody-guesses"


@dataclass(frozen=True)
class Place:
    """Folders that are not to be altered, and what is in them."""

    episodes: Path
    model: Path
    run: Path
    cohort: ifonly.Cohort

    def settings(self, notes: Path, **more: Any) -> ReviewSettings:
        return ReviewSettings(
            **{"episodes": self.episodes, "model": self.model, "notes": notes, "run": self.run} | more
        )


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """24 episodes, of which the first 16 are solved for k = 2."""
    folder = tmp_path_factory.mktemp("review")
    cohort = ifonly.simulate.simulate_cohort(24, seed=5, horizon=(5, 8))
    ifonly.save_cohort(cohort, folder / "cohort")
    untrained = ifonly.LocationScale(cohort.schema, hidden=(12,))
    model = ifonly.fit(untrained, cohort, epochs=2, seed=0)
    ifonly.save_model(model, folder / "model")
    settings = ifonly.RunSettings(episodes=cohort.ids[:SOLVED], workers=1)
    query = ifonly.Query(ifonly.minus("SOFA"), 2)
    ifonly.solve_cohort(cohort, model, query, out=folder / "run", settings=settings)
    return Place(folder / "cohort", folder / "model", folder / "run", cohort)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for all tests of a module; ended with it, for its event loop is in the way of others."""
    yield from started_browser()


@pytest.fixture(scope="module")
def home(browser: Any, place: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    notes = tmp_path_factory.mktemp("notes") / "notes.sqlite"
    yield from started_server(
        *("--episodes", place.episodes, "--model", place.model, "--run", place.run),
        *("--notes", notes, "--workers", 1, "--seconds", 120),
    )


@pytest.fixture(scope="module")
def context(browser: Any) -> Iterator[Any]:
    with reader(browser) as context:
        yield context


@pytest.fixture
def seen(context: Any, home: str) -> Iterator[tuple[Any, Any]]:
    with watched_page(context, home) as (page, watch):
        yield page, watch


@pytest.fixture
def page(seen: tuple[Any, Any]) -> Any:
    return seen[0]


@pytest.fixture(scope="module")
def longest(place: Any) -> str:
    """A solved episode with the most steps."""
    solved = place.cohort.ids[:SOLVED]
    return max(solved, key=lambda id: len(place.cohort[id]))


@pytest.fixture
def settings(place: Place, tmp_path: Path) -> ReviewSettings:
    return place.settings(tmp_path / "notes.sqlite", jobs=1)


@pytest.fixture(scope="session")
def client_of() -> Callable[..., TestClient]:
    """A client of an application, which compares every answer with its description; no workers, unless entered."""

    def client(app: FastAPI, address: str = ADDRESS) -> TestClient:
        return DescribedClient(app, base_url=address, follow_redirects=False)

    return client


@pytest.fixture
def quiet_client(settings: ReviewSettings, client_of: Callable[..., TestClient]) -> TestClient:
    """Without workers: for everything but searches."""
    return client_of(create_app(settings))


@pytest.fixture(scope="session")
def client(
    place: Place, client_of: Callable[..., TestClient], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestClient]:
    """With one worker, shared by all tests that leave nothing behind."""
    settings = place.settings(tmp_path_factory.mktemp("notes") / "notes.sqlite", jobs=1, seconds=2.5)
    with client_of(create_app(settings)) as started:
        yield started


@pytest.fixture(scope="session")
def guarded_app(place: Place, tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """Asks for a token."""
    return create_app(place.settings(tmp_path_factory.mktemp("notes") / "notes.sqlite", token=TOKEN))


@pytest.fixture
def guarded_client(guarded_app: FastAPI, client_of: Callable[..., TestClient]) -> TestClient:
    """Somebody who has not signed in, and uses another name for the machine."""
    return client_of(guarded_app, "http://review.example:8377")


Ended = Callable[[TestClient, str], dict[str, Any]]


@pytest.fixture(scope="session")
def ended() -> Ended:
    """Waits until a job has ended, and gives what is known of it."""

    def wait(asked: TestClient, job: str, *, seconds: float = 60) -> dict[str, Any]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            answer = asked.get(f"/api/jobs/{job}").json()
            if answer["state"] not in ("waiting", "running"):
                return answer
            time.sleep(0.1)  # each look is compared with its description, while a worker waits for the processor
        raise AssertionError(f"the job has not ended: {answer}")

    return wait
