"""metal_atomic: every operation on cells of its own against numpy, then many threads on one cell."""

import numpy as np
import pytest

from . import numerics as nm

FETCH = {"add": np.add, "sub": np.subtract, "min": np.minimum, "max": np.maximum}
FETCH_BITS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
ATOMIC_TYPES = ["int", "uint", "ulong", "float"]
WITHOUT_RESULT = ["min", "max"]
OTHERS = [
    "load",
    "store",
    "exchange",
    "compare_exchange_weak",
    "fence",
    *(f"{op} without result" for op in WITHOUT_RESULT),
]


def operations(T):
    return {**FETCH, **(FETCH_BITS if T != "float" else {})}


def source(T):
    relaxed = "memory_order_relaxed"
    lines = []
    for op in operations(T):
        lines.append(f"OLD = atomic_fetch_{op}_explicit(CELL, y[i], {relaxed});")
    lines.append(f"OLD = atomic_load_explicit(CELL, {relaxed});")
    lines.append(f"atomic_store_explicit(CELL, y[i], {relaxed}); OLD = y[i];")
    lines.append(f"OLD = atomic_exchange_explicit(CELL, y[i], {relaxed});")
    # The exchange takes place in threads of even number only, where what is expected is there.
    lines.append(
        f"{T} expected = i % 2 ? y[i] : x[i]; bool done = atomic_compare_exchange_weak_explicit(CELL, &expected, y[i], "
        f"{relaxed}, {relaxed}); OLD = done ? {T}(1) : expected;"
    )
    lines.append("atomic_thread_fence(mem_flags::mem_device, memory_order_relaxed); OLD = x[i];")
    lines += [f"atomic_{op}_explicit(CELL, y[i], {relaxed}); OLD = y[i];" for op in WITHOUT_RESULT]
    body = ""
    for k, line in enumerate(lines):
        place = f"{k} * points + i"
        body += "\n  { " + line.replace("CELL", f"&cells[{place}]").replace("OLD", f"old[{place}]") + " }"
    contended = ["min", "max"] + (["add", "xor", "or"] if T != "float" else ["add"])
    shared = "".join(
        f"\n  atomic_fetch_{op}_explicit(&one[{k}], x[i], {relaxed});"
        f"\n  atomic_fetch_{op}_explicit(&here[{k}], x[i], {relaxed});"
        for k, op in enumerate(contended)
    )
    return f"""
kernel void own_{T}(device atomic<{T}>* cells [[buffer(0)]], device const {T}* x [[buffer(1)]],
                    device const {T}* y [[buffer(2)]], device {T}* old [[buffer(3)]],
                    constant uint& points [[buffer(4)]], uint i [[thread_position_in_grid]]) {{{body}
}}
kernel void one_{T}(device atomic<{T}>* one [[buffer(0)]], device const {T}* x [[buffer(1)]],
                    device {T}* out [[buffer(2)]], uint i [[thread_position_in_grid]],
                    uint t [[thread_position_in_threadgroup]]) {{
  threadgroup atomic<{T}> here[8];
  if (t < 8) atomic_store_explicit(&here[t], {T}(1), {relaxed});
  threadgroup_barrier(mem_flags::mem_threadgroup);{shared}
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (t < {len(contended)}) out[t] = atomic_load_explicit(&here[t], {relaxed});
}}"""


KERNELS = nm.Sweep("nothing", {"x": "int"}, {}, "".join(source(T) for T in ATOMIC_TYPES))


@pytest.mark.parametrize("T", ATOMIC_TYPES)
@np.errstate(all="ignore")
def test_a_cell_for_each_thread(checked, T):
    x, y = nm.thinned(nm.pairs_of(T, 500), checked)
    x, y = (v[~(np.isnan(x) | np.isnan(y))] for v in (x, y)) if T == "float" else (x, y)
    names = [*operations(T), *OTHERS]
    cells = np.tile(x, (len(names), 1))
    old = np.zeros_like(cells)
    kernel = nm.compiled([KERNELS], checked).kernel(f"own_{T}")
    result = kernel.dispatch(threads=len(x), threadgroup=64, buffers=[cells, x, y, old, np.uint32(len(x))])
    assert not result.report, str(result.report)
    cell, before = dict(zip(names, cells, strict=True)), dict(zip(names, old, strict=True))
    for op, f in operations(T).items():
        nm.assert_same(f"new of {op}", cell[op] + x.dtype.type(0), f(x, y) + x.dtype.type(0), x, y)
        nm.assert_same(f"old of {op}", before[op], x, x, y)
    for op in WITHOUT_RESULT:
        nm.assert_same(op, cell[f"{op} without result"] + x.dtype.type(0), FETCH[op](x, y) + x.dtype.type(0), x, y)
    for op in ("load", "fence"):
        nm.assert_same(op, cell[op], x, x)
        nm.assert_same(op, before[op], x, x)
    nm.assert_same("store", cell["store"], y, y)
    nm.assert_same("exchange", cell["exchange"], y, y)
    nm.assert_same("exchange", before["exchange"], x, x)
    expected = np.where(np.arange(len(x)) % 2, y, x)
    meets = nm.bits_of(expected) == nm.bits_of(x)
    nm.assert_same("compare", cell["compare_exchange_weak"], np.where(meets, y, x), x, y)
    nm.assert_same("compare", before["compare_exchange_weak"], np.where(meets, x.dtype.type(1), x), x, y)


@pytest.mark.parametrize("T", ATOMIC_TYPES)
@np.errstate(all="ignore")
def test_one_cell_for_all_threads(checked, T):
    rng = np.random.default_rng(4)
    x = rng.integers(-1000 if T in ("int", "float") else 0, 1000, 256).astype(nm.TYPES[T])
    ops = [np.minimum, np.maximum, np.add] + ([np.bitwise_xor, np.bitwise_or] if T != "float" else [])
    one, out = np.ones(8, x.dtype), np.zeros(len(ops), x.dtype)
    kernel = nm.compiled([KERNELS], checked).kernel(f"one_{T}")
    result = kernel.dispatch(1, 256, buffers=[one, x, out])
    assert not result.report, str(result.report)
    for k, op in enumerate(ops):
        expected = op(x.dtype.type(1), op.reduce(x))
        assert one[k] == expected, op
        assert out[k] == expected, op
