from collections.abc import Callable
from pathlib import Path

import pytest
from small_experiments import TINY

from ifonly.episodes.store import save_cohort
from ifonly.experiments.laboratory import Laboratory
from ifonly.experiments.runner import Bench
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
def make_bench(laboratory: Laboratory) -> Callable[..., Bench]:
    """A bench on the folder of this test; each is like another run of the command."""
    return lambda **changes: Bench(laboratory, **changes)


@pytest.fixture(scope="session")
def common_laboratory(tmp_path_factory: pytest.TempPathFactory, stays: Path) -> Laboratory:
    """One folder for all experiments, as `ifonly reproduce all` has it."""
    return Laboratory(tmp_path_factory.mktemp("common") / "runs", TINY, stays)
