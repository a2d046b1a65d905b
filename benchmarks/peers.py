"""The same counterfactual - one recorded episode, one other action - by this package and by others, timed in one run.

    python benchmarks/peers.py                          # DoWhy and causalflows where they are installed
    python benchmarks/peers.py --steps 20 --features 4  # another size

Needs dowhy 0.14 and causalflows 0.1.0 in the environment; what is missing is left out, and said. The world is linear
and the same for all, written down rather than learned: DoWhy gets its equations as mechanisms of an unrolled graph,
and must give the same values. A causal normalizing flow is another model; its weights, and so its values, do not
matter here, only the time. Times are of the processor, medians of a few calls, after one that warms up.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from math import comb
from typing import Any

import numpy as np
import torch

import ifonly

ACTIONS = ifonly.ActionSpace.product(
    ifonly.Axis("first", "mg", (0, 1, 2, 3, 4)), ifonly.Axis("second", "mL", (0, 1, 2, 3, 4))
)
BATCH, REPEATS = 1000, 5
AGREEMENT = 1e-8


@dataclass(frozen=True)
class World:
    """A linear world, and an episode recorded in it."""

    matrix: np.ndarray
    effects: np.ndarray  # [D, 2]
    model: ifonly.LinearModel
    episode: ifonly.Episode

    @classmethod
    def drawn(cls, features: int, steps: int, seed: int) -> World:
        """A stable world, drawn by the seed."""
        random = np.random.default_rng(seed)
        schema = ifonly.Schema(tuple(ifonly.Feature(f"x{n}", "dynamic") for n in range(features)), ACTIONS)
        matrix = random.normal(size=(features, features))
        matrix *= 0.9 / np.abs(np.linalg.eigvals(matrix)).max()
        effects = random.normal(size=(features, 2)) / 4
        vectors = np.array(ACTIONS.vectors)
        model = ifonly.LinearModel(
            schema, np.broadcast_to(matrix, (len(ACTIONS), features, features)).copy(), offsets=vectors @ effects.T
        )
        actions = random.integers(len(ACTIONS), size=steps)
        states = [random.normal(size=features)]
        for action in actions[:-1]:
            states.append(matrix @ states[-1] + effects @ vectors[action] + random.normal(size=features))
        return cls(matrix, effects, model, ifonly.Episode("case", schema, np.array(states), actions))


def processor_ms(work: Callable[[], Any]) -> float:
    """Milliseconds of the processor for one call."""
    work()
    times = []
    for _ in range(REPEATS):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return 1e3 * statistics.median(times)


def ours(world: World, step: int, action: int) -> tuple[np.ndarray, dict[str, float]]:
    """The counterfactual course, and milliseconds: with abduction, of a replay in a batch, and of a whole search."""
    query = ifonly.Query(ifonly.minus("x0"), max_changes=2)

    def asked() -> torch.Tensor:
        problem = ifonly.Problem.from_episode(world.episode, world.model, query)
        sequence = torch.as_tensor(np.array(world.episode.actions)).clone()
        sequence[step] = action
        return problem.replay(sequence[None])[0]

    problem = ifonly.Problem.from_episode(world.episode, world.model, query)
    many = torch.randint(len(ACTIONS), (BATCH, len(world.episode.actions)), generator=torch.Generator().manual_seed(0))
    times = {
        "one": processor_ms(asked),
        "batch": processor_ms(lambda: problem.replay(many)) / BATCH,
        "search": processor_ms(lambda: ifonly.solve(problem)),
    }
    assert ifonly.solve(problem).proven
    return asked()[0].numpy(), times


def unrolled(world: World) -> tuple[list[tuple[str, str]], dict[str, float]]:
    """The edges of the graph over all steps, and the values that were recorded."""
    steps, features = world.episode.states.shape
    states = [[f"x{t}_{n}" for n in range(features)] for t in range(steps)]
    doses = [[f"a{t}_{n}" for n in range(2)] for t in range(steps - 1)]
    edges = [
        (cause, effect)
        for (before, after), given in zip(pairwise(states), doses, strict=True)
        for effect in after
        for cause in (*before, *given)
    ]
    vectors = np.array(ACTIONS.vectors)[world.episode.actions]
    values = {name: world.episode.states[t, n] for t, row in enumerate(states) for n, name in enumerate(row)}
    values |= {name: vectors[t, n] for t, row in enumerate(doses) for n, name in enumerate(row)}
    return edges, values


def dowhy(world: World, step: int, action: int) -> tuple[np.ndarray, float]:
    """The same course by DoWhy's structural causal models, and the milliseconds of a call."""
    import networkx as nx
    import pandas as pd
    from dowhy import gcm

    gcm.config.disable_progress_bars()
    edges, values = unrolled(world)
    graph = nx.DiGraph(edges)
    model = gcm.InvertibleStructuralCausalModel(graph)
    weights = np.concatenate([world.matrix, world.effects], axis=1)

    class Known(gcm.ml.PredictionModel):  # type: ignore[misc]
        """An equation of the world, which nothing has to be fitted to."""

        def __init__(self, row: np.ndarray) -> None:
            self.row = row

        def fit(self, X: np.ndarray, Y: np.ndarray) -> None:
            pass

        def predict(self, X: np.ndarray) -> np.ndarray:
            return (X @ self.row)[:, None]

        def clone(self) -> Known:
            return Known(self.row)

    places = {f"x{n}": n for n in range(len(world.matrix))} | {f"a{n}": len(world.matrix) + n for n in range(2)}
    for node in graph.nodes:
        causes = sorted(graph.predecessors(node))  # the order in which DoWhy hands them over
        if not causes:
            model.set_causal_mechanism(node, gcm.EmpiricalDistribution())
            continue
        order = [places[f"{cause[0]}{cause.split('_')[1]}"] for cause in causes]
        row = weights[int(node.split("_")[1]), order]
        model.set_causal_mechanism(node, gcm.AdditiveNoiseModel(Known(row)))
    recorded = pd.DataFrame([values])
    gcm.fit(model, pd.concat([recorded] * 4, ignore_index=True))
    vector = ACTIONS.vectors[action]
    changed = {f"a{step}_{n}": (lambda _, dose=dose: dose) for n, dose in enumerate(vector)}

    def asked() -> Any:
        return gcm.counterfactual_samples(model, changed, observed_data=recorded)

    found = asked().iloc[0]
    steps, features = world.episode.states.shape
    course = np.array([[found[f"x{t}_{n}"] for n in range(features)] for t in range(steps)])
    return course, processor_ms(asked)


