"""A model whose weights have published names: what files call them, what may be absent, what is no weight."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..autograd.tensor import raw
from ..nn import LoadReport, Module, StateDictError, init
from .blocks import Layers
from .embeddings import PaddedEmbedding

HEAD = "lm_head.weight"


class Published(Module):
    """Base of the rows of MODELS.

    PREFIX: what published names begin with and own ones do not.  BUFFERS: endings of names of old files that hold no
    weights.  TABLE: the embedding that a tied head is a copy of, if there is a head.
    """

    PREFIX: ClassVar[str] = ""
    BUFFERS: ClassVar[tuple[str, ...]] = ()
    TABLE: ClassVar[str | None] = None

    config: Any

    def gradient_checkpointing_enable(self, on: bool = True) -> None:
        """Keep each layer's input alone for backward, which runs the layer again: less memory for a third more work."""
        for module in self.modules():
            if isinstance(module, Layers):
                module.recompute = on

    def gradient_checkpointing_disable(self) -> None:
        """Keep what backward needs, again."""
        self.gradient_checkpointing_enable(False)

    @property
    def is_gradient_checkpointing(self) -> bool:
        """Whether backward runs layers again."""
        return any(module.recompute for module in self.modules() if isinstance(module, Layers))

    def spread(self, name: str) -> float:
        """The standard deviation of a matrix's initial values."""
        return float(self.config.initializer_range)

    def reset_parameters(self) -> None:
        """Draw all weights anew: matrices normal, biases 0, gains 1, a padding token's embedding 0."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                init.zeros_(parameter)
            elif parameter.ndim == 1:
                init.ones_(parameter)
            else:
                init.normal_(parameter, 0.0, self.spread(name))
        for module in self.modules():
            if isinstance(module, PaddedEmbedding):
                module.clear_padding()

    def own_names(self, names: Iterable[str]) -> dict[str, str]:
        """Own name -> name in a file, for the names of a file.  Raises StateDictError for two names of one weight."""
        found: dict[str, str] = {}
        for name in names:
            if self.BUFFERS and name.endswith(self.BUFFERS):
                continue
            own = name.removeprefix(self.PREFIX)
            if own in found:
                raise StateDictError(f"{found[own]} and {name} are the same weight: expected one of them")
            found[own] = name
        return found

    def published_name(self, own: str) -> str:
        """The name of a weight in files that are written."""
        return own if own == HEAD else self.PREFIX + own

    def plain(self, state: Mapping[str, Any]) -> dict[str, str]:
        """``own_names`` without the copy of a tied head.

        Raises StateDictError if the head is tied and the state holds another one.
        """
        found = self.own_names(state)
        if self.TABLE and self.config.tie_word_embeddings and HEAD in found and self.TABLE in found:
            head, table = (np.asarray(raw(state[found[name]])) for name in (HEAD, self.TABLE))
            if head.shape != table.shape or not np.array_equal(head, table):
                raise StateDictError(
                    f"{HEAD} differs from {self.TABLE}, but the config ties them: "
                    "set tie_word_embeddings=False to load this model"
                )
            del found[HEAD]
        return found

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> LoadReport:
        """As Module.load_state_dict; Hugging Face's own names are understood (prefix, mask buffers, the tied head)."""
        return super().load_state_dict({own: state[name] for own, name in self.plain(state).items()}, strict)

    def save_pretrained(self, folder: str | Path, max_shard_bytes: int | None = None) -> None:
        """Write config.json and weights as Hugging Face's libraries read them; see ``en.models.save_pretrained``."""
        from .folders import save_pretrained

        save_pretrained(self, folder, max_shard_bytes)
