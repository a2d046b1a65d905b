"""Adam: the steps of torch's own, and none of what that imports."""

import subprocess
import sys

import torch
from torch.nn import Parameter

from ifonly.models.adam import Adam


def parameters() -> list[Parameter]:
    torch.manual_seed(0)
    shapes = [(3, 4), (4,), (0, 2), (2,)]
    return [Parameter(torch.randn(shape)) for shape in shapes] + [Parameter(torch.ones(2), requires_grad=False)]


def loss(values: list[Parameter], step: int) -> torch.Tensor:
    """Curved, different in every step, and independent of the last but one; one slope is laid out across."""
    product = values[0].T.flatten() * torch.linspace(-2, 2, 12)
    return (product.cosh().sum() + values[1].sum() ** 2 - step * product.sin().sum()) * 0.1


def test_steps_are_those_of_torch() -> None:
    ours, theirs = parameters(), parameters()
    assert not torch.autograd.grad(loss(ours, 0), ours[0])[0].is_contiguous()
    adam = Adam(ours)
    reference = torch.optim.Adam([p for p in theirs if p.requires_grad and p.numel()], fused=True)
    for step in range(30):
        rate = 0.1 / (1 + step)
        adam.step(loss(ours, step), rate)
        for group in reference.param_groups:
            group["lr"] = rate
        reference.zero_grad()
        loss(theirs, step).backward()
        reference.step()
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert not torch.equal(ours[0], parameters()[0])


def test_a_fit_needs_no_compiler() -> None:
    code = """
import sys, torch
from ifonly.models.adam import Adam
weight = torch.nn.Parameter(torch.ones(2))
Adam([weight]).step(weight.square().sum(), 0.1)
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
