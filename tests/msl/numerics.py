"""Sweeps of the standard library: generated kernels that evaluate many expressions at many points, and their judges."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from torch_mtl4 import msl

FLOATS = {"float": np.float32, "half": np.float16, "bfloat": ml_dtypes.bfloat16}
INTEGERS = {
    "char": np.int8,
    "uchar": np.uint8,
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
}
TYPES = {**FLOATS, **INTEGERS, "bool": np.bool_}
PRECISION = {"float": 24, "half": 11, "bfloat": 8}  # significant bits
LEAST_EXPONENT = {"float": -126, "half": -14, "bfloat": -126}  # of normal numbers
LARGEST = {name: float(ml_dtypes.finfo(dtype).max) for name, dtype in FLOATS.items()}
CHECKED_POINTS = 512


@dataclass(frozen=True)
class Sweep:
    """A kernel that evaluates `results`, {label: (type, expression of the inputs)}, at every point."""

    name: str
    inputs: dict[str, str]
    results: dict[str, tuple[str, str]]
    functions: str = ""
    variables: str = ""

    def source(self) -> str:
        arguments = [f"device const {t}* {v}_ [[buffer({k})]]" for k, (v, t) in enumerate(self.inputs.items())]
        arguments += [f"device {t}* out_{t} [[buffer({len(self.inputs) + k})]]" for k, t in enumerate(self.types())]
        loads = "".join(f" {t} {v} = {v}_[i];" for v, t in self.inputs.items()) + self.variables
        stores = "".join(
            f"\n  out_{t}[{self._row(label)} * points + i] = {expression};"
            for label, (t, expression) in self.results.items()
        )
        return (
            f"{self.functions}\nkernel void {self.name}({', '.join(arguments)}, "
            f"constant uint& points [[buffer({len(arguments)})]], uint i [[thread_position_in_grid]]) "
            f"{{{loads}{stores}\n}}\n"
        )

    def types(self) -> list[str]:
        return sorted({t for t, _ in self.results.values()})

    def _row(self, label: str) -> int:
        return [k for k, (t, _) in self.results.items() if t == self.results[label][0]].index(label)

    def run(self, library, points: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """The results by label; any finding of the checked build is a failure."""
        points = [np.ascontiguousarray(p) for p in points]
        n = len(points[0])
        rows = {t: sum(t == other for other, _ in self.results.values()) for t in self.types()}
        outputs = {t: np.zeros((rows[t], n), TYPES[t]) for t in self.types()}
        result = library.kernel(self.name).dispatch(
            threads=n, threadgroup=256, buffers=[*points, *outputs.values(), np.uint32(n)]
        )
        assert not result.report, str(result.report)
        return {label: outputs[t][self._row(label)] for label, (t, _) in self.results.items()}


@functools.cache
def _compiled(source: str, checked: bool):
    return msl.compile(source, name="numerics.metal", checked=checked)


def compiled(sweeps: Sequence[Sweep], checked: bool):
    source = "#include <metal_stdlib>\nusing namespace metal;\n" + "".join(s.source() for s in sweeps)
    lib = _compiled(source, checked)
    lib.report.clear()
    return lib


def thinned(points: Sequence[np.ndarray], checked: bool) -> list[np.ndarray]:
    """All points, or as many as a checked run should take, spread over them."""
    count = len(points[0])
    if not checked or count <= CHECKED_POINTS:
        return list(points)
    chosen = np.unique(np.linspace(0, count - 1, CHECKED_POINTS).astype(int))
    return [p[chosen] for p in points]


def bits_of(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def same(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Equal bit by bit, any NaN being equal to any other."""
    assert got.dtype == expected.dtype, (got.dtype, expected.dtype)
    equal = bits_of(got) == bits_of(expected)
    if got.dtype.kind in "fV":
        equal |= np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    return equal


def assert_same(label: str, got: np.ndarray, expected: np.ndarray, *points: np.ndarray) -> None:
    wrong = np.flatnonzero(~same(got, expected))
    if len(wrong):
        k = wrong[0]
        raise AssertionError(
            f"{label}: {len(wrong)} of {len(got)} differ, first at {[p[k] for p in points]}: {got[k]!r}, "
            f"expected {expected[k]!r}"
        )


