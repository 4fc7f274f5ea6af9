"""What a kernel may be made of and called with: every refusal, and what it says."""

import pytest
import torch
from torch import Tensor

import torch_mtl4
from torch_mtl4 import testing

from . import kernels as examples


def same(x: Tensor) -> Tensor:
    return x.clone()


def both(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return x.clone(), x.clone()


def make(**changes):
    arguments = {
        "name": "refused", "inputs": ["x"], "outputs": ["out"], "source": "out[i] = x[i];", "reference": same,
        "grid": (4,), "threadgroup": (4,), "thread_parameters": examples.I,
    }  # fmt: skip
    return torch_mtl4.metal_kernel(**(arguments | changes))


@pytest.mark.parametrize(
    "name", ["", "a b", "1x", "x-y", "kernel", "float4", "int8_t", "device", "half3x3", "metal", "NAN", "M_PI_F",
             "INT_MAX", "FLT_MAX", "mtl4_x", "template", "x\n"],
)  # fmt: skip
def test_names_that_are_not_free(name):
    for changes in (
        {"name": name}, {"inputs": [name]}, {"outputs": [name]}, {"thread_parameters": {name: "uint grid_size"}},
        {"templates": {"x": name}}, {"constants": {name: 1}},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"expected (name|each of \w+) (an identifier of C|a name that)"):
            make(**changes)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"name": 3}, TypeError, "expected name a string, got int"),
        ({"inputs": "x"}, TypeError, "expected inputs a sequence of names, got the string 'x'"),
        ({"inputs": [None]}, TypeError, "expected each of inputs a string, got NoneType"),
        ({"outputs": ["x"]}, ValueError, "expected outputs with names of their own, got 'x', which is among inputs"),
        ({"outputs": ["a", "a"]}, ValueError, "'a', which is among outputs"),
        ({"thread_parameters": {"x": "uint grid_size"}}, ValueError, "'x', which is among inputs"),
        ({"constants": {"i": 1}}, ValueError, "'i', which is among thread_parameters"),
        ({"templates": {"x": "i"}}, ValueError, "'i', which is among thread_parameters"),
        ({"templates": {"y": "T"}}, ValueError, "expected templates of the tensors x, out, got 'y'"),
        ({"outputs": []}, ValueError, "expected at least one output, or an input in_place, got none"),
        ({"in_place": ["y"]}, ValueError, "expected in_place among the tensors x, got 'y'"),
        ({"in_place": ["x", "x"]}, ValueError, "expected in_place with each name once"),
        ({"in_place": ["x"], "backward": "reference"}, NotImplementedError, "no backward where inputs are written"),
        ({"backward": "autograd"}, TypeError, "expected backward None, 'reference' or a function, got 'autograd'"),
        ({"cpu": "gpu"}, ValueError, "expected cpu one of 'reference', 'msl', got 'gpu'"),
        ({"reference": None}, TypeError, "expected reference a function of the inputs in PyTorch, got NoneType"),
        ({"inputs": ["x", "y"]}, ValueError, r"reference with a parameter for each of 2 inputs, got 1 \(x\)"),
        ({"outputs": ["a", "b"]}, ValueError, "reference annotated to return 2 tensors, one an output, got 1"),
        ({"constants": {"C": 2**31}}, ValueError, "expected C an int of 32 bits, as MSL's are, got 2147483648"),
        ({"constants": {"C": float("inf")}}, ValueError, "expected C finite in float32"),
        ({"constants": {"C": 1e39}}, ValueError, "expected C finite in float32"),
        ({"constants": {"C": "1"}}, TypeError, "expected C of type int, got str"),
        ({"thread_parameters": {"i": "uint"}}, ValueError, "as 'uint thread_position_in_grid'"),
        ({"thread_parameters": {"i": "float grid_size"}}, ValueError, "got 'float grid_size'"),
        ({"thread_parameters": {"i": "uint position"}}, ValueError, "one of thread_position_in_grid, "),
        ({"thread_parameters": {"i": "uint2 thread_index_in_simdgroup"}}, ValueError, "a uint or ushort, as"),
        ({"thread_parameters": {"i": 3}}, ValueError, "got 3"),
        ({"grid": ()}, ValueError, "expected grid of one to three sizes"),
        ({"grid": (1, 1, 1, 1)}, ValueError, "expected grid of one to three sizes"),
        ({"grid": 4}, ValueError, "expected grid of one to three sizes, got 4"),
        ({"grid": (2**32,)}, ValueError, r"expected grid of sizes from 1 to 2\^32 - 1"),
        ({"threadgroup": (4.0,)}, TypeError, r"expected threadgroup of whole numbers, got float in \[4.0\]"),
        ({"threadgroup": (0,)}, ValueError, "expected threadgroup of sizes from 1"),
        ({"grid": lambda z: (1,)}, ValueError, "expected grid a function of some of x, out, got one of z"),
        ({"output_shapes": lambda out: [(4,)]}, ValueError, "output_shapes a function of some of x, got one of"),
        ({"output_shapes": [(4,)]}, TypeError, "expected output_shapes a function of the inputs by name, got list"),
        ({"output_dtypes": ["y"]}, ValueError, "expected output_dtypes of dtypes or of names among x, got 'y'"),
        ({"output_dtypes": torch.float32}, ValueError, "expected output_dtypes with 1 dtypes, one an output"),
        ({"output_dtypes": [torch.int64]}, TypeError, r"expected output out of dtype int32, `x.to\(torch.int32\)`"),
    ],
)  # fmt: skip
def test_what_a_kernel_is_made_of(changes, error, said):
    with pytest.raises(error, match=said):
        make(**changes)
    assert "refused" not in torch_mtl4.custom.kernels()


