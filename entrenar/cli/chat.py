"""``entrenar chat``: a conversation on a terminal, or one line a turn from a pipe."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import typer

from ..array import Array, nearest
from ..data import ChatTemplate, HFTokenizer, NoChatTemplate
from ..io import DataError
from .source import Drawing, Place, Source, check_decoder, locate, open_source, say, told_on_stderr, until

COMMANDS = ("/reset", "/exit")
Message = dict[str, str]


def run_chat(name: str, system: str | None, drawing: Drawing, dtype: str | None, ignore: Collection[str]) -> None:
    """Answer each line of stdin until it ends.

    name: a Hugging Face folder, or a name on the hub.  system: what the conversation begins with.
    Raises DataError for a source that cannot chat and for a line of a pipe that cannot be answered,
    typer.BadParameter for an option or a system message that cannot be used.
    """
    place = locate(name)
    check_decoder(place)
    template = _template(place, name)
    opening = [] if system is None else [{"role": "system", "content": system}]
    try:  # what would fail after the weights are read fails now
        template.render([*opening, {"role": "user", "content": "a"}], add_generation_prompt=True)
    except DataError:
        raise
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--system") from None
    conversation = Conversation(open_source(place, None, dtype, ignore), template, drawing, opening)
    if sys.stdin.isatty():
        _talk(conversation)
    else:
        _answer_lines(conversation)


def _template(place: Place, name: str) -> ChatTemplate:
    advice = f"`entrenar generate {name}` goes on from a text"
    if place.run:
        raise DataError(f"{place.folder}: a run folder has no chat template. {advice}")
    try:
        return ChatTemplate.load(place.folder)
    except NoChatTemplate as error:
        raise DataError(f"{error}. {advice}") from None


class Unanswerable(DataError):
    """A message that cannot be put to the model."""


class Conversation:
    """What was said.  opening: the system message, if there is one.  exchanges: pairs of user and assistant."""

    def __init__(self, source: Source, template: ChatTemplate, drawing: Drawing, opening: list[Message]) -> None:
        if not isinstance(source.tokenizer, HFTokenizer):
            raise DataError(f"{source.place.folder}: its tokenizer knows characters only, no messages")
        self.tokenizer = source.tokenizer
        self.source, self.template, self.drawing, self.opening = source, template, drawing, opening
        self.exchanges: list[list[Message]] = []
        self.turn = 0
        self.told: set[str] = set()

    def reset(self) -> None:
        """Forget all but the system message."""
        self.exchanges.clear()
        self.turn = 0

    def ids(self, user: Message) -> Array:
        """The conversation with the user's next message, int64 (T,), up to where the answer begins.

        Where a quarter of the positions (or the answer, if it is to be shorter) does not remain, the oldest exchanges
        are dropped, which stderr is told.  Raises Unanswerable for a message that is too long alone, or no text.
        """
        limit, kept = self.source.positions, list(self.exchanges)
        wanted = min(self.drawing.tokens, max(limit // 4, 1))
        while True:
            said = [*self.opening, *(message for exchange in kept for message in exchange), user]
            try:
                with told_on_stderr(self.told):
                    ids = self.template.encode(self.tokenizer, said, add_generation_prompt=True)
            except ValueError as error:
                raise Unanswerable(str(error)) from None
            if limit + 1 - len(ids) >= wanted or not kept:
                break
            del kept[0]
        if len(ids) > limit:
            raise Unanswerable(f"too long: {len(ids)} tokens with what the template adds, the model reads {limit}")
        if gone := len(self.exchanges) - len(kept):
            things = "exchange" if gone == 1 else f"{gone} exchanges"
            _tell(f"longer than the model's {limit} positions: dropped the oldest {things}")
            self.exchanges = kept
        return self.source.checked(ids)

    def answer(self, text: str, interrupts: Interrupts | None = None) -> None:
        """Say the answer to a message, and keep both; after an interrupt what was said by then."""
        user = {"role": "user", "content": text}
        ids = self.ids(user)
        room = self.source.positions + 1 - len(ids)  # the last token is not read
        tokens = min(self.drawing.tokens, room)
        used_up = False

        def new() -> Iterator[int]:
            nonlocal used_up
            count = 0
            for token in self.drawing.ids(self.source, ids, tokens, self.drawing.seed + self.turn):
                yield token
                count += 1
                if interrupts is not None and interrupts.came:
                    return
            used_up = count == tokens

        said = ""
        try:
            for piece in until(self.source.text(new()), self.drawing.stops):
                said += piece
                say(piece)
        except KeyboardInterrupt:
            if interrupts is None:
                raise
        say("\n")
        self.turn += 1
        if interrupts is not None and interrupts.came and not said:
            return _tell("interrupted: nothing was said, the message is forgotten")
        self.exchanges.append([user, {"role": "assistant", "content": said}])
        if interrupts is not None and interrupts.came:
            _tell("interrupted")
        elif used_up:
            reason = f"--tokens {tokens}" if tokens == self.drawing.tokens else f"position {self.source.positions}"
            _tell(f"the answer was cut at {reason}")


class Interrupts:
    """Whether Ctrl-C came.  The first one asks an answer to end, a second one does not wait for the token at work."""

    came = False

    @contextmanager
    def watched(self) -> Iterator[Interrupts]:
        """Note SIGINT instead of raising KeyboardInterrupt."""

        def note(number: int, frame: FrameType | None) -> None:
            if self.came:
                raise KeyboardInterrupt
            self.came = True

        before = signal.signal(signal.SIGINT, note)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)


def _talk(conversation: Conversation) -> None:
    """On a terminal: ask, answer, go on after a mistake.  Ends with EOFError (Ctrl-D) or /exit."""
    with suppress(ImportError):  # lines can be edited and called back, where the platform has it
        import readline  # noqa: F401
    _tell("/reset forgets, /exit or Ctrl-D ends, Ctrl-C ends an answer")
    while True:
        try:
            text = _ask()
            if text == "/exit":
                return
            if text == "/reset":
                conversation.reset()
            elif unknown := _unknown(text):
                _tell(unknown)
            elif text.strip():
                with Interrupts().watched() as interrupts:
                    conversation.answer(text, interrupts)
        except EOFError:
            say("\n")
            return
        except KeyboardInterrupt:
            say("\n")
            raise
        except (Unanswerable, UnicodeDecodeError) as error:
            _tell(str(error))


def _ask() -> str:
    """A line from the terminal.  Where stdout is not one, only answers go there.  Raises EOFError at its end."""
    if sys.stdout.isatty():
        return input("> ")
    typer.echo("> ", nl=False, err=True)
    if not (line := sys.stdin.readline()):
        raise EOFError
    return line.rstrip("\r\n")


def _answer_lines(conversation: Conversation) -> None:
    """From a pipe: a line is a turn, a blank line is none.  Raises DataError naming a line that cannot be answered."""
    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            text = line.decode("utf-8").rstrip("\r\n")
            if text == "/exit":
                return
            if text == "/reset":
                conversation.reset()
            elif unknown := _unknown(text):
                raise Unanswerable(unknown)
            elif text.strip():
                conversation.answer(text)
        except (Unanswerable, UnicodeDecodeError) as error:
            raise DataError(f"stdin, line {number}: {error}") from None


def _unknown(text: str) -> str:
    """What to say of a command that is none, "" for anything else."""
    if text in COMMANDS or not re.fullmatch(r"/\w+", text):
        return ""
    return f"unknown command {text!r}: known are {', '.join(COMMANDS)}.{nearest(text, COMMANDS)}"


def _tell(text: str) -> None:
    typer.echo(f"({text})", err=True)
