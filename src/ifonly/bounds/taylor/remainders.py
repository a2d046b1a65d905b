"""Remainders of one step's expansion: bounds on what the second-order expansion of a step leaves out.

Rf is the step's remainder after second order, S3 = lambda . D^3 f at the state expanded at, and displacements are
z = F y' + R1 for a frame F, with |y'| <= a radius, |R1| <= `first_remainder` and |z| <= `reach`. Bounded are

    remainder          >= 6 |Rf|
    adjoint_remainder  >= |6 lambda . Rf - S3[F y', F y', F y']|

All results are float64; D^3 f is multiplied in float32, with the margin (T54).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ifonly.bounds.taylor.local_expansion import LocalExpansion, RewardRemainder, ScaleExpansion
from ifonly.bounds.taylor.norms import (
    FramedTrilinear,
    framed_eigenvalue_bound,
    quartic_seminorm,
    trace,
)
from ifonly.models.layers import ROUNDING
from ifonly.models.smooth import DERIVATIVE_BOUNDS, norm_bound


def step_remainders(
    step: LocalExpansion, frames: Tensor, radii: Tensor, first_remainder: Tensor, reach: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """For frames [N, S, D, D], radii [G], first_remainder and reach [N, S, G]: S3[F., F., F.] [N, S, D, D, D],
    adjoint_remainder [N, S, G] and remainder [N, S, G]. The smaller of (T14) and (T16) is taken."""
    assert step.adjoint_third is not None
    assert step.third is not None
    square, cubes = frames @ frames.mT, reach**3
    adjoint_third = FramedTrilinear.of(step.adjoint_third.unsqueeze(1), frames)
    form, rows = step.third_form.unsqueeze(1), step.unit_rows.unsqueeze(1)
    adjoint_norm, deep_third = step.adjoint_norm.unsqueeze(1), step.deep_third.unsqueeze(1)
    framed = frames.mT @ rows
    # (T13): q(z)^4 / 4 along the adjoint, and of the step itself.
    adjoint_fourth, fourth = (
        (quartic_seminorm(sizes, framed) * radii + quartic_seminorm(sizes, rows) * first_remainder) ** 4 / 4
        for sizes in (step.adjoint_quartic.unsqueeze(1), step.quartic.unsqueeze(1))
    )
    # (T14): by the third derivative at the state, and (T18) for deep networks.
    near_adjoint = adjoint_third.mixed(radii, first_remainder) + adjoint_fourth + adjoint_norm * deep_third * cubes
    # D^3 f is many numbers: multiplied in float32.
    third = FramedTrilinear.of(step.third.float(), frames.float())
    near = third.bound(radii, first_remainder) + fourth + deep_third * cubes
    # (T15) and (T16): by the third derivative anywhere.
    root = framed_eigenvalue_bound(form, square).sqrt() * radii + trace(form).sqrt() * first_remainder
    anywhere = root**2 * reach
    anywhere_adjoint = adjoint_third.thrice * radii**3 + adjoint_norm * anywhere
    for part in step.scales:
        scale = part.mapped(lambda array: array.unsqueeze(1))
        bent = ScaleBounds.of(scale, frames, radii, first_remainder, reach)
        along, whole = scale.together(bent.third())  # (T20)
        anywhere_adjoint, anywhere = anywhere_adjoint + along, anywhere + whole
        if not scale.is_deep:
            along, whole = scale.together(bent.fourth() / 4)  # (T19)
        near_adjoint, near = near_adjoint + along, near + whole
    if step.reward is not None:
        reward = step.reward.mapped(lambda array: array.unsqueeze(1))
        near_adjoint = near_adjoint + reward_fourth(reward, reach)
        anywhere_adjoint = anywhere_adjoint + reward_third(reward, reach)
    framed_third = adjoint_third.tensors.squeeze(-1)
    return framed_third, torch.minimum(near_adjoint, anywhere_adjoint), torch.minimum(near, anywhere)


def step_remainders_anywhere(step: LocalExpansion, frames: Tensor, radii: Tensor) -> tuple[Tensor, Tensor]:
    """(T16) without R1, for steps that come in groups of equal size, each with one of the frames [B, D, D]: bounds
    [N, G] on 6 |lambda . Rf|, and bounds [B, G] on 6 |Rf| of every step of a group."""
    reach = norm_bound(frames).unsqueeze(1) * radii
    remainder = framed_eigenvalue_bound(step.third_form[:1], frames @ frames.mT) * radii**2 * reach
    count = len(step.third_form) // len(frames)
    adjoint_remainder = step.adjoint_norm * remainder.repeat_interleave(count, 0)
    reach = reach.repeat_interleave(count, 0)
    for scale in step.scales:
        own = frames.repeat_interleave(count, 0)
        along, whole = scale.together(
            ScaleBounds.of(scale, own, radii, torch.zeros_like(reach), reach).third()
        )  # (T20)
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
    def of(
        cls, scale: ScaleExpansion, frames: Tensor, radii: Tensor, first_remainder: Tensor, reach: Tensor
    ) -> ScaleBounds:
        """For z = F y' + R1 as above: frames [N, ..., D, D], radii [G], first_remainder and reach [N, ..., G]."""
        n1, n2, n3, n4 = scale.network_bounds
        framed, rows = (
            torch.linalg.vector_norm(one, dim=-1).unsqueeze(-2) * (1 + ROUNDING)
            for one in (scale.jacobian @ frames, scale.jacobian)
        )
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
