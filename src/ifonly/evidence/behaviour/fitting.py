"""Learning what clinicians do: maximum likelihood on some subjects, calibrated on others, judged by a third part."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray, IntArray
from ifonly.data.plain import check_whole
from ifonly.data.scaling import Scaler
from ifonly.errors import FitError, InputError
from ifonly.evidence.behaviour.behaviour import BehaviourModel, ChoiceNetwork, Neighbours
from ifonly.evidence.behaviour.recordings import Recordings
from ifonly.evidence.behaviour.report import BehaviourReport, CohortPart, by_action, by_probability, likeliest_error
from ifonly.models.adam import Adam
from ifonly.models.fit import torch_threads
from ifonly.progress import Progress, Tick, silent

TEMPERATURES = (0.05, 20.0)
"""Between these the temperature of calibration is looked for."""


@dataclass(frozen=True)
class BehaviourSettings:
    """How a behaviour model is learned."""

    hidden: tuple[int, ...] = (64,)
    """Width of each hidden layer; () is a multinomial logistic regression."""
    epochs: int = 40
    batch_size: int = 512
    learning_rate: float = 3e-3
    calibration: float = 0.2
    """Share of the other subjects on which the epoch is chosen and the temperature fitted."""
    held_out: float = 0.2
    """Share of subjects on which the report's figures are measured."""
    keep_states: bool = True
    """Whether recorded states are kept for distances, and courses for calibration: they are patients' data, scaled and
    without ids."""
    most_states: int = 10_000
    """Of more states than this, so many are drawn at random."""
    most_transitions: int = 20_000
    """Of more recorded transitions than this, episodes are drawn at random until they have so many."""
    k: int = 10
    """Distances are measured to the k-th nearest recorded state."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for name, value in [("a width", width) for width in self.hidden] + [
            (name, getattr(self, name)) for name in ("epochs", "batch_size", "most_states", "most_transitions", "k")
        ]:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"behaviour: {name} of {value!r} must be a whole number of at least 1.")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InputError(f"behaviour: learning_rate={self.learning_rate} must be positive and finite.")
        for name in ("calibration", "held_out"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(f"behaviour: {name}={getattr(self, name)} must be a share of subjects, from 0 to 1.")


class _Steps(NamedTuple):
    """Every recorded step, scaled, in the order of the network's arguments; N rows."""

    states: Tensor
    context: Tensor
    steps: Tensor
    actions: Tensor

    @classmethod
    def of(cls, cohort: Cohort, scaler: Scaler, dtype: torch.dtype) -> Self:
        numbers = np.arange(len(cohort.actions)) - np.repeat(cohort.offsets[:-1], cohort.lengths)
        return cls(
            torch.as_tensor(scaler.states.encode(cohort.states)).to(dtype),
            torch.as_tensor(scaler.context.encode(cohort.context)).to(dtype),
            torch.as_tensor(numbers),
            torch.as_tensor(np.array(cohort.actions)),
        )


