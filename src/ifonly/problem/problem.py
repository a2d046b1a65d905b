"""A query put to an episode under one model: abduct the noise once, then replay under other actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from ifonly.data.episode import Episode
from ifonly.errors import InputError, ReplayError
from ifonly.models.base import TransitionModel
from ifonly.problem.base import BaseProblem, checked_standing
from ifonly.problem.batch import ProblemBatch
from ifonly.problem.support import Support, SupportSource, support_for
from ifonly.query import Query
from ifonly.rewards.bound import BoundReward

REPLAY_TOLERANCE = 1e-6
"""How far, in scaled units, a replayed state may lie from the observed one."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem(BaseProblem):
    """Which action sequence is best among all that differ from the observed one in at most `max_changes` steps?

    Build it with `Problem.from_episode`. Tensors are float64, in the model's scaled coordinates, on one device; states
    are [..., D] and noise is [T-1, D].
    """

    model: TransitionModel

    @classmethod
    def from_episode(
        cls,
        episode: Episode,
        model: TransitionModel,
        query: Query,
        *,
        support: Support | SupportSource | None = None,
        device: torch.device | str = "cpu",
    ) -> Problem:
        """Abduct the episode's noise and check that replaying the observed actions reproduces the observed states.

        `support`, or the behaviour model that provides it if the query has a `min_support`, rules out changes (even
        required ones) that are not supported at the counterfactual state that their own sequence reaches. A model
        that failed its check (`ifonly.check_model`) is refused unless the query allows it.
        """
        return cls.from_episodes([episode], model, query, support=support, device=device)[0]

    @classmethod
    def from_episodes(
        cls,
        episodes: Sequence[Episode],
        model: TransitionModel,
        query: Query,
        *,
        support: Support | SupportSource | None = None,
        device: torch.device | str = "cpu",
    ) -> list[Problem]:
        """`from_episode` for each episode, in one pass: what they share is made once, and all are replayed together.

        Noise is abducted in a call for each episode, since the last digits of a batched call depend on the other rows:
        no problem depends on those it is built with.
        """
        if not episodes:
            return []
        frozen = _frozen(model, episodes, device)
        reward = query.reward.bind(episodes[0].schema, frozen.scaler, device)
        rewards = {len(episode): _reward_over(reward, episode) for episode in episodes}
        asked_support = support_for(query, frozen, support)
        standing = checked_standing(model.standing, allow_failed_model=query.allow_failed_model)

        def build(episode: Episode) -> Problem:
            states = frozen.scaler.states.encode(episode.states)
            rules = query.constraints.automaton(episode, query.budget(len(episode)))
            return cls(
                episode=episode,
                model=frozen,
                query=query,
                bound_reward=rewards[len(episode)],
                observed_states=torch.as_tensor(states, dtype=torch.float64, device=device),
                observed_actions=torch.as_tensor(np.array(episode.actions), device=device),
                context=_context_of(frozen, episode, device),
                noise=torch.empty(0),
                allowed=torch.tensor(rules.symbols > 0, device=device),
                automaton=rules,
                support=asked_support,
                standing=standing,
            )._abducted()

        problems = [build(episode) for episode in episodes]
        for problem in problems:
            problem._check_feasible()
        check_replays(problems)
        _check_rewards(problems)
        for problem in problems:
            problem._check_support()
        return problems

    def put_to(self, model: TransitionModel) -> Problem:
        """The same problem put to another model, which has the same scaling and abducts its own noise.

        It carries that model's standing: a model that failed its check is not refused, but results say so.
        """
        return put_all_to([self], model)[0]

    def _abducted(self) -> Problem:
        """With the noise that explains the recording."""
        states = self.observed_states
        noise = self.model.abduct(states[:-1], self.context[:-1], self.observed_actions[:-1], states[1:])
        if not torch.isfinite(noise).all():
            step = int((~torch.isfinite(noise)).any(-1).nonzero()[0])
            raise ReplayError(
                f"episode {self.episode.id!r}, step {step}: the model finds no finite noise that explains the "
                "transition; the state lies outside what the model can produce, or the model is broken."
            )
        return replace(self, noise=noise)

    @property
    def models(self) -> tuple[TransitionModel, ...]:
        """The one model."""
        return (self.model,)

    def _answered_by(self, model: TransitionModel) -> dict[str, Any]:
        return {"model": model}

    def _check_support(self) -> None:
        """Check that the support says true or false for every action, each state by itself."""
        if self.support is None:
            return
        where = f"episode {self.episode.id!r}: the support"
        if not isinstance(self.support, Support):
            raise InputError(
                f"{where} must have `supported` and `settings`, as ifonly.problem.Support; found "
                f"{type(self.support).__name__}."
            )
        context = self.context[:1].expand(self.horizon, -1)
        together = self.are_supported(0, self.observed_states, context)
        wanted = (self.horizon, self.action_count)
        if not isinstance(together, Tensor) or together.dtype != torch.bool or together.shape != wanted:
            raise InputError(f"{where} must map states [N, D] and context [N, C] to true and false [N, A].")
        alone = [self.are_supported(0, state, context[:1]) for state in self.observed_states.split(1)]
        if not torch.equal(together, torch.cat(alone)):
            raise InputError(f"{where} judges a state differently depending on what else is in the batch.")


