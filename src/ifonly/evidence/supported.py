"""Whether recorded data ever saw anything like a counterfactual course: its actions, and its states, step by step."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from ifonly.data.schema import Schema, moment
from ifonly.errors import InputError
from ifonly.evidence.behaviour import BehaviourModel
from ifonly.evidence.limits import FAR, UNLIKELY
from ifonly.evidence.sequences import checked_sequence
from ifonly.evidence.words import one_of
from ifonly.problem import BaseProblem


@dataclass(frozen=True)
class StepSupport:
    """One step of a counterfactual course."""

    step: int
    action: int
    changed: bool
    probability: float | None
    """How likely the action is at the counterfactual state; None where that is not finite."""
    percentile: float | None
    """The share of recorded states, in percent, that lie nearer to the data; None where none were kept."""
    flags: tuple[str, ...]
    """What is unusual, in words."""


@dataclass(frozen=True)
class SupportReport:
    """Every step of a counterfactual course."""

    schema: Schema
    steps: tuple[StepSupport, ...]
    unlikely: float
    far: float
    behaviour: str
    """The fingerprint of the behaviour model."""

    @property
    def flags(self) -> tuple[str, ...]:
        """What is unusual, step after step."""
        return tuple(flag for step in self.steps for flag in step.flags)

    @property
    def summary(self) -> str:
        """In one sentence."""
        if not any(step.changed for step in self.steps):
            return "nothing is changed, so nothing needs support"
        flagged = sum(bool(step.flags) for step in self.steps)
        if not flagged:
            known = all(step.percentile is not None for step in self.steps)
            distances = ", and no state lies far from the data" if known else ""
            return f"every change was made in comparable situations{distances}"
        return f"{'one step goes' if flagged == 1 else f'{flagged} steps go'} beyond what the data supports"

    def to_dict(self) -> dict[str, Any]:
        """Plain types for JSON."""
        steps = [{**asdict(step), "flags": list(step.flags)} for step in self.steps]
        return {
            "summary": self.summary,
            "unlikely_below": self.unlikely,
            "far_above": self.far,
            "behaviour": self.behaviour,
            "steps": steps,
        }

    def __str__(self) -> str:
        return "\n".join([self.summary, *(f"  {words}" for step in self.steps for words in self._in_words(step))])

    def _in_words(self, step: StepSupport) -> tuple[str, ...]:
        """What is unusual about a step; of a change where nothing is, how usual it is."""
        if step.flags or not step.changed:
            return step.flags
        assert step.probability is not None, "it would be flagged"
        return (_chosen(self.schema, step.step, step.probability),)


@torch.no_grad()
def support_of(
    problem: BaseProblem,
    actions: npt.ArrayLike | Tensor,
    behaviour: BehaviourModel,
    *,
    unlikely: float = UNLIKELY,
    far: float = FAR,
) -> SupportReport:
    """How likely clinicians were to act as `actions` [T], a result's for instance, where that would have led.

    Judged are the counterfactual states from the first change on; before it, course and record are the same. Of a
    panel's members the one counts that has the least support: the smallest probability, the largest percentile.
    """
    if not (0 <= unlikely <= 1 and 0 <= far <= 100):
        raise InputError(f"support: unlikely={unlikely} must be a probability, and far={far} a percentage.")
    model = problem.models[0]
    behaviour.schema.require_same(model.schema, here="the behaviour model", there="the model")
    sequence = checked_sequence(problem, actions)
    states = problem.rollout(sequence.unsqueeze(0))[0][0]  # [T, (M,) D]
    states = states.unsqueeze(1) if states.dim() == 2 else states
    horizon, members = states.shape[:2]
    is_finite = states.isfinite().flatten(1).all(1).tolist()
    context = problem.context.unsqueeze(1).expand(-1, members, -1).flatten(0, 1)
    steps = torch.arange(horizon, device=problem.device).repeat_interleave(members)
    every = behaviour.probabilities(states.flatten(0, 1), context, steps, scaler=model.scaler)
    taken = every.gather(1, sequence.repeat_interleave(members).unsqueeze(1)).view(horizon, members).amin(1).tolist()
    percentiles: list[float | None] = [None] * horizon
    if behaviour.neighbours is not None:
        far_off = behaviour.distance_percentile(states.flatten(0, 1), scaler=model.scaler)
        percentiles = list(far_off.view(horizon, members).amax(1).tolist())
    changed = (sequence != problem.observed_actions).tolist()
    first = changed.index(True) if any(changed) else horizon
    schema = problem.episode.schema
    found = []
    for t in range(horizon):
        if not is_finite[t]:
            found.append(StepSupport(t, int(sequence[t]), changed[t], None, percentiles[t], (not_finite(schema, t),)))
            continue
        flags = _flags(
            schema, t, taken[t] if changed[t] else None, percentiles[t] if t > first else None, unlikely, far
        )
        found.append(StepSupport(t, int(sequence[t]), changed[t], taken[t], percentiles[t], flags))
    return SupportReport(schema, tuple(found), unlikely, far, behaviour.fingerprint)


def _flags(
    schema: Schema, step: int, probability: float | None, percentile: float | None, unlikely: float, far: float
) -> tuple[str, ...]:
    """What is unusual about a changed action, and about a state that was not recorded."""
    when = moment(schema, step)
    flags = []
    if probability == 0:
        flags.append(f"at {when} this action is one that nobody in the data ever chose")
    elif probability is not None and probability < unlikely:
        flags.append(_chosen(schema, step, probability))
    if percentile is not None and percentile > far:
        share = "any recorded state" if percentile == 100 else f"{percentile:.4g} % of recorded states"
        flags.append(f"the state at {when} lies farther from the data than {share}")
    return tuple(flags)


def not_finite(schema: Schema, step: int) -> str:
    """That a model breaks down, in words."""
    return f"at {moment(schema, step)} the model gives no finite state"


def _chosen(schema: Schema, step: int, probability: float) -> str:
    return f"at {moment(schema, step)} this action was chosen in {one_of(probability)} comparable situations"
