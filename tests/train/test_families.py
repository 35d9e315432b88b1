"""Every architecture trains from a configuration: the run goes on, reads back, and generates; so do the examples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import entrenar as en
from entrenar.cli import app
from entrenar.config import load_config
from entrenar.config.model import SECTIONS
from entrenar.models import MODELS
from entrenar.train import load_run, prepare

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
SMALL = "hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2"
MODEL = {
    "gpt2": "n_positions: 16, n_embd: 16, n_layer: 2, n_head: 2, n_inner: 40",
    "llama": f"family: llama, {SMALL}, max_position_embeddings: 16, rope_scaling: {{rope_type: linear, factor: 2.0}}",
    "mistral": f"family: mistral, {SMALL}, max_position_embeddings: 32, sliding_window: 5",
    "qwen2": f"family: qwen2, {SMALL}, max_position_embeddings: 16, layer_types: [sliding_attention, full_attention],"
    " use_sliding_window: true, sliding_window: 4, tie_word_embeddings: true",
}
WORDS = {
    "gpt2": "2 layers, 2 heads, width 16, 16 positions, vocabulary",
    "llama": "2 layers, 4 heads (2 of keys and values), width 16, 16 positions, vocabulary",
    "mistral": "2 layers, 4 heads (2 of keys and values), width 16, 32 positions, windows of 5, vocabulary",
    "qwen2": "2 layers, 4 heads (2 of keys and values), width 16, 16 positions, windows of 4 in 1 layers, vocabulary",
}


@pytest.fixture
def call(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    for n in range(12):
        (tmp_path / "texts" / f"{n}.txt").write_text("a boat has a flat bottom and a saw has teeth\n" * 8)

    def run(*arguments, status=0):
        result = CliRunner().invoke(app, [str(a) for a in arguments])
        assert result.exit_code == status, result.output
        return result

    return run


def written(tmp_path, family):
    path = tmp_path / f"{family}.yaml"
    path.write_text(
        f"model: {{{MODEL[family]}}}\n"
        'data: {root: texts, pattern: "*.txt", held_out: 0.3, seq_len: 16, batch_size: 4}\n'
        "training: {steps: 6, eval_every: 3, save_every: 2, log_every: 2, output: run,\n"
        "  sample: {prompt: a b, tokens: 20}}\n"
        "optimizer: {lr: 1e-2}\n"
        "scheduler: {warmup_steps: 1}\n"
    )
    return path


def state_hash(folder):
    return json.loads((folder / "result.json").read_text())["state_hash"]


def test_every_family_is_here():
    assert set(MODEL) == set(WORDS) == set(SECTIONS)


@pytest.mark.parametrize("family", MODEL)
def test_a_run_trains_goes_on_reads_back_and_generates(call, tmp_path, family):
    path = written(tmp_path, family)
    result = call("train", path)
    assert f"model    {family}, " in result.stdout and WORDS[family] in result.stdout
    assert "sample\na b" in result.stdout
    assert load_config(tmp_path / "run" / "config.yaml") == load_config(path)

    call("train", path, "-o", "parts", "--max-steps", 3)
    call("train", "run/config.yaml", "-o", "parts", "--resume")
    assert state_hash(tmp_path / "run") == state_hash(tmp_path / "parts")

    model, tokenizer, _ = load_run(tmp_path / "run")
    assert type(model) is MODELS[family][1]
    assert (model.config.vocab_size, model.config.eos_token_id) == (tokenizer.vocab_size, None)
    text = call("generate", "run", "--prompt", "a b", "-n", 20, "--temperature", 0).stdout
    ids = model.generate(tokenizer.encode("a b"), 20, temperature=0)
    assert text == tokenizer.decode(ids) + "\n" and len(text) == 24


@pytest.mark.parametrize("family", MODEL)
def test_a_run_learns(call, tmp_path, family):
    en.manual_seed(0)
    run = prepare(load_config(written(tmp_path, family), ["training.steps=40"]), tmp_path / "out")
    before = run.held_out_loss()
    run.trainer.fit()
    assert before == pytest.approx(np.log(run.tokenizer.vocab_size), rel=0.1)
    assert run.held_out_loss() < before - 0.5


def test_another_family_is_another_run(call, tmp_path):
    call("train", written(tmp_path, "llama"), "--max-steps", 2)
    refused = call("train", written(tmp_path, "mistral"), "-r", status=2).stderr
    assert "cannot be resumed: model.family: 'llama' -> 'mistral'" in refused
    assert "model.family: 'llama' -> 'gpt2'" in call("train", written(tmp_path, "gpt2"), "-r", status=2).stderr
    assert "model.rope_scaling: " in call("train", "llama.yaml", "model.rope_scaling=null", "-r", status=2).stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_examples_train(call, tmp_path, path):
    small = ("data.max_bytes=200000", "data.held_out=0.3", "training.eval_batches=2", "training.sample.tokens=20")
    result = call("train", path, "-o", "out", "--max-steps", 2, *small)
    assert "trained  2 steps" in result.stdout
    assert (tmp_path / "out" / "result.json").exists()


def test_the_llama_example_is_as_large_as_the_quickstart():
    sizes = {}
    for path in EXAMPLES:
        section = load_config(path).model
        with en.nn.init.left_empty():
            model = MODELS[section.family][1](section.architecture(100))
        sizes[path.stem] = en.nn.count_parameters(model)
    assert sizes["llama"] == pytest.approx(sizes["quickstart"], rel=0.15)
