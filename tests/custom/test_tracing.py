"""What torch sees of a kernel: schema, fake kernel, gradients, torch.compile, torch.export, functionalization."""

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_mtl4 import testing
from torch_mtl4.custom import on_cpu

from . import kernels as examples


def opcheck(kernel, *args):
    assert set(torch.library.opcheck(kernel.op, args).values()) == {"SUCCESS"}


@pytest.mark.parametrize("backward", [None, "reference"])
def test_opcheck(backward):
    x, y = testing.randn(10), testing.randn(20)[::2]
    opcheck(examples.scale_add(backward), x, y, 0.5)
    opcheck(examples.split(), x)
    opcheck(examples.resize(), testing.randn(4, 5), [2, 3])
    opcheck(examples.accumulate(), testing.randn(4, 5), testing.randn(5, 4).mT)


def test_opcheck_with_gradients():
    x, y = (testing.randn(10).requires_grad_() for _ in range(2))
    opcheck(examples.scale_add("reference"), x, y, 0.5)
    opcheck(examples.scaled(), x, 0.5)


def test_opcheck_of_the_text():
    with on_cpu("msl"):
        opcheck(examples.scale_add("reference"), testing.randn(10), testing.randn(10), 0.5)
        opcheck(examples.accumulate(), testing.randn(4, 5), testing.randn(4, 5))


@pytest.mark.parametrize("shapes_from", ["reference", "output_shapes"])
def test_compiled_with_dynamic_sizes(shapes_from):
    def pair_sums(x: Tensor) -> Tensor:
        return x[:-1] + x[1:]

    options = {"output_shapes": lambda x: [[x.shape[0] - 1]], "output_dtypes": ["x"]}
    kernel = examples.make(
        ["x"], ["out"], "out[i] = x[i] + x[i + 1];", pair_sums, backward="reference", grid=lambda out: out.shape,
        **(options if shapes_from == "output_shapes" else {}),
    )  # fmt: skip
    compiled = torch.compile(lambda x: kernel(2 * x).sin(), fullgraph=True, dynamic=True)
    for n in (5, 9, 64):
        x = testing.randn(n).requires_grad_()
        for way in ("reference", "msl"):
            with on_cpu(way):
                out = compiled(x)
            want = pair_sums(2 * x).sin()
            testing.assert_close(out, want, 1e-6)
            grads = (torch.autograd.grad(o.sum(), x)[0] for o in (out, want))
            testing.assert_close(*grads, 1e-5)


def test_compiled_scalars_make_graphs_of_their_own():
    kernel = examples.scale_add()
    compiled = torch.compile(lambda x, a: kernel(x, x, a), fullgraph=True)
    x = testing.randn(5)
    for alpha in (1.0, 2.0, 3.5, -0.25):
        testing.assert_equal(compiled(x, alpha), x + alpha * x)


def test_compiled_in_place():
    kernel = examples.accumulate()

    def twice(total, x):
        kernel(total, x)
        doubled = total * 2
        kernel(doubled, x)
        return doubled

    total, x = testing.randn(4, 6), testing.randn(4, 6, seed=1)
    want_total = total + x
    out = torch.compile(twice, fullgraph=True)(total, x)
    testing.assert_equal(total, want_total)
    testing.assert_equal(out, want_total * 2 + x)


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(testing.randn(1, seed=5))
        self.kernel = examples.scale_add()

    def forward(self, x, y):
        return self.kernel(x * self.weight, y, 0.5)


@pytest.mark.parametrize("strict", [True, False])
def test_exported_with_dynamic_sizes(strict):
    model, n = Scaled(), torch.export.Dim("n", min=2)
    program = torch.export.export(
        model, (testing.randn(5), testing.randn(5)), dynamic_shapes=({0: n}, {0: n}), strict=strict
    )  # fmt: skip
    program = program.run_decompositions()
    (node,) = (node for node in program.graph.nodes if node.target is examples.scale_add().op)
    x, y = (testing.randn(12, seed=seed) for seed in (1, 2))
    testing.assert_equal(program.module()(x, y), model(x, y))
    launch = examples.scale_add().launch(*(a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args))
    assert isinstance(launch.grid[0], torch.SymInt) and launch.grid[1:] == (1, 1)


