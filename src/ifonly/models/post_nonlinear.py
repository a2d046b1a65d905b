"""Post-nonlinear models: next state = f(h(state, action) + noise), f a monotone distortion of each feature."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from zuko.transforms import MonotonicRQSTransform

from ifonly.data.plain import check_whole
from ifonly.data.scaling import Scaler
from ifonly.data.schema import Schema
from ifonly.errors import InputError
from ifonly.models.layers import ROUNDING, as_array
from ifonly.models.networks import NetworkModel, Residual, same_constant

_CELLS = 64
"""Parts into which a bin is cut to bound its slope; even, so that the bin's middle is a border."""


@dataclass(frozen=True)
class Spline:
    """The form of the distortion: how fine, how far, how steep.

    Between -reach and +reach (scaled units, for states as for its inputs) it is a monotone rational-quadratic spline
    with `bins` pieces; outside it is the identity. At the knots its slope lies between 1/steepness and steepness.
    """

    bins: int = 8
    reach: float = 5.0
    steepness: float = 10.0

    def __post_init__(self) -> None:
        check_whole("spline: bins", self.bins, least=2)
        if not (math.isfinite(self.reach) and self.reach > 0):
            raise InputError(f"spline: reach={self.reach} must be positive and finite.")
        if not (math.isfinite(self.steepness) and self.steepness > 1):
            raise InputError(f"spline: steepness={self.steepness} must be above 1 and finite.")


