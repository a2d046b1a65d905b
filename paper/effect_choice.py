"""Whether subject effects are taken in a known world, and what they do to answers: `python -m paper.effect_choice`.

A model is fitted without and with effects; `choose_effects` decides; the best sequences under both are carried out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import typer

from ifonly import Cohort, FitSettings, Limits, Problem, Query, TransitionModel, solve
from ifonly.data.episode import FloatArray
from ifonly.models.effect_choice import HELD_OUT, choose_effects
from ifonly.models.fit_effects import fit_with_effects, fit_without_effects, with_columns
from ifonly.models.recipes import find_recipe
from paper.worlds import WORLDS, Recording
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
    """Print the choice, and without and with effects the share of answers that truly help.

    Models that answer are those that were compared: fitted to four fifths of the episodes.
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
    effects = fit_with_effects(model, part, begun=without, settings=settings, seed=seed)
    nobody = with_columns(others, np.zeros((len(others.actions), len(others.schema.dynamic))))
    for name, one, episodes_asked in (("without", without, nobody), ("with", effects, others)):
        found = gains(one, recording, episodes_asked, changes)
        promised, true = found.mean(axis=0)
        share = 100 * (found[:, 1] > NEGLIGIBLE).mean()
        typer.echo(f"{name:<8} truly help {share:3.0f} % of {len(found)}  promised {promised:.1f}  true {true:.1f}")


if __name__ == "__main__":
    typer.run(main)
