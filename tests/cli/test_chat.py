"""``entrenar chat``: conversations through a pipe and on a terminal."""

import json
import os
import select
import signal
import subprocess
import sys
import time

import pytest

import entrenar as en
from entrenar.cli.chat import Conversation, Interrupts, Unanswerable
from entrenar.cli.source import Drawing, locate, open_source
from entrenar.data import ChatTemplate, load_tokenizer
from entrenar.models import from_pretrained, generate

pty = pytest.importorskip("pty")
GREEDY = ("--temperature", 0)


def said(result):
    return result.stdout_bytes.decode()


def expected(path, lines, tokens, system=None, first=0, **options):
    """The answers that the library gives to these lines, each after the whole conversation before it."""
    tokenizer, model, template = load_tokenizer(path), from_pretrained(path), ChatTemplate.load(path)
    talk, answers = [] if system is None else [{"role": "system", "content": system}], []
    for n, line in enumerate(lines):
        talk.append({"role": "user", "content": line})
        ids = template.encode(tokenizer, talk, add_generation_prompt=True)
        given = {"temperature": 0.0, "seed": first + n, "stop_tokens": tokenizer.end_ids, **options}
        new = generate(model, ids, tokens, **given)[len(ids) :]
        answers.append(tokenizer.decode(new, skip_special_tokens=True))
        talk.append({"role": "assistant", "content": answers[-1]})
    return answers


def test_a_line_is_a_turn_and_the_whole_conversation_is_read(folder, call):
    path = folder()
    lines = ["the boat", "a saw é", "and?"]
    answers = expected(path, lines, 12)
    assert len(set(answers)) == 3
    result = call("chat", path, "-n", 12, *GREEDY, stdin="\n".join(["", *lines, " "]) + "\n")
    assert said(result) == "".join(answer + "\n" for answer in answers)
    assert result.stderr.splitlines() == ["(the answer was cut at --tokens 12)"] * 3
    # the last line without its end, other ends, nothing at all
    assert said(call("chat", path, "-n", 12, *GREEDY, stdin="\r\n".join(lines))) == said(result)
    assert said(call("chat", path, stdin="")) == ""


def test_the_system_message_and_the_options_reach_the_model(folder, call):
    path = folder()
    options = dict(temperature=1.2, top_k=40, top_p=0.9, min_p=0.02, repetition_penalty=1.2)
    given = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
    answers = expected(path, ["the boat", "the saw"], 15, system="Be brief.", first=7, **options)
    words = ("chat", path, "-n", 15, *given, "--seed", 7, "--system", "Be brief.")
    assert said(call(*words, stdin="the boat\nthe saw\n")) == "\n".join([*answers, ""])
    assert said(call(*words[:-2], stdin="the boat\nthe saw\n")) != "\n".join([*answers, ""])


def test_answers_end_at_the_end_tokens_and_stops(folder, call):
    path = folder()
    tokenizer = load_tokenizer(path)
    ids = ChatTemplate.load(path).encode(tokenizer, [{"role": "user", "content": "the"}], add_generation_prompt=True)
    drawn = generate(from_pretrained(path), ids, 30, 0.0)[len(ids) :].tolist()
    at = next(n for n in range(5, 30) if drawn[n] not in drawn[:n])
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [279, drawn[at]]}))
    result = call("chat", path, "-n", 30, *GREEDY, stdin="the\n")
    assert said(result) == tokenizer.decode(drawn[:at], skip_special_tokens=True) + "\n" and result.stderr == ""
    whole = tokenizer.decode(drawn, skip_special_tokens=True)
    assert said(call("chat", path, "-n", 30, *GREEDY, "--ignore-eos", stdin="the\n")) == whole + "\n"
    stop = whole[5]
    result = call("chat", path, "-n", 30, *GREEDY, "--ignore-eos", "--stop", stop, stdin="the\n")
    assert said(result) == whole[: whole.index(stop)] + "\n" and result.stderr == ""


