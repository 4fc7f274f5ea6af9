"""Traps of the Core AI flow that nothing else reports before a device does: lint_kernel, lint_program.

Core AI's compiler does not look at the MSL text of a kernel and checks little of its call, so a mistake shows when a
model is loaded, or as wrong numbers. `findings.RULES` is the table of what is found here.

Source: Apple, coreai-torch 0.4.3 and coreai-core 1.0.0b3, whose generated text and checks the rules follow.
"""

from torch_mtl4.custom.lint.findings import ERROR, RULES, WARNING, Finding
from torch_mtl4.custom.lint.parts import KernelParts
from torch_mtl4.custom.lint.rules import lint_kernel, lint_program

__all__ = ["ERROR", "RULES", "WARNING", "Finding", "KernelParts", "lint_kernel", "lint_program"]
