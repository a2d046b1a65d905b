"""Subject effects: what lasts in a subject's noise, learned from all of its steps and held fixed in counterfactuals.

A subject whose noise keeps to one side has something that nobody recorded. Its mean noise, shrunk by how much of the
noise's variance lies between subjects, is its effect, one number for each dynamic feature. A model is fitted without
effects, and then trained on with them as columns of its context: before every epoch they follow from the noise that it
has by now. This noise is that of the model where nobody has effects: what effects explained is explained anew.

An episode's effect is inferred from its recorded steps, as its noise is. It is part of the context, so counterfactuals
cannot change it, and exactness, bounds and proofs are those of any model with such a context.

A fit sees draws of effects, from what the noise of its subjects leaves open (`Shrinkage.draw`). Their means would be
in part the luck of the very steps that they are to explain: a fit would take this luck for what lasts, and what
persists in a state for a constant of its subject (the incidental parameters of short panels). Draws know how a subject
began and was treated, too; without that they would be drawn as if what lasts were the same, on average, in all who are
treated differently, and a part of the confounding would stay (the correlated random effects of Mundlak and
Chamberlain). Epoch by epoch, this is stochastic EM. The effect of a new episode is a mean, and the likelihood of its
steps is flattered by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.cohort import Cohort, Transitions
from ifonly.data.episode import Episode, FloatArray, IntArray, Origin
from ifonly.data.scaling import Columns, Link, Scaler
from ifonly.data.schema import Feature, Schema
from ifonly.errors import InputError
from ifonly.models.base import TrainableModel, class_of
from ifonly.models.fit_report import EffectShare
from ifonly.models.noise import NoisePrior
from ifonly.models.smooth import SmoothStep
from ifonly.records import from_plain, to_plain

LARGEST_NOISE = 4.0
"""Noise counts up to so many deviations: a few extreme steps must not decide what lasts."""

CHANCE = 2.0
"""Standard errors by which means of subjects must vary more than chance lets them; else a feature has no effect."""

ENOUGH_SUBJECTS = 3
"""As many for each thing that is told of them; else nothing is expected of a subject before its noise is seen."""

LEAST_LEFT = 0.05
"""Of the variance between subjects, what stays open at least, whatever is told of them."""


@dataclass(frozen=True)
class Shrinkage:
    """What turns noise into effects, learned once from the subjects that a model was fitted to; tuples are [D].

    Noise is in units of the prior's deviation. With n counted steps of mean m, a subject's effect is
    n / (n + within / between) * (m - centre): its expected effect, given them, if both kinds of variation are normal.
    """

    deviation: tuple[float, ...]
    centre: tuple[float, ...]
    within: tuple[float, ...]
    """Variance of the noise around its subject's mean."""
    between: tuple[float, ...]
    """Variance of the subjects' means; 0 where it cannot be told from chance, and then all effects are."""

    @classmethod
    def learn(
        cls, model: TrainableModel, cohort: Cohort, lasting: Sequence[bool] | None = None
    ) -> tuple[Shrinkage, tuple[EffectShare, ...]]:
        """Variance components of the noise of a cohort's subjects, and what a report says of them.

        The usual estimates of a one-way layout with groups of unequal sizes: mean squares within and between, feature
        by feature, over measured entries. Only features that are `lasting` have effects, if that is said.
        """
        found = model.for_search()
        with torch.no_grad():
            deviation = found.prior.covariance().diagonal().sqrt().numpy()
        noise = _Noise.of(found, cohort, deviation)
        groups = noise.grouped(_subjects(cohort))
        counts, total = groups.counts, groups.counts.sum(0)
        centre = groups.sums.sum(0) / np.maximum(total, 1)
        means = groups.sums / np.maximum(counts, 1)
        subjects = (counts > 0).sum(0)
        around = np.where(noise.counted, noise.values - means[groups.of_row], 0.0)
        within = (around**2).sum(0) / np.maximum(total - subjects, 1)
        square = (counts * (means - centre) ** 2).sum(0) / np.maximum(subjects - 1, 1)
        typical = (total - (counts**2).sum(0) / np.maximum(total, 1)) / np.maximum(subjects - 1, 1)
        known = (subjects > 1) & (total > subjects) & (within > 0) & (True if lasting is None else np.array(lasting))
        beyond = within * (1 + CHANCE * np.sqrt(2 / np.maximum(subjects - 1, 1)))
        between = np.where(known & (square > beyond), (square - within) / np.maximum(typical, 1e-12), 0.0)
        learned = cls(*(tuple(float(value) for value in column) for column in (deviation, centre, within, between)))
        steps = total / np.maximum(subjects, 1)
        weight = np.where(between > 0, steps * between / np.maximum(steps * between + within, 1e-300), 0.0)
        share = np.where(between > 0, between / np.maximum(between + within, 1e-300), 0.0)
        names = [feature.name for feature in cohort.schema.dynamic]
        rows = zip(names, share.tolist(), weight.tolist(), strict=True)
        return learned, tuple(EffectShare(*row) for row in rows)

    def is_sound(self, size: int) -> bool:
        """Whether these are numbers for so many features that effects can be computed with."""
        columns = (self.deviation, self.centre, self.within, self.between)
        finite = all(len(column) == size and all(map(math.isfinite, column)) for column in columns)
        return finite and min(self.deviation) > 0 and min(self.within) >= 0 and min(self.between) >= 0

    def effects(self, sums: FloatArray, counts: FloatArray) -> FloatArray:
        """Effects [..., D] from sums of noise and how many entries they are."""
        centre, within, between = (np.array(values) for values in (self.centre, self.within, self.between))
        weights = np.where(between > 0, between / np.where(between > 0, counts * between + within, 1.0), 0.0)
        return np.asarray(weights * (sums - counts * centre))

    def draw(self, model: TrainableModel, cohort: Cohort, generator: np.random.Generator) -> FloatArray:
        """The effect [T, D] at every step, drawn for each subject from what its noise leaves open.

        With n counted steps of mean noise m, an effect is normal with mean (n b m + w p) / (n b + w) and variance
        w b / (n b + w): p is what subjects have who begin and are treated like this one, b the variance around it and w
        that within subjects.
        """
        noise = _Noise.of(model, cohort, np.array(self.deviation))
        groups = noise.grouped(_subjects(cohort))
        centre, within, between = (np.array(values) for values in (self.centre, self.within, self.between))
        means = np.where(groups.counts > 0, groups.sums / np.maximum(groups.counts, 1) - centre, 0.0)
        expected, around = _expected(means, _told_of_subjects(model, cohort))
        around -= within * (1 / np.maximum(groups.counts, 1)).mean(0)  # of means of so many steps
        left = np.clip(around, LEAST_LEFT * between, between)
        total = np.where(between > 0, groups.counts * left + within, 1.0)
        mean = np.where(between > 0, (groups.counts * left * means + within * expected) / total, 0.0)
        drawn = mean + np.sqrt(within * left / total) * generator.standard_normal(mean.shape)
        return np.asarray(drawn[groups.of_step])

    def of_each_step(self, model: TrainableModel, record: Episode | Cohort, *, others: bool = False) -> FloatArray:
        """The effect [T, D] at every step: that of the subject, of all of its steps in the record.

        With `others` it is that of all other ones: no step has a part in the effect that explains it.
        """
        noise = _Noise.of(model, record, np.array(self.deviation))
        groups = noise.grouped(_subjects(record))
        sums, counts = groups.sums[groups.of_step], groups.counts[groups.of_step]
        if others:
            steps = np.arange(len(noise.episode)) + noise.episode  # an episode has one more step than transitions
            sums[steps] -= noise.values
            counts[steps] -= noise.counted
        return self.effects(sums, counts)


