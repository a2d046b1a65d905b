"""Adam (Kingma and Ba, 2015), by torch's own kernel and without torch's compiler.

`torch.optim.Adam` imports the compiler as soon as it is made, which takes a process longer than many a fit.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim.adam import adam


class Adam:
    """Steps down the gradient of a loss, the same ones as those of `torch.optim.Adam(parameters, fused=True)`."""

    def __init__(self, parameters: Iterable[Parameter]) -> None:
        # A schema without context has matrices without entries, which fused kernels need not know about.
        self.parameters: list[Tensor] = [p for p in parameters if p.requires_grad and p.numel()]
        assert all(p.is_contiguous() for p in self.parameters), "slopes are laid out like them"
        self._means = [torch.zeros_like(p) for p in self.parameters]
        self._squares = [torch.zeros_like(p) for p in self.parameters]
        self._counts = [torch.zeros((), dtype=torch.float32, device=p.device) for p in self.parameters]

    def step(self, loss: Tensor, rate: float) -> None:
        """Change the parameters in place; one on which the loss does not depend stays as it is."""
        slopes = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            adam(
                self.parameters,
                # The kernel walks through parameter and slope in the order of memory, which autograd leaves open.
                [slope.contiguous() for slope in slopes],
                self._means,
                self._squares,
                [],
                self._counts,
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=rate,
                weight_decay=0.0,
                eps=1e-8,
                maximize=False,
            )


class StackedAdam:
    """Adam as torch has it, for weights [K, P] of models of which some take fewer steps than others."""

    def __init__(self, weights: Tensor) -> None:
        self._weights = weights
        self.rate = 0.0
        self._mean, self._square = torch.zeros_like(weights), torch.zeros_like(weights)
        self._steps = torch.zeros(len(weights), 1, dtype=torch.float64, device=weights.device)

    def state(self) -> dict[str, Tensor]:
        """What the next steps depend on, beside the weights."""
        return {"mean": self._mean, "square": self._square, "steps": self._steps}

    @torch.no_grad()
    def step(self, gradient: Tensor, betas: tuple[float, float] = (0.9, 0.999), tiny: float = 1e-8) -> None:
        """Move the weights of the first K models, against their gradient [K, P]."""
        active = len(gradient)
        mean, square, steps = self._mean[:active], self._square[:active], self._steps[:active]
        steps += 1
        mean.lerp_(gradient, 1 - betas[0])
        square.mul_(betas[1]).addcmul_(gradient, gradient, value=1 - betas[1])
        root = square.sqrt().div_((1 - betas[1] ** steps).sqrt().to(square)).add_(tiny)
        rates = (-self.rate / (1 - betas[0] ** steps)).to(mean)
        self._weights[:active].addcdiv_(mean * rates, root)