def put_all_to(problems: Sequence[Problem], model: TransitionModel) -> list[Problem]:
    """Problems put to another model, as `Problem.put_to` does with one."""
    frozen = _frozen(model, [problem.episode for problem in problems], problems[0].device)
    if frozen is problems[0].model:  # whose noise is known
        return [replace(problem, standing=model.standing) for problem in problems]
    put = [
        replace(
            problem,
            model=frozen,
            standing=model.standing,
            context=_context_of(frozen, problem.episode, problem.device),
        )._abducted()
        for problem in problems
    ]
    check_replays(put)
    return put


def _context_of(model: TransitionModel, episode: Episode, device: torch.device | str) -> Tensor:
    """The context of every step [T, C], as the model encodes it."""
    return torch.as_tensor(model.encode_context(episode), dtype=torch.float64, device=device)


def _reward_over(reward: BoundReward, episode: Episode) -> BoundReward:
    try:
        return reward.over(len(episode))
    except InputError as error:
        raise InputError(f"episode {episode.id!r}: {error}") from None


def _check_rewards(problems: Sequence[Problem]) -> None:
    """Check that the reward gives one number per state and action, whatever else is in the batch.

    Steps of the first problem are evaluated one by one; those of the others in one batch and problem by problem.
    """
    first, reward = problems[0], problems[0].bound_reward.single_steps
    pairs = zip(first.observed_states, first.observed_actions, strict=True)
    alone = torch.stack([reward(*pair) for pair in pairs])
    if len(problems) == 1:
        _require_same_rewards(first, reward(first.observed_states, first.observed_actions), alone)
        return
    states = torch.cat([problem.observed_states for problem in problems])
    together = reward(states, torch.cat([problem.observed_actions for problem in problems]))
    start = 0
    for problem in problems:
        end = start + problem.horizon
        own = alone if problem is first else reward(problem.observed_states, problem.observed_actions)
        _require_same_rewards(problem, together[start:end], own)
        start = end


def _require_same_rewards(problem: Problem, together: Tensor, alone: Tensor) -> None:
    if together.shape != alone.shape or not torch.allclose(together, alone, rtol=1e-9, atol=1e-12):
        raise InputError(
            f"episode {problem.episode.id!r}: the reward of a step changes with what else is in the batch; it must "
            "map states [..., D] and actions [...] to one number each [...], row by row."
        )


def check_replays(problems: Sequence[Problem]) -> None:
    """Refuse the first problem whose observed states are not reproduced by its observed actions."""
    for horizon in dict.fromkeys(problem.horizon for problem in problems):
        group = [problem for problem in problems if problem.horizon == horizon]
        batch = group[0].as_batch if len(group) == 1 else ProblemBatch(group)
        paths = batch.rollout(torch.arange(len(group), device=batch.device), batch.observed)
        observed = torch.stack([problem.observed_states for problem in group])
        missed = ~((paths.states - observed).abs() <= REPLAY_TOLERANCE * observed.abs().clamp(min=1.0))
        wrong = missed.flatten(1).any(1) | ~paths.outcomes.isfinite()
        for number in wrong.nonzero().flatten().tolist():  # the first is refused
            _refuse_replay(group[number], paths.states[number], missed[number], float(paths.outcomes[number]))


def _refuse_replay(problem: Problem, states: Tensor, missed: Tensor, outcome: float) -> NoReturn:
    """Refuse a wrong replay: states [T, D] that `missed` [T, D] the observed ones, or an outcome that is not finite."""
    episode = problem.episode
    if missed.any():
        step, feature = (int(i) for i in missed.nonzero()[0])
        error = float((states - problem.observed_states)[step, feature].abs())
        raise ReplayError(
            f"episode {episode.id!r}, step {step}: replaying the observed actions misses the observed "
            f"{episode.schema.dynamic[feature].name} by {error:.3g} scaled units "
            f"(at most {REPLAY_TOLERANCE:g} is accepted); the model's abduct does not invert its step."
        )
    raise InputError(
        f"episode {episode.id!r}: the observed outcome is {outcome}; the reward must be finite at every recorded "
        "state and action."
    )


def _frozen(model: TransitionModel, episodes: Sequence[Episode], device: torch.device | str) -> TransitionModel:
    """The model frozen for search; refused unless it has the schema of the episodes."""
    for episode in episodes:
        model.schema.require_same(episode.schema, here="the model", there=f"episode {episode.id!r}")
    return model if model.is_for_search(device) else model.for_search(device)
