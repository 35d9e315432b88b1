"""Byte-pair encoding trained here (Sennrich et al. 2016), on bytes, as GPT-2 has it (Radford et al. 2019)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping

from ..io import DataError
from .byte import BYTES
from .interface import checked_text
from .tokenizer_file import HFTokenizer

SPECIAL = {"eos_token": "<|endoftext|>"}


def train_bpe(texts: Iterable[str], vocab_size: int, special_tokens: Mapping[str, str] | None = None) -> HFTokenizer:
    """A tokenizer of ``vocab_size`` tokens: special ones, the 256 bytes, and the pairs that are most frequent in texts.

    special_tokens: name -> text, by default an eos_token; they take the first ids.  Any text has ids and comes back
    from them.  The same texts, in any order, give the same tokenizer.  ``save`` writes what transformers loads.
    Raises ValueError for a vocabulary too small for bytes and special tokens, DataError if there is no text; warns if
    the texts hold fewer pairs than were asked for.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    special = dict(SPECIAL if special_tokens is None else special_tokens)
    if len(set(special.values())) != len(special) or "" in special.values():
        raise ValueError(f"train_bpe: special tokens are texts, each once, got {special}")
    if vocab_size < BYTES + len(special):
        raise ValueError(
            f"train_bpe: vocab_size={vocab_size} is too small: {BYTES} bytes and {len(special)} special tokens are "
            f"{BYTES + len(special)}"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(text, special=True) for text in special.values()],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    count = 0

    def counted() -> Iterator[str]:
        nonlocal count
        for text in texts:
            count += len(checked_text(text))
            yield text

    tokenizer.train_from_iterator(counted(), trainer)
    if not count:
        raise DataError("train_bpe: no text to learn from")
    if (found := tokenizer.get_vocab_size()) < vocab_size:
        warnings.warn(
            f"train_bpe: {count} characters have only {found} tokens, {vocab_size} were asked for", stacklevel=2
        )
    return HFTokenizer(tokenizer, special)
