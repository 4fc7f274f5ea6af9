"""The GPUs and systems that kernels are run for: of each tier, the system that first has it and the newest."""

SIMDGROUP = ("g13g macos14", "g16s macos27 tensor_ops scale_planes")
TENSOR_OPS = ("g17g macos26.2 tensor_ops", "g17s macos27 tensor_ops")
SCALE_PLANES = ("g17s macos27 tensor_ops scale_planes",)
ALL = (*SIMDGROUP, *TENSOR_OPS, *SCALE_PLANES)