def fit_behaviour(
    cohort: Cohort,
    *,
    settings: BehaviourSettings | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> BehaviourModel:
    """Learn what this cohort's clinicians do from state, context and step number; its `report` says how well.

    Subjects are split into three: a network is fitted to the first part (Adam, float32), the second chooses the epoch
    and fits the temperature by which the scores are divided, the third measures. The same seed gives the same model.
    """
    settings = settings or BehaviourSettings()
    check_whole("fit: seed", seed, least=0)
    training, calibration, held_out = _split(cohort, settings, seed)
    scaler = Scaler.fit(training)
    counts = np.bincount(cohort.actions, minlength=len(cohort.schema.actions))
    network = _network(cohort, settings, counts)
    generator = torch.Generator().manual_seed(seed)
    with torch_threads(1):
        network.initialize(generator)
        fitting, choosing = (_Steps.of(part, scaler, torch.float32) for part in (training, calibration))
        _train(network, fitting, choosing, settings, generator, progress)
        network = network.double().eval().requires_grad_(False)
        temperature = _temperature(network, _Steps.of(calibration, scaler, torch.float64))
    neighbours = _neighbours(cohort, scaler, settings, seed, progress) if settings.keep_states else None
    most = settings.most_transitions
    recordings = Recordings.of(cohort, scaler, most=most, seed=seed) if settings.keep_states else None
    return BehaviourModel(
        schema=cohort.schema,
        scaler=scaler,
        network=network,
        hidden=settings.hidden,
        temperature=temperature,
        report=_report(network, temperature, (training, calibration, held_out), scaler),
        neighbours=neighbours,
        recordings=recordings,
    )


def _split(cohort: Cohort, settings: BehaviourSettings, seed: int) -> tuple[Cohort, Cohort, Cohort]:
    subjects = len(set(cohort.subjects))
    if subjects < 3:
        raise InputError(
            f"behaviour: the cohort has {subjects} of the three subjects that it needs at least: to "
            "learn from one, calibrate on another and measure on a third (many more, to say anything)."
        )
    rest, held_out = cohort.split(test=settings.held_out, seed=seed)
    if len(set(rest.subjects)) < 2:
        raise InputError(f"behaviour: held_out={settings.held_out:g} leaves one subject for fitting and calibration.")
    training, calibration = rest.split(test=settings.calibration, seed=seed)
    return training, calibration, held_out


def _network(cohort: Cohort, settings: BehaviourSettings, counts: IntArray) -> ChoiceNetwork:
    schema = cohort.schema
    sizes = (len(schema.dynamic), len(schema.context), len(schema.actions))
    network = ChoiceNetwork(sizes, settings.hidden, int(cohort.lengths.max()) - 1)
    network.taken.copy_(torch.as_tensor(counts > 0))
    return network


def _train(
    network: ChoiceNetwork,
    fitting: _Steps,
    choosing: _Steps,
    settings: BehaviourSettings,
    generator: torch.Generator,
    progress: Progress,
) -> None:
    """Leave the network with the weights of the epoch that explains the second part best."""
    optimizer = Adam(network.parameters())
    best, weights = math.inf, network.state_dict()
    for epoch in range(1, settings.epochs + 1):
        rate = settings.learning_rate * (1 + math.cos(math.pi * (epoch - 1) / settings.epochs)) / 2
        order = torch.randperm(len(fitting.actions), generator=generator)
        for rows in order.split(settings.batch_size):
            *inputs, actions = (column[rows] for column in fitting)
            optimizer.step(F.cross_entropy(network(*inputs), actions), rate)
        with torch.no_grad():
            loss = float(F.cross_entropy(network(*choosing[:3]).double(), choosing.actions))
        if not math.isfinite(loss):
            raise FitError(
                f"behaviour: the loss is no longer finite at epoch {epoch}; lower the learning rate (it is "
                f"{settings.learning_rate:g}), and look for features with extreme values."
            )
        if loss < best:
            best, weights = loss, {name: tensor.clone() for name, tensor in network.state_dict().items()}
        progress(Tick("behaviour", epoch, settings.epochs, {"validation loss": loss}))
    network.load_state_dict(weights)


@torch.no_grad()
def _temperature(network: ChoiceNetwork, rows: _Steps) -> float:
    """The number by which dividing the scores makes `rows` likeliest: a convex search in its inverse."""
    scores = network(*rows[:3])
    low, high = (1 / edge for edge in reversed(TEMPERATURES))

    def loss(inverse: float) -> float:
        return float(F.cross_entropy(scores * inverse, rows.actions))

    golden = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if loss(left) <= loss(right) else (left, high)
    found = (low + high) / 2
    return 1 / found if loss(found) < loss(1.0) else 1.0


def _neighbours(
    cohort: Cohort, scaler: Scaler, settings: BehaviourSettings, seed: int, progress: Progress
) -> Neighbours:
    """The states of the whole cohort, or as many of them as are kept, in random order."""
    order = np.random.default_rng(seed).permutation(len(cohort.states))[: settings.most_states]
    states = torch.as_tensor(scaler.states.encode(cohort.states[order]))
    return Neighbours.of(states, k=settings.k, progress=progress)


def _report(
    network: ChoiceNetwork, temperature: float, parts: tuple[Cohort, Cohort, Cohort], scaler: Scaler
) -> BehaviourReport:
    training, _, held_out = parts
    rows = _Steps.of(held_out, scaler, torch.float64)
    with torch.no_grad():
        scores = network(*rows[:3])
    actions = rows.actions.numpy()
    before, after = (_softmax(scores, value) for value in (1.0, temperature))
    likelihood = -float(F.cross_entropy(scores / temperature, rows.actions))
    marginal = _marginal(training, actions, network.taken.numpy())
    whole, schema = np.concatenate([part.states for part in parts]), held_out.schema
    return BehaviourReport(
        **{
            name: CohortPart(len(set(part.subjects)), len(part.actions))
            for name, part in zip(("training", "calibration", "held_out"), parts, strict=True)
        },
        temperature=temperature,
        log_likelihood=likelihood,
        uncalibrated_log_likelihood=-float(F.cross_entropy(scores, rows.actions)),
        marginal_log_likelihood=marginal,
        calibration_error=likeliest_error(after, actions),
        uncalibrated_error=likeliest_error(before, actions),
        by_probability=by_probability(after, actions),
        by_action=by_action(after, actions),
        never_chosen=tuple(schema.actions.labels[action] for action in np.flatnonzero(~network.taken.numpy())),
        constant=tuple(f.name for f, same in zip(schema.dynamic, np.ptp(whole, axis=0) == 0, strict=True) if same),
    )


def _softmax(scores: Tensor, temperature: float) -> FloatArray:
    return np.asarray(torch.softmax(scores / temperature, dim=-1).numpy())


def _marginal(training: Cohort, actions: IntArray, taken: FloatArray) -> float:
    """Nats per step of the training part's frequencies, each action of the cohort counted once more than it occurs."""
    counts = np.where(taken, np.bincount(training.actions, minlength=len(taken)) + 1.0, 0.0)
    return float(np.log(counts[actions] / counts.sum()).mean())
