"""MLX: elementwise kernels, and those that work through rows; the products are in cases_mlx_products.py."""

import math
from pathlib import Path

import ml_dtypes
import numpy as np

from torch_mtl4 import msl

from .cases import Case, ceil_div
from .cases_mlx_products import attentions, gemm, quantized
from .mlx_maker import Maker

DTYPES = {
    "float": np.float32,
    "half": np.float16,
    "bfloat": ml_dtypes.bfloat16,
    "int32_t": np.int32,
    "uint8_t": np.uint8,
    "int64_t": np.int64,
    "bool": np.bool_,
}
ROWS, WIDTH = 8, 1000


def elementwise(make: Maker, rng) -> list[Case]:
    n = 777
    found = []

    def threads_of(dtype):
        return (ceil_div(n, max(1, 8 // np.dtype(dtype).itemsize)), 1, 1)

    with np.errstate(all="ignore"):
        for op, t, f, tolerance in [
            ("Exp", "float", np.exp, 1e-5),
            ("Tanh", "half", np.tanh, 1e-3),
            ("Sigmoid", "bfloat", lambda x: 1 / (1 + np.exp(-x)), 8e-3),
            ("Erf", "float", np.vectorize(math.erf), 1e-6),
            ("Log1p", "float", lambda x: np.log1p(np.abs(x)), 1e-6),
            ("Negative", "int32_t", np.negative, 0),
            ("Square", "uint8_t", np.square, 0),
            ("Rsqrt", "float", lambda x: 1 / np.sqrt(np.abs(x)), 1e-4),
            ("Round", "half", np.rint, 0),
        ]:
            dtype = DTYPES[t]
            x = (
                rng.integers(-100, 100, n).astype(dtype)
                if np.dtype(dtype).kind in "iu"
                else rng.standard_normal(n).astype(dtype)
            )
            if op in ("Log1p", "Rsqrt"):
                x = np.abs(x)
            y = f(x.astype(np.float32) if np.dtype(dtype).kind not in "iu" else x)
            out = np.zeros(n, dtype)
            found.append(
                make.case(
                    "unary",
                    "unary_v",
                    f"{t}, {t}, {op}",
                    f"{op} {t}",
                    [x, msl.Output(out), np.uint32(n)],
                    out,
                    np.asarray(y),
                    tolerance,
                    (64, 1, 1),
                    threads=threads_of(dtype),
                )
            )
        for op, t, f, tolerance in [
            ("Add", "float", np.add, 0),
            ("Multiply", "bfloat", np.multiply, 0),
            ("Maximum", "half", np.maximum, 0),
            ("Remainder", "int32_t", np.remainder, 0),
            ("LogAddExp", "float", np.logaddexp, 1e-6),
            ("BitwiseXor", "uint8_t", np.bitwise_xor, 0),
            ("Subtract", "int64_t", np.subtract, 0),
        ]:
            dtype = DTYPES[t]
            whole = np.dtype(dtype).kind in "iu"
            a, b = (rng.integers(1, 100, n) if whole else rng.standard_normal(n) for _ in range(2))
            a, b, out = a.astype(dtype), b.astype(dtype), np.zeros(n, dtype)
            found.append(
                make.case(
                    "binary",
                    "binary_vv",
                    f"{t}, {t}, {op}",
                    f"{op} {t}",
                    [a, b, msl.Output(out), np.uint32(n)],
                    out,
                    f(a, b),
                    tolerance,
                    (64, 1, 1),
                    threads=threads_of(dtype),
                )
            )
        a, b, out = (
            rng.standard_normal(n).astype(np.float32),
            rng.standard_normal(n).astype(np.float32),
            np.zeros(n, bool),
        )
        found.append(
            make.case(
                "binary",
                "binary_vv",
                "float, bool, Less",
                "Less float",
                [a, b, msl.Output(out), np.uint32(n)],
                out,
                a < b,
                0,
                (64, 1, 1),
                threads=threads_of(np.float32),
            )
        )
        for source, target in [("float", "half"), ("float", "bfloat"), ("bfloat", "float"), ("int32_t", "half")]:
            x = (rng.standard_normal(n) * 100).astype(DTYPES[source])
            out = np.zeros(n, DTYPES[target])
            found.append(
                make.case(
                    "copy",
                    "copy_v",
                    f"{source}, {target}",
                    f"{source} to {target}",
                    [x, msl.Output(out), np.uint32(n)],
                    out,
                    x.astype(np.float32).astype(DTYPES[target]),
                    0,
                    (64, 1, 1),
                    threads=threads_of(max(DTYPES[source], DTYPES[target], key=lambda t: np.dtype(t).itemsize)),
                )
            )
        which, out = rng.random(n) < 0.5, np.zeros(n, np.float32)
        found.append(
            make.case(
                "ternary",
                "ternary_v",
                "float, Select, false, false",
                "Select float",
                [which, a, b, msl.Output(out), np.uint32(n)],
                out,
                np.where(which, a, b),
                0,
                (64, 1, 1),
                threads=threads_of(np.float32),
            )
        )
    out = np.zeros(n, np.float32)
    found.append(
        make.case(
            "arange",
            "arange",
            "float",
            "float",
            [np.float32(3), np.float32(0.5), msl.Output(out)],
            out,
            3 + 0.5 * np.arange(n),
            1e-4,
            (64, 1, 1),
            threads=(n, 1, 1),
        )
    )
    return found


def rows(make: Maker, rng) -> list[Case]:
    """One threadgroup a row."""
    x = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    softmax, found, size = e / e.sum(1, keepdims=True), [], np.int32(WIDTH)
    for kernel, threads in (("softmax_single_row", 256), ("softmax_looped", 1024)):
        for t, tolerance in (("float", 1e-6), ("half, float", 1e-3)):
            dtype = DTYPES[t.split(",")[0]]
            out = np.zeros(x.shape, dtype)
            found.append(
                make.case(
                    "softmax",
                    kernel,
                    t,
                    f"{kernel} {t}",
                    [x.astype(dtype), msl.Output(out), size],
                    out,
                    softmax,
                    tolerance,
                    (threads,),
                    groups=(ROWS,),
                )
            )
    for kernel, threads in (("logsumexp", 256), ("logsumexp_looped", 1024)):
        out = np.zeros(ROWS, np.float32)
        found.append(
            make.case(
                "logsumexp",
                kernel,
                "float",
                kernel,
                [x, msl.Output(out), size],
                out,
                np.log(e.sum(1)) + x.max(1),
                1e-5,
                (threads,),
                groups=(ROWS,),
            )
        )
    targets, out = rng.integers(0, WIDTH, ROWS).astype(np.int32), np.zeros(ROWS, np.float32)
    loss = np.log(e.sum(1)) + x.max(1) - x[np.arange(ROWS), targets]
    found.append(
        make.case(
            "cross_entropy",
            "cross_entropy",
            "float",
            "float",
            [x, targets, msl.Output(out), size],
            out,
            loss,
            1e-5,
            (1024,),
            groups=(ROWS,),
        )
    )
    strided = {2: size, 3: np.int32(1), 4: np.int32(1), 5: size, 6: size}
    out = np.zeros_like(x)
    found.append(
        make.case(
            "sort",
            "block_sort",
            "float, float, false, 256, 4",
            "block_sort float",
            {0: x, 1: msl.Output(out), **strided},
            out,
            np.sort(x, 1),
            0,
            (256,),
            groups=(1, ROWS, 1),
        )
    )
    order = np.zeros(x.shape, np.uint32)
    found.append(
        make.case(
            "sort",
            "block_sort",
            "float, uint32_t, true, 256, 4",
            "block_sort arguments",
            {0: x, 1: msl.Output(order), **strided},
            order,
            np.argsort(x, 1, kind="stable"),
            0,
            (256,),
            groups=(1, ROWS, 1),
        )
    )
    for op, f, tolerance in (("CumSum", np.cumsum, 1e-3), ("CumMax", np.maximum.accumulate, 0)):
        out = np.zeros_like(x)
        found.append(
            make.case(
                "scan",
                "contiguous_scan",
                f"float, float, {op}<float>, 4, true, false",
                op,
                {0: x, 1: msl.Output(out), 2: np.uint64(WIDTH)},
                out,
                f(x.astype(np.float64), axis=1),
                tolerance,
                (256,),
                groups=(1, ROWS, 1),
                findings=frozenset({"uninitialised-read"}),
            )
        )  # reads words of absent simdgroups, unused
    for op, t, f, tolerance in (
        ("Sum", "float", np.sum, 1e-3),
        ("Max", "half", np.max, 0),
        ("Min", "int32_t", np.min, 0),
    ):
        y = (x * 100).astype(DTYPES[t]) if t == "int32_t" else x.astype(DTYPES[t])
        out = np.zeros(ROWS, DTYPES[t])
        found.append(
            make.case(
                "reduce",
                "row_reduce_simple",
                f"{t}, {t}, {op}<{t}>",
                f"row_reduce {op} {t}",
                [y, msl.Output(out), np.uint64(WIDTH), np.int64(ROWS)],
                out,
                f(y, axis=1),
                tolerance,
                (256, 1, 1),
                groups=(1, ceil_div(ROWS, 4), 1),
            )
        )
    a = np.sort(rng.standard_normal(500).astype(np.float32))
    out = np.zeros(x[0].shape, np.uint32)
    found.append(
        make.case(
            "searchsorted",
            "searchsorted",
            "float, false",
            "left",
            [a, x[0], msl.Output(out), np.uint32(500), np.int64(1)],
            out,
            np.searchsorted(a, x[0]),
            0,
            (64, 1, 1),
            threads=(WIDTH, 1, 1),
        )
    )
    return found


def cases(cache: Path) -> list[Case]:
    make, rng = Maker(cache), np.random.default_rng(1)
    return [c for part in (elementwise, rows, quantized, gemm, attentions) for c in part(make, rng)]
