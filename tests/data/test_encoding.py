"""Which tokens of a record are trained: texts, prompts and responses, teachers' logs."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer as Library, decoders, models, normalizers, pre_tokenizers, processors

from entrenar.data import (
    ENCODERS,
    ByteTokenizer,
    CharTokenizer,
    ChatTemplate,
    EncodedRecords,
    Fields,
    HFTokenizer,
    PairEncoder,
    Record,
    TextEncoder,
    TokenEncoder,
    choose_fields,
    encoder_for,
    read_records,
    train_bpe,
)
from entrenar.data.encoding import CHUNK
from entrenar.io import DataError

TEXT = "the boat has a flat bottom; the saw has teeth. naïve café: question answer 2+2=4\n"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
BOS, EOS = 0, 1


def framed(single):
    """A byte-level tokenizer that puts this around every text."""
    made = train_bpe([TEXT] * 3, 300, SPECIAL)
    if single != "$A":
        made.tokenizer.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=[("<s>", BOS), ("</s>", EOS)]
        )
    return made


def sentencepiece():
    """As Llama 2 has it: a space before every text, what has no token in bytes."""
    names = [
        "<s>",
        "</s>",
        "<unk>",
        *(f"<0x{n:02X}>" for n in range(256)),
        "▁",
        "a",
        "n",
        "s",
        "w",
        "an",
        "▁a",
        "▁an",
        "sw",
    ]
    merges = [("a", "n"), ("▁", "a"), ("▁", "an"), ("s", "w")]
    made = Library(models.BPE({n: i for i, n in enumerate(names)}, merges, byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.add_special_tokens(["<s>", "</s>"])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    return HFTokenizer(made, SPECIAL)


KINDS = {single: framed(single) for single in ("$A", "<s> $A", "$A </s>", "<s> $A </s>")} | {"sp": sentencepiece()}


def record(**fields):
    return Record("data.jsonl:7", fields)


def trained(tokenizer, example):
    """The text of the tokens that are trained."""
    weights = np.ones(len(example.ids)) if example.weights is None else example.weights
    return tokenizer.decode(example.ids[weights > 0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("eos", [None, True, False])
def test_a_text_has_its_frame_once(kind, eos):
    tokenizer = KINDS[kind]
    for text in ("the boat", "the boat</s>", "xy"):
        (example,) = TextEncoder(tokenizer, eos=eos)([record(text=text)])
        ids = example.ids.tolist()
        assert ids.count(BOS) == ids[:1].count(BOS) == (kind in ("sp", "<s> $A", "<s> $A </s>"))
        assert ids.count(EOS) == ids[-1:].count(EOS) == (eos is not False or text.endswith("</s>") or "</s>" in kind)
        inner = [n for n in ids if n not in (BOS, EOS)]
        assert inner == tokenizer.encode(text.removesuffix("</s>"), add_special_tokens=False).tolist()
        assert example.weights is None and example.place == "data.jsonl:7" and example.ids.dtype == np.int64


def test_a_doubled_bos_is_one_with_a_warning():  # case 166
    tokenizer = KINDS["<s> $A"]
    with pytest.warns(UserWarning, match=r"data\.jsonl:7: the text begins with 2 BOS tokens"):
        (example,) = TextEncoder(tokenizer)([record(text="<s>the boat")])
    assert example.ids.tolist() == [BOS, *tokenizer.encode("the boat", False), EOS]
    with pytest.warns(UserWarning, match="2 BOS"):
        (example,) = PairEncoder(tokenizer)([record(prompt="<s>the", response=" boat")])
    assert example.ids.tolist().count(BOS) == 1 and trained(tokenizer, example) == " boat</s>"
    (example,) = TextEncoder(KINDS["$A"])([record(text="<s>the boat")])
    assert example.ids.tolist().count(BOS) == 1


PAIRS = [
    ("question: 2+2=", "4"),
    ("the", " boat"),
    ("the ", "boat"),
    ("the bo", "at has"),
    ("", "saw"),
    ("naï", "ve\n"),
    ("a", "</s>"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("prompt", "response"), PAIRS)
def test_a_response_is_trained_from_its_first_token_to_eos(kind, prompt, response):  # case 165
    tokenizer = KINDS[kind]
    if not prompt and kind in ("$A", "$A </s>"):
        with pytest.raises(DataError, match=r"data\.jsonl:7: nothing stands before the response"):
            PairEncoder(tokenizer)([record(prompt=prompt, response=response)])
        return
    (example,) = PairEncoder(tokenizer)([record(prompt=prompt, response=response)])
    asked = tokenizer.encode(prompt).tolist()
    asked = asked[:-1] if "</s>" in kind else asked  # an EOS is not between a prompt and its response
    assert example.ids[: len(asked)].tolist() == asked
    assert example.weights.tolist() == [0] * len(asked) + [1] * (len(example.ids) - len(asked))
    assert example.ids.tolist().count(EOS) == 1 and example.ids[-1] == EOS
    if kind != "sp":
        assert trained(tokenizer, example) == response.removesuffix("</s>") + "</s>"
        assert tokenizer.decode(example.ids, skip_special_tokens=True) == (prompt + response).removesuffix("</s>")


def test_a_token_across_the_border_is_the_prompts_own():
    tokenizer = KINDS["$A"]
    (example,) = PairEncoder(tokenizer)([record(prompt="the bo", response="at has")])
    assert len(tokenizer.encode("the boat")) < len(tokenizer.encode("the bo")) + len(tokenizer.encode("at"))
    assert example.ids.tolist() == [*tokenizer.encode("the bo"), *tokenizer.encode("at has"), EOS]


def test_the_response_goes_on_without_a_space_of_its_own():
    tokenizer = KINDS["sp"]
    (example,) = PairEncoder(tokenizer)([record(prompt="an", response="sw")])
    assert tokenizer.decode(example.ids, skip_special_tokens=True) == "answ"
    # alone it would have the space that begins every text
    assert tokenizer.decode(tokenizer.encode("sw", False)[:1]) != "s"


@pytest.mark.parametrize("kind", ["$A", "<s> $A", "<s> $A </s>"])
@given(prompt=st.text(st.sampled_from(TEXT), min_size=1), response=st.text(st.sampled_from(TEXT), min_size=1))
def test_any_pair_is_its_text_with_the_response_trained(kind, prompt, response):
    tokenizer = KINDS[kind]
    (example,) = PairEncoder(tokenizer, separator="\n\n")([record(prompt=prompt, response=response)])
    begun = example.ids[example.weights == 0]
    assert tokenizer.decode(begun, True) == prompt + "\n\n" and trained(tokenizer, example) == response + "</s>"
    assert begun.tolist() == example.ids[: len(begun)].tolist()
    bare = tokenizer.encode(prompt + "\n\n", add_special_tokens=False).tolist()
    assert begun.tolist()[len(begun) - len(bare) :] == bare  # as a prompt is asked


def test_a_teachers_log():
    tokenizer = KINDS["<s> $A"]
    encode = PairEncoder(tokenizer, separator=" | ", weight="score")
    half, none = encode([record(prompt="2+2=", response="4", score=0.5), record(prompt="a", response="b", score=2)])
    assert half.weights[-2:].tolist() == [0.5, 0.5] and set(half.weights.tolist()) == {0, 0.5}
    assert tokenizer.decode(half.ids) == "<s>2+2= | 4</s>" and set(none.weights.tolist()) == {0, 2}
    for wrong in (-1, "x", None, float("nan"), float("inf"), True, [1]):
        with pytest.raises(DataError, match=r"data\.jsonl:7: field 'score' must be a number of at least 0"):
            encode([record(prompt="a", response="b", score=wrong)])
    with pytest.raises(DataError, match=r"data\.jsonl:7: none of its \d tokens is trained"):
        encode([record(prompt="a", response="b", score=0)])
    assert encode([record(prompt="a", response="b", score="0.5")])[0].weights[-1] == 0.5  # CSV holds text


def test_tokens_with_their_mask():
    tokenizer = KINDS["$A"]
    encode = TokenEncoder(tokenizer, weights="mask")
    (example,) = encode([record(input_ids=[5, 6, 7], mask=[0, 0.5, 1])])
    assert example.ids.tolist() == [5, 6, 7] and example.weights.tolist() == [0, 0.5, 1]
    assert TokenEncoder(tokenizer)([record(input_ids=[5, 6])])[0].weights is None
    for fields, told in (
        ({"input_ids": "5 6", "mask": []}, "field 'input_ids' must be a list, got str"),
        ({"input_ids": [5, 6.0], "mask": [1, 1]}, "must hold integers, got 6.0"),
        ({"input_ids": [True, 6], "mask": [1, 1]}, "must hold integers, got True"),
        ({"input_ids": [5, 300], "mask": [1, 1]}, "id 300 is outside the vocabulary of 300 tokens"),
        ({"input_ids": [5, 6], "mask": [1]}, r"2 ids have weights of shape \(1,\)"),
        ({"input_ids": [5, 6], "mask": [1, -1]}, "the weight of token 1 is -1.0"),
        ({"input_ids": [5, 6], "mask": [1, "x"]}, "could not convert"),
        ({"input_ids": [5, 6], "mask": [1, 0]}, "none of its 2 tokens is trained"),
        ({"input_ids": [5], "mask": [1]}, "nothing to predict"),
        ({"input_ids": [5, 6]}, "no field 'mask'"),
    ):
        with pytest.raises(DataError, match=rf"^data\.jsonl:7: .*{told}|^data\.jsonl:7: {told}"):
            encode([record(**fields)])


@pytest.mark.parametrize(
    "tokenizer", [KINDS["$A"], ByteTokenizer(), CharTokenizer.train([TEXT])], ids=["bpe", "byte", "char"]
)
def test_texts_that_cannot_be_trained_on(tokenizer):
    for value, told in ((3, "must be text, got int"), (None, "got NoneType"), ("", "is empty")):
        with pytest.raises(DataError, match=f"data.jsonl:7: field 'text' .*{told}|{told}"):
            TextEncoder(tokenizer)([record(text="fine"), record(text=value)])
    with pytest.raises(DataError, match=r"data\.jsonl:7: no field 'text': found \['TEXT'\]\. Did you mean 'TEXT'"):
        TextEncoder(tokenizer)([record(TEXT="x")])
    if tokenizer.eos_token_id is None:
        with pytest.raises(DataError, match=r"data\.jsonl:7: 1 token\(s\): nothing to predict"):
            TextEncoder(tokenizer)([record(text="x")])
        for make in (lambda: PairEncoder(tokenizer), lambda: TextEncoder(tokenizer, eos=True)):
            with pytest.raises(ValueError, match="the tokenizer names no eos_token"):
                make()
        (example,) = PairEncoder(tokenizer, eos=False)([record(prompt="ab", response="c")])
        assert example.weights.tolist() == [0, 0, 1]
    else:
        with pytest.raises(DataError, match=r"data\.jsonl:8: .*half of a character"):
            TextEncoder(tokenizer)([record(text="a"), Record("data.jsonl:8", {"text": "b\ud83d"})])
        with pytest.raises(DataError, match=r"data\.jsonl:7: field 'response' is empty"):
            PairEncoder(tokenizer)([record(prompt="a", response="")])


# records ------------------------------------------------------------------------------------------------------
def test_records_become_examples_from_any_place(tmp_path):
    rows = [{"text": f"the boat {n}"} for n in range(2 * CHUNK + 3)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    records = read_records(tmp_path)
    source = EncodedRecords(records, encoder_for(choose_fields(records.first), KINDS["$A"]))
    whole = list(source.read())
    plain = [(e.ids.tolist(), e.place) for e, _ in whole]
    assert [KINDS["$A"].decode(e.ids) for e in source] == [row["text"] + "</s>" for row in rows]
    for n in (0, 1, CHUNK - 1, CHUNK, len(rows) - 1):
        assert [(e.ids.tolist(), e.place) for e, _ in source.read(whole[n][1])] == plain[n + 1 :]


def test_encoders_by_the_fields():
    template = ChatTemplate("{% generation %}x{% endgeneration %}")
    for kind, names in (
        ("text", {"text": "t"}),
        ("pair", {"prompt": "q", "response": "a", "weight": "w"}),
        ("tokens", {"input_ids": "i", "weights": "w"}),
        ("chat", {"messages": "m", "tools": "t"}),
    ):
        encode = encoder_for(Fields(kind, names), KINDS["$A"], template)
        assert type(encode) is ENCODERS[kind] and set(encode.fields) == set(names.values())
        assert json.loads(json.dumps(encode.options()))["kind"] == kind
    assert encoder_for(Fields("text", {"text": "t"}), KINDS["$A"], eos=False).options()["eos"] is False
    with pytest.raises(DataError, match="field 'm' holds messages: they need a chat template"):
        encoder_for(Fields("chat", {"messages": "m"}), KINDS["$A"])
    with pytest.raises(TypeError, match="eso"):
        encoder_for(Fields("text", {"text": "t"}), KINDS["$A"], eso=False)


def test_options_tell_encoders_apart():
    a, b = KINDS["$A"], KINDS["<s> $A"]
    template, other = ChatTemplate("a"), ChatTemplate("b")
    chat = ENCODERS["chat"]
    encoders = [
        TextEncoder(a),
        TextEncoder(b),
        TextEncoder(a, "more"),
        TextEncoder(a, eos=False),
        PairEncoder(a),
        PairEncoder(a, separator="|"),
        PairEncoder(a, weight="w"),
        PairEncoder(a, "q"),
        PairEncoder(a, eos=False),
        TokenEncoder(a),
        TokenEncoder(a, weights="w"),
        chat(a, template),
        chat(a, other),
        chat(a, template, end_tokens=["<s>"]),
        chat(a, template, names={"x": 1}),
        chat(a, template, tools="tools"),
        chat(a, ChatTemplate("a", {"bos_token": "x"})),
    ]
    assert len({json.dumps(e.options(), sort_keys=True) for e in encoders}) == len(encoders)


def test_a_frame_within_is_refused():
    made = Library(models.WordLevel({"a": 0, "[S]": 1}, unk_token="[S]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="[S] $A [S]", special_tokens=[("[S]", 1)])
    (example,) = TextEncoder(HFTokenizer(made))([record(text="a a")])
    assert example.ids.tolist() == [1, 0, 0, 1]
