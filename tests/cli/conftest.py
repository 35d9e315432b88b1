"""Tiny models with random weights in Hugging Face folders, and the commands on them."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from typer.testing import CliRunner

import entrenar as en
from entrenar.cli import app

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
CHATML = """{{- bos_token }}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""


@pytest.fixture(scope="session")
def tokenizer():
    """Byte-level, 280 tokens, with a BOS before every text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=280, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(["the boat has a flat bottom and the saw has teeth, the teeth of the boat"], trainer)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    assert made.get_vocab_size() == 280
    return made


@pytest.fixture
def folder(tmp_path, tokenizer):
    """Writes a folder: ``folder(name, template, positions=..., **files)``."""

    def write(name="model", template=CHATML, positions=256, vocab_size=280, **files):
        config = en.models.LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=positions,
            initializer_range=0.5,
            bos_token_id=None,
            eos_token_id=None,
        )
        en.manual_seed(3)
        path = tmp_path / name
        en.models.Llama(config).save_pretrained(path)
        tokenizer.save(str(path / "tokenizer.json"))
        files = {"tokenizer_config": {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}, **files}
        for file, content in files.items():
            (path / f"{file}.json").write_text(json.dumps(content))
        return path

    return write


@pytest.fixture
def call():
    """A command in this process; stdin is a pipe."""

    def run(*arguments, status=0, stdin=None):
        result = CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)
        assert result.exit_code == status, (result.output, result.exception)
        return result

    return run
