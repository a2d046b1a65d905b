"""What clinicians do in which state: calibrated probabilities of actions, what they support, how far states lie from
recorded ones; and all that on disk.
"""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from ifonly.data.plain import read_document
from ifonly.data.scaling import Columns, Scaler
from ifonly.data.schema import Schema
from ifonly.errors import InputError, StoreError
from ifonly.evidence.behaviour.recordings import Recordings
from ifonly.evidence.behaviour.report import BehaviourReport
from ifonly.files import atomic_folder, sha256_of
from ifonly.models.base import TransitionModel
from ifonly.models.checkpoint import LONGEST_REASON, read_tensors, write_tensors
from ifonly.models.layers import check_widths
from ifonly.progress import Progress, Tick, silent
from ifonly.records import from_plain, to_plain
from ifonly.version import __version__

FORMAT, VERSION = "ifonly.behaviour", 2
METADATA, WEIGHTS, STATES = "behaviour.json", "behaviour.safetensors", "states.safetensors"

PRIVACY = "scaled states and whole courses of patients, without ids: patient data, to be kept and shared as such"

PAIRS_AT_ONCE = 4_000_000
"""Distances computed at once; bounds the memory."""


class ChoiceNetwork(nn.Module):
    """Scores [N, A] of actions from state, context and the number of the step; without hidden layers: linear ones."""

    taken: Tensor

    def __init__(self, sizes: tuple[int, int, int], hidden: Sequence[int], longest: int) -> None:
        """`sizes` are D, C and A; step numbers are counted up to `longest` and alike beyond."""
        super().__init__()
        states, contexts, actions = sizes
        widths = [states + contexts + 1, *hidden]
        check_widths([*widths, actions])
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
    recordings: Recordings | None = None
    """Recorded courses, to which a model's answers are compared; left out with the states."""

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


@dataclass(frozen=True, eq=False)
class ThroughUnits:
    """From one scaler's coordinates to another's by way of original units, where features are on different scales."""

    one: Columns
    other: Columns

    def __call__(self, values: Tensor) -> Tensor:
        """Values [..., n] in the other coordinates, float64."""
        link = self.other.link
        shown = np.clip(self.one.decode(values.double().cpu().numpy()), link.floor, link.ceiling)
        return torch.as_tensor(self.other.encode(shown), device=values.device)


def _way(one: Columns, other: Columns, device: torch.device | str) -> Affine | ThroughUnits:
    same = one.link.same_as(other.link)
    return Affine.between(one, other, device) if same else ThroughUnits(one, other)


@dataclass(frozen=True)
class Coordinates:
    """From one scaler's coordinates to another's: exactly, where both see features on the same scales."""

    of_states: Affine | ThroughUnits
    of_context: Affine | ThroughUnits

    @classmethod
    def between(cls, one: Scaler, other: Scaler, device: torch.device | str) -> Coordinates:
        """From the coordinates of `one` to those of `other`, both made for the same schema."""
        return cls(_way(one.states, other.states, device), _way(one.context, other.context, device))


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


