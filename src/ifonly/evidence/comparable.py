"""Recorded transitions from states like a given one under actions like a given one: what a model is judged by there.

Distances are Euclidean over state and context, each column in its own standard deviation among the records. A
Mahalanobis distance would count most what hardly ever varies, such as the difference of two features that measure
nearly the same; and percentiles of `BehaviourModel` are Euclidean, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ifonly.evidence.behaviour import BehaviourModel, Recordings

COUNT = 30
"""Records that a place is compared to, K."""

REFERENCES = 512
"""Records, evenly spread, by which is known what is usual."""

WITHIN_REACH = 0.9
"""The share of records whose K-th nearest record under the same action is within reach."""

SAME_TRANSITIONS = 3
"""An episode that begins with the same states and actions for so many steps is the same one."""


@dataclass(frozen=True, eq=False)
class Comparable:
    """The records that Q places are compared to; fewer than K where there are not as many."""

    rows: Tensor  # [Q, K], positions among the N records
    found: Tensor  # [Q, K], false where there was none left
    same_action: Tensor  # [Q], how many of them are under the very action
    percentile: Tensor  # [Q], the share of records, in percent, whose own K-th comparable record is nearer


@dataclass(frozen=True, eq=False)
class Records:
    """N recorded transitions as places; float64."""

    places: Tensor  # [N, D + C], each column in its deviation
    deviations: Tensor  # [D + C]
    actions: Tensor  # [N]
    subjects: Tensor  # [N]
    starts: Tensor  # [E], the first transition of each episode
    lengths: Tensor  # [E], how many transitions it has
    apart: Tensor  # [A, A], how many steps of dose actions lie apart: 0 for the same, infinite for categories
    references: Tensor  # [S], positions of records, evenly spread
    usual: Tensor  # [S], increasing: their distances to their K-th nearest record under the same action
    reach: float
    """Up to this distance a record under the same action comes before all under others."""

    @classmethod
    def of(cls, behaviour: BehaviourModel, recordings: Recordings) -> Records:
        """The transitions of `recordings`, and what distances are usual among them."""
        begins = recordings.begins
        columns = torch.cat([recordings.states, recordings.context], dim=1)[begins]
        deviations = columns.std(0)
        deviations = torch.where(deviations > 0, deviations, 1.0)  # what never varies counts in its own unit
        lengths = recordings.offsets.diff() - 1
        actions = recordings.actions[begins]
        subjects = recordings.subjects[recordings.episodes]
        places = columns / deviations
        references = torch.linspace(0, len(actions) - 1, min(REFERENCES, len(actions))).long()
        usual = _usual_distances(places, actions, subjects, references)
        return cls(
            places=places,
            deviations=deviations,
            actions=actions,
            subjects=subjects,
            starts=lengths.cumsum(0) - lengths,
            lengths=lengths,
            apart=_steps_apart(behaviour),
            references=references,
            usual=usual,
            reach=max(float(usual.quantile(WITHIN_REACH)) if len(usual) else 0.0, 1e-9),
        )

    @cached_property
    def of_references(self) -> Comparable:
        """What the references themselves are compared to: records of other subjects."""
        own = self.references
        return self.compare(self.places[own], self.actions[own], self.subjects[own].unsqueeze(1) == self.subjects)

    def compare(self, places: Tensor, actions: Tensor, left_out: Tensor) -> Comparable:
        """The K records nearest to `places` [Q, D + C] under `actions` [Q], without those `left_out` [N] or [Q, N].

        Records under the same action come first, as far as they are within reach. Where that leaves too few, records
        under other actions count as farther by one reach for each step of dose.
        """
        keys = _distances(places, self.places) + (self.reach * self.apart).float()[actions][:, self.actions]
        rows, farthest, found = _nearest(keys.masked_fill_(left_out, torch.inf))
        same = (found & (self.actions[rows] == actions.unsqueeze(1))).sum(1)
        below = torch.searchsorted(self.usual, farthest * (1 - 1e-9))
        percentile = 100 * below.double() / max(1, len(self.usual))
        return Comparable(rows, found, same, torch.where(found.all(1), percentile, 100.0))

    def is_recorded_in(self, places: Tensor, actions: Tensor) -> Tensor:
        """Which records [N] are of a subject with an episode that begins like `places` [T, D + C] and `actions` [T]."""
        steps = torch.arange(min(SAME_TRANSITIONS, len(actions)))
        long_enough = self.lengths >= len(steps)
        starts = self.starts[long_enough]
        rows = starts.unsqueeze(1) + steps  # [E', steps]
        alike = (self.places[rows] - places[steps]).abs().amax(-1) < 1e-6
        same = (alike & (self.actions[rows] == actions[steps])).all(1)
        return torch.isin(self.subjects, self.subjects[starts[same]])


def _distances(places: Tensor, others: Tensor) -> Tensor:
    """Distances [Q, N]; float32, which is quicker, and near enough to tell which records are near."""
    return torch.cdist(places.float(), others.float())


def _usual_distances(places: Tensor, actions: Tensor, subjects: Tensor, references: Tensor) -> Tensor:
    """From each reference to its K-th nearest record of others under the same action [S], increasing."""
    keys = _distances(places[references], places)
    others = (actions[references].unsqueeze(1) == actions) & (subjects[references].unsqueeze(1) != subjects)
    farthest = _nearest(keys.masked_fill_(~others, torch.inf))[1]
    return farthest[farthest.isfinite()].sort().values


def _steps_apart(behaviour: BehaviourModel) -> Tensor:
    """For each action [A, A], how far the others' doses are, in units of the one that is nearest."""
    space = behaviour.schema.actions
    count = len(space)
    if space.is_categorical:
        return torch.full((count, count), torch.inf, dtype=torch.float64).fill_diagonal_(0.0)
    vectors = torch.as_tensor(behaviour.scaler.actions.encode(space.vectors), dtype=torch.float64)
    distances = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = distances.masked_fill(distances == 0, torch.inf).amin(1, keepdim=True)
    return (distances / nearest).clamp(min=1).fill_diagonal_(0.0)


def _nearest(keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of keys [Q, N]: the K smallest [Q, K], the largest finite one among them [Q] or infinity, which are finite."""
    values, rows = keys.topk(min(COUNT, keys.shape[1]), dim=1, largest=False)
    found = values.isfinite()
    farthest = values.masked_fill(~found, -torch.inf).amax(1)
    return rows, torch.where(found.any(1), farthest, torch.inf), found
