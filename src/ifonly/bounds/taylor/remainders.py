"""Remainders of one step's expansion: bounds on what the second-order expansion of a step leaves out.

Rf is the step's remainder after second order, S3 = lambda . D^3 f at the state expanded at, and displacements are
z = F y' + R1 for a frame F, with |y'| <= a radius, |R1| <= `first_remainder` and |z| <= `reach`. Bounded are

    remainder          >= 6 |Rf|
    adjoint_remainder  >= |6 lambda . Rf - S3[F y', F y', F y']|

All results are float64; D^3 f is multiplied in float32, with the margin (T54).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.bounds.taylor.local_expansion import LocalExpansion, RewardRemainder, ScaleExpansion
from ifonly.bounds.taylor.norms import (
    CACHED,
    FramedTrilinear,
    framed_eigenvalue_bound,
    framed_trilinear,
    packed_framed_trilinear,
    quartic_seminorms,
    trace,
)
from ifonly.models.layers import ROUNDING
from ifonly.models.smooth import DERIVATIVE_BOUNDS, norm_bound
from ifonly.problem import array_scale


def step_remainders(
    step: LocalExpansion, frames: Tensor, radii: Tensor, first_remainder: Tensor, reach: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """For frames [N, S, D, D], radii [G], first_remainder and reach [N, S, G]: S3[F., F., F.] [N, S, D, D, D],
    adjoint_remainder [N, S, G] and remainder [N, S, G]."""
    assert step.adjoint_third is not None
    assert step.third is not None
    tensors, adjoint = framed_trilinear(step.adjoint_third.unsqueeze(1), frames)
    own = packed_framed_trilinear(step.third.float(), frames)
    thirds = FramedThirds(adjoint.bounds(frames), own.bounds(frames))
    return tensors.squeeze(-1), *FramedStep.of(step, frames).remainders(thirds, radii, first_remainder, reach)


@dataclass(frozen=True)
class FramedThirds:
    """Third derivatives of N steps, seen through frames [N, S, D, D]."""

    adjoint: FramedTrilinear  # S3
    own: FramedTrilinear  # D^3 f, which is many numbers: multiplied in float32

    def mapped(self, change: Callable[[Tensor], Tensor]) -> FramedThirds:
        """With `change` applied to every array."""
        return FramedThirds(self.adjoint.mapped(change), self.own.mapped(change))


@dataclass(frozen=True)
class FramedScale:
    """A scale seen through frames."""

    scale: ScaleExpansion
    framed: Tensor  # [N, ..., O], |F^T Dn_i|
    rows: Tensor  # [N, ..., O], |Dn_i|

    @classmethod
    def of(cls, scale: ScaleExpansion, frames: Tensor) -> FramedScale:
        """For frames [N, ..., D, D]."""
        lengths = (torch.linalg.vector_norm(one, dim=-1) for one in (scale.jacobian @ frames, scale.jacobian))
        return cls(scale, *(length * (1 + ROUNDING) for length in lengths))

    def mapped(self, change: Callable[[Tensor], Tensor]) -> FramedScale:
        """With `change` applied to every array of steps."""
        return FramedScale(self.scale.mapped(change), change(self.framed), change(self.rows))


@dataclass(frozen=True)
class FramedStep:
    """What bounds on the remainders of N steps, seen through frames [N, S, D, D], are made of: all that does not depend
    on how long displacements are. Of each pair the first is multiplied by the radius, the second by what is off."""

    adjoint_quartic: tuple[Tensor, Tensor]  # [N, S, 1] and [N, 1, 1], q(F) and q(1) of (T13), along the adjoint
    quartic: tuple[Tensor, Tensor]  # the same of the step itself
    root: tuple[Tensor, Tensor]  # sqrt(p) and sqrt(tr Q) of (T15)
    adjoint_norm: Tensor  # [N, 1, 1], |lambda|
    deep_third: Tensor  # [N, 1, 1], n3 of deep networks (T18)
    scales: tuple[FramedScale, ...]
    reward: RewardRemainder | None

    @classmethod
    def of(cls, step: LocalExpansion, frames: Tensor) -> FramedStep:
        """For frames [N, S, D, D]."""
        form = step.third_form.unsqueeze(1)
        # The frame that changes nothing, for what is off, comes last.
        eye = torch.eye(frames.shape[-1], dtype=frames.dtype, device=frames.device).expand(len(frames), 1, -1, -1)
        sizes, several = torch.stack((step.adjoint_quartic, step.quartic), dim=1), torch.cat((frames, eye), dim=1)
        together = max(1, CACHED * array_scale(frames.device) // max(1, sizes[0].numel() * several.shape[1]))
        quartic = [  # so few at a time that they fit a processor's cache
            quartic_seminorms(some, step.unit_rows, through)
            for some, through in zip(sizes.split(together), several.split(together), strict=True)
        ]
        adjoint, own = ((both[:, :-1], both[:, -1:]) for both in torch.cat(quartic).unbind(1))
        scales = (part.mapped(lambda array: array.unsqueeze(1)) for part in step.scales)
        return cls(
            adjoint_quartic=adjoint,
            quartic=own,
            root=(framed_eigenvalue_bound(form, frames @ frames.mT).sqrt(), trace(form).sqrt()),
            adjoint_norm=step.adjoint_norm.unsqueeze(1),
            deep_third=step.deep_third.unsqueeze(1),
            scales=tuple(FramedScale.of(scale, frames) for scale in scales),
            reward=None if step.reward is None else step.reward.mapped(lambda array: array.unsqueeze(1)),
        )

    def mapped(self, change: Callable[[Tensor], Tensor]) -> FramedStep:
        """With `change` applied to every array: rows and frames selected."""

        def both(pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return change(pair[0]), change(pair[1])

        return FramedStep(
            both(self.adjoint_quartic),
            both(self.quartic),
            both(self.root),
            change(self.adjoint_norm),
            change(self.deep_third),
            tuple(scale.mapped(change) for scale in self.scales),
            None if self.reward is None else self.reward.mapped(change),
        )

    def remainders(
        self, thirds: FramedThirds, radii: Tensor, first_remainder: Tensor, reach: Tensor
    ) -> tuple[Tensor, Tensor]:
        """adjoint_remainder and remainder [N, S, G], for radii [G], first_remainder and reach [N, S, G]. The smaller of
        (T14) and (T16) is taken."""

        def seminorm(pair: tuple[Tensor, Tensor]) -> Tensor:
            return pair[0] * radii + pair[1] * first_remainder

        cubes, root = reach**3, seminorm(self.root)
        deep = self.deep_third * cubes
        # (T14): by the third derivative at the state, and (T18) for deep networks.
        near_adjoint = thirds.adjoint.mixed(radii, first_remainder) + seminorm(self.adjoint_quartic) ** 4 / 4
        near_adjoint = near_adjoint + self.adjoint_norm * deep
        near = thirds.own.bound(radii, first_remainder) + seminorm(self.quartic) ** 4 / 4 + deep
        # (T16): by the third derivative anywhere.
        anywhere = root**2 * reach
        anywhere_adjoint = thirds.adjoint.thrice * radii**3 + self.adjoint_norm * anywhere
        for scale in self.scales:
            bent = ScaleBounds.of(scale, radii, first_remainder, reach)
            along, whole = scale.scale.together(bent.third())  # (T20)
            anywhere_adjoint, anywhere = anywhere_adjoint + along, anywhere + whole
            if not scale.scale.is_deep:
                along, whole = scale.scale.together(bent.fourth() / 4)  # (T19)
            near_adjoint, near = near_adjoint + along, near + whole
        if self.reward is not None:
            near_adjoint = near_adjoint + reward_fourth(self.reward, reach)
            anywhere_adjoint = anywhere_adjoint + reward_third(self.reward, reach)
        return torch.minimum(near_adjoint, anywhere_adjoint), torch.minimum(near, anywhere)


def step_remainders_anywhere(step: LocalExpansion, frames: Tensor, radii: Tensor) -> tuple[Tensor, Tensor]:
    """(T16) without R1, for steps that come in groups of equal size, each with one of the frames [B, D, D]: bounds
    [N, G] on 6 |lambda . Rf|, and bounds [B, G] on 6 |Rf| of every step of a group."""
    reach = norm_bound(frames).unsqueeze(1) * radii
    remainder = framed_eigenvalue_bound(step.third_form[:1], frames @ frames.mT) * radii**2 * reach
    count = len(step.third_form) // len(frames)
    adjoint_remainder = step.adjoint_norm * remainder.repeat_interleave(count, 0)
    reach = reach.repeat_interleave(count, 0)
    for scale in step.scales:
        own = FramedScale.of(scale, frames.repeat_interleave(count, 0))
        along, whole = scale.together(ScaleBounds.of(own, radii, torch.zeros_like(reach), reach).third())  # (T20)
        adjoint_remainder = adjoint_remainder + along
        remainder = remainder + whole.unflatten(0, (len(frames), count)).amax(1)
    if step.reward is not None:
        adjoint_remainder = adjoint_remainder + reward_third(step.reward, reach)
    return adjoint_remainder, remainder


def reward_third(reward: RewardRemainder, reach: Tensor) -> Tensor:
    """(T59): bounds [N, G] on six times a reward's remainder after second order within `reach` [N, G]."""
    return (reward.third * (reward.growth * reach).exp() + reward.cut) * reach**3


