"""Chat templates: where they are found, what they see, what they refuse, and that a text has one BOS."""

import builtins
import json
import sys

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from entrenar.data import ChatTemplate, HFTokenizer, NoChatTemplate, chat
from entrenar.io import DataError

CHATML = """{% for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}, {"role": "user", "content": "él"}]
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]


@pytest.fixture(scope="module")
def tokenizer():
    """Byte-level, with a post-processor that puts a BOS before every text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=280, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(["the boat has teeth"], trainer)
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return HFTokenizer(made, {"bos_token": "<s>", "eos_token": "</s>"})


def write(folder, template=None, jinja=None, **config):
    folder.mkdir(exist_ok=True)
    given = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, **config}
    (folder / "tokenizer_config.json").write_text(
        json.dumps(given if template is None else {**given, "chat_template": template})
    )
    if jinja is not None:
        (folder / "chat_template.jinja").write_text(jinja)
    return folder


def test_a_conversation_as_text():
    template = ChatTemplate(CHATML)
    assert template.render(TALK[:2]) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nho<|im_end|>\n"
    assert template.render(TALK, add_generation_prompt=True).endswith("él<|im_end|>\n<|im_start|>assistant\n")


def test_where_templates_are_found(tmp_path):
    show = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    assert ChatTemplate.load(write(tmp_path / "a", show)).render(TALK) == "<s>hi</s>"
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": show}]
    folder = write(tmp_path / "b", named)
    assert ChatTemplate.load(folder).render(TALK) == "<s>hi</s>"
    assert ChatTemplate.load(folder, "tool_use").render(TALK) == "tools"
    with pytest.raises(NoChatTemplate, match=r"no chat template 'tool_us'.*Did you mean 'tool_use'"):
        ChatTemplate.load(folder, "tool_us")
    # a file of its own stands above the configuration
    folder = write(tmp_path / "c", "{{ 'not this' }}", "file: " + show)
    assert ChatTemplate.load(folder).render(TALK) == "file: <s>hi</s>"
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("rag")
    assert ChatTemplate.load(folder, "rag").render(TALK) == "rag"
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "special_tokens_map.json").write_text('{"bos_token": "<old>"}')
    (tmp_path / "old" / "chat_template.jinja").write_text("{{ bos_token }}{{ eos_token is defined }}")
    assert ChatTemplate.load(tmp_path / "old").render(TALK) == "<old>False"


def test_no_template_and_broken_ones_are_named(tmp_path):
    with pytest.raises(NoChatTemplate, match=r"chat_template\.jinja.*tokenizer_config\.json \(no such file\)"):
        ChatTemplate.load(tmp_path)
    with pytest.raises(NoChatTemplate, match=r"looked for chat_template\.jinja.*tokenizer_config\.json$"):
        ChatTemplate.load(write(tmp_path / "without"))
    for wrong in (3, {"default": "x"}, ["x"], [{"name": "default"}], [{"name": 3, "template": "x"}]):
        with pytest.raises(DataError, match=r"tokenizer_config\.json: chat_template must be text, or a list"):
            ChatTemplate.load(write(tmp_path / "wrong", wrong))
    with pytest.raises(DataError, match=r"tokenizer_config\.json: line 2 of the chat template: .*endfor"):
        ChatTemplate.load(write(tmp_path / "syntax", "{% for m in messages %}\n{% endif %}"))
    (tmp_path / "syntax" / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"chat_template\.jinja: cannot be read"):
        ChatTemplate.load(tmp_path / "syntax")


def test_what_a_template_may_use():
    def shown(source, **names):
        return ChatTemplate(source, {"bos_token": "<s>"}, "t.jinja").render(TALK, **names)

    # blank lines of tags vanish, as published templates expect
    assert shown("{% if true %}\n  {% set x = 1 %}\na\n{% endif %}\nb") == "a\nb"
    assert (
        shown("{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}") == "user"
    )
    assert (
        shown("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role[0] }}{% endfor %}") == "au"
    )
    assert shown("{{ {'é': '<'} | tojson }}|{{ [1, 2] | tojson(indent=1) }}") == '{"é": "<"}|[\n 1,\n 2\n]'
    assert shown("{{ strftime_now('%Y')|int > 2000 }}") == "True"
    assert shown("{{ tools is none }} {{ documents is none }} {{ nothing is defined }}") == "True True False"
    assert shown("{{ thinking }}", thinking="yes") == "yes"
    assert shown("{{ bos_token }}", bos_token="<t>") == "<t>"
    assert (
        shown("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}")
        == "3"
    )
    assert shown("{{ dict(a=1).a }}") == "1"
    marked = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}\n{% endfor %}"
    assert shown(marked) == "hihoél"


