"""What every tokenizer does alike; bytes; BPE trained here; where tokenizers are loaded from."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer as Library

from entrenar.data import ByteTokenizer, CharTokenizer, HFTokenizer, Tokenizer, load_tokenizer, loading, train_bpe
from entrenar.io import DataError

TEXT = "the boat has a flat bottom; the saw has teeth. naïve café: 3.14 × 2, 👩‍👩‍👧 한국어\n"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
MAKERS = {
    "char": lambda: CharTokenizer.train([TEXT]),
    "byte": ByteTokenizer,
    "bpe": lambda: train_bpe([TEXT] * 3, 300, SPECIAL),
}
MADE = {name: make() for name, make in MAKERS.items()}
WITH_SPECIAL = [name for name in MADE if MADE[name].special_tokens]
any_text = st.text(st.characters(codec="utf-8")) | st.text(st.sampled_from(TEXT))


@pytest.mark.parametrize("name", MADE)
@given(text=any_text)
def test_ids_text_and_offsets(name, text):
    tokenizer = MADE[name]
    ids, offsets = tokenizer.encode_with_offsets(text, add_special_tokens=False)
    assert ids.dtype == offsets.dtype == np.int64 and offsets.shape == (len(ids), 2)
    assert tokenizer.encode(text).tolist() == ids.tolist()
    if name != "char" or set(text) <= set(TEXT):
        assert tokenizer.decode(ids) == text
    assert "".join(tokenizer.decode_stream(ids)) == tokenizer.decode(ids)
    # every character is covered, in order, and each token's characters are those that it alone spells
    assert sorted({i for a, b in offsets.tolist() for i in range(a, b)}) == list(range(len(text)))
    assert (np.diff(offsets[:, 0]) >= 0).all() and (offsets[:, 0] < offsets[:, 1]).all()
    for token, (a, b) in zip(ids, offsets, strict=True):
        alone = tokenizer.decode(token)
        if "\ufffd" not in alone:
            assert alone == text[a:b]


@pytest.mark.parametrize("name", MADE)
@given(texts=st.lists(any_text, max_size=5))
def test_a_batch_of_texts(name, texts):
    tokenizer = MADE[name]
    found = tokenizer.encode_batch(texts)
    assert [ids.tolist() for ids in found] == [tokenizer.encode(text).tolist() for text in texts]
    assert all(ids.dtype == np.int64 for ids in found)


@pytest.mark.parametrize("name", ["byte", "bpe"])
@given(data=st.data())
def test_pieces_of_any_ids_join_to_their_text(name, data):
    tokenizer = MADE[name]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=20))
    for skip in (False, True):
        pieces = list(tokenizer.decode_stream(ids, skip))
        assert "".join(pieces) == tokenizer.decode(ids, skip) and "" not in pieces
    if name == "byte":
        kept = [n for n in ids if n < 256]
        assert tokenizer.decode(ids, skip_special_tokens=True) == bytes(kept).decode(errors="replace")


@pytest.mark.parametrize("name", MADE)
def test_saved_and_loaded_it_is_the_same(name, tmp_path):
    tokenizer = MADE[name]
    assert isinstance(tokenizer, Tokenizer)
    tokenizer.save(tmp_path / "folder")
    tokenizer.save(tmp_path / "other" / "tokenizer.json")
    for place in (tmp_path / "folder", str(tmp_path / "folder" / "tokenizer.json"), tmp_path / "other"):
        again = load_tokenizer(place)
        assert type(again) is type(tokenizer) and again.sha256 == tokenizer.sha256 == MAKERS[name]().sha256
        assert again.special_tokens == tokenizer.special_tokens and again.end_ids == tokenizer.end_ids
        assert (again.vocab_size, again.special_ids) == (tokenizer.vocab_size, tokenizer.special_ids)
        assert again.encode(TEXT + "</s>").tolist() == tokenizer.encode(TEXT + "</s>").tolist()
    assert type(tokenizer).load(tmp_path / "folder").sha256 == tokenizer.sha256


def test_tokenizers_that_differ_have_other_hashes():
    others = [
        *MADE.values(),
        CharTokenizer.train([TEXT + "ß"]),
        ByteTokenizer({"eos_token": "</s>"}),
        ByteTokenizer({"eos_token": "<s>"}),
        train_bpe([TEXT] * 3, 301, SPECIAL),
        train_bpe([TEXT] * 3, 300, {"eos_token": "</s>", "bos_token": "<s>"}),
        HFTokenizer(MADE["bpe"].tokenizer, {"eos_token": "<s>"}),
        HFTokenizer(MADE["bpe"].tokenizer, SPECIAL, end_ids=[5]),
    ]
    splitting = Library.from_str(MADE["bpe"].tokenizer.to_str())
    splitting.encode_special_tokens = True
    others.append(HFTokenizer(splitting, SPECIAL))
    assert len({tokenizer.sha256 for tokenizer in others}) == len(others)


@pytest.mark.parametrize("name", MADE)
def test_what_no_tokenizer_takes(name):
    tokenizer = MADE[name]
    for call in (tokenizer.encode, tokenizer.encode_with_offsets, lambda text: tokenizer.encode_batch([text])):
        with pytest.raises(TypeError, match="str"):
            call(["the"])
        if name != "char":
            with pytest.raises(ValueError, match="at 1 is half of a character"):
                call("a\ud83d")
    for wrong in (tokenizer.vocab_size, -1):
        with pytest.raises(IndexError, match=f"id {wrong} is outside the vocabulary of {tokenizer.vocab_size}"):
            tokenizer.decode([0, wrong])
        with pytest.raises(IndexError, match="outside"):
            list(tokenizer.decode_stream([0, wrong]))
    with pytest.raises(TypeError, match="integers"):
        tokenizer.decode([1.5])
    assert tokenizer.decode([]) == ""


@pytest.mark.parametrize("name", WITH_SPECIAL)
def test_special_tokens(name):
    tokenizer = MADE[name]
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    assert {bos, eos} <= tokenizer.special_ids and tokenizer.end_ids == (eos,) and tokenizer.token_id("nose") is None
    ids, offsets = tokenizer.encode_with_offsets("<s>é</s>x")
    assert ids[0] == bos and ids.tolist().count(eos) == 1
    assert offsets[0].tolist() == [0, 3] and offsets[ids == eos].tolist() == [[4, 8]] and offsets[-1].tolist() == [8, 9]
    assert tokenizer.decode(ids) == "<s>é</s>x" and tokenizer.decode(ids, skip_special_tokens=True) == "éx"
    assert "".join(tokenizer.decode_stream(ids, True)) == "éx"


# bytes --------------------------------------------------------------------------------------------------------
def test_bytes():
    tokenizer = ByteTokenizer({"eos_token": "<|end|>", "pad_token": "<|e"})
    assert tokenizer.vocab_size == 258 and tokenizer.pad_token_id == 257 and tokenizer.bos_token_id is None
    assert tokenizer.encode("aé<|end|><|e").tolist() == [97, 0xC3, 0xA9, 256, 257]
    assert list(tokenizer.decode_stream([0xC3, 0xA9, 97, 0xC3, 256])) == ["é", "a", "\ufffd<|end|>"]
    assert list(tokenizer.decode_stream([0xA9, 97], context=[97, 0xC3])) == ["é", "a"]
    assert ByteTokenizer({}).encode("</s>").tolist() == list(b"</s>") and ByteTokenizer({}).end_ids == ()
    for wrong in ({"a": "x", "b": "x"}, {"a": ""}, {"a": 3}):
        with pytest.raises(ValueError, match="special tokens are texts, each once"):
            ByteTokenizer(wrong)


# BPE ----------------------------------------------------------------------------------------------------------
def test_bpe_by_hand():
    tokenizer = train_bpe(["ab ab ab abc"], 259, {"eos_token": "<e>"})
    assert tokenizer.eos_token_id == 0 and tokenizer.vocab_size == 259
    ids = tokenizer.encode("ab<e>ab abc", add_special_tokens=True)
    assert [tokenizer.decode(n) for n in ids] == ["ab", "<e>", "ab", " ab", "c"]


def test_bpe_is_the_same_whatever_runs_it_and_in_whatever_order():
    code = (
        "import sys; from entrenar.data import train_bpe; texts = sys.stdin.read().split('|'); "
        "print(train_bpe(texts, 380).sha256)"
    )
    with open(os.__file__) as file:
        texts = file.read(60_000).split("|")
    hashes = set()
    for n, seed in enumerate(("0", "7")):
        env = os.environ | {"PYTHONHASHSEED": seed, "TOKENIZERS_PARALLELISM": ["true", "false"][n]}
        given_texts = "|".join(texts[::-1] if n else texts)
        how = dict(env=env, input=given_texts, stdout=subprocess.PIPE, text=True)
        done = subprocess.run([sys.executable, "-c", code], check=True, **how)
        hashes.add(done.stdout)
    assert len(hashes) == 1


def test_bpe_says_what_it_cannot_do():
    with pytest.raises(ValueError, match="vocab_size=256 is too small: 256 bytes and 1 special tokens are 257"):
        train_bpe([TEXT], 256)
    with pytest.raises(DataError, match="no text"):
        train_bpe(["", ""], 300)
    with pytest.raises(TypeError, match="expected a str, got int"):
        train_bpe([3], 300)
    with pytest.raises(ValueError, match="each once"):
        train_bpe([TEXT], 300, {"a": "x", "b": "x"})
    with pytest.warns(UserWarning, match="4 characters have only 259 tokens, 300 were asked for"):
        assert train_bpe(["abab"], 300).vocab_size == 259


def test_what_is_saved_keeps_every_end_and_name(tmp_path):
    special = {**SPECIAL, "image_token": "<img>", "boi": "<boi>"}
    made = train_bpe([TEXT], 280, special)
    tokenizer = HFTokenizer(made.tokenizer, special, end_ids=[2, 0])
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again.special_tokens == special and again.end_ids == (2, 0, 1)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 3}')
    tokenizer.save(tmp_path)
    assert json.loads((tmp_path / "generation_config.json").read_text()) == {"eos_token_id": 3}


# loading ------------------------------------------------------------------------------------------------------
def test_a_name_on_the_hub(tmp_path, monkeypatch):
    MADE["bpe"].save(tmp_path)
    asked = []
    monkeypatch.setattr(loading, "hub_folder", lambda *how: asked.append(how) or tmp_path)
    assert load_tokenizer("org/tiny").sha256 == MADE["bpe"].sha256
    ((name, files),) = asked
    assert name == "org/tiny" and "tokenizer.json" in files and not any("safetensors" in f for f in files)


def test_what_is_no_tokenizer(tmp_path):
    with pytest.raises(DataError, match="no such folder"):
        load_tokenizer(tmp_path / "none")
    with pytest.raises(DataError, match=r"none\.json: no such file"):
        load_tokenizer(tmp_path / "none.json")
    for content, told in (
        ('{"type": "bytes"}', r"a tokenizer of type 'bytes': .*Did you mean 'byte'"),
        ('{"type": "byte"}', "expected the keys type"),
        ('{"type": "byte", "special_tokens": 3}', "tokenizer.json: "),
        ('{"type": "byte', "cannot be read as a tokenizer"),
        ('{"type": "char", "characters": "ab"}', "the first character"),
    ):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(DataError, match=told):
            load_tokenizer(tmp_path)