def _expected(means: FloatArray, told: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The regression of means [S, D] on what is told of subjects [S, P]: what it expects, and the variance left [D]."""
    rank = int(np.linalg.matrix_rank(told))
    if len(told) < ENOUGH_SUBJECTS * rank:
        return np.zeros_like(means), means.var(0)
    expected = told @ np.linalg.lstsq(told, means, rcond=None)[0]
    return expected, ((means - expected) ** 2).sum(0) / (len(told) - rank)


def _told_of_subjects(model: TrainableModel, cohort: Cohort) -> FloatArray:
    """Of each subject [S, P] a constant, the states in which its episodes begin, and its actions, all on average."""
    subjects = _subjects(cohort)
    begun = model.scaler.states.encode(cohort.states[cohort.offsets[:-1]])
    taken = model.action_vectors.cpu().numpy()[cohort.actions]
    columns = [np.ones((subjects.max() + 1, 1)), _means(begun, subjects)]
    return np.concatenate([*columns, _means(taken, np.repeat(subjects, cohort.lengths))], axis=1)


def _means(values: FloatArray, group: IntArray) -> FloatArray:
    """Means [S, P] of rows [N, P] by their group."""
    sums = np.zeros((int(group.max()) + 1, values.shape[1]))
    np.add.at(sums, group, values)
    return sums / np.bincount(group)[:, None]


@dataclass(frozen=True)
class _Groups:
    """Noise added up by subject; S subjects, N transitions, T steps."""

    sums: FloatArray  # [S, D]
    counts: FloatArray  # [S, D]
    of_row: IntArray  # [N]
    of_step: IntArray  # [T]


@dataclass(frozen=True)
class _Noise:
    """Abducted noise in units of its deviation, and which entries of it count."""

    values: FloatArray  # [N, D]
    counted: npt.NDArray[np.bool_]  # [N, D]
    episode: IntArray  # [N]
    lengths: IntArray  # [E]

    @classmethod
    @torch.no_grad()
    def of(cls, model: TrainableModel, record: Episode | Cohort, deviation: FloatArray) -> _Noise:
        """The noise of every transition; `model` is a copy for search."""
        rows = record.transitions() if isinstance(record, Cohort) else _transitions_of(record)
        lengths = record.lengths if isinstance(record, Cohort) else np.array([len(record)])
        added = np.zeros((len(rows), len(model.schema.context) - rows.context.shape[1]))  # as if nobody had effects
        context = model.scaler.context.encode(np.concatenate([rows.context, added], axis=1))
        device = model.action_vectors.device

        def tensor(values: FloatArray) -> Tensor:
            return torch.as_tensor(values, dtype=torch.float64, device=device)

        scale = model.scaler.states.encode
        actions = torch.tensor(rows.actions, device=device)
        noise = model.abduct(tensor(scale(rows.states)), tensor(context), actions, tensor(scale(rows.next_states)))
        values = noise.cpu().numpy() / deviation
        counted = np.isfinite(values)
        if rows.measured is not None:
            # Where features do not each have noise of their own, every noise follows from the whole next state.
            counted &= rows.measured if model.elementwise else rows.measured.all(1, keepdims=True)
        limited = np.clip(np.where(counted, values, 0.0), -LARGEST_NOISE, LARGEST_NOISE)
        return cls(limited, counted, rows.episode, lengths)

    def grouped(self, subject_of_episode: IntArray) -> _Groups:
        """Sums and counts by subject."""
        of_row = subject_of_episode[self.episode]
        shape = (int(subject_of_episode.max()) + 1, self.values.shape[1])
        sums, counts = np.zeros(shape), np.zeros(shape)
        np.add.at(sums, of_row, self.values)
        np.add.at(counts, of_row, self.counted)
        return _Groups(sums, counts, of_row, np.repeat(subject_of_episode, self.lengths))


def _subjects(record: Episode | Cohort) -> IntArray:
    """The number of each episode's subject [E]."""
    names = record.subjects if isinstance(record, Cohort) else (record.subject,)
    return np.asarray(np.unique(np.array(names), return_inverse=True)[1], dtype=np.int64)


def _transitions_of(episode: Episode) -> Transitions:
    return Transitions(
        states=episode.states[:-1],
        context=episode.context[:-1],
        actions=episode.actions[:-1],
        next_states=episode.states[1:],
        episode=np.zeros(len(episode) - 1, dtype=np.int64),
        measured=None if episode.origins is None else episode.origins[1:] == Origin.MEASURED,
    )


def with_effects(schema: Schema) -> Schema:
    """The schema with one more context column for each dynamic feature: its effect, in deviations of its noise."""
    # Not scaled, so that a small effect stays small.
    effects = [Feature(f"effect on {feature.name}", "static", scaling="none") for feature in schema.dynamic]
    return replace(schema, features=(*schema.features, *effects))


def _without_effects(schema: Schema) -> Schema:
    """What `with_effects` was given."""
    plain = replace(schema, features=schema.features[: -len(schema.dynamic)])
    if not plain.dynamic or with_effects(plain).features != schema.features:
        raise InputError("subject effects: models must have a context column for the effect on each dynamic feature.")
    return plain


def _narrower(scaler: Scaler, schema: Schema) -> Scaler:
    """What `_wider` was given."""
    columns, count = scaler.context, len(schema.context)
    return replace(scaler, context=Columns(columns.offset[:count], columns.scale[:count], Link.of(schema.context)))


def _wider(scaler: Scaler, schema: Schema) -> Scaler:
    """The scaling of a schema with effects, whose other columns have the scaling `scaler`."""
    added = len(schema.context) - len(scaler.context.offset)
    columns = Columns(
        np.concatenate([scaler.context.offset, np.zeros(added)]),
        np.concatenate([scaler.context.scale, np.ones(added)]),
        Link.of(schema.context),
    )
    return replace(scaler, context=columns)


def like(model: TrainableModel, schema: Schema) -> TrainableModel:
    """An untrained model of the same kind and settings for another schema."""
    return type(model).from_settings(schema, model.settings(), Scaler.identity(schema))


class SubjectEffectModel(TrainableModel):
    """The `second` model, whose context has effects that the `first` one's noise gives; `fit_with_effects` makes it.

    They may be of different kinds. Both are of the schema `with_effects`; the
    noise that gives effects is that of the first where nobody has any.

    To others it is a model of the cohort's schema: it infers the effects of an episode, or of the subjects of a cohort,
    when it encodes their context. Those of an episode by itself rest on this episode alone; in a cohort, all episodes
    of a subject share one.
    """

    kind: ClassVar[str] = "subject-effect"

    def __init__(self, first: TrainableModel, second: TrainableModel, shrinkage: Shrinkage) -> None:
        first.schema.require_same(second.schema, here="the first model", there="the second")
        schema = _without_effects(first.schema)
        super().__init__(schema, _narrower(first.scaler, schema))
        self.elementwise = second.elementwise  # type: ignore[misc]  # that of the class it is made of
        self.shrinkage = shrinkage
        self.first = first
        self.second = second
        self.set_scaler(self.scaler)

    @property
    def prior(self) -> NoisePrior:  # type: ignore[override]  # the second model holds it
        """The noise prior of the second model."""
        return self.second.prior

    @property
    def context_size(self) -> int:
        """What was recorded, and one effect for each dynamic feature."""
        return self.second.context_size

    def encode_context(self, record: Episode | Cohort) -> FloatArray:
        """The recorded context and the effects [T, C + D]; always in float64, whatever the weights' precision."""
        return self._encode_context(record, others=False)

    def encode_context_by_others(self, record: Episode | Cohort) -> FloatArray:
        """The same with the effect of all other steps at each: steps then judge effects that they had no part in."""
        return self._encode_context(record, others=True)

    def _encode_context(self, record: Episode | Cohort, *, others: bool) -> FloatArray:
        device = self.action_vectors.device
        model = self.first if self.first.is_for_search(device) else self.first.for_search(device)
        effects = self.shrinkage.of_each_step(model, record, others=others)
        return np.concatenate([super().encode_context(record), effects], axis=1)

    def set_scaler(self, scaler: Scaler) -> None:
        """Take over the coordinates that `scaler` defines, in both models."""
        super().set_scaler(scaler)
        if "second" in self._modules:
            for model in (self.first, self.second):
                model.set_scaler(_wider(scaler, model.schema))

    def step(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """The second model's next states [..., D]."""
        return self.second.step(states, context, actions, noise)

    def invert(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> tuple[Tensor, Tensor]:
        """The second model's noise [..., D] and log slopes [..., D]."""
        return self.second.invert(states, context, actions, next_states)

    def lipschitz(self, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """The second model's constants [...]."""
        return self.second.lipschitz(context, actions, noise)

    def noise_slopes(self, states: Tensor, context: Tensor, actions: Tensor) -> Tensor | None:
        """The second model's."""
        own = type(self).step is SubjectEffectModel.step
        return self.second.noise_slopes(states, context, actions) if own else None

    def smooth(self) -> SmoothStep | None:
        """The second model's."""
        return self.second.smooth()

    def initialize(self, generator: torch.Generator) -> None:
        """Refused: it takes several rounds."""
        raise InputError("a model with subject effects takes several rounds; call fit_with_effects with a plain one.")

    def bake_(self) -> None:
        """Compute once what depends on the weights alone, in both models."""
        self.first.bake_()
        self.second.bake_()

    def is_baked(self) -> bool:
        """Whether there is nothing to gain from `bake_`."""
        return self.first.is_baked() and self.second.is_baked()

    def settings(self) -> dict[str, Any]:
        """Of what kind both models are, and what turns noise into effects."""
        models = {name: {"of": one.kind, "settings": one.settings()} for name, one in self._both().items()}
        return {**models, "shrinkage": to_plain(self.shrinkage)}

    def _both(self) -> dict[str, TrainableModel]:
        return {"first": self.first, "second": self.second}

    @classmethod
    def from_settings(cls, schema: Schema, settings: Mapping[str, Any], scaler: Scaler) -> Self:
        """The model that `settings` described, before its weights are loaded."""
        shrinkage = from_plain(Shrinkage, settings["shrinkage"], what="subject effects")
        if not shrinkage.is_sound(len(schema.dynamic)):
            raise InputError("subject effects: needs positive deviations and variances, one for each dynamic feature.")
        wide = with_effects(schema)
        first, second = (_from_settings(wide, settings[name]) for name in ("first", "second"))
        model = cls(first, second, shrinkage)
        model.set_scaler(scaler)
        return model


def _from_settings(schema: Schema, settings: Mapping[str, Any]) -> TrainableModel:
    kind = class_of(settings["of"])
    if kind is None or not issubclass(kind, TrainableModel) or issubclass(kind, SubjectEffectModel):
        raise InputError(f"subject effects: {settings['of']!r} is no kind of model that can have them.")
    return kind.from_settings(schema, settings["settings"], Scaler.identity(schema))
