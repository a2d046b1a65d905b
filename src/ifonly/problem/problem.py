"""The counterfactual question put to one model: abduct the noise once, then replay under other actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ifonly.data.episode import Episode, FloatArray
from ifonly.errors import InputError, ReplayError
from ifonly.models.base import TransitionModel
from ifonly.problem.base import BaseProblem, checked_standing
from ifonly.problem.support import Support, SupportSource, support_for
from ifonly.query import Query

REPLAY_TOLERANCE = 1e-6
"""How far, in scaled units, a replayed state may lie from the observed one."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem(BaseProblem):
    """Among all action sequences that differ from the observed one in at most `max_changes` steps: which is best?

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
        """Abduct the episode's noise and check that replaying the observed actions gives the observed states back.

        `support`, or the behaviour model that gives it where the query has a `min_support`, keeps out changes, required
        ones too, where it does not hold at the counterfactual state that their own sequence reaches. A model that
        failed its check (`ifonly.check_model`) is refused unless the query allows it.
        """
        frozen = _frozen(model, episode, device)
        columns = frozen.scaler

        def tensor(values: FloatArray) -> Tensor:
            return torch.as_tensor(values, dtype=torch.float64, device=device)

        problem = cls(
            episode=episode,
            model=frozen,
            query=query,
            bound_reward=query.reward.bind(episode.schema, frozen.scaler, device),
            observed_states=tensor(columns.states.encode(episode.states)),
            observed_actions=torch.as_tensor(np.array(episode.actions), device=device),
            context=tensor(columns.context.encode(episode.context)),
            noise=torch.empty(0),
            allowed=torch.empty(0),
            support=support_for(query, frozen, support),
            standing=checked_standing(model.standing, allow_failed_model=query.allow_failed_model),
        )
        problem = problem._abducted()._ruled()
        problem._check_replay()
        problem._check_reward()
        problem._check_support()
        return problem

    def put_to(self, model: TransitionModel) -> Problem:
        """The same question put to another model, which has the same scaling and abducts its own noise.

        With what a check concluded about that one: a model that failed is not refused, and results say so.
        """
        frozen = _frozen(model, self.episode, self.device)
        problem = replace(self, model=frozen, standing=model.standing)._abducted()
        problem._check_replay()
        return problem

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

    def on(self, device: torch.device | str, model: TransitionModel, *, support: Support | None = None) -> Problem:
        """The same question on another device, where `model` is the frozen copy of this one's model.

        `support` is the copy of this one's support there; without it, the support stays where it is, and states travel.
        Many problems are built quicker on a processor and then moved: a GPU is slow at single small steps.
        """
        return self._moved(device, support, model=model)

    def advance(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """The model's step."""
        return self.model.step(states, context, actions, noise)

    def counted(self, totals: Tensor) -> Tensor:
        """The sums of rewards themselves."""
        return totals

    def are_supported(self, t: int, states: Tensor, context: Tensor) -> Tensor:
        """What the support says [N, A] of states [N, D] and context [N, C]."""
        if self.support is None:
            return torch.ones(len(states), self.action_count, dtype=torch.bool, device=self.device)
        return self.support.supported(t, states, context)

    def shown_states(self, states: Tensor, totals: Tensor) -> Tensor:
        """The states themselves."""
        return states

    def fingerprint(self) -> str:
        """The model's."""
        return self.model.fingerprint()

    def claims(self) -> Mapping[str, Any]:
        """What changes must have behind them, if anything."""
        return {} if self.support is None else {"support": dict(self.support.settings())}

    def _check_replay(self) -> None:
        states, outcomes = self.rollout(self.observed_actions.unsqueeze(0))
        errors = (states[0] - self.observed_states).abs()
        scale = self.observed_states.abs().clamp(min=1.0)
        wrong = ~(errors <= REPLAY_TOLERANCE * scale)
        if wrong.any():
            step, feature = (int(i) for i in wrong.nonzero()[0])
            raise ReplayError(
                f"episode {self.episode.id!r}, step {step}: replaying the observed actions misses the observed "
                f"{self.episode.schema.dynamic[feature].name} by {float(errors[step, feature]):.3g} scaled units "
                f"(at most {REPLAY_TOLERANCE:g} is accepted); the model's abduct does not invert its step."
            )
        if not outcomes.isfinite().all():
            raise InputError(
                f"episode {self.episode.id!r}: the observed outcome is {float(outcomes[0])}; the reward must be finite "
                "at every recorded state and action."
            )

    def _check_reward(self) -> None:
        """A reward must give one number per state and action, whatever else is in the batch."""
        together = self.bound_reward(self.observed_states, self.observed_actions)
        pairs = zip(self.observed_states, self.observed_actions, strict=True)
        alone = torch.stack([self.bound_reward(*pair) for pair in pairs])
        if together.shape != alone.shape or not torch.allclose(together, alone, rtol=1e-9, atol=1e-12):
            raise InputError(
                f"episode {self.episode.id!r}: the reward of a step changes with what else is in the batch; it must "
                "map states [..., D] and actions [...] to one number each [...], row by row."
            )

    def _check_support(self) -> None:
        """A support must say true or false of every action, state by state."""
        if self.support is None:
            return
        where = f"episode {self.episode.id!r}: the support"
        if not isinstance(self.support, Support):
            raise InputError(
                f"{where} must have `supported` and `settings`, as ifonly.problem.Support; found "
                f"{type(self.support).__name__}."
            )
        context = self.context[:1].expand(self.horizon, -1)
        together = self.support.supported(0, self.observed_states, context)
        wanted = (self.horizon, self.action_count)
        if not isinstance(together, Tensor) or together.dtype != torch.bool or together.shape != wanted:
            raise InputError(f"{where} must map states [N, D] and context [N, C] to true and false [N, A].")
        alone = [self.support.supported(0, state, context[:1]) for state in self.observed_states.split(1)]
        if not torch.equal(together, torch.cat(alone)):
            raise InputError(f"{where} changes its mind about a state with what else is in the batch.")


def _frozen(model: TransitionModel, episode: Episode, device: torch.device | str) -> TransitionModel:
    """The model as searches use it, if it speaks of the same things as the episode."""
    model.schema.require_same(episode.schema, here="the model", there=f"episode {episode.id!r}")
    return model if model.is_for_search(device) else model.for_search(device)