def test_a_template_cannot_get_out():
    for source in (
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append({}) }}",
        "{{ bos_token.__init__.__globals__ }}",
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ strftime_now.__globals__['json'] }}",
    ):
        with pytest.raises(DataError, match=r"t\.jinja: the chat template fails: SecurityError"):
            ChatTemplate(source, {"bos_token": "<s>"}, "t.jinja").render(TALK)


def test_a_template_refuses_or_fails():
    template = ChatTemplate("{{ raise_exception('roles must alternate') }}", file="t.jinja")
    with pytest.raises(ValueError, match=r"t\.jinja: the chat template refuses these messages: roles must alternate"):
        template.render(TALK)
    for source, error in (
        ("{{ nothing.at_all }}", "UndefinedError"),
        ("{{ 'a' + 1 }}", "TypeError"),
        ("{{ 1 / 0 }}", ""),
    ):
        with pytest.raises(DataError, match=rf"t\.jinja: the chat template fails: {error}"):
            ChatTemplate(source, file="t.jinja").render(TALK)
    with pytest.raises(DataError, match="range"):
        ChatTemplate("{% for n in range(10**9) %}{% endfor %}").render(TALK)


@pytest.mark.parametrize(
    ("messages", "error", "told"),
    [
        ([], ValueError, "messages is empty"),
        ("hi", TypeError, "messages must be a list of dicts with role and content, got str"),
        ({"role": "user", "content": "a"}, TypeError, "got dict"),
        (["hi"], TypeError, r"messages\[0\] must be a dict .*got str"),
        ([TALK[0], {"content": "a"}], ValueError, r"messages\[1\] has no 'role': its keys are \['content'\]"),
        ([{"role": "user"}], ValueError, r"messages\[0\] has no 'content'"),
        ([{"role": "user", "contnet": "a"}], ValueError, "has no 'content'.*Is 'contnet' meant for it"),
        ([{"role": "user", "content": None}], ValueError, "has no 'content'"),
        ([{"role": "asistant", "content": "a"}], ValueError, r"'asistant'.*Did you mean 'assistant'"),
        ([{"role": 3, "content": "a"}], ValueError, r"messages\[0\]\['role'\] is 3"),
        ([{"role": "user", "content": 3}], TypeError, r"messages\[0\]\['content'\] must be text or a list of parts"),
        ([{"role": "user", "content": [{"type": "image"}]}], TypeError, r"\['content'\]\[0\] must be .*'image'"),
        ([{"role": "user", "content": "a", "x": object()}], TypeError, r"messages\[0\] holds what JSON cannot"),
    ],
)
def test_wrong_messages_are_named(messages, error, told):
    with pytest.raises(error, match=told):
        ChatTemplate(CHATML).render(messages)


def test_messages_that_are_right_in_other_ways():
    show = ChatTemplate("{% for m in messages %}{{ m | tojson }}{% endfor %}")
    assert show.render([{"role": "user", "content": "a", "name": None}]) == '{"role": "user", "content": "a"}'
    calls = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}
    assert '"tool_calls": [{"function": {"name": "f"}}]' in show.render((TALK[0], calls))
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert ChatTemplate("{{ messages[0].content[1].text }}").render([{"role": "user", "content": parts}]) == "b"
    observed = ChatTemplate(CHATML, roles=[*chat.ROLES, "observation"])
    assert "observation" in observed.render([{"role": "observation", "content": "a"}])


def test_a_conversation_has_one_bos(tokenizer):  # case 166
    once = ChatTemplate("{{ bos_token }}" + CHATML, tokenizer.special_tokens)
    ids = once.encode(tokenizer, TALK, add_generation_prompt=True).tolist()
    assert ids[0] == 0 and ids.count(0) == 1
    assert tokenizer.decode(ids) == once.render(TALK, add_generation_prompt=True)
    twice = ChatTemplate("{{ bos_token }}{{ bos_token }}" + CHATML, tokenizer.special_tokens, "t.jinja")
    with pytest.warns(UserWarning, match=r"t\.jinja: the text begins with 2 BOS tokens \(id 0\); one is kept"):
        assert twice.encode(tokenizer, TALK, add_generation_prompt=True).tolist() == ids
    # a BOS per exchange is what some were trained on, and a template without one was trained without it
    each = ChatTemplate("{% for m in messages %}{{ bos_token + m.content }}{% endfor %}", tokenizer.special_tokens)
    assert each.encode(tokenizer, TALK).tolist().count(0) == 3
    assert 0 not in ChatTemplate(CHATML).encode(tokenizer, TALK).tolist()


def test_without_jinja_it_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] == "jinja2":
            raise ImportError("no jinja2")
        return real(name, *rest)

    chat._environment.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'entrenar\[chat\]'"):
        ChatTemplate(CHATML)
    monkeypatch.undo()
    monkeypatch.setattr(sys.modules["jinja2"], "__version__", "3.1.5")
    with pytest.raises(ImportError, match=r"3\.1\.6, whose sandbox is safe; here is 3\.1\.5"):
        ChatTemplate(CHATML)
