"""The commands in one process: what they print, what they write, how they end."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import entrenar
from entrenar.cli import app
from entrenar.train import RunFolder


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    for n in range(12):
        (tmp_path / "texts" / f"{n}.txt").write_text("a boat has a flat bottom and a saw has teeth\n" * 8)
    (tmp_path / "c.yaml").write_text(
        "model: {n_positions: 16, n_embd: 16, n_layer: 1, n_head: 2}\n"
        'data: {root: texts, pattern: "*.txt", held_out: 0.3, seq_len: 16, batch_size: 4}\n'
        "training: {steps: 6, eval_every: 3, save_every: 2, log_every: 2, output: run,\n"
        "  sample: {prompt: a b, tokens: 9}}\n"
        "scheduler: {warmup_steps: 1}\n"
    )

    def run(*arguments, status=0):
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        assert result.exit_code == status, result.output
        return result

    return run


def test_train_writes_the_run_and_says_so(call, tmp_path):
    result = call("train", "c.yaml")
    for text in (
        "to beat  bigram",
        "this model",
        "trigram",
        "sample\na b",
        "written  run: best/, checkpoints/, config.yaml",
    ):
        assert text in result.stdout
    assert (
        "step 2/6  loss" in result.stderr and "tokens/s" in result.stderr and "step 6: validation loss" in result.stderr
    )
    names = {p.name for p in (tmp_path / "run").iterdir()}
    assert names == {
        "best",
        "checkpoints",
        "config.yaml",
        "data.json",
        "loss.png",
        "loss.svg",
        "model_summary.json",
        "result.json",
        "tokenizer.json",
        "training_log.csv",
    }
    summary = json.loads((tmp_path / "run" / "model_summary.json").read_text())
    assert set(summary) == {"total_params_M", "dtype", "weights_mem_MB", "optimizer_mem_MB", "est_activations_MB"}
    assert summary["optimizer_mem_MB"] == pytest.approx(2 * summary["weights_mem_MB"], abs=2e-3)
    assert [row["step"] for row in RunFolder("run").read_log()] == [str(n) for n in range(1, 7)]
    assert "<svg" in (tmp_path / "run" / "loss.svg").read_text()


def test_config_of_a_run_reproduces_it(call, tmp_path):
    call("train", "c.yaml", "--seed", 5, "optimizer.lr=5e-3")
    call("train", "run/config.yaml", "-o", "twin")
    hashes = [json.loads((tmp_path / name / "result.json").read_text())["state_hash"] for name in ("run", "twin")]
    assert hashes[0] == hashes[1]


def test_pause_and_resume_end_where_the_whole_run_does(call, tmp_path):
    call("train", "c.yaml", "-o", "whole")
    call("train", "c.yaml", "-o", "parts", "--max-steps", 3)
    result = call("train", "c.yaml", "-o", "parts", "--resume")
    assert "resume   parts/checkpoints/step-3" in result.stdout
    hashes = [json.loads((tmp_path / name / "result.json").read_text())["state_hash"] for name in ("whole", "parts")]
    assert hashes[0] == hashes[1]
    weights = [
        (tmp_path / name / "checkpoints" / "step-6" / "model.safetensors").read_bytes() for name in ("whole", "parts")
    ]
    assert weights[0] == weights[1]


def test_a_bfloat16_run_resumes_generates_and_needs_half_the_memory(call, tmp_path):
    low = ("model.dtype=bfloat16", "optimizer.state_dtype=bfloat16", "optimizer.stochastic_rounding=true")
    call("train", "c.yaml", "-o", "high")
    call("train", "c.yaml", "-o", "whole", *low)
    call("train", "c.yaml", "-o", "parts", "--max-steps", 3, *low)
    call("train", "c.yaml", "-o", "parts", "--resume", *low)
    ended = {name: json.loads((tmp_path / name / "result.json").read_text()) for name in ("high", "whole", "parts")}
    assert ended["whole"]["state_hash"] == ended["parts"]["state_hash"] != ended["high"]["state_hash"]
    high, whole = (json.loads((tmp_path / name / "model_summary.json").read_text()) for name in ("high", "whole"))
    assert whole["dtype"] == "bfloat16"
    for key in ("weights_mem_MB", "optimizer_mem_MB"):
        assert whole[key] == pytest.approx(high[key] / 2, abs=2e-3)
    assert call("generate", "whole", "--prompt", "a b", "-n", 9).stdout.startswith("a b")


def test_an_occupied_folder_is_never_overwritten(call, tmp_path):
    call("train", "c.yaml")
    before = (tmp_path / "run" / "result.json").read_text()
    assert "run holds a run already" in call("train", "c.yaml").stdout
    assert (tmp_path / "run-2" / "result.json").exists() and (tmp_path / "run" / "result.json").read_text() == before
    assert "--resume goes on with it" in call("train", "c.yaml", "-o", "run", status=2).stderr


def test_resume_refuses_another_run(call):
    assert "no run to resume" in call("train", "c.yaml", "-r", status=3).stderr
    call("train", "c.yaml", "--max-steps", 2)
    assert "optimizer.lr: 0.001 -> 0.5" in call("train", "c.yaml", "-r", "optimizer.lr=0.5", status=2).stderr
    assert "changed  training.steps: 6 -> 8" in call("train", "c.yaml", "-r", "training.steps=8").stdout


def test_resume_refuses_other_text(call, tmp_path):
    call("train", "c.yaml", "--max-steps", 2)
    file = sorted((tmp_path / "texts").iterdir())[0]
    file.write_text(file.read_text() + "a boat")
    assert "text changed since this run began" in call("train", "c.yaml", "-r", status=3).stderr


def test_dry_run_writes_nothing(call, tmp_path):
    assert "nothing was written" in call("train", "c.yaml", "--dry-run").stdout
    assert not (tmp_path / "run").exists()


def test_a_run_without_matplotlib_says_how_to_get_it(call, tmp_path, monkeypatch):
    import sys

    for name in [m for m in sys.modules if m.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call("train", "c.yaml", "--max-steps", 1)
    assert "pip install 'entrenar[plot]'" in result.stderr and not (tmp_path / "run" / "loss.png").exists()


def test_a_failed_run_ends_with_1_and_its_cause(call):
    result = call("train", "c.yaml", "optimizer.lr=1e30", "training.max_grad_norm=0", "training.steps=40", status=1)
    assert "TrainingFailed: 20 updates in a row were skipped" in result.stderr and "Traceback" not in result.stderr
    assert (
        "Traceback"
        in call("-v", "train", "c.yaml", "optimizer.lr=1e30", "training.steps=40", "-o", "v", status=1).stderr
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model:\n  n_layr: 3\n", "bad.yaml:2:3: unknown key 'model.n_layr'. Did you mean 'n_layer'"),
        ("model:\n  n_layer: many\n", "bad.yaml:2:3: model.n_layer"),
        ("model:\n\tn_layer: 3\n", "bad.yaml:2:1"),
        ("model:\n  n_layer: 2\n  n_layer: 3\n", "bad.yaml:3:3"),
        ("optimizer:\n  lr: 1_000\n", "write 1000"),
    ],
)
def test_a_wrong_config_ends_with_2_and_its_place(call, tmp_path, text, message):
    (tmp_path / "bad.yaml").write_text(text)
    result = call("train", "bad.yaml", status=2)
    assert message in result.stderr and "Traceback" not in result.output


def test_wrong_usage_ends_with_2(call):
    assert "Did you mean 'train'" in call("trian", status=2).stderr
    assert "--max-step" in call("train", "c.yaml", "--max-step", "3", status=2).stderr
    assert "expected section.key=value" in call("train", "c.yaml", "lr", status=2).stderr
    assert "Did you mean 'seed'" in call("train", "c.yaml", "training.sead=1", status=2).stderr
    assert "nope.yaml: cannot be read" in call("train", "nope.yaml", status=2).stderr
    assert "training.sample.prompt" in call("train", "c.yaml", "training.sample.prompt=Zebra", status=2).stderr


def test_missing_data_ends_with_3(call):
    assert "no such folder" in call("train", "c.yaml", "data.root=nowhere", status=3).stderr
    assert "not a run folder" in call("generate", "./nowhere", "--prompt", "a", status=3).stderr


def test_generate_is_the_seed_s(call, tmp_path):
    call("train", "c.yaml")
    texts = [call("generate", "run", "--prompt", "a b", "--tokens", 30, "--seed", s).stdout for s in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2] and texts[0].startswith("a b") and len(texts[0]) == 3 + 30 + 1
    greedy = [
        call("generate", "run", "-p", "a", *o).stdout
        for o in (("--temperature", 0), ("--top-k", 1), ("--top-k", 1, "--seed", 3))
    ]
    assert greedy[0] == greedy[1] == greedy[2]
    call("generate", "run", "-p", "a", "--checkpoint", "last")
    assert "'Z' at 1 is not in the vocabulary" in call("generate", "run", "-p", "aZ", status=2).stderr
    assert "prompt is empty" in call("generate", "run", "-p", "", status=2).stderr
    assert "neither best nor last" in call("generate", "run", "-p", "a", "--checkpoint", "worst", status=2).stderr
    (tmp_path / "run" / "best" / "model.safetensors").write_bytes(b"short")
    assert "model.safetensors" in call("generate", "run", "-p", "a", status=3).stderr


def test_version_and_help(call):
    assert call("--version").stdout.strip() == f"entrenar {entrenar.__version__}"
    assert "train" in call("--help").stdout


def test_gradcheck_takes_the_arguments_of_its_module(call):
    assert "usage" in call("gradcheck", "--help").stdout.lower()
    assert call("gradcheck", "nowhere:op", status=2).stderr


def test_quiet_leaves_results_alone(call):
    result = call("-q", "train", "c.yaml")
    assert result.stderr == "" and "reading" not in result.output and "plan" not in result.stdout
    assert "loss on the" in result.stdout and "state    " in result.stdout
    assert call("-q", "train", "c.yaml", "-o", "bad", "data.root=nowhere", status=3).stderr.startswith(
        "nowhere: no such"
    )


def test_json_is_one_object(call, tmp_path):
    result = call("--json", "train", "c.yaml")
    (line,) = result.stdout.splitlines()
    said, kept = json.loads(line), json.loads((tmp_path / "run" / "result.json").read_text())
    assert {key: said[key] for key in kept} == kept and said["run"] == "run" and said["sample"].startswith("a b")
    assert "step 2/6" in result.stderr
    said = json.loads(call("--json", "generate", "run", "-p", "a b", "-n", 5).stdout)
    assert said["prompt"] == "a b" and "a b" + said["text"] == call("generate", "run", "-p", "a b", "-n", 5).stdout[:-1]
    assert "chat has no result in JSON" in call("--json", "chat", "run", status=2).stderr


def test_options_are_keys_of_the_configuration(call, tmp_path):
    call("train", "c.yaml", "-b", 2, "-l", "2e-3", "--save-every", 3, "--log-every", 1, "--seed", 9)
    text = (tmp_path / "run" / "config.yaml").read_text()
    for line in ("batch_size: 2", "lr: 0.002", "save_every: 3", "log_every: 1", "seed: 9"):
        assert f"  {line}\n" in text
    assert {p.name for p in (tmp_path / "run" / "checkpoints").iterdir()} == {"step-3", "step-6"}
    for option, value, key in (
        ("-b", 0, "data.batch_size"),
        ("-l", 0, "optimizer.lr"),
        ("-l", "nan", "optimizer.lr"),
        ("--save-every", 0, "training.save_every"),
        ("--log-every", -1, "training.log_every"),
        ("--seed", -1, "training.seed"),
    ):
        assert f"command line: {key}: {key}: " in call("train", "c.yaml", option, value, status=2).stderr
    told = call("train", "c.yaml", "-l", "1e-3", "optimizer.lr=1e-3", status=2).stderr
    assert "optimizer.lr: given twice" in told


def test_a_dry_run_does_one_step(call, tmp_path):
    told = call("train", "c.yaml", "--dry-run").stdout
    first = call("train", "c.yaml").stderr
    assert "step     1: loss " in told and " tokens/s; a first step is slower" in told
    assert not (tmp_path / "run-2").exists() and "step 2/6" in first
    loss = float(RunFolder("run").read_log()[0]["train_loss"])
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    said = json.loads(call("--json", "train", "c.yaml", "--dry-run").stdout)
    assert said["loss"] == loss and said["step"] == 1 and said["peak_memory_bytes"] > 1e7
    assert "all 6 steps are done" in call("train", "c.yaml", "-r", "--dry-run", status=2).stderr
    said = json.loads(call("--json", "train", "c.yaml", "-r", "--dry-run", "training.steps=8").stdout)
    assert said["step"] == 7
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before


def test_a_failed_run_tells_the_end_of_its_log(call):
    result = call("train", "c.yaml", "optimizer.lr=1e30", "training.max_grad_norm=0", "training.steps=40", status=1)
    lines = result.stderr.splitlines()
    at = lines.index("the last lines of run/training_log.csv:")
    steps = [line.split(":")[0] for line in lines[at + 1 : -1]]
    assert steps == [f"  step {row['step']}" for row in RunFolder("run").read_log()[-3:]]
    assert all("train_loss " in line and "grad_norm " in line for line in lines[at + 1 : -1])
    assert lines[-1].startswith("error: TrainingFailed: 20 updates in a row were skipped")


def test_names_of_axolotl_are_told_on_stderr(call, tmp_path):
    (tmp_path / "a.yaml").write_text((tmp_path / "c.yaml").read_text() + "learning_rate: 2e-3\n")
    result = call("train", "a.yaml", "--max-steps", 1)
    assert "a.yaml: learning_rate is read as optimizer.lr\n" in result.stderr
    assert "  lr: 0.002\n" in (tmp_path / "run" / "config.yaml").read_text()


def test_a_run_made_longer_is_verified(call):
    call("train", "c.yaml")
    call("train", "c.yaml", "-r", "training.steps=9")
    assert "verified: 9 steps" in call("verify", "run").stdout
