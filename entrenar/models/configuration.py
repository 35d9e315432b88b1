"""What the configurations of all architectures share: checked fields, and config.json with Hugging Face's names."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, TypeVar

from ..array import EntrenarError, nearest
from ..io import DataError

C = TypeVar("C", bound="ModelConfig")

# fields of config.json that no logit depends on: what a tokenizer, a sampler or another library's code reads
_INERT = """
    _attn_implementation _attn_implementation_autoset _name_or_path add_cross_attention architectures bad_words_ids
    begin_suppress_tokens chunk_size_feed_forward decoder_start_token_id do_sample dtype early_stopping
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing
    id2label is_decoder is_encoder_decoder keys_to_ignore_at_inference label2id length_penalty max_length min_length
    model_type n_ctx no_repeat_ngram_size num_beam_groups num_beams num_labels num_return_sequences output_attentions
    output_hidden_states output_past output_scores prefix pretraining_tp problem_type pruned_heads
    remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id suppress_tokens
    task_specific_params temperature tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript
    transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16 use_cache xla_device
"""
INERT = frozenset(_INERT.split())
# and those of them that change what is computed if they are set
OFF = (
    *("add_cross_attention", "chunk_size_feed_forward", "is_decoder", "is_encoder_decoder", "pruned_heads"),
    "tie_encoder_decoder",
)
LARGEST = 2**31  # above every size of a model, below what NumPy cannot count


class FieldError(EntrenarError, ValueError):
    """A field of a configuration is wrong.  field: its name."""

    def __init__(self, owner: str, field: str, text: str) -> None:
        super().__init__(f"{owner}: {text}")
        self.field, self.text = field, text


class ModelConfig:
    """Base of the frozen dataclasses whose fields are those of config.json.

    SIZES: fields that are positive integers.  RATES: in [0, 1).  NUMBERS: positive floats.  TOKENS: None or an id; the
    end token may be several.  FIXED: fields of Hugging Face's with the only value (or values, a tuple) that is computed
    here.  INERT: further fields that change nothing.
    ATTRIBUTES: the architecture's own names of what others call hidden_size, num_hidden_layers, ... (Hugging Face's
    attribute_map).  Raises FieldError, a ValueError, for a value of the wrong type or out of range.
    """

    MODEL_TYPE: ClassVar[str]
    CLASS: ClassVar[str]  # transformers' class of the weights
    ATTRIBUTES: ClassVar[Mapping[str, str]] = {}
    SIZES: ClassVar[tuple[str, ...]] = ()
    RATES: ClassVar[tuple[str, ...]] = ()
    NUMBERS: ClassVar[tuple[str, ...]] = ()
    TOKENS: ClassVar[tuple[str, ...]] = ("bos_token_id", "eos_token_id", "pad_token_id")
    FIXED: ClassVar[Mapping[str, Any]] = {}
    INERT: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            if isinstance(value := getattr(self, field.name), list):  # of JSON or YAML
                object.__setattr__(self, field.name, tuple(value))
        self.check_sizes(*self.SIZES)
        for name in self.RATES:
            if not (_real(getattr(self, name)) and 0 <= getattr(self, name) < 1):
                self.refuse(name, "must be in [0, 1)")
        for name in self.NUMBERS:
            if not (_real(getattr(self, name)) and 0 < getattr(self, name) <= sys.float_info.max):
                self.refuse(name, "must be a positive number")
        for name in self.TOKENS:
            self.check_token(name)
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.type in ("bool", bool) and not isinstance(value, bool):
                self.refuse(field.name, "must be True or False")
            if field.name in self.FIXED and value not in self.allowed(field.name):
                self.refuse(field.name, f"must be {' or '.join(map(repr, self.allowed(field.name)))}")

    def check_sizes(self, *names: str, optional: bool = False) -> None:
        """Refuse fields that are no positive integers (nor None, if they are optional)."""
        for name in names:
            value = getattr(self, name)
            if optional and value is None:
                continue
            if not _integer(value) or value < 1:
                self.refuse(name, "must be a positive integer" + " or None" * optional)
            if value >= LARGEST:
                self.refuse(name, f"must be below {LARGEST}")

    def check_token(self, name: str) -> None:
        """Refuse what is no token id.  Ids beyond the vocabulary are common in files, and are never drawn."""
        value = getattr(self, name, None)
        tokens = value if name == "eos_token_id" and isinstance(value, tuple) else (value,)
        if not all(token is None or _integer(token) for token in tokens):
            self.refuse(name, "must be None or an id" + (", or a tuple of ids" if name == "eos_token_id" else ""))

    def check_padding(self) -> None:
        """Refuse a pad_token_id that is neither None nor a token."""
        pad, size = self.attribute("pad_token_id"), self.attribute("vocab_size")
        if pad is not None and not (_integer(pad) and 0 <= pad < size):
            self.refuse("pad_token_id", f"must be None or an id in [0, {size})")

    def refuse(self, name: str, expected: str) -> None:
        """Raise FieldError naming a field, its value, and what was expected."""
        raise FieldError(type(self).__name__, name, f"{name} {expected}, got {getattr(self, name)!r}")

    def one_of(self, name: str, known: Collection[str]) -> None:
        """Raise FieldError unless a field is one of these words."""
        value = getattr(self, name)
        if not isinstance(value, str) or value not in known:
            text = f"unknown {name} {value!r}: known are {sorted(known)}.{nearest(str(value), known)}"
            raise FieldError(type(self).__name__, name, text)

    @classmethod
    def allowed(cls, name: str) -> tuple[Any, ...]:
        """The values of a fixed field."""
        found = cls.FIXED[name]
        return found if isinstance(found, tuple) else (found,)

    def attribute(self, name: str) -> Any:
        """A field by the name that most architectures have for it."""
        return getattr(self, self.ATTRIBUTES.get(name, name))

    def describe(self) -> str:
        """The sizes in words: "16 layers, 32 heads (8 of keys and values), width 2048, 8192 positions"."""
        layers, heads = self.attribute("num_hidden_layers"), self.attribute("num_attention_heads")
        shared = getattr(self, "num_key_value_heads", None) or heads
        grouped = "" if shared == heads else f" ({shared} of keys and values)"
        windows = [w for w in map(self.window, range(layers)) if w is not None]
        where = "" if len(windows) == layers else f" in {len(windows)} layers"
        return (
            f"{layers} layers, {heads} heads{grouped}, width {self.attribute('hidden_size')}, "
            f"{self.positions} positions{f', windows of {windows[0]}{where}' if windows else ''}"
        )

    @property
    def positions(self) -> int:
        """The most tokens a text may have."""
        found: int = self.attribute("max_position_embeddings")
        return found

    def window(self, layer: int) -> int | None:
        """How many tokens, itself included, a query of a layer sees; None for all."""
        return None

    @classmethod
    def from_hf(cls: type[C], given: Mapping[str, Any], ignore: Collection[str] = ()) -> C:
        """From the content of config.json.

        Raises DataError for an option that would change the result and is not computed here, and for an unknown one
        (unless it is null, or in ``ignore``); ValueError for a value out of range.
        """
        fields = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        options: dict[str, Any] = {}
        for name, value in cls.renamed(given).items():
            if name in ignore:
                continue
            if name in cls.FIXED:
                if value is not None and value not in cls.allowed(name):
                    raise DataError(
                        f"config.json: {name}={value!r} is not supported for {cls.MODEL_TYPE}: expected "
                        f"{' or '.join(map(repr, cls.allowed(name)))}"
                    )
            elif name in fields:
                options[name] = value
            elif name in OFF and value:
                raise DataError(
                    f"config.json: {name}={value!r} is not supported for {cls.MODEL_TYPE}: expected {False!r}"
                )
            elif name not in INERT and name not in cls.INERT and value is not None:
                raise DataError(
                    f"config.json: {name}={value!r} is unknown for {cls.MODEL_TYPE} and might change the result."
                    f"{nearest(name, fields | set(cls.FIXED))} If it does not matter, pass ignore=[{name!r}]"
                )
        return cls(**options)

    @classmethod
    def renamed(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """config.json under the names of the fields."""
        return dict(given)

    def to_hf(self) -> dict[str, Any]:
        """The content of config.json: every field, under Hugging Face's names, but for those that cannot differ."""
        names = [f.name for f in dataclasses.fields(self) if f.name not in self.FIXED]  # type: ignore[arg-type]
        fields = {name: getattr(self, name) for name in names}
        return {
            "architectures": [self.CLASS],
            "model_type": self.MODEL_TYPE,
            **{k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()},
        }


def _integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _real(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
