"""Every function that the headers declare is swept by one of the numerics tests, or said to be another test's."""

import re

from torch_mtl4.msl import toolchain

from . import (
    test_numerics_arithmetic,
    test_numerics_atomics,
    test_numerics_common,
    test_numerics_conversions,
    test_numerics_integer,
    test_numerics_internals,
    test_numerics_lanes,
    test_numerics_math,
)

ELSEWHERE = {
    "test_lanes.py": "simd_ballot simd_all simd_any simd_is_first simd_active_threads_mask "
    "quad_ballot quad_all quad_any quad_is_first quad_active_threads_mask",
    "test_formats.py, test_numerics_formats.py": "pack unpack",
    "test_kernels.py": "simdgroup_load simdgroup_store simdgroup_multiply simdgroup_multiply_accumulate "
    "make_filled_simdgroup_matrix",
    "test_textures.py": "is_null_texture",
    "test_bugs.py: it orders and computes nothing": "simdgroup_barrier",
    "the rewriter writes it for the casts of test_numerics_conversions.py": "msl_cast msl_sticky_float",
    "they compute nothing": "swap make_uniform simd_is_helper_thread quad_is_helper_thread",
    "parts of functions that are swept": "atomic_change_ fract_ msl_ordered_ msl_pow2",
}
NOT_FUNCTIONS = {"requires", "__attribute__", "decltype", "alignas", "defined", "static_assert", "operator", "sizeof"}
NOT_FUNCTIONS |= {"__is_same", "__is_base_of", "__is_convertible"}


def declared() -> set[str]:
    """Names of the functions at the level of namespace metal, of its namespaces, and of none."""
    text = toolchain.preprocess(toolchain.INCLUDE / "msl" / "msl.h", "msl.h", [f"-I{toolchain.INCLUDE}"])
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    text = re.sub(r'"(\\.|[^"\\])*"', '""', text)
    names, spaces, blocks, parens, candidate, words = set(), [], 0, 0, None, []
    for token in re.findall(r"[A-Za-z_]\w*|\S", text):
        if token == "{":
            if not blocks and "namespace" in words[-2:]:
                spaces.append(words[-1])
            else:
                if not blocks and candidate and spaces[:1] in ([], ["metal"]):
                    names.add(candidate)
                blocks += 1
            candidate, words = None, []
        elif token == "}":
            if blocks:
                blocks -= 1
            else:
                spaces.pop()
            candidate, words = None, []
        elif blocks:
            continue
        elif token == ";":
            candidate, words = None, []
        else:
            if token == "(" and not parens and words and words[-1].isidentifier() and words[-1] not in NOT_FUNCTIONS:
                candidate = words[-1]
            parens += (token == "(") - (token == ")")
            words.append(token)
    return names


def swept() -> set[str]:
    modules = [
        test_numerics_common.LOGIC,
        test_numerics_conversions.BITS,
        test_numerics_internals.SWEEP,
        test_numerics_atomics.KERNELS,
    ]
    for module in (
        test_numerics_arithmetic,
        test_numerics_common,
        test_numerics_integer,
        test_numerics_lanes,
        test_numerics_math,
    ):
        modules += module.SWEEPS.values()
    return set(re.findall(r"[A-Za-z_]\w*", "".join(sweep.source() for sweep in modules)))


def test_every_function_is_swept():
    names = declared()
    assert {"exp", "sinpi", "mulhi", "simd_sum", "unpack_unorm4x8_to_float", "__metal_exp"} <= names
    elsewhere = {name for listed in ELSEWHERE.values() for name in listed.split()}
    assert names - swept() - elsewhere == set()
    assert elsewhere <= names, f"not functions of the headers: {elsewhere - names}"
    assert not elsewhere & swept(), f"swept, too: {elsewhere & swept()}"
