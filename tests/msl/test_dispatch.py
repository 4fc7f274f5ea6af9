"""Arguments of a dispatch: what is refused and how, views of every kind, limits, dispatches from several threads."""

import threading

import numpy as np
import pytest
import torch

from torch_mtl4 import msl

from .conftest import KERNELS, _compile

SOURCE = KERNELS / "arguments.metal"


@pytest.fixture(scope="module")
def lib():
    return msl.compile(SOURCE, constants={"width": 4})


def floats(*shape):
    return np.random.default_rng(0).random(shape, np.float32)


def test_unknown_kernel(lib):
    with pytest.raises(ValueError, match=r"kernel: expected one of big, copy, .* got 'cpy'"):
        lib.kernel("cpy")


@pytest.mark.parametrize("constants", [{"widht": 1}, {7: 1}])
def test_unknown_function_constant(constants):
    with pytest.raises(ValueError, match=r"compile: expected constants among width \(3\), got"):
        msl.compile(SOURCE, constants=constants)


@pytest.mark.parametrize("option", [{"tier": "macos9"}, {"layout": "m9"}])
def test_unknown_tier_and_layout(option):
    with pytest.raises(ValueError, match=r"compile: expected (tier|layout) to be one of"):
        msl.compile(SOURCE, **option)


@pytest.mark.parametrize(
    ("buffers", "error", "message"),
    [
        (lambda x, y: [x, y], ValueError, r"copy: expected buffers\[2\] \(n\), got none"),
        (lambda x, y: [x, y, 4, x], ValueError, "expected buffers up to index 2, got one more at 3"),
        (lambda x, y: {0: x, 2: 4}, ValueError, r"expected buffers\[1\] \(y\), got none"),
        (lambda x, y: {0: x, 1: y, 2: 4, 64: x}, ValueError, "expected indices of buffers from 0 to 63, got 64"),
        (
            lambda x, y: [x.astype(np.float64), y, 4],
            TypeError,
            r"expected buffers\[0\] \(x\) of a dtype that MSL has, got float64",
        ),
        (lambda x, y: [x.astype(np.float16), y, 4], TypeError, "to hold float, as the parameter does, got float16"),
        (lambda x, y: [x.astype(np.int32), y, 4], TypeError, "to hold float, as the parameter does, got int32"),
        (lambda x, y: [x, y, np.int64(4)], TypeError, "to hold uint, as the parameter does, got int64"),
        (lambda x, y: [x, y, 4.5], ValueError, r"buffers\[2\] \(n\): expected a whole number for uint, got 4.5"),
        (lambda x, y: [x, y, -4], ValueError, "expected a number that fits uint, got -4"),
        (lambda x, y: [x, y, b"\4"], ValueError, r"expected buffers\[2\] \(n\) to have 4 bytes, got 1"),
        (lambda x, y: [x, 7.0, 4], TypeError, r"to be an array, tensor, .* got float \(say np\.uint32"),
        (lambda x, y: [x, "text", 4], TypeError, "to be an array, tensor, bytes, .* got str"),
        (lambda x, y: [x, np.array([None]), 4], TypeError, "to hold numbers, got dtype object"),
        (lambda x, y: [x, msl.Output(b"1234"), 4], ValueError, "to be writable, since it is an Output"),
        (lambda x, y: [torch.empty(4, device="meta"), y, 4], ValueError, "to be a plain strided CPU tensor, got meta"),
    ],
)
def test_wrong_buffers(lib, buffers, error, message):
    x, y = floats(4), floats(4)
    with pytest.raises(error, match=message):
        lib.kernel("copy").dispatch(1, 32, buffers(x, y))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threadgroup": 32}, "copy: expected either groups or threads, got None and None"),
        ({"threadgroup": 32, "groups": 1, "threads": 32}, "expected either groups or threads, got 1 and 32"),
        ({"threadgroup": 1025, "groups": 1}, "expected 1 to 1024 threads per threadgroup, got 1025"),
        ({"threadgroup": (32, 32, 2), "groups": 1}, "expected 1 to 1024 threads per threadgroup, got 2048"),
        ({"threadgroup": 0, "groups": 1}, "expected 1 to 1024 threads per threadgroup, got 0"),
        ({"threadgroup": (1, 1, 1, 1), "groups": 1}, "expected threadgroup to be one to three sizes"),
        ({"threadgroup": 32, "groups": -1}, "expected groups to be one to three sizes, got -1"),
        ({"threadgroup": 32, "groups": 1 << 40}, r"fewer than 2\^32 threads per grid in each dimension"),
        ({"threadgroup": 1, "threads": (1, 1 << 40)}, r"fewer than 2\^32 threads per grid in each dimension"),
        (
            {"threadgroup": 32, "groups": 1, "layout": "m4"},
            "expected layout to be one of m5, pre_m5, scrambled, got 'm4'",
        ),
        ({"threadgroup": 32, "groups": 1, "threadgroup_memory": [20]}, "to be a multiple of 16 bytes, got 20"),
        ({"threadgroup": 32, "groups": 1, "threadgroup_memory": [32784]}, "of at most 32768 bytes, got 32784"),
    ],
)
def test_wrong_launch(lib, arguments, message):
    with pytest.raises(ValueError, match=message):
        lib.kernel("copy").dispatch(buffers=[floats(4), floats(4), 4], **arguments)


