"""TorchMetalKernel: Apple's constructor and call, its errors, and what it does beyond them."""

import subprocess
import sys

import pytest
import torch

from torch_mtl4 import MetalParameter, TorchMetalKernel, msl, testing
from torch_mtl4.custom import apple, on_cpu

THREAD = MetalParameter("i", "uint", "thread_position_in_grid")


def affine(x: torch.Tensor, y: torch.Tensor, factor: float, twice: bool) -> torch.Tensor:
    return (x * factor + y) * (2 if twice else 1)


def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x / 2, (x / 2).to(torch.float16)


def sign_and_size(x: torch.Tensor) -> list[torch.Tensor]:
    return [x.sign(), x.abs()]


def same(x: torch.Tensor) -> torch.Tensor:
    return x


BODY = "TX v = TX(float(x[i]) * factor + float(y[i]));\nout[i] = twice ? v + v : v;"


def affine_kernel(name="affine", body=BODY):
    return TorchMetalKernel(
        name, ["x", "y", "factor", "twice"], ["out"], body, affine, [THREAD], template_dtypes={"x": "TX"}
    )  # fmt: skip


def sizes(n, results=1):
    return {"threads_per_grid": (n, 1, 1), "threads_per_thread_group": (32, 1, 1), "result_shapes": [[n]] * results}


def identity(name, body="out[i] = x[i];", **options):
    return TorchMetalKernel(name, ["x"], ["out"], body, same, [THREAD], **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_body_gives_what_the_reference_does(dtype):
    kernel, x, y = affine_kernel(), torch.randn(70).to(dtype), torch.randn(70).to(dtype)
    by_reference = kernel(x, y, 1.5, True, **sizes(70))
    assert torch.equal(by_reference, affine(x, y, 1.5, True))
    with on_cpu("msl"):
        by_body = kernel(x, y, 1.5, True, **sizes(70))
    truth = affine(x.double(), y.double(), 1.5, True)
    testing.assert_close(by_body, truth, testing.allowed_error(testing.error_of(by_reference, truth), truth, dtype))


def test_cpu_chooses_and_is_overruled():
    kernel = identity("apple_wrong", "out[i] = x[i] + 1;")
    x = torch.zeros(5)
    assert torch.equal(kernel(x, **sizes(5)), x)
    kernel.cpu = "msl"
    assert torch.equal(kernel(x, **sizes(5)), x + 1)
    with on_cpu("reference"):
        assert torch.equal(kernel(x, **sizes(5)), x)
    with pytest.raises(ValueError, match="apple_wrong: expected cpu one of 'reference', 'msl', got 'gpu'"):
        kernel.cpu = "gpu"


@pytest.mark.parametrize(("reference", "kind"), [(halves, tuple), (sign_and_size, list)])
def test_several_results(reference, kind):
    body = {halves: "a[i] = x[i] / 2; b[i] = half(a[i]);", sign_and_size: "a[i] = sign(x[i]); b[i] = abs(x[i]);"}[
        reference
    ]
    kernel = TorchMetalKernel(f"apple_{reference.__name__}", ["x"], ["a", "b"], body, reference, [THREAD])
    x = torch.randn(9)
    for how in ("reference", "msl"):
        with on_cpu(how):
            results = kernel(x, **sizes(9, 2))
        assert type(results) is kind
        for result, wanted in zip(results, reference(x), strict=True):
            assert result.dtype == wanted.dtype and torch.equal(result, wanted)
    program = torch.export.export(Model(lambda x: kernel(x, **sizes(9, 2))[1]), (x,))
    assert torch.equal(program.module()(x), reference(x)[1])


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def test_views_of_nan_buffers():
    kernel = affine_kernel()
    x = torch.full((40, 3), float("nan"))[::2, 1]
    y = torch.full((20, 2), float("nan"))[:, 0]
    x.copy_(torch.arange(20.0)), y.copy_(torch.ones(20))
    with on_cpu("msl"):
        assert torch.equal(kernel(x, y, 2.0, False, **sizes(20)), 2 * x + 1)


def test_a_result_is_never_an_input():
    kernel = identity("apple_same")
    x = torch.randn(6)
    out = kernel(x, **sizes(6))
    assert torch.equal(out, x) and out.data_ptr() != x.data_ptr()


def test_gradient_is_that_of_the_reference():
    kernel = affine_kernel()
    x, y = (torch.randn(8, requires_grad=True) for _ in range(2))
    kernel(x, y, 3.0, True, **sizes(8)).sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 6)) and torch.equal(y.grad, torch.full_like(y, 2))
    several = TorchMetalKernel("apple_sign_and_size", ["x"], ["a", "b"], "", sign_and_size, [THREAD])
    z = torch.tensor([-2.0, 3.0], requires_grad=True)
    several(z, **sizes(2, 2))[1].sum().backward()
    assert z.grad.tolist() == [-1.0, 1.0]


