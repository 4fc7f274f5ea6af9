"""Metal kernels of the user's own, written once: on MPS tensors, on the CPU, in torch.compile and for Core AI.

torch_mtl4.metal_kernel(...)  makes one; kernels() lists them; `with on_cpu("msl"):` runs their text on CPU tensors.
"""

from torch_mtl4.custom.kernel import MetalKernel, metal_kernel
from torch_mtl4.custom.registration import kernels, on_cpu

__all__ = ["MetalKernel", "kernels", "metal_kernel", "on_cpu"]
