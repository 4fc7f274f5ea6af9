"""Every rule of the text and of the signature: a kernel that breaks it, and the one that does not."""

import dataclasses

import pytest

from torch_mtl4.custom.lint import ERROR, WARNING, KernelParts, lint_kernel

# As Apple's class pastes it, and as ours is.
APPLES = KernelParts(
    "scale", ("x", "y"), ("out",), "out[i] = x[i] * y[i];", "",
    (), (("i", "uint", "thread_position_in_grid"),),
    own_lines=False, own_namespace=False, replaced=True,
)  # fmt: skip
OURS = dataclasses.replace(APPLES, own_lines=True, own_namespace=True, replaced=False)

GUARDED = "#ifndef TWICE_H\n#define TWICE_H\ninline float twice(float v) { return 2 * v; }\n#endif\n"
UNGUARDED = "inline float twice(float v) { return 2 * v; }\n"
COPY = "out[gid.x, gid.y] = x[gid.x, gid.y];"
MATRIX = (("gid", "uint2", "thread_position_in_grid"),)
CASES = [
    # rule, the kernel, what breaks it, what does not
    ("open-comment", APPLES, {"body": "out[i] = x[i]; // done"}, {"body": "out[i] = x[i]; // done\n"}),
    ("open-comment", OURS, {"body": "out[i] = x[i]; /* done"}, {"body": "out[i] = x[i]; // done"}),
    ("open-comment", OURS, {"body": "out[i] = x[i]; \\"}, {"body": "out[i] = \\\n x[i];"}),
    ("open-comment", OURS, {"helpers": "/* a"}, {"helpers": '// "/*"\n'}),
    ("directive-at-edge", APPLES, {"body": "#if 1\nout[i] = 0;\n#endif\n"}, {"body": "\n#if 1\nout[i] = 0;\n#endif\n"}),
    ("directive-at-edge", APPLES, {"body": "\n#if 1\nout[i] = 0;\n#endif"}, {"body": "\n#if 1\nout[i] = 0;\n#endif\n"}),
    ("directive-at-edge", APPLES, {"body": "  # pragma unroll\nout[i] = 0;"}, {"body": "out[i] = 0; // #if\n"}),
    ("unbalanced-directives", OURS, {"body": "#if A\nout[i] = 0;"}, {"body": "#if A\nout[i] = 0;\n#endif"}),
    ("unbalanced-directives", OURS, {"helpers": "#endif"}, {"helpers": "#if A\n#else\n#endif"}),
    ("unbalanced-brackets", OURS, {"body": "if (i) { out[i] = 0;"}, {"body": "if (i) { out[i] = 0; } // }"}),
    ("unbalanced-brackets", OURS, {"body": "out[i] = 0; }"}, {"body": "out[i] = 0; /* } */"}),
    ("unbalanced-brackets", OURS, {"body": "#if A\nif (i) {{\n#else\nif (x) {{\n#endif\n}"},
     {"body": "#if A\nif (i) {\n#else\nif (x[i] > 0) {\n#endif\nout[i] = 0; }"}),
    ("unbalanced-brackets", OURS, {"helpers": "float f() { return (1; }"}, {"helpers": "float f() { return '}'; }"}),
    ("non-ascii", OURS, {"body": "out[i] = x[i]; // 10 \u00b5s"}, {"body": "out[i] = x[i]; // 10 us"}),
    ("non-ascii", OURS, {"helpers": "// \u2212"}, {"helpers": "// -"}),
    ("unguarded-helpers", APPLES, {"helpers": UNGUARDED}, {"helpers": GUARDED}),
    ("unguarded-helpers", APPLES, {"helpers": "namespace a { struct P { int x; }; }"},
     {"helpers": "using T4 = float4;\nfloat other(float);"}),
    ("unguarded-helpers", APPLES, {"helpers": "constant float table[2] = {1, 2};"}, {"helpers": "// float f() {}"}),
    ("unguarded-helpers", APPLES, {"helpers": GUARDED + UNGUARDED}, {"helpers": "/* a */\n" + GUARDED}),
    ("pragma-once", APPLES, {"helpers": "#pragma once\n" + UNGUARDED}, {"helpers": GUARDED}),
    ("include-in-helpers", APPLES, {"helpers": '#include "mine.h"'}, {"helpers": "#include <metal_simdgroup>"}),
    ("include-in-helpers", OURS, {"helpers": "#include <metal_simdgroup>"}, {"helpers": "#include <metal_stdlib>"}),
    ("include-in-helpers", APPLES, {"body": "\n#include <metal_simdgroup>\n"}, {"body": "// #include <a>\n"}),
    ("leaking-macro", OURS, {"helpers": "#define N 4"}, {"helpers": "#define N 4\nconstant int n = N;\n#undef N"}),
    ("leaking-macro", APPLES, {"body": "\n#define N 4\n"}, {"helpers": GUARDED}),
    ("no-function-constants", OURS, {"helpers": "constant bool c [[function_constant(0)]];"},
     {"helpers": "constant bool c = true; // function_constant"}),
    ("no-threadgroup-arguments", APPLES, {"thread_parameters": (("tile", "float*", "threadgroup(0)"),)},
     {"body": "threadgroup float tile[4];\nout[i] = 0;\n"}),
    ("absolute-path", OURS, {"body": "// from /Users" + "/me/k.metal"}, {"body": "// from k.metal; a/Users/b"}),
    ("kernel-name", APPLES, {"name": "my kernel"}, {"name": "my_kernel"}),
    ("kernel-name", APPLES, {"name": "half"}, {"name": "half_of"}),
    ("parameter-name", APPLES, {"inputs": ("x", "float")}, {"inputs": ("x", "floats")}),
    ("parameter-name", APPLES, {"inputs": ("x", "y-1")}, {"inputs": ("x", "y_1")}),
    ("parameter-name", APPLES, {"inputs": ("x", "i")}, {"inputs": ("x", "j")}),
    ("parameter-name", APPLES, {"inputs": ("x", "M_PI_F")}, {"inputs": ("x", "pi")}),
    ("shadowed-function", APPLES, {"inputs": ("x", "max"), "body": "out[i] = max(x[i], 0.0f);"},
     {"inputs": ("x", "max"), "body": "out[i] = metal::max(x[i], max[0]);"}),
    ("redeclared-parameter", OURS, {"body": "float y = x[i];\nout[i] = y;"},
     {"body": "float z = x[i];\nfor (;;) { float y = z; }\nout[i] = y[i];"}),
    ("redeclared-parameter", APPLES, {"body": "uint i, j;"}, {"body": "uint i, j;", "scalars": ("y",)}),
    ("thread-parameter", APPLES, {"thread_parameters": (("i", "uint", "thread_index_in_grid"),)}, {}),
    ("thread-parameter", APPLES, {"thread_parameters": (("i", "int", "thread_position_in_grid"),)},
     {"thread_parameters": (("i", "ushort2", "thread_position_in_grid"),)}),
    ("thread-parameter", APPLES, {"thread_parameters": (("i", "uint2", "thread_index_in_simdgroup"),)},
     {"thread_parameters": (("i", "uint", "thread_index_in_simdgroup"),)}),
    ("parameter-limit", OURS, {"inputs": tuple(f"x{n}" for n in range(30))},
     {"inputs": tuple(f"x{n}" for n in range(29))}),
    ("parameter-limit", APPLES, {"inputs": tuple(f"x{n}" for n in range(30)), "scalars": ("x3",)},
     {"inputs": tuple(f"x{n}" for n in range(29)), "scalars": ("x3",)}),
    ("template-in-name", APPLES, {"templates": {"x": "T"}, "body": "constexpr int TILE = 4; out[i] = T(TILE);"},
     {"templates": {"x": "T"}, "body": "constexpr int tile = 4; out[i] = T(tile);"}),
    ("template-overlap", APPLES, {"templates": {"x": "T", "y": "T_Y"}, "body": "T a; T_Y b;"},
     {"templates": {"x": "T_X", "y": "T_Y"}, "body": "T_X a; T_Y b;"}),
    ("template-overlap", APPLES, {"templates": {"x": "OUT"}, "outputs": ("OUT_1",), "body": "OUT_1[i] = OUT(1);"},
     {"templates": {"x": "OUT"}, "outputs": ("out_1",), "body": "out_1[i] = OUT(1);"}),
    ("unused-template", APPLES, {"templates": {"x": "T"}}, {"templates": {"x": "T"}, "helpers": "T f(T v);"}),
    ("extent-order", OURS,
     {"thread_parameters": MATRIX, "body": "if (gid.x >= x.get_extent(1)) return;\n" + COPY},
     {"thread_parameters": MATRIX, "body": "if (gid.x >= x.get_extent(0)) return;\n" + COPY}),
    ("extent-order", OURS,
     {"thread_parameters": MATRIX, "body": "const uint n = x.get_extent(0);\nif (gid.y < n) " + COPY},
     {"thread_parameters": MATRIX, "body": "const uint n = x.get_extent(1);\nif (gid.y < n) " + COPY}),
]  # fmt: skip