def test_exported_sizes_stay_symbolic():
    class Model(torch.nn.Module):
        def forward(self, x):
            return examples.resize()(x, [2 * x.shape[0], x.shape[1] + 1])

    dims = ({0: torch.export.Dim("h", min=2), 1: torch.export.Dim("w", min=2)},)
    program = torch.export.export(Model(), (testing.randn(4, 5),), dynamic_shapes=dims, strict=False)
    testing.assert_equal(
        program.module()(testing.randn(6, 7)), examples.resize_reference(testing.randn(6, 7), [12, 8])
    )  # fmt: skip


def test_exported_in_place_is_functionalized():
    class Model(torch.nn.Module):
        def forward(self, x, y):
            total = x + 1
            examples.accumulate()(total, y)
            return total

    args = testing.randn(4, 6), testing.randn(4, 6, seed=1)
    program = torch.export.export(Model(), args, strict=False).run_decompositions()
    assert any("auto_functionalized" in str(node.target) for node in program.graph.nodes)
    testing.assert_equal(program.module()(*args), args[0] + 1 + args[1])


def test_a_symbolic_scalar_is_refused_with_a_way_out():
    class Model(torch.nn.Module):
        def forward(self, x):
            return examples.counted()(x, x.shape[0])

    n = torch.export.Dim("n", min=2)
    with pytest.raises(NotImplementedError, match=r"expected n a number that is known .* declare the input as list"):
        torch.export.export(Model(), (testing.randn(5),), dynamic_shapes=({0: n},), strict=False)
    testing.assert_equal(examples.counted()(torch.ones(3), 4), torch.full((3,), 5.0))


def test_errors_keep_their_class_and_text_in_a_graph():
    kernel = examples.scale_add()
    compiled = torch.compile(lambda x, y: kernel(x, y, 1.0), fullgraph=True)
    for call in (kernel, kernel.op):
        with pytest.raises(TypeError, match="expected x of dtype int32"):
            call(torch.ones(3, dtype=torch.int64), torch.ones(3), 1.0)
    with pytest.raises(TypeError, match="expected x of dtype int32"):
        compiled(torch.ones(3, dtype=torch.int64), torch.ones(3))


def test_fake_results_are_dense_whatever_the_reference_gives():
    def flipped(x: Tensor) -> Tensor:
        return x.mT

    kernel = examples.make(
        ["x"], ["out"], "out[p.y, p.x] = x[p.x, p.y];", flipped, thread_parameters=examples.POSITION,
        grid=lambda x: (x.shape[1], x.shape[0]), threadgroup=(4, 4),
    )  # fmt: skip
    with FakeTensorMode() as mode:
        out = kernel(mode.from_tensor(torch.empty(3, 5)))
    assert out.shape == (5, 3) and out.stride() == (3, 1)
    assert kernel(torch.empty(3, 5)).stride() == (3, 1)
    assert kernel(torch.empty(3, 5, device="meta")).stride() == (3, 1)


def test_vmap_runs_the_kernel_for_each():
    x = testing.randn(3, 4)
    testing.assert_equal(torch.vmap(lambda row: examples.scale_add()(row, row, 1.0))(x), 2 * x)


def test_forward_mode_is_refused():
    import torch.autograd.forward_ad as forward_ad

    with forward_ad.dual_level(), pytest.raises(NotImplementedError, match="expected x without a tangent"):
        dual = forward_ad.make_dual(torch.ones(3), torch.ones(3))
        examples.scale_add("reference")(dual, torch.ones(3), 1.0)
