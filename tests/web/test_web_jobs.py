"""Searches as jobs: their answers are those of `solve`; they can be stopped, they can break, they are limited."""

import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from effort import long

import ifonly
from ifonly.records import to_plain
from ifonly.report.cases import case_of
from ifonly.text.catalogue import say
from ifonly.web.app import create_app
from ifonly.web.guard import RefusalError
from ifonly.web.jobs import JobAnswer, JobDesk, JobLimits, _Worker
from ifonly.web.worker import News, Order, Setup, Work, work_for


def start(client: Any, **body: Any) -> dict[str, Any]:
    answer = client.post("/api/jobs", json=body)
    assert answer.status_code == 202, answer.text
    return answer.json()


def longest(place: Any) -> str:
    """An episode with many steps: with as many changes no search is through with it soon."""
    return place.cohort.ids[int(np.argmax(place.cohort.lengths))]


def until(client: Any, job: str, wanted: Any, seconds: float = 60) -> dict[str, Any]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = client.get(f"/api/jobs/{job}").json()
        if wanted(answer):
            return answer
        time.sleep(0.05)
    raise AssertionError(f"never came: {answer}")


RULES = [
    None,
    {"locked": [0, 1]},
    {"required": {"2": 7}},
    {"forbidden": {"every": [24, 23], "1": [0]}, "max_shift": {"fluids": 1}},
    {"max_jump": 2, "last_action_fixed": True},
    {"pace": {"changes": 1, "within": "12 hours"}, "max_jump": {"fluids": 3}},
    {"stretches": 1},
]


def test_answers_are_those_of_solve(client: Any, place: Any, ended: Any) -> None:
    """One after the other on one worker, whose session keeps its bound from rules to rules."""
    episode = next(id for id in place.cohort.ids if place.cohort[id].actions[1] != 0)  # 0 is forbidden there below
    model = ifonly.load_model(place.model).for_search()
    for rules in RULES:
        constraints = ifonly.Constraints.from_dict(rules or {})
        query = ifonly.Query(
            ifonly.minus("SOFA"),
            2,
            constraints=constraints,
            solver={"name": "branch-and-bound", "alternatives": 3},
            limits=ifonly.Limits(seconds=2.5),
            allow_failed_model=True,
        )
        problem = ifonly.Problem.from_episode(place.cohort[episode], model, query)
        expected = to_plain(case_of(problem, ifonly.solve(problem)))
        job = start(client, episode=episode, max_changes=2, constraints=rules, alternatives=3)
        answer = ended(client, job["job"])
        assert answer["state"] == "finished", answer
        found = answer["case"]
        assert found["answer"]["claim"]["proven"]
        assert found["answer"]["best"]["outcome"] == pytest.approx(expected["answer"]["best"]["outcome"], abs=1e-7)
        assert found["question"] == expected["question"]
        assert found["answer"]["result"]["provenance"] == expected["answer"]["result"]["provenance"]
        outcomes = [course["outcome"] for course in found["answer"]["alternatives"]]
        assert outcomes == pytest.approx([course["outcome"] for course in expected["answer"]["alternatives"]], abs=1e-7)
        for budget, other in zip(found["answer"]["budgets"], expected["answer"]["budgets"], strict=True):
            assert (budget["course"] is None) == (other["course"] is None)
            if budget["course"] is not None:
                assert budget["course"]["outcome"] == pytest.approx(other["course"]["outcome"], abs=1e-7)


def test_stopped_the_answer_is_a_bracket(client: Any, place: Any, ended: Any) -> None:
    episode = longest(place)
    job = start(client, episode=episode, max_changes=8, seconds=20)["job"]
    progress = until(client, job, lambda answer: answer["progress"] is not None)["progress"]
    assert progress["found"] is not None
    assert progress["nodes"] >= 0
    assert client.get("/api/about").status_code == 200  # others are not kept waiting
    assert client.post(f"/api/jobs/{job}/stop").status_code == 200
    answer = ended(client, job, seconds=15)
    assert answer["state"] == "stopped"
    found = answer["case"]["answer"]
    claim = found["claim"]
    assert found["result"]["status"] == "interrupted"
    assert not claim["proven"]
    assert claim["statement"]["values"]["claim"]["values"]["stopped"]["code"] == "case.stopped.interrupted"
    assert found["best"]["outcome"] <= answer["case"]["observed"]["outcome"] + 1e-9
    assert claim["best_possible"] is None or claim["best_possible"] <= found["best"]["outcome"] + 1e-9
    again = client.post(f"/api/jobs/{job}/stop").json()
    assert again["state"] == "stopped"


def test_seconds_are_limited(client: Any, place: Any, ended: Any) -> None:
    job = start(client, episode=longest(place), max_changes=8, seconds=3600)["job"]
    answer = ended(client, job, seconds=client.get("/api/about").json()["limits"]["seconds"] + 30)
    assert answer["state"] == "finished"
    assert answer["case"]["answer"]["result"]["status"] == "time limit"
    assert not answer["case"]["answer"]["claim"]["proven"]


