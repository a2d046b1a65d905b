"""Cohorts recorded in the simulated world: who is admitted, how they are treated, what is written down.

Treatment does not depend on the noise of the world: there is no hidden confounding unless a `Clinician` is given
`insight`. Inputs and random draws are rows, one per patient: states [B, D] in the world's coordinates,
uniform or normal draws [B, n].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ifonly.data.cohort import Cohort
from ifonly.data.episode import FloatArray, IntArray
from ifonly.errors import InputError
from ifonly.progress import Progress, Tick, silent
from ifonly.simulate.world import SepsisWorld, sepsis_schema, soft_clamp

BLOCK = 256
"""Patients are computed in blocks of exactly this many, so that rounding, too, is the same for any cohort size."""

FEMALE = 0.44
SECOND_STAYS = 0.2
"""How often a patient with an odd number is a second stay of the one before."""
EARLIER_STAYS = 0.15
"""How often a patient was here before without a record of it."""

STYLE_SPREAD = (0.8, 0.8)
"""How much clinicians differ in their readiness to give vasopressors and fluids: deviations of the need."""

LEVELS = 5
_INDEX = {feature.name: column for column, feature in enumerate(sepsis_schema().dynamic)}

ADMISSION: dict[str, tuple[float, float, float]] = {
    # centre, push of one deviation of severity, own spread; world coordinates
    "FiO2": (0.3, 0.4, 0.7),
    "PaO2": (0.1, -0.3, 0.8),
    "platelets": (0.1, -0.3, 0.9),
    "bilirubin": (-0.1, 0.3, 0.9),
    "GCS": (0.0, -0.5, 0.8),
    "MAP": (-0.5, -0.5, 0.8),
    "creatinine": (0.0, 0.4, 0.9),
    "urine": (-0.3, -0.4, 0.8),
    "SOFA": (0.2, 0.8, 0.5),
}
"""How patients arrive: hypotensive and dry on average, each organ worse the more severe the illness."""

AGE_PUSH = {"creatinine": 0.15, "PaO2": -0.1, "GCS": -0.1, "SOFA": 0.1}
"""What fifteen years of age add on arrival."""

PRESSOR_THRESHOLDS = (0.4, 0.8, 1.3, 2.1)
FLUID_THRESHOLDS = (-1.3, -0.4, 0.6, 2.0)
"""The need (below) at which the next higher of the five dose levels is chosen, up to logistic noise."""

HESITATION = 0.9
"""Scale of the logistic noise in the need."""


@dataclass(frozen=True)
class Clinician:
    """What is unusual about those who treat; by default nothing."""

    insight: tuple[float, float] = (0.0, 0.0)
    """What one deviation of what a world hides of a stay adds to the need for vasopressors and for fluids: they
    act on what is not recorded (hidden confounding)."""
    no_fluids_above: float | None = None
    """Where the oxygen debt (FiO2 minus PaO2, world coordinates) is larger, fluids are never given (no overlap)."""


USUAL = Clinician()


def arriving_states(severity: FloatArray, age: FloatArray, draws: FloatArray) -> FloatArray:
    """First states [B, D], before the clamp; `severity` and scaled `age` [B], normal `draws` [B, D]."""
    table = np.array([ADMISSION[name] for name in _INDEX])
    push = np.array([AGE_PUSH.get(name, 0.0) for name in _INDEX])
    return table[:, 0] + np.outer(severity, table[:, 1]) + np.outer(age, push) + table[:, 2] * draws


def ventilated(states: FloatArray, before: FloatArray, draws: FloatArray) -> npt.NDArray[np.bool_]:
    """Who is on a ventilator [B]: those short of oxygen or consciousness, and mostly those who were `before`."""
    oxygen_debt = states[:, _INDEX["FiO2"]] - states[:, _INDEX["PaO2"]]
    urge = -1.9 + 0.5 * oxygen_debt - 0.7 * states[:, _INDEX["GCS"]] + 3.0 * before
    result: npt.NDArray[np.bool_] = urge + _logistic(draws) > 0
    return result


def treatment(
    states: FloatArray, step: int, style: FloatArray, draws: FloatArray, *, clinician: Clinician = USUAL
) -> IntArray:
    """Actions [B]: ordered choices of a dose level per treatment.

    The need for vasopressors grows as pressure falls below normal and with SOFA; that for fluids as urine and
    pressure fall, in the first steps of a stay, and shrinks when oxygenation is poor. `style` [B, 2] shifts both
    for a whole stay (one clinician gives more, another less); `draws` [B, 2] are uniform, the hesitation of the
    moment.
    """
    pressure, urine, score = (states[:, _INDEX[name]] for name in ("MAP", "urine", "SOFA"))
    oxygen_debt = states[:, _INDEX["FiO2"]] - states[:, _INDEX["PaO2"]]
    pressors = -1.0 * pressure + 0.3 * score
    fluids = -0.7 * urine - 0.5 * pressure - 0.25 * oxygen_debt + 1.2 * 0.7**step
    need = np.stack([pressors, fluids], axis=1) + style + HESITATION * _logistic(draws)
    pressor_level: IntArray = (need[:, :1] > np.array(PRESSOR_THRESHOLDS)).sum(axis=1)
    fluid_level: IntArray = (need[:, 1:] > np.array(FLUID_THRESHOLDS)).sum(axis=1)
    if clinician.no_fluids_above is not None:
        fluid_level = np.where(oxygen_debt > clinician.no_fluids_above, 0, fluid_level)
    return pressor_level * LEVELS + fluid_level


def _logistic(uniform: FloatArray) -> FloatArray:
    """Uniform draws as standard logistic ones; zero, which a generator may return, is moved off."""
    safe = np.maximum(uniform, 1e-300)
    return np.log(safe) - np.log1p(-safe)


@dataclass(frozen=True)
class _Stays:
    """What is drawn on admission, for every patient."""

    person: IntArray  # [n], number of the first stay of the same person
    static: FloatArray  # [n, 3]: gender, readmission, age in years
    hidden: FloatArray  # [n, H], normal draws: hidden features of a stay
    severity: FloatArray  # [n]
    first: FloatArray  # [n, D], normal draws
    style: FloatArray  # [n, 2]
    horizon: IntArray  # [n]


@dataclass(frozen=True)
class _Records:
    """What is written down, step by step, in the world's coordinates."""

    states: FloatArray  # [n, T, D]
    context: FloatArray  # [n, T, C]
    actions: IntArray  # [n, T]


