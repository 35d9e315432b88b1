"""What ``generate`` and ``chat`` share: a model and tokenizer from a folder or the hub, and text drawn from them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from ..array import Array, as_dtype, is_float, nearest
from ..data import CharTokenizer, HFTokenizer, load_tokenizer, single_bos
from ..io import DataError, hub_folder
from ..models import MODELS, from_pretrained, stream
from ..models.decoder import Decoder
from ..models.folders import read_config
from ..models.sampling import Sampling
from ..train import load_run

RUN, MODEL = "config.yaml", "config.json"
DTYPES = ("float32", "float64", "bfloat16", "float16")


@dataclass(frozen=True)
class Place:
    """Where a source lies.  run: a run folder of ours, else a Hugging Face folder."""

    folder: Path
    run: bool


@dataclass(frozen=True)
class Source:
    """A causal language model and its tokenizer.  ends: the tokens that end a text."""

    model: Any
    tokenizer: CharTokenizer | HFTokenizer
    place: Place

    @property
    def positions(self) -> int:
        """How many tokens the model reads."""
        return int(self.model.config.positions)

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a text.  Those beyond the model's table are never drawn."""
        named = self.tokenizer.end_ids if isinstance(self.tokenizer, HFTokenizer) else ()
        return tuple(n for n in named if n < self.model.config.vocab_size)

    def encode(self, prompt: str) -> Array:
        """The ids of a prompt, with what the tokenizer puts around every text.

        Raises ValueError for a character that a run does not know, DataError as ``checked``.
        """
        if isinstance(self.tokenizer, CharTokenizer):
            try:
                return self.tokenizer.encode(prompt, unknown="error")
            except DataError as error:
                raise ValueError(str(error)) from None
        with told_on_stderr():
            return self.checked(single_bos(self.tokenizer.encode(prompt), self.tokenizer.bos_token_id, "the prompt"))

    def checked(self, ids: Array) -> Array:
        """The ids, if the model has a row for each.  Raises DataError for another model's tokenizer."""
        rows = self.model.config.vocab_size
        if ids.size and ids.max() >= rows:
            raise DataError(
                f"{self.place.folder}: the text has token id {ids.max()}, the model's table has {rows} rows: "
                "tokenizer.json and the weights do not belong together"
            )
        return ids

    def text(self, ids: Iterable[int], context: Any = ()) -> Iterator[str]:
        """The text of new ids in pieces, without special tokens; rows of the table that no token has give none."""
        tokenizer = self.tokenizer
        known = (n for n in ids if n < tokenizer.vocab_size)
        if isinstance(tokenizer, CharTokenizer):
            return tokenizer.decode_stream(known)
        return tokenizer.decode_stream(known, skip_special_tokens=True, context=context)


@dataclass(frozen=True)
class Drawing:
    """How text is drawn.  tokens: at most so many.  stops: texts that end it.  ignore_eos: go on past end tokens."""

    tokens: int
    sampling: Sampling
    seed: int
    stops: tuple[str, ...] = ()
    ignore_eos: bool = False

    @classmethod
    def checked(cls, tokens: int, seed: int, stops: Sequence[str] | None, ignore_eos: bool, **sampling: Any) -> Drawing:
        """From the options of a command.  Raises typer.BadParameter naming one that is out of range."""
        if "" in (stops or ()):
            raise typer.BadParameter("an empty text ends every text", param_hint="--stop")
        try:
            return cls(tokens, Sampling(**sampling), seed, tuple(stops or ()), ignore_eos)
        except ValueError as error:
            told = str(error).removeprefix("generate: ")
            raise typer.BadParameter(told, param_hint=f"--{told.split()[0].replace('_', '-')}") from None

    def ids(self, source: Source, ids: Array, tokens: int, seed: int) -> Iterator[int]:
        """New tokens as they are drawn, without the one that ends the text."""
        ends = () if self.ignore_eos else source.ends
        s = self.sampling
        options: dict[str, Any] = dict(top_p=s.top_p, min_p=s.min_p, repetition_penalty=s.repetition_penalty)
        for new in stream(source.model, ids, tokens, s.temperature, s.top_k, seed, stop_tokens=ends, **options):
            if (token := int(new[0])) in ends:
                return
            yield token


