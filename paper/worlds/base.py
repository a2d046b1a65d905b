"""What the worlds have in common: all that is exogenous is drawn first and kept, so that anything can be replayed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import numpy as np

from ifonly import ActionSpace, Cohort, Feature, Schema
from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.plain import did_you_mean
from ifonly.errors import InputError
from ifonly.rewards import Linear

Scaling = Literal["linear", "bounded"]
"""How features with a hard range are scaled: like all others, or so that no value can leave the range."""

PLAIN = "plain"


@dataclass(frozen=True)
class Quantity:
    """One column of a world, all of which are recorded in the plain variant."""

    name: str
    kind: Literal["static", "contextual", "dynamic"]
    unit: str
    range: tuple[float, float]
    hard: bool = False
    """Whether no value outside the range is possible; otherwise it is only not plausible."""

    def feature(self, scaling: Scaling) -> Feature:
        """As a schema has it."""
        how = scaling if self.hard and self.kind == "dynamic" else "linear"
        return Feature(self.name, self.kind, self.unit, cast(Any, how), self.range)


@dataclass(frozen=True)
class Variant:
    """How much of a world the record shows; as a rule the world, and those who act in it, are the same in all."""

    name: str
    hidden: tuple[str, ...]
    """Columns that are left out."""
    words: str


@dataclass(frozen=True, eq=False)
class Circumstances:
    """All that no action changes, of N episodes of T steps: drawn before anybody acts."""

    static: FloatArray  # [N, P]
    context: FloatArray  # [N, T, C]
    initial: FloatArray  # [N, D]
    noise: FloatArray  # [N, T - 1, M], standard normal, as a rule independent
    whims: (
        FloatArray  # [N, T, A], of those who act: Gumbel noise, which makes their choice a random one; A = 0: unknown
    )

    def take(self, rows: IntArray) -> Circumstances:
        """Those of some episodes."""
        return Circumstances(
            self.static[rows], self.context[rows], self.initial[rows], self.noise[rows], self.whims[rows]
        )


@dataclass(frozen=True, eq=False)
class Course:
    """What truly happens under some action sequences."""

    states: FloatArray  # [N, T, D], in the order of the world's dynamic columns
    outcomes: FloatArray  # [N], higher is better


class World(ABC):
    """A simulator of which everything is known.

    A step is Markov in its columns: the next state follows from state, static and contextual columns, action and noise.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    steps: ClassVar[int]
    step: ClassVar[tuple[float, str]]
    """Length and unit."""
    quantities: ClassVar[tuple[Quantity, ...]]
    """Static, contextual and dynamic columns, in the order of the arrays."""
    actions: ClassVar[ActionSpace]
    penalties: ClassVar[Mapping[str, float]]
    """What is minimised: the sum over all steps of these dynamic columns, so weighted."""
    variants: ClassVar[tuple[Variant, ...]]
    """Those besides the plain one."""

    @abstractmethod
    def advance(
        self, states: FloatArray, static: FloatArray, context: FloatArray, doses: FloatArray, noise: FloatArray
    ) -> FloatArray:
        """The next states [N, D] from states [N, D], static [N, P] and contextual columns [N, C] and noise [N, M].

        `doses` [N, axes] are the vectors of the actions.
        """

    @abstractmethod
    def episodes(self, count: int, seed: int) -> Recording:
        """So many of this world, as those who act in it would have them."""

    def variant(self, name: str) -> Variant:
        """By its name."""
        known = {one.name: one for one in (Variant(PLAIN, (), "everything is recorded"), *self.variants)}
        if name not in known:
            raise InputError(
                f"world {self.name}: no variant {name!r}; choose from {list(known)}.{did_you_mean(name, list(known))}"
            )
        return known[name]

    def under(self, variant: str) -> World:
        """The world in which the episodes of a variant happen: this one, unless a variant is a world of its own."""
        self.variant(variant)
        return self

    def columns(self, kind: str) -> list[str]:
        """Names of the columns of a kind."""
        return [one.name for one in self.quantities if one.kind == kind]

    def schema(self, variant: str = PLAIN, scaling: Scaling = "linear") -> Schema:
        """What is recorded in a variant."""
        hidden = self.variant(variant).hidden
        features = tuple(one.feature(scaling) for one in self.quantities if one.name not in hidden)
        return Schema(features, self.actions, *self.step)

    @property
    def reward(self) -> Linear:
        """Minus the penalties."""
        return Linear({name: -weight for name, weight in self.penalties.items()})

    def outcomes(self, states: FloatArray) -> FloatArray:
        """The outcome [N] of courses [N, T, D]."""
        weights = np.array([self.penalties.get(name, 0.0) for name in self.columns("dynamic")])
        return -np.asarray((states @ weights).sum(axis=1))

    def record(self, count: int, seed: int, variant: str = PLAIN) -> Recording:
        """Episodes of the world of a variant; `Recording.cohort` of the same variant gives what is recorded of them."""
        return self.under(variant).episodes(count, seed)

    def replay(self, circumstances: Circumstances, actions: IntArray) -> Course:
        """What truly happens under the action sequences [N, T] in these circumstances."""
        states = self.run(circumstances, lambda step, _: actions[:, step])
        return Course(states, self.outcomes(states))

    def run(self, given: Circumstances, choose: Callable[[int, FloatArray], IntArray]) -> FloatArray:
        """The states [N, T, D], with actions [N] chosen by step and states [N, D]."""
        vectors = np.array(self.actions.vectors)
        states = np.empty((len(given.initial), self.steps, given.initial.shape[1]))
        states[:, 0] = given.initial
        for t in range(self.steps):
            actions = choose(t, states[:, t])
            if t + 1 < self.steps:
                states[:, t + 1] = self.advance(
                    states[:, t], given.static, given.context[:, t], vectors[actions], given.noise[:, t]
                )
        return states


