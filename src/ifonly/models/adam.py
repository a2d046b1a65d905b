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
