"""The command line: what it prints, and its exit codes."""

import json

import numpy as np
import pytest

from torch_mtl4.msl.cli import main

from .conftest import KERNELS, python

ROW_SUM = ["--kernel", "row_sum", "--groups", "4", "--threadgroup", "64", "--buffer", "x=4x100", "--buffer", "out=4"]
RACE = ["--kernel", "missing_barrier", "--groups", "4", "--threadgroup", "128", "--buffer", "x=128:arange"]
RACE += ["--buffer", "o=4", "--value", "n=100"]


def run(capsys, *argv):
    code = main([*map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys, *argv):
    code, out, _ = run(capsys, *argv, "--json")
    return code, json.loads(out)


def test_clean_run_exits_with_0_and_shows_the_output(capsys):
    code, out, _ = run(capsys, "run", KERNELS / "a_basic.metal", *ROW_SUM, "--value", "n=100")
    assert code == 0
    assert "clean" in out
    assert "float32" in out


def test_race_exits_with_1_and_shows_both_lines(capsys):
    source = KERNELS / "bugs.metal"
    code, out, _ = run(capsys, "run", source, *RACE)
    assert code == 1
    assert "race in missing_barrier" in out
    assert "if (lane == 0) s[sg] = v;" in out
    assert "simd_sum(lane < 4 ? s[lane] : 0.0f)" in out


def test_findings_as_json(capsys):
    code, result = run_json(capsys, "run", KERNELS / "bugs.metal", *RACE)
    assert code == 1
    assert not result["clean"]
    race = next(f for f in result["findings"] if f["kind"] == "race")
    assert race["kernel"] == "missing_barrier"
    assert race["location"]["path"].endswith("bugs.metal")
    assert {"threadgroup", "thread", "simdgroup", "lane"} == set(race["thread"])


def test_findings_of_several_orders_are_merged(capsys):
    counts = [
        len(run_json(capsys, "run", KERNELS / "bugs.metal", *RACE, "--orders", orders)[1]["findings"])
        for orders in (0, 4)
    ]
    assert counts[0] <= counts[1] <= counts[0] + 2


def test_crash_is_a_finding(capsys):
    argv = [*RACE]
    argv[argv.index("missing_barrier")] = "stack_overflow"
    argv[argv.index("o=4")] = "o=512"
    code, result = run_json(capsys, "run", KERNELS / "bugs.metal", *argv)
    assert code == 1
    assert "stack-overflow" in {f["kind"] for f in result["findings"]}


def test_fast_run_saves_what_numpy_computes(capsys, tmp_path):
    x = np.random.default_rng(1).random((4, 100), np.float32)
    np.save(tmp_path / "x.npy", x)
    argv = [*ROW_SUM, "--value", "n=100", "--save", f"out={tmp_path / 'out.npy'}", "--fast"]
    argv[argv.index("x=4x100")] = f"x={tmp_path / 'x.npy'}"
    assert run(capsys, "run", KERNELS / "a_basic.metal", *argv)[0] == 0
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), x.sum(1), rtol=1e-5)


def test_structs_constants_and_all_layouts(capsys):
    argv = [
        "--kernel",
        "flash_attention",
        "--groups",
        "1x2",
        "--threadgroup",
        "128",
        "--layout",
        "all",
        "--orders",
        "0",
    ]
    argv += [f for name in "QKV" for f in ("--buffer", f"{name}=2x64x64:normal")]
    argv += ["--buffer", "O=2x64x64", "--value", "p=int32:64,int32:64,float32:0.125,int32:0"]
    code, result = run_json(capsys, "run", KERNELS / "d_flash_attention.metal", *argv)
    assert (code, result["findings"]) == (0, [])
    assert result["outputs"]["O"]["shape"] == [2, 64, 64]


