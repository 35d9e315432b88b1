"""tokenizer.json of other people's folders: ids, text, text in pieces, special tokens, broken files."""

import json
import shutil

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from entrenar.data import CharTokenizer, HFTokenizer, load_tokenizer
from entrenar.io import DataError

TEXT = [
    "the boat has a flat bottom and the saw has teeth\n",
    "naïve café, l'été dernier: 3.14 × 2\n",
    "the other boat\n",
]
HARD = "  two  spaces, 👩‍👩‍👧 e\u0301té 한국어 ไทย\n\n\ttab 🇸🇪🏳️‍🌈 end "
QUIET = {"show_progress": False}
SPECIAL = ["<unk>", "<s>", "</s>", "<pad>"]


def byte_level():
    """As GPT-2, Llama 3 and Qwen2 have it; with a BOS, as Llama 3."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        TEXT * 3, trainers.BpeTrainer(vocab_size=330, special_tokens=SPECIAL, initial_alphabet=alphabet, **QUIET)
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def byte_fallback():
    """As Llama 2 and Mistral have it: spaces are letters, what has no token is spelt in bytes."""
    trained = Tokenizer(models.BPE())
    spaces = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    trained.normalizer = normalizers.Sequence(spaces)
    lines = [text.strip() for text in TEXT * 3]  # a newline is spelt in bytes there
    trained.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=90, special_tokens=SPECIAL[:3], **QUIET))
    model = json.loads(trained.to_str())["model"]
    names = [*SPECIAL[:3], *(f"<0x{n:02X}>" for n in range(256)), *list(model["vocab"])[3:]]
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer = Tokenizer(
        models.BPE({name: n for n, name in enumerate(names)}, merges, byte_fallback=True, unk_token="<unk>")
    )
    tokenizer.normalizer = normalizers.Sequence(spaces)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(SPECIAL[:3])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def unigram():
    """As sentencepiece's unigram models come out of the conversion."""
    words = ["▁the", "▁boat", "▁", "▁▁", "▁sa", "w", "é", "s", *"abcdefghijklmnopqrstuvwxyz.,:0123456789"]
    pieces = dict.fromkeys([*SPECIAL, *(f"<0x{n:02X}>" for n in range(256)), *words])
    tokenizer = Tokenizer(models.Unigram([(p, -float(n)) for n, p in enumerate(pieces)], unk_id=0, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


def word_piece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(TEXT * 3, trainers.WordPieceTrainer(vocab_size=90, special_tokens=SPECIAL, **QUIET))
    return tokenizer


def word_ends():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.BPEDecoder()
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=SPECIAL, end_of_word_suffix="</w>", **QUIET)
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    return tokenizer


def words():
    """No decoder at all: tokens are joined by spaces."""
    known = {name: n for n, name in enumerate([*SPECIAL, "the", "boat", "has"])}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


KINDS = {f.__name__: f() for f in (byte_level, byte_fallback, unigram, word_piece, word_ends, words)}
EXACT = ["byte_level", "byte_fallback"]  # those that lose nothing of a text


def write(folder, tokenizer=None, **files):
    folder.mkdir(exist_ok=True)
    (tokenizer or KINDS["byte_level"]).save(str(folder / "tokenizer.json"))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_ids_and_text_are_those_of_the_library(tmp_path, kind):
    theirs, ours = KINDS[kind], load_tokenizer(write(tmp_path, KINDS[kind]))
    for text in ("the boat", "", " the  saw\n", HARD):
        for special in (True, False):
            ids = ours.encode(text, add_special_tokens=special)
            assert ids.dtype == np.int64 and ids.tolist() == theirs.encode(text, add_special_tokens=special).ids
            for skip in (True, False):
                assert ours.decode(ids, skip) == theirs.decode(ids.tolist(), skip_special_tokens=skip)
        if kind in EXACT:
            assert ours.decode(ours.encode(text), skip_special_tokens=True) == text
    assert ours.vocab_size == theirs.get_vocab_size() == len(theirs.get_vocab())


def test_padding_and_truncation_of_a_file_do_not_touch_a_text(tmp_path):
    tokenizer = byte_level()
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=64)
    assert HFTokenizer.load(write(tmp_path, tokenizer)).encode("the boat has").tolist() == (
        KINDS["byte_level"].encode("the boat has").ids
    )


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_pieces_of_any_ids_join_to_their_text(kind, skip, data):
    tokenizer = HFTokenizer(KINDS[kind])
    some = st.integers(0, tokenizer.vocab_size - 1)
    if kind in ("byte_fallback", "unigram"):  # runs of bytes, whole and broken, are what is hard there
        byte = st.integers(0, 255).map(lambda n: tokenizer.tokenizer.token_to_id(f"<0x{n:02X}>"))
        some = some | byte | st.sampled_from(tokenizer.encode("▁ ▁▁ € é", add_special_tokens=False).tolist())
    ids = data.draw(st.lists(some, max_size=24))
    pieces = list(tokenizer.decode_stream(ids, skip))
    assert "".join(pieces) == tokenizer.decode(ids, skip) and "" not in pieces


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_of_a_text_hold_whole_characters_and_come_early(kind):
    tokenizer = HFTokenizer(KINDS[kind])
    ids = tokenizer.encode(HARD, add_special_tokens=False).tolist()
    given_so_far, seen = [], []
    for piece in tokenizer.decode_stream(seen.append(n) or n for n in ids):
        given_so_far.append(piece)
        if kind == "byte_level" and len(seen) < len(ids):
            # as soon as the characters of the ids so far are whole, they are out
            assert "".join(given_so_far) == tokenizer.decode(seen).rstrip("\ufffd")
    assert "".join(given_so_far) == tokenizer.decode(ids)
    assert not any("\ufffd" in piece for piece in given_so_far)


