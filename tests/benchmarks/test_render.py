import json

import pytest

from benchmarks import render

RESULT = {
    "date": "2000-01-01",
    "commit": "abc",
    "modified": False,
    "machine": {
        "processor": "P", "threads": 2, "system": "S", "isa": {"torch_mtl4": "avx2"}, "versions": {"torch": "2"},
    },
    "roofline": {"read_gb_s": 30.0, "float32_gflop_s": 200.0, "bfloat16_gflop_s": 400.0},
    "cases": [
        {
            "op": "mxfp8_linear", "name": "1 row", "dtype": "bfloat16", "peer": "F.linear", "goal": 2.0, "ratio": 1.5,
            "ours_ms": {"median_ms": 1.0, "low_ms": 0.9, "high_ms": 1.1},
            "peer_ms": {"median_ms": 1.5, "low_ms": 1.4, "high_ms": 1.6},
            "of_roofline": 0.5,
        }
    ],
}  # fmt: skip


@pytest.fixture
def readme(tmp_path, monkeypatch):
    monkeypatch.setattr(render, "ROOT", tmp_path)
    monkeypatch.setattr(render, "PAGES", ("README.md",))
    (tmp_path / "r.json").write_text(json.dumps(RESULT))
    path = tmp_path / "README.md"
    path.write_text("before\n<!-- table: r.json -->\nold\n<!-- end of table -->\nafter\n")
    return path


def test_tables_come_from_the_files_and_check_tells_when_they_do_not(readme, capsys):
    assert render.main(["--check"]) == 1
    assert "README.md: its tables differ" in capsys.readouterr().err
    assert "old" in readme.read_text()
    assert render.main([]) == 0
    text = readme.read_text()
    assert text.startswith("before\n") and text.endswith("<!-- end of table -->\nafter\n") and "old" not in text
    assert (
        "| `mxfp8_linear` | 1 row | bfloat16 | 1 (0.9 to 1.1) | 1.5 (1.4 to 1.6) | 1.50x | 2x (missed) | 50% |" in text
    )
    assert render.main(["--check"]) == 0


def test_a_goal_that_is_reached_is_not_called_missed():
    reached = {**RESULT, "cases": [{**RESULT["cases"][0], "ratio": 2.0}]}
    assert "missed" not in render.markdown(reached)


def counted(name, **counts):
    names = "device_read", "device_read_unique", "device_written", "threadgroup_read", "threadgroup_written"
    names += "threadgroup_barriers", "simdgroup_barriers", "multiply_accumulates", "simdgroup_operations"
    return {"name": name, "outputs": 100, **dict.fromkeys(names, 0), **counts}


def test_counts_are_of_an_output_and_marked_where_the_best_peer_does_with_less():
    ours = counted("ours", device_read=20_000, device_written=150, threadgroup_barriers=8)
    peers = [counted("a", device_read=20_100, threadgroup_barriers=9), counted("b", device_read=30_000)]
    case = {"op": "op", "shape": "shape", "tier": "tier", "kernels": [ours, *peers]}
    assert render.more(case) == ["threadgroup barriers"]
    assert render.more({**case, "kernels": [{**ours, "device_read": 20_400}, peers[0]]}) == ["device bytes"]
    facts = {"packages": {"mlx": "1"}, "compiler": "clang", "scaled": "Small."}
    text = render.markdown({**RESULT, **facts, "kind": "msl_cost", "cases": [case]})
    assert "| `op` shape, tier | ours **(more threadgroup barriers)** | 200 (0) | 1.5 | 0 | 80 | 0 | 0 | 0 |" in text
    assert "|  | b | 300 (0) | 0 | 0 | 0 | 0 | 0 | 0 |" in text
