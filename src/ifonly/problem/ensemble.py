"""The counterfactual question put to several models at once: each abducts its own noise, all act alike."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Protocol

import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.constraints import Constraints
from ifonly.data.episode import Episode
from ifonly.errors import InputError
from ifonly.models.base import TransitionModel
from ifonly.models.standing import Standing, worst_of
from ifonly.problem.base import BaseProblem, checked_standing
from ifonly.problem.objective import Objective
from ifonly.problem.problem import Problem
from ifonly.problem.support import Support
from ifonly.rewards import Reward


class HasMembers(Protocol):
    """A model that is made of others, such as an ensemble."""

    @property
    def members(self) -> Sequence[TransitionModel]:
        """The models that it is made of."""


@dataclass(frozen=True, eq=False, kw_only=True)
class EnsembleProblem(BaseProblem):
    """One question put to M models: which common sequence is best for the mean, the worst, or a lower quantile of them?

    Build it with `EnsembleProblem.from_episode`. Every member replays the recording with noise of its own, so the
    observed outcome is the same for all, and it does not matter whether outcomes or improvements are aggregated. States
    are [..., M, D] and noise is [T-1, M, D], in the scaled coordinates that all members share.

    What stands for the states of all in a result: their mean (in scaled coordinates) where the mean counts, else those
    of the member whose outcome counts.
    """

    member_models: tuple[TransitionModel, ...]
    objective: Objective
    support_share: float = 1.0
    """The share of members at whose own states a change must be supported."""
    notes: tuple[str, ...] = ()
    """What a reader of the members' agreement should know, as their ensemble says."""

    @classmethod
    def from_episode(
        cls,
        episode: Episode,
        models: Sequence[TransitionModel] | HasMembers | TransitionModel,
        reward: Reward,
        max_changes: int | None,
        *,
        objective: str | float | Objective = "mean",
        constraints: Constraints | None = None,
        allowed: npt.ArrayLike | None = None,
        last_action_fixed: bool = False,
        change_cost: float = 0.0,
        support: Support | None = None,
        support_share: float = 1.0,
        allow_failed_model: bool = False,
        device: torch.device | str = "cpu",
    ) -> EnsembleProblem:
        """Abduct the episode's noise under each of `models`, a list or an ensemble; all must share their scaling.

        `objective` is "mean", "worst", or the level of a lower quantile (see `Objective`). With a `support`, a change
        is admissible where at least `support_share` of the members are in a state that supports it (1: all of them).
        The other arguments are those of `Problem.from_episode`.
        """
        members = members_of(models)
        standing = checked_standing(_standing(models), allow_failed_model=allow_failed_model)
        first = Problem.from_episode(
            episode,
            members[0],
            reward,
            max_changes,
            constraints=constraints,
            allowed=allowed,
            last_action_fixed=last_action_fixed,
            change_cost=change_cost,
            support=support,
            allow_failed_model=True,  # asked above, of all of them
            device=device,
        )
        panel = cls.from_problem(first, [first.model, *members[1:]], objective=objective, support_share=support_share)
        return replace(panel, standing=standing, notes=_notes(models))

    @classmethod
    def from_problem(
        cls,
        problem: Problem,
        models: Sequence[TransitionModel] | HasMembers | TransitionModel,
        *,
        objective: str | float | Objective = "mean",
        support_share: float = 1.0,
    ) -> EnsembleProblem:
        """The question of `problem` put to each of `models`, which share the scaling of its own model.

        With what a check concluded about these: models that failed are not refused, and results say so.
        """
        members = members_of([problem.model, *members_of(models)])[1:]
        if not 0 < support_share <= 1:
            raise InputError(
                f"panel: support_share={support_share} must be a share of the members, above 0 and up to 1."
            )
        problems = [problem.put_to(model) for model in members]
        return cls(
            **_shared(problem)
            | {"noise": torch.stack([problem.noise for problem in problems], dim=1), "standing": _standing(models)},
            member_models=tuple(problem.model for problem in problems),
            objective=objective if isinstance(objective, Objective) else Objective(objective),
            support_share=float(support_share),
            notes=_notes(models),
        )

    @property
    def models(self) -> tuple[TransitionModel, ...]:
        """The members' models."""
        return self.member_models

    @property
    def members_shape(self) -> tuple[int, ...]:
        """(M,)."""
        return (len(self.member_models),)

    @cached_property
    def members(self) -> tuple[Problem, ...]:
        """The same question put to each member alone, with what a check concluded about that one."""
        return tuple(
            Problem(**{**_shared(self), "noise": self.noise[:, number], "standing": model.standing}, model=model)
            for number, model in enumerate(self.member_models)
        )

    def on(
        self,
        device: torch.device | str,
        models: Sequence[TransitionModel] | HasMembers | TransitionModel,
        *,
        support: Support | None = None,
    ) -> EnsembleProblem:
        """The same question on another device, where `models` are the frozen copies of the members.

        `support` is the copy of this one's support there; without it, the support stays where it is, and states travel.
        """
        return self._moved(device, support, member_models=tuple(members_of(models)))

    def advance(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """Every member's step, each from its own states under its own noise."""
        following = [
            model.step(states[..., number, :], context, actions, noise[..., number, :])
            for number, model in enumerate(self.member_models)
        ]
        return torch.stack(following, dim=-2)

    def counted(self, totals: Tensor) -> Tensor:
        """The objective [...] of the members' sums of rewards [..., M]; NaN where one is infinitely good."""
        # As with one model an outcome of plus infinity is a broken one, also of a member that would not count.
        return torch.where((totals == torch.inf).any(-1), torch.nan, self.objective(totals))

    def are_supported(self, t: int, states: Tensor, context: Tensor) -> Tensor:
        """Which actions [N, A] enough members support, each at its own of states [N, M, D]."""
        count, members = states.shape[:2]
        if self.support is None:
            return torch.ones(count, self.action_count, dtype=torch.bool, device=self.device)
        rows = context.unsqueeze(1).expand(-1, members, -1).flatten(0, 1)
        votes: Tensor = self.support.supported(t, states.flatten(0, 1), rows).unflatten(0, (count, members)).sum(1)
        # Less a little: 0.7 * 10 is above 7 in floating point.
        enough: Tensor = votes >= max(1, math.ceil(self.support_share * members - 1e-9))
        return enough

    def shown_states(self, states: Tensor, totals: Tensor) -> Tensor:
        """Of states [B, T, M, D], the mean over members or, by totals [B, M], those of the member that counts."""
        chosen = self.objective.member(totals)
        if chosen is None:
            return states.mean(-2)
        return states[torch.arange(len(states), device=states.device), :, chosen]

    def fingerprint(self) -> str:
        """A hash of all members'."""
        digest = hashlib.sha256(" ".join(model.fingerprint() for model in self.member_models).encode())
        return digest.hexdigest()[:16]

    def claims(self) -> Mapping[str, Any]:
        """What counts, over how many members, and what changes must have behind them, if anything."""
        claims: dict[str, Any] = {"objective": self.objective.goal, "members": len(self.member_models)}
        if self.support is not None:
            claims |= {"support": dict(self.support.settings()), "support_share": self.support_share}
        return claims


def put_question(
    episode: Episode,
    model: TransitionModel,
    reward: Reward,
    max_changes: int | None,
    *,
    objective: str | float | None = None,
    **rules: Any,
) -> Problem | EnsembleProblem:
    """The question put to one model or, where there is an `objective`, to all refits of an ensemble at once.

    `rules` and whatever else is passed are those of `Problem.from_episode`.
    """
    if objective is None:
        return Problem.from_episode(episode, model, reward, max_changes, **rules)
    return EnsembleProblem.from_episode(episode, model, reward, max_changes, objective=objective, **rules)


def _shared(question: BaseProblem) -> dict[str, Any]:
    """What a question has whoever answers it."""
    return {field.name: getattr(question, field.name) for field in fields(BaseProblem)}


def _standing(models: Sequence[TransitionModel] | HasMembers | TransitionModel) -> Standing | None:
    """What a check concluded: about an ensemble as a whole, or the worst of a list, which passes only if all do."""
    if not isinstance(models, Sequence):
        return getattr(models, "standing", None)
    standings = [getattr(model, "standing", None) for model in models]
    worst = worst_of(standings)
    return None if worst is not None and worst.verdict == "pass" and None in standings else worst


def _notes(models: Any) -> tuple[str, ...]:
    return tuple(getattr(models, "notes", ()))


def members_of(models: Sequence[TransitionModel] | HasMembers | TransitionModel) -> list[TransitionModel]:
    """The models of a panel, from a list or an ensemble; all must share their scaling."""
    given = models if isinstance(models, Sequence) else getattr(models, "members", None)
    if not given:
        raise InputError(
            "panel: a single model has no refits to compare; give a list of at least one model, or an ensemble "
            "(fit_ensemble, `ifonly fit --ensemble 20`)."
        )
    members = list(given)
    for number, model in enumerate(members):
        if not isinstance(model, TransitionModel):
            raise InputError(f"panel: member {number} is no model but {type(model).__name__}.")
    first = members[0]
    for number, model in enumerate(members):
        first.schema.require_same(model.schema, here="member 0 of the panel", there=f"member {number}")
        if model.scaler is not first.scaler and model.scaler.to_dict() != first.scaler.to_dict():
            raise InputError(
                f"panel: member {number} has another scaling than member 0, so that their states cannot be compared; "
                "give all of them one scaler when they are fitted, as an ensemble does."
            )
    return members
