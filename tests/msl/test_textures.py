"""Textures against numpy: every pixel format, filtering and addressing in the same order of float operations."""

import numpy as np
import pytest

from torch_mtl4 import msl

HEIGHT, WIDTH = 5, 7
RNG = np.random.default_rng(3)
FLOATS = [np.float32, np.float16]
NORMALIZED = [np.uint8, np.int8, np.uint16, np.int16]
UNSIGNED, SIGNED = [np.uint8, np.uint16, np.uint32], [np.int8, np.int16, np.int32]


def pixels(dtype, channels, height=HEIGHT, width=WIDTH):
    shape = (height, width, channels)
    if np.dtype(dtype).kind == "f":
        return RNG.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def four(image):
    """[..., 4] as the kernel sees it: components that lack are 0, alpha is 1."""
    out = np.zeros((*image.shape[:-1], 4), image.dtype)
    out[..., 3] = 1
    out[..., : image.shape[-1]] = image
    return out


def normalized(image):
    largest = np.float32(np.iinfo(image.dtype).max)
    return np.maximum(image.astype(np.float32) / largest, np.float32(-1))


def run(library, kernel, textures, buffers=(), threads=(WIDTH, HEIGHT), **options):
    kernel = library("textures.metal").kernel(kernel)
    result = kernel.dispatch(threads=threads, threadgroup=(4, 2), buffers=buffers, textures=textures, **options)
    assert not result.report, str(result.report)


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("dtype", FLOATS + NORMALIZED)
@pytest.mark.parametrize("scalar", ["float", "half"])
def test_read_floats(library, scalar, dtype, channels):
    image = pixels(dtype, channels)
    out = np.zeros((HEIGHT, WIDTH, 4), np.float32 if scalar == "float" else np.float16)
    run(library, f"read_{scalar}", [msl.Texture(image, normalized=dtype in NORMALIZED)], [out])
    values = normalized(image) if dtype in NORMALIZED else image
    assert np.array_equal(out, four(values.astype(np.float32)).astype(out.dtype))


@pytest.mark.parametrize(("scalar", "dtype"), [("uint", d) for d in UNSIGNED] + [("int", d) for d in SIGNED])
def test_read_and_write_integers(library, scalar, dtype):
    image = pixels(dtype, 2)
    out = np.zeros((HEIGHT, WIDTH, 4), np.uint32 if scalar == "uint" else np.int32)
    run(library, f"read_{scalar}", [image], [out])
    assert np.array_equal(out, four(image).astype(out.dtype))

    wide = pixels(out.dtype, 4)
    target = np.zeros_like(image)
    run(library, f"write_{scalar}", [msl.Output(target)], [wide])
    info = np.iinfo(dtype)
    assert np.array_equal(target, np.clip(wide[..., :2].astype(np.int64), info.min, info.max).astype(dtype))


@pytest.mark.parametrize("dtype", FLOATS + NORMALIZED)
def test_write_floats_rounds_and_clamps(library, dtype):
    values = (RNG.standard_normal((HEIGHT, WIDTH, 4)) * 0.7).astype(np.float32)
    values[0, 0] = [np.nan, np.inf, -np.inf, -0.0] if dtype in NORMALIZED else [1, 2, 3, -0.0]
    target = np.zeros((HEIGHT, WIDTH, 4), dtype)
    run(library, "write_float", [msl.Output(msl.Texture(target, normalized=dtype in NORMALIZED))], [values])
    expected = values.astype(dtype) if dtype in FLOATS else None
    if expected is None:
        info = np.iinfo(dtype)
        low = np.float32(-1 if info.min else 0)
        clamped = np.clip(np.nan_to_num(values, nan=0.0, posinf=2, neginf=-2), low, np.float32(1))
        expected = np.rint(clamped * np.float32(info.max)).astype(dtype)
    assert np.array_equal(target, expected)


def wrap(mode, i, n):
    if mode == "clamp_to_edge":
        return min(max(i, 0), n - 1)
    if mode == "repeat":
        return i % n
    if mode == "mirrored_repeat":
        return i % (2 * n) if i % (2 * n) < n else 2 * n - 1 - i % (2 * n)
    return i if 0 <= i < n else None


def texel(image, sampler, x, y):
    x, y = wrap(sampler.address, x, image.shape[1]), wrap(sampler.address, y, image.shape[0])
    if x is None or y is None:
        border = sampler.border if sampler.address == "clamp_to_border" else "transparent_black"
        colour = {"transparent_black": [0, 0, 0, 0], "opaque_black": [0, 0, 0, 1], "opaque_white": [1, 1, 1, 1]}[border]
        return np.array(colour, np.float32)
    return four(image)[y, x].astype(np.float32)


def sampled(image, sampler, coordinates, offset=(0, 0)):
    out, one = [], np.float32(1)
    for c in coordinates:
        p = c * np.array([image.shape[1], image.shape[0]], np.float32) if sampler.normalized else c
        if sampler.filter == "nearest":
            x, y = (int(v) for v in np.floor(p))
            out.append(texel(image, sampler, x + offset[0], y + offset[1]))
            continue
        corner = np.floor(p - np.float32(0.5))
        a, b = p - np.float32(0.5) - corner
        x, y = int(corner[0]) + offset[0], int(corner[1]) + offset[1]
        rows = [texel(image, sampler, x, r) * (one - a) + texel(image, sampler, x + 1, r) * a for r in (y, y + 1)]
        out.append(rows[0] * (one - b) + rows[1] * b)
    return np.array(out, np.float32)


