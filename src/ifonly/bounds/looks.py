"""One step of a smooth model at many states: its first three derivatives, and limits of what they leave out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from ifonly.bounds.limits import Scale, Turned, form_limit, frobenius, quartic_limit, trace
from ifonly.models.smooth import (
    LIMITS,
    Part,
    SmoothStep,
    Surroundings,
    entry_lengths,
    norm_limit,
    pairs,
    triples,
    unpacked,
)

RADII = (1e-6, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.5, 6.0, 12.0, 1000.0)
"""Gauges up to which rests are limited; the first is for the observed path, the last for models that hardly bend."""

GRID = 20
"""All but the first are multiples of one over this; those but the last are few enough to look up."""


@dataclass(frozen=True)
class Look:
    """One step at N states, under the gradient of what follows.

    Of networks with more than one hidden layer the third derivatives are not known; `rough` limits them.
    """

    jacobian: Tensor  # [N, D, D]
    second: Tensor  # [N, D, E], all second derivatives, entries i <= j
    along: Tensor  # [N, D, D], those of gradient.step
    third: Tensor | None  # [N, D, D, D], third derivatives of gradient.step, if asked for
    thirds: Tensor | None  # [N, D, D, D, D], all third derivatives, if asked for
    units: Tensor  # [N, D, H], of hidden units: their fourth derivatives along z are at most (units.z)^4 ...
    sizes: Tensor  # [N, H], ... times these in gradient.step ...
    columns: Tensor  # [N, H], ... and these in the step, both without scales
    rough: Tensor  # [N, 1], limits of third derivatives of the step that are not known, without scales
    form: Tensor  # [N, D, D], positive: |z| z.form z limits the third derivative of the step anywhere, without scales
    gradient: Tensor  # [N, 1], its length
    slope: Tensor  # [N, 1], limits of the step's first derivative ...
    bent: Tensor  # [N, 1], ... and of its second derivative anywhere
    scales: tuple[Scale, ...]  # of parts under softplus

    def changed(self, change: Callable[[Tensor], Tensor]) -> Look:
        """With each table changed, some of its rows chosen, say."""
        tables = {field.name: getattr(self, field.name) for field in fields(self)[:-1]}
        changed = {name: None if table is None else change(table) for name, table in tables.items()}
        return replace(self, scales=tuple(scale.changed(change) for scale in self.scales), **changed)  # type: ignore[arg-type]

    def limits(self, frames: Tensor, radii: Tensor, off: Tensor, reach: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The third derivatives of gradient.step along frames [N, S, D, D], [N, S, D, D, D]; and what second-order
        expansions leave out at most, times 6 [N, S, G], at every z that is a frame times a vector as long as the
        radius, plus one as long as `off` [N, S, G], and not longer than `reach` [N, S, G]: of gradient.step, without
        that third derivative, and of the step."""
        assert self.third is not None
        assert self.thirds is not None
        square, cubes = frames @ frames.mT, reach**3
        along = Turned.of(self.third.unsqueeze(1), frames)
        form, units = self.form.unsqueeze(1), self.units.unsqueeze(1)
        gradient, rough = self.gradient.unsqueeze(1), self.rough.unsqueeze(1)
        framed = frames.mT @ units
        fourth, fourths = (
            (quartic_limit(sizes, framed) * radii + quartic_limit(sizes, units) * off) ** 4 / 4
            for sizes in (self.sizes.unsqueeze(1), self.columns.unsqueeze(1))
        )
        straight = along.thrice * radii**3
        over = along.mixed(radii, off) + fourth + gradient * rough * cubes
        # All third derivatives are many numbers: in single precision.
        whole = Turned.of(self.thirds.float(), frames.float()).limit(radii, off) + fourths + rough * cubes
        anywhere = (form_limit(form, square).sqrt() * radii + trace(form).sqrt() * off) ** 2 * reach
        over_anywhere = straight + gradient * anywhere
        for part in self.scales:
            scale = part.changed(lambda table: table.unsqueeze(1))
            most = scale.third(reach) * cubes
            more = most if scale.rough else scale.fourth(reach) * cubes * reach / 4
            over, whole = over + scale.weighted * more, whole + scale.largest * more
            over_anywhere, anywhere = over_anywhere + scale.weighted * most, anywhere + scale.largest * most
        third = along.tensors.squeeze(-1)
        return third, torch.minimum(over, over_anywhere), torch.minimum(whole, anywhere)

    def limits_anywhere(self, frames: Tensor, radii: Tensor) -> tuple[Tensor, Tensor]:
        """For steps that come in groups, each with one of the frames [B, D, D]: what second-order expansions leave out
        at most, times 6, at frames times vectors as long as the radius: of gradient.step [N, G], and of the steps of
        each group [B, G]."""
        reach = norm_limit(frames).unsqueeze(1) * radii
        whole = form_limit(self.form[:1], frames @ frames.mT) * radii**2 * reach
        count = len(self.form) // len(frames)
        cubic = self.gradient * whole.repeat_interleave(count, 0)
        reach = reach.repeat_interleave(count, 0)
        for scale in self.scales:
            third = scale.third(reach) * reach**3
            cubic = cubic + scale.weighted * third
            whole = whole + (scale.largest * third).unflatten(0, (len(frames), count)).amax(1)
        return cubic, whole