def reward_fourth(reward: RewardRemainder, reach: Tensor) -> Tensor:
    """(T59): the same after third order, less what counts as that of hidden units."""
    return (reward.growing * (reward.growth * reach).exp() * reach / 4 + reward.cut) * reach**3


@dataclass(frozen=True)
class ScaleBounds:
    """(T21): bounds on the derivatives of n_i within reach of the state, in direction z, for each of the O outputs of a
    part under softplus."""

    first: Tensor  # [N, ..., G, O], |Dn_i z|
    second: Tensor  # [N, ..., G, O], |D^2 n_i[z, z]|
    third_order: Tensor  # [N, ..., G, O], |D^3 n_i[z, z, z]|
    fourth_order: Tensor  # [N, ..., G, O], |D^4 n_i[z, z, z, z]|

    @classmethod
    def of(cls, through: FramedScale, radii: Tensor, first_remainder: Tensor, reach: Tensor) -> ScaleBounds:
        """For z = F y' + R1 as above: radii [G], first_remainder and reach [N, ..., G]."""
        scale, framed, rows = through.scale, through.framed.unsqueeze(-2), through.rows.unsqueeze(-2)
        n1, n2, n3, n4 = scale.network_bounds
        far, off, bent = reach.unsqueeze(-1), first_remainder.unsqueeze(-1), scale.hessian_norm.unsqueeze(-2)
        first = framed * radii.unsqueeze(-1) + rows * off + (bent + far * n3 / 2) * far**2
        second = torch.minimum(bent + far * n3, n2) * far**2
        return cls(torch.minimum(first, n1 * far), second, n3 * far**3, n4 * far**4)

    def third(self) -> Tensor:
        """(T20): bounds [N, ..., G, O] on |D^3 softplus(n_i)[z, z, z]|."""
        s1, s2, s3, _ = DERIVATIVE_BOUNDS["softplus"]
        return s3 * self.first**3 + 3 * s2 * self.first * self.second + s1 * self.third_order

    def fourth(self) -> Tensor:
        """(T19): bounds [N, ..., G, O] on |D^4 softplus(n_i)[z, z, z, z]|."""
        s1, s2, s3, s4 = DERIVATIVE_BOUNDS["softplus"]
        mixed = 3 * self.second**2 + 4 * self.first * self.third_order
        return s4 * self.first**4 + 6 * s3 * self.first**2 * self.second + s2 * mixed + s1 * self.fourth_order