class DrawnWorld(World):
    """A world whose circumstances are drawn before anybody acts.

    Actions are chosen by its columns and whim alone. So with everything recorded there is no confounding, and a variant
    that hides a column brings it in.
    """

    noises: ClassVar[int]
    """Independent noises of a step (M)."""

    @abstractmethod
    def draw_subjects(self, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Static columns [N, P], contextual ones [N, T, C] and first states [N, D]."""

    @abstractmethod
    def preferences(self, states: FloatArray, static: FloatArray, context: FloatArray) -> FloatArray:
        """How much those who act like each action [N, A]: logits of what they choose."""

    def draw(self, count: int, seed: int) -> Circumstances:
        """Circumstances of so many episodes; actions have no part in them."""
        rng = np.random.default_rng(seed)
        static, context, initial = self.draw_subjects(count, rng)
        noise = rng.standard_normal((count, self.steps - 1, self.noises))
        whims = rng.gumbel(size=(count, self.steps, len(self.actions)))
        return Circumstances(static, context, initial, noise, whims)

    def episodes(self, count: int, seed: int) -> Recording:
        """So many of this world, as those who act in it would have them."""
        given = self.draw(count, seed)
        actions = np.zeros((count, self.steps), dtype=np.int64)

        def choose(step: int, states: FloatArray) -> IntArray:
            liked = self.preferences(states, given.static, given.context[:, step])
            actions[:, step] = (liked + given.whims[:, step]).argmax(axis=1)
            return actions[:, step]

        states = self.run(given, choose)
        return Recording(self, given, states, actions)


@dataclass(frozen=True, eq=False)
class Recording:
    """Episodes of a world, with all that the record does not show."""

    world: World
    circumstances: Circumstances
    states: FloatArray  # [N, T, D]
    actions: IntArray  # [N, T]
    subjects: tuple[str, ...] = ()
    """Of the episodes; where none are named, each is of a subject of its own."""

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Of the episodes."""
        return tuple(f"{self.world.name}-{number:05d}" for number in range(len(self.actions)))

    @property
    def outcomes(self) -> FloatArray:
        """What truly came of each episode [N]."""
        return self.world.outcomes(self.states)

    def cohort(self, variant: str = PLAIN, scaling: Scaling = "linear") -> Cohort:
        """What is recorded in a variant; in the plain one everything that this world has."""
        if variant != PLAIN and self.world.under(variant) is not self.world:
            raise InputError(f"world {self.world.name}: variant {variant!r} is another world; record episodes of that.")
        schema = self.world.schema(variant, scaling)
        count, steps = self.actions.shape
        static = np.repeat(self.circumstances.static[:, None], steps, axis=1)
        fixed = np.concatenate([static, self.circumstances.context], axis=2)
        names = self.world.columns("static") + self.world.columns("contextual")
        shown = [names.index(feature.name) for feature in schema.context]
        dynamic = [self.world.columns("dynamic").index(feature.name) for feature in schema.dynamic]
        return Cohort(
            schema,
            self.ids,
            np.arange(count + 1) * steps,
            self.states[:, :, dynamic].reshape(count * steps, -1),
            fixed[:, :, shown].reshape(count * steps, -1),
            self.actions.reshape(-1),
            subjects=self.subjects,
        )

    def replay(self, ids: Iterable[str], actions: IntArray) -> Course:
        """What would truly have happened in these episodes under the action sequences [N, T]."""
        return self.world.replay(self.circumstances.take(self.places(ids)), actions)

    def places(self, ids: Iterable[str]) -> IntArray:
        """Where these episodes stand [N]."""
        return np.array([self._place[id] for id in ids], dtype=np.int64)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {id: number for number, id in enumerate(self.ids)}


def autoregressive(rng: np.random.Generator, shape: tuple[int, int], *, memory: float, deviation: float) -> FloatArray:
    """Courses [N, T] that come back to zero, with the same deviation at every step."""
    values = np.empty(shape)
    values[:, 0] = rng.standard_normal(shape[0])
    for t in range(1, shape[1]):
        values[:, t] = memory * values[:, t - 1] + np.sqrt(1 - memory**2) * rng.standard_normal(shape[0])
    return deviation * values


def logistic(values: FloatArray) -> FloatArray:
    """From the line to (0, 1)."""
    return np.asarray(1 / (1 + np.exp(-values)))


def shaken(shares: FloatArray, noise: FloatArray) -> FloatArray:
    """Shares in (0, 1) whose log-odds are moved by noise: they stay in (0, 1)."""
    odds = shares / (1 - shares) * np.exp(noise)
    return np.asarray(odds / (1 + odds))
