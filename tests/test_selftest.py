"""`python -m torch_mtl4 selftest`: every check passes here, a wrong op is named, the report holds what was found."""

import json

import pytest
import torch

import torch_mtl4
from torch_mtl4.__main__ import main
from torch_mtl4.selftest import timings


@pytest.fixture
def selftest(tmp_path):
    def run(*arguments):
        code = main(["selftest", "--report", str(tmp_path / "report.json"), *arguments])
        return code, json.loads((tmp_path / "report.json").read_text())

    return run


def test_every_check_passes(selftest, capsys):
    code, report = selftest("--device", "cpu", "--no-timings")
    assert code == 0 and not [c for c in report["checks"] if c["error"]]
    assert len(report["checks"]) > 60 and not report["timings"]
    assert report["machine"]["processor"] and report["backends"]["cpu"]["available"]
    assert f"cpu: {len(report['checks'])} of {len(report['checks'])} checks passed" in capsys.readouterr().out


def test_a_wrong_op_is_named(selftest, monkeypatch, capsys):
    right = torch_mtl4.flash_attention

    def wrong(query, *args, **kwargs):
        out, lse = right(query, *args, **kwargs)
        return (out * 1.1 if query.shape[2] == 1 else out), lse

    monkeypatch.setattr(torch_mtl4, "flash_attention", wrong)
    code, report = selftest("--device", "cpu", "--no-timings")
    failed = [c["name"] for c in report["checks"] if c["error"]]
    assert code == 1 and failed == [f"flash_attention {t}, decode" for t in ("float32", "bfloat16", "float16")]
    assert "FAILED flash_attention float32, decode: AssertionError: out: allowed error" in capsys.readouterr().out


def test_timings_are_of_both(selftest, monkeypatch):
    x = torch.ones(8)
    monkeypatch.setattr(timings, "pairs", lambda device: [timings.Pair("pair", x.sum, x.clone)])
    _, report = selftest("--device", "cpu")
    (line,) = report["timings"]
    assert (
        line["name"] == "pair" and line["device"] == "cpu" and min(line["ours_ms"], line["peer_ms"], line["ratio"]) > 0
    )


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there(tmp_path, capsys):
    assert main(["selftest", "--device", "mps", "--report", str(tmp_path / "report.json")]) == 2
    assert "expected device mps to be available, got: not built" in capsys.readouterr().out
