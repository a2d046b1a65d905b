"""Whether subject effects help where a lasting factor is hidden: `python -m paper.subject_effects`, from a clone.

Stays of the simulated world whose frailty no record shows, treated by clinicians who see it. The best sequences under a
model without and one with effects are carried out in the true world.
"""

from __future__ import annotations

import numpy as np
import torch
import typer

from ifonly import Cohort, FitSettings, LocationScale, TransitionModel, fit, fit_with_effects
from ifonly.models.recipes import find_recipe
from ifonly.simulate import SepsisWorld, simulate_cohort
from paper import asking
from paper.warning_worlds import SCENARIOS

CONFOUNDED = SCENARIOS["confounded"]


def truly(model: TransitionModel, held_out: Cohort, complete: Cohort, *, patients: int, changes: int) -> np.ndarray:
    """What was promised and what the true world gives [patients, 2], best sequences under `model` carried out there."""
    world, frozen = SepsisWorld(CONFOUNDED.world).for_search(), model.for_search()
    question = asking.Question(changes, allow_failed_model=True)
    rows = []
    for number in range(patients):
        result = asking.answer(question.problem(held_out[number], frozen))
        truth = question.problem(complete[number], world)
        sequences = torch.stack([truth.observed_actions, torch.as_tensor(list(result.actions))])
        before, after = truth.replay(sequences)[1].tolist()
        rows.append((result.outcome - result.observed_outcome, after - before))
    return np.array(rows)


def main(
    stays: int = 2000,
    patients: int = 32,
    epochs: int = 40,
    seed: int = 0,
    changes: int = 2,
    recipe: str = "paper",
    curvature: float = 0.0,
) -> None:
    """Print, without and with effects, the share of answers that truly help, what was promised and what came true."""
    world = SepsisWorld(CONFOUNDED.world)

    def recorded(count: int, own_seed: int) -> Cohort:
        return simulate_cohort(count, seed=own_seed, horizon=12, world=world, clinician=CONFOUNDED.clinician)

    training, complete = world.recorded(recorded(stays, 2 * seed)), recorded(patients, 2 * seed + 1)
    chosen = find_recipe(recipe)
    settings = FitSettings(epochs=epochs, batch_size=512, learning_rate=5e-3, curvature=curvature)
    settings = chosen.settings(settings)
    model: LocationScale = chosen.untrained(training.schema, (64,))
    models: dict[str, TransitionModel] = {"without": fit(model, training, settings=settings, seed=seed)}
    both = fit_with_effects(model, training, settings=settings, seed=seed)
    assert both.fit_report is not None
    typer.echo(", ".join(f"{row.feature} {row.share:.2f}" for row in both.fit_report.effects if row.share))
    for name, one in (models | {"with": both}).items():
        found = truly(one, world.recorded(complete), complete, patients=patients, changes=changes)
        promised, true = found.mean(axis=0)
        typer.echo(
            f"{name:<8} truly help {100 * (found[:, 1] > 0).mean():3.0f} %  promised {promised:.1f}  true {true:.1f}  "
            f"worst {found[:, 1].min():.1f}"
        )


if __name__ == "__main__":
    typer.run(main)
