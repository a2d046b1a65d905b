"""The question that a log of a search answers, read from its file, and replays of sequences by arithmetic of its own.

docs/file-formats.md describes the file. Shape letters: N rows, T steps, D features, C context, A actions, H units.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ifonly.errors import StoreError, VerificationError

FORMAT, VERSION = "ifonly.proof", 3

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

DECODER = ("scale", "offset", "log", "log_offset", "bounded", "floor", "ceiling", "low", "width")
"""Arrays [D] that say how values follow from coordinates."""


def digest(header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """A checksum of all but the checksum itself: against damage, not against forgery, which the checks are for."""
    entries = {name: value for name, value in header.items() if name != "sha256"}
    found = hashlib.sha256(json.dumps(entries, sort_keys=True).encode())
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        found.update(f"{name} {values.dtype.str} {list(values.shape)}".encode())
        found.update(values.tobytes())
    return found.hexdigest()


MOST_BYTES = 2**30
_UNREADABLE = (
    *(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error),
    *(RuntimeError, MemoryError, TypeError),  # of forged ones, encrypted ones among them
)


@dataclass(frozen=True)
class Record:
    """A file's header and arrays, each of the kind and shape that it must have."""

    path: str
    header: Mapping[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]]

    @classmethod
    def read(cls, path: str | Path) -> Record:
        """Refuses what is no whole log of this version."""
        if Path(path).exists() and not Path(path).is_file():
            raise StoreError(f"{path}: cannot be read, for it is no ordinary file.")
        try:
            with zipfile.ZipFile(path) as whole:
                size = sum(part.file_size for part in whole.infolist())
            if size > MOST_BYTES:
                raise StoreError(f"{path}: {size:,} bytes once unpacked; at most {MOST_BYTES:,} are read.")
            with Path(path).open("rb") as content, np.load(content) as file:
                arrays = {name: file[name] for name in file.files}
            header = json.loads(bytes(arrays.pop("header")).decode())
        except FileNotFoundError:
            raise StoreError(f"{path}: there is no such file.") from None
        except _UNREADABLE as error:
            raise StoreError(
                f"{path}: no log of a search, or one that is cut off or damaged ({str(error)[:200]})."
            ) from None
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise StoreError(f"{path}: no log of a search; expected the format {FORMAT!r}.")
        if header.get("version") != VERSION:
            raise StoreError(
                f"{path}: version {header.get('version')!r} of the log; this program reads {VERSION}; solve again."
            )
        if header.get("sha256") != digest(header, arrays):
            raise StoreError(f"{path}: its content is not what was written (the checksum differs); solve again.")
        return cls(str(path), header, arrays)

    def entry(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """An entry of the header."""
        value = self.header.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            refuse(f"header: {name!r} is missing or of the wrong kind")
        return value

    def array(self, name: str, shape: tuple[int | None, ...], *, infinite: bool = False) -> Array:
        """Numbers as float64; None stands for any length."""
        return np.asarray(self._shaped(name, "fiub", shape, infinite=infinite), dtype=np.float64)

    def whole(self, name: str, shape: tuple[int | None, ...], below: int) -> Ints:
        """Whole numbers from 0 to `below` - 1."""
        values = np.asarray(self._shaped(name, "iu", shape), dtype=np.int64)
        if values.size and not (values.min() >= 0 and values.max() < below):
            refuse(f"{name}: holds numbers outside 0 to {below - 1}")
        return values

    def truth(self, name: str, shape: tuple[int | None, ...]) -> Bools:
        """True and false."""
        return np.asarray(self._shaped(name, "b", shape), dtype=np.bool_)

    def _shaped(
        self, name: str, kinds: str, shape: tuple[int | None, ...], *, infinite: bool = False
    ) -> npt.NDArray[Any]:
        if name not in self.arrays:
            refuse(f"{name}: is missing")
        values = self.arrays[name]
        fits = values.ndim == len(shape) and all(
            want in (None, have) for want, have in zip(shape, values.shape, strict=True)
        )
        if not fits or values.dtype.kind not in kinds:
            refuse(f"{name}: is {values.dtype} {list(values.shape)}; expected {list(shape)}")
        if values.dtype.kind == "f" and (np.isnan(values).any() or (not infinite and not np.isfinite(values).all())):
            refuse(f"{name}: holds numbers that are not finite")
        return values


def refuse(reason: str) -> NoReturn:
    """A log that proves nothing."""
    raise VerificationError(f"{reason}.")


@contextmanager
def refusals_about(what: str) -> Iterator[None]:
    """Say where it was that a log was refused."""
    try:
        yield
    except VerificationError as error:
        raise VerificationError(f"{what}: {error}") from None


def sigmoid(z: Array) -> Array:
    """Logistic function, without overflow."""
    grown = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0, 1.0, grown) / (1 + grown))


def softplus(z: Array) -> Array:
    """log(1 + exp(z)), without overflow."""
    return np.asarray(np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z))))


def relu(z: Array) -> Array:
    """max(0, z)."""
    return np.maximum(z, 0.0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "relu": relu,
}


