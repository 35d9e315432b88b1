"""``entrenar generate`` on folders of Hugging Face's and on runs."""

import json
import os
import signal
import subprocess
import sys

import entrenar as en
from entrenar.cli.source import until
from entrenar.data import CharTokenizer, load_tokenizer
from entrenar.models import from_pretrained, generate

GREEDY = ("--temperature", 0)


def said(result):
    """What a command wrote on stdout, its line ends as they were."""
    return result.stdout_bytes.decode()


def expected(path, prompt, tokens, **options):
    """The text that the library gives for the same prompt."""
    tokenizer, model = load_tokenizer(path), from_pretrained(path)
    options = {"temperature": 0.0, "stop_tokens": tokenizer.end_ids, **options}
    return tokenizer.decode(generate(model, tokenizer.encode(prompt), tokens, **options), skip_special_tokens=True)


def test_the_text_is_that_of_the_library(folder, call):
    path = folder()
    for prompt in ("the boat", "a 한 👩‍👧", "é"):
        assert said(call("generate", path, "-p", prompt, "-n", 40, *GREEDY)) == expected(path, prompt, 40) + "\n"
    assert said(call("generate", path, "-p", "the boat", "-n", 0)) == "the boat\n"
    assert said(call("generate", path, "-p", "", "-n", 12, *GREEDY)) == expected(path, "", 12) + "\n"  # from BOS on


def test_every_option_reaches_the_draws(folder, call):
    path = folder()
    options = dict(temperature=1.5, top_k=30, top_p=0.8, min_p=0.1, repetition_penalty=1.3, seed=5)
    given = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    text = said(call("generate", path, "-p", "the boat", "-n", 60, *given))
    assert text == expected(path, "the boat", 60, **options) + "\n"
    for name in options:  # and each makes a difference of its own
        without = {key: value for key, value in options.items() if key != name} | (
            {"temperature": 0.2} if name == "temperature" else {}
        )
        assert expected(path, "the boat", 60, **without) + "\n" != text, name
    low = said(call("generate", path, "-p", "the boat", "-n", 60, *GREEDY, "--dtype", "bfloat16"))
    model = from_pretrained(path, "bfloat16")
    tokenizer = load_tokenizer(path)
    ids = generate(model, tokenizer.encode("the boat"), 60, 0.0, stop_tokens=1)
    assert low == tokenizer.decode(ids, skip_special_tokens=True) + "\n"


def test_it_ends_at_the_tokens_that_the_folder_names(folder, call):
    path = folder()
    tokenizer = load_tokenizer(path)
    drawn = generate(from_pretrained(path), tokenizer.encode("the"), 30, 0.0)[len(tokenizer.encode("the")) :].tolist()
    whole = said(call("generate", path, "-p", "the", "-n", 30, *GREEDY))
    end = drawn[7]
    assert end not in drawn[:7]
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, end]}))
    short = said(call("generate", path, "-p", "the", "-n", 30, *GREEDY))
    assert short == expected(path, "the", 7, stop_tokens=()) + "\n" != whole
    assert said(call("generate", path, "-p", "the", "-n", 30, *GREEDY, "--ignore-eos")) == whole
    # one that the table has no row for is never drawn
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [9000]}))
    assert said(call("generate", path, "-p", "the", "-n", 30, *GREEDY)) == whole


def test_it_ends_before_a_text(folder, call):
    path = folder()
    whole = said(call("generate", path, "-p", "the boat", "-n", 60, *GREEDY))
    drawn = whole.removeprefix("the boat").removesuffix("\n")
    stop = drawn[20:23]
    cut = "the boat" + drawn[: drawn.index(stop)] + "\n"
    assert said(call("generate", path, "-p", "the boat", "-n", 60, *GREEDY, "--stop", "@@@", "--stop", stop)) == cut
    assert "--stop" in call("generate", path, "-p", "a", "--stop", "", status=2).stderr


def test_texts_that_end_one_are_found_across_pieces():
    for text in ("a stop here", "as stoop sto", "ststop", "sto", "", "stopstop"):
        end = min([*(text.find(stop) for stop in ("stop", "oop") if stop in text), len(text)])
        for size in (1, 2, 3, 50):
            pieces = [text[n : n + size] for n in range(0, len(text), size)]
            assert "".join(until(pieces, ["stop", "oop"])) == text[:end]
    # what cannot be a beginning does not wait, and nothing is drawn after the end
    drawn = []
    pieces = until((drawn.append(p) or p for p in ["a", "b s", "top", "c"]), ["stop"])
    assert next(pieces) == "a" and drawn == ["a"]
    assert list(pieces) == ["b "] and drawn == ["a", "b s", "top"]


