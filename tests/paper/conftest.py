from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from paper.laboratory import Laboratory
from paper.runner import Bench
from small_experiments import TINY

from ifonly.data.store import save_cohort
from ifonly.simulate import simulate_cohort


@pytest.fixture(scope="session")
def stays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 stays of 4 steps, not to be altered."""
    folder = tmp_path_factory.mktemp("stays") / "cohort"
    save_cohort(simulate_cohort(12, seed=5, horizon=4), folder)
    return folder


@pytest.fixture
def laboratory(tmp_path: Path, stays: Path) -> Laboratory:
    return Laboratory(tmp_path / "runs", TINY, stays)


@pytest.fixture
def make_bench(laboratory: Laboratory) -> Iterator[Callable[..., Bench]]:
    """A bench on the folder of this test; each is like another run of the command, after the one before ended."""
    with ExitStack() as open_benches:

        def make(**changes: object) -> Bench:
            open_benches.close()
            return open_benches.enter_context(Bench(laboratory, **changes))  # type: ignore[arg-type]

        yield make


@pytest.fixture(scope="session")
def common_laboratory(tmp_path_factory: pytest.TempPathFactory, stays: Path) -> Laboratory:
    """One folder for all experiments, as `ifonly reproduce all` has it."""
    return Laboratory(tmp_path_factory.mktemp("common") / "runs", TINY, stays)