@dataclass(frozen=True)
class LoggedNetwork:
    """A perceptron of state, context and action; `actions` [A, H] holds what each adds, with the first bias."""

    state: Array  # [H, D]
    context: Array  # [H, C]
    actions: Array  # [A, H]
    matrices: tuple[Array, ...]
    biases: tuple[Array, ...]
    activation: str

    @classmethod
    def read(cls, record: Record, name: str, sizes: tuple[int, int, int], activation: str) -> LoggedNetwork:
        """What the log holds under this name."""
        states, contexts, actions = sizes
        first = record.array(f"{name}/state", (None, states))
        width, layers = len(first), sum(key.startswith(f"{name}/matrix") for key in record.arrays)
        matrices: list[Array] = []
        for number in range(layers):
            outputs = states if number == layers - 1 else None
            matrices.append(record.array(f"{name}/matrix {number}", (outputs, width)))
            width = len(matrices[-1])
        if not matrices:
            refuse(f"{name}: has no layers")
        return cls(
            state=first,
            context=record.array(f"{name}/context", (len(first), contexts)),
            actions=record.array(f"{name}/actions", (actions, len(first))),
            matrices=tuple(matrices),
            biases=tuple(record.array(f"{name}/bias {n}", (len(m),)) for n, m in enumerate(matrices)),
            activation=activation,
        )

    def hidden(self, states: Array, context: Array, actions: Ints) -> Array:
        """Arguments [N, H] of the first layer's units."""
        return states @ self.state.T + (self.context @ context + self.actions[actions])

    def __call__(self, states: Array, context: Array, actions: Ints) -> Array:
        """Outputs [N, D] at states [N, D], context [C] and actions [N]."""
        values, curve = self.hidden(states, context, actions), ACTIVATIONS[self.activation]
        for matrix, bias in zip(self.matrices, self.biases, strict=True):
            values = curve(values) @ matrix.T + bias
        return values


@dataclass(frozen=True)
class Model:
    """next = F_a x + offset_a + B c + noise_scale u, or d x + location(x, c, a) + softplus(scale(x, c, a)) u."""

    matrices: Array | None  # [A, D, D]; None for networks
    offsets: Array  # [A, D]
    context: Array  # [D, C]
    noise_scale: Array  # [D]
    diagonal: Array  # [D]
    location: LoggedNetwork | None
    scale: LoggedNetwork | None

    @classmethod
    def read(cls, record: Record, sizes: tuple[int, int, int]) -> Model:
        """What the log holds."""
        states, contexts, actions = sizes
        kind, zeros = record.entry("model", str), np.zeros
        if kind == "linear":
            return cls(
                matrices=record.array("model/state_matrices", (actions, states, states)),
                offsets=record.array("model/offsets", (actions, states)),
                context=record.array("model/context_matrix", (states, contexts)),
                noise_scale=record.array("model/noise_scale", (states,)),
                diagonal=zeros(states),
                location=None,
                scale=None,
            )
        activation = record.entry("activation", str)
        if kind not in ("location-scale", "additive") or activation not in ACTIVATIONS:
            refuse(f"header: a model of kind {kind!r} with {activation!r} units is unknown")
        return cls(
            matrices=None,
            offsets=zeros((actions, states)),
            context=zeros((states, contexts)),
            noise_scale=np.ones(states),
            diagonal=record.array("model/diagonal", (states,)),
            location=LoggedNetwork.read(record, "model/location", sizes, activation),
            scale=LoggedNetwork.read(record, "model/scale", sizes, activation) if kind == "location-scale" else None,
        )

    def step(self, states: Array, context: Array, actions: Ints, noise: Array) -> Array:
        """The next states [N, D]."""
        if self.matrices is not None:
            moved = np.einsum("nij,nj->ni", self.matrices[actions], states)
            return np.asarray(moved + self.context @ context + self.offsets[actions] + self.noise_scale * noise)
        assert self.location is not None
        moved = states * self.diagonal + self.location(states, context, actions)
        spread = 1.0 if self.scale is None else softplus(self.scale(states, context, actions))
        return np.asarray(moved + spread * noise)


@dataclass(frozen=True)
class RewardPart:
    """A weighted sum of values, a sum of hinges of such sums, or a number for each action."""

    kind: str
    weights: Array  # [J, D], in original units
    constants: Array  # [J]
    factors: Array  # [J]
    table: Array  # [A]
    steps: Array  # [T], how often each step counts


