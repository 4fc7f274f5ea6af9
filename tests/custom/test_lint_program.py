"""Every rule of calls in a graph: a model that breaks it, and one that does not."""

import itertools

import pytest
import torch
from torch import nn
from torch.export import Dim, export

from torch_mtl4 import MetalParameter, TorchMetalKernel
from torch_mtl4.custom.lint import RULES, lint_program

from .kernels import make
from .test_lint_kernel import CASES as OF_KERNELS

_numbers = itertools.count()
I = MetalParameter("i", "uint", "thread_position_in_grid")  # noqa: E741
GROUP = (32, 1, 1)


def same(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


def shifted(x: torch.Tensor, by: int) -> torch.Tensor:
    return x + by


def apples(reference=same, inputs=("x",), body="out[i] = x[i];", **options):
    options.setdefault("name", f"linted_{next(_numbers)}")
    return TorchMetalKernel(
        input_names=list(inputs), result_names=["out"], src=body, torch_defn=reference, metal_params=[I], **options
    )


class Calls(nn.Module):
    """A model of a function of kernel and inputs."""

    def __init__(self, kernel, function):
        super().__init__()
        self.kernel, self.function = kernel, function

    def forward(self, *args):
        return self.function(self.kernel, *args)


def call(kernel, *args, grid=None, group=GROUP, shape=None):
    x = args[0]
    shape = list(x.shape) if shape is None else shape
    grid = (x.shape[0], 1, 1) if grid is None else grid
    return kernel(*args, threads_per_grid=grid, threads_per_thread_group=group, result_shapes=[shape])


def graph(function, *args, kernel=None, dynamic=None):
    kernel = apples() if kernel is None else kernel
    return export(Calls(kernel, function), args, dynamic_shapes=None if dynamic is None else ((dynamic,) * len(args),))


def found(function, *args, kernel=None, dynamic=None):
    return lint_program(graph(function, *args, kernel=kernel, dynamic=dynamic))


V, M, Q = torch.ones(8), torch.ones(4, 6), torch.ones(2, 3, 4, 5)
ROWS = {0: Dim("rows", min=2, max=64)}
MATRIX = {"body": "if (i < x.get_extent(0)) out[i, 0] = x[i, 0];"}


def transposed(x: torch.Tensor) -> torch.Tensor:
    return x.mT


def total(x: torch.Tensor) -> torch.Tensor:
    return x.sum()


def narrow(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.int64)


def in_place(x: torch.Tensor) -> None:
    x.add_(1)


def branch(k, x):
    return torch.cond(x.sum() > 0, lambda t: call(k, t), lambda t: t.clone(), [x])


def choose(k, x):
    return torch.where(x.sum() > 0, call(k, x), x)


def positive(k, x):
    found = x[x > 0]
    torch._check(found.shape[0] >= 1)
    return call(k, found)


def scalars(count):
    return lambda k, x: sum(call(k, x, float(n)) for n in range(count))


def case(rule, breaks, keeps, *args, **options):
    return rule, breaks, keeps, args, options


CASES = [
    case("kernel-in-branch", branch, choose, V),
    case("operand-dtype", lambda k, x: call(k, x.long()), lambda k, x: call(k, x.int()), V),
    case("operand-dtype", lambda k, x: call(k, x.double()), lambda k, x: call(k, x.half()), V),
    case("operand-dtype", lambda k, x: call(k, x > 0), lambda k, x: call(k, (x > 0).to(torch.uint8)), V),
    case("operand-dtype", lambda k, x: call(k, x.to(torch.float8_e5m2)), lambda k, x: call(k, x), V),
    case("zero-dim", lambda k, x: call(k, x.sum(), grid=(1, 1, 1)), lambda k, x: call(k, x.sum().reshape(1)), V),
    case("symbolic-scalar", lambda k, x: call(k, x, x.shape[0]), lambda k, x: call(k, x, 3), V,
         kernel=lambda: apples(shifted, ("x", "by"), "out[i] = x[i] + by;"), dynamic=ROWS),
    case("scalar-value", lambda k, x: call(k, x, float("inf")), lambda k, x: call(k, x, 3.4e38), V,
         kernel=lambda: apples(scaled, ("x", "factor"))),
    case("scalar-value", lambda k, x: call(k, x, 1e39), lambda k, x: call(k, x, -1e38), V,
         kernel=lambda: apples(scaled, ("x", "factor"))),
    case("scalar-value", lambda k, x: call(k, x, 2**31), lambda k, x: call(k, x, -(2**31)), V,
         kernel=lambda: apples(shifted, ("x", "by"))),
    case("many-texts", scalars(9), scalars(8), V, kernel=lambda: apples(scaled, ("x", "factor"))),
    case("transposed-operand", lambda k, x: call(k, x.mT), lambda k, x: call(k, x.mT.mT), M,
         kernel=lambda: apples(**MATRIX)),
    case("transposed-operand", lambda k, x: call(k, x.transpose(1, 2).contiguous()), lambda k, x: call(k, x), Q,
         kernel=lambda: apples(body="out[i, 0, 0, 0] = x[i, 0, 0, 0];")),
    case("transposed-operand", lambda k, x: call(k, x.permute(0, 2, 1)),
         lambda k, x: call(k, x[:, :1].permute(0, 2, 1)), torch.ones(2, 3, 4),
         kernel=lambda: apples(body="out[i, 0, 0] = x[i, 0, 0];")),
    case("unbacked-size", positive, lambda k, x: call(k, torch.relu(x)), V),
    case("fixed-grid", lambda k, x: call(k, x, grid=(8, 1, 1), shape=[8]), lambda k, x: call(k, x), V, dynamic=ROWS),
    case("fixed-grid", lambda k, x: call(k, x, grid=(4, 1, 1), shape=[4]),
         lambda k, x: call(k, x[:4], grid=(4, 1, 1), shape=[4]), V, dynamic={0: Dim("rows", min=5, max=64)}),
    case("fixed-grid", lambda k, x: call(k, x, grid=(6, 1, 1), shape=[6, 6]),
         lambda k, x: call(k, x.mT @ x, grid=(6, 1, 1), shape=[6, 6]), M, dynamic=ROWS,
         kernel=lambda: apples(**MATRIX)),
    case("grid-size", lambda k, x: call(k, x, grid=(0, 1, 1)), lambda k, x: call(k, x), V),
    case("grid-size", lambda k, x: call(k, x, group=(2048, 1, 1)), lambda k, x: call(k, x, group=(1024, 1, 1)), V),
    case("grid-size", lambda k, x: call(k, x, group=(32, 0, 1)), lambda k, x: call(k, x, group=(32, 32, 1)), V),
    case("grid-size", lambda k, x: call(k, x, grid=(1 - x.shape[0], 1, 1)),
         lambda k, x: call(k, x, grid=(1 + x.shape[0], 1, 1)), V, dynamic=ROWS),
    case("grid-range", lambda k, x: call(k, x, grid=(x.shape[0] - 2, 1, 1)),
         lambda k, x: call(k, x, grid=((x.shape[0] + 31) // 32, 1, 1)), V, dynamic=ROWS),
    case("result-shape", lambda k, x: call(k, x, shape=[9]), lambda k, x: call(k, x, shape=[8]), V),
    case("result-shape", lambda k, x: call(k, x, shape=[8, 1]), lambda k, x: call(k, x, shape=[8]), V),
    case("result-shape", lambda k, x: call(k, x, shape=[x.shape[0] + 1]),
         lambda k, x: call(k, x, shape=[2 * x.shape[0] - x.shape[0]]), V, dynamic=ROWS),
    case("rank", lambda k, x: call(k, x), lambda k, x: call(k, x.reshape(-1)), M),
    case("rank", lambda k, x: call(k, x), lambda k, x: call(k, x[None]), V,
         kernel=lambda: apples(body="if (i < x.get_extent(1)) out[i, 0] = x[i, 0];")),
    case("strided-result", lambda k, x: call(k, x, shape=[6, 4]), lambda k, x: call(k, x[:1], shape=[6, 1]), M,
         kernel=lambda: strided()),
    # Of kernels of ours, which refuse most of these when they are called.
    case("grid-size", lambda k, x: k(x[:1]), lambda k, x: k(x), V,
         kernel=lambda: make(["x"], ["out"], "out[i] = x[i];", same, grid=lambda x: (x.shape[0] - 2,))),
    case("grid-range", lambda k, x: k(x), lambda k, x: k(torch.cat([x, x])), V, dynamic=ROWS,
         kernel=lambda: make(["x"], ["out"], "out[i] = x[i];", same, grid=lambda x: (x.shape[0] - 2,))),
    case("transposed-operand", lambda k, x: k(x.mT), lambda k, x: k(x), M,
         kernel=lambda: make(["x"], ["out"], "out[i, 0] = x[i, 0];", same)),
    case("rank", lambda k, x: k(x), lambda k, x: k(x.reshape(-1)), M,
         kernel=lambda: make(["x"], ["out"], "out[i] = x[i];", same)),
    case("in-place", lambda k, x: (k(t := x.clone()), t)[1], lambda k, x: x + 1, V,
         kernel=lambda: make(["x"], [], "x[i] += 1;", in_place, in_place=["x"])),
    case("unknown-kernel", None, None),
    case("duplicate-name", None, None),
]  # fmt: skip


def strided():
    """A kernel whose op gives what the reference does, as that of Apple's class."""
    kernel = apples(transposed, body="out[i, 0] = x[0, i];")
    kernel.torch_custom_op.register_fake(lambda x, *_: transposed(x))
    return kernel


@pytest.mark.parametrize(
    ("rule", "breaks", "keeps", "args", "options"),
    [c for c in CASES if c[1] is not None],
    ids=[c[0] for c in CASES if c[1] is not None],
)
def test_rule(rule, breaks, keeps, args, options):
    options = dict(options)
    if make_kernel := options.pop("kernel", None):
        options["kernel"] = make_kernel()
    broken = found(breaks, *args, **options)
    assert rule in {f.rule for f in broken}, broken
    kept = found(keeps, *args, **options)
    assert rule not in {f.rule for f in kept}, kept


DECOMPOSED = [
    next(c for c in CASES if c[0] == rule and c[4]) for rule in ("grid-range", "result-shape", "transposed-operand")
]
DECOMPOSED.append(next(c for c in CASES if c[0] == "in-place"))


@pytest.mark.parametrize(("rule", "breaks", "keeps", "args", "options"), DECOMPOSED, ids=[c[0] for c in DECOMPOSED])
def test_decomposed_graphs_are_linted_alike(rule, breaks, keeps, args, options):
    kernel = options.get("kernel", apples)()
    program = graph(breaks, *args, kernel=kernel, dynamic=options.get("dynamic"))
    assert [f.rule for f in lint_program(program.run_decompositions({}))] == [f.rule for f in lint_program(program)]


def test_every_rule_is_tried():
    assert {case[0] for case in CASES} | {case[0] for case in OF_KERNELS} == set(RULES)


def column_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0)


def test_a_grid_may_be_fixed_where_the_result_is():
    kernel = apples(column_sums, body="out[i] = 0;\nfor (int r = 0; r < x.get_extent(1); ++r) out[i] += x[i, r];")
    assert found(lambda k, x: call(k, x, grid=(6, 1, 1), shape=[6]), M, kernel=kernel, dynamic=ROWS) == []


def test_clean_programs_are_clean():
    assert found(lambda k, x: call(k, x), V, dynamic=ROWS) == []
    assert found(lambda k, x: x + 1, V) == []


def test_kernels_that_are_not_known():
    from torch_mtl4.custom import apple

    kernel = apples()
    program = graph(lambda k, x: call(k, x), V, kernel=kernel)
    del apple._kernels[kernel.name]
    (unknown,) = lint_program(program)
    assert (unknown.rule, unknown.kernel, unknown.severity) == ("unknown-kernel", kernel.name, "error")
    assert unknown.part.startswith("call ")
    assert lint_program(program, [kernel]) == []


def test_two_kernels_of_one_name():
    first = apples(name="twice_named")
    with pytest.warns(UserWarning, match="twice_named"):
        second = apples(name="twice_named", body="out[i] = 0;")
    program = graph(lambda k, x: call(k, x), V, kernel=second)
    assert [f.rule for f in lint_program(program, [first, second])] == ["duplicate-name"]
    assert lint_program(program, [second, second]) == []


def test_the_text_of_kernels_that_are_called_is_linted_once():
    kernel = apples(body="out[i] = x[i]; // \u00b5")
    findings = found(lambda k, x: call(k, x) + call(k, x), V, kernel=kernel)
    assert [(f.rule, f.part, f.line) for f in findings] == [("non-ascii", "body", 1)]


def test_a_negative_grid_that_was_wrapped_is_named():
    coreai_torch = pytest.importorskip("coreai_torch")

    name = f"linted_{next(_numbers)}"
    thread = coreai_torch.MetalParameter("i", "uint", "thread_position_in_grid")
    kernel = coreai_torch.TorchMetalKernel(name, ["x"], ["out"], "out[i] = x[i]; // end", same, [thread])
    program = graph(lambda k, x: call(k, x, grid=(-1, 1, 1)), V, kernel=kernel)
    findings = {f.rule: f for f in lint_program(program, [kernel])}
    assert set(findings) == {"open-comment", "grid-size"}
    assert "4294967295 was -1" in findings["grid-size"].message


def test_apples_class_is_linted_as_it_pastes():
    coreai_torch = pytest.importorskip("coreai_torch")

    def made(class_, parameter):
        return class_(
            f"linted_{next(_numbers)}", ["x"], ["out"], "\n#pragma unroll\nout[i] = T(x[i]);", same,
            [parameter("i", "uint", "thread_position_in_grid")], "T twice(T v) { return v + v; }", {"x": "T"},
        )  # fmt: skip

    from torch_mtl4.custom.lint import lint_kernel

    theirs = made(coreai_torch.TorchMetalKernel, coreai_torch.MetalParameter)
    assert {f.rule for f in lint_kernel(theirs)} == {"unguarded-helpers"}
    assert lint_kernel(made(TorchMetalKernel, MetalParameter)) == []