def test_a_prompt_from_stdin(folder, call):
    path = folder()
    prompt = "the\nboat é"
    whole = expected(path, prompt, 9) + "\n"
    for text in (prompt, prompt + "\n", prompt + "\r\n"):
        assert said(call("generate", path, "-p", "-", "-n", 9, *GREEDY, stdin=text.encode())) == whole
    assert said(call("generate", path, "-p", "-", "-n", 0, stdin=b"a\n\n")) == "a\n\n"
    assert "stdin is not UTF-8" in call("generate", path, "-p", "-", stdin=b"\xff", status=2).stderr


def test_a_text_longer_than_the_positions_is_told(folder, call):
    path = folder(positions=16)
    result = call("generate", path, "-p", "the", "-n", 40, *GREEDY)
    assert "longer than the model's 16 positions" in result.stderr
    result = call("generate", path, "-p", "the boat " * 20, "-n", 0)
    assert "tokens: the model reads its last 16" in result.stderr
    assert call("generate", path, "-p", "the", "-n", 9, *GREEDY).stderr == ""


def test_a_doubled_bos_is_one_and_told(folder, call):
    path = folder()
    result = call("generate", path, "-p", "<s>the boat", "-n", 20, *GREEDY)
    assert "begins with 2 BOS tokens" in result.stderr
    assert said(result) == "<s>" + said(call("generate", path, "-p", "the boat", "-n", 20, *GREEDY))


def test_rows_that_no_token_has_give_no_text(folder, call):
    path = folder(vocab_size=4000)  # padded tables are common
    text = said(call("generate", path, "-p", "the", "-n", 50, *GREEDY))
    ids = generate(from_pretrained(path), load_tokenizer(path).encode("the"), 50, 0.0, stop_tokens=1)
    assert (ids >= 280).any()
    assert text == load_tokenizer(path).decode(ids[ids < 280], skip_special_tokens=True) + "\n"


def test_another_model_s_tokenizer_is_told(folder, call):
    result = call("generate", folder(vocab_size=100), "-p", "the boat", status=3)
    assert "the model's table has 100 rows" in result.stderr and "do not belong together" in result.stderr


def test_options_that_do_not_fit(folder, call):
    path = folder()
    for option, value in (
        ("--temperature", -1),
        ("--temperature", "nan"),
        ("--top-k", 0),
        ("--top-p", 0),
        ("--top-p", 1.5),
        ("--min-p", 2),
        ("--repetition-penalty", 0),
        ("--dtype", "int8"),
        ("--checkpoint", "last"),
        ("--seed", -1),
        ("--tokens", -1),
    ):
        told = call("generate", path, "-p", "a", option, value, status=2).stderr
        assert option in told and "Traceback" not in told
    assert "Did you mean 'float32'" in call("generate", path, "-p", "a", "--dtype", "flot32", status=2).stderr
    assert "--prompt" in call("generate", path, status=2).stderr


def test_what_is_no_source_is_told(folder, call, tmp_path):
    assert "no such folder" in call("generate", "./nowhere", "-p", "a", status=3).stderr
    assert "no such folder" in call("generate", "", "-p", "a", status=3).stderr  # not the one we are in
    (tmp_path / "empty").mkdir()
    told = call("generate", tmp_path / "empty", "-p", "a", status=3).stderr
    assert "no config.yaml" in told and "no config.json" in told
    path = folder()
    (path / "tokenizer.json").unlink()
    assert "tokenizer.json: no such file" in call("generate", path, "-p", "a", status=3).stderr
    path = folder()
    (path / "model.safetensors").write_bytes(b"short")
    assert "model.safetensors" in call("generate", path, "-p", "a", status=3).stderr
    (path / "config.json").write_text("{")
    assert "config.json: the configuration is not JSON" in call("generate", path, "-p", "a", status=3).stderr


def test_a_name_on_the_hub(folder, call, monkeypatch):
    from entrenar.cli import source
    from entrenar.io import DataError

    path, asked = folder(), []

    def hub(name):
        asked.append(name)
        if name != "org/tiny":
            raise DataError(f"{name!r}: the hub has no model of that name")
        return path

    monkeypatch.setattr(source, "hub_folder", hub)
    assert said(call("generate", "org/tiny", "-p", "the", "-n", 9, *GREEDY)) == expected(path, "the", 9) + "\n"
    told = call("generate", "org/tinny", "-p", "the", status=3).stderr
    assert "is not a run folder" in told and "the hub has no model of that name" in told
    assert asked == ["org/tiny", "org/tinny"]
    call("generate", path, "-p", "the", "-n", 1)
    assert len(asked) == 2  # a folder asks nobody


