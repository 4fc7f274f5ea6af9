import json
import subprocess
import sys

import pytest

pytest.importorskip("rich")
from torch_mtl4.__main__ import COMMANDS, main
from torch_mtl4.demo import compare


def demo(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "torch_mtl4", "demo", *arguments], capture_output=True, text=True, check=False
    )


def test_a_decoder_and_an_encoder_of_the_users(tiny_decoder, tiny_encoder, tmp_path):
    file = tmp_path / "result.json"
    done = demo(
        "--model", tiny_decoder, "--encoder", tiny_encoder, "--quick", "--dtype", "float32", "--json", str(file)
    )
    assert done.returncode == 0, done.stderr
    assert "perplexity" in done.stdout and "same nearest neighbour" in done.stdout
    result = json.loads(file.read_text())
    decoder, encoder = result["models"]
    assert (decoder["kind"], encoder["kind"]) == ("decoder", "encoder")
    for model in result["models"]:
        stock, mxfp8 = model["setups"]["stock"], model["setups"]["mxfp8"]
        assert stock["kernels"] is None
        ready, total = mxfp8["kernels"]["attention"]
        assert ready == total == 2
        assert mxfp8["kernels"]["attention_calls"] > 0
        assert mxfp8["weight_bytes"] < stock["weight_bytes"]
        assert mxfp8["run_peak"] > mxfp8["weight_bytes"]
    assert decoder["setups"]["mxfp8"]["agreement"]["positions"] == compare.QUICK.score_tokens - 1
    assert 0.9 < encoder["setups"]["mxfp8"]["agreement"]["cosine_min"] < 1


def test_json_to_standard_output_stands_alone(tiny_encoder):
    done = demo("--model", tiny_encoder, "--quick", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["models"][0]["kind"] == "encoder"


def test_what_the_user_can_put_right_is_one_message_and_exit_code_2(tmp_path):
    done = demo("--model", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.strip().startswith("demo: no model could be read from")
    assert "Traceback" not in done.stderr


def test_a_measuring_process_that_dies_is_told():
    with pytest.raises(compare.DemoError, match=r"ended early; its last words:\n(.*\n)*KeyError: 'no such kind'"):
        compare.Worker({"kind": "no such kind"}).answer()


def test_models_that_do_not_fit_together_are_measured_one_after_the_other(tiny_encoder, monkeypatch):
    from torch_mtl4.demo.weights import users_model

    running, most = set(), []

    class Counted(compare.Worker):
        def __init__(self, job):
            running.add(self)
            most.append(len(running))
            super().__init__(job)

        def close(self):
            running.discard(self)
            super().close()

    monkeypatch.setattr(compare, "Worker", Counted)
    monkeypatch.setattr(compare, "_fit_together", lambda *_: False)
    steps = []
    model = users_model(tiny_encoder)
    result = compare.compare(model, ["stock", "attention"], "float32", compare.QUICK, steps.append)
    assert max(most) == 1 and not running
    assert len(steps) == compare.steps(model, ["stock", "attention"], compare.QUICK)
    assert result["setups"]["attention"]["agreement"]["same_neighbour"] == 1


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["--help"])
    assert exit.value.code == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in COMMANDS)


def test_an_unknown_command_is_refused(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["no-such-command"])
    assert exit.value.code == 2
    assert "no-such-command" in capsys.readouterr().err