def ulps(got: np.ndarray, exact: np.ndarray, name: str) -> np.ndarray:
    """Distance of results from exact values (float64) in units in the last place of a format, as the specification
    defines them; 0 for equal infinities and for NaN where NaN is right, infinite for a wrong special value."""
    got, exact = got.astype(np.float64), exact.astype(np.float64)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.abs(exact)))
        exponent = np.clip(np.nan_to_num(exponent, nan=0, neginf=-2000, posinf=2000), LEAST_EXPONENT[name], 127)
        exponent = np.minimum(exponent, np.floor(np.log2(LARGEST[name])))
        unit = np.exp2(exponent - (PRECISION[name] - 1))
        overflowed = np.abs(exact) >= LARGEST[name] + unit / 2  # rounds to infinity
        error = np.abs(got - exact) / unit
        error = np.where(np.isinf(got) & overflowed & (np.sign(got) == np.sign(exact)), 0, error)
    error = np.where(np.isnan(got) & np.isnan(exact), 0, error)
    return np.where(np.isnan(error), np.inf, error)


def assert_within(label: str, got: np.ndarray, exact: np.ndarray, name: str, bound: float, *points) -> None:
    error = ulps(got, exact, name)
    k = int(np.argmax(error))
    assert error[k] <= bound, (
        f"{label} ({name}): {error[k]:.6g} ulp, allowed {bound}, at {[p[k] for p in points]}: {got[k]!r}, "
        f"exactly {exact[k]!r}; {np.count_nonzero(error > bound)} of {len(got)} are off"
    )


def every(name: str) -> np.ndarray:
    """Every value of a type of at most 16 bits."""
    dtype = np.dtype(TYPES[name])
    if name == "bool":
        return np.array([False, True])
    return np.arange(2 ** (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}").view(dtype)


def edges(name: str) -> np.ndarray:
    """Zeros of both signs, subnormals, smallest and largest, infinities and NaN, ties, and integer extremes."""
    dtype = np.dtype(TYPES[name])
    if name == "bool":
        return every(name)
    if name in INTEGERS:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        values = [low, low + 1, low // 2, -2, -1, 0, 1, 2, 3, 7, high // 2, high // 2 + 1, high - 1, high]
        powers = [sign * (2**k + d) for k in range(8 * dtype.itemsize) for d in (-1, 0, 1) for sign in (1, -1)]
        return np.array(sorted({v for v in values + powers if low <= v <= high}), dtype)
    info = ml_dtypes.finfo(dtype)
    tiny, least, largest, eps = (float(v) for v in (info.smallest_normal, info.smallest_subnormal, info.max, info.eps))
    magnitudes = [0, least, 3 * least, tiny - least, tiny, tiny + least, largest, largest * (1 - eps), np.inf, np.nan]
    magnitudes += [0.25, 0.5, 0.5 - eps / 4, 0.5 + eps / 2, 1 - eps / 2, 1, 1 + eps, 1.5, 2, 2.5, 3, 3.5, np.pi, 4, 10]
    magnitudes += [1 / 3, 0.1, eps, eps / 2, 1 / eps - 0.5, 1 / eps, 1 / eps + 1, 2 / eps, 127.5, 128, 255, 256, 1000]
    magnitudes += [np.log(largest), -np.log(tiny), -np.log(least), np.log2(largest), np.sqrt(largest), np.sqrt(tiny)]
    values = np.array(magnitudes, np.float64)
    with np.errstate(over="ignore"):
        both = np.concatenate([values, -values]).astype(np.float32).astype(dtype)
    return both


def patterns(name: str, count: int, seed: int = 0) -> np.ndarray:
    """Random bit patterns."""
    dtype = np.dtype(TYPES[name])
    rng = np.random.default_rng(seed)
    if name == "bool":
        return rng.integers(0, 2, count).astype(bool)
    return rng.integers(0, 256, (count, dtype.itemsize), dtype=np.uint8).reshape(-1).view(dtype)


def points_of(name: str, count: int = 20000) -> np.ndarray:
    """Every value of a type of at most 16 bits, else its edges and random bit patterns."""
    if np.dtype(TYPES[name]).itemsize <= 2:
        return every(name)
    return np.concatenate([edges(name), patterns(name, count)])


def pairs_of(name: str, count: int = 20000) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of edges, and random pairs, half of them close to each other."""
    e = edges(name)
    x, y = patterns(name, count, 1), patterns(name, count, 2)
    if name in FLOATS:
        near = np.random.default_rng(3).uniform(-8, 8, (2, count)).astype(np.float32).astype(TYPES[name])
    else:
        near = np.stack([x, x + patterns(name, count, 4) % np.dtype(TYPES[name]).type(8)])
    return (
        np.concatenate([np.repeat(e, len(e)), x, near[0]]),
        np.concatenate([np.tile(e, len(e)), y, near[1]]),
    )
