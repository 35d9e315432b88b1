"""Tokenizers trained here, as transformers loads them."""

import json

import pytest

transformers = pytest.importorskip("transformers")

from entrenar.data import HFTokenizer, load_tokenizer, train_bpe  # noqa: E402

TEXT = "the boat has a flat bottom; the saw has teeth. naïve café: 3.14 × 2, 👩‍👩‍👧 한국어\n"
HARD = [
    "",
    "the boat",
    "  two  spaces\n\n\ttab",
    "é 한 👩‍👩‍👧 🇸🇪",
    "a<|endoftext|>b <pad>",
    "don't I'll 123 4_5",
    "\r\n\0",
]


@pytest.mark.parametrize("special", [None, {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}])
@pytest.mark.parametrize("auto", [False, True])
def test_transformers_loads_what_is_trained_here(tmp_path, special, auto):
    ours = train_bpe([TEXT] * 3, 310, special)
    ours.save(tmp_path)
    if auto:
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    else:
        theirs = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert len(theirs) == ours.vocab_size and theirs.special_tokens_map == ours.special_tokens
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert getattr(theirs, name) == getattr(ours, name)
    for text in HARD:
        ids = ours.encode(text).tolist()
        assert theirs.encode(text) == ids and theirs.decode(ids) == ours.decode(ids) == text
        found = theirs(text, return_offsets_mapping=True, add_special_tokens=False)
        mine = ours.encode_with_offsets(text, add_special_tokens=False)
        assert found["input_ids"] == mine[0].tolist() and found["offset_mapping"] == list(map(tuple, mine[1].tolist()))
        assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids, skip_special_tokens=True)


def test_what_they_save_and_we_save_is_the_same_tokenizer(tmp_path):
    ours = train_bpe([TEXT] * 3, 310, {"bos_token": "<s>", "eos_token": "</s>", "image_token": "<img>"})
    splitting = HFTokenizer(ours.tokenizer, ours.special_tokens)
    splitting.tokenizer.encode_special_tokens = True
    splitting.save(tmp_path / "a")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "a")
    theirs.save_pretrained(tmp_path / "b")
    again = load_tokenizer(tmp_path / "b")
    text = "the <s> boat</s><img>"
    assert theirs.encode(text) == again.encode(text).tolist() == splitting.encode(text).tolist()
    assert len(again.encode(text)) > 9 and again.special_tokens == ours.special_tokens
    assert json.loads((tmp_path / "a" / "tokenizer_config.json").read_text())["split_special_tokens"] is True