def without_annotation(x) -> Tensor:
    return x


def with_text(x: str) -> Tensor:
    return x


def by_keyword(*, x: Tensor) -> Tensor:
    return x


def of_many(*x: Tensor) -> Tensor:
    return x[0]


def with_default(x: Tensor = None) -> Tensor:
    return x


def without_result(x: Tensor):
    return x


def of_a_number(x: int) -> Tensor:
    return torch.ones(x)


def returns_a_number(x: Tensor) -> int:
    return 3


@pytest.mark.parametrize(
    ("reference", "error", "said"),
    [
        (without_annotation, TypeError, "expected an annotation of reference's x: torch.Tensor, int, .* got none"),
        (with_text, TypeError, "expected an annotation of reference's x: .* got <class 'str'>"),
        (by_keyword, TypeError, "expected reference with parameters by position only"),
        (of_many, TypeError, "expected reference with parameters by position only"),
        (with_default, TypeError, "expected reference's x without a default, got None"),
        (without_result, TypeError, "expected reference annotated to return torch.Tensor, .* got none"),
        (returns_a_number, TypeError, "expected reference annotated to return torch.Tensor, .* got <class 'int'>"),
        (of_a_number, ValueError, "expected at least one input that is a tensor, got none"),
    ],
)
def test_references_that_say_too_little(reference, error, said):
    with pytest.raises(error, match=said):
        make(reference=reference)


def test_too_many_parameters():
    def many(x: Tensor) -> list[Tensor]:
        return [x] * 30

    names = [f"y{n}" for n in range(30)]
    with pytest.raises(ValueError, match="expected at most 31 tensors and thread parameters, got 32"):
        make(reference=many, outputs=names)
    examples.make(["x"], names[:29], "", many)


X = torch.ones(4)


@pytest.mark.parametrize(
    ("args", "keywords", "error", "said"),
    [
        ((), {}, TypeError, "expected an input x, got none"),
        ((X,), {}, TypeError, "expected an input y, got none"),
        ((X, X, 1.0, 2.0), {}, TypeError, r"expected at most 3 inputs \(x, y, alpha\), got 4"),
        ((X, X, 1.0), {"beta": 1}, TypeError, "expected keywords among x, y, alpha, each once, got 'beta'"),
        ((X, X, 1.0), {"y": X}, TypeError, "each once, got 'y' twice"),
        ((X, 3, 1.0), {}, TypeError, "expected y a torch.Tensor, got int"),
        ((X, X, X), {}, TypeError, "expected alpha of type float, got Tensor"),
        ((X, X, True), {}, TypeError, "expected alpha of type float, got bool"),
        ((X, X, "1"), {}, TypeError, "expected alpha of type float, got str"),
        ((X, X, float("nan")), {}, ValueError, "expected alpha finite in float32, .* got nan"),
        ((X, X, float("-inf")), {}, ValueError, "expected alpha finite in float32, .* got -inf"),
        ((X, X, 3.5e38), {}, ValueError, r"expected alpha finite in float32, .* got 3.5e\+38"),
        ((X.long(), X, 1.0), {}, TypeError, "expected x of dtype int32, `x.to.torch.int32.`: .* got torch.int64"),
        ((X.double(), X, 1.0), {}, TypeError, "expected x of dtype float32, `x.float.*: .* got torch.float64"),
        ((X.bool(), X, 1.0), {}, TypeError, "expected x of dtype uint8, `x.to.torch.uint8.`: .* got torch.bool"),
        ((X.to(torch.float8_e4m3fn), X, 1.0), {}, TypeError, "expected x of dtype uint8, `x.view.torch.uint8.`"),
        ((X.to(torch.complex64), X, 1.0), {}, TypeError, "expected x of dtype float32, `torch.view_as_real"),
        ((X[0], X, 1.0), {}, ValueError, "expected x of at least one dimension, got a 0-d tensor .*reshape"),
        ((X.reshape([1] * 8 + [4]), X, 1.0), {}, NotImplementedError, "expected x of at most 8 dimensions, got 9"),
        ((X.to_sparse(), X, 1.0), {}, NotImplementedError, "expected x of layout torch.strided, got torch.sparse"),
        ((X, X.to("meta"), 1.0), {}, ValueError, "expected y on the device of x, cpu, got meta"),
    ],
)
def test_what_a_kernel_is_called_with(args, keywords, error, said):
    kernel = examples.scale_add()
    for call in (kernel, kernel.check, kernel.cost, kernel.source, kernel.launch):
        with pytest.raises(error, match=said):
            call(*args, **keywords)