def test_a_plain_token_is_a_piece_at_once():
    for kind in ("byte_level", "byte_fallback", "unigram", "words"):
        tokenizer = HFTokenizer(KINDS[kind])
        ids = tokenizer.encode("the boat", add_special_tokens=False).tolist()
        drawn = []
        pieces = tokenizer.decode_stream(drawn.append(n) or n for n in ids)
        next(pieces)
        assert len(drawn) == 1, kind


@pytest.mark.parametrize(("kind", "text"), [("byte_level", "€"), ("byte_fallback", "€"), ("byte_fallback", "a€\n")])
def test_half_a_character_at_the_end_comes_out_as_decode_has_it(kind, text):
    tokenizer = HFTokenizer(KINDS[kind])
    ids = tokenizer.encode(text, add_special_tokens=False)
    for cut in range(len(ids) + 1):
        assert "".join(tokenizer.decode_stream(ids[:cut])) == tokenizer.decode(ids[:cut])


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("prompt", ["the boat", "the", " a€", "", "\n"])
def test_pieces_go_on_from_a_context(kind, prompt):
    tokenizer = HFTokenizer(KINDS[kind])
    before = tokenizer.encode(prompt)
    more = tokenizer.encode(" has teeth 한", add_special_tokens=False)
    if kind == "byte_fallback":
        more = more[1:]  # its first token is the space that every text begins with
    text = tokenizer.decode(np.concatenate([before, more]), skip_special_tokens=True)
    assert text.startswith(prompt)
    assert prompt + "".join(tokenizer.decode_stream(more, True, context=before)) == text


def test_ids_outside_the_vocabulary_and_of_other_types():
    tokenizer = HFTokenizer(KINDS["words"])
    for call in (tokenizer.decode, lambda ids: list(tokenizer.decode_stream(ids))):
        for wrong in (7, -1):
            with pytest.raises(IndexError, match=rf"id {wrong} is outside the vocabulary of 7"):
                call([4, wrong])
        with pytest.raises(TypeError, match="integers"):
            call([1.5])
    assert tokenizer.decode([[4], [5]]) == "the boat" and tokenizer.decode([]) == ""
    with pytest.raises(TypeError, match="str"):
        tokenizer.encode(["the"])
    with pytest.raises(ValueError, match="at 1 is half of a character"):
        tokenizer.encode("a\ud83d")


def test_special_tokens_as_newer_and_older_folders_name_them(tmp_path):
    newer = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False, "__type": "AddedToken"}}
    newer |= {"add_bos_token": True, "pad_token": None, "image_token": "<img>", "added_tokens_decoder": {}}
    tokenizer = load_tokenizer(
        write(tmp_path / "new", tokenizer_config=newer, special_tokens_map={"eos_token": "<pad>"})
    )
    assert tokenizer.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "image_token": "<img>"}
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, None)
    older = {"pad_token": {"content": "<pad>", "normalized": False}, "bos_token": "<s>"}
    tokenizer = load_tokenizer(write(tmp_path / "old", special_tokens_map=older))
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, None, 3)
    assert load_tokenizer(write(tmp_path / "bare")).special_tokens == {}