def locate(name: str) -> Place:
    """The folder of a source: a run folder, a Hugging Face folder, or a name on the hub, downloaded on first use.

    Raises DataError for a folder that is neither, and for a name that the hub does not have.
    """
    folder = Path(name).expanduser()
    if not name or not folder.is_dir():
        try:
            return Place(hub_folder(name), run=False)
        except DataError as error:
            raise DataError(
                f"{name!r} is not a run folder and not a Hugging Face folder; as a name on the hub: {error}"
            ) from None
    if (folder / MODEL).exists():
        return Place(folder, run=False)
    if (folder / RUN).exists():
        return Place(folder, run=True)
    raise DataError(f"{folder}: not a run folder (no {RUN}) and not a Hugging Face folder (no {MODEL})")


def open_source(place: Place, checkpoint: str | None, dtype: str | None, ignore: Collection[str]) -> Source:
    """Tokenizer and model.

    checkpoint: of a run, "best" (if None) or "last".  dtype: of the weights, the file's if None.  ignore: options of
    config.json known not to matter.
    Raises typer.BadParameter for an option that does not apply, DataError for a model that draws no text.
    """
    if checkpoint not in (None, "best", "last"):
        raise typer.BadParameter(f"{checkpoint!r} is neither best nor last", param_hint="--checkpoint")
    if dtype is not None:
        _check_dtype(dtype)
    if place.run:
        if ignore:
            raise typer.BadParameter(f"{place.folder} is a run folder, it has no {MODEL}", param_hint="--ignore")
        model, characters, _ = load_run(place.folder, checkpoint or "best")
        return Source(model if dtype is None else model.to(dtype), characters, place)
    if checkpoint is not None:
        raise typer.BadParameter(
            f"{place.folder} is not a run folder: it has no checkpoints", param_hint="--checkpoint"
        )
    check_decoder(place)
    tokenizer = load_tokenizer(place.folder)
    return Source(from_pretrained(place.folder, dtype, ignore=ignore), tokenizer, place)


def check_decoder(place: Place) -> None:
    """Raise DataError for a folder whose model draws no text."""
    family = None if place.run else read_config(place.folder).get("model_type")
    if family in MODELS and not issubclass(MODELS[family][1], Decoder):
        decoders = sorted(name for name, (_, cls) in MODELS.items() if issubclass(cls, Decoder))
        raise DataError(
            f"{place.folder}: {family} is an encoder: it gives vectors and draws no text. Those that do: {decoders}"
        )


def _check_dtype(dtype: str) -> None:
    try:
        known = is_float(as_dtype(dtype))
    except TypeError:
        known = False
    if not known:
        raise typer.BadParameter(
            f"{dtype!r} is not one of {', '.join(DTYPES)}.{nearest(dtype, DTYPES)}", param_hint="--dtype"
        )


def until(pieces: Iterable[str], stops: Sequence[str]) -> Iterator[str]:
    """The pieces up to the first of the texts ``stops``; what may be the beginning of one waits."""
    held = ""
    for piece in pieces:
        held += piece
        found = [at for stop in stops if (at := held.find(stop)) >= 0]
        if found:
            held = held[: min(found)]
            break
        keep = max((n for stop in stops for n in range(1, len(stop)) if held.endswith(stop[:n])), default=0)
        if len(held) > keep:
            yield held[: len(held) - keep]
            held = held[len(held) - keep :]
    if held:
        yield held


def say(text: str) -> None:
    """Write to stdout at once; a sign that it cannot show becomes a question mark."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.stdout.write(text)
    sys.stdout.flush()


@contextmanager
def told_on_stderr(seen: set[str] | None = None) -> Iterator[None]:
    """Warnings become lines on stderr, without those in ``seen``, where they are entered."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for told in (str(warning.message) for warning in caught):
        if seen is None or told not in seen:
            typer.echo(f"warning: {told}", err=True)
            if seen is not None:
                seen.add(told)
