from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from paper.bench import Bench
from paper.commands import app
from paper.laboratory import Laboratory
from small_experiments import TINY
from typer.testing import CliRunner, Result

from ifonly import LocationScale, fit, save_cohort, save_model
from ifonly.simulate import simulate_cohort

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a command line in this process; bugs show their traceback instead of exit code 1."""

    def invoke(*args: object) -> Result:
        return CliRunner().invoke(app, [str(arg) for arg in args], catch_exceptions=False, prog_name="python -m paper")

    return invoke


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 patients with 6 steps each and a model fitted to them, not to be altered."""
    folder = tmp_path_factory.mktemp("workplace")
    cohort = simulate_cohort(40, seed=3, horizon=6)
    save_cohort(cohort, folder / "cohort")
    save_model(fit(LocationScale(cohort.schema, hidden=(16,)), cohort, epochs=2), folder / "model")
    return folder


@pytest.fixture(scope="session")
def cohort_folder(workplace: Path) -> Path:
    return workplace / "cohort"


@pytest.fixture(scope="session")
def model_folder(workplace: Path) -> Path:
    return workplace / "model"


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
    """One folder for all experiments, as `python -m paper reproduce all` has it."""
    return Laboratory(tmp_path_factory.mktemp("common") / "runs", TINY, stays)