def test_an_option_of_the_config_can_be_ignored(folder, call):
    path = folder()
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "made_up": 3}))
    assert "made_up" in call("generate", path, "-p", "a", status=3).stderr
    assert call("generate", path, "-p", "a", "-n", 3, *GREEDY, "--ignore", "made_up").stdout.startswith("a")


def test_an_encoder_draws_no_text(call, tmp_path):
    config = en.models.BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    en.models.Bert(config).save_pretrained(tmp_path / "bert")
    told = call("generate", tmp_path / "bert", "-p", "a", status=3).stderr
    assert "bert is an encoder" in told and "'llama'" in told


def test_an_empty_prompt_without_bos_is_refused(folder, call, tokenizer):
    path = folder()
    bare = json.loads(tokenizer.to_str())
    (path / "tokenizer.json").write_text(json.dumps({**bare, "post_processor": None}))
    assert "prompt is empty" in call("generate", path, "-p", "", status=2).stderr


def test_a_run_of_ours(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts").mkdir()
    for n in range(12):
        (tmp_path / "texts" / f"{n}.txt").write_text("a boat has a flat bottom and a saw has teeth\n" * 8)
    (tmp_path / "c.yaml").write_text(
        "model: {n_positions: 16, n_embd: 16, n_layer: 1, n_head: 2}\n"
        'data: {root: texts, pattern: "*.txt", held_out: 0.3, seq_len: 16, batch_size: 4}\n'
        "training: {steps: 2, eval_every: 1, save_every: 1, output: run, sample: {tokens: 0}}\n"
        "scheduler: {warmup_steps: 0}\n"
    )
    call("train", "c.yaml")
    drawn = call("generate", "run", "-p", "a b", "-n", 30, "--top-p", 0.9, "--repetition-penalty", 1.2)
    assert drawn.stdout.startswith("a b") and len(drawn.stdout) == 3 + 30 + 1
    assert "longer than the model's 16 positions" in drawn.stderr
    stop = drawn.stdout[9]
    cut = call("generate", "run", "-p", "a b", "-n", 30, "--top-p", 0.9, "--repetition-penalty", 1.2, "--stop", stop)
    assert cut.stdout == drawn.stdout[: 3 + drawn.stdout[3:].index(stop)] + "\n"
    assert call("generate", "run", "-p", "a b", "-n", 9, "--dtype", "bf16").stdout.startswith("a b")
    assert "--ignore" in call("generate", "run", "-p", "a", "--ignore", "x", status=2).stderr
    assert "'Z' at 1" in call("generate", "run", "-p", "aZ", status=2).stderr


def test_a_folder_of_ours_with_characters(folder, call):
    path = folder(vocab_size=12)
    CharTokenizer.train(["the boats"]).save(path / "tokenizer.json")
    assert call("generate", path, "-p", "the", "-n", 5, *GREEDY).stdout.startswith("the")


def command(*arguments):
    return [sys.executable, "-m", "entrenar", *(str(a) for a in arguments)]


def test_as_a_process_of_its_own(folder):
    path = folder()
    words = command("generate", path, "-p", "the boat é", "-n", 20, *GREEDY)
    done = subprocess.run(words, capture_output=True, check=True, timeout=120)
    assert done.stdout.decode() == expected(path, "the boat é", 20) + "\n" and done.stderr == b""
    narrow = subprocess.run(
        words, capture_output=True, check=True, timeout=120, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert narrow.stdout.startswith(b"the boat ?")


def test_an_interrupt_ends_it_with_130(folder):
    path = folder(positions=2_000_000)
    words = command("generate", path, "-p", "the", "-n", 1_000_000, "--ignore-eos")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert len(process.stdout.read(100)) == 100
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130 and err.decode().strip() == "interrupted" and out.endswith(b"\n")


def test_pieces_come_as_they_are_drawn(folder):
    path = folder(positions=2_000_000)
    words = command("generate", path, "-p", "the", "-n", 1_000_000, "--ignore-eos")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.read(50).startswith(b"the")  # long before the end
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 143