def rules(parts):
    return {f.rule for f in lint_kernel(parts)}


@pytest.mark.parametrize(
    ("rule", "parts", "breaks", "keeps"), CASES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_rule(rule, parts, breaks, keeps):
    assert rule in rules(dataclasses.replace(parts, **breaks))
    assert rule not in rules(dataclasses.replace(parts, **keeps))


def test_clean_kernels_are_clean():
    for parts in (APPLES, OURS):
        assert lint_kernel(parts) == []


def test_what_ours_cannot_fall_into():
    traps = {"helpers": UNGUARDED, "body": "#if 1\nout[i] = T(x[i]); // T, TILE\n#endif", "templates": {"x": "T"}}
    assert rules(dataclasses.replace(OURS, **traps)) == set()
    assert rules(dataclasses.replace(APPLES, **traps)) == {"directive-at-edge", "unguarded-helpers"}


def test_a_finding_says_where_and_what_to_do():
    (found,) = lint_kernel(dataclasses.replace(OURS, body="out[i] =\n  x[i] \u00d7 y[i];"))
    assert (found.rule, found.severity, found.kernel, found.part, found.line) == (
        "non-ascii",
        ERROR,
        "scale",
        "body",
        2,
    )
    assert str(found) == "scale, body:2: error: the character '\u00d7': write ASCII, in comments too [non-ascii]"
    (found,) = lint_kernel(dataclasses.replace(OURS, helpers="\n#define N 4\n"))
    assert (found.severity, found.part, found.line) == (WARNING, "helpers", 2)
    (found,) = lint_kernel(dataclasses.replace(OURS, name="two words"))
    assert (found.part, found.line) == ("signature", None)


@pytest.mark.parametrize(
    "body", ["", "\n", "//", "/**/", "out[i] = x[i];\r\n", 'os_log("}");', "#", "\\", "'", '"', "(" * 500]
)
def test_any_text_is_linted(body):
    for parts in (APPLES, OURS):
        for field in ("body", "helpers"):
            lint_kernel(dataclasses.replace(parts, **{field: body}))


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="lint: expected a MetalKernel, a TorchMetalKernel or KernelParts, got int"):
        lint_kernel(3)


def test_kernels_of_this_package_are_clean():
    from torch_mtl4.custom import kernels
    from torch_mtl4.formats import FORMATS
    from torch_mtl4.ops import quantized_linear
    from torch_mtl4.vision import kernels as of_vision  # noqa: F401  makes them

    for name in FORMATS:
        quantized_linear.kernel(name, 1)
    ours = [k for name, k in kernels().items() if name.startswith(("vision_", f"{quantized_linear.OP}_"))]
    assert len(ours) >= 6 + len(FORMATS)
    assert {kernel.name: found for kernel in ours if (found := lint_kernel(kernel))} == {}