def test_reset_and_exit(folder, call):
    path = folder()
    first, second = expected(path, ["the boat", "the saw"], 8)
    result = call("chat", path, "-n", 8, *GREEDY, stdin="the boat\nthe saw\n/reset\nthe boat\n/exit\nthe saw\n")
    assert said(result) == "".join(f"{answer}\n" for answer in (first, second, first))
    told = call("chat", path, "-n", 8, stdin="\n/rest\n", status=3).stderr
    assert "stdin, line 2: unknown command '/rest': known are /reset, /exit. Did you mean '/reset'?" in told
    assert (
        said(call("chat", path, "-n", 8, *GREEDY, stdin="/usr/bin is\n"))
        == expected(path, ["/usr/bin is"], 8)[0] + "\n"
    )


def conversation(path, tokens=8, **sampling):
    drawing = Drawing.checked(tokens, 0, (), False, **{"temperature": 0.0, **sampling})
    source = open_source(locate(str(path)), None, None, ())
    return Conversation(source, ChatTemplate.load(path), drawing, [{"role": "system", "content": "Be brief."}])


def test_the_oldest_exchanges_are_dropped_and_that_is_told(folder, capsys):
    talk = conversation(folder(positions=96))
    for n in range(9):
        pair = [{"role": "user", "content": f"{n} the boat"}, {"role": "assistant", "content": "a saw"}]
        talk.exchanges.append(pair)
    ids = talk.ids({"role": "user", "content": "and?"})
    text = talk.tokenizer.decode(ids)
    kept = len(talk.exchanges)
    assert 0 < kept < 9 and 96 + 1 - len(ids) >= 8
    assert text.startswith("<s><|im_start|>system\nBe brief.<|im_end|>\n")
    assert [f"{n} the boat" in text for n in range(9)] == [n >= 9 - kept for n in range(9)]
    assert text.endswith("<|im_start|>user\nand?<|im_end|>\n<|im_start|>assistant\n")
    assert f"(longer than the model's 96 positions: dropped the oldest {9 - kept} exchanges)" in capsys.readouterr().err
    # one more would not have fitted
    more = [*talk.opening, {"role": "user", "content": "8 the boat"}, {"role": "assistant", "content": "a saw"}]
    assert (
        len(ids)
        + len(talk.template.encode(talk.tokenizer, more))
        - len(talk.template.encode(talk.tokenizer, talk.opening))
        + 8
        > 96 + 1
    )
    talk.ids({"role": "user", "content": "and?"})
    assert capsys.readouterr().err == ""


def test_a_long_conversation_goes_on(folder, call):
    path = folder(positions=64)
    result = call("chat", path, "-n", 20, *GREEDY, "--ignore-eos", stdin="the boat\n" * 8)
    assert len(said(result).splitlines()) >= 8 and "dropped the oldest exchange" in result.stderr
    # an answer is never longer than the positions, whatever was asked for
    result = call("chat", path, "-n", 500, *GREEDY, "--ignore-eos", stdin="the boat\n")
    assert "the answer was cut at position 64" in result.stderr


