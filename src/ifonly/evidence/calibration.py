"""How well a model explains recorded transitions like those of an answer, and what that does to the answer's promise.

The noise by which a model explains recorded transitions from comparable states under comparable actions should be zero
on average; where it is not, the model is wrong there by so much. The noise of a recording contains what the model gets
wrong at the recorded state and action. A counterfactual course replays it at other ones: so its noise is shifted by the
local mean there less the local mean here, both at the states of the model's own, unshifted course.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.errors import InputError
from ifonly.evidence.behaviour import BehaviourModel, Recordings
from ifonly.evidence.check.sample import prior_of
from ifonly.evidence.comparable import COUNT, Comparable, Records
from ifonly.evidence.shifts import ShiftedCourse
from ifonly.models.base import TransitionModel
from ifonly.models.effects import CHANCE, LARGEST_NOISE
from ifonly.models.fit import EncodedTransitions
from ifonly.problem import Problem
from ifonly.records import finite
from ifonly.result.calibration import LocalCalibration, StepCalibration

LATER = 4
"""Recorded steps after a transition over which its later noise is averaged."""

DRAWS = 64
"""Draws of weights of subjects, by which standard errors are found."""

PLACES = 5.0
"""Of how an action's local means vary, what is known of all actions counts as so many places without common records."""

LIMIT = 2.0
"""Standard errors that shrinkage takes from a local mean, at most (Efron and Morris, limited translation): what is
plain to see in one place must not drown in the many places where nothing is wrong."""


@torch.no_grad()
def calibration(
    problem: Problem, actions: npt.ArrayLike | Tensor, behaviour: BehaviourModel, *, seed: int = 0
) -> LocalCalibration:
    """What recorded transitions like those of `actions` [T], a result's for instance, do to the promised gain.

    `behaviour` has kept the records; those of the person who is asked about are left out. Standard errors are those of
    a Bayesian bootstrap over subjects: the records of a place, and of neighbouring places, are not independent.
    """
    if not isinstance(problem, Problem):
        raise InputError("calibration: ask it of one model's problem: one of the `members` of an ensemble problem.")
    recordings = behaviour.recordings
    if recordings is None:
        raise InputError(
            "calibration: this behaviour model was made or saved without recorded courses; fit it with "
            "BehaviourSettings(keep_states=True) and save it with_states=True."
        )
    course = ShiftedCourse.of(problem, problem.checked_sequence(actions))
    if not torch.isfinite(course.states).all():
        problem.require_finite(torch.tensor(torch.nan))
    local = _LocalNoise.cached(problem, behaviour, recordings)
    steps = torch.tensor(course.uncertain, dtype=torch.long)
    if not len(steps):
        gain = course.gain if abs(course.gain) > problem.tolerance else 0.0
        return LocalCalibration(gain, gain, 0.0, len(recordings))
    found = local.around(course, behaviour, steps, seed)
    gains = course.gains(_shifts(course, found)).cpu()
    deviation = float(gains[1:].std(correction=0))
    return LocalCalibration(
        gain=course.gain,
        adjusted=float(gains[0].nan_to_num(nan=-torch.inf)),
        deviation=finite(deviation),
        transitions=len(recordings),
        steps=_steps(course, found, steps),
    )


def _shifts(course: ShiftedCourse, found: _Around) -> Tensor:
    """Shifts [1 + B, T-1, D] of the noise: the one that is told, and draws around it by their standard errors."""
    drawn = torch.cat([found.shift.unsqueeze(0), found.shift + found.errors])
    shifts = course.states.new_zeros(len(drawn), *course.problem.noise.shape)
    shifts[:, course.first :] = drawn.to(shifts) * course.deviations
    return shifts


def _steps(course: ShiftedCourse, found: _Around, steps: Tensor) -> tuple[StepCalibration, ...]:
    chosen, recorded = (sequence.tolist() for sequence in (course.sequence, course.problem.observed_actions))
    return tuple(
        StepCalibration(
            step=step,
            action=chosen[step],
            changed=chosen[step] != recorded[step],
            records=int(found.compared.found[place].sum()),
            same_action=int(found.compared.same_action[place]),
            percentile=float(found.compared.percentile[place]),
            **{name: tuple(getattr(found, name)[place].tolist()) for name in _Around.TOLD},
        )
        for place, step in enumerate(steps.tolist())
    )


