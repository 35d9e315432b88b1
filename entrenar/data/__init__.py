"""F5: text files, tokenizers, chat templates, batches, and the n-gram baselines."""

from .batch import Batch
from .batches import TokenBatches, Windows
from .bpe import train_bpe
from .byte import ByteTokenizer
from .chat import ROLES, ChatTemplate, NoChatTemplate, checked_messages, single_bos
from .example import Example
from .fields import KINDS, Fields, choose_fields
from .formats import FORMATS, Record
from .interface import Tokenizer
from .loading import load_tokenizer
from .ngram import NGram
from .records import Part, Records, read_records, take_held_out
from .rows import first_fit, packed_batch, padded_batch
from .text import STDLIB, TextFiles, is_held_out, read_texts
from .tokenizer import CharTokenizer
from .tokenizer_file import HFTokenizer

__all__ = [
    "FORMATS",
    "KINDS",
    "ROLES",
    "STDLIB",
    "Batch",
    "ByteTokenizer",
    "CharTokenizer",
    "ChatTemplate",
    "Example",
    "Fields",
    "HFTokenizer",
    "NGram",
    "NoChatTemplate",
    "Part",
    "Record",
    "Records",
    "TextFiles",
    "TokenBatches",
    "Tokenizer",
    "Windows",
    "checked_messages",
    "choose_fields",
    "first_fit",
    "is_held_out",
    "load_tokenizer",
    "packed_batch",
    "padded_batch",
    "read_records",
    "read_texts",
    "single_bos",
    "take_held_out",
    "train_bpe",
]