def simulate_cohort(
    patients: int,
    *,
    seed: int = 0,
    horizon: int | tuple[int, int] = (10, 20),
    world: SepsisWorld | None = None,
    clinician: Clinician = USUAL,
    progress: Progress = silent,
) -> Cohort:
    """`patients` stays in intensive care, treated by a clinician who reacts to severity.

    In a world with hidden features these are part of the cohort, so that the world can replay it; `world.recorded`
    gives what a record shows. `clinician` says what is unusual about those who treat.

    `horizon` is the number of steps, or the (shortest, longest) between which each stay's is drawn. The same seed
    gives the same patient whatever the number of patients; a fixed shorter horizon gives the beginning of a longer
    one. About a tenth of the stays are a second stay of the patient before (same subject, readmission = 1).

    >>> simulate_cohort(3, seed=1, horizon=12)
    Cohort(3 episodes, 3 subjects, 36 steps)
    """
    if patients < 1:
        raise InputError(f"simulate: patients={patients} must be at least 1.")
    shortest, longest = (horizon, horizon) if isinstance(horizon, int) else horizon
    if not 2 <= shortest <= longest:
        raise InputError(f"simulate: horizon={horizon} must be at least 2 steps, shortest first.")
    if seed < 0:
        raise InputError(f"simulate: seed={seed} must be zero or positive.")
    world = world or SepsisWorld()
    world = world if world.is_for_search("cpu") else world.for_search()
    padded = -(-patients // BLOCK) * BLOCK
    stays = _admit(world, padded, seed, (shortest, longest))
    records = _live(world, clinician, stays, seed=seed, steps=longest, progress=progress)
    kept = np.arange(longest) < stays.horizon[:patients, None]  # [n, longest]
    return Cohort(
        schema=world.schema,
        ids=tuple(f"patient-{number:05d}" for number in range(patients)),
        subjects=tuple(f"subject-{person:05d}" for person in stays.person[:patients]),
        offsets=np.concatenate([[0], np.cumsum(kept.sum(axis=1))]),
        # Decoded before rows are dropped: vectorised functions may round the tail of an array differently.
        states=world.scaler.states.decode(records.states)[:patients][kept],
        context=world.scaler.context.decode(records.context)[:patients][kept],
        actions=records.actions[:patients][kept],
    )


def _stream(seed: int, *purpose: int) -> np.random.Generator:
    """A stream per purpose; its rows are drawn patient by patient, so that a longer table begins with a shorter."""
    return np.random.default_rng([seed, *purpose])


def _admit(world: SepsisWorld, patients: int, seed: int, horizon: tuple[int, int]) -> _Stays:
    dynamic = len(sepsis_schema().dynamic)
    uniform = _stream(seed, 0).random((patients, 4))
    normal = _stream(seed, 1).standard_normal((patients, 4 + dynamic))
    numbers = np.arange(patients)
    again = (numbers % 2 == 1) & (uniform[:, 2] < SECOND_STAYS)
    person = np.where(again, numbers - 1, numbers)
    # Most patients are between 50 and 85 years old, all between 18 and 100.
    years = 18 + 82 / (1 + np.exp(-0.5 - 0.75 * normal[person, 1]))
    return _Stays(
        person=person,
        static=np.stack([uniform[person, 0] < FEMALE, again | (uniform[:, 1] < EARLIER_STAYS), years], axis=1),
        hidden=_stream(seed, 4).standard_normal((patients, world.context_size - len(sepsis_schema().context))),
        severity=normal[:, 0],
        first=normal[:, 4:],
        style=normal[:, 2:4] * STYLE_SPREAD,
        horizon=horizon[0] + np.floor(uniform[:, 3] * (horizon[1] - horizon[0] + 1)).astype(np.int64),
    )


def _live(
    world: SepsisWorld, clinician: Clinician, stays: _Stays, *, seed: int, steps: int, progress: Progress
) -> _Records:
    """Every patient's first `steps` steps; hidden features that move begin at zero."""
    (patients, visible), dynamic = stays.first.shape, world.state_size
    # What clinicians notice for a whole stay shifts their needs as their own style does.
    style = stays.style + stays.hidden.sum(axis=1, keepdims=True) * np.array(clinician.insight)
    records = _Records(
        states=np.empty((patients, steps, dynamic)),
        context=np.empty((patients, steps, len(world.schema.context))),
        actions=np.empty((patients, steps), dtype=np.int64),
    )
    blocks = [slice(start, start + BLOCK) for start in range(0, patients, BLOCK)]
    for rows in blocks:
        static = np.column_stack([stays.static[rows], np.zeros(BLOCK), stays.hidden[rows]])
        records.context[rows] = world.scaler.context.encode(static)[:, None]
        arriving = np.zeros((BLOCK, dynamic))
        arriving[:, :visible] = arriving_states(stays.severity[rows], records.context[rows, 0, 2], stays.first[rows])
        records.states[rows, 0] = soft_clamp(torch.as_tensor(arriving), world.low, world.high).numpy()
    for t in range(steps):
        draws = _stream(seed, 2, t).random((patients, 3))
        noise = _stream(seed, 3, t).standard_normal((patients, dynamic))
        for rows in blocks:
            now = records.states[rows, t]
            before = records.context[rows, t - 1, 3] if t else np.zeros(BLOCK)
            records.context[rows, t, 3] = ventilated(now, before, draws[rows, 0])
            records.actions[rows, t] = treatment(now, t, style[rows], draws[rows, 1:], clinician=clinician)
            if t + 1 < steps:
                correlated = torch.as_tensor(noise[rows]) @ world.prior.factor().mT
                context, actions = (torch.as_tensor(values[rows, t]) for values in (records.context, records.actions))
                records.states[rows, t + 1] = world.step(torch.as_tensor(now), context, actions, correlated).numpy()
        progress(Tick("simulate", t + 1, steps))
    return records