def test_compiled_without_a_break():
    kernel = affine_kernel()
    x, y = torch.randn(2, 8)

    def function(x, y):
        return kernel(x + 1, y, 2.0, False, **sizes(x.shape[0])) * 2

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    testing.assert_equal(compiled(x, y), function(x, y), "compiled")


def test_exported_with_dynamic_shapes():
    kernel = affine_kernel()
    model = Model(lambda x, y: kernel(x, y, 2.0, True, **sizes(x.shape[0])))
    rows = torch.export.Dim("rows", min=2, max=100)
    program = torch.export.export(model, (torch.randn(8), torch.randn(8)), dynamic_shapes=(({0: rows}, {0: rows}),))
    x, y = torch.randn(2, 33)
    with on_cpu("msl"):
        testing.assert_equal(program.module()(x, y), affine(x, y, 2.0, True), "exported")


def test_check_finds_a_wrong_body_and_passes_the_right_one():
    x, y = torch.randn(2, 50)
    assert affine_kernel().check(x, y, 1.5, True, **sizes(50))
    wrong = affine_kernel("apple_affine_wrong", BODY.replace("factor +", "factor -"))
    report = wrong.check(x, y, 1.5, True, **sizes(50), orders=1)
    assert not report and report.runs == 2 and "out" in report.mismatches[0]
    uncovered = affine_kernel().check(x, y, 1.5, True, **{**sizes(50), "threads_per_grid": (49, 1, 1)})
    assert {finding.kind for finding in uncovered.findings} == {"unwritten-output"}


def test_cost_and_source():
    kernel, x = affine_kernel(), torch.randn(64, dtype=torch.float16)
    assert kernel.cost(x, x.clone(), 1.0, False, **sizes(64)).buffers["x"].unique_read == 128
    text = kernel.source(x, x, 1.0, False, **sizes(64))
    assert "float factor = 1.0f;" in text and "half v = half(" in text and "TX" not in text
    call = kernel.bind(**sizes(64))
    assert call.source(x, x, 1.0, False) == text
    assert torch.equal(call(x, x, 1.0, False), kernel(x, x, 1.0, False, **sizes(64)))
    with pytest.raises(TypeError, match="affine: expected a keyword threads_per_grid, got none"):
        kernel.check(x, x, 1.0, False)


def test_a_body_that_does_not_compile_says_where():
    kernel = identity("apple_broken", "out[i] = x[i];\nout[i] = nothing;")
    with on_cpu("msl"), pytest.raises(msl.CompileError, match=r"apple_broken:2.*nothing"):
        kernel(torch.randn(4), **sizes(4))
    assert torch.isfinite(kernel(torch.randn(4), **sizes(4))).all()


def test_placeholders_are_replaced_in_body_and_helpers():
    kernel = identity("apple_template", "out[i] = twice_$T(x[i]);", helper_src="$T twice_$T($T v) { return v + v; }",
                      template_dtypes={"x": "$T"})  # fmt: skip
    kernel.cpu = "msl"
    for dtype in (torch.float16, torch.int32):
        x = torch.arange(5).to(dtype)
        assert torch.equal(kernel(x, **sizes(5)), x * 2)