def look(
    smooth: SmoothStep,
    states: Tensor,
    context: Tensor,
    actions: Tensor,
    noise: Tensor,
    gradient: Tensor,
    *,
    thirds: bool,
) -> Look:
    """The step at states [N, D], context [N, C], actions [N] and noise [N, D]; `gradient` [N, D]."""
    count, size = states.shape
    jacobian = states.new_zeros(count, size, size) if smooth.skip is None else smooth.skip[actions]
    second = states.new_zeros(count, size, size * (size + 1) // 2)
    places = triples(size, states.device)[1]
    every = states.new_zeros(count, size, int(places.max()) + 1 if thirds else 0)
    form = states.new_zeros(1, size, size)
    units, sizes, columns = states.new_zeros(size, 0), [states.new_zeros(count, 0)], [states.new_zeros(0)]
    rough, scales = states.new_zeros(1, 1), []
    slope, bent = states.new_zeros(count, 1), states.new_zeros(count, 1)
    if smooth.skip is not None:
        slope = norm_limit(smooth.skip)[actions].unsqueeze(1)
    largest = noise.abs().amax(1, keepdim=True)
    for part in smooth.parts:
        around = part.around(states, context, actions)
        top = part.top_derivatives(around.value, noise)
        jacobian = jacobian + top[0].unsqueeze(-1) * around.jacobian
        second = second + (around.curvature if part.top == "identity" else _second(top, around))
        if around.thirds is not None and thirds:
            every = every + (around.thirds() if part.top == "identity" else _thirds(top, around))
        first, curved = part.limits[:2]
        if part.top == "softplus":
            scales.append(_scale(part, around, noise, gradient))
            s1, s2, *_ = LIMITS["softplus"]
            slope, bent = slope + largest * s1 * first, bent + largest * (s2 * first**2 + s1 * curved)
        elif part.is_shallow:
            largest_fourth = LIMITS[part.activation][3]
            units = torch.cat((units, part.state.mT), dim=1)
            sizes.append((gradient @ part.matrices[0]).abs() * largest_fourth)
            columns.append(part.columns * largest_fourth)
        else:
            rough = rough + part.limits[2]
        if part.top == "identity":
            form, slope, bent = form + part.third_form, slope + first, bent + curved
    along = unpacked((gradient.unsqueeze(1) @ second).squeeze(1), size)
    third = (gradient.unsqueeze(1) @ every).squeeze(1)[:, places].view(-1, size, size, size) if thirds else None
    return Look(
        jacobian,
        second,
        along,
        third,
        every.index_select(-1, places).unflatten(2, (size, size, size)) if thirds else None,
        units.expand(count, -1, -1),
        torch.cat(sizes, dim=1),
        torch.cat(columns).expand(count, -1),
        rough.expand(count, -1),
        form.expand(count, -1, -1),
        gradient.norm(dim=1, keepdim=True) * (1 + 1e-12),
        slope,
        bent,
        tuple(scales),
    )


def _second(top: tuple[Tensor, Tensor, Tensor], around: Surroundings) -> Tensor:
    """Second derivatives [N, D, E] of a part, entries i <= j."""
    slope, curvature, _ = (table.unsqueeze(-1) for table in top)
    jacobian = around.jacobian
    i, j = pairs(jacobian.shape[-1], jacobian.device)[0]
    products = jacobian.index_select(-1, i).mul_(jacobian.index_select(-1, j))
    return (slope * around.curvature).addcmul_(curvature, products)


def _thirds(top: tuple[Tensor, Tensor, Tensor], around: Surroundings) -> Tensor:
    """All third derivatives [N, D, E] of a part, entries i <= j <= k."""
    assert around.thirds is not None
    slope, curvature, third = (table.unsqueeze(-1) for table in top)
    size, jacobian, bent = around.jacobian.shape[-1], around.jacobian, around.curvature
    places = pairs(size, jacobian.device)[1].view(size, size)
    i, j, k = triples(size, jacobian.device)[0]
    first, second, last = (jacobian.index_select(-1, each) for each in (i, j, k))
    mixed = first * bent.index_select(-1, places[j, k])
    mixed.addcmul_(second, bent.index_select(-1, places[i, k])).addcmul_(last, bent.index_select(-1, places[i, j]))
    return (slope * around.thirds()).addcmul_(curvature, mixed).addcmul_(third, first * second * last)


def _scale(part: Part, around: Surroundings, noise: Tensor, gradient: Tensor) -> Scale:
    return Scale(
        part.limits,
        not part.is_shallow,
        norm=frobenius(around.jacobian),
        bent=frobenius(around.curvature * entry_lengths(noise.shape[1], noise.device)),
        largest=noise.abs().amax(1, keepdim=True),
        weighted=(gradient * noise).norm(dim=1, keepdim=True) * (1 + 1e-12),
    )
