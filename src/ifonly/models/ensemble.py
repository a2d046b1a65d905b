"""Ensembles: one model fitted to everyone, and others that show how far the data determine it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from ifonly.data.cohort import Cohort
from ifonly.data.episode import Episode, FloatArray
from ifonly.data.scaling import Scaler
from ifonly.data.schema import Schema
from ifonly.errors import InputError
from ifonly.models.base import TrainableModel, class_of
from ifonly.models.fit_report import FitReport
from ifonly.models.noise import NoisePrior
from ifonly.models.smooth import SmoothStep
from ifonly.models.standing import EnsembleNote, MemberLabel
from ifonly.records import from_plain, to_plain


class Ensemble(TrainableModel):
    """M members of one schema and scaling, and the `centre`, the model whose answers are theirs.

    `step`, `abduct`, `lipschitz`, `smooth`, density and samples are those of the centre, which `fit_ensemble` fits to
    all subjects: the best single answer, and a bijective model because each of its class is. (An average of the
    members would not do in general: the average of inverses is not the inverse of the average.) The `members` are
    models like any other; put a question to each, or to all of them at once, to see what refitting changes. They may
    be refits of the centre's model, or of different kinds; `labels` say which, and what each of them counts.

    Take members with `ensemble[3]`, `ensemble.members` or a loop. Without a `centre` the first member takes its place.
    """

    kind: ClassVar[str] = "ensemble"

    def __init__(
        self,
        members: Sequence[TrainableModel],
        *,
        centre: TrainableModel | None = None,
        notes: Sequence[EnsembleNote] = (),
        labels: Sequence[MemberLabel] | None = None,
    ) -> None:
        if not members:
            raise InputError("ensemble: needs at least one member.")
        centre = centre if centre is not None else members[0]
        _check_alike([centre, *members])
        super().__init__(centre.schema, centre.scaler)
        self.elementwise = centre.elementwise  # type: ignore[misc]  # that of the class it is made of
        self.notes = tuple(notes)
        """What a reader of the members' agreement should know: few subjects, actions that a refit never saw, ..."""
        self.labels = _checked_labels(labels, len(members))
        """Who each member is [M]; without them, refits that all count the same."""
        self.centre = centre
        self.refits = nn.ModuleList(members)
        self.set_scaler(centre.scaler)

    @property
    def members(self) -> tuple[TrainableModel, ...]:
        """The refits [M]."""
        return tuple(self.refits)  # type: ignore[arg-type]

    @property
    def weights(self) -> tuple[float, ...]:
        """What each member counts [M], with a sum of 1."""
        total = math.fsum(label.weight for label in self.labels)
        return tuple(label.weight / total for label in self.labels)

    def __len__(self) -> int:
        return len(self.refits)

    def __getitem__(self, number: int) -> TrainableModel:
        return self.members[number]

    def __iter__(self) -> Iterator[TrainableModel]:
        return iter(self.members)

    def __bool__(self) -> bool:
        return True

    @property
    def prior(self) -> NoisePrior:  # type: ignore[override]  # the centre holds it
        """The noise prior of the centre."""
        return self.centre.prior

    @property
    def context_size(self) -> int:
        """The centre's."""
        return self.centre.context_size

    def encode_context(self, record: Episode | Cohort) -> FloatArray:
        """The centre's, and that of all members."""
        return self.centre.encode_context(record)

    def set_scaler(self, scaler: Scaler) -> None:
        """Take over the coordinates that `scaler` defines, in all models."""
        super().set_scaler(scaler)
        for model in self._models():
            model.set_scaler(scaler)

    def step(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """The centre's next states [..., D]."""
        return self.centre.step(states, context, actions, noise)

    def invert(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> tuple[Tensor, Tensor]:
        """The centre's noise [..., D] and log determinant [...]."""
        return self.centre.invert(states, context, actions, next_states)

    def lipschitz(self, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """The centre's constants [...]."""
        return self.centre.lipschitz(context, actions, noise)

    def noise_slopes(self, states: Tensor, context: Tensor, actions: Tensor) -> Tensor | None:
        """The centre's."""
        return self.centre.noise_slopes(states, context, actions) if type(self).step is Ensemble.step else None

    def smooth(self) -> SmoothStep | None:
        """The centre's."""
        return self.centre.smooth()

    def initialize(self, generator: torch.Generator) -> None:
        """Refused: an ensemble is not trained as one model."""
        raise InputError("an ensemble cannot be fitted as a model; call fit_ensemble with a model like its members.")

    def bake_(self) -> None:
        """Compute once what depends on the weights alone, in all models."""
        for model in self._models():
            model.bake_()

    def is_baked(self) -> bool:
        """Whether there is nothing to gain from `bake_`."""
        return all(model.is_baked() for model in self._models())

    def settings(self) -> dict[str, Any]:
        """Who the members are, each with `of`, its class, its `settings` and its `label`; `centre` says whether the
        centre is a model of its own. Members like the centre that all count the same are merely counted."""
        own = {"centre": self.centre not in self.members, "of": self.centre.kind, "settings": self.centre.settings()}
        if all(label == MemberLabel() for label in self.labels) and all(_alike(self.centre, one) for one in self):
            return {"members": len(self), **own}
        listed = [
            {"of": model.kind, "settings": model.settings(), "label": to_plain(label)}
            for model, label in zip(self.members, self.labels, strict=True)
        ]
        return {"members": listed, **own}

    @classmethod
    def from_settings(cls, schema: Schema, settings: Mapping[str, Any], scaler: Scaler) -> Self:
        """The ensemble that `settings` described, before its weights are loaded."""

        def model(one: Mapping[str, Any]) -> TrainableModel:
            kind = class_of(one["of"])
            if kind is None or not issubclass(kind, TrainableModel) or issubclass(kind, Ensemble):
                raise InputError(f"ensemble: {one['of']!r} is no kind of model that an ensemble can be made of.")
            return kind.from_settings(schema, one["settings"], scaler)

        centre = model(settings) if settings["centre"] else None
        listed = settings["members"]
        if not isinstance(listed, list):
            return cls([model(settings) for _ in range(int(listed))], centre=centre)
        labels = [from_plain(MemberLabel, one["label"], what="ensemble: member") for one in listed]
        return cls([model(one) for one in listed], centre=centre, labels=labels)

    def describe_fit(self) -> dict[str, Any] | None:
        """The reports of all models, and the notes."""
        return {
            "centre": self.centre.describe_fit(),
            "members": [member.describe_fit() for member in self.members],
            "notes": [to_plain(note) for note in self.notes],
        }

    def recall_fit(self, content: Mapping[str, Any]) -> None:
        """Take over what `describe_fit` gave."""
        for model, report in zip(self._models(), (content["centre"], *content["members"]), strict=True):
            if report is not None:
                model.recall_fit(report)
        self.notes = tuple(from_plain(EnsembleNote, note, what="ensemble: note") for note in content["notes"])

    @property
    def fit_report(self) -> FitReport | None:  # type: ignore[override]  # the centre holds it
        """How the centre's training went; the members have reports of their own."""
        return self.centre.fit_report

    def _models(self) -> list[TrainableModel]:
        """The centre, then the members; none while the ensemble is being built."""
        return [self.centre, *self.members] if "refits" in self._modules else []


def _check_alike(models: Sequence[TrainableModel]) -> None:
    first = models[0]
    for model in models:
        if not isinstance(model, TrainableModel) or isinstance(model, Ensemble):
            raise InputError(f"ensemble: {type(model).__name__} cannot be a member; members are trainable models.")
        first.schema.require_same(model.schema, here="the first model of the ensemble", there="another one")
        if model.scaler.to_dict() != first.scaler.to_dict():
            raise InputError(
                "ensemble: members have different scalings, so their states and distances could not be compared; "
                "fit them together with fit_ensemble."
            )
        if model.context_size != first.context_size:
            raise InputError(
                f"ensemble: members see contexts of {first.context_size} and {model.context_size} columns; fit all of "
                "them with subject effects, or none."
            )


def _alike(first: TrainableModel, other: TrainableModel) -> bool:
    return type(other) is type(first) and other.settings() == first.settings()


def _checked_labels(labels: Sequence[MemberLabel] | None, count: int) -> tuple[MemberLabel, ...]:
    found = (MemberLabel(),) * count if labels is None else tuple(labels)
    if len(found) != count:
        raise InputError(f"ensemble: {len(found)} labels for {count} members; give one for each, or none.")
    return found