@pytest.mark.parametrize("offset", [(0, 0), (2, -3)])
@pytest.mark.parametrize("filter", ["nearest", "linear"])
@pytest.mark.parametrize("address", ["clamp_to_edge", "clamp_to_zero", "clamp_to_border", "repeat", "mirrored_repeat"])
@pytest.mark.parametrize("units", ["normalized", "pixels"])
def test_sampling(library, units, address, filter, offset):
    if units == "pixels" and "repeat" in address:
        with pytest.raises(ValueError, match="expected normalized coordinates"):
            msl.Sampler(filter, address, normalized=False).binding()
        return
    image = pixels(np.float32, 4)
    sampler = msl.Sampler(filter, address, units == "normalized", "opaque_white")
    coordinates = RNG.uniform(-1.5, 2.5, (64, 2)).astype(np.float32)
    coordinates[:4] = [[0, 0], [1, 1], [0.5, 0.5], [-0.0, 1]]
    if units == "pixels":
        coordinates *= np.array([WIDTH, HEIGHT], np.float32)
    out = np.zeros((64, 4), np.float32)
    buffers = [coordinates, out, np.array(offset, np.int32)]
    run(library, "sample_all", [image], buffers, threads=64, samplers=[sampler])
    assert np.array_equal(out, sampled(image, sampler, coordinates, offset))


def test_gather(library):
    image, sampler = pixels(np.float32, 2), msl.Sampler("linear", "clamp_to_edge")
    coordinates = RNG.uniform(0, 1, (32, 2)).astype(np.float32)
    out = np.zeros((32, 4), np.float32)
    run(library, "gather_all", [image], [coordinates, out], threads=32, samplers=[sampler])
    for c, got in zip(coordinates, out, strict=True):
        x, y = (int(v) for v in np.floor(c * np.array([WIDTH, HEIGHT], np.float32) - np.float32(0.5)))
        corners = [(x, y + 1), (x + 1, y + 1), (x + 1, y), (x, y)]
        assert got.tolist() == [texel(image, sampler, *corner)[1] for corner in corners]


def test_sampler_of_the_kernel_and_a_texture_of_half(library):
    image = pixels(np.float16, 4)
    coordinates = RNG.uniform(-2, 2, (32, 2)).astype(np.float32)
    out = np.zeros((32, 4), np.float16)
    run(library, "sample_half", {1: image}, [coordinates, out], threads=32)
    expected = sampled(image, msl.Sampler("linear", "repeat"), coordinates)
    assert np.array_equal(out, expected.astype(np.float16))


def test_layers_and_padded_rows(library):
    padded = RNG.standard_normal((3, HEIGHT, WIDTH + 2, 4)).astype(np.float32)
    image, target = padded[:, :, :WIDTH], np.zeros((3, HEIGHT, WIDTH, 4), np.float32)
    run(library, "layers", [image, msl.Output(target)], threads=(WIDTH, HEIGHT, 3))
    assert np.array_equal(target, image * 2 * 3)


def test_reading_and_writing_in_place(library):
    image = pixels(np.float32, 4)
    expected = image * 2 + 1
    run(library, "in_place", [image])
    assert np.array_equal(image, expected)


def test_races_need_a_barrier_for_textures():
    lib = msl.compile(__file__.replace("test_textures.py", "kernels/textures.metal"))
    for ordered, kinds in ((1, set()), (0, {"race"})):
        image = np.zeros((2, 32, 4), np.float32)
        result = lib.kernel("neighbours").dispatch(1, (32, 2), [np.uint32(ordered)], textures=[image])
        assert result.report.kinds == kinds
        if ordered:
            assert np.array_equal(image[0, :, 0], np.arange(32) ^ 1)


def test_access_outside_is_reported_and_harmless(library):
    image, target, out = pixels(np.float32, 4), np.zeros((2, 2), np.float32), np.ones((1, 4), np.float32)
    result = library("textures.metal").kernel("outside").dispatch(1, 1, [out], textures=[image, target])
    assert [finding.kind for finding in result.report] == ["texture-bounds"] * 2
    assert "(7, 0) of a texture of 7 x 5" in result.report.findings[0].message
    assert not out.any() and not target.any()


def test_format_that_the_kernel_does_not_expect():
    lib = msl.compile(__file__.replace("test_textures.py", "kernels/textures.metal"))
    out = np.zeros((HEIGHT, WIDTH, 4), np.float32)
    with pytest.raises(msl.KernelFaultError) as fault:
        lib.kernel("read_float").dispatch(1, 1, [out], textures=[pixels(np.uint8, 4)])
    assert "texture-format" in fault.value.report.kinds


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.zeros((2, 2, 3), np.float32), {}, r"\[2, 2, 3\]"),
        (np.zeros(4, np.float32), {}, r"\[4\]"),
        (np.zeros((2, 4, 4), np.float32)[:, ::2], {}, "contiguous pixels"),
        (np.zeros((2, 2), np.float64), {}, "float64"),
        (np.zeros((2, 2), np.float32), {"normalized": True}, "8- or 16-bit"),
    ],
)
def test_arrays_that_are_no_textures(array, options, message):
    lib = msl.compile(__file__.replace("test_textures.py", "kernels/textures.metal"))
    with pytest.raises((TypeError, ValueError), match=message):
        lib.kernel("in_place").dispatch(1, 1, textures=[msl.Texture(array, **options)])


def test_missing_textures_and_samplers_are_named():
    lib = msl.compile(__file__.replace("test_textures.py", "kernels/textures.metal"))
    with pytest.raises(ValueError, match=r"expected textures\[0\] \(t\), got none"):
        lib.kernel("in_place").dispatch(1, 1)
    with pytest.raises(ValueError, match=r"expected samplers\[0\] \(s\), got none"):
        lib.kernel("sample_all").dispatch(1, 1, [None, None, None], textures=[np.zeros((2, 2), np.float32)])
