"""Many episodes of one schema, as columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt

from ifonly.data.control_logs import log_episodes
from ifonly.data.episode import (
    Episode,
    FloatArray,
    IntArray,
    Origin,
    OriginArray,
    Rows,
    as_actions,
    as_matrix,
    as_origins,
    check_ids,
    check_rows,
    check_static,
    count_implausible,
    warn_implausible,
)
from ifonly.data.minari import load_minari, store_in_minari
from ifonly.data.plain import did_you_mean, repeated
from ifonly.data.schema import Schema
from ifonly.data.summary import CohortSummary
from ifonly.errors import InputError
from ifonly.markup import html_text


@dataclass(frozen=True)
class Transitions:
    """Every recorded transition of a cohort, row by row, in original units."""

    states: FloatArray  # [N, D]
    context: FloatArray  # [N, C], at the step of `states`
    actions: IntArray  # [N]
    next_states: FloatArray  # [N, D]
    episode: IntArray  # [N], position of the episode in the cohort
    measured: npt.NDArray[np.bool_] | None = None  # [N, D], which entries of `next_states` were measured; None: all

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True, eq=False)
class Cohort:
    """Episodes of one schema, stored as columns; episode e occupies rows offsets[e]:offsets[e+1].

    Index it by position or by id, slice it, iterate over it, `filter`, `select`, `split`, take `transitions`.
    """

    schema: Schema
    ids: tuple[str, ...]
    offsets: IntArray
    states: FloatArray
    context: FloatArray
    actions: IntArray
    subjects: tuple[str, ...] = ()
    origins: OriginArray | None = None
    """Which entries of the states were measured, carried forward or assumed (`Origin`); None: all were measured."""
    implausible: dict[str, int] = field(init=False)
    """Number of values outside the plausible range, per feature."""

    def __post_init__(self) -> None:
        ids = tuple(self.ids)
        subjects = tuple(self.subjects) or ids
        offsets = np.array(self.offsets)
        states = as_matrix("cohort: states", self.states)
        context = as_matrix("cohort: context", self.context)
        _check_layout(ids, subjects, offsets, (len(states), len(context), np.size(self.actions)))
        offsets = offsets.astype(np.int64)

        def locate(row: int) -> str:
            episode = int(np.searchsorted(offsets, row, side="right")) - 1
            return f"episode {ids[episode]!r}, step {row - int(offsets[episode])}"

        origins = as_origins("cohort", self.origins, states.shape)
        rows = Rows(self.schema, states, context, as_actions("cohort", self.actions, locate=locate), origins)
        check_rows(rows, locate=locate)
        check_static(rows, np.repeat(offsets[:-1], np.diff(offsets)), locate=locate)
        counts = count_implausible(rows)
        warn_implausible(counts, f"cohort of {len(ids)} episodes")
        self._set(ids, subjects, offsets, rows.frozen_copy(), counts)

    def _set(
        self, ids: tuple[str, ...], subjects: tuple[str, ...], offsets: IntArray, rows: Rows, counts: dict[str, int]
    ) -> None:
        offsets.flags.writeable = False
        values = {"schema": rows.schema, "ids": ids, "subjects": subjects, "offsets": offsets, "implausible": counts}
        values |= {name: getattr(rows, name) for name in ("states", "context", "actions", "origins")}
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_position", {id: position for position, id in enumerate(ids)})

    @classmethod
    def from_episodes(cls, episodes: Iterable[Episode]) -> Cohort:
        """A cohort of episodes that share a schema."""
        items = list(episodes)
        if not items:
            raise InputError("cohort: needs at least one episode.")
        for item in items[1:]:
            here, there = f"episode {items[0].id!r}", f"episode {item.id!r}"
            advice = "All episodes of a cohort share one schema; make a cohort for each."
            items[0].schema.require_same(item.schema, here=here, there=there, advice=advice)
        return cls(
            schema=items[0].schema,
            ids=tuple(item.id for item in items),
            subjects=tuple(item.subject for item in items),
            offsets=np.cumsum([0, *(len(item) for item in items)]),
            states=np.concatenate([item.states for item in items]),
            context=np.concatenate([item.context for item in items]),
            actions=np.concatenate([item.actions for item in items]),
            origins=np.concatenate(
                [np.zeros_like(item.states) if item.origins is None else item.origins for item in items]
            ),
        )

    @classmethod
    def pool(cls, cohorts: Iterable[Cohort]) -> Cohort:
        """All episodes of several cohorts with the same schema, in their order.

        A subject that is in more than one of them is the same one. Episodes are not: ids must differ (`with_prefix`).
        """
        parts = list(cohorts)
        if not parts:
            raise InputError("pool: needs at least one cohort.")
        for number, part in enumerate(parts[1:], 2):
            advice = "Cohorts are pooled by one schema: import their tables with the same schema file."
            parts[0].schema.require_same(part.schema, here="the first cohort", there=f"cohort {number}", advice=advice)
        twice = repeated([id for part in parts for id in part.ids])
        if twice:
            raise InputError(
                f"pool: {len(twice):,} ids of episodes are in more than one cohort; if these are different episodes, "
                "put a name before the ids of each cohort; else leave one of them out."
            )
        measured = all(part.origins is None for part in parts)
        return cls(
            schema=parts[0].schema,
            ids=tuple(id for part in parts for id in part.ids),
            subjects=tuple(subject for part in parts for subject in part.subjects),
            offsets=np.cumsum([0, *(length for part in parts for length in part.lengths)]),
            states=np.concatenate([part.states for part in parts]),
            context=np.concatenate([part.context for part in parts]),
            actions=np.concatenate([part.actions for part in parts]),
            origins=None
            if measured
            else np.concatenate(
                [np.zeros_like(part.states) if part.origins is None else part.origins for part in parts]
            ),
        )

    @classmethod
    def from_logs(cls, log: Any, schema: Schema | None = None) -> Cohort:
        """A cohort of logged control episodes, each with `observations` [T + 1, D] and `actions` [T].

        `log` is any iterable of episodes, which have these as attributes or as keys; or a dataset of Minari, or of
        d3rlpy, which then need no schema. With a schema, observations are its features in their order. Rewards are
        left aside: a query says what counts.
        """
        return cls.from_episodes(log_episodes(log, schema))

    @classmethod
    def from_minari(cls, dataset: Any, schema: Schema | None = None) -> Cohort:
        """A cohort of a dataset of Minari, or of its name (extra `ifonly[minari]`); see `from_logs`."""
        return cls.from_episodes(log_episodes(load_minari(dataset), schema))

    def to_minari(self, name: str, rewards: Callable[[Episode], Sequence[float]] | None = None, **about: Any) -> Any:
        """Store the cohort as a dataset of Minari, and give that back (extra `ifonly[minari]`).

        Observations are all features in the order of the schema. The last action, of which no effect is recorded, is
        left out; `rewards` gives the rewards [T - 1] of an episode's other actions, which are zero without it. What is
        said besides goes to Minari: `author`, `author_email`, `code_permalink`, `env`, `description` and others.
        """
        return store_in_minari(self, self.schema, name, rewards, about)

    def with_prefix(self, prefix: str) -> Cohort:
        """The same cohort, with this text before the ids of episodes and subjects."""
        ids, subjects = (tuple(f"{prefix}{name}" for name in names) for names in (self.ids, self.subjects))
        check_ids(ids, subjects)
        cohort = object.__new__(Cohort)
        cohort._set(ids, subjects, self.offsets.copy(), self.rows, dict(self.implausible))
        return cohort

    @property
    def rows(self) -> Rows:
        """The steps of all episodes."""
        return Rows(self.schema, self.states, self.context, self.actions, self.origins)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> IntArray:
        """Number of steps of each episode [E]."""
        return np.diff(self.offsets)

    def position(self, id: str) -> int:
        """Where the episode with this id stands in the cohort."""
        positions: dict[str, int] = self._position  # type: ignore[attr-defined]
        if id not in positions:
            raise InputError(
                f"no episode {id!r} in this cohort of {len(self)} (the first is {self.ids[0]!r})."
                f"{did_you_mean(id, self.ids)}"
            )
        return positions[id]

    def __contains__(self, id: object) -> bool:
        return id in self._position  # type: ignore[attr-defined]

    @overload
    def __getitem__(self, key: int | str) -> Episode: ...
    @overload
    def __getitem__(self, key: slice) -> Cohort: ...
    def __getitem__(self, key: int | str | slice) -> Episode | Cohort:
        if isinstance(key, slice):
            return self._take(np.arange(len(self))[key])
        position = self.position(key) if isinstance(key, str) else range(len(self))[key]
        rows = slice(self.offsets[position], self.offsets[position + 1])
        return Episode.trusted(self.ids[position], self.subjects[position], self.rows.take(rows))

    def __iter__(self) -> Iterator[Episode]:
        return (self[position] for position in range(len(self)))

    @overload
    def filter(self, keep: Callable[[Episode], bool]) -> Cohort: ...
    @overload
    def filter(self, keep: Sequence[bool] | npt.NDArray[np.bool_]) -> Cohort: ...
    def filter(self, keep: Callable[[Episode], bool] | Sequence[bool] | npt.NDArray[np.bool_]) -> Cohort:
        """The episodes that `keep` (a function of an episode, or a mask [E]) says yes to."""
        mask = np.array([bool(keep(episode)) for episode in self]) if callable(keep) else np.asarray(keep)
        if mask.shape != (len(self),) or mask.dtype != np.bool_:
            raise InputError(
                f"filter: needs true or false for each of {len(self)} episodes; found {mask.dtype} {list(mask.shape)}."
            )
        return self._take(np.flatnonzero(mask))

    def select(self, ids: Iterable[str]) -> Cohort:
        """The episodes with these ids, in this order."""
        return self._take(np.array([self.position(id) for id in ids], dtype=np.int64))

    def _take(self, positions: IntArray) -> Cohort:
        if positions.size == 0:
            raise InputError("the selection keeps no episode; a cohort needs at least one.")
        lengths = self.lengths[positions]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        index = np.arange(offsets[-1]) + np.repeat(self.offsets[positions] - offsets[:-1], lengths)
        rows = self.rows.take(index)
        ids = tuple(self.ids[p] for p in positions)
        if twice := repeated(ids):
            raise InputError(f"the selection names episode {twice[0]!r} more than once.")
        cohort = object.__new__(Cohort)
        rows.freeze()
        cohort._set(ids, tuple(self.subjects[p] for p in positions), offsets, rows, count_implausible(rows))
        return cohort

    def with_context(self, schema: Schema, context: FloatArray) -> Cohort:
        """The same steps with another context [N, C], as `schema` describes it; all else must be the same."""
        rows = Rows(schema, self.states, np.array(context), self.actions, self.origins)
        names = [f"episode {id!r}" for id in self.ids]
        check_rows(rows, locate=lambda row: names[int(np.searchsorted(self.offsets, row, side="right")) - 1])
        rows.freeze()
        cohort = object.__new__(Cohort)
        cohort._set(self.ids, self.subjects, self.offsets.copy(), rows, count_implausible(rows))
        return cohort

    def split(self, *, by: Literal["subject"] = "subject", test: float = 0.2, seed: int = 0) -> tuple[Cohort, Cohort]:
        """(training, test) cohorts; all episodes of a subject land on the same side."""
        if by != "subject":
            raise InputError(f"split: by={by!r} is unknown; cohorts are split by 'subject'.")
        training, held_out = split_subjects(self.subjects, test=test, seed=seed)
        return self._of_subjects(training), self._of_subjects(held_out)

    def folds(self, count: int, *, seed: int = 0) -> list[tuple[Cohort, Cohort]]:
        """`count` (training, validation) pairs; every subject is in exactly one validation part."""
        subjects = shuffled_subjects(self.subjects, seed)
        if not 2 <= count <= len(subjects):
            raise InputError(f"folds: count={count} must be between 2 and the number of subjects, {len(subjects)}.")
        parts = [set(subjects[start::count]) for start in range(count)]
        return [(self._of_subjects(set(subjects) - part), self._of_subjects(part)) for part in parts]

    def _of_subjects(self, subjects: Iterable[str]) -> Cohort:
        wanted = set(subjects)
        return self.filter([subject in wanted for subject in self.subjects])

    def columns(self) -> dict[str, FloatArray]:
        """The values [N] of every feature over all steps, by name, in the order of the schema."""
        places = {feature.name: (self.states, i) for i, feature in enumerate(self.schema.dynamic)}
        places |= {feature.name: (self.context, i) for i, feature in enumerate(self.schema.context)}
        return {feature.name: places[feature.name][0][:, places[feature.name][1]] for feature in self.schema.features}

    def transitions(self) -> Transitions:
        """Every (state, context, action, next state) of the cohort, episode by episode."""
        last = np.zeros(len(self.actions), dtype=bool)
        last[self.offsets[1:] - 1] = True
        first = np.zeros(len(self.actions), dtype=bool)
        first[self.offsets[:-1]] = True
        episode = np.repeat(np.arange(len(self)), self.lengths)
        return Transitions(
            states=self.states[~last],
            context=self.context[~last],
            actions=self.actions[~last],
            next_states=self.states[~first],
            episode=episode[~last],
            measured=None if self.origins is None else self.origins[~first] == Origin.MEASURED,
        )

    def summary(self) -> CohortSummary:
        """Counts and per-feature figures; prints itself as a short table."""
        return CohortSummary.of(self)

    def fingerprint(self) -> str:
        """A hash of schema, ids, subjects and every value: what a result was computed from."""
        digest = hashlib.sha256(json.dumps([self.schema.fingerprint, self.ids, self.subjects]).encode())
        for array in (self.offsets, self.states, self.context, self.actions, self.origins):
            if array is not None:
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def _repr_html_(self) -> str:
        return html_text(repr(self)) + self.schema._repr_html_()

    def __repr__(self) -> str:
        return f"Cohort({len(self)} episodes, {len(set(self.subjects))} subjects, {len(self.actions)} steps)"


def split_subjects(subjects: Iterable[str], *, test: float, seed: int) -> tuple[list[str], list[str]]:
    """The subjects of the training and of the test part: who is where depends on their names and the seed alone."""
    if not 0 < test < 1:
        raise InputError(f"split: test={test} must lie strictly between 0 and 1.")
    shuffled = shuffled_subjects(subjects, seed)
    size = min(max(1, round(test * len(shuffled))), len(shuffled) - 1)
    if size < 1:
        raise InputError("split: needs at least two subjects.")
    return shuffled[size:], shuffled[:size]


def shuffled_subjects(subjects: Iterable[str], seed: int) -> list[str]:
    """Every subject once, in random order."""
    unique = sorted(set(subjects))
    return [unique[i] for i in np.random.default_rng(seed).permutation(len(unique))]


def _check_layout(
    ids: tuple[str, ...], subjects: tuple[str, ...], offsets: IntArray, sizes: tuple[int, int, int]
) -> None:
    if not ids:
        raise InputError("cohort: needs at least one episode.")
    if len(subjects) != len(ids):
        raise InputError(f"cohort: {len(subjects)} subjects for {len(ids)} episodes; one each is needed.")
    check_ids(ids, subjects)
    if twice := repeated(ids):
        raise InputError(f"cohort: episode id {twice[0]!r} occurs more than once; ids must be unique.")
    states, context, actions = sizes
    if not states == context == actions:
        raise InputError(
            f"cohort: {states} states, {context} context rows and {actions} actions; "
            "there must be one of each per step."
        )
    whole = offsets.shape == (len(ids) + 1,) and offsets.dtype.kind in "iu"
    if not whole or offsets[0] != 0 or offsets[-1] != states:
        raise InputError(
            f"cohort: offsets must be whole numbers from 0 to {states} and have one entry more than episodes."
        )
    lengths = np.diff(offsets.astype(np.int64))
    if lengths.min() < 2:
        position = int(lengths.argmin())
        raise InputError(
            f"episode {ids[position]!r}: has {int(lengths[position])} step(s); an episode needs at least two: leave it "
            "out."
        )
