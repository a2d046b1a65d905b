"""What clinicians do in which state: calibrated probabilities of actions, and what they support."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ifonly.data.scaling import Columns, Scaler
from ifonly.data.schema import Schema
from ifonly.errors import InputError
from ifonly.evidence.behaviour.neighbours import Neighbours
from ifonly.evidence.behaviour.report import BehaviourReport
from ifonly.models.base import TransitionModel


class ChoiceNetwork(nn.Module):
    """Scores [N, A] of actions from state, context and the number of the step; without hidden layers: linear ones."""

    taken: Tensor

    def __init__(self, sizes: tuple[int, int, int], hidden: Sequence[int], longest: int) -> None:
        """`sizes` are D, C and A; step numbers are counted up to `longest` and alike beyond."""
        super().__init__()
        states, contexts, actions = sizes
        widths = [states + contexts + 1, *hidden]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.output = nn.Linear(widths[-1], actions)
        self.longest = longest
        self.register_buffer("taken", torch.ones(actions, dtype=torch.bool))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw fresh weights; the scores start nearly equal."""
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_normal_(layer.weight, generator=generator)
            nn.init.zeros_(layer.bias)
        nn.init.normal_(self.output.weight, std=0.01, generator=generator)
        nn.init.zeros_(self.output.bias)

    def forward(self, states: Tensor, context: Tensor, steps: Tensor) -> Tensor:
        """Scores [N, A]; minus infinity for actions that were never taken."""
        time = torch.log1p(steps.clamp(max=self.longest).to(states.dtype)) / math.log1p(self.longest)
        values = torch.cat([states, context, time.unsqueeze(-1)], dim=-1)
        for layer in self.layers:
            values = torch.tanh(layer(values))
        scores: Tensor = self.output(values)
        return scores.masked_fill(~self.taken, -torch.inf)


