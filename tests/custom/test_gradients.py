"""Gradients by the reference, by a function, and where there is none."""

import pytest
import torch
from torch import Tensor

from torch_mtl4 import testing
from torch_mtl4.custom import on_cpu

from . import kernels as examples


def product_reference(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x * x * y, (x * y).to(torch.int32)


def product(backward):
    body = "out[i] = x[i] * x[i] * y[i];\nwhole[i] = int(x[i] * y[i]);"
    return examples.make(["x", "y"], ["out", "whole"], body, product_reference, backward=backward)


def by_function(grad, no_grad, x, y, out, whole):
    assert no_grad is None and whole.dtype == torch.int32
    return 2 * grad * x * y, grad * x * x


@pytest.mark.parametrize("way", ["reference", "msl"])
@pytest.mark.parametrize("backward", ["reference", by_function])
def test_gradients_of_any_order(way, backward):
    kernel = product(backward)
    x, y = (testing.randn(6, seed=seed).requires_grad_() for seed in (1, 2))

    def orders(function):
        out = function(x, y)[0]
        first = torch.autograd.grad(out.square().sum(), (x, y), create_graph=True)
        second = torch.autograd.grad(first[0].sin().sum(), (x, y), create_graph=True)
        return [out, *first, *second, *torch.autograd.grad(second[1].sum(), (x, y))]

    with on_cpu(way):
        got = orders(kernel)
    for mine, want in zip(got, orders(product_reference), strict=True):
        testing.assert_close(mine, want, testing.allowed_error(1e-5, want, torch.float32))


@pytest.mark.parametrize("backward", ["reference", by_function])
def test_gradcheck(backward):
    # Kernels have no float64; differences of a cubic polynomial at this distance lose little to float32.
    kernel = product(backward)
    inputs = [testing.integers(-4, 4, (5,), seed).float().requires_grad_() for seed in (1, 2)]
    assert torch.autograd.gradcheck(lambda x, y: kernel(x, y)[0], inputs, eps=0.25, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("needed", [(True, False), (False, True)])
@pytest.mark.parametrize("backward", ["reference", by_function])
def test_only_what_needs_a_gradient_gets_one(needed, backward):
    x, y = (testing.randn(6, seed=n).requires_grad_(each) for n, each in enumerate(needed))
    product(backward)(x, y)[0].sum().backward()
    assert (x.grad is not None, y.grad is not None) == needed


def test_kernels_are_the_gradient_of_kernels():
    x = testing.randn(6).requires_grad_()
    out = examples.scaled()(x, 3.0)
    (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    testing.assert_equal(first.detach(), torch.full((6,), 3.0))


def test_a_result_outside_of_the_loss_and_defaults_left_out():
    def two(x: Tensor, alpha: float = 2.0) -> tuple[Tensor, Tensor]:
        return alpha * x, x.exp()

    def backward(scaled, exponential, x, alpha, out, power):
        return alpha * scaled + exponential * power

    for way in ("reference", backward):
        kernel = examples.make(["x", "alpha"], ["out", "power"], "", two, backward=way)
        x = testing.randn(4).requires_grad_()
        kernel(x)[0].sum().backward()
        testing.assert_equal(x.grad, torch.full((4,), 2.0))


def test_without_backward_asking_for_a_gradient_is_an_error():
    x = testing.randn(6).requires_grad_()
    out = examples.copy()(x)
    assert out.requires_grad
    with pytest.raises(NotImplementedError, match=r"expected backward \(a function, or 'reference'\) where a gradient"):
        out.sum().backward()
    with torch.no_grad():
        assert not examples.copy()(x).requires_grad
    # A kernel without a gradient as the gradient of another: once, and not twice.
    kernel = examples.make(
        ["x"], ["out"], "out[i] = x[i];", examples.copy_reference, backward=lambda grad, x, out: examples.copy()(grad)
    )
    (first,) = torch.autograd.grad(kernel(x).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="expected backward"):
        first.sum().backward()


@pytest.mark.parametrize(
    ("returned", "error", "said"),
    [
        (lambda g, x, y, *_: g, ValueError, r"backward to return 2 gradients, one an input tensor \(x, y\), got 1"),
        (lambda g, x, y, *_: (g, g, None), ValueError, "got 3"),
        (lambda g, x, y, *_: (g[:2], g), ValueError, r"gradient of x to be \[6\] of torch.float32, got \[2\]"),
        (lambda g, x, y, *_: (g, g.half()), ValueError, "gradient of y to be .* got .* of torch.float16"),
        (lambda g, x, y, *_: (g, 1.0), TypeError, "gradient of y to be .* got float"),
    ],
)
def test_what_backward_returns_is_checked(returned, error, said):
    x, y = (testing.randn(6, seed=seed).requires_grad_() for seed in (1, 2))
    out = product(returned)(x, y)[0]
    with pytest.raises(error, match=said):
        out.sum().backward()
