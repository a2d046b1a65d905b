"""How a cohort run is done: what is asked beside reward and budget, and who does the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ifonly.constraints import Constraints
from ifonly.data.cohort import Cohort
from ifonly.data.records import repeated
from ifonly.errors import InputError
from ifonly.evidence import Examination
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.files import available_cores
from ifonly.search.base import Limits, Solver


@dataclass(frozen=True)
class RunSettings:
    """Settings of `solve_cohort`. Answers depend on all but the last five; `seconds` in limits depend on the machine.

    >>> RunSettings(limits=Limits(nodes=10_000), episodes=["patient-00001"]).device
    'cpu'
    """

    solver: Solver | None = None
    """`BranchAndBound()` unless another is given."""
    limits: Limits | None = None
    """For each episode."""
    constraints: Constraints | None = None
    change_cost: float = 0.0
    objective: str | float | None = None
    """Of a model that is an ensemble, what counts of the outcomes under its refits: "mean", "worst", or the level of a
    lower quantile. None: its centre is asked.
    """
    behaviour: BehaviourModel | None = None
    """What clinicians do: with it, rows tell how far the data support each answer."""
    min_support: float | None = None
    """How likely every change must be by `behaviour`, at the state then reached."""
    each_refit: bool = False
    """Whether every refit of an ensemble is solved, too, to see how many would change the same steps."""
    sensitivity: bool = False
    """Whether rows tell how large an unrecorded influence would undo the gain."""
    episodes: Sequence[str] | None = None
    """Ids of the episodes to solve; None stands for all of the cohort."""
    allow_failed_model: bool = False
    """Whether a model may be asked that failed its check; the run says so."""
    workers: int | None = None
    """Processes on this machine; None stands for one per core, 1 for this process."""
    device: str = "cpu"
    """Anything but the processor ("cuda") solves many episodes at once, in this process."""
    chunk: int | None = None
    """Episodes handed to a worker at a time; None leaves it to ifonly."""
    sources: Mapping[str, str | Path] = field(default_factory=dict)
    """Where "episodes", "model", "behaviour" lie, noted for whoever looks at the run later; no part of the question."""

    def __post_init__(self) -> None:
        _require(self.solver, Solver, "solver", "a solver with its settings, such as BranchAndBound()")
        _require(self.limits, Limits, "limits", "Limits(...)")
        _require(self.constraints, Constraints, "constraints", "Constraints(...)")
        _require(self.behaviour, BehaviourModel, "behaviour", "what fit_behaviour or load_behaviour gave")
        if self.min_support is not None and self.behaviour is None:
            raise InputError(f"run settings: min_support={self.min_support!r} needs a behaviour model to judge by.")
        for name in ("workers", "chunk"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise InputError(f"run settings: {name}={value!r}: must be a whole number of at least 1, or None.")
        if isinstance(self.episodes, str):
            raise InputError(f"run settings: episodes={self.episodes!r}: must be a list of ids.")
        _check_device(self.device)

    @property
    def examination(self) -> Examination:
        """What is asked about how far to trust every answer."""
        return Examination(self.behaviour, self.each_refit, self.sensitivity)

    @property
    def worker_count(self) -> int:
        """Processes to work with, as asked for or as there are cores."""
        return self.workers or available_cores()

    def select(self, cohort: Cohort) -> Cohort:
        """The episodes to solve, in the cohort's order."""
        if self.episodes is None:
            return cohort
        if twice := repeated(list(self.episodes)):
            raise InputError(f"run settings: episodes name {twice[0]!r} more than once.")
        return cohort.select(sorted(self.episodes, key=cohort.position))


def _require(value: Any, kind: type, name: str, example: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise InputError(f"run settings: {name}={value!r}: pass {example}, or None.")


def _check_device(name: str) -> None:
    try:
        torch.empty(0, device=torch.device(name))
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"run settings: device {name!r} cannot be used here ({reason}); 'cpu' always can.") from None
