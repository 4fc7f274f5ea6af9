"""Where each parameter of a kernel comes from: a buffer index, threadgroup memory, a texture, or a thread position."""

from dataclasses import dataclass

from .stream import TokenStream

BUFFER, THREADGROUP = 0, 1
TEXTURE, SAMPLER, ZERO = 40, 41, 42

_WRITTEN = {"buffer": BUFFER, "threadgroup": THREADGROUP, "texture": TEXTURE, "sampler": SAMPLER}
# The numbers are those of MslArgKind in runtime/abi.h.
POSITIONS = {
    "thread_position_in_threadgroup": 10,
    "thread_position_in_grid": 11,
    "threadgroup_position_in_grid": 12,
    "threads_per_threadgroup": 13,
    "dispatch_threads_per_threadgroup": 14,
    "threadgroups_per_grid": 15,
    "threads_per_grid": 16,
    "grid_size": 16,
    "thread_index_in_threadgroup": 17,
    "thread_index_in_simdgroup": 18,
    "simdgroup_index_in_threadgroup": 19,
    "simdgroups_per_threadgroup": 20,
    "dispatch_simdgroups_per_threadgroup": 20,
    "threads_per_simdgroup": 21,
    "thread_execution_width": 21,
    "thread_index_in_quadgroup": 22,
    "quadgroup_index_in_threadgroup": 23,
    "quadgroups_per_threadgroup": 24,
    "grid_origin": ZERO,
}
_ADDRESS_SPACES = ("device", "constant", "threadgroup")
_QUALIFIERS = (*_ADDRESS_SPACES, "thread", "const", "volatile", "coherent", "restrict")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        kind: where its value comes from: BUFFER, THREADGROUP, a position.
        index: of the buffer, as written: a number, or an expression of the kernel.
        constant: the kernel may not write through it.
        space: its address space, "device", "constant" or "threadgroup", or "" if it has none.
        element: its type without qualifiers, "float" for `device const float*`.
        indirect: "*" of a pointer, "&" of a reference, else "".
        condition: the function constant on which its existence depends, or "".
    """

    name: str
    kind: int
    index: str
    constant: bool
    space: str = ""
    element: str = ""
    indirect: str = ""
    condition: str = ""

    def initialiser(self) -> str:
        return f"{{{self.kind},{self.index or 0}}}"


def kernel_parameters(stream: TokenStream, begin: int, end: int) -> list[Parameter]:
    """Reads the parameter list of a kernel; indices that are not written are given out as Apple's compiler does."""
    declared = []
    used = {kind: set() for kind in _WRITTEN.values()}
    for first, last in stream.parameters(begin, end):
        attributes = stream.attributes(first, last)
        for name, value in attributes:
            if name in _WRITTEN:
                used[_WRITTEN[name]].add(value)
        declared.append((first, last, attributes))

    free = {kind: iter([str(i) for i in range(64) if str(i) not in taken]) for kind, taken in used.items()}
    return [_parameter(stream, *entry, free) for entry in declared]


def _parameter(stream, first, last, attributes, free) -> Parameter:
    words = stream.identifiers(first, last)
    indirect = any(t.kind == "punct" and t.text in "*&" for t in stream.tokens[first:last])
    kind, index = _written_binding(attributes)
    if kind is None:
        if indirect and "threadgroup" in words:
            kind = THREADGROUP
            index = next(free[kind])
        elif indirect or any("tensor" in word for word in words):
            kind = BUFFER
            index = next(free[kind])
        elif any(word.startswith("texture") for word in words):
            kind = TEXTURE
            index = next(free[kind])
        elif "sampler" in words:
            kind = SAMPLER
            index = next(free[kind])
        else:
            kind = ZERO
    name_end = next((i for i in range(first, last) if stream.is_attribute(i)), last)
    name = next((stream.at(i) for i in range(name_end - 1, first - 1, -1) if stream.kind(i) == "word"), "")
    pointer = next((i for i in range(first, last) if stream.at(i) in ("*", "&")), last)
    constant = "constant" in words or "const" in stream.identifiers(first, pointer)
    type_words = [w for w in stream.words(first, min(pointer, name_end)) if w not in (*_QUALIFIERS, name)]
    condition = next((value for attribute, value in attributes if attribute == "function_constant"), "")
    space = next((word for word in words if word in _ADDRESS_SPACES), "")
    indirect_by = stream.at(pointer) if pointer < last else ""
    return Parameter(name, kind, index, constant, space, " ".join(type_words), indirect_by, condition)


def _written_binding(attributes) -> tuple[int | None, str]:
    kind, index = None, "0"
    for name, value in attributes:
        if name in _WRITTEN:
            kind, index = _WRITTEN[name], value
        elif name in POSITIONS:
            kind = POSITIONS[name]
    return kind, index
