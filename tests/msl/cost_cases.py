"""Dispatches with a cost that was worked out by hand. `python -m tests.msl.cost_cases` prints what is counted."""

import functools
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from torch_mtl4 import msl
from torch_mtl4.msl import Output, Traffic

KERNELS = Path(__file__).parent / "kernels"
HALF, FLOAT = 2, 4


@dataclass
class Case:
    """A dispatch and what it must cost: buffers by name as (read, written, unique read, unique written)."""

    source: str
    kernel: str
    groups: object
    threadgroup: object
    buffers: list
    device: dict = field(default_factory=dict)
    constant: dict = field(default_factory=dict)
    textures: dict = field(default_factory=dict)
    options: dict = field(default_factory=dict)
    constants: dict = field(default_factory=dict)
    counts: dict = field(default_factory=dict)

    def expected(self) -> dict:
        """The fields of the cost; those that are not named are zero or empty."""
        empty = {"threadgroup_memory", "threadgroup_read", "threadgroup_written", "threadgroup_barriers"}
        empty = dict.fromkeys([*empty, "simdgroup_barriers"], 0)
        empty |= {k: {} for k in ("simdgroup_operations", "device_atomics", "threadgroup_atomics", "products")}
        buffers = {name: Traffic("device", *sizes) for name, sizes in self.device.items()}
        buffers |= {name: Traffic("constant", n, 0, unique, 0) for name, (n, unique) in self.constant.items()}
        buffers |= {name: Traffic("texture", *sizes) for name, sizes in self.textures.items()}
        return {**empty, "buffers": buffers, **self.counts}

    def dispatch(self, load: Callable, **options) -> msl.Cost:
        """Runs it; `load(source, constants)` compiles."""
        lib = load(self.source, self.constants)
        lib.report.clear()
        result = lib.kernel(self.kernel).dispatch(
            self.groups, self.threadgroup, self.buffers, **{**self.options, **options}
        )
        assert not result.report, str(result.report)
        return result.cost