def causal_flow(world: World, step: int, action: int) -> tuple[float, float]:
    """Milliseconds of a counterfactual by a causal normalizing flow: of one, and of one in a batch."""
    from causalflows.flows import CausalMAF

    edges, values = unrolled(world)
    names = list(values)
    adjacency = torch.eye(len(names), dtype=torch.bool)
    for cause, effect in edges:
        adjacency[names.index(effect), names.index(cause)] = True
    flow = CausalMAF(len(names), adjacency=adjacency, hidden_features=(64, 64))
    record = torch.tensor([list(values.values())], dtype=torch.float32)
    # One of the two doses: of several at once this release takes no batch.
    index, dose = names.index(f"a{step}_0"), ACTIONS.vectors[action][0]

    def asked(rows: int) -> Any:
        with torch.no_grad():
            return flow().compute_counterfactual(record.expand(rows, -1).clone(), index, dose)

    return processor_ms(lambda: asked(1)), processor_ms(lambda: asked(100)) / 100


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--features", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    world = World.drawn(given.features, given.steps, given.seed)
    step, action = given.steps // 3, 17
    course, times = ours(world, step, action)
    others = len(ACTIONS) - 1
    sequences = sum(comb(given.steps, k) * others**k for k in range(3))
    print(f"T = {given.steps}, D = {given.features}, A = {len(ACTIONS)}; milliseconds of the processor")
    print(
        f"ifonly, one counterfactual with its abduction: {times['one']:.3g}; replayed in a batch: {times['batch']:.3g}"
    )
    print(f"ifonly, best of all {sequences:,} sequences with at most two changes, proven: {times['search']:.3g}")
    if find_spec("dowhy") is None:
        print("dowhy is not installed: left out")
    else:
        same, alone = dowhy(world, step, action)
        distance = float(np.abs(same - course).max())
        assert distance < AGREEMENT, f"values differ by {distance}"
        print(f"DoWhy, one counterfactual: {alone:.3g}, {alone / times['one']:.3g} times as long; the same values")
    if find_spec("causalflows") is None:
        print("causalflows is not installed: left out")
    else:
        alone, batch = causal_flow(world, step, action)
        ratio = alone / times["one"]
        print(f"causalflows, one counterfactual: {alone:.3g}, {ratio:.3g} times as long; in a batch {batch:.3g}")


if __name__ == "__main__":
    main()