@dataclass(frozen=True, eq=False)
class _Around:
    """What comparable records say of S steps; [S, D] in deviations of the noise, NaN where nothing was measured."""

    TOLD = ("bias", "error", "spread", "observed_bias", "shift", "later", "later_error")

    compared: Comparable
    bias: Tensor
    error: Tensor
    spread: Tensor
    observed_bias: Tensor
    shift: Tensor
    later: Tensor
    later_error: Tensor
    errors: Tensor  # [B, S, D], draws of how far the shift may be off


@dataclass(frozen=True, eq=False)
class _Means:
    """Means of Q places and draws of how far they may be off; NaN and zero where nothing was measured."""

    mean: Tensor  # [Q, D]
    errors: Tensor  # [B, Q, D]
    error: Tensor  # [Q, D], the standard error
    spread: Tensor  # [Q, D], the deviation around the mean


@dataclass(frozen=True, eq=False)
class _Values:
    """A value [N, D] of every record, and which of them count."""

    values: Tensor
    counted: Tensor  # float64, 1 or 0

    @property
    def centre(self) -> Tensor:
        """The mean [D] over all records."""
        return (self.values * self.counted).sum(0) / self.counted.sum(0).clamp(min=1)

    @property
    def deviation(self) -> Tensor:
        """The deviation [D] over all records."""
        around = (self.values - self.centre).square() * self.counted
        return (around.sum(0) / (self.counted.sum(0) - 1).clamp(min=1)).sqrt()

    def around(self, compared: Comparable, weights: Tensor) -> _Means:
        """Means over the compared records; `weights` [B, N'] are drawn for the subjects of these, [B, Q, K]."""
        counted = self.counted[compared.rows] * compared.found.unsqueeze(-1)  # [Q, K, D]
        values = self.values[compared.rows] * counted
        count = counted.sum(1)
        mean = values.sum(1) / count  # NaN where nothing counts
        sums, totals = (torch.einsum("bqk,qkd->bqd", weights, part) for part in (values, counted))
        errors = (sums / totals - mean).nan_to_num(nan=0.0)
        spread = ((self.values[compared.rows] - mean.unsqueeze(1)).square() * counted).sum(1) / (count - 1).clamp(min=1)
        # A few records that happen to agree are no surer than so many usually are.
        error = torch.maximum(errors.square().mean(0).sqrt(), self.deviation / count.sqrt())
        return _Means(mean, errors, error.masked_fill(count == 0, torch.nan), spread.sqrt())


@dataclass(frozen=True, eq=False)
class _LocalNoise:
    """The noise by which one model explains all records, in deviations, and how much of it is local."""

    records: Records
    noise: _Values
    later: _Values
    centre: Tensor  # [D]
    between: Tensor  # [A, D], for each action the variance of local means beyond chance

    @classmethod
    def cached(cls, problem: Problem, behaviour: BehaviourModel, recordings: Recordings) -> _LocalNoise:
        """What the problem's model makes of the records: computed once for a model."""
        if recordings not in _KNOWN:
            _KNOWN[recordings] = (Records.of(behaviour, recordings), {})
        records, known = _KNOWN[recordings]
        name = problem.fingerprint()
        if name not in known:
            known[name] = cls.of(problem.model, behaviour, recordings, records)
        return known[name]

    @classmethod
    def of(
        cls, model: TransitionModel, behaviour: BehaviourModel, recordings: Recordings, records: Records
    ) -> _LocalNoise:
        """Abduct the noise of every record."""
        rows = EncodedTransitions.of(model, recordings.cohort(behaviour.schema, behaviour.scaler))
        noise = torch.cat([model.abduct(*batch[:4]) for batch in rows.batches()])
        values = (noise / prior_of(model).covariance().diagonal().sqrt()).double().cpu()
        counted = values.isfinite()
        if rows.measured is not None:
            # Where features do not each have noise of their own, every noise follows from the whole next state.
            measured = rows.measured.cpu()
            counted &= measured if model.elementwise else measured.all(-1, keepdim=True)
        values = torch.where(counted, values, 0.0).clamp(-LARGEST_NOISE, LARGEST_NOISE)
        own = _Values(values, counted.double())
        compared = records.of_references
        means = own.around(compared, _weights(records, compared, seed=0))
        return cls(records, own, _later(own, records), own.centre, _beyond_chance(means, own, records))

    def around(self, course: ShiftedCourse, behaviour: BehaviourModel, steps: Tensor, seed: int) -> _Around:
        """What records say of the course at `steps` [S], and of the recording there."""
        problem = course.problem
        recorded = _places(problem, behaviour, problem.observed_states) / self.records.deviations
        reached = _places(problem, behaviour, course.states) / self.records.deviations
        sequence, observed = course.sequence.cpu(), problem.observed_actions.cpu()
        left_out = self.records.is_recorded_in(recorded[:-1], observed[:-1])
        both = torch.cat([reached[steps], recorded[steps]]), torch.cat([sequence[steps], observed[steps]])
        compared = self.records.compare(*both, left_out)
        weights = _weights(self.records, compared, seed)
        means, later = (values.around(compared, weights) for values in (self.noise, self.later))
        there, here = self._shrunk(means, both[1]).split(len(steps))
        bias, observed_bias = means.mean.split(len(steps))
        ahead, back = means.errors.split(len(steps), dim=1)
        return _Around(
            compared=compared,
            bias=bias,
            error=means.error[: len(steps)],
            spread=means.spread[: len(steps)],
            observed_bias=observed_bias,
            shift=there - here,
            later=later.mean[: len(steps)],
            later_error=later.error[: len(steps)],
            errors=ahead - back,
        )

    def _shrunk(self, means: _Means, actions: Tensor) -> Tensor:
        """Local means [Q, D] less the mean of all, by how much of such means is beyond chance under `actions` [Q]."""
        raw, error, between = means.mean - self.centre, means.error, self.between[actions]
        weight = between / (between + error.square())
        limit = LIMIT * error
        return torch.clamp(weight * raw, raw - limit, raw + limit).nan_to_num(nan=0.0)


