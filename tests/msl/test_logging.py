"""os_log: the messages reach the host, with level, line and thread."""

import numpy as np

from .conftest import KERNELS

SOURCE = (KERNELS / "logging.metal").read_text().splitlines()


def test_messages(library):
    lib = library("logging.metal")
    x = np.arange(16, dtype=np.float32).reshape(4, 4) / 4
    result = lib.kernel("talk").dispatch(threads=4, threadgroup=4, buffers=[x], workers=1)
    assert not result.report, str(result.report)
    assert [(m.level, m.text) for m in result.log] == [
        ("default", "thread 1 of all:  1.00 1.000000,1.250000,1.500000,1.750000"),
        ("error", "[com.example:kernels] -5% ff z 3,-4"),
        ("debug", "[com.example:kernels] 0.5 1.5"),
    ]
    assert [m.thread.thread[0] for m in result.log] == [1, 2, 2]
    assert all("log" in SOURCE[m.location.line - 1] for m in result.log)
    assert lib.log[-3:] == result.log
    assert "com.example" in str(result.log[1])


def test_formats_that_do_not_fit_are_reported(library):
    result = library("logging.metal").kernel("mistakes").dispatch(1, 1)
    assert [f.kind for f in result.report] == ["log-format", "log-format"]
    assert "%d does not fit value 0" in result.report.findings[0].message
    assert "more values" in result.report.findings[1].message
