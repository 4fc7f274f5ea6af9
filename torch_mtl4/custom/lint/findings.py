"""What the linter can find: one table of rules, which docs/custom_kernel.md shows, and a finding."""

from dataclasses import dataclass

ERROR, WARNING = "error", "warning"

# rule -> (severity, what is wrong and what comes of it). The findings themselves say what to do.
RULES = {
    # of the text
    "open-comment": (ERROR, "the text ends in a comment, or a backslash, that swallows the brace behind it"),
    "directive-at-edge": (ERROR, "a preprocessor directive stands where Apple's class pastes `{ body }` on one line"),
    "unbalanced-directives": (ERROR, "an `#if` without its `#endif`, or the reverse, reaches into the generated text"),
    "unbalanced-brackets": (ERROR, "brackets do not match, so that the text ends the kernel early or not at all"),
    "non-ascii": (ERROR, "a character that is not ASCII: Metal's compilers take ASCII sources"),
    "unguarded-helpers": (WARNING, "helpers without an include guard are redefined when a library has two kernels"),
    "pragma-once": (WARNING, "`#pragma once` guards files; helpers are no file"),
    "include-in-helpers": (ERROR, "an `#include` that does not find its file on the device, or ends up in a namespace"),
    "leaking-macro": (WARNING, "a `#define` without `#undef` is seen by the kernels behind it in the same library"),
    "no-function-constants": (ERROR, "`function_constant`: Core AI gives them no values"),
    "no-threadgroup-arguments": (ERROR, "a `[[threadgroup(n)]]` argument: Core AI sets no size for it"),
    "absolute-path": (WARNING, "a path of this machine is stored in the asset, in clear"),
    # of the signature
    "kernel-name": (ERROR, "the name is no identifier, or one that MSL has already"),
    "parameter-name": (ERROR, "a parameter's name is no identifier, means something in MSL, or is used twice"),
    "shadowed-function": (ERROR, "a parameter has the name of a function that the body calls"),
    "redeclared-parameter": (ERROR, "the body declares a variable with the name of a parameter"),
    "thread-parameter": (ERROR, "a thread parameter whose attribute or type Metal does not have"),
    "parameter-limit": (ERROR, "more than 31 parameters"),
    "template-in-name": (WARNING, "a template's placeholder is part of a longer name, and is replaced there, too"),
    "template-overlap": (ERROR, "a template's placeholder is part of another's"),
    "unused-template": (WARNING, "a template's placeholder does not occur"),
    "extent-order": (WARNING, "an index is compared with the extent of another dimension than the one it indexes"),
    # of a call in a graph
    "unknown-kernel": (ERROR, "a call of a kernel whose object was not given"),
    "duplicate-name": (ERROR, "two kernels of one name: both objects run what was made last"),
    "kernel-in-branch": (ERROR, "a call in a branch of torch.cond or in a loop, which is not converted"),
    "in-place": (ERROR, "a kernel that writes to its inputs: those of Core AI are pure"),
    "operand-dtype": (ERROR, "a dtype that is refused, or cut to 32 bits in silence"),
    "zero-dim": (ERROR, "a tensor of no dimensions: the kernel reads its handle in place of its value"),
    "rank": (ERROR, "the text asks for a dimension, or uses a number of indices, that the tensor does not have"),
    "symbolic-scalar": (ERROR, "a size that is not known as a scalar: it arrives as a tensor of one element"),
    "scalar-value": (ERROR, "a number that MSL has no literal for"),
    "many-texts": (WARNING, "many values of a scalar: each makes another kernel"),
    "transposed-operand": (WARNING, "an operand comes out of a transpose, where early systems were reported to stop"),
    "unbacked-size": (WARNING, "a size that depends on values: nothing checks what the kernel does with it"),
    "fixed-grid": (WARNING, "a result varies in size, the grid and result_shapes do not"),
    "grid-size": (ERROR, "a grid or threadgroup of no, negative or too many threads"),
    "grid-range": (WARNING, "a grid that is empty or negative for some of the sizes that the graph allows"),
    "result-shape": (ERROR, "result_shapes that disagree with what the reference gives"),
    "strided-result": (WARNING, "the reference's result is not dense, and the graph takes over its strides"),
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """A trap that a kernel, or a call of it, falls into.

    Attributes:
        rule: one of RULES.
        severity: "error": the kernel would not load, or compute something else; "warning": it may.
        kernel: its name.
        message: what happens, and what to do.
        part: "body" or "helpers" of the kernel, "signature", or "call <node>" of a graph.
        line: in the body or in the helpers, from 1; None where there is none.
    """

    rule: str
    severity: str
    kernel: str
    message: str
    part: str = "signature"
    line: int | None = None

    def __str__(self) -> str:
        place = self.part if self.line is None else f"{self.part}:{self.line}"
        return f"{self.kernel}, {place}: {self.severity}: {self.message} [{self.rule}]"


def finding(rule: str, kernel: str, message: str, part: str = "signature", line: int | None = None) -> Finding:
    return Finding(rule, RULES[rule][0], kernel, message, part, line)
