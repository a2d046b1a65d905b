"""Bootstrap samples of subjects, and notes on what their refits cannot show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.cohort import Cohort
from ifonly.data.episode import IntArray
from ifonly.errors import InputError
from ifonly.models.fit import hold_out_subjects
from ifonly.models.fit_report import DataCounts, FitSettings
from ifonly.models.standing import EnsembleNote

FEW_SUBJECTS = 30
"""Below this many subjects bootstrap samples resemble each other by chance more than the data warrant."""


@dataclass(frozen=True, eq=False)
class BootstrapSample:
    """Which transitions of a cohort a model is trained on, and which are held out from it."""

    seed: int
    """Of the model's initial weights and batches, and of the sample if it was drawn."""
    subjects: IntArray
    """Who is trained on, as often as drawn."""
    rows: Tensor
    """The positions [n] of the transitions trained on, as often as drawn."""
    held_out: Tensor
    """The positions of the transitions that choose the epoch; none if no one is held out."""
    training: DataCounts
    """Episodes and transitions as often as drawn; distinct subjects."""
    validation: DataCounts | None


@dataclass(frozen=True, eq=False)
class Half:
    """One half of the subjects."""

    sample: BootstrapSample
    """Whom of them a model is trained on, and who is held out to choose the epoch."""
    episodes: npt.NDArray[np.bool_]
    """Which episodes [E] are theirs, those held out included."""


@dataclass(frozen=True, eq=False)
class SubjectIndex:
    """The subjects of a cohort by number, and their transitions."""

    cohort: Cohort
    of_episode: IntArray  # [E]
    rows: tuple[IntArray, ...]  # for each subject, the positions of its transitions
    episodes: IntArray  # for each subject, how many it has
    transitions: IntArray

    @classmethod
    def of(cls, cohort: Cohort) -> Self:
        """Number the subjects; one alone is refused."""
        names, of_episode = np.unique(np.array(cohort.subjects), return_inverse=True)
        if len(names) < 2:
            raise InputError(
                "fit_ensemble: the cohort has only one subject, and every sample of it is the same; refits would agree "
                "whatever they were worth. Use fit, or a cohort of more subjects."
            )
        owner = of_episode[cohort.transitions().episode]
        counts = np.bincount(owner, minlength=len(names))
        rows = np.split(np.argsort(owner, kind="stable"), np.cumsum(counts)[:-1])
        return cls(cohort, of_episode, tuple(rows), np.bincount(of_episode, minlength=len(names)), counts)

    def __len__(self) -> int:
        return len(self.rows)

    def everyone(self, settings: FitSettings, seed: int) -> BootstrapSample:
        """The subjects that `fit` would train on, each once, and those it would hold out."""
        _, held_out = hold_out_subjects(self.cohort, settings, seed)
        held = set() if held_out is None else set(held_out.subjects)
        of_name = dict(zip(self.cohort.subjects, self.of_episode.tolist(), strict=True))
        excluded = np.array([of_name[name] for name in held], dtype=np.int64)
        included = np.setdiff1d(np.arange(len(self)), excluded)
        return self._sample(seed, included, excluded)

    def draw(self, settings: FitSettings, seed: int, number: int) -> BootstrapSample:
        """The bootstrap sample of member `number`: it follows from the seed and this number alone.

        As many draws as `fit` trains on subjects, so at least as many are left out as it holds out.
        """
        own_seed = int(np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1)[0])
        rng = np.random.default_rng(own_seed)
        count = len(self)
        held_out = 0 if settings.validation == 0 else min(max(1, round(settings.validation * count)), count - 1)
        drawn = rng.integers(count, size=count - held_out)
        left_out = rng.permutation(np.setdiff1d(np.arange(count), drawn))
        return self._sample(own_seed, drawn, left_out[:held_out])

    def halves(self, settings: FitSettings, seed: int) -> tuple[Half, Half]:
        """All subjects in two halves, drawn at random; each half holds out some of its own to choose the epoch."""
        order = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, 0))).permutation(len(self))
        middle = (len(self) + 1) // 2
        first, second = (
            self._half(part, settings, np.random.SeedSequence(seed, spawn_key=(1, number)))
            for number, part in enumerate((order[:middle], order[middle:]))
        )
        return first, second

    def _half(self, subjects: IntArray, settings: FitSettings, entropy: np.random.SeedSequence) -> Half:
        count = len(subjects)
        held_out = 0 if settings.validation == 0 else min(max(1, round(settings.validation * count)), count - 1)
        own_seed = int(entropy.generate_state(1)[0])
        # In random order already.
        sample = self._sample(own_seed, np.sort(subjects[held_out:]), np.sort(subjects[:held_out]))
        return Half(sample, np.isin(self.of_episode, subjects))

    def trained_on(self, sample: BootstrapSample) -> npt.NDArray[np.bool_]:
        """Which episodes [E] belong to the subjects of a sample."""
        return np.isin(self.of_episode, sample.subjects)

    def _sample(self, seed: int, drawn: IntArray, held_out: IntArray) -> BootstrapSample:
        return BootstrapSample(
            seed=seed,
            subjects=drawn,
            rows=self._rows_of(drawn),
            held_out=self._rows_of(held_out),
            training=self._count(drawn),
            validation=self._count(held_out) if len(held_out) else None,
        )

    def _rows_of(self, subjects: IntArray) -> Tensor:
        """Positions in the order of the cohort, as `fit` has them."""
        parts = [self.rows[subject] for subject in subjects]
        return torch.as_tensor(np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64))

    def _count(self, subjects: IntArray) -> DataCounts:
        episodes, transitions = (int(counts[subjects].sum()) for counts in (self.episodes, self.transitions))
        return DataCounts(episodes, len(np.unique(subjects)), transitions)


def notes_on(cohort: Cohort, subjects: SubjectIndex, samples: Sequence[BootstrapSample]) -> list[EnsembleNote]:
    """What a reader of the members' agreement should know; no patient's values."""
    notes = []
    if len(samples) == 1:
        notes.append(EnsembleNote("one member"))
    if len(subjects) < FEW_SUBJECTS:
        notes.append(EnsembleNote("few subjects", count=len(subjects), of=FEW_SUBJECTS))
    return [*notes, *_notes_on_actions(cohort, samples), *_notes_on_features(cohort)]


def _notes_on_actions(cohort: Cohort, samples: Sequence[BootstrapSample]) -> list[EnsembleNote]:
    actions = torch.as_tensor(np.array(cohort.transitions().actions))
    labels = cohort.schema.actions.labels
    taken = torch.bincount(actions, minlength=len(labels)) > 0
    by_sample = torch.stack([torch.bincount(actions[s.rows], minlength=len(labels)) > 0 for s in samples])
    notes = []
    if not taken.all():
        notes.append(
            EnsembleNote("never taken", tuple(labels[number] for number in (~taken).nonzero().flatten().tolist()))
        )
    missing = (taken & ~by_sample).nonzero()
    if len(missing):
        names = tuple(labels[number] for number in missing[:, 1].unique().tolist())
        notes.append(EnsembleNote("missing in samples", names, len(missing[:, 0].unique()), len(samples)))
    return notes


def _notes_on_features(cohort: Cohort) -> list[EnsembleNote]:
    constant = np.ptp(cohort.states, axis=0) == 0
    names = tuple(feature.name for feature, same in zip(cohort.schema.dynamic, constant, strict=True) if same)
    return [EnsembleNote("constant", names)] if names else []
