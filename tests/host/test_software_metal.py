"""The MPS backend as it is built for a Mac, on the software Metal device: what it computes, refuses and keeps."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import torch_mtl4
from torch_mtl4 import _ops, testing

from . import software_metal as software

OLDEST, NEWEST = "g13g macos14", "g17s macos27 tensor_ops scale_planes"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.fixture
def gpu(device):
    return device.ready(software.gpu_of(OLDEST))


def codes(*shape):
    *rows, k = shape
    data = torch.randint(0, 256, shape, dtype=torch.uint8)
    return data, torch.randint(100, 150, (*rows, (k + 31) // 32), dtype=torch.uint8)


def dequantized_on_mps(data, scale, dtype):
    out = torch_mtl4.mxfp8_dequantize(data, scale, dtype=dtype)
    assert out.device.type == "mps" and out.is_contiguous()
    return out.cpu()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(3, 70), (1, 32), (2, 3, 33), (65,)])
def test_an_op_runs_on_mps_tensors(gpu, shape, dtype):
    data, scale = codes(*shape)
    got = dequantized_on_mps(data.to("mps"), scale.to("mps"), dtype)
    testing.assert_equal(got, torch_mtl4.mxfp8_dequantize(data, scale, dtype=dtype))
    assert len(gpu.dispatches) == 1


def test_views_keep_their_offsets_and_strides(gpu):
    data, scale = codes(8, 96)
    there, scale_there = data.to("mps"), scale.to("mps")
    cases = [
        (lambda t: t[3:], lambda t: t[3:]),  # an offset, dense
        (lambda t: t[1::2], lambda t: t[1::2]),  # rows apart
        (lambda t: t[:, 32:], lambda t: t[:, 1:]),  # an offset within rows
        (lambda t: t[:1].expand(4, -1), lambda t: t[:1].expand(4, -1)),
    ]
    for of_data, of_scale in cases:
        got = dequantized_on_mps(of_data(there), of_scale(scale_there), torch.float32)
        want = torch_mtl4.mxfp8_dequantize(of_data(data), of_scale(scale), dtype=torch.float32)
        testing.assert_equal(got, want)


@pytest.mark.parametrize("shape", [(0, 32), (4, 0), (0, 0)])
def test_nothing_runs_for_nothing(gpu, shape):
    data, scale = codes(*shape)
    assert dequantized_on_mps(data.to("mps"), scale.to("mps"), torch.float32).shape == data.shape
    assert not gpu.dispatches


def test_a_mixture_of_devices_is_refused(gpu):
    data, scale = codes(2, 32)
    with pytest.raises(ValueError, match="expected scale on the device of data, mps:0, got cpu"):
        torch_mtl4.mxfp8_dequantize(data.to("mps"), scale, dtype=torch.float32)
    for first, second, text in ((data.to("mps"), scale, "mps, got cpu"), (data, scale.to("mps"), "cpu, got mps")):
        with pytest.raises(RuntimeError, match=f"mxfp8_dequantize: expected scale on data's device {text}"):
            _ops.mxfp8_dequantize(first, second, torch.float32)
    with pytest.raises(RuntimeError, match=r"expected scale \[..., ceil\(K/32\)\] of \[2, 32\], got \[3, 1\]"):
        _ops.mxfp8_dequantize(data.to("mps"), torch.zeros(3, 1, dtype=torch.uint8).to("mps"), torch.float32)


@pytest.mark.parametrize(
    ("caps", "lacking"),
    [
        (OLDEST, {"mps.tensor_ops": "needs macOS 26.2, this is 14.0", "mps.scale_planes": "needs tensor_ops"}),
        ("g17s macos26.2 tensor_ops", {"mps.scale_planes": "needs macOS 27.0, this is 26.2"}),
        ("g17s macos27 tensor_ops", {"mps.scale_planes": "does not take Metal 4.1"}),
        ("g16s macos26.4", {"mps.tensor_ops": "in Metal 4.0", "mps.scale_planes": "needs tensor_ops"}),
        (NEWEST, {}),
    ],
)
def test_the_status_says_which_tiers_there_are_and_why_not(device, caps, lacking):
    device.insert(software.gpu_of(caps))
    status = torch_mtl4.backend_status()
    assert set(status) == {"cpu", "mps", "mps.tensor_ops", "mps.scale_planes"}
    assert status["mps"].available and caps.split()[0] in status["mps"].detail
    assert {name for name, (available, _) in status.items() if not available} == set(lacking)
    for name, reason in lacking.items():
        assert reason in status[name].detail


def test_a_source_is_compiled_once_and_everything_is_released(device, gpu):
    data, scale = (t.to("mps") for t in codes(4, 64))
    torch_mtl4.mxfp8_dequantize(data, scale, dtype=torch.float32)
    names = ("Buffer", "Library", "Pipeline", "Function", "MTLCompileOptions", "MTLFunctionConstantValues")
    before = {name: device.alive(f"Software{name}") for name in names}
    assert before["Function"] == before["MTLCompileOptions"] == before["MTLFunctionConstantValues"] == 0
    for _ in range(5):
        torch_mtl4.mxfp8_dequantize(data, scale, dtype=torch.float32)
    assert {name: device.alive(f"Software{name}") for name in names} == before
    torch_mtl4.mxfp8_dequantize(data, scale, dtype=torch.float16)
    assert gpu.compiled == 1 and device.alive("SoftwarePipeline") == before["Pipeline"] + 1


def test_a_kernel_that_does_not_build_is_named_with_its_line(device, gpu):
    gpu.refused = frozenset({"mxfp8_dequantize_half"})
    data, scale = (t.to("mps") for t in codes(2, 32))
    with pytest.raises(
        RuntimeError, match=r"specialize mxfp8_dequantize/mxfp8_dequantize_half in Metal 3\.1:\n.*not take"
    ):
        torch_mtl4.mxfp8_dequantize(data, scale, dtype=torch.float16)
    testing.assert_equal(
        dequantized_on_mps(data, scale, torch.float32),
        torch_mtl4.mxfp8_dequantize(data.cpu(), scale.cpu(), dtype=torch.float32),
    )

    device.ready(software.gpu_of(OLDEST)).edits["return"] = "retrun"
    data, scale = (t.to("mps") for t in codes(2, 32))
    with pytest.raises(
        RuntimeError,
        match=r"(?s)compile mxfp8_dequantize/mxfp8_dequantize_float in .*mxfp8_dequantize/kernel\.h:\d+:.*retrun",
    ):
        torch_mtl4.mxfp8_dequantize(data, scale, dtype=torch.float32)


def test_threads_share_the_stream(gpu):
    data, scale = codes(3, 40)
    want = torch_mtl4.mxfp8_dequantize(data, scale, dtype=torch.float32)
    failures = []

    def work():
        try:
            for _ in range(3):
                testing.assert_equal(dequantized_on_mps(data.to("mps"), scale.to("mps"), torch.float32), want)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and len(gpu.dispatches) == 12


@pytest.mark.parametrize(
    ("case", "said"),
    {
        "nothing wrong": "",
        "off the queue": "outside of its queue",
        "kept beyond the block": "outside of its queue",
        "block in a block": "inside another",
        "memory in a block": "inside a command block",
        "end of torch's encoder": "ended by somebody else",
        "no pipeline": "without a pipeline",
        "slot 31": "at index 31",
        "offset": "offset 64 lies outside of a buffer of 64",
        "many bytes": "4097 bytes",
        "not bound": r"expected buffers\[0\] \(x\), got none",
        "many threads": "65 threads per threadgroup of at most 64",
        "no groups": "no threadgroups",
        "beyond the buffer": "out-of-bounds",
        "fast mathematics": "safe mathematics",
    }.items(),
)
def test_the_device_notices_what_a_gpu_would_not_forgive(device, gpu, case, said):
    heard = device.violate(case)
    assert re.search(said, heard) if said else heard == ""


def test_a_torch_without_the_stream_says_so(tmp_path, device):
    source = tmp_path / "other.c"
    source.write_text("int aoti_torch_mps_run_command_block(void* f, void* c, void* d) { return 1; }\n")
    other = tmp_path / "libother.so"
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(other)], check=True)
    script = f"""
import ctypes
ctypes.CDLL({str(other)!r}, mode=ctypes.RTLD_GLOBAL)
import torch_mtl4
from host.software_metal import gpu_of, software_metal
software_metal().insert(gpu_of({OLDEST!r}))
print(torch_mtl4.backend_status()["mps"])
import torch
data = torch.zeros(1, 32, dtype=torch.uint8).to("mps")
try:
    torch_mtl4.mxfp8_dequantize(data, data[:, :1], dtype=torch.float32)
except RuntimeError as error:
    print(error)
"""
    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {paths}\n{script}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    status, error = said.splitlines()[0], said.splitlines()[1]
    for text in (status, error):
        assert "this torch does not have _ZN2at3mps19getCurrentMPSStreamEv and _ZN2at3mps9MPSStream" in text
    assert "available=False" in status and "CPU ops work" in error
