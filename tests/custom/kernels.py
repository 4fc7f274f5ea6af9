"""Kernels that several tests use. A name belongs to one kernel of a process, so each is made once."""

import functools
import itertools

import torch
from torch import Tensor

import torch_mtl4
from torch_mtl4.custom import MetalKernel

_numbers = itertools.count()
I = {"i": "uint thread_position_in_grid"}  # noqa: E741  as bodies call it
POSITION = {"p": "uint2 thread_position_in_grid"}


def make(inputs, outputs, source, reference, **options) -> MetalKernel:
    """A kernel with a name of its own, over the elements of its first input."""
    first = inputs[0]
    options.setdefault("name", f"kernel_{next(_numbers)}")
    options.setdefault("grid", lambda **values: (values[first].shape[0],))
    options.setdefault("threadgroup", (32,))
    options.setdefault("thread_parameters", I)
    return torch_mtl4.metal_kernel(options.pop("name"), inputs, outputs, source, reference, **options)


def scale_add_reference(x: Tensor, y: Tensor, alpha: float) -> Tensor:
    return x + alpha * y


@functools.cache
def scale_add(backward=None) -> MetalKernel:
    """out = x + alpha * y, along one dimension."""
    body = "out[i] = T(float(x[i]) + alpha * float(y[i]));"
    return make(["x", "y", "alpha"], ["out"], body, scale_add_reference, templates={"x": "T"}, backward=backward)


def transpose_reference(x: Tensor) -> Tensor:
    return x.mT.contiguous()


TRANSPOSE = """
threadgroup T tile[TILE][TILE + 1];
tile[local.y][local.x] = x[p.x, p.y];
threadgroup_barrier(mem_flags::mem_threadgroup);
const uint2 first = p - local;
const uint row = t % size.y, column = t / size.y;
out[first.y + row, first.x + column] = tile[row][column];
"""


def transpose_of(body) -> MetalKernel:
    """The last two dimensions swapped by way of threadgroup memory; groups at the edges are smaller."""
    parameters = {
        "local": "uint2 thread_position_in_threadgroup",
        "size": "uint2 threads_per_threadgroup",
        "t": "uint thread_index_in_threadgroup",
    }
    return make(
        ["x"], ["out"], body, transpose_reference, grid=lambda x: (x.shape[1], x.shape[0]), threadgroup=(8, 8),
        templates={"x": "T"}, constants={"TILE": 8}, thread_parameters=POSITION | parameters,
    )  # fmt: skip


@functools.cache
def transpose() -> MetalKernel:
    return transpose_of(TRANSPOSE)


def split_reference(x: Tensor) -> tuple[Tensor, Tensor]:
    whole = x.float().round()
    return whole.to(torch.int32), (x.float() - whole).to(torch.float16)


@functools.cache
def split() -> MetalKernel:
    """The nearest whole numbers, and what is left: two results of two dtypes."""
    body = """
    const float whole = rint(float(x[i]));
    nearest[i] = int(whole);
    rest[i] = half(float(x[i]) - whole);
    """
    return make(["x"], ["nearest", "rest"], body, split_reference)


def add_reference(total: Tensor, x: Tensor) -> None:
    total += x


@functools.cache
def accumulate() -> MetalKernel:
    """total += x, along two dimensions, in place."""
    return make(
        ["total", "x"], [], "total[p.x, p.y] += x[p.x, p.y];", add_reference,
        grid=lambda x: (x.shape[1], x.shape[0]), threadgroup=(8, 4), thread_parameters=POSITION, in_place=("total",),
    )  # fmt: skip


def resize_reference(x: Tensor, size: list[int]) -> Tensor:
    return torch.nn.functional.interpolate(x[None, None], size=size, mode="nearest")[0, 0]


@functools.cache
def resize() -> MetalKernel:
    """Nearest neighbours at a size that the call names."""
    body = """
    const int x_at = p.x * x.get_extent(0) / out.get_extent(0), y_at = p.y * x.get_extent(1) / out.get_extent(1);
    out[p.x, p.y] = x[x_at, y_at];
    """
    return make(
        ["x", "size"], ["out"], body, resize_reference,
        grid=lambda size: (size[1], size[0]), threadgroup=(16, 2), thread_parameters=POSITION,
        output_shapes=lambda size: [size], output_dtypes=["x"],
    )  # fmt: skip


def copy_reference(x: Tensor) -> Tensor:
    return x.clone()


@functools.cache
def copy() -> MetalKernel:
    """out = x, along one dimension."""
    return make(["x"], ["out"], "out[i] = x[i];", copy_reference)


def scaled_reference(x: Tensor, alpha: float) -> Tensor:
    return alpha * x


@functools.cache
def scaled() -> MetalKernel:
    """out = alpha * x, whose gradient is computed by the kernel itself."""

    def backward(grad, x, alpha, out):
        return scaled()(grad, alpha)

    return make(["x", "alpha"], ["out"], "out[i] = alpha * x[i];", scaled_reference, backward=backward)


def counted_reference(x: Tensor, n: int) -> Tensor:
    return x + n


@functools.cache
def counted() -> MetalKernel:
    """out = x + n, n in the text."""
    return make(["x", "n"], ["out"], "out[i] = x[i] + n;", counted_reference)
