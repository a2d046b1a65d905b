"""Hypothesis tries the same examples everywhere, and takes the time it needs; fewer examples in the ordinary run."""

import pytest
from effort import some, thinned
from hypothesis import settings
from unpainted_figures import leave_unpainted

settings.register_profile("ifonly", deadline=None, derandomize=True, max_examples=some(100))
settings.load_profile("ifonly")


@pytest.fixture
def unpainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but painted into no file, which takes longest: for tests of everything else."""
    leave_unpainted(monkeypatch)


collect_ignore = ["conftest.py"]  # has no examples; as a module its name is that of the other files like it


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the ordinary run does not try, unless tests are named one by one."""
    if any("::" in argument for argument in config.args):
        return
    left_out = thinned(items)
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]
