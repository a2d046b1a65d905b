"""Problems whose logs can be checked, and their logs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from trials import drawn_problem

from ifonly.bounds.taylor import can_expand
from ifonly.problem import Problem
from ifonly.proofs.question import digest
from ifonly.result import Result
from ifonly.search.branch_and_bound import BranchAndBound
from ifonly.search.solve import solve


def loggable(count: int, start: int = 0) -> Iterator[tuple[int, Problem]]:
    """Seeds and random problems of every kind that a log can hold."""
    seed = start
    while count:
        problem = drawn_problem(seed)
        seed += 1
        if not isinstance(problem, Problem) or problem.model.kind in ("monotone-flow", "post-nonlinear"):
            continue
        if problem.reward.to_dict()["kind"] != "custom":
            count -= 1
            yield seed - 1, problem


def log_of(problem: Problem, path: Path, seed: int = 0) -> Result:
    """Solve a problem and log it, led by expansions where there are any and the seed is even."""
    bound = "taylor" if seed % 2 == 0 and can_expand(problem) else "none"
    return solve(problem, BranchAndBound(bound=bound, batch=1 + seed % 5), proof=path)


@dataclass
class Log:
    """The content of a file, to be altered."""

    header: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @classmethod
    def read(cls, path: Path) -> "Log":
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        return cls(json.loads(bytes(arrays.pop("header"))), arrays)

    def write(self, path: Path, *, signed: bool) -> None:
        """With a new checksum, as a forger would, or with the old one, as damage leaves it."""
        header = self.header | ({"sha256": digest(self.header, self.arrays)} if signed else {})
        content = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        with path.open("wb") as file:
            np.savez(file, header=content, **self.arrays)