def test_kernel_with_a_limit_of_its_own(lib):
    assert not lib.kernel("small").dispatch(1, 64, [floats(64)]).report
    with pytest.raises(ValueError, match="small: expected 1 to 64 threads per threadgroup, got 65"):
        lib.kernel("small").dispatch(1, 65, [floats(65)])


def test_threadgroup_memory_of_the_host(lib):
    x, y = floats(64), np.full(64, np.nan, np.float32)
    with pytest.raises(ValueError, match=r"reversed: expected threadgroup_memory\[0\] \(shared\), got none"):
        lib.kernel("reversed").dispatch(1, 64, [x, y])
    result = lib.kernel("reversed").dispatch(1, 64, [x, msl.Output(y)], threadgroup_memory=[64 * 4])
    assert not result.report
    assert result.threadgroup_bytes == 256
    assert np.array_equal(y, x[::-1])


def test_variables_beyond_the_limit_of_threadgroup_memory_are_reported(lib):
    report = lib.kernel("big").dispatch(1, 32, [floats(32)]).report
    assert {f.kind for f in report} == {"threadgroup-memory"}
    assert "threadgroup memory of 32832 bytes exceeds the limit of 32768" in report.findings[0].message
    assert report.findings[0].location.place.startswith("arguments.metal:")


def test_numbers_become_what_the_parameter_declares(lib):
    x, y = torch.zeros(1, dtype=torch.float16), torch.zeros(1, dtype=torch.bfloat16)
    assert not lib.kernel("halves").dispatch(1, 1, [x, y, 1.5]).report
    assert (x.item(), y.item()) == (1.5, 1.5)


def test_unsigned_integers_are_raw_bits(lib):
    bits = np.zeros(1, np.uint16)
    assert not lib.kernel("halves").dispatch(1, 1, [bits, bits.copy(), 1.0]).report
    assert bits.view(np.float16)[0] == 1


def test_unbound_on_purpose_reads_zeros_and_is_reported(lib):
    y = floats(4)
    report = lib.kernel("copy").dispatch(1, 4, [None, y, 4]).report
    assert {f.kind for f in report} == {"unbound-buffer"}
    assert not y.any()


@pytest.mark.parametrize("n", [0, 1, 31, 33, 1000])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_slices_leave_their_surroundings_alone(lib, kind, n):
    x, y = np.full(n + 10, np.nan, np.float32), np.full(n + 10, -7, np.float32)
    x[3 : 3 + n] = floats(n)
    if kind == "torch":
        source, target = torch.from_numpy(x)[3 : 3 + n], torch.from_numpy(y)[5 : 5 + n]
    else:
        source, target = x[3 : 3 + n], y[5 : 5 + n]
    assert (
        not lib.kernel("copy")
        .dispatch(threads=max(n, 1), threadgroup=64, buffers=[source, msl.Output(target), n])
        .report
    )
    assert np.array_equal(y[5 : 5 + n], x[3 : 3 + n])
    assert np.all(y[:5] == -7)
    assert np.all(y[5 + n :] == -7)


def test_strided_output_keeps_what_lies_between(lib):
    x, y = floats(8, 16), np.full((8, 24), -7, np.float32)
    strides = np.array([16, 24], np.uint32)
    report = (
        lib.kernel("copy_rows")
        .dispatch(threads=(16, 8), threadgroup=(16, 2), buffers=[x, msl.Output(y[:, :16]), strides])
        .report
    )
    assert not report, str(report)
    assert np.array_equal(y[:, :16], x)
    assert np.all(y[:, 16:] == -7)


