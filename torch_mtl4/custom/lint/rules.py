"""The two ways to lint: a kernel by itself, and all calls of kernels in a graph."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from torch_mtl4.custom import apple, registration
from torch_mtl4.custom.apple_op import NAMESPACE as APPLE_NAMESPACE
from torch_mtl4.custom.lint import graphs
from torch_mtl4.custom.lint.findings import Finding, finding
from torch_mtl4.custom.lint.parts import parts_of
from torch_mtl4.custom.lint.program_rules import Call, call_findings, many_texts
from torch_mtl4.custom.lint.signature_rules import signature_findings
from torch_mtl4.custom.lint.text_rules import text_findings


def lint_kernel(kernel: Any) -> list[Finding]:
    """Finds the traps in a kernel's text and signature.

    Args:
        kernel: a MetalKernel, a TorchMetalKernel of this package or of coreai_torch, or KernelParts.

    Returns:
        What was found, each by a rule of `RULES`; errors make an export refuse.

    Raises:
        TypeError: kernel is something else.
    """
    parts = parts_of(kernel)
    return list(dict.fromkeys((*signature_findings(parts), *text_findings(parts))))


def lint_program(program: torch.export.ExportedProgram, kernels: Sequence[Any] = ()) -> list[Finding]:
    """Finds the traps in every call of a kernel in a graph, and in the kernels that are called.

    Args:
        program: what torch.export.export gave, before or after run_decompositions.
        kernels: kernels of Apple's class that it calls, as for register_custom_kernels; ours are known.

    Returns:
        What was found, the kernels first; errors make an export refuse.
    """
    given, found = _by_name(kernels)
    calls: list[Call] = []
    linted: dict[str, Any] = {}
    constants = graphs.constants_of(program)
    for graph_module in program.graph_module.modules():
        if not isinstance(graph_module, fx.GraphModule):
            continue
        for node in graph_module.graph.nodes:
            name, namespace, inputs = _kernel_call(node)
            if name is None:
                continue
            kernel = given.get(name) or _known(namespace, name)
            if kernel is None:
                message = (
                    "its object was not given, so neither text nor call could be checked: pass it in kernels=[...]"
                )
                found.append(finding("unknown-kernel", name, message, f"call {node.name}"))
                continue
            linted.setdefault(name, kernel)
            if graph_module is not program.graph_module:
                message = "move the call out of the branch, and choose between results with torch.where"
                found.append(finding("kernel-in-branch", name, message, f"call {node.name}"))
            calls.append(_call(kernel, node, inputs, namespace, constants))
    texts = [f for kernel in linted.values() for f in lint_kernel(kernel)]
    return list(dict.fromkeys((*found, *texts, *(f for c in calls for f in call_findings(c)), *many_texts(calls))))


def _by_name(kernels: Sequence[Any]) -> tuple[dict[str, Any], list[Finding]]:
    by_name: dict[str, Any] = {}
    found = []
    for kernel in kernels:
        other = by_name.setdefault(kernel.name, kernel)
        if other is not kernel:
            found.append(finding("duplicate-name", kernel.name, "two kernels have this name: rename one"))
    return by_name, found


def _known(namespace: str, name: str) -> Any:
    if namespace == registration.NAMESPACE:
        return registration.kernels().get(name)
    return apple.kernels().get(name)


def _kernel_call(node: fx.Node) -> tuple[str | None, str, tuple]:
    """(name of the kernel, namespace of its op, arguments); (None, ...): the node calls no kernel."""
    target, args = node.target, node.args
    if getattr(target, "name", None) is not None and str(target).startswith("auto_functionalized"):
        # What is written in place is wrapped so; the op's arguments are keywords.
        target = args[0]
        args = tuple(_functionalized(node.kwargs, a.name) for a in target._schema.arguments)
    if not isinstance(target, torch._ops.OpOverload):
        return None, "", ()
    if target.namespace not in (registration.NAMESPACE, APPLE_NAMESPACE):
        return None, "", ()
    return target._schema.name.split("::")[1], target.namespace, args


def _functionalized(keywords: Mapping[str, Any], name: str) -> Any:
    if f"_{name}_base_index" in keywords:
        return keywords["_all_bases"][keywords[f"_{name}_base_index"]]
    return keywords.get(name)


def _call(kernel: Any, node: fx.Node, args: Sequence, namespace: str, constants: dict) -> Call:
    parts = parts_of(kernel)
    inputs = dict(zip(parts.inputs, args, strict=False))
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    results = {n: v for n, v in zip(parts.outputs, values, strict=False) if isinstance(v, torch.Tensor)}
    if namespace == APPLE_NAMESPACE:
        grid, group, *shapes = (graphs.sizes_in(a, constants) for a in args[len(parts.inputs) :])
        return Call(parts, node, inputs, results, grid, group, shapes)
    try:
        launch = kernel.launch(*(_values(a) for a in args))
    except (TypeError, ValueError, NotImplementedError) as error:
        return Call(parts, node, inputs, results, problem=str(error))
    return Call(parts, node, inputs, results, launch.grid, launch.threadgroup)


def _values(argument: Any) -> Any:
    if isinstance(argument, (list, tuple)):
        return [graphs.value_of(a) for a in argument]
    return graphs.value_of(argument)
