"""Handing out chunks: whoever works, in whatever order, and whoever dies, every episode gets its one answer."""

import json
import random
import sys
from collections import Counter
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import HERE, REWARD, cohort_with, small_cohort, small_model, solve_small, without_seconds

import ifonly
from ifonly.errors import IfonlyError, InputError
from ifonly.query import Query
from ifonly.rewards import Custom
from ifonly.runs import RunSettings, load_run, parcels, solve_cohort
from ifonly.runs.clusters import dask_client
from ifonly.runs.dispatch import MOST_DEATHS, Dispatch, Staff, chunks_of
from ifonly.runs.task import Task
from ifonly.runs.workers import LocalWorkers, ThisProcess

COHORT = small_cohort(9)
MODEL = small_model(COHORT).for_search()
TASK = Task(MODEL, Query(REWARD, 1), ifonly.Greedy())


class Frail(Executor):
    """Works in this process; a worker dies over certain positions, so many times, or says something unexpected."""

    def __init__(self, deadly: dict[int, int], error: type[Exception] = BrokenProcessPool) -> None:
        self.deadly, self.error = dict(deadly), error
        self.calls: list[tuple[list[int], bool]] = []

    def submit(self, fn, /, *args, **kwargs):
        _, content, episodes, *_ = args
        positions = [position for position, _ in episodes]
        self.calls.append((positions, content is not None))
        future: Future = Future()
        dying = [position for position in positions if self.deadly.get(position, 0) > 0]
        if dying:
            for position in dying:
                self.deadly[position] -= 1
            future.set_exception(self.error("gone"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker process that is new."""
    monkeypatch.setattr(parcels, "_kept", {})


def answers_of(executor: Executor, size: int, most_running: int = 3) -> dict[int, dict]:
    dispatch = Dispatch(TASK, COHORT, Staff(executor, most_running, size))
    found = [answer for part in dispatch.answers(range(9)) for answer in part]
    assert sorted(answer.position for answer in found) == list(range(9)), "one answer each"
    return {answer.position: json.loads(answer.line) | {"stats": None} for answer in found}


@pytest.fixture(scope="module")
def expected() -> dict[int, dict]:
    return answers_of(ThisProcess(), 1)


@given(size=st.integers(1, 10))
def test_chunks_hold_everyone_once_and_one_horizon_each(size: int) -> None:
    chunks = chunks_of([8, 1, 5, 3, 0], COHORT, size)
    assert sorted(position for chunk in chunks for position in chunk.positions) == [0, 1, 3, 5, 8]
    horizons = [{int(COHORT.lengths[position]) for position in chunk.positions} for chunk in chunks]
    assert all(len(same) == 1 for same in horizons)
    assert all(len(chunk.positions) <= size for chunk in chunks)
    flat = [same.pop() for same in horizons]
    assert flat == sorted(flat, reverse=True)


@pytest.mark.parametrize("size", [1, 2, 4, 100])
def test_answers_depend_neither_on_chunks_nor_on_workers(expected, size: int) -> None:
    assert answers_of(ThisProcess(), size) == expected
    assert answers_of(Frail({}), size) == expected
    with ThreadPoolExecutor(3) as threads:
        assert answers_of(threads, size) == expected


@pytest.mark.parametrize("size", [1, 3])
def test_deaths_cost_nothing_but_time(expected, size: int) -> None:
    executor = Frail({0: 1, 4: MOST_DEATHS - 1, 7: 2})
    assert answers_of(executor, size) == expected


@pytest.mark.parametrize("size", [1, 3])
def test_an_episode_that_kills_every_worker_fails_alone(expected, size: int) -> None:
    executor = Frail({4: 99})
    found = answers_of(executor, size)
    assert found[4]["status"] == "failed"
    assert "3 processes died" in found[4]["reason"]["detail"]
    assert {**found, 4: None} == {**expected, 4: None}
    alone = [positions for positions, _ in executor.calls if positions == [4]]
    assert len(alone) == MOST_DEATHS


class FailsToStart(Frail, LocalWorkers):
    """Whose workers die while they start."""

    def never_began(self, call: Future) -> bool:
        return True


@pytest.mark.parametrize("size", [1, 3])
def test_workers_that_never_began_are_no_deaths_over_an_episode(expected, size: int) -> None:
    executor = FailsToStart({4: 2 * MOST_DEATHS})
    assert answers_of(executor, size) == expected
    blamed = [positions for positions, _ in executor.calls if 4 in positions]
    assert len({tuple(positions) for positions in blamed}) == 1, "taken apart to find who is to blame"


def test_the_model_travels_once_per_worker(expected) -> None:
    executor = Frail({})
    assert answers_of(executor, 1, most_running=1) == expected
    assert sum(sent for _, sent in executor.calls) == 1
    assert len(executor.calls) == 9 + 1


def test_a_worker_keeps_few_models() -> None:
    placed = [(0, COHORT[0])]
    for budget in range(6):
        parcel = parcels.pack(replace(TASK, query=Query(REWARD, budget)))
        assert parcels.solve_parcel(parcel.name, None, placed, ifonly.__version__, 0) is None
        assert parcels.solve_parcel(parcel.name, parcel.content, placed, ifonly.__version__, 1)
        assert parcels.solve_parcel(parcel.name, None, placed, ifonly.__version__, 2)
    assert len(parcels._kept) == parcels.MOST_KEPT


def test_a_worker_of_another_version_is_refused() -> None:
    with pytest.raises(IfonlyError, match=r"the run was begun by 0\.0\.0"):
        parcels.solve_parcel("name", None, [], "0.0.0", 0)


def test_an_executor_that_breaks_for_good_keeps_what_was_finished(tmp_path: Path) -> None:
    class Broken(Frail):
        def submit(self, fn, /, *args, **kwargs):
            if len(self.calls) >= 4:
                raise BrokenExecutor("for good")
            return super().submit(fn, *args, **kwargs)

    for executor, message in (
        (Broken({}), "takes no more work .BrokenExecutor: for good.*run the same again"),
        (Frail({2: 1}, ImportError), "a worker could not do its part .ImportError.*run the same again"),
    ):
        out = tmp_path / message[:4]
        with pytest.raises(IfonlyError, match=message):
            solve_small(COHORT, MODEL, out, RunSettings(chunk=1), executor=executor)
        assert not load_run(out).is_finished
        assert solve_small(COHORT, MODEL, out).counts == {"optimal": 9}


def test_few_chunks_are_in_flight(expected) -> None:
    class Slow(Executor):
        """Finishes what it was given at random, and only when it has as much as it may have."""

        def __init__(self) -> None:
            self.pending: list = []
            self.most = 0
            self.random = random.Random(0)

        def submit(self, fn, /, *args, **kwargs):
            future: Future = Future()
            self.pending.append((future, fn, args))
            self.most = max(self.most, len(self.pending))
            self.given = getattr(self, "given", 0) + 1
            if len(self.pending) == 3 or self.given >= 8:
                self.random.shuffle(self.pending)
                while self.pending:
                    done, call, arguments = self.pending.pop()
                    done.set_result(call(*arguments))
            return future

    executor = Slow()
    assert answers_of(executor, 1, most_running=3) == expected
    assert executor.most == 3


def test_what_cannot_be_sent_is_refused_and_can_be_solved_here(tmp_path: Path) -> None:
    class Closed:
        def __call__(self, states, actions):
            return -states[..., 0]

        def __reduce__(self):
            raise TypeError("cannot be sent")

    reward = Custom(Closed(), {COHORT.schema.dynamic[0].name: 1.0})
    with pytest.raises(InputError, match=r"cannot be sent to other processes.*workers=1"):
        solve_cohort(COHORT, MODEL, Query(reward, 1), out=tmp_path, settings=RunSettings(workers=2))
    assert solve_cohort(COHORT, MODEL, Query(reward, 1), out=tmp_path, settings=HERE).is_finished


def test_order_of_rows_is_that_of_the_cohort(tmp_path: Path) -> None:
    cohort = cohort_with(3, 5, 4)
    run = solve_small(cohort, small_model(cohort), tmp_path / "a", replace(HERE, chunk=1))
    lines = (run.folder / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["horizon"] for line in lines] == [5, 4, 3], "the longest come first"
    assert run.table()["horizon"].to_list() == [3, 5, 4]
    assert Counter(run.table()["status"]) == {"optimal": 3}
    assert without_seconds(load_run(run.folder)).equals(without_seconds(run))


def test_without_dask_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r"pip install 'ifonly\[dask\]'"), dask_client("tcp://localhost:8786"):
        pass
