"""The C interface of the runtime: structs mirrored from runtime/, and the loaded library."""

import ctypes
import functools

from .toolchain import runtime_library

BUFFERS, THREADGROUP_BUFFERS, TEXTURES, SAMPLERS, MAX_THREADS = 64, 31, 128, 16, 1024


class Options(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_int) for name in ("workers", "checked", "counted", "shuffle", "layout", "zero_cooperative")),
        *((name, ctypes.c_int) for name in ("device_races", "uninitialised", "exit_barriers")),
        ("seed", ctypes.c_uint64),
        ("threadgroup_limit", ctypes.c_uint64),
    ]


class Stats(ctypes.Structure):
    _fields_ = [
        ("seconds", ctypes.c_double),
        ("cpu_seconds", ctypes.c_double),
        *((n, ctypes.c_uint64) for n in ("switches", "simd_operations", "barriers", "threadgroup_bytes", "workers")),
        ("aborted", ctypes.c_int),
    ]


class TensorBinding(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("rank", ctypes.c_int),
        ("extents", ctypes.c_long * 8),
        ("strides", ctypes.c_long * 8),
    ]


class TextureBinding(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_int),
        *((name, ctypes.c_uint) for name in ("width", "height", "depth")),
        ("row_bytes", ctypes.c_long),
        ("slice_bytes", ctypes.c_long),
    ]


class Sampler(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int) for name in ("normalized", "min_linear", "mag_linear", "address_s", "address_t", "border")
    ]


class Binding(ctypes.Structure):
    _fields_ = [
        ("index", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
        ("tensor", ctypes.POINTER(TensorBinding)),
    ]


class KernelEntry(ctypes.Structure):
    pass


KernelEntry._fields_ = [
    ("name", ctypes.c_char_p),
    ("entry", ctypes.c_void_p),
    ("next", ctypes.POINTER(KernelEntry)),
]


class LibraryInfo(ctypes.Structure):
    _fields_ = [
        ("kernels", ctypes.POINTER(KernelEntry)),
        ("image_begin", ctypes.c_void_p),
        ("image_end", ctypes.c_void_p),
    ]


class Dispatch(ctypes.Structure):
    _fields_ = [
        ("entry", ctypes.c_void_p),
        ("library", ctypes.POINTER(LibraryInfo)),
        ("groups", ctypes.c_uint * 3),
        ("threadgroup", ctypes.c_uint * 3),
        ("threads", ctypes.c_uint * 3),
        ("exact", ctypes.c_int),
        ("bindings", ctypes.c_int),
        ("binding", ctypes.POINTER(Binding)),
        ("threadgroup_bytes", ctypes.POINTER(ctypes.c_uint64)),
        ("textures", ctypes.POINTER(ctypes.POINTER(TextureBinding))),
        ("samplers", ctypes.POINTER(ctypes.POINTER(Sampler))),
    ]


class ReportView(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_char_p),
        ("message", ctypes.c_char_p),
        ("pc", ctypes.c_uint64),
        ("other_pc", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("has_thread", ctypes.c_int),
        ("threadgroup", ctypes.c_uint * 3),
        ("thread", ctypes.c_uint * 3),
        ("simdgroup", ctypes.c_uint),
        ("lane", ctypes.c_uint),
    ]


class Traffic(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("read", "written", "unique_read", "unique_written")]


class CostView(ctypes.Structure):
    _fields_ = [
        ("threadgroup", Traffic),
        *((name, ctypes.c_uint64) for name in ("threadgroup_barriers", "simdgroup_barriers", "named")),
    ]


# Kinds of named counts, in the order of runtime/cost.h.
COUNTED = ("simdgroup_operations", "device_atomics", "threadgroup_atomics", "products")


class NamedCount(ctypes.Structure):
    _fields_ = [
        ("kind", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("operations", ctypes.c_uint64),
        ("multiply_accumulates", ctypes.c_uint64),
    ]


@functools.cache
def runtime() -> ctypes.CDLL:
    """The loaded runtime; built at the first use."""
    lib = ctypes.CDLL(str(runtime_library()))
    lib.msl_buffer_new.restype = ctypes.c_void_p
    lib.msl_buffer_new.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p]
    lib.msl_buffer_address.restype = ctypes.c_void_p
    lib.msl_buffer_address.argtypes = [ctypes.c_void_p]
    lib.msl_buffer_filled.argtypes = [ctypes.c_void_p]
    lib.msl_buffer_undefine.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    lib.msl_buffer_defined.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    lib.msl_buffer_free.argtypes = [ctypes.c_void_p]
    lib.msl_dispatch.argtypes = [ctypes.POINTER(Dispatch), ctypes.POINTER(Options), ctypes.POINTER(Stats)]
    lib.msl_dispatch.restype = ctypes.c_void_p
    lib.msl_report_count.argtypes = [ctypes.c_void_p]
    lib.msl_report_get.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ReportView)]
    lib.msl_log_count.argtypes = [ctypes.c_void_p]
    lib.msl_log_get.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ReportView)]
    lib.msl_cost.argtypes = [ctypes.c_void_p, ctypes.POINTER(CostView)]
    lib.msl_cost_buffer.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(Traffic)]
    lib.msl_cost_named.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(NamedCount)]
    lib.msl_reports_free.argtypes = [ctypes.c_void_p]
    return lib
