"""Cases of MLX: a kernel of one of its headers, instantiated with template arguments."""

from pathlib import Path

from . import mlx_kernels
from .cases import Case
from .sources import mlx_include

HEADERS = {name: headers for name, headers, _ in mlx_kernels.FILES}


class Maker:
    def __init__(self, cache: Path):
        self.include = (mlx_include(cache),)

    def case(self, file, kernel, arguments, title, buffers, output, expected, tolerance, threadgroup, **more):
        text, _ = mlx_kernels.source(HEADERS[file], [(kernel, [arguments])])
        more.setdefault("groups", ())
        return Case(
            corpus="mlx",
            name=f"{file} {title}",
            source=text,
            kernel=f"{kernel}<{arguments}>",
            include=self.include,
            threadgroup=threadgroup,
            buffers=buffers,
            output=output,
            expected=expected,
            tolerance=tolerance,
            **more,
        )