class PostNonlinear(NetworkModel):
    """next_i = f_i(h_i(x, c, a) + u_i), with a network h and a trainable increasing spline f_i per feature.

    `lipschitz` limits the constant of h with respect to the dynamic features; None leaves it free. With S_i an upper
    bound of f_i's slope on the whole line (`Distortion.steepest_slopes`) the Jacobian is diag(f') J_h, hence the
    model's constant max_i S_i * L_h, whatever the noise.

    >>> from ifonly.data import ActionSpace, Feature, Schema
    >>> schema = Schema((Feature("pain", "dynamic"),), ActionSpace.categories(["wait", "treat"]))
    >>> model = PostNonlinear(schema, hidden=(16,), lipschitz=0.9, distortion=Spline(bins=4))
    >>> constant = model.lipschitz(torch.zeros(0), torch.tensor(1), torch.zeros(1))
    >>> round(float(constant), 6)  # the distortion starts as the identity
    0.9
    """

    kind: ClassVar[str] = "post-nonlinear"

    def __init__(
        self,
        schema: Schema,
        *,
        hidden: Sequence[int] = (200,),
        activation: str = "tanh",
        residual: Residual = "none",
        lipschitz: float | None = None,
        distortion: Spline | None = None,
        prior: str = "gaussian",
        scaler: Scaler | None = None,
    ) -> None:
        super().__init__(schema, hidden=hidden, activation=activation, residual=residual, prior=prior, scaler=scaler)
        self.limit = None if lipschitz is None else float(lipschitz)
        self.location = self.make_network(self.limit)
        self.distortion = Distortion(self.state_size, distortion or Spline())
        self.finish()

    @classmethod
    def from_weights(
        cls,
        schema: Schema,
        *,
        location: Mapping[str, Any],
        distortion: Mapping[str, Any],
        covariance: Any,
        form: Spline | None = None,
        scaler: Scaler | None = None,
        activation: str = "tanh",
        residual: Any = "none",
        prior: str = "gaussian",
        freedom: Any = None,
    ) -> Self:
        """A float64 model from explicit arrays: the network's, as `LocationScale.from_weights` takes them, and splines.

        `distortion` has `widths` and `heights` [D, bins] and `slopes` [D, bins - 1], before they are normalised; all
        zero is the identity.
        """
        networks = {"location": location}
        settings = {"activation": activation, "residual": residual, "prior": prior, "freedom": freedom}
        model = cls.of_networks(schema, networks, covariance, distortion=form, scaler=scaler, **settings)
        model.distortion.load_weights(distortion)
        return model

    @classmethod
    def from_settings(cls, schema: Schema, settings: Mapping[str, Any], scaler: Scaler) -> Self:
        """The model that `settings` described."""
        return cls(schema, scaler=scaler, **{**settings, "distortion": Spline(**settings["distortion"])})

    def settings(self) -> dict[str, Any]:
        """Constructor arguments."""
        return {**super().settings(), "lipschitz": self.limit, "distortion": asdict(self.distortion.form)}

    def initialize(self, generator: torch.Generator) -> None:
        """A fresh network, a standard prior, and no distortion."""
        super().initialize(generator)
        self.distortion.initialize()

    def step(self, states: Tensor, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """The next states [..., D]."""
        (location,) = self.outputs((self.location,), states, context, actions)
        next_states: Tensor = self.distortion(self.skip(states, location) + noise)
        return next_states

    def invert(self, states: Tensor, context: Tensor, actions: Tensor, next_states: Tensor) -> tuple[Tensor, Tensor]:
        """The noise and the logarithm of how steeply each entry depends on its next state, both [..., D]."""
        undistorted, log_slopes = self.distortion.invert(next_states)
        (location,) = self.outputs((self.location,), states, context, actions)
        noise = undistorted - self.skip(states, location)
        return noise, log_slopes.expand(noise.shape)

    def lipschitz(self, context: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """K = max_i S_i * L_h [...], the same for every context, action and noise."""
        constant = self.distortion.steepest_slopes().max().item() * self.location_lipschitz(self.location)
        return same_constant(constant, context, actions, noise)

    def noise_slopes(self, states: Tensor, context: Tensor, actions: Tensor) -> Tensor | None:
        """The distortion's steepest slopes [..., D]; None for a subclass with another `step`."""
        if type(self).step is not PostNonlinear.step:
            return None
        return self.distortion.steepest_slopes().to(states).expand_as(states)


class Distortion(nn.Module):
    """An increasing function of the real line for each of `size` features, the identity to begin with."""

    def __init__(self, size: int, form: Spline) -> None:
        super().__init__()
        self.form = form
        self.widths = nn.Parameter(torch.zeros(size, form.bins))
        self.heights = nn.Parameter(torch.zeros(size, form.bins))
        self.slopes = nn.Parameter(torch.zeros(size, form.bins - 1))

    def initialize(self) -> None:
        """Return to the identity."""
        for parameter in self.parameters():
            nn.init.zeros_(parameter)

    @torch.no_grad()
    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Take over explicit arrays; errors name the array and both shapes."""
        targets = dict(self.named_parameters())
        if set(weights) != set(targets):
            raise InputError(f"distortion: needs the arrays {', '.join(targets)}; found {sorted(weights)}.")
        for name, target in targets.items():
            values = as_array(f"distortion: {name}", weights[name]).to(target)
            if values.shape != target.shape:
                raise InputError(f"distortion: {name} has shape {list(values.shape)}; expected {list(target.shape)}.")
            target.copy_(values)

    def transform(self) -> MonotonicRQSTransform:
        """The spline that the parameters describe."""
        form = self.form
        return MonotonicRQSTransform(self.widths, self.heights, self.slopes, form.reach, 1 / form.steepness)

    def forward(self, values: Tensor) -> Tensor:
        """f of values [..., D]."""
        distorted: Tensor = self.transform()(values)
        return distorted

    def invert(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The inverse of f at values [..., D], and the logarithm of its slopes [..., D]."""
        transform = self.transform()
        inverse: Tensor = transform.inv(values)
        log_slopes: Tensor = transform.log_abs_det_jacobian(inverse, values)
        return inverse, -log_slopes

    @torch.no_grad()
    def steepest_slopes(self) -> Tensor:
        """An upper bound [D] of each f_i's slope on the whole line, proven, and close (float64).

        In a bin with secant slope s and knot slopes d0, d1 the slope at z in [0, 1] is s^2 N(z) / Q(z)^2 with
        N = d0 (1-z)^2 + 2 s z (1-z) + d1 z^2 and Q = s + (d0 + d1 - 2 s) z (1-z). The bin is cut into cells [p, q].
        In each, N is at most the largest of its Bernstein coefficients, N(p), N(q) and the blossom
        d0 (1-p)(1-q) + s (p (1-q) + q (1-p)) + d1 p q; and Q, monotone on either side of 1/2 and positive, is at
        least the smaller of Q(p), Q(q). Outside the bins the slope is 1.
        """
        knots = self.transform()
        horizontal, vertical = knots.horizontal.double(), knots.vertical.double()  # [D, bins + 1]
        slopes: Tensor = knots.derivatives.double().unsqueeze(-1)
        left, right = slopes[:, :-1], slopes[:, 1:]  # [D, bins, 1]
        secant: Tensor = (vertical.diff() / horizontal.diff()).unsqueeze(-1)
        border = torch.linspace(0, 1, _CELLS + 1, dtype=torch.float64, device=secant.device)
        p, q = border[:-1], border[1:]

        def blossom(p: Tensor, q: Tensor) -> Tensor:
            return left * (1 - p) * (1 - q) + secant * (p * (1 - q) + q * (1 - p)) + right * p * q

        at_borders = blossom(border, border)
        numerator = torch.maximum(blossom(p, q), torch.maximum(at_borders[..., :-1], at_borders[..., 1:]))
        root = secant + (left + right - 2 * secant) * border * (1 - border)
        denominator = torch.minimum(root[..., :-1], root[..., 1:]).square()
        steepest: Tensor = (secant.square() * numerator / denominator).flatten(1).amax(-1)
        return steepest.clamp(min=1.0) * (1 + ROUNDING)