def test_tokens_that_only_the_configuration_calls_special(tmp_path):
    tokenizer = words()
    config = {"eos_token": "has", "additional_special_tokens": ["<|new|>"]}
    config["added_tokens_decoder"] = {"7": {"content": "<|said|>", "special": False, "normalized": False}}
    mine = load_tokenizer(write(tmp_path, tokenizer, tokenizer_config=config))
    assert mine.encode("the has<|new|>boat <|said|>").tolist() == [4, 6, 8, 5, 7] and mine.vocab_size == 9
    assert mine.decode([4, 6, 7, 8, 5], skip_special_tokens=True) == "the <|said|> boat"
    assert mine.eos_token_id == 6


def test_what_ends_a_text(tmp_path):
    eos = {"eos_token": "</s>"}
    assert load_tokenizer(write(tmp_path / "a", tokenizer_config=eos, config={"eos_token_id": 3})).end_ids == (3, 2)
    both = dict(config={"eos_token_id": 3}, generation_config={"eos_token_id": [2, 0]})
    assert load_tokenizer(write(tmp_path / "b", tokenizer_config=eos, **both)).end_ids == (2, 0)
    assert load_tokenizer(write(tmp_path / "c", generation_config={"eos_token_id": None})).end_ids == ()
    for wrong in ("</s>", [1, None], True, -1, 1.0):
        with pytest.raises(DataError, match=r"config\.json: eos_token_id must be an id or a list of them"):
            load_tokenizer(write(tmp_path / "d", config={"eos_token_id": wrong}))


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"tokenizer\.json: no such file.*save_pretrained"):
        load_tokenizer(tmp_path)
    write(tmp_path)
    whole = (tmp_path / "tokenizer.json").read_bytes()
    for broken in (b"", b"{", whole[: len(whole) // 2], b'{"version": "1.0"}', b"\xff\xfe", b"[]"):
        (tmp_path / "tokenizer.json").write_bytes(broken)
        with pytest.raises(DataError, match=r"tokenizer\.json: cannot be read as a tokenizer"):
            load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes(whole)
    for name in ("tokenizer_config", "special_tokens_map", "generation_config"):
        for broken, told in ((b"{'a': 1}", "not JSON"), (b"[]", "expected an object, got list"), (b"\xff", "not JSON")):
            (tmp_path / f"{name}.json").write_bytes(broken)
            with pytest.raises(DataError, match=rf"{name}\.json: {told}"):
                load_tokenizer(tmp_path)
        (tmp_path / f"{name}.json").unlink()
    for wrong in ({"7": 3}, {"x": "a"}, [1]):
        with pytest.raises(DataError, match=r"tokenizer_config\.json: its special tokens"):
            load_tokenizer(write(tmp_path, tokenizer_config={"added_tokens_decoder": wrong}))
    shutil.rmtree(tmp_path)
    (tmp_path / "tokenizer.json").mkdir(parents=True)
    with pytest.raises(DataError, match="cannot be read"):
        load_tokenizer(tmp_path)


def test_our_own_characters_come_back(tmp_path):
    CharTokenizer.train(["a boat"]).save(tmp_path / "tokenizer.json")
    tokenizer = load_tokenizer(tmp_path)
    assert isinstance(tokenizer, CharTokenizer)
    ids = tokenizer.encode("tab")
    assert list(tokenizer.decode_stream(ids)) == ["t", "a", "b"]
    (tmp_path / "tokenizer.json").write_text('{"type": "char"}')
    with pytest.raises(DataError, match="expected the keys type"):
        load_tokenizer(tmp_path)


def test_an_added_token_is_found_within_the_text(tmp_path):
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken("<|im_end|>", special=True)])
    mine = load_tokenizer(write(tmp_path, tokenizer))
    ids = mine.encode("the<|im_end|>boat")
    assert mine.tokenizer.token_to_id("<|im_end|>") in ids.tolist()
    assert mine.decode(ids, skip_special_tokens=True) == "theboat"
