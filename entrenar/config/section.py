"""What all sections of a configuration are."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Strict: no key is ignored, no type is converted (an int is a float, nothing else).

    The text under a field is its description: in the JSON Schema, and in what ``entrenar init`` writes.
    """

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
