"""Whether recorded data ever saw anything like a counterfactual course: its actions, and its states, step by step."""

from __future__ import annotations

import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.evidence.behaviour import BehaviourModel
from ifonly.problem import BaseProblem
from ifonly.result import SupportReport, Thresholds
from ifonly.result.evidence import StepSupport, SupportFlag


@torch.no_grad()
def support_of(
    problem: BaseProblem,
    actions: npt.ArrayLike | Tensor,
    behaviour: BehaviourModel,
    *,
    thresholds: Thresholds | None = None,
) -> SupportReport:
    """How likely clinicians were to act as `actions` [T], a result's for instance, where that would have led.

    Judged are the counterfactual states from the first change on; before it, course and record are the same. Of an
    ensemble problem's members the one counts that has the least support: the smallest probability, the largest
    percentile.
    """
    model, limits = problem.models[0], thresholds or Thresholds()
    behaviour.schema.require_same(model.schema, here="the behaviour model", there="the model")
    sequence = problem.checked_sequence(actions)
    states = problem.rollout(sequence.unsqueeze(0))[0][0]  # [T, (M,) D]
    states = states.unsqueeze(1) if states.dim() == 2 else states
    horizon, members = states.shape[:2]
    is_finite = states.isfinite().flatten(1).all(1).tolist()
    recorded = problem.context[:, : len(model.schema.context)]
    context = recorded.unsqueeze(1).expand(-1, members, -1).flatten(0, 1)
    steps = torch.arange(horizon, device=problem.device).repeat_interleave(members)
    every = behaviour.probabilities(states.flatten(0, 1), context, steps, scaler=model.scaler)
    taken = every.gather(1, sequence.repeat_interleave(members).unsqueeze(1)).view(horizon, members).amin(1).tolist()
    percentiles: list[float | None] = [None] * horizon
    if behaviour.neighbours is not None:
        far_off = behaviour.distance_percentile(states.flatten(0, 1), scaler=model.scaler)
        percentiles = list(far_off.view(horizon, members).amax(1).tolist())
    changed = (sequence != problem.observed_actions).tolist()
    first = changed.index(True) if any(changed) else horizon
    found = []
    for t in range(horizon):
        probability = taken[t] if is_finite[t] else None
        flags: tuple[SupportFlag, ...] = (SupportFlag.NOT_FINITE,)
        if is_finite[t]:
            flags = _flags(probability if changed[t] else None, percentiles[t] if t > first else None, limits)
        found.append(StepSupport(t, int(sequence[t]), changed[t], probability, percentiles[t], flags))
    return SupportReport(behaviour.fingerprint, tuple(found))


def _flags(probability: float | None, percentile: float | None, limits: Thresholds) -> tuple[SupportFlag, ...]:
    """What is unusual about a changed action, and about a state that was not recorded."""
    flags = []
    if probability == 0:
        flags.append(SupportFlag.NEVER_CHOSEN)
    elif probability is not None and probability < limits.unlikely:
        flags.append(SupportFlag.UNLIKELY)
    if percentile is not None and percentile > limits.far:
        flags.append(SupportFlag.FAR)
    return tuple(flags)
