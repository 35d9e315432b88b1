"""F5: text, tokens, batches, and the n-gram baselines."""

from .batches import TokenBatches, Windows
from .ngram import NGram
from .text import STDLIB, TextFiles, is_held_out, read_texts
from .tokenizer import CharTokenizer

__all__ = ["STDLIB", "CharTokenizer", "NGram", "TextFiles", "TokenBatches", "Windows", "is_held_out", "read_texts"]
