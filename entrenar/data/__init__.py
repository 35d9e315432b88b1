"""F5: text files, tokenizers, chat templates, batches, and the n-gram baselines."""

from .batches import TokenBatches, Windows
from .chat import ROLES, ChatTemplate, NoChatTemplate, checked_messages, single_bos
from .ngram import NGram
from .text import STDLIB, TextFiles, is_held_out, read_texts
from .tokenizer import CharTokenizer
from .tokenizer_file import HFTokenizer, load_tokenizer

__all__ = [
    "ROLES",
    "STDLIB",
    "CharTokenizer",
    "ChatTemplate",
    "HFTokenizer",
    "NGram",
    "NoChatTemplate",
    "TextFiles",
    "TokenBatches",
    "Windows",
    "checked_messages",
    "is_held_out",
    "load_tokenizer",
    "read_texts",
    "single_bos",
]