@dataclass(frozen=True)
class LoggedReward:
    """The sum of its parts, as a function of coordinates and action."""

    parts: tuple[RewardPart, ...]
    decoder: Mapping[str, Array]

    @classmethod
    def read(cls, record: Record, states: int, actions: int, horizon: int) -> LoggedReward:
        """What the log holds."""
        decoder = {name: record.array(f"decoder/{name}", (states,), infinite=True) for name in DECODER}
        parts = []
        for number, kind in enumerate(record.entry("reward", list)):
            if kind not in ("linear", "hinges", "table"):
                refuse(f"header: a reward of kind {kind!r} is unknown")
            name, some = f"reward/{number}", kind != "table"
            weights = record.array(f"{name}/weights", (None, states)) if some else np.zeros((0, states))
            rows, steps = len(weights), np.ones(horizon)
            if f"{name}/steps" in record.arrays:
                steps = record.array(f"{name}/steps", (horizon,))
            if (steps < 0).any():
                refuse(f"{name}/steps: a step must not count less than nothing")
            parts.append(
                RewardPart(
                    kind=kind,
                    weights=weights,
                    constants=record.array(f"{name}/constants", (rows,)) if some else np.zeros(0),
                    factors=record.array(f"{name}/factors", (rows,)) if kind == "hinges" else np.ones(rows),
                    table=np.zeros(actions) if some else record.array(f"{name}/table", (actions,)),
                    steps=steps,
                )
            )
        return cls(tuple(parts), decoder)

    def values(self, states: Array) -> Array:
        """Values [N, D] in original units, cut where they would be impossible."""
        d = self.decoder
        linked = states * d["scale"] + d["offset"]
        with np.errstate(over="ignore"):
            grown = np.where(d["log"] > 0, np.exp(np.where(d["log"] > 0, linked, 0.0)) - d["log_offset"], linked)
        values = np.where(d["bounded"] > 0, d["low"] + d["width"] * sigmoid(linked), grown)
        return np.asarray(np.clip(values, d["floor"], d["ceiling"]))

    def __call__(self, t: int, states: Array, actions: Ints) -> Array:
        """Rewards [N] of actions [N] at states [N, D] of step t (G1)."""
        values, total = self.values(states), np.zeros(len(states))
        for part in self.parts:
            if part.steps[t] == 0:  # then nothing counts, not even what is infinite
                continue
            sums = values @ part.weights.T + part.constants
            own = (np.maximum(sums, 0.0) if part.kind == "hinges" else sums) @ part.factors + part.table[actions]
            total = total + part.steps[t] * own
        return total


@dataclass(frozen=True)
class Question:
    """Among all sequences that the rules admit with at most `max_changes` changes: which is best?"""

    model: Model
    reward: LoggedReward
    first_state: Array  # [D]
    context: Array  # [T, C]
    noise: Array  # [T-1, D]
    observed: Ints  # [T]
    symbols: Ints  # [T, A], as what each action is read by an automaton that keeps the rules; 0: it is not allowed
    after: Ints  # [M, S], where a symbol leads from a position; 0 is a broken rule, and sequences begin at 1
    max_changes: int
    change_cost: float

    @classmethod
    def read(cls, record: Record) -> Question:
        """What the log holds."""
        after = record.whole("after", (None, None), len(record.arrays.get("after", ())))
        symbols = record.whole("symbols", (None, None), after.shape[1])
        if len(after) < 2 or after[0].any() or after[:, 0].any():
            refuse("after: a broken rule is not mended, and what is not allowed breaks one")
        horizon, actions = symbols.shape
        first = record.array("first_state", (None,))
        states = len(first)
        context = record.array("context", (horizon, None))
        sizes = (states, context.shape[1], actions)
        budget, cost = record.entry("max_changes", int), float(record.entry("change_cost", (int, float)))
        if not 0 <= budget <= horizon or not 0 <= cost < np.inf:
            refuse("header: 'max_changes' or 'change_cost' is out of range")
        return cls(
            model=Model.read(record, sizes),
            reward=LoggedReward.read(record, states, actions, horizon),
            first_state=first,
            context=context,
            noise=record.array("noise", (horizon - 1, states)),
            observed=record.whole("observed", (horizon,), actions),
            symbols=symbols,
            after=after,
            max_changes=budget,
            change_cost=cost,
        )

    @property
    def horizon(self) -> int:
        """T."""
        return len(self.observed)

    @property
    def allowed(self) -> Bools:
        """Which actions may be taken at a step, whatever was done before [T, A]."""
        return self.symbols > 0

    def step(self, t: int, states: Array, actions: Ints) -> Array:
        """States [N, D] at t + 1."""
        return self.model.step(states, self.context[t], actions, self.noise[t])

    def rewards(self, t: int, states: Array, actions: Ints) -> Array:
        """Rewards [N] at step t, less the cost of a change."""
        return np.asarray(self.reward(t, states, actions) - self.change_cost * (actions != self.observed[t]))

    def replay(self, sequences: Ints) -> tuple[Array, Array, Array]:
        """States [N, T, D], what was earned before each step [N, T], and outcomes [N] of sequences [N, T]."""
        count = len(sequences)
        states = np.empty((count, self.horizon, len(self.first_state)))
        earned = np.zeros((count, self.horizon + 1))
        states[:, 0] = self.first_state
        for t in range(self.horizon):
            earned[:, t + 1] = earned[:, t] + self.rewards(t, states[:, t], sequences[:, t])
            if t < self.horizon - 1:
                states[:, t + 1] = self.step(t, states[:, t], sequences[:, t])
        return states, earned[:, :-1], earned[:, -1]