@dataclass(frozen=True, eq=False)
class BehaviourModel:
    """What a cohort's clinicians do in a state; made by `fit_behaviour`, kept by `save_behaviour`.

    An action that nobody in the cohort ever took has probability zero everywhere. The action of the step before is no
    input: a search judges a state by itself.
    """

    schema: Schema
    scaler: Scaler
    network: ChoiceNetwork
    """float64, not to be trained any further."""
    hidden: tuple[int, ...]
    temperature: float
    report: BehaviourReport
    neighbours: Neighbours | None
    """Recorded states, for distances; None where they were left out, since they are patients' data."""

    def probabilities(
        self, states: Tensor, context: Tensor, steps: Tensor | int, *, scaler: Scaler | None = None
    ) -> Tensor:
        """How likely each action is [N, A] at states [N, D] with context [N, C] at step numbers `steps` [N].

        `scaler` says in whose coordinates states and context are (a model's, for instance); by default its own.
        """
        coordinates = self.coordinates(scaler or self.scaler, states.device)
        return _probabilities(self._network_on(states.device), self.temperature, coordinates, states, context, steps)

    def distance_percentile(self, states: Tensor, *, scaler: Scaler | None = None) -> Tensor:
        """How far states [N, D] lie from recorded ones: the share of recorded states, in percent, that lie nearer [N].

        Compared are distances to the k-th nearest recorded state; that of a recorded state leaves itself out.
        """
        if self.neighbours is None:
            raise InputError(
                "this behaviour model was made or saved without recorded states, so that it cannot say how far a state "
                "lies from them; fit it with BehaviourSettings(keep_states=True) and save it with_states=True."
            )
        own = self.coordinates(scaler or self.scaler, "cpu").of_states(states.cpu())
        return self.neighbours.percentiles(own)

    def with_threshold(self, least: float, model: TransitionModel) -> BehaviourSupport:
        """What a search may change to: actions with a probability of at least `least` where their sequence leads.

        `model` is the one that is searched: its coordinates are those of the states.
        """
        if isinstance(least, bool) or not isinstance(least, int | float) or not 0 < least <= 1:
            raise InputError(f"support: {least!r} must be a probability, above 0 and up to 1.")
        self.schema.require_same(model.schema, here="the behaviour model", there="the model")
        device = model.action_vectors.device
        return BehaviourSupport(
            least=float(least),
            network=self._network_on(device),
            temperature=self.temperature,
            coordinates=self.coordinates(model.scaler, device),
            fingerprint=self.fingerprint,
        )

    def coordinates(self, scaler: Scaler, device: torch.device | str) -> Coordinates:
        """The way from the coordinates of `scaler` to those of this model."""
        return Coordinates.between(scaler, self.scaler, device)

    def _network_on(self, device: torch.device | str) -> ChoiceNetwork:
        wanted = torch.device(device)
        if wanted.type == "cpu":
            return self.network
        return copy.deepcopy(self.network).to(wanted)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that probabilities depend on; recorded states are not part of it."""
        head = [self.schema.fingerprint, self.scaler.to_dict(), list(self.hidden), self.network.longest]
        digest = hashlib.sha256(json.dumps([*head, self.temperature], sort_keys=True).encode())
        for name, tensor in sorted(self.network.state_dict().items()):
            digest.update(f"{name} {list(tensor.shape)}".encode())
            digest.update(tensor.numpy().tobytes())
        return digest.hexdigest()[:16]

    def __str__(self) -> str:
        kept = "none" if self.neighbours is None else f"{len(self.neighbours.states)}"
        return f"behaviour model {self.fingerprint}, recorded states kept: {kept}\n{self.report}"


@dataclass(frozen=True, eq=False)
class BehaviourSupport:
    """A support (`ifonly.problem.Support`): actions that are likely enough at the state that is reached."""

    least: float
    network: ChoiceNetwork
    temperature: float
    coordinates: Coordinates
    fingerprint: str

    def supported(self, t: int, states: Tensor, context: Tensor) -> Tensor:
        """Which actions [N, A] have a probability of at least `least` at step t, for states [N, D], context [N, C]."""
        # A problem may have been moved to another device since.
        own = self.network.taken.device
        inputs = (states.to(own), context.to(own), t)
        given = _probabilities(self.network, self.temperature, self.coordinates, *inputs)
        return (given >= self.least).to(states.device)

    def settings(self) -> Mapping[str, Any]:
        """The threshold, and the fingerprint of the behaviour model."""
        return {"kind": "behaviour", "min_support": self.least, "behaviour": self.fingerprint}


class Affine(NamedTuple):
    """values * factor + shift, column by column [n]."""

    factor: Tensor
    shift: Tensor

    @classmethod
    def between(cls, one: Columns, other: Columns, device: torch.device | str) -> Affine:
        """From one scaling of columns to another: both begin with the same logarithms, which need not be undone."""
        numbers = (one.scale / other.scale, (one.offset - other.offset) / other.scale)
        return cls(*(torch.as_tensor(np.array(values), dtype=torch.float64, device=device) for values in numbers))

    def __call__(self, values: Tensor) -> Tensor:
        """The columns of values [..., n] in the other scaling."""
        return values.double() * self.factor + self.shift


@dataclass(frozen=True)
class Coordinates:
    """From one scaler's coordinates to another's, exactly: without a detour over original units."""

    of_states: Affine
    of_context: Affine

    @classmethod
    def between(cls, one: Scaler, other: Scaler, device: torch.device | str) -> Coordinates:
        """From the coordinates of `one` to those of `other`, both made for the same schema."""
        return cls(Affine.between(one.states, other.states, device), Affine.between(one.context, other.context, device))


@torch.no_grad()
def _probabilities(
    network: ChoiceNetwork,
    temperature: float,
    coordinates: Coordinates,
    states: Tensor,
    context: Tensor,
    steps: Tensor | int,
) -> Tensor:
    count = torch.as_tensor(steps, device=states.device).expand(len(states))
    scores = network(coordinates.of_states(states), coordinates.of_context(context), count)
    return torch.softmax(scores / temperature, dim=-1)