def test_integers_of_32_bits_and_flags():
    kernel = examples.counted()
    for wrong, error in ((2**31, ValueError), (-(2**31) - 1, ValueError), (1.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match="expected n"):
            kernel(X, wrong)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"grid": lambda x: (-1,)}, ValueError, r"expected grid of sizes from 0 to 2\^32 - 1, got \[-1\]"),
        ({"grid": lambda x: (0,)}, ValueError, r"expected grid of at least one thread, since there are results"),
        ({"grid": lambda x: (x.shape[0] / 2,)}, TypeError, r"expected grid of whole numbers, got float in \[2.0\]"),
        ({"grid": lambda x: x}, ValueError, "expected grid of one to three sizes"),
        ({"threadgroup": lambda x: (32, 64)}, ValueError, r"threadgroup of at most 1024 threads, got \[32, 64, 1\]"),
        ({"threadgroup": (2048,)}, ValueError, r"threadgroup of at most 1024 threads, got \[2048, 1, 1\]"),
        ({"output_shapes": lambda x: [4]}, ValueError, "give out a shape of at least one dimension, got 4"),
        ({"output_shapes": lambda x: [()]}, ValueError, "a shape of at least one dimension"),
        ({"output_shapes": lambda x: [(4,), (4,)]}, ValueError, "output_shapes to give 1 shapes, one an output"),
        ({"output_shapes": lambda x: [(-4,)]}, ValueError, r"to give out sizes of at least 0, got \[-4\]"),
        ({"output_shapes": lambda x: [(4.0,)]}, TypeError, r"output_shapes to give out whole numbers, got float"),
    ],
)  # fmt: skip
def test_what_is_computed_for_a_call(changes, error, said):
    kernel = examples.make(["x"], ["out"], "out[i] = x[i];", same, cpu="msl", **changes)
    with pytest.raises(error, match=said):
        kernel(X)


@pytest.mark.parametrize(
    ("results", "error", "said"),
    [
        (lambda x: 3, TypeError, "expected reference to return tensors, got int"),
        (lambda x: [], ValueError, r"expected reference to return 1 tensors \(out\), got 0"),
        (lambda x: [None], TypeError, "expected the reference's out a torch.Tensor, got NoneType"),
        (lambda x: x.long(), TypeError, "expected the reference's out of dtype int32"),
        (lambda x: x.sum(), ValueError, "expected the reference's out of at least one dimension"),
    ],
)
def test_what_a_reference_returns(results, error, said):
    def reference(x: Tensor) -> Tensor:
        return results(x)

    kernel = examples.make(["x"], ["out"], "out[i] = x[i];", reference)
    for call in (kernel, kernel.source):
        with pytest.raises(error, match=said):
            call(X)


def test_a_reference_that_looks_at_values_needs_output_shapes():
    def looks(x: Tensor) -> Tensor:
        return torch.full_like(x, 2.0 if x.sum().item() > 0 else 1.0)

    with pytest.raises(NotImplementedError, match="expected output_shapes, since the reference looks at values"):
        examples.make(["x"], ["out"], "out[i] = 2;", looks).source(X)
    told = {"output_shapes": lambda x: [x.shape], "output_dtypes": ["x"]}
    kernel = examples.make(["x"], ["out"], "out[i] = 2;", looks, **told)
    testing.assert_equal(kernel(X), 2 * X)
    assert kernel.check(X)
    testing.assert_equal(torch.compile(kernel, fullgraph=True, dynamic=True)(X), 2 * X)


def test_words_of_python_are_names_of_msl():
    def two(a: Tensor, b: Tensor) -> Tensor:
        return a + b

    kernel = examples.make(["lambda", "from"], ["is"], "is[i] = lambda[i] + from[i];", two, cpu="msl")
    testing.assert_equal(kernel(X, X), 2 * X)
    testing.assert_equal(kernel(**{"from": X, "lambda": 2 * X}), 3 * X)


def test_an_equal_definition_is_not_another_one():
    first, second = (make(constants={"C": 1}, grid=lambda x: x.shape) for _ in range(2))
    assert first.op is second.op and first.definition == second.definition
    for changes in ({"constants": {"C": 1.0}}, {"constants": {"C": True}}, {"source": "out[i] = x[i]; "}):
        with pytest.raises(ValueError, match="expected a name that no other kernel has"):
            make(**({"constants": {"C": 1}, "grid": lambda x: x.shape} | changes))
    second.remove()
    with pytest.raises(ValueError, match="was removed"):
        first(X)
