"""The problems that the benchmark solves: simulated stays, stays in a folder, and models with random weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import ifonly
from ifonly import ActionSpace, Axis, Cohort, Episode, Feature, LocationScale, Problem, Schema
from ifonly.constraints import Constraints
from ifonly.query import Query
from ifonly.simulate import simulate_cohort
from ifonly.testing.instances import random_problem

TEST_SEED = 1
"""Of the simulated stays that are asked about; models are fitted to those of seed 0."""
ACTIONS, STATE_SIZE, WIDTH = 25, 9, 200
"""The paper's size, which the simulated world shares."""


@dataclass(frozen=True)
class Question:
    """Problems about the first `count` stays of a cohort, under a model in a folder."""

    model: Path
    changes: int | None
    count: int
    horizon: int | tuple[int, int] = 12
    """Of simulated stays."""
    cohort: Path | None = None
    """A folder with a cohort, instead of simulated stays; its stays are taken as they are."""
    actions: int | None = None
    """How many actions are allowed at each step: the observed one and those that follow it, in a circle."""
    feature: str = "SOFA"
    """What should be low."""
    device: str = "cpu"

    def problems(self) -> Iterator[Problem]:
        """One after the other, so that only one is in memory."""
        model = ifonly.load_model(self.model).for_search(self.device)
        reward = ifonly.minus(self.feature)
        for episode in self.episodes():
            rules = Constraints()
            if self.actions is not None:
                rules = rules.restricted_to(_following(episode, self.actions), episode)
            query = Query(reward, self.changes, constraints=rules)
            yield Problem.from_episode(episode, model, query, device=self.device)

    def episodes(self) -> Iterator[Episode]:
        """The stays asked about."""
        cohort = self._cohort()
        yield from (cohort[position] for position in range(min(self.count, len(cohort))))

    def most_sequences(self) -> int:
        """How many sequences the largest of the problems has, where no rule forbids any."""
        if self.cohort is None:
            horizon, actions = self.horizon if isinstance(self.horizon, int) else max(self.horizon), ACTIONS
        else:
            horizon, actions = max((len(one), len(one.schema.actions)) for one in self.episodes())
        changes = horizon if self.changes is None else min(self.changes, horizon)
        return sum(math.comb(horizon, number) * (actions - 1) ** number for number in range(changes + 1))

    def _cohort(self) -> Cohort:
        if self.cohort is not None:
            return ifonly.load(self.cohort)
        return simulate_cohort(self.count, seed=TEST_SEED, horizon=self.horizon)


@dataclass(frozen=True)
class RandomQuestion:
    """Problems under one constrained model with random weights and `state_size` features; stays are drawn from it."""

    state_size: int
    changes: int | None
    count: int
    horizon: int = 12
    width: int = WIDTH

    def problems(self) -> Iterator[Problem]:
        """One after the other."""
        features = [Feature(f"state {number}", "dynamic") for number in range(self.state_size)]
        levels = (0.0, 0.25, 0.5, 0.75, 1.0)
        schema = Schema(tuple(features), ActionSpace.product(Axis("first", "", levels), Axis("second", "", levels)))
        generator = torch.Generator().manual_seed(0)
        model = LocationScale(schema, hidden=(self.width,), lipschitz=(1.0, 0.1))
        model.initialize(generator)
        model = model.for_search()
        for number in range(self.count):
            episode = _drawn(f"random {number}", model, self.horizon, generator)
            yield Problem.from_episode(episode, model, Query(ifonly.minus("state 0"), self.changes))


@torch.no_grad()
def _drawn(id: str, model: LocationScale, horizon: int, generator: torch.Generator) -> Episode:
    actions = torch.randint(model.action_count, (horizon,), generator=generator)
    context = torch.zeros(0, dtype=torch.float64)
    states = [torch.randn(model.state_size, generator=generator, dtype=torch.float64)]
    for action in actions[:-1]:
        states.append(model.sample(states[-1], context, action, generator=generator))
    decoded = model.scaler.states.decode(torch.stack(states).numpy())
    return Episode(id, model.schema, states=decoded, actions=actions.numpy())


def _following(episode: Episode, count: int) -> np.ndarray:
    """Allowed actions [T, A]: `count` of them at each step, the observed one included, spread evenly from there."""
    total = len(episode.schema.actions)
    offsets = (np.arange(count) * total) // count
    allowed = np.zeros((len(episode), total), dtype=bool)
    steps = np.arange(len(episode))[:, None]
    allowed[steps, (episode.actions[:, None] + offsets) % total] = True
    return allowed


def warm_up_problem(device: str = "cpu") -> Problem:
    """Of full width but short, about another model: loads the code, and tells nothing about what is measured."""
    drawn = random_problem(
        0,
        model_kind=LocationScale.kind,
        horizon=4,
        actions=ACTIONS,
        state_size=STATE_SIZE,
        hidden=(WIDTH,),
        max_changes=1,
        constrained=True,
        masked=False,
        reward_kind="linear",
    )
    return Problem.from_episode(drawn.episode, drawn.model, Query(drawn.reward, drawn.max_changes), device=device)