_KNOWN: WeakKeyDictionary[Recordings, tuple[Records, dict[str, _LocalNoise]]] = WeakKeyDictionary()


def _places(problem: Problem, behaviour: BehaviourModel, states: Tensor) -> Tensor:
    """States [T, D] and the recorded context [T, C] in the behaviour model's coordinates."""
    model = problem.model
    coordinates = behaviour.coordinates(model.scaler, "cpu")
    context = problem.context[:, : len(model.schema.context)].cpu()
    return torch.cat([coordinates.of_states(states.cpu()), coordinates.of_context(context)], dim=1)


def _weights(records: Records, compared: Comparable, seed: int) -> Tensor:
    """Weights [B, Q, K] of the compared records: exponential ones, drawn for each subject."""
    subjects = int(records.subjects.max()) + 1
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.empty(DRAWS, subjects, dtype=torch.float64).exponential_(generator=generator)
    return drawn[:, records.subjects[compared.rows]]


def _beyond_chance(means: _Means, values: _Values, records: Records) -> Tensor:
    """For each action the variance [A, D] of local means around the mean of all, beyond their standard errors.

    That of the references under the action, blended with that of all references, which counts as `PLACES` places.
    """
    known = means.mean.isfinite()
    square = torch.where(known, (means.mean - values.centre).square(), 0.0)
    chance = torch.where(known, means.error.square(), 0.0)
    own = records.actions[records.references]
    groups = torch.cat([own.unsqueeze(0) == torch.arange(len(records.apart)).unsqueeze(1), torch.ones(1, len(own)) > 0])
    counted = torch.zeros(len(records.apart), values.counted.shape[1], dtype=torch.float64)
    counted.index_add_(0, records.actions, values.counted)
    # So many places, about, share no records.
    places = torch.cat([counted, counted.sum(0, keepdim=True)]) / COUNT  # [A + 1, D]
    of_group = groups.double()
    squares, chances = (of_group @ part / (of_group @ known.double()).clamp(min=1) for part in (square, chance))
    beyond = squares > chances * (1 + CHANCE * (2 / places.clamp(min=1)).sqrt())
    excess = torch.where(beyond, squares - chances, 0.0)
    return (places[:-1] * excess[:-1] + PLACES * excess[-1]) / (places[:-1] + PLACES)


def _later(own: _Values, records: Records) -> _Values:
    """The mean noise over the next recorded steps of the same episode, where there are any."""
    episode = torch.repeat_interleave(torch.arange(len(records.lengths)), records.lengths)
    sums, counts = torch.zeros_like(own.values), torch.zeros_like(own.values)
    for ahead in range(1, LATER + 1):
        same = (episode[ahead:] == episode[:-ahead]).double().unsqueeze(1)
        sums[:-ahead] += own.values[ahead:] * own.counted[ahead:] * same
        counts[:-ahead] += own.counted[ahead:] * same
    return _Values(sums / counts.clamp(min=1), (counts > 0).double())
