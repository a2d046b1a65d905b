"""Models written down rather than learned: linear ones, and the construction of the hardness proof."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from ifonly.data.scaling import Scaler
from ifonly.data.schema import ActionSpace, Feature, Schema
from ifonly.errors import InputError
from ifonly.models.base import TransitionModel
from ifonly.models.layers import ROUNDING, as_array
from ifonly.models.networks import broadcast_constants
from ifonly.models.smooth import SmoothStep


class LinearModel(TransitionModel):
    """next = F_a x + B c + b_a + s * u, in the coordinates of `scaler` (original units by default).

    `state_matrices` [A, D, D], `offsets` [A, D] (zero), `context_matrix` [D, C] (zero), `noise_scale` [D], positive
    (one). The constant of action a is the spectral norm of F_a. float64.

    >>> schema = Schema((Feature("pain", "dynamic"),), ActionSpace.categories(["wait", "treat"]))
    >>> model = LinearModel(schema, [[[1.1]], [[0.5]]])
    >>> state, context, noise = (torch.full((n,), 4.0, dtype=torch.float64) for n in (1, 0, 1))
    >>> model.step(state, context, torch.tensor([0, 1]), noise).tolist()
    [[8.4], [6.0]]
    """

    kind: ClassVar[str] = "linear"

    state_matrices: Tensor
    context_matrix: Tensor
    offsets: Tensor
    noise_scale: Tensor

    def __init__(
        self,
        schema: Schema,
        state_matrices: Any,
        *,
        offsets: Any = None,
        context_matrix: Any = None,
        noise_scale: Any = None,
        scaler: Scaler | None = None,
    ) -> None:
        super().__init__(schema, scaler)
        states, contexts, actions = self.state_size, self.context_size, self.action_count
        for name, values, shape in (
            ("state_matrices", state_matrices, (actions, states, states)),
            ("offsets", torch.zeros(actions, states) if offsets is None else offsets, (actions, states)),
            (
                "context_matrix",
                torch.zeros(states, contexts) if context_matrix is None else context_matrix,
                (states, contexts),
            ),
            ("noise_scale", torch.ones(states) if noise_scale is None else noise_scale, (states,)),
        ):
            array = as_array(f"linear model: {name}", values)
            if array.shape != shape:
                raise InputError(f"linear model: {name} has shape {list(array.shape)}; expected {list(shape)}.")
            self.register_buffer(name, array)
        if not (self.noise_scale > 0).all():
            raise InputError("linear model: noise_scale must be positive, or the noise could not be abducted.")

    @classmethod
    def from_settings(cls, schema: Schema, settings: Mapping[str, Any], scaler: Scaler) -> Self:
        """A model of zeros whose arrays are to be loaded."""
        size = len(schema.dynamic)
        return cls(schema, torch.zeros(len(schema.actions), size, size), scaler=scaler, **settings)

    def _without_noise(self, states: Tensor, context: Tensor, actions: Tensor) -> Tensor:
        # einsum keeps N states x A actions one matrix product instead of copying the matrices for every state.
        moved = torch.einsum("...ij,...j->...i", self.state_matrices[actions], states)
        return moved + context @ self.context_matrix.mT + self.offsets[actions]

    def step(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """The next states [..., D]."""
        return self._without_noise(states, context, actions) + self.noise_scale * noise

    def abduct(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> Tensor:
        """The noise [..., D] that explains `next_states`."""
        return (next_states - self._without_noise(states, context, actions)) / self.noise_scale

    def lipschitz(self, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """K_a = |F_a| [...], the same for every context and noise."""
        norms = torch.linalg.svdvals(self.state_matrices.double())[:, 0] * (1 + ROUNDING)
        constants = norms[actions].expand(np.broadcast_shapes(actions.shape, noise.shape[:-1]))
        return broadcast_constants(constants, context, actions)

    def noise_slopes(self, states: Tensor, context: Tensor, actions: Tensor) -> Tensor | None:
        """The noise's scale [..., D]; None for a subclass with another `step`."""
        return self.noise_scale.expand_as(states) if type(self).step is LinearModel.step else None

    def smooth(self) -> SmoothStep:
        """The matrices."""
        return SmoothStep((), skip=self.state_matrices)

    def sample(self, states: Tensor, context: Tensor, actions: Tensor, *, generator: torch.Generator) -> Tensor:
        """Next states [..., D] under standard normal noise."""
        shape = np.broadcast_shapes(states.shape[:-1], context.shape[:-1], actions.shape)
        like = self.noise_scale
        noise = torch.randn((*shape, self.state_size), generator=generator, dtype=like.dtype, device=generator.device)
        return self.step(states, context, actions, noise.to(like.device))


class PartitionModel(LinearModel):
    """The transition mechanism of the hardness proof (app:hardness), in original units.

    Two features, `total` and `next`, and two actions: "null" leads to [total, 0] + u and "diff" to
    [total - next, 0] + u. The constants are 1 and sqrt(2). `ifonly.testing.instances.partition_problem` asks it.
    """

    kind: ClassVar[str] = "partition"

    def __init__(self) -> None:
        super().__init__(partition_schema(), [[[1.0, 0.0], [0.0, 0.0]], [[1.0, -1.0], [0.0, 0.0]]])

    @classmethod
    def from_settings(cls, schema: Schema, settings: Mapping[str, Any], scaler: Scaler) -> Self:
        """The one model of this kind."""
        model = cls()
        model.schema.require_same(schema, here="the partition model", there="the stored schema")
        return model


def partition_schema() -> Schema:
    """The features and actions of the hardness proof: a running total and the number that comes next."""
    features = (Feature("total", "dynamic", scaling="none"), Feature("next", "dynamic", scaling="none"))
    return Schema(features, ActionSpace.categories(["null", "diff"]))
