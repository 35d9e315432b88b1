"""Chat templates: how a folder writes a conversation as text.  Jinja, rendered as transformers renders it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from ..array import Array, nearest
from ..array.errors import missing_extra
from ..io import DataError, atomic_write
from .interface import Tokenizer
from .tokenizer_file import CONFIG, json_object, named_tokens, tokenizer_config

FILE, MORE = "chat_template.jinja", "additional_chat_templates"
ROLES = ("system", "developer", "user", "assistant", "tool")
MARKS = "\ufdd0", "\ufdd1"  # where the assistant begins and ends; two noncharacters, which no text holds
_marking: ContextVar[bool] = ContextVar("marking", default=False)
SAFE = (3, 1, 6)  # templates are other people's code, and older sandboxes let it out


class NoChatTemplate(DataError):
    """A folder that has no chat template."""


class ChatTemplate:
    """A template of messages.

    source: Jinja.  special_tokens: what the template may call bos_token, eos_token and so on.  file: named in errors.
    roles: those that a message may have.
    Raises ImportError without jinja2 (extra ``chat``), DataError for a syntax error, with its line.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        file: str | Path = "chat template",
        roles: Sequence[str] = ROLES,
    ) -> None:
        self.source, self.special_tokens = source, dict(special_tokens or {})
        self.file, self.roles = str(file), tuple(roles)
        environment = _environment()
        from jinja2 import TemplateSyntaxError

        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise DataError(f"{self.file}: line {error.lineno} of the chat template: {error.message}") from None

    @classmethod
    def load(cls, folder: str | Path, name: str = "default") -> ChatTemplate:
        """The template of a folder: chat_template.jinja, else chat_template of tokenizer_config.json.

        name: of one that stands beside the default ("tool_use", "rag"), where a folder has several.
        Raises NoChatTemplate naming where it was looked for, DataError for a broken file.
        """
        folder = Path(folder)
        named, file = _templates(folder)
        if not named:
            raise NoChatTemplate(
                f"{folder}: no chat template: looked for {FILE}, and for chat_template in {CONFIG}"
                f"{'' if (folder / CONFIG).exists() else ' (no such file)'}"
            )
        if name not in named:
            raise NoChatTemplate(f"{file}: no chat template {name!r}: known are {sorted(named)}.{nearest(name, named)}")
        return cls(named[name], named_tokens(tokenizer_config(folder)), file)

    def __repr__(self) -> str:
        return f"ChatTemplate({self.file}, {len(self.source)} characters)"

    @cached_property
    def marked(self) -> bool:
        """Whether the template marks what the assistant says, by ``{% generation %}``."""
        tokens = [(kind, value) for _, kind, value in _environment().lex(self.source) if kind != "whitespace"]
        return any(a[0] == "block_begin" and b == ("name", "generation") for a, b in pairwise(tokens))

    def save(self, folder: str | Path) -> None:
        """Write chat_template.jinja into a folder, atomically."""
        atomic_write(Path(folder) / FILE, self.source)

    def render(self, messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = False, **names: Any) -> str:
        """The text of a conversation.

        messages: each with a role, and content: text, or a list of parts {"type": "text", "text": ...}; a message with
        tool_calls needs none.  Further keys are the template's; those that are None are left out.
        add_generation_prompt: end where the assistant's answer begins.  names: further variables of the template; tools
        and documents are None unless given.
        Raises TypeError and ValueError naming the message and its key; ValueError with the template's words if it
        refuses the messages; DataError if it fails.
        """
        known = {"tools": None, "documents": None, **self.special_tokens, **names}
        chat = checked_messages(messages, self.roles)
        try:
            return self._template.render(messages=chat, add_generation_prompt=add_generation_prompt, **known)
        except _Refused as error:
            raise ValueError(f"{self.file}: the chat template refuses these messages: {error}") from None
        except Exception as e:
            raise DataError(f"{self.file}: the chat template fails: {type(e).__name__}: {e}") from None

    def encode(
        self,
        tokenizer: Tokenizer,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = False,
        **names: Any,
    ) -> Array:
        """The ids of the rendered text, int64 (T,).

        The template writes all special tokens itself, the first one (BOS) too, so the tokenizer adds none.  Where the
        text begins with more than one BOS, one is kept, with a warning.  Special tokens that a message spells out are
        read as such, as in transformers.  Arguments and errors as ``render``'s.
        """
        text = self.render(messages, add_generation_prompt, **names)
        return single_bos(tokenizer.encode(text, add_special_tokens=False), tokenizer.bos_token_id, self.file)


@contextmanager
def marking() -> Iterator[None]:
    """Within, MARKS stand in rendered texts around what ``{% generation %}`` marks."""
    before = _marking.set(True)
    try:
        yield
    finally:
        _marking.reset(before)


def single_bos(ids: Array, bos: int | None, place: str) -> Array:
    """The ids with one of the BOS tokens that they begin with; a warning names the place if there are more."""
    if bos is None:
        return ids
    other = np.flatnonzero(ids != bos)
    count = int(other[0]) if other.size else len(ids)
    if count < 2:
        return ids
    warnings.warn(f"{place}: the text begins with {count} BOS tokens (id {bos}); one is kept", stacklevel=3)
    return ids[count - 1 :]