def test_a_message_that_is_too_long_alone(folder, call, capsys):
    path = folder(positions=64)
    talk = conversation(path)
    talk.exchanges.append([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    with pytest.raises(Unanswerable, match="the model reads 64"):
        talk.ids({"role": "user", "content": "the boat " * 60})
    assert len(talk.exchanges) == 1 and capsys.readouterr().err == ""  # nothing was forgotten for it
    result = call("chat", path, "-n", 3, *GREEDY, stdin="the boat\n" + "the boat " * 60 + "\n", status=3)
    assert said(result) == expected(path, ["the boat"], 3)[0] + "\n"
    assert "stdin, line 2: too long: " in result.stderr


class Interrupted:
    """Drawing that is interrupted after the first of these tokens; without ``interrupts`` before it."""

    tokens, seed, stops = 8, 0, ()

    def __init__(self, tokens, interrupts=None):
        self.drawn, self.interrupts = tokens, interrupts

    def ids(self, *_):
        for token in self.drawn:
            if self.interrupts is None:
                raise KeyboardInterrupt
            yield token
            self.interrupts.came = True
        raise AssertionError("drawn on after an interrupt")


def test_what_was_said_before_an_interrupt_stays(folder, capsys):
    talk = conversation(folder())
    the = talk.tokenizer.encode("a", add_special_tokens=False)[0]
    interrupts = Interrupts()
    talk.drawing = Interrupted([the, the, the], interrupts)  # it comes while the second token is drawn
    talk.answer("and?", interrupts)
    assert [m["content"] for exchange in talk.exchanges for m in exchange] == ["and?", "aa"]
    assert capsys.readouterr() == ("aa\n", "(interrupted)\n")
    # the second Ctrl-C does not wait for a token; of an exchange without an answer nothing stays
    interrupts = Interrupts()
    interrupts.came = True
    talk.drawing = Interrupted([the])
    talk.answer("and then?", interrupts)
    assert len(talk.exchanges) == 1 and "nothing was said" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        talk.answer("and then?")
    with Interrupts().watched() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.came
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_doubled_bos_is_told_once(folder, call):
    path = folder(template="{{ bos_token + bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}")
    result = call("chat", path, "-n", 3, stdin="a\nb\n")
    assert result.stderr.count("begins with 2 BOS tokens") == 1


def test_lines_that_are_no_text(folder, call):
    told = call("chat", folder(), stdin=b"\xff\n", status=3).stderr
    assert "stdin, line 1: 'utf-8' codec can't decode" in told


def test_a_source_that_cannot_chat(folder, call, tmp_path):
    path = folder(tokenizer_config={"bos_token": "<s>"})
    told = call("chat", path, stdin="a\n", status=3).stderr
    assert "looked for chat_template.jinja, and for chat_template in tokenizer_config.json" in told
    assert f"`entrenar generate {path}` goes on from a text" in told
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("model: {}\n")
    assert "a run folder has no chat template" in call("chat", tmp_path / "run", stdin="", status=3).stderr
    config = en.models.BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    en.models.Bert(config).save_pretrained(tmp_path / "bert")
    assert "bert is an encoder" in call("chat", tmp_path / "bert", stdin="", status=3).stderr
    assert "no such folder" in call("chat", "./nowhere", stdin="", status=3).stderr
    (path / "chat_template.jinja").write_text("{% for %}")
    assert "chat_template.jinja: line 1 of the chat template" in call("chat", path, stdin="", status=3).stderr
    (path / "chat_template.jinja").write_text("{{ messages[7].content.x }}")
    assert "the chat template fails" in call("chat", path, stdin="", status=3).stderr
    (path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (path / "tokenizer.json").write_text('{"type": "char", "characters": "\\ufffdab"}')
    assert "knows characters only" in call("chat", path, stdin="", status=3).stderr


def test_a_system_message_that_the_template_refuses(folder, call):
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    path = folder(template=refusing + "{{ messages[-1].content }}")
    told = call("chat", path, "--system", "Be brief.", stdin="a\n", status=2).stderr
    assert "--system" in told and "no system role" in told
    assert call("chat", path, "-n", 2, stdin="a\n").stdout


def test_without_jinja_it_says_what_to_install(folder, call, monkeypatch):
    from entrenar.data import chat

    chat._environment.cache_clear()
    for name in [m for m in sys.modules if m.split(".")[0] == "jinja2"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "pip install 'entrenar[chat]'" in call("chat", folder(), stdin="a\n", status=1).stderr


def test_options_that_do_not_fit(folder, call):
    path = folder()
    for words in (("--tokens", 0), ("--top-p", 3), ("--dtype", "int8"), ("--checkpoint", "best"), ("--stop", "")):
        assert words[0] in call("chat", path, *words, stdin="", status=2).stderr


def command(*arguments):
    return [sys.executable, "-m", "entrenar", *(str(a) for a in arguments)]


def test_a_pipe_in_a_process_of_its_own(folder):
    path = folder()
    words = command("chat", path, "-n", 12, *GREEDY)
    done = subprocess.run(words, input="the boat é\n".encode(), capture_output=True, check=True, timeout=120)
    assert done.stdout.decode() == expected(path, ["the boat é"], 12)[0] + "\n"
    # a program that asks and waits has its answer before it asks again
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        for answer in expected(path, ["the boat", "the saw"], 12):
            process.stdin.write(b"the boat\n" if answer == expected(path, ["the boat"], 12)[0] else b"the saw\n")
            process.stdin.flush()
            wanted = answer.encode() + b"\n"
            assert process.stdout.read(len(wanted)) == wanted
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def test_an_interrupt_through_a_pipe_ends_with_130(folder):
    words = command("chat", folder(positions=2_000_000), "-n", 1_000_000, "--ignore-eos")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(b"the\nthe\n")
        process.stdin.flush()
        process.stdout.read(50)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130 and b"interrupted" in err


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, words, **streams):
        self.master, slave = pty.openpty()
        streams = {"stdin": slave, "stdout": slave, "stderr": slave, **streams}
        self.process = subprocess.Popen(words, start_new_session=True, env={**os.environ, "TERM": "dumb"}, **streams)
        os.close(slave)
        self.seen, self.at = "", 0

    def until(self, text):
        """What is shown up to and with the next ``text``."""
        deadline = time.monotonic() + 90
        while (found := self.seen.find(text, self.at)) < 0:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
        start, self.at = self.at, found + len(text)
        return self.seen[start : self.at]

    def write(self, text):
        os.write(self.master, text.encode())

    def end(self):
        status = self.process.wait(timeout=60)
        os.close(self.master)
        return status


@pytest.fixture
def terminal():
    opened = []

    def start(*arguments, **streams):
        opened.append(Terminal(command(*arguments), **streams))
        return opened[-1]

    yield start
    for one in opened:
        one.process.kill()
        one.process.wait()


def test_a_conversation_on_a_terminal(folder, terminal):
    path = folder()
    talk = terminal("chat", path, "-n", 6, *GREEDY)
    assert "/exit or Ctrl-D ends" in talk.until("> ")
    talk.write("/rest\n")
    assert "Did you mean '/reset'" in talk.until("'/reset'?)\r\n> ")
    talk.write("\n")
    talk.until("> ")
    talk.write("the boat\n")
    shown = talk.until("cut at --tokens 6)\r\n> ")
    answer = expected(path, ["the boat"], 6)[0]
    assert "".join(answer.split()) in "".join(shown.split())
    talk.write("/reset\n")
    talk.until("> ")
    talk.write("\x04")  # Ctrl-D
    assert talk.end() == 0


def test_an_interrupt_ends_the_answer_and_not_the_conversation(folder, terminal):
    talk = terminal("chat", folder(positions=2_000_000), "-n", 1_000_000, "--ignore-eos", "--temperature", 2)
    talk.until("> ")
    for _ in range(2):
        talk.write("the boat\n")
        talk.until("\ufffd")  # random weights soon draw bytes that are no text
        talk.process.send_signal(signal.SIGINT)
        talk.until("(interrupted)\r\n> ")
    time.sleep(0.5)  # the line editor notices a signal once it waits for a key
    talk.process.send_signal(signal.SIGINT)  # at the prompt
    assert talk.end() == 130


def test_only_answers_go_to_a_stdout_that_is_no_terminal(folder, terminal, tmp_path):
    path = folder()
    with open(tmp_path / "out", "wb") as out:
        talk = terminal("chat", path, "-n", 6, *GREEDY, stdout=out)
        talk.until("> ")
        talk.write("the boat\n")
        talk.until("6)\r\n> ")
        talk.write("/exit\n")
        assert talk.end() == 0
    assert (tmp_path / "out").read_bytes().decode() == expected(path, ["the boat"], 6)[0] + "\n"