def test_a_worker_that_dies_fails_its_job_and_is_replaced(
    place: Any, settings: Any, client_of: Any, ended: Any
) -> None:
    before = set(multiprocessing.active_children())
    with client_of(create_app(settings)) as client:
        job = start(client, episode=longest(place), max_changes=8, seconds=60)["job"]
        until(client, job, lambda answer: answer["progress"] is not None)
        (worker,) = set(multiprocessing.active_children()) - before
        os.kill(worker.pid, signal.SIGKILL)
        answer = ended(client, job)
        assert (answer["state"], answer["error"]) == ("failed", say("job.died"))
        again = ended(client, start(client, episode=longest(place), max_changes=1)["job"])
        assert again["state"] == "finished"
    assert set(multiprocessing.active_children()) == before


def test_closing_ends_a_search_at_once(place: Any, settings: Any, client_of: Any) -> None:
    before = set(multiprocessing.active_children())
    with client_of(create_app(settings)) as client:
        jobs = [start(client, episode=longest(place), max_changes=8)["job"] for _ in range(3)]
        until(client, jobs[0], lambda answer: answer["state"] == "running")
    assert set(multiprocessing.active_children()) == before


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"locked": [99]}, "no step 99"),
        ({"locked": [0], "required": {"0": 3}}, "locked and has a required action"),
        ({"required": {"0": "no such treatment"}}, "no action"),
        ({"required": {"0": 25}}, "no action"),
        ({"max_jump": {"wine": 1}}, "no axis"),
        ({"pace": {"changes": 1, "within": "a while"}}, "must be a period"),
        ({"required": {"0": 1, "1": 2, "2": 3, "3": 4}}, "at least"),
    ],
)
def test_rules_that_cannot_be_kept(client: Any, place: Any, rules: Any, words: str) -> None:
    episode = place.cohort.ids[0]
    answer = client.post("/api/jobs", json={"episode": episode, "max_changes": 1, "constraints": rules})
    assert answer.status_code == 422
    assert words in "".join(answer.json()["error"].values())


@pytest.mark.parametrize(
    "body",
    [
        {"max_changes": -1},
        {"max_changes": 2.5},
        {"max_changes": None},
        {"constraints": {"loked": [1]}},
        {"constraints": {"locked": [-1]}},
        {"constraints": {"forbidden": {"sometimes": [1]}}},
        {"constraints": {"required": {"1": 1.5}}},
        {"constraints": {"max_jump": -1}},
        {"constraints": []},
        {"alternatives": 0},
        {"alternatives": 21},
        {"seconds": 0},
        {"seconds": 1e9},
    ],
)
def test_requests_that_do_not_fit(client: Any, place: Any, body: Any) -> None:
    answer = client.post("/api/jobs", json={"episode": place.cohort.ids[0], "max_changes": 1} | body)
    assert answer.status_code == 422


def test_unknown_jobs(client: Any) -> None:
    for method, path in (("GET", "/api/jobs/AAAAAAAAAAAAAAAA"), ("POST", "/api/jobs/AAAAAAAAAAAAAAAA/stop")):
        assert client.request(method, path).status_code == 404
    assert client.get("/api/jobs/..%2f..%2fx").status_code in (404, 422)


@pytest.fixture
def work(place: Any) -> Work:
    return Work(place.cohort[0], ifonly.Query(ifonly.minus("SOFA"), 1, limits=ifonly.Limits(seconds=10.0)))


@pytest.fixture
def setup(place: Any) -> Setup:
    fingerprint = ifonly.load_model(place.model).fingerprint()
    return Setup(place.model, fingerprint)


def test_too_many_jobs_are_refused(setup: Setup, work: Work) -> None:
    desk = JobDesk(setup, JobLimits(waiting=3, per_client=2))  # never opened: all of them wait
    first = desk.submit("ann", work)
    desk.submit("ann", work)
    with pytest.raises(RefusalError, match="You have too many") as caught:
        desk.submit("ann", work)
    assert caught.value.status == 429
    assert "Retry-After" in caught.value.headers
    desk.submit("bob", work)
    with pytest.raises(RefusalError, match="Too many searches are waiting"):
        desk.submit("eve", work)
    assert desk.stop(first.job).state == "stopped"
    assert desk.submit("ann", work).state == "waiting"


def test_jobs_that_ended_are_forgotten_some_time(setup: Setup, work: Work) -> None:
    desk = JobDesk(setup, JobLimits(waiting=100, per_client=100, kept=3))
    jobs = [desk.submit("ann", work).job for _ in range(6)]
    for job in jobs[:5]:
        desk.stop(job)
    for job in jobs[:2]:
        with pytest.raises(RefusalError, match="no such search"):
            desk.look(job)
    assert [desk.look(job).state for job in jobs[2:]] == ["stopped"] * 3 + ["waiting"]
    brief = JobDesk(setup, JobLimits(seconds_kept=0.0))
    job = brief.submit("ann", work).job
    brief.stop(job)
    time.sleep(0.01)
    with pytest.raises(RefusalError, match="no such search"):
        brief.look(job)


