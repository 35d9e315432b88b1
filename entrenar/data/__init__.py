"""F5: text files, tokenizers, chat templates, batches, and the n-gram baselines."""

from .batch import Batch
from .batches import TokenBatches, Windows
from .chat import ROLES, ChatTemplate, NoChatTemplate, checked_messages, single_bos
from .example import Example
from .ngram import NGram
from .rows import first_fit, packed_batch, padded_batch
from .text import STDLIB, TextFiles, is_held_out, read_texts
from .tokenizer import CharTokenizer
from .tokenizer_file import HFTokenizer, load_tokenizer

__all__ = [
    "ROLES",
    "STDLIB",
    "Batch",
    "CharTokenizer",
    "ChatTemplate",
    "Example",
    "HFTokenizer",
    "NGram",
    "NoChatTemplate",
    "TextFiles",
    "TokenBatches",
    "Windows",
    "checked_messages",
    "first_fit",
    "is_held_out",
    "load_tokenizer",
    "packed_batch",
    "padded_batch",
    "read_texts",
    "single_bos",
]
