"""How long fitting takes, with and without Lipschitz limits, side by side.

    python benchmarks/fit_speed.py              # the whole fit: 2,000 episodes, 100 epochs
    python benchmarks/fit_speed.py --epochs 3   # a few epochs, projected to 100

Prints milliseconds per optimiser step and seconds per 100 epochs, as wall and processor time. The processor time is the
one to compare on a busy machine.
"""

import argparse
import math
import time
from dataclasses import dataclass

from ifonly import LocationScale
from ifonly.data import Cohort
from ifonly.models.fit import FitSettings, fit
from ifonly.simulate import simulate_cohort

EPOCHS = 100
LIMITS: dict[str, tuple[float, float] | None] = {"unconstrained": None, "limits (1.0, 0.1)": (1.0, 0.1)}


@dataclass(frozen=True)
class Timing:
    """Seconds of one fit."""

    wall: float
    processor: float
    steps: int
    epochs: int

    def __str__(self) -> str:
        factor = EPOCHS / self.epochs
        kind = "measured" if self.epochs == EPOCHS else "projected"
        return (
            f"{1e3 * self.wall / self.steps:6.2f} ms per step ({1e3 * self.processor / self.steps:.2f} processor), "
            f"{factor * self.wall:6.1f} s per {EPOCHS} epochs ({factor * self.processor:.1f} processor), {kind}"
        )


def measure(cohort: Cohort, limits: tuple[float, float] | None, settings: FitSettings) -> Timing:
    """Time one fit of two networks of 200 tanh units and a full noise covariance."""
    wall, processor = time.perf_counter(), time.process_time()
    model = fit(LocationScale(cohort.schema, lipschitz=limits), cohort, settings=settings)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    assert model.fit_report is not None
    steps = settings.epochs * math.ceil(model.fit_report.training.transitions / settings.batch_size)
    print(model.fit_report)
    return Timing(wall, processor, steps, settings.epochs)


def main() -> None:
    """Run both fits and print their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    cohort = simulate_cohort(arguments.episodes, seed=0)
    settings = FitSettings(epochs=arguments.epochs, threads=arguments.threads, device=arguments.device)
    # What PyTorch loads and prepares on first use belongs to no fit in particular.
    fit(LocationScale(cohort.schema, hidden=(8,), lipschitz=(1.0, 0.1)), cohort, epochs=1)
    timings = {name: measure(cohort, limits, settings) for name, limits in LIMITS.items()}
    print()
    for name, timing in timings.items():
        print(f"{name:<20} {timing}")
    free, limited = timings.values()
    print(f"{'ratio':<20} {limited.wall / free.wall:6.2f} ({limited.processor / free.processor:.2f} processor)")


if __name__ == "__main__":
    main()
