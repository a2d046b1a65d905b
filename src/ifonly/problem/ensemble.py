"""A query put to an episode under several models at once: each abducts its own noise, all take the same actions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from ifonly.data.episode import Episode
from ifonly.errors import InputError
from ifonly.models.base import TransitionModel
from ifonly.models.standing import EnsembleNote, MemberLabel, Standing, worst_of
from ifonly.objective import Objective
from ifonly.problem.base import BaseProblem, checked_standing
from ifonly.problem.problem import Problem, put_all_to
from ifonly.problem.support import Support, SupportSource
from ifonly.query import Query


class HasMembers(Protocol):
    """A model made of others, such as an ensemble."""

    @property
    def members(self) -> Sequence[TransitionModel]:
        """Those models."""


@dataclass(frozen=True, eq=False, kw_only=True)
class EnsembleProblem(BaseProblem):
    """One problem put to M models: which common sequence is best for the mean, the worst, or a lower quantile of them?

    Build it with `EnsembleProblem.from_episode`. Every member replays the recording with noise of its own, so the
    observed outcome is the same for all, and it does not matter whether outcomes or improvements are aggregated. States
    are [..., M, D] and noise is [T-1, M, D], in the scaled coordinates that all members share.

    What stands for the states of all in a result: their mean (in scaled coordinates) where the mean counts, else those
    of the member whose outcome counts.
    """

    member_models: tuple[TransitionModel, ...]
    notes: tuple[EnsembleNote, ...] = ()
    """What readers should know about the members' agreement, from their ensemble."""
    weights: tuple[float, ...] | None = None
    """The weight of each member in a mean or a quantile [M], with a sum of 1; None: equal weights."""
    labels: tuple[MemberLabel, ...] = ()
    """What each member is [M], from their ensemble."""

    @classmethod
    def from_episode(
        cls,
        episode: Episode,
        models: Sequence[TransitionModel] | HasMembers | TransitionModel,
        query: Query,
        *,
        support: Support | SupportSource | None = None,
        device: torch.device | str = "cpu",
    ) -> EnsembleProblem:
        """Abduct the episode's noise under each of `models`, a list or an ensemble; all must share their scaling.

        Without an objective in the query the mean counts. The members of an ensemble have its weights, those of a list
        equal ones. With a `support`, a change is admissible if at least the query's `support_share` of the members
        (1: all) are in a state that supports it.
        """
        return cls.from_episodes([episode], models, query, support=support, device=device)[0]

    @classmethod
    def from_episodes(
        cls,
        episodes: Sequence[Episode],
        models: Sequence[TransitionModel] | HasMembers | TransitionModel,
        query: Query,
        *,
        support: Support | SupportSource | None = None,
        device: torch.device | str = "cpu",
    ) -> list[EnsembleProblem]:
        """`from_episode` for each episode, in one pass, as `Problem.from_episodes` does for one model."""
        members = members_of(models)
        standing = checked_standing(_standing(models), allow_failed_model=query.allow_failed_model)
        allowed = query.with_changes(allow_failed_model=True)  # checked above, for all of them
        alone = Problem.from_episodes(episodes, members[0], allowed, support=support, device=device)
        if not alone:
            return []
        problems = cls._put_to_all(alone, [alone[0].model, *members[1:]], objective=query.objective or "mean")
        asked = query if query.objective is not None else query.with_changes(objective="mean")
        about: dict[str, Any] = {"notes": _notes(models), "weights": member_weights(models), "labels": _labels(models)}
        return [replace(one, query=asked, standing=standing, **about) for one in problems]

    @classmethod
    def from_problem(
        cls,
        problem: Problem,
        models: Sequence[TransitionModel] | HasMembers | TransitionModel,
        *,
        objective: str | float = "mean",
    ) -> EnsembleProblem:
        """The query of `problem` put to each of `models`, which share the scaling of its own model.

        It carries the standing of these models: those that failed their check are not refused, but results say so.
        """
        return cls._put_to_all([problem], models, objective=objective)[0]

    @classmethod
    def _put_to_all(
        cls,
        problems: Sequence[Problem],
        models: Sequence[TransitionModel] | HasMembers | TransitionModel,
        *,
        objective: str | float,
    ) -> list[EnsembleProblem]:
        members = members_of([problems[0].model, *members_of(models)])[1:]
        by_member = [put_all_to(problems, model) for model in members]
        for number, answers in enumerate(by_member):
            if not all(
                torch.equal(one.context, first.context) for one, first in zip(answers, by_member[0], strict=True)
            ):
                raise InputError(
                    f"ensemble problem: member {number} sees another context than member 0 (subject effects of its "
                    "own, or none); fit all of them together (fit_with_effects)."
                )
        standing, notes, weights = _standing(models), _notes(models), member_weights(models)
        return [
            cls(
                **_shared(problem)
                | {
                    "context": answers[0].context,
                    "noise": torch.stack([one.noise for one in answers], dim=1),
                    "standing": standing,
                    "query": problem.query.with_changes(objective=objective),
                },
                member_models=tuple(one.model for one in answers),
                notes=notes,
                weights=weights,
                labels=_labels(models),
            )
            for problem, *answers in zip(problems, *by_member, strict=True)
        ]

    @cached_property
    def objective(self) -> Objective:
        """How the members' outcomes are combined."""
        assert self.query.objective is not None, "set when the problem was built"
        return Objective(self.query.objective, self.weights)

    @property
    def support_share(self) -> float:
        """The share of members at whose own states a change must be supported."""
        return self.query.support_share

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
        """The same problem put to each member alone, with that member's standing."""
        return tuple(
            Problem(**{**_shared(self), "noise": self.noise[:, number], "standing": model.standing}, model=model)
            for number, model in enumerate(self.member_models)
        )

    def _answered_by(self, model: Sequence[TransitionModel] | HasMembers | TransitionModel) -> dict[str, Any]:
        # Copies of the same members, which keep their weights.
        return {"member_models": tuple(members_of(model))}

    def advance(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """Every member's step, each from its own states under its own noise."""
        following = [
            model.step(states[..., number, :], context, actions, noise[..., number, :])
            for number, model in enumerate(self.member_models)
        ]
        return torch.stack(following, dim=-2)

    def counted(self, totals: Tensor) -> Tensor:
        """The objective [...] of the members' sums of rewards [..., M]; NaN where one is infinitely good."""
        # As with one model, plus infinity is a broken outcome, even of a member that would not count.
        return torch.where((totals == torch.inf).any(-1), torch.nan, self.objective(totals))

    def are_supported(self, t: int, states: Tensor, context: Tensor) -> Tensor:
        """Which actions [N, A] enough members support, each at its own state of [N, M, D]."""
        if self.support is None:
            return super().are_supported(t, states, context)
        count, members = states.shape[:2]
        rows = context.unsqueeze(1).expand(-1, members, -1).flatten(0, 1)
        votes = super().are_supported(t, states.flatten(0, 1), rows).unflatten(0, (count, members)).sum(1)
        # Less a little: 0.7 * 10 is above 7 in floating point.
        enough: Tensor = votes >= max(1, math.ceil(self.support_share * members - 1e-9))
        return enough

    def shown_states(self, states: Tensor, totals: Tensor) -> Tensor:
        """Of states [B, T, M, D], the mean over members or, by totals [B, M], those of the member that decides."""
        chosen = self.objective.member(totals)
        if chosen is None:
            return self.objective.mean(states, dim=-2)
        return states[torch.arange(len(states), device=states.device), :, chosen]

    def fingerprint(self) -> str:
        """A hash of the members and their weights."""
        return members_fingerprint([model.fingerprint() for model in self.member_models], self.weights)

    def claims(self) -> dict[str, Any]:
        """The objective, the number of members, their weights, and the support that changes need, if any."""
        share = {} if self.support is None else {"support_share": self.support_share}
        weights = {} if self.weights is None else {"weights": list(self.weights)}
        said = {"objective": self.objective.goal, "members": len(self.member_models), **weights}
        return {**said, **super().claims(), **share}


def members_fingerprint(fingerprints: Sequence[str], weights: Sequence[float] | None = None) -> str:
    """A hash of the members' fingerprints and, unless these are equal, of their weights."""
    told = [*fingerprints, *(repr(float(weight)) for weight in weights or ())]
    return hashlib.sha256(" ".join(told).encode()).hexdigest()[:16]


def build_problems(
    episodes: Sequence[Episode],
    model: TransitionModel,
    query: Query,
    *,
    support: Support | SupportSource | None = None,
    device: torch.device | str = "cpu",
) -> Sequence[Problem | EnsembleProblem]:
    """The query put to every episode: to one model or, if it has an objective, to all members of an ensemble at once.

    If one episode is refused, so are all.
    """
    kind: type[Problem] | type[EnsembleProblem] = Problem if query.objective is None else EnsembleProblem
    return kind.from_episodes(episodes, model, query, support=support, device=device)


def build_problem(
    episode: Episode,
    model: TransitionModel,
    query: Query,
    *,
    support: Support | SupportSource | None = None,
    device: torch.device | str = "cpu",
) -> Problem | EnsembleProblem:
    """The query put to one episode: `build_problems` of one."""
    return build_problems([episode], model, query, support=support, device=device)[0]


def _shared(problem: BaseProblem) -> dict[str, Any]:
    """The fields that do not depend on the models."""
    return {field.name: getattr(problem, field.name) for field in fields(BaseProblem)}


def _standing(models: Sequence[TransitionModel] | HasMembers | TransitionModel) -> Standing | None:
    """The standing of an ensemble as a whole, or the worst one of a list, which passes only if all models do."""
    if not isinstance(models, Sequence):
        return getattr(models, "standing", None)
    standings = [getattr(model, "standing", None) for model in models]
    worst = worst_of(standings)
    return None if worst is not None and worst.verdict == "pass" and None in standings else worst


def _labels(models: Any) -> tuple[MemberLabel, ...]:
    return tuple(getattr(models, "labels", ()))


def _notes(models: Any) -> tuple[EnsembleNote, ...]:
    return tuple(getattr(models, "notes", ()))


def member_weights(models: Any) -> tuple[float, ...] | None:
    """The weights of an ensemble's members, with a sum of 1; None if they are equal, as in a list."""
    weights = getattr(models, "weights", None)
    return None if weights is None else Objective("mean", tuple(weights)).weights


def members_of(models: Sequence[TransitionModel] | HasMembers | TransitionModel) -> list[TransitionModel]:
    """The models of an ensemble problem, from a list or an ensemble; all must share their scaling."""
    given = models if isinstance(models, Sequence) else getattr(models, "members", None)
    if not given:
        raise InputError(
            "ensemble problem: a single model has no refits and no members of other kinds beside it; fit some "
            "(`ifonly fit --ensemble kinds` or `ifonly fit --ensemble 20`), or give a list of at least one model."
        )
    members = list(given)
    for number, model in enumerate(members):
        if not isinstance(model, TransitionModel):
            raise InputError(f"ensemble problem: member {number} is no model but {type(model).__name__}.")
    first = members[0]
    for number, model in enumerate(members):
        first.schema.require_same(model.schema, here="member 0 of the ensemble problem", there=f"member {number}")
        if model.scaler is not first.scaler and model.scaler.to_dict() != first.scaler.to_dict():
            raise InputError(
                f"ensemble problem: member {number} has another scaling than member 0: states differ in meaning; "
                "give all of them one scaler when they are fitted, as an ensemble does."
            )
    return members
