"""F5: text files, tokenizers, chat templates, batches, and the n-gram baselines."""

from .batch import Batch
from .batches import TokenBatches, Windows
from .bpe import train_bpe
from .byte import ByteTokenizer
from .chat import ROLES, ChatTemplate, NoChatTemplate, checked_messages, single_bos
from .conversations import ChatEncoder
from .encoding import ENCODERS, EncodedRecords, Encoder, PairEncoder, TextEncoder, TokenEncoder, encoder_for
from .example import Example
from .fields import KINDS, Fields, choose_fields
from .formats import FORMATS, Record
from .interface import Tokenizer
from .loading import load_tokenizer
from .ngram import NGram
from .records import Part, Records, read_records, take_held_out
from .rows import first_fit, packed_batch, padded_batch
from .spans import assistant_spans
from .text import STDLIB, TextFiles, is_held_out, read_texts
from .tokenizer import CharTokenizer
from .tokenizer_file import HFTokenizer

__all__ = [
    "ENCODERS",
    "FORMATS",
    "KINDS",
    "ROLES",
    "STDLIB",
    "Batch",
    "ByteTokenizer",
    "CharTokenizer",
    "ChatEncoder",
    "ChatTemplate",
    "EncodedRecords",
    "Encoder",
    "Example",
    "Fields",
    "HFTokenizer",
    "NGram",
    "NoChatTemplate",
    "PairEncoder",
    "Part",
    "Record",
    "Records",
    "TextEncoder",
    "TextFiles",
    "TokenBatches",
    "TokenEncoder",
    "Tokenizer",
    "Windows",
    "assistant_spans",
    "checked_messages",
    "choose_fields",
    "encoder_for",
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
