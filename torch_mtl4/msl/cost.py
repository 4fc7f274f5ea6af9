"""What a dispatch costs, counted and not timed: facts of a kernel by which two kernels compare without a GPU.

    lib = torch_mtl4.msl.compile("kernel.metal", count=True)
    lib.kernel("row_sum").dispatch(64, 256, buffers=[x, Output(out), np.uint32(1000)])
    print(lib.cost)

Counted is what the source says, before any optimiser: the build for counting compiles without optimisation, and every
access that the language performs is one. So a value that is read twice counts twice although a GPU's compiler may keep
it in a register, and a read whose value is not used counts. The counts do not depend on the version of clang, on the
number of workers, or on the order in which threads run, as long as the kernel's own decisions do not: a loop around a
compare-exchange repeats as often as it loses, and lanes that part and do not meet again at one place are several
operations of their simdgroup.

Bytes
    total       the sum over all threads of the bytes of each access. 32 lanes that read one float read 128 bytes. An
                access to a vector counts all its bytes: 16 for a float3, with its padding; 12 for its components or a
                packed_float3. A struct counts with the padding in it; behind its last member only if it has no
                constructors, or is not assigned to.
    unique      how many different bytes of the buffer were touched in the dispatch: what a perfect cache would move.
    device      buffers in the address space device, tensors and their scales; every array or `Buffer` by its argument.
                Arguments that share memory are one line, "x, y".
    texture     whole pixels: one for read, write and nearest sampling, four for linear sampling and gather, less those
                that lie outside.
    constant    arguments in the address space constant, apart from the others because GPUs serve them from a cache of
                their own or from registers. Constants at program scope are part of the program and not counted.
    threadgroup total only. `threadgroup_memory` is how much a threadgroup has.
    Private memory, arguments by value and the positions of threads do not count.

Operations
    barriers              one for each time that a threadgroup, or a simdgroup, passes one.
    simdgroup operations  by name, one for each time that a simdgroup executes it, with all its lanes or with some;
                          quadgroup operations and votes, too, and reduce_rows and reduce_columns of cooperative
                          tensors. One on a vector is one.
    atomics               by name and address space, one for each thread. A load reads its bytes, a store writes them,
                          anything else does both, a compare-exchange that fails as well.
    products              operations and multiply-accumulates of matrices, by the types of operands and destination.
                          simdgroup_matrix: 8 x 8 x 8. matmul2d: M x N x K as the descriptor says, even where tensors
                          end inside the tile; once for each time that the scope executes it. One matmul2d reads each
                          element of an operand in memory once, M x K and K x N less what lies beyond the extents, and
                          the scales of these; it writes the elements of a destination in memory, and reads them
                          if it accumulates. Fragments and cooperative tensors are registers; what loads and stores them
                          is an access for each element.

Arithmetic of single threads is not counted: what remains of it, and what is fused, is decided by the compiler.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

DEVICE, CONSTANT, TEXTURE = "device", "constant", "texture"
_TOTALS = (
    "device_read",
    "device_written",
    "device_unique_read",
    "device_unique_written",
    "constant_read",
    "multiply_accumulates",
)


@dataclass(frozen=True)
class Traffic:
    """Bytes of one buffer or texture that were read and written."""

    space: str
    read: int = 0
    written: int = 0
    unique_read: int = 0
    unique_written: int = 0


@dataclass(frozen=True)
class Products:
    """Products of matrices of certain types: how many operations, and their multiply-accumulates."""

    operations: int
    multiply_accumulates: int


@dataclass(frozen=True)
class Cost:
    """What one dispatch did. The docstring of this module defines each count.

    Attributes:
        buffers: bytes by the name of the argument, in the order of the arguments.
        simdgroup_operations, device_atomics, threadgroup_atomics: how many, by name.
        products: by operation and types, such as "matmul2d half x half -> float".
    """

    kernel: str
    threadgroups: int
    threads: int
    threadgroup_memory: int = 0
    threadgroup_read: int = 0
    threadgroup_written: int = 0
    threadgroup_barriers: int = 0
    simdgroup_barriers: int = 0
    buffers: Mapping[str, Traffic] = field(default_factory=dict)
    simdgroup_operations: Mapping[str, int] = field(default_factory=dict)
    device_atomics: Mapping[str, int] = field(default_factory=dict)
    threadgroup_atomics: Mapping[str, int] = field(default_factory=dict)
    products: Mapping[str, Products] = field(default_factory=dict)

    @property
    def device_read(self) -> int:
        return self._sum("read", DEVICE)

    @property
    def device_written(self) -> int:
        return self._sum("written", DEVICE)

    @property
    def device_unique_read(self) -> int:
        return self._sum("unique_read", DEVICE)

    @property
    def device_unique_written(self) -> int:
        return self._sum("unique_written", DEVICE)

    @property
    def constant_read(self) -> int:
        return self._sum("read", CONSTANT)

    @property
    def multiply_accumulates(self) -> int:
        return sum(p.multiply_accumulates for p in self.products.values())

    def _sum(self, what: str, space: str) -> int:
        return sum(getattr(t, what) for t in self.buffers.values() if t.space == space)

    def rows(self) -> dict[str, int]:
        """All counts by the name of their line in a table. Lines that are zero are left out."""
        rows = {}
        for space, verb in itertools.product((DEVICE, TEXTURE, CONSTANT), ("read", "written")):
            rows[f"{space} bytes {verb}"] = self._sum(verb, space)
            rows[f"{space} bytes {verb}, unique"] = self._sum(f"unique_{verb}", space)
            buffers = {name: t for name, t in self.buffers.items() if t.space == space}
            for name, traffic in buffers.items() if len(buffers) > 1 else ():
                rows[f"  {name} {verb}"] = getattr(traffic, verb)
                rows[f"  {name} {verb}, unique"] = getattr(traffic, f"unique_{verb}")
        rows["threadgroup bytes read"] = self.threadgroup_read
        rows["threadgroup bytes written"] = self.threadgroup_written
        rows["threadgroup memory"] = self.threadgroup_memory
        rows["threadgroup barriers"] = self.threadgroup_barriers
        rows["simdgroup barriers"] = self.simdgroup_barriers
        rows |= self.simdgroup_operations
        rows |= {f"{name} (device)": n for name, n in self.device_atomics.items()}
        rows |= {f"{name} (threadgroup)": n for name, n in self.threadgroup_atomics.items()}
        for name, products in self.products.items():
            rows[name] = products.operations
            rows[f"  multiply-accumulates of {name}"] = products.multiply_accumulates
        return {name: n for name, n in rows.items() if n}

    def per(self, outputs: int) -> dict[str, float]:
        """The rows divided by a number of outputs."""
        if outputs < 1:
            raise ValueError(f"Cost.per: expected at least one output, got {outputs}")
        return {name: n / outputs for name, n in self.rows().items()}

    def compare(self, baseline: "Cost") -> dict[str, tuple[int, int]]:
        """(this count, that of the baseline) of the rows that either has."""
        mine, other = self.rows(), baseline.rows()
        return {name: (mine.get(name, 0), other.get(name, 0)) for name in mine | other}

    def to_dict(self) -> dict:
        """As plain data, for JSON, with the sums over the buffers; `from_dict` reads it."""
        return {**asdict(self), "totals": {name: getattr(self, name) for name in _TOTALS}}

    @classmethod
    def from_dict(cls, data: Mapping) -> "Cost":
        def read(name: str, make: Callable):
            return {key: make(**value) for key, value in data[name].items()}

        try:
            given = {key: value for key, value in data.items() if key != "totals"}
            return cls(**{**given, "buffers": read("buffers", Traffic), "products": read("products", Products)})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"Cost.from_dict: expected what Cost.to_dict gives, got {error!r}") from None

    def __str__(self) -> str:
        rows = self.rows()
        width = max((len(name) for name in rows), default=0)
        digits = max((len(f"{n:,}") for n in rows.values()), default=0)
        lines = [f"{self.kernel}: {self.threadgroups:,} threadgroups, {self.threads:,} threads"]
        return "\n".join([*lines, *(f"  {name:{width}}  {n:{digits},}" for name, n in rows.items())])