def numbers(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def out(*shape, dtype=np.float32):
    return Output(np.zeros(shape, dtype))


def sizes(*values):
    return np.array([*values, 0], np.uint32)


def products(operations, multiply_accumulates):
    return msl.Products(operations, multiply_accumulates)


def read(total, unique):
    return total, 0, unique, 0


def written(total, unique):
    return 0, total, 0, unique


def copy():
    n, threads = 1000, 4 * 256
    return Case(
        *("arguments.metal", "copy", 4, 256, [numbers(n), out(n), np.uint32(n)]),
        device={"x": read(FLOAT * n, FLOAT * n), "y": written(FLOAT * n, FLOAT * n)},
        constant={"n": (4 * threads, 4)},
    )


def copy_vectors():
    return Case(
        *("arguments.metal", "copy_vectors", 2, 64, [numbers(128, 4), out(128, 4)]),
        device={"x": read(16 * 128, 16 * 128), "y": written(16 * 128, 16 * 128)},
    )


def strided():
    return Case(
        *("cost.metal", "strided", 2, 32, [numbers(1000), out(64), np.uint32(7)]),
        device={"x": read(FLOAT * 64, FLOAT * 64), "y": written(FLOAT * 64, FLOAT * 64)},
        constant={"stride": (4 * 64, 4)},
    )


def gather():
    index = (np.arange(64) % 10 * 3).astype(np.uint16)
    return Case(
        *("cost.metal", "gather", 2, 32, [numbers(100), index, out(64)]),
        device={
            "x": read(FLOAT * 64, FLOAT * 10),
            "index": read(2 * 64, 2 * 64),
            "y": written(FLOAT * 64, FLOAT * 64),
        },
    )


def as_written():
    n = 64
    return Case(
        *("cost.metal", "as_written", 2, 32, [numbers(n), out(n), np.float32(2)]),
        device={
            "x": read(3 * FLOAT * n, FLOAT * n),
            "y": (3 * FLOAT * n, (1 + 3) * FLOAT * n, FLOAT * n, FLOAT * n),
        },
        constant={"scale": (3 * FLOAT * n, 4)},
    )


def vectors():
    n = 32
    return Case(
        *("cost.metal", "vectors", 1, n),
        [numbers(n, 4), numbers(n, 3), numbers(n, 4, dtype=np.float16), np.zeros((n, 2), np.uint32), out(n, 4)],
        device={
            "a": read((16 + 8) * n, 16 * n),  # whole with its padding, then two components
            "b": read(12 * n, 12 * n),
            "c": read(2 * n, 2 * n),
            "d": read(8 * n, 8 * n),
            "y": written((16 + 8) * n, 16 * n),
        },
    )


def row_sum():
    rows, n, threads = 3, 1000, 256
    steps = n + threads  # of the loops of a row, with the test that ends each
    return Case(
        *("a_basic.metal", "row_sum", rows, threads, [numbers(rows, n), out(rows), np.uint32(n)]),
        device={"x": read(FLOAT * rows * n, FLOAT * rows * n), "out": written(FLOAT * rows, FLOAT * rows)},
        constant={"n": (4 * rows * (steps + n), 4)},
        counts={
            "threadgroup_memory": FLOAT * 32,
            "threadgroup_written": FLOAT * 8 * rows,
            "threadgroup_read": FLOAT * 8 * rows,
            "threadgroup_barriers": rows,
            "simdgroup_operations": {"simd_sum": rows * (8 + 1)},
        },
    )


def tiled_matmul():
    m, n, k, tile = 40, 24, 20, 16
    across, down, steps = 2, 3, 2
    threads = across * down * tile * tile
    return Case(
        *("cost.metal", "tiled_matmul", (across, down), (tile, tile)),
        [numbers(m, k), numbers(k, n), out(m, n), sizes(m, n, k)],
        device={
            "A": read(FLOAT * m * k * across, FLOAT * m * k),
            "B": read(FLOAT * k * n * down, FLOAT * k * n),
            "C": written(FLOAT * m * n, FLOAT * m * n),
        },
        constant={"sizes": (16 * threads, 16)},  # a uint3, whole
        counts={
            "threadgroup_memory": 2 * FLOAT * tile * tile,
            "threadgroup_written": 2 * FLOAT * threads * steps,
            "threadgroup_read": 2 * FLOAT * threads * steps * tile,
            "threadgroup_barriers": 2 * steps * across * down,
        },
    )


def simdgroup_matmul():
    m, n, k, tile, step = 64, 96, 32, 32, 16
    groups, steps = (m // tile) * (n // tile), k // step
    fragments = 4 * 2 * (2 + 2)  # of 4 simdgroups, in the 2 halves of a step
    return Case(
        *("b_simdgroup_matmul.metal", "matmul_sg", (n // tile, m // tile), 128),
        [numbers(m, k, dtype=np.float16), numbers(k, n, dtype=np.float16), out(m, n), sizes(m, n, k)],
        device={
            "A": read(HALF * m * k * (n // tile), HALF * m * k),
            "B": read(HALF * k * n * (m // tile), HALF * k * n),
            "C": written(FLOAT * m * n, FLOAT * m * n),
        },
        constant={"mnk": (8 * groups * 128, 8)},  # N and K
        counts={
            "threadgroup_memory": HALF * (tile * (step + 8) + step * (tile + 8)),
            "threadgroup_written": HALF * 2 * tile * step * steps * groups,
            "threadgroup_read": HALF * 64 * fragments * steps * groups,
            "threadgroup_barriers": 2 * steps * groups,
            "products": {"simdgroup_matrix half x half -> float": products(m * n * k // 512, m * n * k)},
        },
    )


def tensor_matmul():
    m, n, k = 100, 72, 96
    across, down = 3, 2
    return Case(
        *("c_tensorops_matmul.metal", "matmul_handle", (across, down), 128),
        [numbers(m, k, dtype=np.float16), numbers(k, n, dtype=np.float16), out(m, n)],
        device={
            "matrixA": read(HALF * m * k * across, HALF * m * k),
            "matrixB": read(HALF * k * n * down, HALF * k * n),
            "matrixC": written(FLOAT * m * n, FLOAT * m * n),
        },
        counts={"products": {"matmul2d half x half -> float": products(across * down, across * down * 64 * 32 * k)}},
    )


def cooperative_matmul():
    m, n, k = 100, 72, 96
    across, down, steps = 3, 2, 3
    operations = across * down * steps
    return Case(
        *("c_tensorops_matmul.metal", "matmul_coop", (across, down), 128),
        [
            numbers(m, k, dtype=np.float16),
            numbers(n, k, dtype=np.float16),
            out(m, n, dtype=np.float16),
            numbers(n),
            np.array([m, n, k, 0], np.int32),
        ],
        device={
            "A": read(HALF * m * k * across, HALF * m * k),
            "B": read(HALF * k * n * down, HALF * k * n),
            "C": written(HALF * m * n, HALF * m * n),
            "bias": read(FLOAT * m * n, FLOAT * n),
        },
        constant={"mnk": (12 * across * down * 128, 12)},
        counts={"products": {"matmul2d half x half -> float": products(operations, operations * 64 * 32 * 32)}},
    )


def scaled_matmul():
    m, n, k = 32, 64, 128  # 128 columns of the 256 that there are
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, 256, (rows, 128), np.uint8) for rows in (m, n)]
    scales = [rng.integers(120, 130, (rows, 8), np.uint8) for rows in (m, n)]
    handles = [
        msl.Tensor(c, (256, rows), format="fp4_e2m1", scales=s)
        for c, rows, s in zip(codes, (m, n), scales, strict=True)
    ]
    return Case(
        *("matmul.metal", "scale_both_e2m1", (2, 1), 64, [*handles, out(m, n), np.array([m, n, 256, 128], np.int32)]),
        device={
            "a": read(m * k // 2 * 2, m * k // 2),
            "a.scales": read(m * k // 32 * 2, m * k // 32),
            "b": read(n * k // 2, n * k // 2),
            "b.scales": read(n * k // 32, n * k // 32),
            "c": written(FLOAT * m * n, FLOAT * m * n),
        },
        constant={"mnk": (12 * 128, 12)},  # N, M and the column, of each thread
        counts={
            "products": {
                "matmul2d metal_fp4_e2m1_format x metal_fp4_e2m1_format -> float": products(2, 2 * 32 * 32 * k)
            }
        },
    )


def thread_matmul():
    threads = 8
    x, w = numbers(threads, 8, dtype=np.float16), numbers(8, 8, dtype=np.float16)
    return Case(
        *("matmul.metal", "thread_network", 1, threads, [x, w, out(threads, 8)]),
        device={
            "x": read(HALF * 8 * threads, HALF * 8 * threads),
            "w": read(HALF * 64 * threads, HALF * 64),
            "out": written(FLOAT * 8 * threads, FLOAT * 8 * threads),
        },
        counts={"products": {"matmul2d half x half -> float": products(threads, threads * 64)}},
    )


def flash_attention(layout="m5"):
    """64 queries, 16 a simdgroup; 77 keys: two whole tiles of 32, and 13 that pass through threadgroup memory."""
    queries, keys, d, tile, tiles, simdgroups = 64, 77, 64, 32, 3, 4
    scores, edge = FLOAT * 16 * tile * tiles * simdgroups, HALF * tile * d * simdgroups
    through_memory = layout == "scrambled"  # the scores: the layouts of the two products differ
    moved = edge + scores * through_memory
    operations = tiles * simdgroups
    macs = operations * 16 * tile * d
    # Of the parameters, each thread reads eight before its loop and one in each tile; a score inside reads three, one
    # beyond the keys one; an element of the edge one or two; an element of the output two.
    beyond = tile * tiles - keys
    by_element = 3 * 16 * keys + 16 * beyond + (tile + tile - beyond) * d + 2 * 16 * d
    parameters = 4 * (32 * simdgroups * (8 + tiles) + simdgroups * by_element)
    buffers = [numbers(1, rows, d, dtype=np.float16) for rows in (queries, keys, keys)]
    return Case(
        *("d_flash_attention.metal", "flash_attention", (1, 1), 128),
        [*buffers, out(1, queries, d, dtype=np.float16), struct.pack("<iifi", queries, keys, 0.125, 0)],
        device={
            "Q": read(HALF * queries * d * tiles, HALF * queries * d),
            "K": read(HALF * keys * d * simdgroups, HALF * keys * d),
            "V": read(HALF * keys * d * simdgroups, HALF * keys * d),
            "O": written(HALF * queries * d, HALF * queries * d),
        },
        constant={"p": (parameters, 16)},
        options={"layout": layout},
        counts={
            "threadgroup_memory": simdgroups * (FLOAT * 16 * tile + HALF * tile * d),
            "threadgroup_read": moved,
            "threadgroup_written": moved,
            "simdgroup_barriers": 2 * simdgroups + 2 * operations * through_memory,
            "simdgroup_operations": {"reduce_rows": 2 * operations},
            "products": {
                "matmul2d float x half -> float": products(operations, macs),
                "matmul2d half x half -> float": products(operations, macs),
            },
        },
    )


def histogram():
    groups, bins = 5, 256
    x = np.random.default_rng(0).integers(0, 256, groups * bins).astype(np.uint8)
    each, all_bins = groups * bins, 4 * groups * bins
    return Case(
        *("a_basic.metal", "histogram", groups, bins, [x, np.zeros(bins, np.uint32)]),
        device={"x": read(each, each), "h": (all_bins, all_bins, 4 * bins, 4 * bins)},
        counts={
            "threadgroup_memory": 4 * bins,
            "threadgroup_written": 2 * all_bins,
            "threadgroup_read": 2 * all_bins,
            "threadgroup_barriers": 2 * groups,
            "device_atomics": {"atomic_fetch_add": each},
            "threadgroup_atomics": {"atomic_fetch_add": each, "atomic_load": each, "atomic_store": each},
        },
    )


def atomics():
    groups, threads = 2, 64
    each = groups * threads
    return Case(
        *("cost.metal", "atomics", groups, threads, [np.full(3, 7, np.uint32), out(each, dtype=np.uint32)]),
        device={"x": (3 * 4 * each, 2 * 4 * each, 12, 8), "y": written(4 * each, 4 * each)},
        counts={
            "threadgroup_memory": 16,
            "threadgroup_written": 4 * (each + groups),
            "threadgroup_read": 4 * each,
            "threadgroup_barriers": groups,
            "device_atomics": {"atomic_compare_exchange_weak": each, "atomic_exchange": each, "atomic_load": each},
            "threadgroup_atomics": {"atomic_fetch_max": each, "atomic_store": groups},
        },
    )


def simdgroup_barriers():
    groups, threads = 2, 96
    n = FLOAT * groups * threads
    return Case(
        *("cost.metal", "simdgroup_barriers", groups, threads, [out(groups * threads)]),
        device={"y": written(n, n)},
        counts={
            "threadgroup_memory": FLOAT * threads,
            "threadgroup_written": n,
            "threadgroup_read": n,
            "simdgroup_barriers": groups * (1 + 2 + 3),
        },
    )


def divergent():
    return Case(
        *("cost.metal", "divergent", 1, 32, [out(32)]),
        device={"y": written(FLOAT * 32, FLOAT * 32)},
        counts={"simdgroup_operations": {"simd_max": 1, "simd_shuffle_xor": 3, "simd_sum": 1}},
    )


def votes():
    groups, names = 3, ("ballot", "active_threads_mask", "all", "any", "is_first")
    x = np.ones(32, np.uint32)
    return Case(
        *("lanes.metal", "votes", groups, 32, [x, np.zeros((32, 10), np.uint64), np.uint32(0xFFFFFFFF)]),
        device={"x": read(4 * 32 * groups, 4 * 32), "out": written(8 * 320 * groups, 8 * 320)},
        constant={"mask": (4 * 32 * groups, 4)},
        options={"device_races": False},
        counts={"simdgroup_operations": {f"{p}_{name}": groups for p in ("quad", "simd") for name in names}},
    )


def sample():
    """Linear filtering at the corner of the first pixel: the four texels are one."""
    image, n = np.ones((3, 5, 2), np.float16), 32
    linear = msl.Sampler("linear", normalized=False)
    return Case(
        *("textures.metal", "sample_all", 1, n, [np.zeros((n, 2), np.float32), out(n, 4), np.zeros(2, np.int32)]),
        device={"c": read(8 * n, 8 * n), "out": written(16 * n, 16 * n)},
        constant={"offset": (8 * n, 8)},
        textures={"texture(0)": read(4 * 4 * n, 4)},
        options={"textures": [image], "samplers": [linear]},
    )


def texture_in_place():
    """Read, written, read and written again."""
    image = np.zeros((4, 8, 4), np.uint8)
    n = image.nbytes
    return Case(
        *("textures.metal", "in_place", (2, 2), (4, 2), []),
        textures={"texture(0)": (2 * n, 2 * n, n, n)},
        options={"textures": [msl.Texture(image, normalized=True)]},
    )


BYTES_OF = {
    "bool": 1,
    "half": 2,
    "bfloat": 2,
    "packed_uchar3": 3,
    "char3": 4,
    "packed_half3": 6,
    "half3": 8,
    "bfloat4": 8,
    "int2": 8,
    "odd": 8,
    "packed_float3": 12,
    "float3": 16,
    "long3": 32,
    "float3x3": 48,
    "float4x4": 64,
    "nine": 108,
}


def copy_values(name):
    def make():
        n = BYTES_OF[name] * 32
        device = {"x": read(2 * n, n), "y": written(n, n), "z": written(n, n)}
        return Case(
            *("cost.metal", f"copy_{name}", 1, 32),
            [np.ones(n, np.uint8), out(n, dtype=np.uint8), out(n, dtype=np.uint8)],
            device=device,
            options={"uninitialised": False},
        )

    return make


def optional(has_bias):
    def make():
        x, bias = numbers(32), numbers(32) if has_bias else None
        n = FLOAT * 32
        device = {"x": read(n, n), "y": (n, 2 * n, n, n) if has_bias else written(n, n)}
        return Case(
            *("cost.metal", "optional", 1, 32, [x, out(32), bias]),
            device=device | ({"bias": read(n, n)} if has_bias else {}),
            constants={"has_bias": has_bias},
        )

    return make


CASES = {
    f.__name__: f
    for f in (
        *(copy, copy_vectors, strided, gather, as_written, vectors, row_sum, tiled_matmul, simdgroup_matmul),
        *(tensor_matmul, cooperative_matmul, scaled_matmul, thread_matmul, flash_attention, histogram, atomics),
        *(simdgroup_barriers, divergent, votes, sample, texture_in_place),
    )
}
CASES |= {"with_bias": optional(True), "without_bias": optional(False)}
CASES |= {f"copy_{name}": copy_values(name) for name in BYTES_OF}


@functools.cache
def _compile(source, constants, checked):
    cases = [make() for make in CASES.values()]
    kernels = {c.kernel for c in cases if c.source == source and c.constants == dict(constants)}
    only = f"^({'|'.join(sorted(kernels))})$"
    return msl.compile(KERNELS / source, count=True, checked=checked, constants=dict(constants), only=only)


def counting(source, constants=(), checked=False):
    """The kernels of the cases with that source and those function constants."""
    return _compile(source, tuple(dict(constants).items()), checked)


def checking(source, constants=()):
    return counting(source, constants, checked=True)


if __name__ == "__main__":
    print(json.dumps({name: make().dispatch(counting).to_dict() for name, make in CASES.items()}))