def test_output_that_is_not_written_completely_is_reported(lib):
    x, y = floats(8, 16), np.full((8, 24), -7, np.float32)
    strides = np.array([16, 24], np.uint32)
    report = (
        lib.kernel("copy_rows")
        .dispatch(threads=(16, 7), threadgroup=(16, 1), buffers=[x, msl.Output(y[:, :16]), strides])
        .report
    )
    assert [f.kind for f in report] == ["unwritten-output"]
    assert "16 of 128 elements of output 'y' were never written, the first is [7, 0]" in report.findings[0].message
    assert np.all(y[:, 16:] == -7)


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_misaligned_view_of_vectors_is_refused(lib, offset):
    x, y = torch.rand(20), torch.zeros(16)
    message = rf"expected buffers\[0\] \(x\) at a multiple of 16 bytes, as float4 needs, got one at {4 * offset} bytes"
    with pytest.raises(ValueError, match=message):
        lib.kernel("copy_vectors").dispatch(1, 2, [x[offset:], y])
    with pytest.raises(ValueError, match=message):
        lib.kernel("copy_vectors").dispatch(1, 2, [(x, 4 * offset), y])
    assert not lib.kernel("copy_vectors").dispatch(1, 2, [x[4:], y]).report
    assert torch.equal(y[:8], x[4:12])


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_misaligned_view_stays_misaligned_for_the_kernel(lib, offset):
    report = lib.kernel("set_vectors").dispatch(1, 2, [torch.rand(20)[offset:]]).report
    assert report.kinds == ({"misaligned"} if offset else set())


def test_views_that_overlap_share_memory(lib):
    x = torch.arange(8.0)
    report = lib.kernel("copy").dispatch(1, 1, [x[:4], x[4:], 1]).report
    assert not report
    assert x.tolist() == [0, 1, 2, 3, 0, 5, 6, 7]
    shared = torch.arange(8.0)
    report = lib.kernel("copy").dispatch(1, 8, [shared, shared, 8]).report
    assert not report
    moved = torch.arange(8.0)
    assert "race" in lib.kernel("copy").dispatch(1, 4, [moved[:4], moved[1:5], 4]).report.kinds


def test_buffer_lives_on_and_knows_what_was_written(lib):
    buffer = msl.Buffer(8 * 4, "scratch")
    assert not lib.kernel("copy").dispatch(1, 4, [floats(4), buffer, 4]).report
    y = np.zeros(8, np.float32)
    report = lib.kernel("copy").dispatch(1, 8, [buffer, y, 8]).report
    assert {f.kind for f in report} == {"uninitialised-read"}
    assert "byte 16 of buffer 'scratch'" in report.findings[0].message
    assert np.array_equal(buffer.numpy(np.float32, 4), floats(4))
    with pytest.raises(ValueError, match=r"Buffer.write: expected at most 32 bytes, got 36"):
        buffer.write(np.zeros(9, np.float32))


def test_dispatches_from_several_threads_keep_their_findings_apart():
    lib = _compile("bugs.metal", True, ())
    expected = {"missing_barrier": "race", "good_half_neighbours": None, "oob_device_read": "out-of-bounds"}
    wrong = []

    def work(kernel, kind):
        for _ in range(10):
            x, out = np.arange(128, dtype=np.float32), np.zeros(512, np.float32)
            report = lib.kernel(kernel).dispatch(4, 128, [x, out, np.uint32(100)]).report
            if (kind in report.kinds) != (kind is not None) or any(f.kernel != kernel for f in report):
                wrong.append((kernel, str(report)))

    threads = [threading.Thread(target=work, args=item) for item in expected.items() for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_empty_grid_runs_nothing(lib):
    y = floats(4)
    before = y.copy()
    assert not lib.kernel("copy").dispatch(0, 32, [floats(4), y, 4]).report
    assert np.array_equal(y, before)


def test_paths_and_texts():
    with pytest.raises(FileNotFoundError, match=r"compile: expected a \.metal file or its text, got 'missing\.metal'"):
        msl.compile("missing.metal")
    assert "row_sum" in msl.compile(str(KERNELS / "a_basic.metal")).kernels
