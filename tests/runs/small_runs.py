"""A tiny cohort and tiny models for runs, some of which make trouble; importable by worker processes, too."""

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

import ifonly
from ifonly.data import Cohort, Scaler
from ifonly.evidence.behaviour import BehaviourModel, BehaviourSettings, fit_behaviour
from ifonly.models import Ensemble, LinearModel, LocationScale
from ifonly.models.base import TransitionModel
from ifonly.runs import Run, RunSettings, solve_cohort
from ifonly.simulate import simulate_cohort

REWARD = ifonly.minus("SOFA")
QUERY = ifonly.Query(REWARD, 2)
HERE = RunSettings(workers=1)


def small_cohort(patients: int = 8, seed: int = 3) -> Cohort:
    """Episodes of 3 to 5 steps."""
    return simulate_cohort(patients, seed=seed, horizon=(3, 5))


def cohort_with(*horizons: int) -> Cohort:
    """One episode of each of these numbers of steps."""
    parts = [simulate_cohort(1, seed=20 + number, horizon=steps)[0] for number, steps in enumerate(horizons)]
    renamed = [
        ifonly.Episode(f"e{n}", part.schema, part.states, part.actions, part.context, f"s{n}")
        for n, part in enumerate(parts)
    ]
    return Cohort.from_episodes(renamed)


class TroubledModel(LinearModel):
    """A linear model that makes trouble when it abducts the noise of episodes with certain numbers of steps.

    Every abduction, of which there is one per episode, leaves the id of its process in `diary`, if there is one.
    """

    kind = "troubled"
    trouble: Mapping[int, str] = {}
    pause: float = 0.0
    diary: Path | None = None
    lively: int | None = None
    """How many episodes are abducted in time; others take minutes. None: all of them."""

    def abduct(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> Tensor:
        if self.diary is not None:
            with self.diary.open("a") as file:
                file.write(f"{os.getpid()}\n")
        time.sleep(self.pause if self._is_lively() else 600.0)
        match self.trouble.get(len(states) + 1):
            case "raise":
                raise RuntimeError(f"a secret value: {float(states[0, 0])}")
            case "nan":
                return torch.full_like(next_states, torch.nan)
            case "interrupt":
                raise KeyboardInterrupt
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "die once":
                assert self.diary is not None
                mark = self.diary.with_suffix(".mark")
                if not mark.exists():
                    mark.touch()
                    os.kill(os.getpid(), signal.SIGKILL)
        return super().abduct(states, context, actions, next_states)

    def _is_lively(self) -> bool:
        return self.lively is None or self.diary is None or self.diary.read_text().count("\n") <= self.lively


def small_model(
    cohort: Cohort,
    *,
    seed: int = 0,
    trouble: Mapping[int, str] | None = None,
    pause: float = 0.0,
    diary: Path | None = None,
    lively: int | None = None,
) -> TransitionModel:
    """A random linear model in the cohort's coordinates."""
    generator = torch.Generator().manual_seed(seed)
    actions, size = len(cohort.schema.actions), len(cohort.schema.dynamic)
    matrices = 0.1 * torch.randn(actions, size, size, generator=generator, dtype=torch.float64)
    offsets = 0.2 * torch.randn(actions, size, generator=generator, dtype=torch.float64)
    model = TroubledModel(cohort.schema, matrices, offsets=offsets, scaler=Scaler.fit(cohort))
    model.trouble, model.pause, model.diary, model.lively = dict(trouble or {}), pause, diary, lively
    return model


def small_ensemble(cohort: Cohort, members: int = 3, seed: int = 0) -> Ensemble:
    """Networks of random weights in the cohort's coordinates, and another one that speaks for them."""
    scaler = Scaler.fit(cohort)
    models = [LocationScale(cohort.schema, hidden=(4,), scaler=scaler) for _ in range(members + 1)]
    for number, model in enumerate(models):
        model.initialize(torch.Generator().manual_seed(seed + number))
        with torch.no_grad():
            for weights in model.parameters():
                weights.mul_(3.0)  # else treatments hardly matter
    return Ensemble(models[1:], centre=models[0])


def small_behaviour(cohort: Cohort) -> BehaviourModel:
    """What clinicians do in a cohort, roughly."""
    return fit_behaviour(cohort, settings=BehaviourSettings(hidden=(), epochs=3), seed=0)


def solve_small(
    cohort: Cohort,
    model: TransitionModel,
    out: Path,
    settings: RunSettings = HERE,
    query: ifonly.Query = QUERY,
    **more: object,
) -> Run:
    """Two changes at most."""
    return solve_cohort(cohort, model, query, out=out, settings=settings, **more)


def without_clock(table: pl.DataFrame) -> pl.DataFrame:
    """A run's table but for what the clock says."""
    zero = pl.when(pl.col("stats").is_not_null()).then(0.0)
    return table.with_columns(pl.col("stats").struct.with_fields(seconds_bounds=zero, seconds_search=zero))


def without_seconds(run: Run) -> pl.DataFrame:
    """The table but for what the clock says."""
    return without_clock(run.table())
