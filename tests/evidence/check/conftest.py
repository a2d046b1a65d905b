"""Checks of right and wrong models of known worlds, each made once."""

from collections.abc import Callable
from functools import cache

import made_worlds as worlds
import pytest

from ifonly.evidence.check.check import check_model
from ifonly.evidence.check.model_check import ModelCheck


@pytest.fixture(scope="session")
def checked() -> Callable[[str], ModelCheck]:
    """The check of a scenario."""

    @cache
    def make(name: str) -> ModelCheck:
        return check_model(*worlds.SCENARIOS[name]())

    return make