def checked_messages(messages: Any, roles: Sequence[str] = ROLES) -> list[dict[str, Any]]:
    """A copy of the messages in plain lists, dicts, text and numbers, without keys that are None.

    Raises TypeError and ValueError naming the message and its key.
    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise TypeError(f"messages must be a list of dicts with role and content, got {type(messages).__name__}")
    if not messages:
        raise ValueError("messages is empty: give at least one message")
    return [_checked(n, message, roles) for n, message in enumerate(messages)]


def _checked(n: int, message: Any, roles: Sequence[str]) -> dict[str, Any]:
    at = f"messages[{n}]"
    if not isinstance(message, Mapping):
        raise TypeError(f"{at} must be a dict with role and content, got {type(message).__name__}")
    try:  # the template is code of somebody else's: it gets no object that could do anything
        plain = json.loads(json.dumps({key: value for key, value in message.items() if value is not None}))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{at} holds what JSON cannot: {error}") from None
    for key in ("role", "content"):
        if key not in plain and not (key == "content" and plain.get("tool_calls")):
            raise ValueError(f"{at} has no {key!r}: its keys are {sorted(plain)}.{_misspelt(key, plain)}")
    if plain["role"] not in roles:
        raise ValueError(
            f"{at}['role'] is {plain['role']!r}: expected one of {list(roles)}.{nearest(str(plain['role']), roles)}"
        )
    content = plain.get("content", "")
    if isinstance(content, list):
        for k, part in enumerate(content):
            if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
                raise TypeError(f"{at}['content'][{k}] must be {{'type': 'text', 'text': ...}}, got {part!r}")
    elif not isinstance(content, str):
        raise TypeError(f"{at}['content'] must be text or a list of parts, got {type(content).__name__}")
    return dict(plain)


def _misspelt(key: str, given: Mapping[str, Any]) -> str:
    """Which of the given keys may have been meant."""
    close = nearest(key, [name for name in given if name not in ("role", "content")])
    return close and f" Is {close.removeprefix(' Did you mean ').removesuffix('?')} meant for it?"


def _templates(folder: Path) -> tuple[dict[str, str], Path]:
    """Name -> source, and the file.  Files of Jinja stand above tokenizer_config.json, as in transformers."""
    paths = {"default": folder / FILE, **{p.stem: p for p in sorted((folder / MORE).glob("*.jinja"))}}
    try:
        found = {name: path.read_text(encoding="utf-8") for name, path in paths.items() if path.exists()}
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{folder / FILE}: cannot be read: {error}") from None
    if found:
        return found, folder / FILE
    file = folder / CONFIG
    given = json_object(file).get("chat_template")
    if given is None:
        return {}, file
    if isinstance(given, str):
        return {"default": given}, file
    if isinstance(given, list) and all(isinstance(row, dict) for row in given):
        named = {row.get("name"): row.get("template") for row in given}
        if all(isinstance(name, str) and isinstance(source, str) for name, source in named.items()):
            return named, file
    raise DataError(f"{file}: chat_template must be text, or a list of {{name, template}}, got {type(given).__name__}")


class _Refused(Exception):
    """What a template raises with raise_exception."""


def _refuse(message: Any) -> NoReturn:
    raise _Refused(str(message))


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    """Jinja's own ``tojson`` writes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@cache
def _environment() -> Any:
    """What transformers gives a template: a sandbox without blank lines of tags, loop controls, a few functions."""
    try:
        import jinja2
    except ImportError:
        raise missing_extra("jinja2", "chat", "a chat template") from None
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    numbers = tuple(int(n) for n in jinja2.__version__.split(".")[:3] if n.isdigit())
    if numbers < SAFE:
        raise ImportError(
            f"a chat template needs jinja2 3.1.6, whose sandbox is safe; here is {jinja2.__version__}: "
            "pip install -U 'entrenar[chat]'"
        )

    class Generation(Extension):
        """``{% generation %}...{% endgeneration %}`` marks what the assistant says; its body is rendered as it is."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

        def _said(self, caller: Any) -> str:
            begin, end = MARKS if _marking.get() else ("", "")
            return f"{begin}{caller()}{end}"

    class Names(Namespace):
        """A template's ``namespace``, without names that Python gives a meaning."""

        def __init__(*args: Any, **given: Any) -> None:
            for name in dict(*args[1:], **given):
                Names._check(name)
            Namespace.__init__(*args, **given)

        def __setitem__(self, name: str, value: Any) -> None:
            Names._check(name)
            super().__setitem__(name, value)

        @staticmethod
        def _check(name: str) -> None:
            if str(name).startswith("_"):
                raise jinja2.exceptions.SecurityError(f"a namespace holds no {name!r}")

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_refuse,
        strftime_now=lambda form: datetime.now().strftime(form),
        namespace=Names,
        dict=lambda *args, **given: dict(*args, **given),
    )
    return environment
