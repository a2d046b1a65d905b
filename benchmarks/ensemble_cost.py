"""What an ensemble costs, as ratios inside one run: training it, against one fit.

    python benchmarks/ensemble_cost.py              # 20 members, 2,000 episodes of 10 to 20 steps, 4 epochs, 5 rounds
    python benchmarks/ensemble_cost.py --quick      # the same with little of everything, to see it work

Every round fits once and trains the ensemble once, one after the other, so that what else the machine does touches
both; where it is busy only now and then the fastest of each is the fairest figure. The single fit uses one thread, as
it does by default (batches this small gain nothing from more); the ensemble one per core, as by default. Twenty members
come with a centre: twenty-one models are trained.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from ifonly import LocationScale
from ifonly.episodes import Cohort
from ifonly.models.fit import FitSettings, fit
from ifonly.models.fit_ensemble import fit_ensemble
from ifonly.simulate import simulate_cohort


@dataclass(frozen=True)
class Timing:
    """Seconds of one piece of work: by the clock, and of processors."""

    wall: float
    processor: float

    @classmethod
    def of(cls, work: Callable[[], object]) -> "Timing":
        """Do it and take the time."""
        wall, processor = time.perf_counter(), time.process_time()
        work()
        return cls(time.perf_counter() - wall, time.process_time() - processor)


def training(cohort: Cohort, *, members: int, hidden: int, epochs: int, threads: int, rounds: int) -> None:
    """Print how long one fit and one ensemble take, and their ratio."""
    model = LocationScale(cohort.schema, hidden=(hidden,), lipschitz=(1.0, 0.1))
    together = FitSettings(epochs=epochs, threads=threads)
    # What PyTorch loads and prepares on first use belongs to neither.
    fit(model, cohort, epochs=1)
    fit_ensemble(model, cohort, members=1, epochs=1)
    singles, wholes = [], []
    for number in range(rounds):
        singles.append(Timing.of(lambda: fit(model, cohort, epochs=epochs)))
        wholes.append(Timing.of(lambda: fit_ensemble(model, cohort, members=members, settings=together)))
        single, whole = singles[-1], wholes[-1]
        print(
            f"round {number + 1}: one fit {single.wall:6.2f} s ({single.processor:.2f} processor), "
            f"ensemble of {members} {whole.wall:6.2f} s ({whole.processor:.2f} processor): "
            f"{whole.wall / single.wall:.2f} times"
        )
    pairs = list(zip(wholes, singles, strict=True))
    fastest = min(whole.wall for whole in wholes) / min(single.wall for single in singles)
    median = statistics.median(whole.wall / single.wall for whole, single in pairs)
    processor = statistics.median(whole.processor / single.processor for whole, single in pairs)
    print(
        f"training, {threads} threads, {epochs} epochs, {rounds} rounds: "
        f"{median:.2f} times one fit (median), {fastest:.2f} (fastest of each), {processor:.2f} its processor time"
    )


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of the ensemble")
    parser.add_argument("--quick", action="store_true", help="little of everything")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.episodes, chosen.members, chosen.hidden, chosen.epochs, chosen.rounds = 30, 2, 8, 1, 1
    cohort = simulate_cohort(chosen.episodes, seed=0)
    training(
        cohort,
        members=chosen.members,
        hidden=chosen.hidden,
        epochs=chosen.epochs,
        threads=chosen.threads,
        rounds=chosen.rounds,
    )


if __name__ == "__main__":
    main()