def test_cost_counts_what_the_kernel_does(capsys):
    code, result = run_json(capsys, "cost", KERNELS / "a_basic.metal", *ROW_SUM, "--value", "n=100")
    assert code == 0
    assert result["cost"]["totals"]["device_read"] == 4 * 4 * 100
    assert result["cost"]["simdgroup_operations"] == {"simd_sum": 4 * (2 + 1)}
    code, out, _ = run(capsys, "cost", KERNELS / "a_basic.metal", *ROW_SUM, "--value", "n=100")
    assert code == 0
    cells = [[cell.strip() for cell in line.split("│")] for line in out.splitlines()]
    assert ["", "device bytes read", "1,600", ""] in cells
    assert ["", "threadgroup barriers", "4", ""] in cells


def test_cost_beside_an_earlier_one_and_by_output(capsys, tmp_path):
    argv = ["cost", KERNELS / "a_basic.metal", *ROW_SUM, "--value", "n=100"]
    earlier = tmp_path / "earlier.json"
    earlier.write_text(run(capsys, *argv, "--json")[1])
    argv[argv.index("x=4x100")], argv[argv.index("n=100")] = "x=4x50", "n=50"
    code, out, _ = run(capsys, *argv, "--per", 4, "--baseline", earlier)
    assert code == 0
    cells = [[cell.strip() for cell in line.split("│")] for line in out.splitlines()]
    assert ["", "device bytes read", "800", "200", "1,600", "0.500", ""] in cells
    code, result = run_json(capsys, *argv, "--per", 4, "--baseline", earlier)
    assert result["per_output"]["device bytes read"] == 200
    assert result["baseline"]["totals"]["device_read"] == 1600

    code, _, err = run(capsys, *argv, "--per", 0)
    assert (code, "--per: expected at least one output, got 0" in err) == (2, True)
    earlier.write_text("{}")
    code, _, err = run(capsys, *argv, "--baseline", earlier)
    assert (code, "--baseline: expected the output of `cost --json`" in err) == (2, True)
    assert run(capsys, *argv, "--baseline", tmp_path / "none.json")[0] == 2


def test_check(capsys, tmp_path):
    assert run(capsys, "check", KERNELS / "a_basic.metal")[0] == 0
    code, out, _ = run(capsys, "check", KERNELS / "strict_bad.metal", "-D", "E3")
    assert code == 1
    assert "float* p = x;" in out
    source = tmp_path / "broken.metal"
    source.write_text("kernel void k(device float* x [[buffer(0)]]) { x[0] = y; }\n")
    code, _, err = run(capsys, "check", source)
    assert code == 2
    assert "broken.metal:1" in err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("row_sum", "no_such_kernel"), "kernel: expected one of"),
        (("x=4x100", "x=4xx100"), r"expected [DTYPE:]SHAPE[:FILL]"),
        (("x=4x100", "y=4x100"), "expected one of x (0), out (1), n (2), got 'y'"),
        (("x=4x100", "x=4x100:plaid"), "expected a fill among"),
        (("x=4x100", "x=no_such_dtype:4x100"), "expected a numpy dtype"),
        (("64", "2000"), "expected 1 to 1024 threads"),
        (("4", "4x"), "expected one to three numbers"),
        (("n=100", "n=many"), "expected a number, got 'many'"),
        (("n=100", "n=-1"), "expected a number that fits uint"),
        (("n=100", "n"), "expected KEY=..."),
    ],
)
def test_wrong_commands_exit_with_2(capsys, change, message):
    argv = [change[1] if word == change[0] else word for word in [*ROW_SUM, "--value", "n=100"]]
    code, _, err = run(capsys, "run", KERNELS / "a_basic.metal", *argv)
    assert code == 2
    assert message in err


def test_missing_arguments_and_files(capsys):
    code, _, err = run(capsys, "run", KERNELS / "a_basic.metal", *ROW_SUM)
    assert (code, "expected --value n=... as well" in err) == (2, True)
    assert run(capsys, "check", "no_such_file.metal")[0] == 2
    with pytest.raises(SystemExit) as exit_:
        main(["run"])
    assert exit_.value.code == 2


def test_as_a_module():
    result = python("-m", "torch_mtl4.msl", "check", str(KERNELS / "a_basic.metal"))
    assert result.returncode == 0, result.stderr
    assert "clean" in result.stdout
