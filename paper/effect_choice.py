"""Whether subject effects are taken in a known world, and what they do to answers: `python -m paper.effect_choice`.

A model is fitted without effects, with them, and with the hidden columns recorded, which is the best that effects can
hope for; `choose_effects` decides; the best sequences under each are carried out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import typer

from ifonly import Cohort, FitSettings, Limits, Problem, Query, TransitionModel, fit, solve
from ifonly.data.episode import FloatArray
from ifonly.models.effect_choice import HELD_OUT, choose_effects
from ifonly.models.fit_effects import fit_with_effects, fit_without_effects, nobody, with_columns
from ifonly.models.recipes import find_recipe
from paper.worlds import PLAIN, WORLDS, Recording
from paper.worlds_study import NEGLIGIBLE


def gains(model: TransitionModel, recording: Recording, asked: Cohort, changes: int) -> FloatArray:
    """Of every episode whose best answer changes anything: what it promises, and what it truly gains [N, 2]."""
    query = Query(recording.world.reward, changes, limits=Limits(seconds=1.0), allow_failed_model=True)
    frozen, rows = model.for_search(), []
    for episode in asked:
        result = solve(Problem.from_episode(episode, frozen, query))
        if result.changes:
            before = recording.outcomes[recording.places([episode.id])]
            after = recording.replay([episode.id], np.array([result.actions])).outcomes
            rows.append((result.improvement, float(after[0] - before[0])))
    return np.array(rows).reshape(-1, 2)


def main(
    world: str = "sepsis",
    variant: str = "confounded",
    seed: int = 0,
    recipe: str = "residual",
    curvature: float = 0.03,
    epochs: int = 60,
    asked: int = 25,
    episodes: int = 500,
    changes: int = 3,
) -> None:
    """Print the choice, and the share of answers that truly help, without effects, with them, and with all recorded.

    Models that answer are like those that were compared: fitted to four fifths of the episodes.
    """
    recording = WORLDS[world].record(episodes + 200, seed, variant)
    cohort = recording.cohort(variant, "bounded")
    train, others = cohort[:episodes], cohort[episodes : episodes + asked]
    chosen = find_recipe(recipe)
    settings = replace(chosen.settings(FitSettings.thorough(train, epochs=epochs)), curvature=curvature, threads=1)
    model = chosen.untrained(train.schema, (64,))
    typer.echo(f"{world} {variant} {seed}: {choose_effects(model, train, settings=settings, seed=seed)}")
    part = train.split(test=HELD_OUT, seed=seed)[0]
    without = fit_without_effects(model, part, settings=settings, seed=seed)
    found = fit_with_effects(model, part, begun=without, settings=settings, seed=seed)
    zero = with_columns(others, nobody(others))
    asked_of: dict[str, tuple[TransitionModel, Cohort]] = {"without": (without, zero), "with": (found, others)}
    shown = recording.cohort(PLAIN, "bounded")
    everything = chosen.untrained(shown.schema, (64,))
    seen = fit(everything, shown[:episodes].split(test=HELD_OUT, seed=seed)[0], settings=settings, seed=seed)
    asked_of["all recorded"] = seen, shown[episodes : episodes + asked]
    for name, (one, episodes_asked) in asked_of.items():
        gained = gains(one, recording, episodes_asked, changes)
        promised, true = gained.mean(axis=0)
        share = 100 * (gained[:, 1] > NEGLIGIBLE).mean()
        typer.echo(f"{name:<15} truly help {share:3.0f} % of {len(gained)}  promised {promised:.1f}  true {true:.1f}")


if __name__ == "__main__":
    typer.run(main)