def long_work(work: Work, place: Any) -> Work:
    query = replace(work.query, max_changes=8, limits=ifonly.Limits(seconds=60.0))
    return Work(place.cohort[longest(place)], query)


def wait_for(desk: JobDesk, job: str) -> JobAnswer:
    end = time.monotonic() + 60
    while (answer := desk.look(job)).state in ("waiting", "running") and time.monotonic() < end:
        time.sleep(0.02)
    return answer


class OneOrder:
    """A server, as its worker sees it, that gives one order and then waits for good."""

    def __init__(self, order: Order) -> None:
        self._orders, self.heard = [order], []

    def recv(self) -> Order:
        if self._orders:
            return self._orders.pop()
        threading.Event().wait()
        raise AssertionError("never")

    def send(self, news: News) -> None:
        self.heard.append(news)
        if news.ended is not None:
            raise EOFError


def test_a_model_that_changed_is_noticed(setup: Setup, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.nice", lambda _: 0)  # this process is no worker
    server: Any = OneOrder(Order("job", work))
    with pytest.raises(EOFError):
        work_for(server, replace(setup, fingerprint="another"))
    (news,) = server.heard
    assert (news.job, news.ended) == ("job", "failed")
    assert "changed since the server was started" in news.error


def test_a_search_that_never_ends_is_given_up(
    setup: Setup, work: Work, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ifonly.web.jobs.GRACE", -1e6)  # its time is over as soon as it begins
    desk = JobDesk(setup, JobLimits(workers=1))
    desk.open()
    try:
        long = long_work(work, place)
        answer = wait_for(desk, desk.submit("ann", long).job)
        assert (answer.state, answer.error) == ("failed", say("job.silent"))
    finally:
        desk.close()


def test_to_stop_again_gives_no_more_time(setup: Setup, work: Work) -> None:
    desk = JobDesk(setup)  # never opened: nobody listens
    id = desk.submit("ann", work).job
    job = desk._jobs[id]
    job.state = "running"
    desk.stop(id)
    until = job.deadline
    assert until is not None
    desk.stop(id)
    assert job.deadline == until


@long
def test_stopped_while_its_worker_is_replaced(
    setup: Setup, work: Work, place: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = long_work(work, place)
    desk = JobDesk(setup, JobLimits(workers=1))
    begin = _Worker.begin

    def stopped_and_replaced(worker: _Worker) -> None:
        for job in [job for job in desk._jobs.values() if job.state == "running"]:
            desk.stop(job.id)
            worker.end()
        begin(worker)

    monkeypatch.setattr(_Worker, "begin", stopped_and_replaced)
    desk.open()
    try:
        answer = wait_for(desk, desk.submit("ann", long).job)
        assert (answer.state, answer.error) == ("stopped", None)
        assert answer.case is not None
        assert answer.case.answer is not None
        assert answer.case.answer.result.status == "interrupted"
    finally:
        desk.close()


@long
def test_a_worker_that_cannot_be_started_at_first(setup: Setup, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, failures = _Worker.begin, [OSError("no memory"), OSError("no memory")]

    def begin_later(worker: _Worker) -> None:
        if failures:
            raise failures.pop()
        begin(worker)

    monkeypatch.setattr(_Worker, "begin", begin_later)
    desk = JobDesk(setup, JobLimits(workers=1))
    desk.open()
    try:
        failed = wait_for(desk, desk.submit("ann", work).job)
        assert failed.state == "failed"
        assert "OSError" in failed.error
        assert "memory" not in failed.error
        assert wait_for(desk, desk.submit("ann", work).job).state == "finished"
    finally:
        desk.close()


def test_a_worker_that_does_not_read_can_be_ended(setup: Setup, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = _Worker.begin

    def begin_asleep(worker: _Worker) -> None:
        begin(worker)
        os.kill(worker._process.pid, signal.SIGSTOP)

    monkeypatch.setattr(_Worker, "begin", begin_asleep)
    desk = JobDesk(setup, JobLimits(workers=1))
    desk.open()
    large: Any = "x" * 5_000_000  # more than a pipe holds
    job = desk.submit("ann", replace(work, query=replace(work.query, reward=ifonly.minus(large)))).job
    while desk.look(job).state == "waiting":
        time.sleep(0.02)
    time.sleep(0.2)  # until the order is stuck

    def end() -> None:
        desk.stop(job)
        desk.close()

    closing = threading.Thread(target=end, daemon=True)
    closing.start()
    closing.join(20)
    if is_stuck := closing.is_alive():
        desk._workers[0]._process.kill()
    assert not is_stuck
    assert desk.look(job).state == "failed"