@pytest.mark.parametrize(
    ("error", "text", "change"),
    [
        (ValueError, "Kernel name must be a non-empty string, got ' '", {"name": " "}),
        (ValueError, "result_names must contain at least one entry", {"result_names": []}),
        (ValueError, r"Duplicate input names: \['x'\]", {"input_names": ["x", "x"]}),
        (ValueError, r"Duplicate result names: \['o'\]", {"result_names": ["o", "o"]}),
        (ValueError, r"both input_names and result_names: \['x'\]", {"result_names": ["x"]}),
        (ValueError, "same number of parameters .* expected 2, got 1", {"input_names": ["x", "y"]}),
        (TypeError, "only support .* inputs, got <class 'str'>", {"torch_defn": lambda x: x, "annotation": str}),
        (TypeError, "do not support variadic parameters", {"torch_defn": lambda *x: x}),
        (TypeError, "return type of <class 'int'>", {"returns": int}),
        (TypeError, r"return type of tuple\[torch.Tensor, \.\.\.\]", {"returns": tuple[torch.Tensor, ...]}),
        (ValueError, "returns tuple of 2 tensors, but result_names has 1", {"returns": tuple[(torch.Tensor,) * 2]}),
        (ValueError, "returns a single torch.Tensor, but result_names has 2", {"result_names": ["a", "b"]}),
        (TypeError, "torch_defn's x without a default, got 3", {"torch_defn": lambda x=3: x}),
        (ValueError, "Inputs {'z'} not specified", {"template_dtypes": {"z": "T"}}),
        (ValueError, "placeholders of at least one character", {"template_dtypes": {"x": ""}}),
    ],
)  # fmt: skip
def test_constructor_refuses(error, text, change):
    arguments = {
        "name": "apple_refused",
        "input_names": ["x"],
        "result_names": ["out"],
        "src": "",
        "torch_defn": lambda x: x,
    }
    arguments |= {key: value for key, value in change.items() if key not in ("annotation", "returns")}
    defn = arguments["torch_defn"]
    if "x" in defn.__code__.co_varnames:
        defn.__annotations__ = {
            "x": change.get("annotation", torch.Tensor),
            "return": change.get("returns", torch.Tensor),
        }
    with pytest.raises(error, match=text):
        TorchMetalKernel(**arguments)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("threads_per_grid must be a 3-tuple, got 2 elements", {"threads_per_grid": (4, 1)}),
        ("threads_per_thread_group must be a 3-tuple, got 1 elements", {"threads_per_thread_group": (4,)}),
        ("one shape per result name; expected 1", {"result_shapes": [[4], [4]]}),
        ("threads_per_grid of sizes from 0", {"threads_per_grid": (-1, 1, 1)}),
        (r"result_shapes of out of sizes from 0 to 2\^32 - 1, got \[-4\]", {"result_shapes": [[-4]]}),
        (r"result_shapes of out \[4\], as torch_defn gives, got \[5\]", {"result_shapes": [[5]]}),
    ],
)
def test_call_refuses(text, change):
    with pytest.raises(ValueError, match=text):
        identity("apple_called")(torch.zeros(4), **{**sizes(4), **change})


def test_what_the_body_cannot_take_is_refused_where_it_runs():
    kernel = identity("apple_dtypes")
    for bad, text in (
        (torch.zeros(4, dtype=torch.int64), "int32"), (torch.zeros(4, dtype=torch.bool), "uint8"),
        (torch.zeros(4, dtype=torch.float8_e5m2), "uint8"),
    ):  # fmt: skip
        assert torch.equal(kernel(bad, **sizes(4)).float(), bad.float())
        with on_cpu("msl"), pytest.raises(TypeError, match=f"apple_dtypes: expected x of dtype {text}"):
            kernel(bad, **sizes(4))
    with on_cpu("msl"), pytest.raises(ValueError, match="threadgroup of at most 1024 threads"):
        kernel(torch.zeros(4), **{**sizes(4), "threads_per_thread_group": (2048, 1, 1)})


def test_without_an_input_only_the_reference_runs():
    def zeros() -> torch.Tensor:
        return torch.zeros(4)

    kernel = TorchMetalKernel("apple_zeros", [], ["out"], "out[i] = 0;", zeros, [THREAD])
    assert torch.equal(kernel(**sizes(4)), torch.zeros(4))
    with on_cpu("msl"), pytest.raises(NotImplementedError, match="an input that is a tensor"):
        kernel(**sizes(4))


def test_a_name_belongs_to_the_last_kernel():
    first, again = identity("apple_twice"), identity("apple_twice")
    x = torch.ones(3)
    assert torch.equal(first(x, **sizes(3)), again(x, **sizes(3)))
    assert apple.kernels()["apple_twice"] is again
    with pytest.warns(UserWarning, match="apple_twice: the TorchMetalKernel that had this name"):
        other = identity("apple_twice", "out[i] = 0;")
    other.cpu = "msl"
    assert torch.equal(other(x, **sizes(3)), torch.zeros(3))
    with pytest.raises(RuntimeError, match=r"apple_twice: expected the last kernel .* got an older, different one"):
        first(x, **sizes(3))


def test_other_devices_can_be_given_a_kernel():
    kernel = identity("apple_meta")
    meta = torch.zeros(4, device="meta")
    assert kernel(meta, **sizes(4)).shape == (4,)
    kernel.torch_custom_op.register_kernel("cpu")(lambda x, *_: x + 7)
    assert torch.equal(kernel(torch.zeros(4), **sizes(4)), torch.full((4,), 7.0))


def test_apples_package_is_not_imported():
    code = (
        "import sys, torch_mtl4\n"
        "from torch_mtl4 import TorchMetalKernel, MetalParameter\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('coreai', 'coreai_torch')))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
