"""The settings of a cohort run: which episodes, and who does the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ifonly.data.cohort import Cohort
from ifonly.data.plain import repeated
from ifonly.errors import InputError, SettingError
from ifonly.files import available_cores


@dataclass(frozen=True)
class RunSettings:
    """Which episodes a run is about, and who does the work; answers depend on the former only.

    >>> RunSettings(episodes=["patient-00001"]).device
    'cpu'
    """

    episodes: Sequence[str] | None = None
    """Ids of the episodes to solve; None: the whole cohort."""
    workers: int | None = None
    """Processes on this machine; None: one per core; 1: this process."""
    device: str = "cpu"
    """Any device but the CPU, such as "cuda", solves many episodes at once, in this process."""
    chunk: int | None = None
    """Episodes handed to a worker at a time; None: chosen by ifonly."""
    sources: Mapping[str, str | Path] = field(default_factory=dict)
    """Paths of "episodes", "model" and "behaviour", kept for reports about the run; not part of the query."""

    def __post_init__(self) -> None:
        for name in ("workers", "chunk"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise SettingError(name, value, "must be a whole number of at least 1, or None.")
        if isinstance(self.episodes, str):
            raise SettingError("episodes", self.episodes, "must be a list of ids.")
        _check_device(self.device)

    @property
    def worker_count(self) -> int:
        """The number of processes: as asked for, or one per core."""
        return self.workers or available_cores()

    def select(self, cohort: Cohort) -> Cohort:
        """The episodes to solve, in the cohort's order."""
        if self.episodes is None:
            return cohort
        if twice := repeated(list(self.episodes)):
            raise InputError(f"run settings: episodes name {twice[0]!r} more than once.")
        return cohort.select(sorted(self.episodes, key=cohort.position))


def _check_device(name: str) -> None:
    try:
        torch.empty(0, device=torch.device(name))
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise SettingError("device", name, f"cannot be used here ({reason}); 'cpu' always can.") from None
