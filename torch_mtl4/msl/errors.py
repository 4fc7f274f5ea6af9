"""What goes wrong around a kernel: it does not compile, there is no compiler, or it crashed."""


class MslError(RuntimeError):
    """Base of the errors of the MSL runner."""


class CompilerNotFoundError(MslError):
    """No clang 19 or newer, and no ziglang wheel."""


class CompileError(MslError):
    """The kernel was rejected; `diagnostics` holds the compiler's text, with lines of the .metal file."""

    def __init__(self, name: str, diagnostics: str):
        super().__init__(f"{name} does not compile:\n{diagnostics}")
        self.diagnostics = diagnostics


class KernelFaultError(MslError):
    """The kernel crashed (bad pointer, stack overflow, guard page); the outputs are incomplete. See `report`."""

    def __init__(self, kernel: str, report):
        super().__init__(f"{kernel} crashed:\n{report}")
        self.kernel = kernel
        self.report = report