# Distances to recorded states


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Recorded states [R, D] in scaled coordinates, and how far each is from its k-th nearest other one.

    The states are those of patients, without ids and in no particular order.
    """

    states: Tensor  # [R, D], float64
    distances: Tensor  # [R], increasing: each state's distance to its k-th nearest other one
    k: int

    @classmethod
    def of(cls, states: Tensor, *, k: int, progress: Progress = silent) -> Self:
        """Measure `states` [R, D] against each other; with few of them the k-th nearest is the last there is."""
        if len(states) < 2:
            raise InputError("distances between recorded states need at least two of them.")
        states, k = states.double(), min(k, len(states) - 1)
        parts, done = [], 0
        for rows in states.split(_rows_at_once(len(states))):
            # A state is its own nearest neighbour, or as near as its doubles: one more is asked for to leave it out.
            parts.append(_kth_distance(rows, states, k + 1))
            done += len(rows)
            progress(Tick("distances", done, len(states)))
        return cls(states, torch.cat(parts).sort().values, k)

    def percentiles(self, states: Tensor) -> Tensor:
        """For states [N, D]: the share of recorded states, in percent, that lie nearer to the others [N]."""
        parts = [_kth_distance(rows, self.states, self.k) for rows in states.split(_rows_at_once(len(self.states)))]
        # A state as far as a recorded one is, is not farther; rounding must not decide that.
        found = torch.cat(parts) * (1 - 1e-9) if parts else states.new_empty(0)
        return 100 * torch.searchsorted(self.distances, found).double() / len(self.distances)


def _rows_at_once(columns: int) -> int:
    return max(1, PAIRS_AT_ONCE // columns)


def _kth_distance(rows: Tensor, states: Tensor, k: int) -> Tensor:
    """Distances [n] from each of `rows` [n, D] to the k-th nearest of `states` [R, D], those at zero counted too."""
    # Differences and no matrix product, which would lose small distances to rounding.
    pairs = torch.cdist(rows, states, compute_mode="donot_use_mm_for_euclid_dist")
    return pairs.topk(k, dim=1, largest=False).values[:, -1]


# Files: `behaviour.json`, `behaviour.safetensors` and, if kept, `states.safetensors`


def save_behaviour(
    behaviour: BehaviourModel,
    path: str | Path,
    *,
    with_states: bool = True,
    provenance: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> None:
    """Write the folder `path`, completely or not at all.

    Recorded states and courses, by which distances are measured and models judged, are patients' data: without ids, but
    each row is somebody's. `with_states=False` leaves them out; the probabilities are the same. `provenance` is kept as
    it is, as JSON.
    """
    neighbours = behaviour.neighbours if with_states else None
    with atomic_folder(path, overwrite=overwrite) as folder:
        write_tensors(
            {name: tensor.contiguous() for name, tensor in behaviour.network.state_dict().items()}, folder / WEIGHTS
        )
        states = None
        if neighbours is not None:
            columns = {"states": neighbours.states.contiguous(), "distances": neighbours.distances.contiguous()}
            columns |= {} if behaviour.recordings is None else behaviour.recordings.columns()
            write_tensors(columns, folder / STATES, metadata={"contains": PRIVACY})
            states = {"k": neighbours.k, "sha256": sha256_of(folder / STATES), "contains": PRIVACY}
        content = {
            "format": FORMAT,
            "version": VERSION,
            "ifonly": __version__,
            "schema": behaviour.schema.to_dict(),
            "scaling": behaviour.scaler.to_dict(),
            "hidden": list(behaviour.hidden),
            "longest": behaviour.network.longest,
            "temperature": behaviour.temperature,
            "fingerprint": behaviour.fingerprint,
            "sha256": sha256_of(folder / WEIGHTS),
            "states": states,
            "report": to_plain(behaviour.report),
            "provenance": dict(provenance or {}),
        }
        try:
            text = json.dumps(content, indent=2, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"save_behaviour: the provenance is not JSON ({error}).") from None
        (folder / METADATA).write_text(text + "\n", encoding="utf-8")


def load_behaviour(path: str | Path, *, schema: Schema | None = None) -> BehaviourModel:
    """Read what `save_behaviour` wrote; with `schema`, only if it was made for these features and actions."""
    folder = Path(path)
    content = _read_metadata(folder)
    try:
        stored = Schema.from_dict(content["schema"])
        hidden = tuple(int(width) for width in content["hidden"])
        sizes = (len(stored.dynamic), len(stored.context), len(stored.actions))
        network = ChoiceNetwork(sizes, hidden, int(content["longest"])).double()
        network.load_state_dict(read_tensors(folder / WEIGHTS, content["sha256"]))
        neighbours, recordings = _read_states(folder, content["states"], sizes)
        behaviour = BehaviourModel(
            schema=stored,
            scaler=Scaler.from_dict(stored, content["scaling"]),
            network=network.eval().requires_grad_(False),
            hidden=hidden,
            temperature=float(content["temperature"]),
            report=from_plain(BehaviourReport, content["report"], what=f"{folder}: report"),
            neighbours=neighbours,
            recordings=recordings,
        )
        expected = content["fingerprint"]
    except (InputError, KeyError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        told = f"{type(error).__name__}: {error}"[:LONGEST_REASON]
        raise StoreError(f"{folder}: broken or incomplete ({told}).") from None
    if schema is not None:
        schema.require_same(stored, here="the episodes", there=f"the behaviour model in {folder}")
    if behaviour.fingerprint != expected:
        raise StoreError(f"{folder}: {METADATA} was altered, or comes from another folder; its fingerprint differs.")
    return behaviour


def _read_metadata(folder: Path) -> dict[str, Any]:
    expected = "expected what `ifonly behaviour` wrote"
    return read_document(folder / METADATA, FORMAT, VERSION, kind="behaviour model", expected=expected)


def _read_states(
    folder: Path, content: Mapping[str, Any] | None, sizes: tuple[int, int, int]
) -> tuple[Neighbours | None, Recordings | None]:
    if content is None:
        return None, None
    columns = read_tensors(folder / STATES, content["sha256"])
    states, distances = columns.pop("states"), columns.pop("distances")
    if states.shape != (len(distances), sizes[0]):
        raise InputError(
            f"{STATES}: {list(states.shape)} states for {sizes[0]} features and {len(distances)} distances"
        )
    k = int(content["k"])
    if not 0 < k < len(states):
        raise InputError(f"{STATES}: the {k}th nearest of {len(states)} states")
    recordings = Recordings.from_columns(columns, sizes) if columns else None
    return Neighbours(states, distances, k), recordings
