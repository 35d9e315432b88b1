"""What the configurations of all architectures share: checked fields, and config.json with Hugging Face's names."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, TypeVar

from ..array import nearest
from ..io import DataError

C = TypeVar("C", bound="ModelConfig")

# fields of config.json that no logit depends on: what a tokenizer, a sampler or another library's code reads
_INERT = """
    _attn_implementation _attn_implementation_autoset _name_or_path add_cross_attention architectures bad_words_ids
    begin_suppress_tokens chunk_size_feed_forward decoder_start_token_id do_sample dtype early_stopping
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing
    id2label is_decoder is_encoder_decoder keys_to_ignore_at_inference label2id length_penalty max_length min_length
    model_type n_ctx no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_attentions
    output_hidden_states output_scores prefix pretraining_tp problem_type remove_invalid_values repetition_penalty
    return_dict return_dict_in_generate sep_token_id suppress_tokens task_specific_params temperature
    tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript transformers_version typical_p
    use_bfloat16 use_cache
"""
INERT = frozenset(_INERT.split())
# and those of them that change what is computed if they are set
OFF = ("add_cross_attention", "is_decoder", "is_encoder_decoder", "chunk_size_feed_forward", "tie_encoder_decoder")


class ModelConfig:
    """Base of the frozen dataclasses whose fields are those of config.json.

    SIZES: fields that are positive integers.  RATES: in [0, 1).  NUMBERS: positive floats.  FIXED: fields of Hugging
    Face's with the only value (or values, a tuple) that is computed here.  INERT: further fields that change nothing.
    """

    MODEL_TYPE: ClassVar[str]
    CLASS: ClassVar[str]  # transformers' class of the weights
    SIZES: ClassVar[tuple[str, ...]] = ()
    RATES: ClassVar[tuple[str, ...]] = ()
    NUMBERS: ClassVar[tuple[str, ...]] = ()
    FIXED: ClassVar[Mapping[str, Any]] = {}
    INERT: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        for name in self.SIZES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                self.refuse(name, "must be a positive integer")
        for name in self.RATES:
            if not 0 <= getattr(self, name) < 1:
                self.refuse(name, "must be in [0, 1)")
        for name in self.NUMBERS:
            if not 0 < getattr(self, name) < math.inf:
                self.refuse(name, "must be a positive number")

    def refuse(self, name: str, expected: str) -> None:
        """Raise ValueError naming a field, its value, and what was expected."""
        raise ValueError(f"{type(self).__name__}: {name} {expected}, got {getattr(self, name)!r}")

    def one_of(self, name: str, known: Collection[str]) -> None:
        """Raise ValueError unless a field is one of these words."""
        value = getattr(self, name)
        if value not in known:
            raise ValueError(
                f"{type(self).__name__}: unknown {name} {value!r}: known are {sorted(known)}."
                f"{nearest(str(value), known)}"
            )

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
            if name in fields:
                options[name] = tuple(value) if isinstance(value, list) else value
            elif name in cls.FIXED:
                allowed = cls.FIXED[name] if isinstance(cls.FIXED[name], tuple) else (cls.FIXED[name],)
                if value is not None and value not in allowed:
                    raise DataError(
                        f"config.json: {name}={value!r} is not supported for {cls.MODEL_TYPE}: expected "
                        f"{' or '.join(map(repr, allowed))}"
                    )
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
        """The content of config.json: every field, under Hugging Face's names."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {
            "architectures": [self.CLASS],
            "model_type": self.MODEL_TYPE,
            **{k: list(v) if isinstance(v, tuple) else v for k, v in fields.items()},
        }
