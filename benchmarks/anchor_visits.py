"""How many nodes A* would visit with each anchor strategy, where running it to its end takes too long.

Textbook A* visits the nodes whose bound exceeds the optimum, which branch and bound finds. How many prefixes there are
of each length with each number of changes is known; the share of them whose bound exceeds the optimum is estimated from
a sample, and counted where the sample is the whole.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import clone  # noqa: F401
import torch
from paper.asking import Question
from paper.bench import read_header
from paper.laboratory import Conditions, Laboratory
from paper.solves import choose_points, facility_anchors, points_file

from ifonly import MonteCarlo, Problem, solve
from ifonly.bounds.anchors import AnchorStrategy
from ifonly.bounds.lipschitz import AnchorBound, value_constants
from ifonly.result.parts import effective_branching_factor


@dataclass(frozen=True)
class Visits:
    """An estimate for one patient and one strategy."""

    episode: str
    strategy: str
    anchors: int
    nodes: int
    """All there are."""
    visited: float
    standard_error: float
    branching_factor: float | None


@torch.no_grad()
def estimate_visits(problem: Problem, bound: AnchorBound, optimum: float, samples: int, seed: int) -> tuple[float, ...]:
    """Nodes visited, the standard error of that, and how many nodes there are."""
    generator = torch.Generator().manual_seed(seed)
    visited, variance, nodes = 2.0, 0.0, 0  # the node at the last step, and the goal
    for step in range(problem.horizon - 1):
        for changes in range(min(step, problem.max_changes) + 1):
            size = math.comb(step, changes) * (problem.action_count - 1) ** changes
            count = samples if changes else 1
            sequences = _prefixes(problem, step, changes, count, generator)
            share = float(
                (_keys(problem, bound, step, changes, sequences) > optimum + problem.tolerance).double().mean()
            )
            visited += size * share
            variance += size**2 * share * (1 - share) / count
            nodes += size
    return visited, variance**0.5, nodes


def _prefixes(problem: Problem, step: int, changes: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """Sequences [count, T] with so many changes before `step`, drawn uniformly; every action must be allowed."""
    order = torch.rand(count, problem.horizon, generator=generator)
    order[:, step:] = -1
    places = order.argsort(1, descending=True)[:, :changes]
    sequences = problem.observed_actions.cpu().repeat(count, 1)
    shifts = torch.randint(1, problem.action_count, (count, changes), generator=generator)
    changed = (sequences.gather(1, places) + shifts) % problem.action_count
    return sequences.scatter(1, places, changed).to(problem.device)


def _keys(problem: Problem, bound: AnchorBound, step: int, changes: int, sequences: torch.Tensor) -> torch.Tensor:
    """What A* orders these nodes by [N]: earned before `step`, and the bound on the rest."""
    states, _ = problem.rollout(sequences)
    earned = torch.zeros(len(sequences), dtype=torch.float64, device=problem.device)
    for t in range(step):
        earned += problem.rewards(t, states[:, t], sequences[:, t])
    return earned + bound(step, states[:, step], torch.full((len(sequences),), changes, device=problem.device))


def _strategy(laboratory: Laboratory, name: str, size: int, device: str) -> AnchorStrategy:
    if name != "facility":
        return MonteCarlo(samples=None, size=size, weighting=name)  # type: ignore[arg-type]
    if not points_file(laboratory, laboratory.standard, size).exists():
        choose_points(laboratory, laboratory.standard, size, device)
    return facility_anchors(laboratory, laboratory.standard, size=size, of=size)


def main() -> None:
    """Print a line per patient and strategy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="made by `python -m paper reproduce fig4 --out FOLDER`")
    parser.add_argument("--strategies", default="lipschitz,uniform,facility")
    parser.add_argument("--size", type=int, default=10_000, help="anchors")
    parser.add_argument("--patients", type=int, default=12)
    parser.add_argument("--changes", type=int, default=3)
    parser.add_argument("--samples", type=int, default=1000, help="nodes per step and number of changes")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    laboratory = Laboratory(options.folder, Conditions.of_header(read_header(options.folder)), None, None)
    model = laboratory.load_model(laboratory.standard, options.device)
    for episode in laboratory.patients(options.patients):
        question = Question(options.changes, laboratory.reward, options.device)
        problem = question.problem(laboratory.cohort()[episode], model)
        optimum = solve(problem).outcome
        for name in options.strategies.split(","):
            with torch.no_grad():
                constants = value_constants(problem)
                strategy = _strategy(laboratory, name, options.size, options.device)
                anchors = strategy.choose(problem, constants, torch.Generator().manual_seed(0))
                bound = AnchorBound(problem, anchors, constants)
            visited, error, nodes = estimate_visits(problem, bound, optimum, options.samples, seed=0)
            factor = effective_branching_factor(round(visited), problem.horizon)
            print(
                json.dumps(asdict(Visits(episode, name, options.size, int(nodes), visited, error, factor))), flush=True
            )


if __name__ == "__main__":
    main()
